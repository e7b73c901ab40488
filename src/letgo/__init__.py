"""Continuous diffusion for constrained discrete tasks: Tweedie reprojection and self-correction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["LetgoError", "__version__", "load", "train"]

if TYPE_CHECKING:
    from letgo.errors import LetgoError
    from letgo.solver import load
    from letgo.training.train import train


def __getattr__(name: str) -> Any:
    """`letgo.load` and the submodules, imported when first used: `letgo --help` does not wait for torch."""
    if name == "load":
        from letgo.solver import load

        return load
    if name == "train":
        from letgo.training.train import train

        return train
    if name == "LetgoError":
        from letgo.errors import LetgoError

        return LetgoError
    if name in ("paths", "kernels", "tasks", "codecs", "sampling", "metrics"):
        from importlib import import_module

        return import_module(f"letgo.{name}")
    raise AttributeError(f"module 'letgo' has no attribute '{name}'")
