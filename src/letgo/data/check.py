"""What is in a data file: rows, clues, sources, and for Sudoku how many of a sample have one solution."""

from __future__ import annotations

from math import isqrt
from typing import Any

import numpy as np
import torch

from letgo import tasks
from letgo.data import mnist
from letgo.data.columns import first_question
from letgo.data.files import STDIN, FilePath, place
from letgo.data.load import file_kind, load_problems
from letgo.data.store import npz_meta
from letgo.data.sudoku_extreme import SudokuTable, read_sudoku_extreme
from letgo.errors import LetgoError
from letgo.tasks.maze import Maze, path_length_optimal
from letgo.tasks.problem import Problem, Task
from letgo.tasks.sudoku import Sudoku
from letgo.tasks.sudoku_search import is_unique

Report = dict[str, Any]


def check(path: FilePath, task_name: str | None = None, size: int | None = None, sample: int = 200) -> Report:
    """Read all of it; the first fault is a LetgoError, no fault is a report."""
    if str(path) != STDIN and mnist.looks_like_idx(path):
        return _check_idx(path)
    kind, task = file_kind(path), _task_of(path, task_name, size)
    head = {"file": place(path), "format": kind, "task": task.name}
    if kind == "csv" and isinstance(task, Sudoku):
        table = read_sudoku_extreme(path)
        return head | _about(table.given) | _about_sources(table) | _about_solutions(table, task, sample)
    problem = load_problems(path, task)
    report: Report = head | _about(problem.given.numpy())
    if kind == "npz":
        report["made"] = npz_meta(path)
    if isinstance(task, Maze) and kind != "txt":  # puzzle lines have no answers
        report["shortest"] = int(path_length_optimal(problem.solution, problem).sum())
    return report | _about_solutions(problem, task, sample)


def sized_task(name: str, size: int | None) -> Task:
    """A task by name and the side of its board; a Sudoku of side 9 has boxes of side 3."""
    if size is None:
        return tasks.get(name)
    if not name.startswith("sudoku"):
        return tasks.get(name, size=size)
    if isqrt(size) ** 2 != size:
        raise LetgoError(f"--size {size}: the side of a Sudoku is a square; choose 4, 9 or 16")
    return tasks.get(name, box=isqrt(size))


def _task_of(path: FilePath, name: str | None, size: int | None) -> Task:
    """The file says it where it can: an .npz by its meta, a .csv by its first puzzle."""
    kind = file_kind(path)
    if kind == "npz":
        meta = npz_meta(path)
        return sized_task(name or meta["task"], size or meta["size"])
    if kind == "csv":
        question = first_question(path)
        name = name or ("sudoku-extreme" if set(question) <= set("0123456789.") else "maze")
        return sized_task(name, size or (_side(question) if name == "maze" else None))
    return sized_task(name or "sudoku", size)


def _side(question: str) -> int | None:
    """Of a square maze; none if the first row is broken, so that the reader says what is wrong with it."""
    side = isqrt(len(question))
    return side if side >= 3 and side**2 == len(question) else None


def _about(given: np.ndarray) -> Report:
    clues, rows = np.unique(given.sum(axis=1), return_counts=True)
    return {"rows": len(given), "clues": dict(zip(clues.tolist(), rows.tolist(), strict=True))}


def _about_sources(table: SudokuTable) -> Report:
    counts = np.bincount(table.source_ids, minlength=len(table.source_names)).tolist()
    return {
        "sources": dict(zip(table.source_names, counts, strict=True)),
        "ratings": _spread(table.ratings[table.ratings >= 0]),
    }


def _spread(values: np.ndarray) -> Report | None:
    if not len(values):
        return None
    return {"min": int(values.min()), "mean": round(float(values.mean()), 2), "max": int(values.max())}


def _about_solutions(rows: SudokuTable | Problem, task: Task, sample: int) -> Report:
    """Sudoku only: how many of a random sample have exactly one solution."""
    if not isinstance(task, Sudoku) or sample < 1:
        return {}
    chosen = np.random.default_rng(0).permutation(len(rows))[:sample]
    problem = rows[chosen].problem if isinstance(rows, SudokuTable) else rows[torch.from_numpy(chosen)]
    return {"unique": {"sampled": len(chosen), "unique": int(is_unique(problem).sum())}}


def _check_idx(path: FilePath) -> Report:
    head = {"file": place(path), "format": "idx", "standard": mnist.is_standard(path)}
    if mnist.idx_magic(path) == mnist.LABELS:
        labels = mnist.read_labels(path)
        counts = np.bincount(labels, minlength=10).tolist()
        return head | {"rows": len(labels), "labels": dict(enumerate(counts))}
    images = mnist.read_images(path)
    return head | {"rows": len(images), "height": images.shape[1], "width": images.shape[2]}
