"""Continuous diffusion for constrained discrete tasks: Tweedie reprojection and self-correction."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["LetgoError", "__version__", "load", "train"]

if TYPE_CHECKING:
    from letgo.errors import LetgoError
    from letgo.solver import load
    from letgo.training.train import train

DOORS = {"LetgoError": "letgo.errors", "load": "letgo.solver", "train": "letgo.training.train"}


def __getattr__(name: str) -> Any:
    """The doors and submodules are imported when they are first used: `letgo --help` does not wait for torch."""
    if name in DOORS:
        return getattr(import_module(DOORS[name]), name)
    if name in ("paths", "kernels", "tasks", "codecs", "sampling", "metrics"):
        return import_module(f"letgo.{name}")
    raise AttributeError(f"module 'letgo' has no attribute '{name}'")
