"""The networks by name."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from letgo.models.looped import LoopedTransformer
from letgo.models.nlm import NeuralLogicMachine
from letgo.models.transformer import Transformer
from letgo.models.velocity import VelocityTransformer
from letgo.registry import Entry


def build_transformer(dim: int, task: Any, **options: Any) -> Transformer:
    """Its tables of positions are the task's: row, column and box for Sudoku; otherwise one table (App. E.1)."""
    return Transformer(dim, cell_positions(task), **options)


def build_looped(dim: int, task: Any, **options: Any) -> LoopedTransformer:
    return LoopedTransformer(dim, cell_positions(task), **options)


def cell_positions(task: Any) -> Tensor:
    """The tables of positions that a task gives its cells."""
    with torch.device("cpu"):  # also where a network is built without memory, to learn its shapes
        return task.positions()


# Each is given the size of a cell's state, the task, and the configuration's network_options.
NETWORKS: dict[str, Entry] = {
    "transformer": build_transformer,
    "velocity": lambda dim, task, **options: VelocityTransformer(dim, cell_positions(task), **options),
    "looped": build_looped,
    "nlm": lambda dim, task, **options: NeuralLogicMachine(dim, **options),
    "categorical": "letgo.discrete:categorical",
}
