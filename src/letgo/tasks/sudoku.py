"""Sudoku on n^2 x n^2 boards: every row, column and n x n box holds every symbol once."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import factorial, isqrt
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from letgo.errors import LetgoError
from letgo.shapes import CellMask, Symbols
from letgo.tasks.sudoku_boards import random_boards
from letgo.tasks.sudoku_grid import positions, units_of_cell
from letgo.tasks.sudoku_search import completions, is_unique, minimal_puzzles
from letgo.tasks.task import Look, Problem, clue_range, random_masks
from letgo.tasks.text import ALPHABET, Square, framed

# First looks that show the point, by the side of a box: the page's race says how typical they are.
EXAMPLES = {
    2: ".1..3......2..3.",
    3: ".6..........6.......9..43.....9...5......7.4....8.....84.1.5.......8.93469.4.....",
}


@dataclass(frozen=True)
class Sudoku(Square):
    """Boards are 9x9 as in Table 2; box = 2 and 4 make 4x4 and 16x16 ones, with clue counts in proportion."""

    box: int = 3
    name: str = "sudoku"
    splits: tuple[str, ...] = ()  # the regimes, where they are the parts of a data set
    cells: int = field(init=False)
    symbols: int = field(init=False)
    regimes: tuple[str, ...] = field(init=False)
    draws_images = True

    def __post_init__(self) -> None:
        if self.box not in (2, 3, 4):
            raise LetgoError(f"no Sudoku with boxes of side {self.box}; box is 2 (4x4), 3 (9x9) or 4 (16x16)")
        object.__setattr__(self, "cells", self.box**4)
        object.__setattr__(self, "symbols", self.box**2)
        named = (str(self._share(21)), "medium", "hard")
        object.__setattr__(self, "regimes", self.splits or named)

    @property
    def usual_clues(self) -> int:
        return self._share(21)

    @property
    def look(self) -> Look:
        side, letters = self.symbols, ALPHABET[: self.symbols]
        return Look(f"Sudoku {side}x{side}", side, side, letters, box=self.box, example=EXAMPLES.get(self.box))

    def sized(self, side: int) -> Sudoku:
        """Return a Sudoku of that side; 9 has boxes of side 3."""
        if isqrt(side) ** 2 != side:
            raise LetgoError(f"--size {side}: the side of a Sudoku is a square; choose 4, 9 or 16")
        return replace(self, box=isqrt(side))

    def positions(self) -> Int[Tensor, "3 cells"]:
        """Return row, column and box of every cell, for the three position tables of App. E.1."""
        return torch.from_numpy(positions(self.box))

    def solved(self, count: int, rng: np.random.Generator) -> tuple[Symbols, None]:
        """Draw random boards, uniform up to 9x9; with the same seed a smaller count gives the first of them."""
        return torch.from_numpy(random_boards(self.box, count, rng)).long(), None

    def masks(self, boards: Symbols, regime: str, rng: np.random.Generator) -> CellMask:
        """Draw random clues; 'minimal' puzzles have one solution, and lose that with any clue."""
        if regime == "minimal":
            return minimal_puzzles(boards, rng).given
        low, high = self.clue_range(regime)
        return random_masks(len(boards), self.cells, low, high, rng).to(boards.device)

    def clue_range(self, regime: str) -> tuple[int, int]:
        """Return the fewest and the most clues of a regime (Table 2); a number is an exact count."""
        named = {"medium": (self._share(27), self._share(53)), "hard": (0, self._share(26))}
        return clue_range(regime, named, self.cells, (*self.regimes, "minimal", "train"))

    def _share(self, clues: int) -> int:
        """Scale the clues of a 9x9 board to this board's cells."""
        return round(clues * self.cells / 81)

    def broken(self, boards: Symbols, problem: Problem) -> CellMask:
        """Return the cells whose symbol stands twice in their row, column or box."""
        units = torch.from_numpy(units_of_cell(self.box)).to(boards.device)
        entry = (units * self.symbols + boards[:, None, :]).flatten(1)  # which unit holds which symbol
        counts = entry.new_zeros(len(boards), 3 * self.symbols**2).scatter_add_(1, entry, torch.ones_like(entry))
        repeated = (counts.gather(1, entry) > 1).view(-1, 3, self.cells)
        return repeated.any(dim=1)

    def random_images(self, boards: Symbols, given: CellMask) -> tuple[Symbols, CellMask]:
        """Draw transposition, order of bands, stacks and of the lines in each, and names of symbols for each board."""
        count, box, device = len(boards), self.box, boards.device

        def orders(*shape: int) -> Tensor:
            return torch.rand(count, *shape, device=device).argsort(-1)

        rows, columns = ((orders(box)[..., None] * box + orders(box, box)).flatten(1) for _ in range(2))
        source = rows[:, :, None] * box**2 + columns[:, None, :]
        flip = torch.rand(count, 1, 1, device=device) < 0.5
        source = torch.where(flip, source.transpose(1, 2), source).flatten(1)
        return orders(self.symbols).gather(1, boards.gather(1, source)), given.gather(1, source)

    def solutions(self, problem: Problem, cap: int, seconds: float) -> Symbols | None:
        try:
            return completions(problem, cap, seconds)
        except TimeoutError:
            return None

    def facts(self, problem: Problem, sample: int) -> dict[str, Any]:
        """Return how many of a random sample have exactly one solution."""
        if sample < 1:
            return {}
        chosen = np.random.default_rng(0).permutation(len(problem))[:sample]
        unique = is_unique(problem[torch.from_numpy(chosen)])
        return {"unique": {"sampled": len(chosen), "unique": int(unique.sum())}}

    @property
    def units(self) -> np.ndarray:
        return positions(self.box)

    def hint(self, text: str) -> str:
        return "; 4x4 is the model sudoku-mini's" if len(self.cells_of(text)) == 16 else ""

    def draw(self, board: Symbols, problem: Problem) -> str:
        """Draw clues in brackets, and stars around changed clues and answers that break a rule: `[5] 3 *5*`."""
        texts = framed(self.format(board, problem)[0], board, problem, self.violations(board, problem))
        bar = "─" * (3 * self.box)
        top, middle, bottom = (
            left + between.join([bar] * self.box) + right for left, between, right in ("┌┬┐", "├┼┤", "└┴┘")
        )
        boxes = ["".join(texts[i : i + self.box]) for i in range(0, self.cells, self.box)]
        rows = ["│" + "│".join(boxes[i : i + self.box]) + "│" for i in range(0, len(boxes), self.box)]
        bands = ["\n".join(rows[i : i + self.box]) for i in range(0, len(rows), self.box)]
        return f"{top}\n" + f"\n{middle}\n".join(bands) + f"\n{bottom}"


def n_symmetries(box: int = 3) -> int:
    """Count transpose, order of bands, stacks and of the lines in each, names of symbols: 2 * 6^8 * 9! for 9x9."""
    return 2 * factorial(box) ** (2 * (box + 1)) * factorial(box**2)
