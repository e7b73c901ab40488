"""Continuous diffusion for constrained discrete tasks: Tweedie reprojection and self-correction."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
MODULES = ("codecs", "kernels", "metrics", "models", "paths", "samplers", "sampling", "tasks")  # as the doors
__all__ = ["LetgoError", "__version__", "evaluate", "load", "sample", "train"]

if TYPE_CHECKING:
    from letgo.errors import LetgoError
    from letgo.evaluation import evaluate_model as evaluate
    from letgo.foreign import sample
    from letgo.solver import load
    from letgo.training.train import train

DOORS = {  # each is 'module:name', imported when it is first used: `letgo --help` does not wait for torch
    "LetgoError": "errors:LetgoError",
    "evaluate": "evaluation:evaluate_model",
    "load": "solver:load",
    "sample": "foreign:sample",
    "train": "training.train:train",
}


def __getattr__(name: str) -> Any:
    if name in DOORS:
        module, _, attribute = DOORS[name].partition(":")
        return getattr(import_module(f"letgo.{module}"), attribute)
    if name in MODULES:
        return import_module(f"letgo.{name}")
    raise AttributeError(f"module 'letgo' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted([*__all__, *MODULES])
