"""What a task is: solved instances, clue masks, rules and a text format. Tasks know symbols, not floats."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from letgo.errors import LetgoError
from letgo.shapes import CellMask, PerBoard, Symbols


@dataclass(frozen=True)
class Problem:
    """A batch of instances. Where `given` is False, `solution` holds the answer if it is known, else 0."""

    solution: Symbols
    given: CellMask
    context: Tensor | None = None  # handed to the network: for graphs the adjacency, (batch, N, N), 0/1 floats
    number: Int[Tensor, "batch"] | None = None  # an instance's place in the whole list that it was drawn with

    def __len__(self) -> int:
        return len(self.solution)

    def __getitem__(self, index: slice | Tensor) -> Problem:
        context, number = (None if part is None else part[index] for part in (self.context, self.number))
        return Problem(self.solution[index], self.given[index], context, number)

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


class Task(ABC):
    """The rules of one puzzle. `CONTRIBUTING.md` shows a complete one in under 40 lines."""

    name: str
    cells: int  # m of Table 2
    symbols: int  # d of Table 2
    regimes: tuple[str, ...]  # named clue regimes of Table 2; the first is the default

    @abstractmethod
    def solved(self, count: int, rng: np.random.Generator) -> tuple[Symbols, Tensor | None]:
        """Random solved instances and, where the task has one, their context."""

    @abstractmethod
    def masks(self, boards: Symbols, regime: str, rng: np.random.Generator) -> CellMask:
        """Clues by a regime of Table 2, or 'train'."""

    @abstractmethod
    def broken(self, boards: Symbols, problem: Problem) -> CellMask:
        """Cells that take part in a broken rule, on boards of legal symbols."""

    @abstractmethod
    def parse(self, text: str) -> Problem:
        """One instance from its one-line text; raises LetgoError saying what is wrong and what was expected."""

    @abstractmethod
    def format(self, boards: Symbols, problem: Problem) -> list[str]:
        """One line of text per board, the form that `parse` reads."""

    @abstractmethod
    def format_clues(self, problem: Problem) -> list[str]:
        """The puzzles themselves, without their answers."""

    def draw(self, board: Symbols, problem: Problem) -> str:
        """One board (batch of 1) as a picture of several lines for a terminal."""
        return self.format(board, problem)[0]

    def draw_clues(self, problem: Problem) -> str:
        """One puzzle (batch of 1) as a picture."""
        return self.format_clues(problem)[0]

    def violations(self, boards: Symbols, problem: Problem) -> CellMask:
        """Cells that break a rule, changed clues, and codes that are no symbol at all."""
        legal = (boards >= 0) & (boards < self.symbols)
        broken = self.broken(boards.clamp(0, self.symbols - 1), problem)
        return broken | changed_clues(boards, problem) | ~legal

    def generate(self, count: int, rng: np.random.Generator, regime: str | None = None) -> Problem:
        boards, context = self.solved(count, rng)
        return Problem(boards, self.masks(boards, regime or self.regimes[0], rng), context)

    def images(self, problem: Problem) -> Problem:
        """Every instance under each symmetry of the task, itself among them (`--symmetries`)."""
        raise LetgoError(f"{self.name} knows no symmetries to train on; leave --symmetries out")

    def validate(self, boards: Symbols, problem: Problem) -> PerBoard:
        """Every rule holds and every clue is kept."""
        return ~self.violations(boards, problem).any(dim=1)


def changed_clues(boards: Symbols, problem: Problem) -> CellMask:
    return problem.given & (boards != problem.solution)


def random_masks(count: int, cells: int, low: int, high: int, rng: np.random.Generator) -> CellMask:
    """k ~ U{low..high} randomly placed clues per board (Table 2)."""
    clues = rng.integers(low, high, size=(count, 1), endpoint=True)
    rank = rng.random((count, cells)).argsort(axis=1).argsort(axis=1)
    return torch.from_numpy(rank < clues)
