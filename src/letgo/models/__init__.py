"""The networks by name."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from letgo.models.conditioned import SelfConditioned
from letgo.models.looped import LoopedTransformer
from letgo.models.nlm import NeuralLogicMachine
from letgo.models.transformer import Transformer
from letgo.registry import Entry


def build_transformer(dim: int, task: Any, **options: Any) -> Transformer:
    """Its tables of positions are the task's: row, column and box for Sudoku; otherwise one table (App. E.1)."""
    return Transformer(dim, _positions(task), **options)


def build_looped(dim: int, task: Any, **options: Any) -> LoopedTransformer:
    return LoopedTransformer(dim, _positions(task), **options)


def build_self_conditioned(dim: int, task: Any, **options: Any) -> SelfConditioned:
    return SelfConditioned(dim, _positions(task), **options)


def _positions(task: Any) -> Tensor:
    with torch.device("cpu"):  # also where a network is built without memory, to learn its shapes
        return task.positions()


# Each is given the size of a cell's state, the task, and the configuration's network_options.
NETWORKS: dict[str, Entry] = {
    "transformer": build_transformer,
    "looped": build_looped,
    "self-conditioned": build_self_conditioned,
    "nlm": lambda dim, task, **options: NeuralLogicMachine(dim, **options),
    "categorical": "letgo.discrete:categorical",
}
