"""One door to every kind of puzzle file, by its suffix."""

from __future__ import annotations

from letgo.data.files import FilePath, place
from letgo.data.maze_hard import read_maze_hard
from letgo.data.puzzles import read_puzzles
from letgo.data.store import load_npz
from letgo.data.sudoku_extreme import CELLS, read_sudoku_extreme
from letgo.errors import LetgoError
from letgo.tasks.maze import Maze
from letgo.tasks.problem import Problem, Task
from letgo.tasks.sudoku import Sudoku


def load_problems(path: FilePath, task: Task, solved: bool = False) -> Problem:
    """.npz of `letgo data make`, .csv(.gz) of Sudoku-Extreme or Maze-Hard; all else is a puzzle per line.

    Puzzle lines need no answers, and where they have none the solution is 0; `solved` refuses those.
    """
    kind = file_kind(path)
    if kind == "npz":
        return load_npz(path, task)
    if kind == "csv":
        return _load_csv(path, task)
    problem = read_puzzles(path, task)
    if solved:
        _refuse_unsolved(path, problem, task)
    return problem


def _refuse_unsolved(path: FilePath, problem: Problem, task: Task) -> None:
    complete = task.validate(problem.solution, problem)
    if not complete.all():
        number = int((~complete).nonzero()[0]) + 1
        raise LetgoError(f"{place(path)}: puzzle {number} has no answer; solved boards come from .npz or .csv")


def file_kind(path: FilePath) -> str:
    """'npz', 'csv' or 'txt'; .gz may follow."""
    name = str(path).lower().removesuffix(".gz")
    return next((kind for kind in ("npz", "csv") if name.endswith(f".{kind}")), "txt")


def _load_csv(path: FilePath, task: Task) -> Problem:
    if isinstance(task, Maze):
        return read_maze_hard(path, task)
    if isinstance(task, Sudoku) and task.cells == CELLS:
        return read_sudoku_extreme(path).problem
    raise LetgoError(f"{place(path)}: .csv files hold 9x9 Sudokus or mazes, not {task.name}; use .npz or .txt")
