"""Fresh instances of any task, written whole or not at all."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Callable
from typing import Any

import numpy as np

from letgo.data.columns import HEADER
from letgo.data.files import FilePath, file_kind, place, refuse_to_overwrite, write_atomically
from letgo.data.source import source_of
from letgo.data.store import write_npz
from letgo.errors import LetgoError
from letgo.tasks.task import Problem, Task


def make(
    task: Task,
    count: int,
    seed: int,
    regime: str | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Problem:
    """Draw `count` solved instances, all from the seed; `regime` as in Table 2."""
    source, rng = source_of(task), np.random.default_rng(seed)
    regime = regime or source.usual
    source.check_memory(count)
    at_once, parts = source.at_once(regime), []
    for start in range(0, count, at_once):
        parts.append(source.generate("test", regime, min(at_once, count - start), rng))
        progress(min(start + at_once, count), count)
    return Problem.cat(parts)


def save(path: FilePath, problem: Problem, task: Task, meta: dict[str, Any], force: bool = False) -> None:
    """Write by suffix: .npz for all, .csv for Sudoku and mazes in their data sets' layout, .txt for puzzles."""
    check_suffix(path, task)
    refuse_to_overwrite(path, force)
    stream = io.BytesIO()
    if file_kind(path) == "npz":
        write_npz(stream, problem, meta)
    elif file_kind(path) == "csv":
        stream.write(_csv(problem, task, f"letgo_{meta['regime']}").encode())
    else:
        stream.write("".join(f"{line}\n" for line in task.format_clues(problem)).encode())
    content, packed = stream.getvalue(), str(path).lower().endswith(".gz")
    # gzip without name or time: equal content gives equal bytes
    write_atomically(path, gzip.compress(content, mtime=0) if packed else content)


def check_suffix(path: FilePath, task: Task) -> None:
    """Refuse an unknown suffix before the work, not after it."""
    name = str(path).lower()
    if not name.endswith((".npz", ".csv", ".csv.gz", ".txt", ".txt.gz")):
        raise LetgoError(f"{place(path)}: unknown suffix; choose .npz, .csv, .csv.gz, .txt or .txt.gz")
    if file_kind(path) == "csv" and not source_of(task).has_csv:
        raise LetgoError(f"{place(path)}: .csv is for 9x9 Sudokus and mazes, not {task.name}; use .npz or .txt")


def _csv(problem: Problem, task: Task, source: str) -> str:
    """Write a .csv whose rating stays empty: it is tdoku's count of backtracks, which nothing here can know."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADER)
    questions, answers = source_of(task).csv_texts(problem)
    writer.writerows([source, *texts, ""] for texts in zip(questions, answers, strict=True))
    return text.getvalue()
