"""What is in a data file: rows, clues, sources, and what its task can tell of them."""

from __future__ import annotations

from math import isqrt
from pathlib import Path
from typing import Any

import numpy as np

from letgo import tasks
from letgo.data import mnist
from letgo.data.columns import first_question
from letgo.data.files import STDIN, FilePath, file_kind, place
from letgo.data.source import source_of
from letgo.data.store import npz_meta
from letgo.tasks.task import Task


def check(path: FilePath, task_name: str | None = None, size: int | None = None, sample: int = 200) -> dict[str, Any]:
    """Read all of it; the first fault is a LetgoError, no fault is a report."""
    if str(path) != STDIN and ("-ubyte" in Path(path).name or mnist.idx_magic(path) in (mnist.IMAGES, mnist.LABELS)):
        return _check_idx(path)
    task = _task_of(path, task_name, size)
    return {"file": place(path), "format": file_kind(path), "task": task.name, **source_of(task).inspect(path, sample)}


def sized_task(name: str, size: int | None) -> Task:
    """Return a task by name and the side of its board."""
    return tasks.get(name) if size is None else tasks.get(name).sized(size)


def _task_of(path: FilePath, name: str | None, size: int | None) -> Task:
    """The file says it where it can: an .npz by its meta, a .csv by its first puzzle."""
    kind = file_kind(path)
    if kind == "npz":
        meta = npz_meta(path)
        return sized_task(name or meta.get("task", "sudoku"), size or meta.get("size"))
    if kind == "csv":
        question = first_question(path)
        name, side = name or ("sudoku-extreme" if set(question) <= set("0123456789.") else "maze"), isqrt(len(question))
        square = side >= 3 and side**2 == len(question)  # else the reader says what is wrong with the row
        return sized_task(name, size or (side if name == "maze" and square else None))
    return sized_task(name or "sudoku", size)


def _check_idx(path: FilePath) -> dict[str, Any]:
    head = {"file": place(path), "format": "idx", "standard": mnist.is_standard(path)}
    if mnist.idx_magic(path) == mnist.LABELS:
        labels = mnist.read_labels(path)
        counts = np.bincount(labels, minlength=10).tolist()
        return head | {"rows": len(labels), "labels": dict(enumerate(counts))}
    images = mnist.read_images(path)
    return head | {"rows": len(images), "height": images.shape[1], "width": images.shape[2]}
