"""The tasks by name: those of the package, of other packages, and of a file of one's own.

Each row names a class and the source of its instances as 'module:name', so that nothing is imported before it is used.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import metadata
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from letgo.errors import LetgoError, unknown
from letgo.registry import resolve
from letgo.tasks.task import Look, Problem, Task, random_masks

GROUP = "letgo.tasks"  # the entry points of other packages, each a Task class under its task's name
FIELDS = ("name", "cells", "symbols", "regimes")
MOST_CELLS, MOST_SYMBOLS = 1_000_000, 256  # a cell of training instances and of files is a byte
SOURCE = "letgo.data.source:Source"


@dataclass(frozen=True)
class Row:
    """A Row is a registered task: what builds it, with which options, and its source's class (`letgo.data.source`)."""

    build: str | Callable[..., Task]
    options: dict[str, Any] = field(default_factory=dict)
    source: str | Callable[..., Any] = SOURCE
    file: str = ""  # the FILE.py:Class that `load` took it from


USUAL = "sudoku"  # the task of a puzzle that comes without a name
TASKS: dict[str, Row] = {
    "sudoku": Row("letgo.tasks.sudoku:Sudoku", source="letgo.data.sudoku_extreme:Sudokus"),
    "sudoku-extreme": Row(
        "letgo.tasks.sudoku:Sudoku",
        {"name": "sudoku-extreme", "splits": ("test", "valid")},
        "letgo.data.sudoku_extreme:SudokuExtreme",
    ),
    "mnist-sudoku": Row("letgo.tasks.mnist_sudoku:MnistSudoku", source="letgo.data.mnist_sudoku:MnistSudokus"),
    "latin": Row("letgo.tasks.latin:Latin"),
    "queens": Row("letgo.tasks.queens:Queens", source="letgo.data.source:Listed"),
    "connectivity": Row("letgo.tasks.connectivity:Connectivity", source="letgo.data.source:Graphs"),
    "maze": Row("letgo.tasks.maze:Maze", source="letgo.data.maze_hard:Mazes"),
    "table": Row("letgo.tasks.table:Table", source="letgo.data.table:TableRows"),
}


def get(name: str, **options: Any) -> Task:
    """Build a task by its name, for instance get('sudoku', box=2) or get('latin', size=5)."""
    row = find(name)
    if row is None:
        elsewhere = "give --task FILE.py:Class, or install the package that has it"
        raise unknown("task", name, TASKS, f"choose one of {', '.join(TASKS)}; for another {elsewhere}")
    task = resolve(row.build)(**(row.options | options))
    if not 1 <= task.cells <= MOST_CELLS:
        raise LetgoError(f"{name} with {task.cells:,} cells; expected at most {MOST_CELLS:,}")
    if not 1 <= task.symbols <= MOST_SYMBOLS:
        raise LetgoError(f"{name} with {task.symbols:,} symbols; expected at most {MOST_SYMBOLS}")
    return task


def find(name: str) -> Row | None:
    """Return the row of a task; packages that are installed are asked only for names that are not known yet."""
    if name not in TASKS:
        for entry in metadata.entry_points(group=GROUP, name=name):
            try:
                register(entry.load())
            except Exception as fault:  # whatever the other package does
                raise LetgoError(f"the task '{name}' of {entry.value} cannot be loaded: {fault}") from fault
    return TASKS.get(name)


def register(build: Callable[..., Task], source: str | Callable[..., Any] = SOURCE, file: str = "") -> str:
    """Register a class, or a function that builds a task, under its task's name, which is returned."""
    try:
        name = build().name
    except (TypeError, AttributeError) as fault:
        raise LetgoError(f"{file or build}: no task can be built without arguments ({fault})") from None
    if name in TASKS and (not file or TASKS[name].file != file):
        raise LetgoError(f"{file or build}: the name '{name}' is taken by another task; give it another one")
    TASKS[name] = Row(build, source=source, file=file)
    return name


def load(place: str) -> str:
    """Register the class of 'FILE.py:Class' and return its task's name; this runs the file."""
    path, _, cls = place.rpartition(":")
    file = f"{Path(path).resolve()}:{cls}"
    known = next((name for name, row in TASKS.items() if row.file == file), None)
    if known is not None:
        return known
    found = import_from("--task", place)
    if not isinstance(found, type) or not issubclass(found, Task):
        raise LetgoError(f"--task {place}: {cls} is no task; derive it from letgo.tasks.Task (CONTRIBUTING.md)")
    names = {*dir(found), *getattr(found, "__dataclass_fields__", {})}
    lacking = [*sorted(found.__abstractmethods__), *(name for name in FIELDS if name not in names)]
    if lacking:
        raise LetgoError(f"--task {place}: {cls} lacks {', '.join(lacking)}; CONTRIBUTING.md shows a complete task")
    return register(found, getattr(found, "source", SOURCE), file)


def import_from(option: str, place: str) -> Any:
    """Return what 'FILE.py:name' stands for; this runs the file. The option is what a fault names."""
    path, _, name = place.rpartition(":")
    if not path and Path(place).is_file():
        raise LetgoError(f"{option} {place}: which name of that file? expected {place}:NAME")
    if not path or not Path(path).is_file():
        raise LetgoError(f"{option} {place}: no such file '{path or place}'; expected FILE.py:NAME")
    module_name = f"letgo_own_{Path(path).stem}"
    spec = spec_from_file_location(module_name, Path(path).resolve())
    if spec is None or spec.loader is None:
        raise LetgoError(f"{option} {place}: not a Python file; expected FILE.py:NAME")
    module = module_from_spec(spec)
    sys.modules[module_name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except Exception as fault:
        del sys.modules[module_name]
        raise LetgoError(f"{option} {place}: it does not run: {type(fault).__name__}: {fault}") from fault
    if not hasattr(module, name):
        own = [key for key, value in vars(module).items() if getattr(value, "__module__", "") == module_name]
        raise LetgoError(f"{option} {place}: no '{name}' in it; there are {', '.join(own) or 'none'}")
    return getattr(module, name)


__all__ = ["Look", "Problem", "Task", "random_masks", "resolve"]
