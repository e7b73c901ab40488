"""Fresh instances of any task, written whole or not at all."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any, cast

import numpy as np

from letgo.data.columns import HEADER
from letgo.data.files import FilePath, place, refuse_to_overwrite, written_atomically
from letgo.data.load import file_kind
from letgo.data.maze_hard import maze_texts
from letgo.data.store import write_npz
from letgo.data.sudoku_extreme import CELLS
from letgo.errors import LetgoError
from letgo.tasks.connectivity import Connectivity
from letgo.tasks.maze import Maze
from letgo.tasks.problem import Problem, Task
from letgo.tasks.queens import Queens
from letgo.tasks.sudoku import Sudoku
from letgo.tasks.sudoku_search import minimal_puzzles

AT_ONCE, LARGE_AT_ONCE = 1024, 64  # instances between two signs of progress; part of what a seed means
LARGE = 256  # cells: 16x16 Sudokus and mazes are slow to find
MINIMAL = "minimal"


def make(
    task: Task,
    count: int,
    seed: int,
    regime: str | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Problem:
    """`count` solved instances, all from the seed; `regime` as in Table 2, or 'minimal' for Sudoku."""
    if count < 1:
        raise LetgoError(f"--count {count}: expected at least 1")
    if seed < 0:
        raise LetgoError(f"--seed {seed}: expected 0 or more")
    rng, regime = np.random.default_rng(seed), regime or default_regime(task)
    at_once, parts = LARGE_AT_ONCE if task.cells >= LARGE else AT_ONCE, []
    if isinstance(task, Queens) and regime == "train":
        at_once = count  # no board of the training split twice
    for start in range(0, count, at_once):
        parts.append(_instances(task, min(at_once, count - start), rng, regime))
        progress(min(start + at_once, count), count)
    return Problem.cat(parts)


def default_regime(task: Task) -> str:
    """The task's first; sudoku-extreme's puzzles are minimal and unique, as nearly all of that data set."""
    if isinstance(task, Connectivity):
        return str(task.size)  # its regimes are sizes
    return MINIMAL if task.name == "sudoku-extreme" else task.regimes[0]


def _instances(task: Task, count: int, rng: np.random.Generator, regime: str) -> Problem:
    if isinstance(task, Queens) and regime != "train":
        task = task.split("test")  # boards that no training split holds
    if regime != MINIMAL:
        return task.generate(count, rng, regime)
    if not isinstance(task, Sudoku):
        raise LetgoError(f"--regime minimal is for Sudoku; {task.name} has {', '.join(task.regimes)}")
    boards, _ = task.solved(count, rng)
    return minimal_puzzles(boards, rng)


def save(path: FilePath, problem: Problem, task: Task, meta: dict[str, Any], force: bool = False) -> None:
    """By suffix: .npz for all, .csv for Sudoku and mazes in their data sets' layout, .txt for puzzles."""
    check_suffix(path, task)
    refuse_to_overwrite(path, force)
    with written_atomically(path) as file, _packed(path, file) as stream:
        if file_kind(path) == "npz":
            write_npz(stream, problem, meta)
        elif file_kind(path) == "csv":
            stream.write(_csv(problem, task, f"letgo_{meta['regime']}").encode())
        else:
            stream.write("".join(f"{line}\n" for line in puzzle_lines(problem, task)).encode())


def check_suffix(path: FilePath, task: Task) -> None:
    """Before the work, not after it."""
    name = str(path).lower()
    if not name.endswith((".npz", ".csv", ".csv.gz", ".txt", ".txt.gz")):
        raise LetgoError(f"{place(path)}: unknown suffix; choose .npz, .csv, .csv.gz, .txt or .txt.gz")
    in_columns = isinstance(task, Maze) or (isinstance(task, Sudoku) and task.cells == CELLS)
    if file_kind(path) == "csv" and not in_columns:
        raise LetgoError(f"{place(path)}: .csv is for 9x9 Sudokus and mazes, not {task.name}; use .npz or .txt")


def puzzle_lines(problem: Problem, task: Task) -> list[str]:
    """The puzzles without their answers, as `task.parse` reads them."""
    format_clues = getattr(task, "format_clues", None)
    if format_clues is None:
        raise LetgoError(f"the task {task.name} cannot write puzzles without answers; use .npz")
    return format_clues(problem)


def _csv(problem: Problem, task: Task, source: str) -> str:
    """The rating stays empty: it is tdoku's count of backtracks, which nothing here can know."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADER)
    if isinstance(task, Maze):
        questions, answers = maze_texts(problem)
    else:
        questions, answers = puzzle_lines(problem, task), task.format(problem.solution, problem)
    writer.writerows([source, *texts, ""] for texts in zip(questions, answers, strict=True))
    return text.getvalue()


@contextmanager
def _packed(path: FilePath, file: IO[bytes]) -> Iterator[IO[bytes]]:
    """Gzip where the name ends in .gz, without name or time, so that equal content gives equal bytes."""
    if not str(path).lower().endswith(".gz"):
        yield file
        return
    with gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0) as stream:
        yield cast(IO[bytes], stream)
