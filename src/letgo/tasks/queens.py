"""N-queens: one queen per row, her column is the symbol. For N = 4, [1, 3, 0, 2] is one of the two solutions:
    . Q . . / . . . Q / Q . . . / . . Q .
As text `bdac`, the letters of the columns; `b..c` leaves two queens to be found.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

import numpy as np
import torch
from jaxtyping import Bool, Int, UInt, UInt8
from torch import Tensor

from letgo.errors import LetgoError
from letgo.shapes import CellMask, Symbols
from letgo.tasks.latin import fill_or_restart
from letgo.tasks.task import Look, Problem, Task
from letgo.tasks.text import bare_cells, framed, read_cells, write_cells

COLUMNS = "abcdefghijklmnopqrstuvwxyz"
LISTED = 14  # the largest board whose solutions are all listed, and the only one with a training split
TRAINING = 168_000  # App. D: the boards of that split
Bits = UInt[np.ndarray, "_"]  # one entry per board, of which each row leaves another number


@dataclass(frozen=True)
class Queens(Task):
    """N queens do not attack each other, N >= 4 (Table 2: N = 14). The text format reaches N = 26."""

    size: int = 14
    cells: int = field(init=False)
    symbols: int = field(init=False)
    name = "queens"
    regimes = ("random", "gen")

    def __post_init__(self) -> None:
        if self.size < 4:
            raise LetgoError(f"{self.size} queens: choose 4 or more (2 and 3 have no solution)")
        object.__setattr__(self, "cells", self.size)
        object.__setattr__(self, "symbols", self.size)

    @property
    def usual_clues(self) -> int:
        return self.size // 2  # 7 for N = 14

    @property
    def look(self) -> Look:
        return Look("Queens", self.size, self.size, COLUMNS[: self.size], "queens")

    def solved(self, count: int, rng: np.random.Generator) -> tuple[Symbols, Tensor | None]:
        """Draw uniformly from all solutions for N <= 14; above, a randomized search can find each, unevenly."""
        if self.size <= LISTED:
            boards = _listed(self.size)
            return torch.from_numpy(boards[rng.integers(len(boards), size=count)]).long(), None
        chunk = 1 + 2_000_000 // self.size**2  # boards at a time, to bound the search's memory
        found = [search(self.size, min(chunk, count - start), rng) for start in range(0, count, chunk)]
        return torch.from_numpy(np.concatenate([np.empty((0, self.size), dtype=np.int64), *found])), None

    def listed(self, split: str) -> UInt8[np.ndarray, "boards n"] | None:
        """Return the boards of 'train', 'valid' or 'test', where the task has such a split."""
        return _split(split) if self.size == LISTED else None

    def broken(self, boards: Symbols, problem: Problem) -> CellMask:
        """Return the queens that attack each other."""
        return attacks(boards).any(2)

    def clashes(self, board: Symbols, problem: Problem) -> list[tuple[int, int]]:
        """Return the rows whose queens attack each other."""
        return [(i, j) for i, j in attacks(board)[0].nonzero().tolist() if i < j]

    def parse(self, text: str) -> Problem:
        """Read N characters, one per row: the letter of the queen's column, or '.' where she is unknown."""
        hint = "; a cell is a row, its letter the column of the queen"
        problem = read_cells(text, self.size, COLUMNS[: self.size], 1, hint)
        given = problem.given
        clash = (attacks(problem.solution) & given.unsqueeze(1) & given.unsqueeze(2))[0].nonzero().tolist()
        if clash:
            written = bare_cells(text, self.size)
            first, second = (f"{written[row]} in row {row + 1}" for row in clash[0])
            raise LetgoError(f"two clues clash: {first} and {second} attack each other; move one of these queens")
        return problem

    def format(self, boards: Symbols, problem: Problem) -> list[str]:
        if self.size > len(COLUMNS):
            raise LetgoError(f"{self.size} queens have no text form: columns are a to z; choose 26 or fewer")
        return write_cells(boards, COLUMNS)

    def draw(self, board: Symbols, problem: Problem) -> str:
        """Draw a chess board, clues in brackets, stars around queens that attack each other: `[Q] . *Q*`."""
        queens = framed("Q" * self.size, board, problem, self.violations(board, problem))
        rows = [[" . "] * self.size for _ in queens]
        for row, column, queen in zip(rows, board[0].tolist(), queens, strict=True):
            row[column] = queen
        return "\n".join(map("".join, rows))


def attacks(boards: Symbols) -> Bool[Tensor, "batch rows rows"]:
    """Return which pairs of rows hold queens on one column or diagonal."""
    row = torch.arange(boards.shape[1], device=boards.device)
    apart = (row.unsqueeze(1) - row).abs()
    across = (boards.unsqueeze(2) - boards.unsqueeze(1)).abs()
    return ((across == 0) | (across == apart)) & (apart > 0)


def all_boards(n: int) -> Symbols:
    """Return all solutions for n <= 14 queens, in lexicographic order (OEIS A000170); listed once per process."""
    if not 1 <= n <= LISTED:
        raise LetgoError(f"all boards of {n} queens: only 1 to {LISTED} queens are few enough to list")
    return torch.from_numpy(_listed(n)).long()


def train_split(
    n: int = 14, count: int = TRAINING, seed: int = 0
) -> tuple[Int[Tensor, "train n"], Int[Tensor, "rest n"]]:
    """Split as App. D does: `count` distinct boards for training, drawn uniformly, and all the rest."""
    boards = all_boards(n)
    if not 0 <= count <= len(boards):
        raise LetgoError(f"a split of {count} boards: {n} queens have {len(boards)}; ask for no more")
    order = torch.from_numpy(np.random.default_rng(seed).permutation(len(boards)))
    return boards[order[:count]], boards[order[count:]]


@cache
def _split(name: str) -> UInt8[np.ndarray, "boards 14"]:
    """Return the training boards; the rest in two halves, for validation and test."""
    train, rest = (boards.numpy().astype(np.uint8) for boards in train_split(LISTED, TRAINING))
    half = len(rest) // 2
    parts = {"train": train, "valid": rest[:half], "test": rest[half:]}
    if name not in parts:
        raise LetgoError(f"no part '{name}' of the boards; choose {', '.join(parts)}")
    return parts[name]


@cache
def _listed(n: int) -> UInt8[np.ndarray, "solutions n"]:
    """Search breadth first, one row at a time."""
    # A partial board is its columns as digits of base 16, and which columns of the next row it attacks: along
    # files, and along the diagonals that run left and right.
    boards = np.zeros(1, dtype=np.uint64)
    files = left = right = np.zeros(1, dtype=np.uint32)
    for _ in range(n):
        attacked = files | left | right
        grown = [_place(column, attacked, boards, files, left, right) for column in range(n)]
        boards, files, left, right = (np.concatenate(parts) for parts in zip(*grown, strict=True))
    digits = np.arange(4 * n - 4, -1, -4, dtype=np.uint64)  # the first row is the highest digit
    return (np.sort(boards)[:, None] >> digits & np.uint64(15)).astype(np.uint8)


def _place(column: int, attacked: Bits, boards: Bits, files: Bits, left: Bits, right: Bits) -> tuple[Bits, ...]:
    """Return the boards of one level that can take a queen in this column, with her."""
    queen, one = np.uint32(1 << column), np.uint32(1)
    free = np.flatnonzero(attacked & queen == 0)
    return (
        boards[free] << np.uint64(4) | np.uint64(column),
        files[free] | queen,
        (left[free] | queen) >> one,
        (right[free] | queen) << one,
    )


def search(n: int, count: int, rng: np.random.Generator) -> Int[np.ndarray, "batch n"]:
    """Search at random for any n >= 4: the row with the fewest free squares first."""
    row, column = np.indices((n, n))
    files = column[..., None, None] == column
    diagonals = np.abs(row[..., None, None] - row) == np.abs(column[..., None, None] - column)
    return fill_or_restart(np.ones((count, n, n), dtype=bool), files | diagonals, rng)
