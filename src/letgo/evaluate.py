"""The door to instances."""

from __future__ import annotations

import math

import torch

from letgo.data.load import load_split
from letgo.errors import LetgoError, unknown
from letgo.rng import data_rng
from letgo.tasks import Problem, Task

KEEPING = ("sudoku-extreme", "maze", "connectivity")  # their instances keep the clues that came with them


def instances(
    task: Task, regime: str | None, count: int, seed: int, data: str | None = None, purpose: str = "test"
) -> Problem:
    """The instances of (seed, regime): the same for every model and rule, and never those of training."""
    if count < 1:
        raise LetgoError(f"count must be at least 1, got {count}")
    if regime == "valid" and purpose == "test":
        purpose = "valid"  # where a regime is a split, it is the one that was asked for
    rng = data_rng(seed, purpose)
    asked = regime is not None or purpose == "test"  # a run's own validation has no regime
    regime = regime or task.regimes[0]
    if data is None:
        split = getattr(task, "split", None)  # queens: so few boards that validation and test need their own
        return (split(purpose) if split else task).generate(count, rng, regime)
    if task.name in ("sudoku-extreme", "maze") and regime not in (*task.regimes, "train"):
        raise unknown("regime", regime, (*task.regimes, "train"))
    table = load_split(data, task, purpose)
    if purpose == "valid":
        count = min(count, len(table))  # held-out rows may be few
    if len(table) < count:
        raise LetgoError(f"{data} holds {len(table)} instances, fewer than --count {count}; say --count {len(table)}")
    if task.name == "connectivity" and asked:
        _check_nodes(data, table, regime)
    chosen = table[torch.from_numpy(rng.choice(len(table), count, replace=False))]
    if own_clues(chosen, task) and asked and regime != task.regimes[0]:
        raise LetgoError(f"{data}: puzzles without answers bring their own clues; leave --regime out")
    if task.name in KEEPING or own_clues(chosen, task):
        return chosen
    return Problem(chosen.solution, task.masks(chosen.solution, regime, rng), chosen.context)


def solved(problem: Problem, task: Task) -> bool:
    """Whether the answers came with the puzzles."""
    return bool(task.validate(problem.solution, problem).all())


def own_clues(problem: Problem, task: Task) -> bool:
    """Whether no clues can be drawn, since the puzzles came without their answers."""
    return task.name not in KEEPING and not solved(problem, task)


def _check_nodes(data: str, table: Problem, regime: str) -> None:
    """A regime of graphs is their size, and the report names it."""
    nodes = math.isqrt(table.solution.shape[1])
    if regime != "train" and str(nodes) != regime:
        raise LetgoError(f"{data} holds graphs of {nodes} nodes, not of {regime}; say --regime {nodes}")
