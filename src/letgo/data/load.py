"""One door to every kind of puzzle file, by its suffix, and to the train, valid and test files of a folder."""

from __future__ import annotations

import gzip
import hashlib
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from letgo.data.files import FilePath, place
from letgo.data.maze_hard import read_maze_hard
from letgo.data.puzzles import read_puzzles
from letgo.data.store import load_npz, npz_meta
from letgo.data.sudoku_extreme import CELLS, has_all_groups, read_sudoku_extreme, sample_by_source
from letgo.errors import LetgoError
from letgo.tasks.maze import Maze
from letgo.tasks.problem import Problem, Task
from letgo.tasks.sudoku import Sudoku

SUFFIXES = ("npz", "csv", "csv.gz")
HUB = {"sudoku": "sudoku-extreme", "sudoku-extreme": "sudoku-extreme", "maze": "maze-hard"}
HELD_OUT = 2_000  # rows, but at most a tenth, at the end of a train file without a valid file beside it


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


def load_split(data: FilePath, task: Task, split: str) -> Problem:
    """'train', 'valid' or 'test' of a folder (or of the hub's data set); a file is taken for any of them.

    The hub's data sets have no validation file: there the last rows of train.csv are held out for it. So they are of a
    file called train.* with no valid.* beside it, since its folder may be given the next time.
    """
    folder = _folder(data, task.name)
    if folder is None:
        problem = load_problems(data, task, solved=split == "train")
        return _part(problem, split) if split != "test" and lends_rows(Path(data)) else problem
    own = _split_file(folder, split)
    if own is not None and (split != "train" or _split_file(folder, "valid") is not None):
        return load_problems(own, task)
    train = _split_file(folder, "train")
    if split == "test" or train is None:
        names = ", ".join(f"{split}.{suffix}" for suffix in SUFFIXES)
        raise LetgoError(f"{place(folder)}: no file for {split} in it; expected one of {names}")
    return _part(load_problems(train, task), split)


def load_training(data: FilePath, task: Task, count: int, rng: np.random.Generator) -> Problem:
    """Training instances: all of them, but of a Sudoku-Extreme file with made-up sources `count` by source.

    Such a file does not have the sources' own shares; the hub's has, and is taken whole.
    """
    folder = _folder(data, task.name)
    path = data if folder is None else _split_file(folder, "train")
    if task.name != "sudoku-extreme" or path is None or file_kind(path) != "csv":
        return load_split(data, task, "train")
    table = read_sudoku_extreme(path)
    if lends_rows(Path(path)):
        table = table[: len(table) - _held_out(len(table))]
    made_up = any(name.startswith("generated_") for name in table.source_names)
    return (sample_by_source(table, count, rng) if made_up and has_all_groups(table) else table).problem


@cache
def identity(data: str, task: str = "sudoku-extreme", split: str = "test") -> dict[str, Any]:
    """The file that a split is read from, by its name, hash and length: paths differ from machine to machine."""
    folder = _folder(data, task)
    path = Path(data) if folder is None else _split_file(folder, split)
    if path is None and folder is not None and split == "valid":
        path = _split_file(folder, "train")  # whose last rows are held out
    if path is None or not path.is_file():
        raise LetgoError(f"{data}: no {split} file there; give --data FILE or a folder that holds {split}.csv")
    raw = path.read_bytes()
    found: dict[str, Any] = {"file": path.name, "sha256": hashlib.sha256(raw).hexdigest()}
    if file_kind(path) == "csv":
        found["rows"] = (gzip.decompress(raw) if path.suffix == ".gz" else raw).count(b"\n") - 1
    if file_kind(path) == "npz" and zipfile.is_zipfile(path):
        found["rows"] = npz_meta(path).get("count")
    return found


def _folder(data: FilePath, task: str) -> Path | None:
    """None for a file. 'hub' fetches the task's data set first, where it is not there yet."""
    if str(data) != "hub":
        return Path(data) if Path(data).is_dir() else None
    if task not in HUB:
        raise LetgoError(f"--data hub: the hub has no data set for {task}; choose one of {', '.join(HUB)}")
    from letgo.data.fetch import fetch

    return fetch(HUB[task])[0].parent


def _split_file(folder: Path, split: str) -> Path | None:
    paths = (folder / f"{split}.{suffix}" for suffix in SUFFIXES)
    return next((path for path in paths if path.is_file()), None)


def lends_rows(path: Path) -> bool:
    """Whether a file's last rows are held out for validation."""
    return path.name.startswith("train.") and _split_file(path.parent, "valid") is None


def _part(problem: Problem, split: str) -> Problem:
    kept = len(problem) - _held_out(len(problem))
    return problem[:kept] if split == "train" else problem[kept:]


def _held_out(rows: int) -> int:
    return min(HELD_OUT, rows // 10)


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
