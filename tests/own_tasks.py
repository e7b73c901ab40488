"""Tasks as others would write them, each unlike those of the package in what a puzzle's text is."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import torch
from torch import Tensor

from letgo.errors import LetgoError
from letgo.tasks import Look, Problem, Task, random_masks

COLOURS = ["red", "green", "blue"]
ROWS = list(permutations(range(3)))
PAIRS = torch.tensor([[*a, *b] for a, b in product(ROWS, ROWS) if all(x != y for x, y in zip(a, b, strict=True))])


class TwoSteps(Task):
    """Where two arrows in a row lead, on four nodes: the arrows are told beside a board without clues."""

    name, cells, symbols, regimes, generates = "two-steps", 16, 2, ("usual",), False
    context = "the arrows"

    def solved(self, count: int, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        arrows = torch.from_numpy(rng.random((count, 4, 4)) < 0.4).float()
        return (arrows @ arrows > 0).flatten(1).long(), arrows

    def masks(self, boards: Tensor, regime: str, rng: np.random.Generator) -> Tensor:
        return torch.zeros_like(boards, dtype=torch.bool)

    def broken(self, boards: Tensor, problem: Problem) -> Tensor:
        arrows = problem.context
        assert arrows is not None
        return boards != (arrows @ arrows > 0).flatten(1).long()

    def parse(self, text: str) -> Problem:
        rows = text.strip().split("|")
        if len(rows) != 4 or any(len(row) != 4 or set(row) - {"0", "1"} for row in rows):
            raise LetgoError(f"expected four rows of 0 and 1 joined by '|', got {text!r}")
        blank = torch.zeros(1, 16, dtype=torch.long)
        return Problem(blank, blank.bool(), torch.tensor([[[float(c) for c in row] for row in rows]]))

    def format(self, boards: Tensor, problem: Problem) -> list[str]:
        return ["|".join("".join(map(str, row)) for row in board) for board in boards.view(-1, 4, 4).tolist()]

    def format_clues(self, problem: Problem) -> list[str]:
        assert problem.context is not None
        return self.format(problem.context.long(), problem)


class Derangements(Task):
    """Two rows of the letters ABC, none below itself; the text has a space between the rows, '?' is a blank."""

    name, cells, symbols, regimes = "derangements", 6, 3, ("two", "none")
    look = Look("Derangements", rows=2, columns=3, letters="ABC")

    def solved(self, count: int, rng: np.random.Generator) -> tuple[Tensor, None]:
        return PAIRS[torch.from_numpy(rng.integers(len(PAIRS), size=count))], None

    def masks(self, boards: Tensor, regime: str, rng: np.random.Generator) -> Tensor:
        low, high = {"two": (2, 2), "none": (0, 0), "train": (0, 5)}[regime]
        return random_masks(len(boards), 6, low, high, rng)

    def broken(self, boards: Tensor, problem: Problem) -> Tensor:
        grid = boards.view(-1, 2, 3)
        in_row = (grid[:, :, :, None] == grid[:, :, None]).sum(-1) > 1
        return (in_row | (grid[:, :1] == grid[:, 1:])).flatten(1)

    def parse(self, text: str) -> Problem:
        signs = "".join(text.split())
        if len(signs) != 6 or set(signs) - set("ABC?"):
            raise LetgoError(f"expected six of A, B, C and ?, got {text!r}")
        board = torch.tensor([[max("ABC".find(sign), 0) for sign in signs]])
        return Problem(board, torch.tensor([[sign != "?" for sign in signs]]))

    def format(self, boards: Tensor, problem: Problem) -> list[str]:
        return [" ".join("".join("ABC"[s] for s in row) for row in board) for board in boards.view(-1, 2, 3).tolist()]

    def format_clues(self, problem: Problem) -> list[str]:
        boards = torch.where(problem.given, problem.solution, 3).view(-1, 2, 3).tolist()
        return [" ".join("".join("ABC?"[s] for s in row) for row in board) for board in boards]


class Differ(Task):
    """Two cells of two symbols that differ."""

    name, cells, symbols, regimes = "differ", 2, 2, ("gen",)

    def solved(self, count: int, rng: np.random.Generator) -> tuple[Tensor, None]:
        first = torch.from_numpy(rng.integers(2, size=count))
        return torch.stack([first, 1 - first], 1), None

    def masks(self, boards: Tensor, regime: str, rng: np.random.Generator) -> Tensor:
        return random_masks(len(boards), 2, 0, int(regime == "train"), rng)

    def broken(self, boards: Tensor, problem: Problem) -> Tensor:
        return (boards[:, :1] == boards[:, 1:]).expand(-1, 2)

    def parse(self, text: str) -> Problem:
        if len(text) != 2 or set(text) - set("01."):
            raise LetgoError(f"expected two of 0, 1 and '.', got {text!r}")
        return Problem(torch.tensor([[int(c == "1") for c in text]]), torch.tensor([[c != "." for c in text]]))

    def format(self, boards: Tensor, problem: Problem) -> list[str]:
        return ["".join(map(str, board)) for board in boards.tolist()]


class Traffic(Task):
    """Five colours of which no two neighbours are the same, as words with commas; a blank is nothing at all."""

    name, cells, symbols, regimes, usual_clues = "traffic", 5, 3, ("random", "gen"), 2

    def solved(self, count: int, rng: np.random.Generator) -> tuple[Tensor, None]:
        steps = torch.from_numpy(rng.integers(1, 3, size=(count, 5)))
        return steps.cumsum(1) % 3, None

    def broken(self, boards: Tensor, problem: Problem) -> Tensor:
        same = boards[:, 1:] == boards[:, :-1]
        no = torch.zeros(len(boards), 1, dtype=torch.bool)
        return torch.cat([same, no], 1) | torch.cat([no, same], 1)

    def parse(self, text: str) -> Problem:
        words = text.split(",")
        if len(words) != 5 or set(words) - {*COLOURS, ""}:
            raise LetgoError(f"expected five of {', '.join(COLOURS)} or nothing with commas between, got {text!r}")
        board = torch.tensor([[COLOURS.index(word) if word else 0 for word in words]])
        return Problem(board, torch.tensor([[word != "" for word in words]]))

    def format(self, boards: Tensor, problem: Problem) -> list[str]:
        return [",".join(COLOURS[s] for s in board) for board in boards.tolist()]

    def format_clues(self, problem: Problem) -> list[str]:
        boards = torch.where(problem.given, problem.solution, 3).tolist()
        return [",".join([*COLOURS, ""][s] for s in board) for board in boards]
