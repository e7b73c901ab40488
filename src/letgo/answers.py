"""What became of each puzzle, over one or more tries."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from letgo.shapes import Symbols
from letgo.tasks import Problem, Task


@dataclass(frozen=True)
class Answer:
    """An Answer says what became of one puzzle; it is the record of `letgo solve --json`."""

    puzzle: str
    solved: bool
    board: str | None  # None where unsolved: an invalid board is never handed out
    tries: int
    calls: int  # network calls spent on this puzzle
    seconds: float
    belief: float | None = None  # the self-likelihood of the choice, where the network chose among tries
    model: str | None = None  # the model that took over from the first one
    row: Int[np.ndarray, "cells"] | None = field(default=None, repr=False, compare=False)  # the board's symbols

    @property
    def symbols(self) -> Symbols | None:
        """Return the board as a batch of 1."""
        return None if self.row is None else torch.from_numpy(self.row)[None]

    def as_dict(self) -> dict[str, Any]:
        values, more = {name: value for name, value in vars(self).items() if name != "row"}, ("belief", "model")
        return {name: value for name, value in values.items() if name not in more or value is not None}

    def after(self, first: Answer, model: str) -> Answer:
        """Return this answer of a model that took over; what the first one spent counts too."""
        spent = {name: getattr(first, name) + getattr(self, name) for name in ("tries", "calls", "seconds")}
        return replace(self, model=model, **spent)


class Ledger:
    """A Ledger has the puzzles of one call of `solve`, with their boards until now and what those cost.

    With `choosing` the board with the highest self-likelihood is kept, and a puzzle stays open until that is above
    `sure`; no rule of the task is looked at.
    """

    def __init__(self, problem: Problem, choosing: bool, sure: float | None = None):
        self.problem, self.choosing = problem, choosing
        self.sure = math.inf if sure is None else sure
        self.boards = torch.zeros_like(problem.solution)
        self.solved = torch.zeros(len(problem), dtype=torch.bool)
        self.belief = torch.full((len(problem),), -math.inf)
        self.tries = torch.zeros(len(problem), dtype=torch.long)
        self.calls = torch.zeros(len(problem), dtype=torch.long)
        self.seconds = torch.zeros(len(problem), dtype=torch.float64)

    def is_open(self, rows: slice | Int[Tensor, "some"] = slice(None)) -> Bool[Tensor, "some"]:
        """Return whether another try is for these puzzles."""
        return self.belief[rows] <= self.sure if self.choosing else ~self.solved[rows]

    def open(self) -> Int[Tensor, "open"]:
        """Return the rows of puzzles that another try is for."""
        return self.is_open().nonzero().flatten()

    def enter(
        self,
        rows: Int[Tensor, "tried"],
        boards: Symbols,
        valid: Bool[Tensor, "tried"],
        calls: Int[Tensor, "tried"],
        seconds: Float[Tensor, "tried"],
        belief: Float[Tensor, "tried"] | None = None,
    ) -> Bool[Tensor, "tried"]:
        """Enter one more try of these rows; return whose board is its puzzle's answer until now."""
        self.tries[rows] += 1
        self.calls[rows] += calls
        self.seconds[rows] += seconds
        better = torch.ones_like(valid) if belief is None else belief > self.belief[rows]
        rows = rows[better]
        self.boards[rows], self.solved[rows] = boards[better], valid[better]
        if belief is not None:
            self.belief[rows] = belief[better]
        return better

    def answers(self, task: Task, rows: slice = slice(None)) -> list[Answer]:
        problem, boards = self.problem[rows], self.boards[rows]
        columns = zip(
            task.format_clues(problem),
            self.solved[rows].tolist(),
            task.format(boards, problem),
            self.tries[rows].tolist(),
            self.calls[rows].tolist(),
            self.seconds[rows].tolist(),
            self.belief[rows].tolist(),
            boards.cpu().numpy(),
            strict=True,
        )
        return [
            Answer(
                puzzle,
                solved,
                board if solved else None,
                tries,
                calls,
                round(seconds, 4),
                round(belief, 4) if self.choosing else None,
                row=row if solved else None,
            )
            for puzzle, solved, board, tries, calls, seconds, belief, row in columns
        ]
