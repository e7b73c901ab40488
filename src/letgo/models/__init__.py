"""The networks by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from letgo.models.nlm import NeuralLogicMachine
from letgo.models.transformer import Transformer


def transformer(dim: int, task: Any, **options: Any) -> Transformer:
    """Its tables of positions are the task's: row, column and box for Sudoku; otherwise one table (App. E.1)."""
    tables = getattr(task, "positions", None)
    return Transformer(dim, tables() if tables else torch.arange(task.cells)[None], **options)


# Each is given the size of a cell's state, the task, and the configuration's network_options.
NETWORKS: dict[str, Callable[..., nn.Module]] = {
    "transformer": transformer,
    "nlm": lambda dim, task, **options: NeuralLogicMachine(dim, **options),
}
