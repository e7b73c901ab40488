"""Latin squares: each of N symbols once per row and once per column. One of order 4, and four clues of it:
    1 2 3 4 / 2 1 4 3 / 3 4 2 1 / 4 3 1 2    and    1 . . . / . . 4 . / . 4 . . / . . . 2
As text `1234214334214312` and `1.....4..4.....2`; after 9 come A, B, ...
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import permutations

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from letgo.errors import LetgoError
from letgo.shapes import CellMask, Symbols
from letgo.tasks.task import Look, Problem
from letgo.tasks.text import ALPHABET, Square, framed

Squares = Int[np.ndarray, "batch n n"]


@dataclass(frozen=True)
class Latin(Square):
    """Latin squares have any order from 2 to 35 (Table 2: N = 7)."""

    size: int = 7
    cells: int = field(init=False)
    symbols: int = field(init=False)
    name = "latin"
    regimes = ("random", "gen")

    def __post_init__(self) -> None:
        if not 2 <= self.size <= len(ALPHABET):
            raise LetgoError(f"a Latin square of order {self.size}: choose an order from 2 to {len(ALPHABET)}")
        object.__setattr__(self, "cells", self.size**2)
        object.__setattr__(self, "symbols", self.size)

    @property
    def usual_clues(self) -> int:
        return 2 * self.size  # 14 for N = 7

    @property
    def look(self) -> Look:
        return Look("Latin square", self.size, self.size, ALPHABET[: self.size])

    def solved(self, count: int, rng: np.random.Generator) -> tuple[Symbols, Tensor | None]:
        """Search row by row at random, then take a random member of the main class of what was found.

        Every square can come up, and those of one main class are equally likely. The classes' shares are the
        search's own: of order 4, the Klein group's class gets 1/8 of the draws; a uniform draw gives it 1/4.
        """
        chunks = [self._search(min(8192, count - start), rng) for start in range(0, count, 8192)]
        squares = np.concatenate([np.empty((0, self.size, self.size), dtype=np.int64), *chunks])
        return torch.from_numpy(squares.reshape(count, self.cells)), None

    def broken(self, boards: Symbols, problem: Problem) -> CellMask:
        """Return the cells whose symbol stands twice in their row or column."""
        grid = boards.unflatten(1, (self.size, self.size))
        in_row, in_column = ((lines.unsqueeze(-1) == lines.unsqueeze(-2)).sum(-1) > 1 for lines in (grid, grid.mT))
        return (in_row | in_column.mT).flatten(1)

    @property
    def units(self) -> np.ndarray:
        return np.stack(np.divmod(np.arange(self.cells), self.size))

    def draw(self, board: Symbols, problem: Problem) -> str:
        """Draw clues in brackets, stars around what breaks a rule: `[5] 3 *5*`."""
        cells = framed(self.format(board, problem)[0], board, problem, self.violations(board, problem))
        return "\n".join("".join(cells[i : i + self.size]) for i in range(0, self.cells, self.size))

    def _search(self, count: int, rng: np.random.Generator) -> Squares:
        squares = np.empty((count, self.size, self.size), dtype=np.int64)
        unused = np.ones_like(squares, dtype=bool)  # [board, column, symbol]: not yet in that column
        same = np.eye(self.size, dtype=bool)  # a symbol that one column takes leaves the others
        excludes = np.broadcast_to(same[None, :, None, :], (self.size,) * 4)
        for row in range(self.size):  # by Hall's theorem there always is a next one
            squares[:, row] = fill_or_restart(unused, excludes, rng)
            np.put_along_axis(unused, squares[:, row, :, None], False, axis=2)
        return shuffle_class(squares, rng)


def all_squares(n: int) -> Symbols:
    """Return every Latin square of order n <= 5, in lexicographic order: 1, 2, 12, 576, 161280 (OEIS A002860)."""
    if not 1 <= n <= 5:
        raise LetgoError(f"all Latin squares of order {n}: only orders 1 to 5 are few enough to list")
    rows = np.array(list(permutations(range(n))))
    squares = np.empty((1, 0, n), dtype=np.int64)
    for _ in range(n):
        fits = (squares[:, None] != rows[None, :, None]).all(axis=(2, 3))
        square, row = fits.nonzero()
        squares = np.concatenate([squares[square], rows[row, None]], axis=1)
    return torch.from_numpy(squares.reshape(-1, n * n))


def fill_or_restart(
    options: Bool[np.ndarray, "batch cells symbols"],
    excludes: Bool[np.ndarray, "cells symbols cells symbols"],
    rng: np.random.Generator,
) -> Int[np.ndarray, "batch cells"]:
    """Search at random: `fill`, and boards that came to a dead end start afresh. A solution must exist."""
    boards = np.full(options.shape[:2], -1, dtype=np.int64)
    dead = np.arange(len(boards))
    while len(dead):
        boards[dead] = fill(options[dead], excludes, rng)
        dead = dead[(boards[dead] < 0).any(axis=1)]
    return boards


def fill(
    options: Bool[np.ndarray, "batch cells symbols"],
    excludes: Bool[np.ndarray, "cells symbols cells symbols"],
    rng: np.random.Generator,
) -> Int[np.ndarray, "batch cells"]:
    """Fill the cell with the fewest options first, ties and symbols at random; -1 marks a dead end."""
    count, cells, _ = options.shape
    options, every = options.copy(), np.arange(count)
    boards = np.full((count, cells), -1, dtype=np.int64)
    for _ in range(cells):
        left = options.sum(axis=2, dtype=np.float32) + rng.random(boards.shape, dtype=np.float32)
        cell = np.where(boards < 0, left, np.inf).argmin(axis=1)
        free = options[every, cell]
        symbol = (free * (1 - rng.random(free.shape, dtype=np.float32))).argmax(axis=1)  # 1 - [0, 1) is never 0
        boards[every, cell] = np.where(free.any(axis=1), symbol, -1)
        options &= ~excludes[cell, symbol]
    return boards


def shuffle_class(squares: Squares, rng: np.random.Generator) -> Squares:
    """Return a random member of each main class: permute rows, columns, symbols, and the roles of these three."""
    count, n, _ = squares.shape
    row, column = (np.broadcast_to(axis, squares.shape) for axis in np.indices((n, n)))
    triples = np.stack([row, column, squares])  # a Latin square is n^2 triples (row, column, symbol)
    relabel = rng.permuted(np.tile(np.arange(n), (3, count, 1)), axis=2)
    triples = np.take_along_axis(relabel, triples.reshape(3, count, n * n), axis=2)
    roles = rng.permuted(np.tile(np.arange(3)[:, None], (1, count)), axis=0)
    row, column, symbol = np.take_along_axis(triples, roles[..., None], axis=0)
    shuffled = np.empty((count, n * n), dtype=np.int64)
    np.put_along_axis(shuffled, row * n + column, symbol, axis=1)
    return shuffled.reshape(squares.shape)
