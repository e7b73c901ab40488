"""What a task is: its rules, its text and how it looks. Tasks know symbols, not floats, and no files."""

from __future__ import annotations

import re
import zlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from math import isqrt
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from letgo.errors import LetgoError, unknown
from letgo.estimates import Column
from letgo.shapes import CellMask, PerBoard, Symbols


@dataclass(frozen=True)
class Problem:
    """A Problem is a batch of instances. Where `given` is False, `solution` holds the answer if it is known, else 0."""

    solution: Symbols
    given: CellMask
    context: Tensor | None = None  # handed to the network: for graphs the adjacency, (batch, N, N), 0/1 floats
    number: Int[Tensor, "batch"] | None = None  # an instance's place in the whole list that it was drawn with

    def __len__(self) -> int:
        return len(self.solution)

    def __getitem__(self, index: slice | Tensor) -> Problem:
        context, number = (None if part is None else part[index] for part in (self.context, self.number))
        return Problem(self.solution[index], self.given[index], context, number)

    def with_clues(self, boards: Int[Tensor, "*tries batch cells"]) -> Int[Tensor, "*tries batch cells"]:
        """Return boards with the clues in their cells: a proposal may say otherwise there, since no loss asks it."""
        return torch.where(self.given, self.solution, boards)

    @staticmethod
    def cat(problems: list[Problem]) -> Problem:
        contexts = [p.context for p in problems if p.context is not None]
        numbers = [p.number for p in problems if p.number is not None]
        return Problem(
            torch.cat([p.solution for p in problems]),
            torch.cat([p.given for p in problems]),
            torch.cat(contexts) if contexts else None,
            torch.cat(numbers) if len(numbers) == len(problems) else None,
        )


@dataclass(frozen=True)
class Look:
    """A Look is how the page shows a task: what a board is drawn as, and how its symbols are written."""

    title: str
    rows: int
    columns: int
    letters: Sequence[str]  # one text per symbol
    kind: str = "grid"  # or 'queens', 'maze', 'graph'
    box: int = 0  # the side of a Sudoku's boxes
    separator: str = ""  # what stands between the cells of a puzzle's text
    example: str | None = None  # a puzzle to begin with; without one it is the first random puzzle


class Task(ABC):
    """A Task is the rules of one puzzle. `CONTRIBUTING.md` shows a complete one in under 40 lines."""

    name: str
    cells: int  # m of Table 2
    symbols: int  # d of Table 2
    regimes: tuple[str, ...]  # named clue regimes of Table 2; the first is the default
    generates: bool = True  # whether a board can be drawn from no clues at all; graphs and mazes answer a question
    draws_images: bool = False  # whether symmetries are too many to list, so that training draws them
    grid_row: int = 0  # cells of a line, where a puzzle may also be written as a grid of lines
    context: str = ""  # what the network is told beside the clues, in words, where there is such a thing
    valid: str = ""  # the function of a user, FILE.py:FUNCTION, that says which boards are valid, where one does

    @property
    def usual_clues(self) -> int | None:
        """Return the number of Table 2, where a regime may also be a number of clues."""
        return None

    @property
    def has_rules(self) -> bool:
        """Return whether `broken` can tell a wrong board; of rows without rules nothing is known."""
        return True

    def checked_by(self, place: str) -> Task:
        """Return the task with a user's function for its rules, which one that has rules of its own refuses."""
        if place:
            raise LetgoError(f"--valid is for tables; {self.name} has rules of its own")
        return self

    @abstractmethod
    def broken(self, boards: Symbols, problem: Problem) -> CellMask:
        """Return the cells that take part in a broken rule, on boards of legal symbols."""

    @abstractmethod
    def parse(self, text: str) -> Problem:
        """Return one instance from its one-line text; raises LetgoError saying what is wrong and what was expected."""

    @abstractmethod
    def format(self, boards: Symbols, problem: Problem) -> list[str]:
        """Write one line of text per board, the form that `parse` reads."""

    def format_clues(self, problem: Problem) -> list[str]:
        """Write the puzzles without their answers: by default '.' for a blank, of one character per cell."""
        text = "".join(self.format(problem.solution, problem))
        letters = np.frombuffer(bytearray(text, "utf-32-le"), "<u4").reshape(problem.given.shape)
        letters[~problem.given.cpu().numpy()] = ord(".")
        return cut(letters.tobytes().decode("utf-32-le"), letters.shape[1])

    def parse_all(self, texts: Sequence[str]) -> Problem | None:
        """Return what `parse` reads in these texts, all at once; None where it has to look at each or refuses one."""
        return None

    # A task that draws its own instances has these two; all others come from files.

    def solved(self, count: int, rng: np.random.Generator) -> tuple[Symbols, Tensor | None]:
        """Draw random solved instances and, where the task has one, their context."""
        raise LetgoError(f"{self.name} draws no instances of its own; give --data FILE")

    def masks(self, boards: Symbols, regime: str, rng: np.random.Generator) -> CellMask:
        """Draw clues by a regime of Table 2, or 'train'; here random ones, of which `usual_clues` are usual."""
        if self.usual_clues is not None:
            named = {"random": (self.usual_clues, self.usual_clues), "gen": (0, 0)}
            low, high = clue_range(regime, named, self.cells, (*named, "train"))
            return random_masks(len(boards), self.cells, low, high, rng).to(boards.device)
        raise LetgoError(f"{self.name} draws no clues of its own; give --data FILE whose instances have clues")

    def generate(self, count: int, rng: np.random.Generator, regime: str | None = None) -> Problem:
        boards, context = self.solved(count, rng)
        return Problem(boards, self.masks(boards, regime or self.regimes[0], rng), context)

    # What follows has a default that most tasks keep.

    def positions(self) -> Int[Tensor, "tables cells"]:
        """Return one row per position table of the network (App. E.1); by default every cell has its own entry."""
        return torch.arange(self.cells)[None]

    def validate(self, boards: Symbols, problem: Problem) -> PerBoard:
        """Say of which boards every rule holds and every clue is kept."""
        return ~self.violations(boards, problem).any(dim=1)

    def violations(self, boards: Symbols, problem: Problem) -> CellMask:
        """Return the cells that break a rule, changed clues, and codes that are no symbol at all."""
        legal = (boards >= 0) & (boards < self.symbols)
        broken = self.broken(boards.clamp(0, self.symbols - 1), problem)
        return broken | changed_clues(boards, problem) | ~legal

    def draw(self, board: Symbols, problem: Problem) -> str:
        """Draw one board (batch of 1) as a picture of several lines for a terminal."""
        return self.format(board, problem)[0]

    def without_comment(self, line: str) -> str:
        """Return the puzzle in a line of a puzzle file; here a comment starts with '#' and runs to the line's end."""
        return line.partition("#")[0].strip()

    def cells_of(self, line: str) -> str:
        """Return what a line holds of a puzzle that is written as a grid; '' for a border."""
        return line

    def images(self, problem: Problem) -> Problem:
        """Return every instance under each symmetry of the task, itself among them (`--symmetries`)."""
        raise LetgoError(f"{self.name} knows no symmetries to train on; leave --symmetries out")

    def random_images(self, boards: Symbols, given: CellMask) -> tuple[Symbols, CellMask]:
        """Return each board and its clues under a symmetry of its own, drawn from torch's generator on their device."""
        raise LetgoError(f"{self.name} draws no symmetries; its `images` are all there are")

    def outcomes(self, tries: Sequence[Symbols], problem: Problem) -> Mapping[str, Column]:
        """Return what only this task is measured by: a row for each instance; `tries` are the boards of each pass."""
        return {}

    def facts(self, problem: Problem, sample: int) -> dict[str, Any]:
        """Return what `letgo data check` tells of this task's instances alone, the slow part of it from a sample."""
        return {}

    def clashes(self, board: Symbols, problem: Problem) -> list[tuple[int, int]]:
        """Return pairs of cells of one board (a batch of 1) that break a rule together, if the rules speak of pairs."""
        return []

    def solutions(self, problem: Problem, cap: int, seconds: float) -> Symbols | None:
        """Return at most `cap` solutions of one puzzle (a batch of 1); None where no exact search ends in time.

        It is asked to describe a puzzle, and never by a sampler.
        """
        return None

    def sized(self, side: int) -> Task:
        """Return the same task on a board of another side."""
        if not is_dataclass(self) or "size" not in {f.name for f in fields(self)}:
            raise LetgoError(f"--size {side}: {self.name} has one size only; leave --size out")
        return replace(self, size=side)  # pyright: ignore[reportArgumentType]

    @property
    def look(self) -> Look:
        """Return a square board where the cells fill one, else a single row."""
        side = isqrt(self.cells)
        rows, columns = (side, side) if side**2 == self.cells else (1, self.cells)
        letters, separator = self._letters()
        return Look(self.name.capitalize(), rows, columns, letters, separator=separator)

    def _letters(self) -> tuple[list[str], str]:
        """Return how each symbol is written and what stands between two, found by writing boards of one symbol."""
        boards = torch.arange(self.symbols)[:, None].expand(-1, self.cells)
        lines = self.format(boards, Problem(boards, torch.zeros_like(boards, dtype=torch.bool)))
        if all(len(line) == self.cells for line in lines):
            return [line[0] for line in lines], ""
        words = [re.findall(r"\w+", line) for line in lines]
        if all(len(each) == self.cells and len({*each}) == 1 for each in words):
            between = re.findall(r"\W+", lines[0].strip())
            return [each[0] for each in words], between[0] if len({*between}) == 1 else ""
        return [str(symbol) for symbol in range(self.symbols)], ""


def cut(text: str, width: int) -> list[str]:
    """Return the lines of a text that has nothing between them."""
    return [text[start : start + width] for start in range(0, len(text), width)]


def identities(problem: Problem) -> Int[Tensor, "batch"]:
    """Return a puzzle's own number, 32 bits: its noise, so its answer, is the same wherever it stands in a list."""
    clues = torch.where(problem.given, problem.solution, -1).to("cpu", torch.int64)
    context = torch.empty(len(clues), 0) if problem.context is None else problem.context.cpu().float()
    rows = zip(clues.numpy(), context.numpy(), strict=True)
    return torch.tensor([zlib.crc32(c.tobytes() + a.tobytes()) for c, a in rows])


def solved(problem: Problem, task: Task) -> bool:
    """Return whether the answers came with the puzzles."""
    return bool(task.validate(problem.solution, problem).all())


def changed_clues(boards: Symbols, problem: Problem) -> CellMask:
    return problem.given & (boards != problem.solution)


def clue_range(regime: str, named: dict[str, tuple[int, int]], cells: int, names: Sequence[str]) -> tuple[int, int]:
    """Return the fewest and the most clues of a regime: a name of Table 2, a count, 'train'. Errors say `names`."""
    if regime in named:
        return named[regime]
    if regime == "train":
        return 0, cells - 1
    if regime.isdecimal() and int(regime) <= cells:
        return int(regime), int(regime)
    raise unknown("regime", regime, names, f"choose {', '.join(names)}, or a clue count from 0 to {cells}")


def random_masks(count: int, cells: int, low: int, high: int, rng: np.random.Generator) -> CellMask:
    """Draw k ~ U{low..high} randomly placed clues per board (Table 2)."""
    clues = rng.integers(low, high, size=(count, 1), endpoint=True)
    rank = rng.random((count, cells)).argsort(axis=1).argsort(axis=1)
    return torch.from_numpy(rank < clues)
