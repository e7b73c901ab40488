"""The tasks by name. Each lives in its own module, imported when asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from letgo.errors import unknown
from letgo.tasks.problem import Problem, Task

TASKS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "sudoku": ("sudoku", "Sudoku", {}),
    "sudoku-extreme": ("sudoku", "Sudoku", {"name": "sudoku-extreme"}),
    "latin": ("latin", "Latin", {}),
    "queens": ("queens", "Queens", {}),
    "connectivity": ("connectivity", "Connectivity", {}),
    "maze": ("maze", "Maze", {}),
}


def get(name: str, **options: Any) -> Task:
    """A task by its name, for instance get('sudoku', box=2) or get('latin', size=5)."""
    if name not in TASKS:
        raise unknown("task", name, TASKS)
    module, cls, defaults = TASKS[name]
    return getattr(import_module(f"letgo.tasks.{module}"), cls)(**(defaults | options))


__all__ = ["TASKS", "Problem", "Task", "get"]
