"""MNIST-Sudoku: 9x9 Sudokus whose cells are shown as 28x28 digits, with SRM's levels of clues (Wewer et al. 2025).

hard: 0 to 26 clues, medium: 27 to 53, easy: 54 to 80, at random places. The rules are those of Sudoku.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from letgo.tasks.sudoku import Sudoku
from letgo.tasks.task import Look, clue_range


@dataclass(frozen=True)
class MnistSudoku(Sudoku):
    """Sudokus have SRM's three levels, the hard one first."""

    name: str = "mnist-sudoku"
    splits: tuple[str, ...] = ("hard", "medium", "easy")

    @property
    def look(self) -> Look:
        return replace(super().look, title="MNIST-Sudoku")

    def clue_range(self, regime: str) -> tuple[int, int]:
        spans = {"hard": (0, 26), "medium": (27, 53), "easy": (54, 80)}
        named = {
            level: (self._share(low), min(self._share(high), self.cells - 1)) for level, (low, high) in spans.items()
        }
        return clue_range(regime, named, self.cells, (*self.regimes, "minimal", "train"))
