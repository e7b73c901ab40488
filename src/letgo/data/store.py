"""Solved instances of any task as .npz: boards, given, context where there is one, and how they were made."""

from __future__ import annotations

import json
import zipfile
import zlib
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor

from letgo import tasks
from letgo.data.files import FilePath, open_bytes, place
from letgo.errors import LetgoError
from letgo.tasks.task import Problem, Task

CHECKED_AT_ONCE = 4096  # boards; a maze has 900 cells


def write_npz(file: IO[bytes], problem: Problem, meta: dict[str, Any]) -> None:
    """One byte per cell. The zip holds no time stamps, so the same instances give the same bytes."""
    arrays = {"boards": problem.solution.numpy().astype(np.uint8), "given": problem.given.numpy()}
    if problem.context is not None:
        context = problem.context.numpy()
        small = context.astype(np.uint8)  # adjacencies are 0/1 floats, which a byte holds exactly
        arrays["context"] = small if (small == context).all() else context
    np.savez_compressed(file, meta=np.array(json.dumps(meta)), **arrays)


def load_npz(path: FilePath, task: Task) -> Problem:
    """What `letgo data make` wrote, checked against the task: its name, its size and every board."""
    arrays = _arrays(path)
    made_for = _meta(path, arrays)["task"]
    if not _same_rules(made_for, task):
        raise LetgoError(
            f"{place(path)}: made for the task {made_for}, not {task.name}; name that task, or give another file"
        )
    problem = _problem(path, arrays, task)
    _check_boards(path, problem, task)
    return problem


def _same_rules(made_for: str, task: Task) -> bool:
    """sudoku and sudoku-extreme differ in their clues only."""
    return made_for == task.name or (tasks.find(made_for) is not None and type(tasks.get(made_for)) is type(task))


def npz_meta(path: FilePath) -> dict[str, Any]:
    """task, regime, seed, count, version: how the file was made."""
    return _meta(path, _arrays(path))


def _meta(path: FilePath, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    try:
        meta = json.loads(str(arrays["meta"]))
        return {"task": meta["task"], "size": meta["size"], **meta}
    except (ValueError, TypeError, KeyError):
        raise LetgoError(f"{place(path)}: its meta does not say the task and the size; make it again") from None


def _arrays(path: FilePath) -> dict[str, np.ndarray]:
    """The arrays of an .npz; anything pickled is refused by numpy itself."""
    foreign = f"{place(path)}: not an .npz of `letgo data make`"
    with open_bytes(path) as file:
        try:
            with np.load(file, allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files}
        except (ValueError, TypeError, EOFError, zipfile.BadZipFile, zlib.error):
            raise LetgoError(f"{foreign}, or cut short; make it again") from None
    for name in ("boards", "given", "meta"):
        if name not in arrays:
            raise LetgoError(f"{foreign}: it has no array {name!r}")
    return arrays


def _problem(path: FilePath, arrays: dict[str, np.ndarray], task: Task) -> Problem:
    boards, given = arrays["boards"], arrays["given"]
    if boards.ndim != 2 or boards.dtype != np.uint8 or given.dtype != bool or given.shape != boards.shape:
        found = f"boards {boards.dtype}{boards.shape}, given {given.dtype}{given.shape}"
        raise LetgoError(f"{place(path)}: expected boards uint8 and given bool of one shape, got {found}")
    if not len(boards):
        raise LetgoError(f"{place(path)}: no boards in it")
    return Problem(torch.from_numpy(boards.astype(np.int64)), torch.from_numpy(given), _context(path, arrays, task))


def _context(path: FilePath, arrays: dict[str, np.ndarray], task: Task) -> Tensor | None:
    context = arrays.get("context")
    if context is None:
        if task.context:
            raise LetgoError(f"{place(path)}: it has no array 'context', {task.context}; make it again")
        return None
    boards = arrays["boards"]
    if context.ndim != 3 or context.reshape(len(context), -1).shape != boards.shape:
        raise LetgoError(f"{place(path)}: boards {boards.shape} do not fit their context {context.shape}")
    return torch.from_numpy(context.astype(np.float32))


def _check_boards(path: FilePath, problem: Problem, task: Task) -> None:
    """Names the first board that the task does not accept. Graphs bring their own size."""
    cells = problem.solution.shape[1]
    if problem.context is None and cells != task.cells:
        raise LetgoError(f"{place(path)}: boards of {cells} cells; the task {task.name} here has {task.cells}")
    for start in range(0, len(problem), CHECKED_AT_ONCE):
        part = problem[start : start + CHECKED_AT_ONCE]
        checks = {
            f"a symbol above {task.symbols - 1}, the task's last": (part.solution < task.symbols).all(dim=1),
            f"breaks the rules of {task.name}": task.validate(part.solution, part),
        }
        for fault, passed in checks.items():
            if not passed.all():
                raise LetgoError(f"{place(path)}, board {start + int((~passed).nonzero()[0])}: {fault}")
