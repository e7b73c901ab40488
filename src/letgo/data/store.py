"""Solved instances of any task as .npz: boards, given, context where there is one, and how they were made.

Arrays of somebody else, .npy or .npz, need nothing but boards.
"""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from collections.abc import Sequence
from io import BytesIO
from typing import Annotated, Any, TypedDict

import numpy as np
import torch
from torch import Tensor

from letgo import tasks
from letgo.data.files import FilePath, file_kind, open_bytes, place, refuse_bomb
from letgo.errors import LetgoError
from letgo.tasks.task import Problem, Task
from letgo.typed import Between, check

CHECKED_AT_ONCE = 4096  # boards; a maze has 900 cells


class Meta(TypedDict):
    """Meta is what every file says of itself; others may say more."""

    task: str
    size: Annotated[int, Between(1, 1_000_000)] | None


def write_npz(file: BytesIO, problem: Problem, meta: dict[str, Any]) -> None:
    """Write boards with one byte per cell. The zip holds no time stamps, so the same instances give the same bytes."""
    arrays = {"boards": problem.solution.numpy().astype(np.uint8), "given": problem.given.numpy()}
    if problem.context is not None:
        context = problem.context.numpy()
        small = context.astype(np.uint8)  # adjacencies are 0/1 floats, which a byte holds exactly
        arrays["context"] = small if (small == context).all() else context
    np.savez_compressed(file, meta=np.array(json.dumps(meta)), **arrays)


def load_npz(path: FilePath, task: Task) -> Problem:
    """Read what `letgo data make` wrote, or bare boards; check the task's name, its size and every board."""
    arrays = _arrays(path)
    if "meta" not in arrays:
        problem = _bare_problem(path, task)
    else:
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
    """Return task, regime, seed, count, version: how the file was made; nothing for an array of somebody else."""
    arrays = _arrays(path)
    return _meta(path, arrays) if "meta" in arrays else {}


def _meta(path: FilePath, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    try:
        return check(json.loads(str(arrays["meta"])), Meta, place(path))
    except (LetgoError, ValueError, RecursionError):
        raise LetgoError(f"{place(path)}: its meta does not say the task and the size; make it again") from None


def _arrays(path: FilePath) -> dict[str, np.ndarray]:
    """Return those of `letgo data make`; of somebody else's file none, or some that lie beside its boards."""
    if file_kind(path) == "npy":
        return {}
    arrays = read_arrays(path, ("boards", "given", "meta", "context"))
    for name in ("boards", "given", "meta") if {"given", "meta"} & {*arrays} else ():
        if name not in arrays:
            raise LetgoError(f"{place(path)}: not an .npz of `letgo data make`: it has no array {name!r}")
    return arrays


def read_bare(path: FilePath) -> np.ndarray:
    """Return the array of an .npy; of an .npz the one called `boards`, or the only one."""
    if file_kind(path) == "npz":
        arrays = read_arrays(path, ("boards",)) or read_arrays(path)
        if not arrays:
            raise LetgoError(f"{place(path)}: no arrays in it; expected one of rows and columns")
        if len(arrays) > 1:
            raise LetgoError(f"{place(path)}: it holds {', '.join(arrays)}; name the one with rows 'boards'")
        return next(iter(arrays.values()))
    with open_bytes(path) as file:
        try:
            array = np.lib.format.read_array(file, allow_pickle=False)
            if file.read(1):
                raise ValueError("the header does not fit the data")
            return of_characters(array)
        except LetgoError:
            raise
        except Exception as fault:  # numpy's headers are Python, with errors of their own
            if "allow_pickle" in str(fault):
                raise LetgoError(
                    f"{place(path)}: an array of Python objects; save words by `rows.astype(str)`, numbers by "
                    "`rows.astype(int)`"
                ) from None
            raise LetgoError(f"{place(path)}: not an array of numpy, or cut short") from None


def _bare_problem(path: FilePath, task: Task) -> Problem:
    """Read boards without a word on them: cells row by row or as they lie, symbols from 0 or from 1."""
    boards = read_bare(path)
    if boards.ndim == 3:
        boards = boards.reshape(len(boards), -1)
    if boards.ndim != 2 or boards.dtype.kind not in "iu" or not boards.size:
        found = f"{boards.dtype} of shape {boards.shape}"
        raise LetgoError(f"{place(path)}: an array of {found}; expected whole numbers, a board of {task.name} per row")
    if task.context:
        raise LetgoError(f"{place(path)}: boards alone; {task.name} needs {task.context}, too: `letgo data make`")
    low, high = int(boards.min()), int(boards.max())
    if low < 0 or (low == 0 and high == task.symbols):
        raise LetgoError(
            f"{place(path)}: it holds {low}, a blank; expected complete boards, symbols from 1 to {task.symbols} or "
            f"from 0 to {task.symbols - 1}"
        )
    solution = torch.from_numpy(boards.astype(np.int64) - (high == task.symbols))
    return Problem(solution, torch.zeros_like(solution, dtype=torch.bool))


def read_arrays(path: FilePath, names: Sequence[str] | None = None) -> dict[str, np.ndarray]:
    """Return the arrays of these names, or all; anything pickled is refused by numpy itself.

    Whatever an archive of somebody else may hold, it is refused in one line, and before it fills the memory.
    """
    with open_bytes(path) as file:
        try:
            data = file if file.seekable() and not isinstance(file, gzip.GzipFile) else io.BytesIO(file.read())
            with zipfile.ZipFile(data) as archive:
                entries = {entry.filename.removesuffix(".npy"): entry for entry in archive.infolist()}
                wanted = [name for name in (names or entries) if name in entries]
                refuse_bomb(path, data.seek(0, 2), sum(entries[name].file_size for name in wanted))
                return {name: _array(archive.read(entries[name])) for name in wanted}
        except LetgoError:
            raise
        except Exception:  # zipfile, its four ways of packing, and numpy's headers each have errors of their own
            raise LetgoError(f"{place(path)}: not an .npz of `letgo data make`, or cut short; make it again") from None


def _array(data: bytes) -> np.ndarray:
    stream = io.BytesIO(data)
    array = np.lib.format.read_array(stream, allow_pickle=False)  # it would read a part of what a header promises
    if stream.read(1) or array.nbytes > len(data):
        raise ValueError("the header does not fit the data")
    return of_characters(array)


def of_characters(array: np.ndarray) -> np.ndarray:
    """Return the array; text of numpy may hold numbers that are no characters, or half ones."""
    if array.dtype.kind == "U":
        codes = np.frombuffer(array.tobytes(), f"{array.dtype.str[0]}u4")
        if ((codes > 0x10FFFF) | (codes >> 11 == 0xD800 >> 11)).any():
            raise ValueError("no characters")
    return array


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
    square = context.ndim == 3 and context.shape[1] == context.shape[2]
    if not square or (len(context), context.shape[1] ** 2) != boards.shape:
        raise LetgoError(f"{place(path)}: boards {boards.shape} do not fit their context {context.shape}")
    if context.dtype.kind not in "buif" or not np.isfinite(context).all():
        raise LetgoError(f"{place(path)}: its context holds other things than numbers; make it again")
    return torch.from_numpy(context.astype(np.float32))


def _check_boards(path: FilePath, problem: Problem, task: Task) -> None:
    """Refuse boards by the first that the task does not accept. Graphs bring their own size."""
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
