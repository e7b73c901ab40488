"""The networks by name."""

from __future__ import annotations

from typing import Any

from letgo.models.nlm import NeuralLogicMachine
from letgo.models.transformer import Transformer
from letgo.registry import Entry


def build_transformer(dim: int, task: Any, **options: Any) -> Transformer:
    """Its tables of positions are the task's: row, column and box for Sudoku; otherwise one table (App. E.1)."""
    return Transformer(dim, task.positions(), **options)


# Each is given the size of a cell's state, the task, and the configuration's network_options.
NETWORKS: dict[str, Entry] = {
    "transformer": build_transformer,
    "nlm": lambda dim, task, **options: NeuralLogicMachine(dim, **options),
    "categorical": "letgo.discrete:categorical",
}
