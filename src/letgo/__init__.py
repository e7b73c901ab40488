"""Continuous diffusion for constrained discrete tasks: Tweedie reprojection and self-correction."""

__version__ = "0.1.0"
