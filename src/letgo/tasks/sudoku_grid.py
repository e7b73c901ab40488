"""Where the cells of an n^2 x n^2 board lie: its rows, its columns and its n x n boxes."""

from __future__ import annotations

from functools import lru_cache
from math import isqrt

import numpy as np


def box_of(cells: int) -> int:
    """Return n for a board of n^4 cells."""
    return isqrt(isqrt(cells))


@lru_cache
def positions(box: int) -> np.ndarray:
    """Return (3, cells): the row, the column and the box of every cell, each 0 .. n^2 - 1."""
    rows, columns = np.divmod(np.arange(box**4), box**2)
    return np.stack([rows, columns, rows // box * box + columns // box])


@lru_cache
def units(box: int) -> np.ndarray:
    """Return (3 n^2, n^2): the cells of every row, then of every column, then of every box."""
    return np.concatenate([kind.argsort(kind="stable").reshape(box**2, box**2) for kind in positions(box)])


@lru_cache
def units_of_cell(box: int) -> np.ndarray:
    """Return (3, cells): the three rows of `units` that a cell belongs to."""
    return positions(box) + np.array([[0], [1], [2]]) * box**2
