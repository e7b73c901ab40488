"""The networks by name."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from letgo.models.conditioned import SelfConditioned
from letgo.models.looped import LoopedNLM, LoopedTransformer
from letgo.models.nlm import NeuralLogicMachine
from letgo.models.transformer import Transformer
from letgo.models.velocity import VelocityTransformer
from letgo.registry import Entry


def build_transformer(dim: int, task: Any, **options: Any) -> Transformer:
    """Build it with the task's tables of positions: row, column and box for Sudoku, otherwise one table (App. E.1)."""
    return Transformer(dim, positions_of(task), **options)


def build_looped(dim: int, task: Any, **options: Any) -> LoopedTransformer:
    return LoopedTransformer(dim, positions_of(task), **options)


def positions_of(task: Any) -> Tensor:
    with torch.device("cpu"):  # also where a network is built without memory, to learn its shapes
        return task.positions()


# Those that answer after each of several turns, which cross-entropy asks of them.
LOOPED: dict[str, Entry] = {
    "looped": build_looped,
    "looped-nlm": lambda dim, task, **options: LoopedNLM(dim, **options),
}

# Each is given the size of a cell's state, the task, and the configuration's network_options.
NETWORKS: dict[str, Entry] = {
    "transformer": build_transformer,
    "velocity": lambda dim, task, **options: VelocityTransformer(dim, positions_of(task), **options),
    **LOOPED,
    "self-conditioned": lambda dim, task, **options: SelfConditioned(dim, positions_of(task), **options),
    "nlm": lambda dim, task, **options: NeuralLogicMachine(dim, **options),
    "categorical": "letgo.discrete:categorical",
    "consistency": "letgo.consistency:consistency_transformer",
}
