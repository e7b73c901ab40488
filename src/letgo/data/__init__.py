"""Where instances come from (`source_of`), and readers and writers of data files."""

from letgo.data.mnist import Mnist, read_mnist
from letgo.data.puzzles import read_puzzles
from letgo.data.source import Source, load_problems, source_of
from letgo.data.store import load_npz
from letgo.data.sudoku_extreme import SudokuTable, read_sudoku_extreme, sample_by_source

__all__ = [
    "Mnist",
    "Source",
    "SudokuTable",
    "load_npz",
    "load_problems",
    "read_mnist",
    "read_puzzles",
    "read_sudoku_extreme",
    "sample_by_source",
    "source_of",
]
