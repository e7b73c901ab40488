"""Readers and writers of data files; `load_problems` is the one door to all that hold puzzles."""

from letgo.data.load import load_problems
from letgo.data.mnist import Mnist, read_mnist
from letgo.data.puzzles import read_puzzles
from letgo.data.store import load_npz
from letgo.data.sudoku_extreme import SudokuTable, read_sudoku_extreme, sample_by_source

__all__ = [
    "Mnist",
    "SudokuTable",
    "load_npz",
    "load_problems",
    "read_mnist",
    "read_puzzles",
    "read_sudoku_extreme",
    "sample_by_source",
]
