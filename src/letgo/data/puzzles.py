"""Puzzles in the task's own text: one per line of a file or as a grid of lines, or as words.

Blank lines, comments and the borders of grids are passed over.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice

from letgo.data.files import FilePath, lines_of, open_bytes, place
from letgo.errors import LetgoError
from letgo.tasks.task import Problem, Task

BOM = b"\xef\xbb\xbf"
AT_ONCE = 1024  # texts parsed together, or each by itself where one of them is no plain line
CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")  # what no text holds; tabs and line ends are no fault


def read_puzzles(path: FilePath, task: Task) -> Problem:
    """Read every puzzle of a file ('-' is standard input); a fault names file, line and what was expected."""
    lines = ((place(path, line), task.without_comment(text)) for line, text in _lines(path))
    puzzles = gathered(
        ((where, line) for where, line in lines if line.strip() or (task.grid_row and task.cells_of(line))), task
    )
    if not puzzles:
        raise LetgoError(f"{place(path)}: no puzzles in it; expected one puzzle per line")
    return parse_puzzles(puzzles, task)


def gathered(lines: Iterable[tuple[str, str]], task: Task) -> list[tuple[str, str]]:
    """Return puzzles with their places: each is a line or, of a task that people write as a grid, several lines."""
    if not task.grid_row:
        return list(lines)
    puzzles, rows, first = [], "", ""
    for where, line in lines:
        cells = task.cells_of(line)
        if rows and cells and len(cells) != task.grid_row:
            expected = f"expected {task.grid_row} cells in a row of the grid that begins at {first}"
            raise LetgoError(f"{where}: {expected}, got {len(cells)}")
        if rows or len(cells) == task.grid_row:
            first, rows = first if rows else where, rows + cells
        elif cells:
            puzzles.append((where, line))
        if len(rows) == task.cells:
            puzzles.append((first, rows))
            rows = ""
    if rows:
        found = f"a grid of {len(rows) // task.grid_row} rows of {task.grid_row} cells"
        raise LetgoError(f"{first}: {found}; expected {task.cells // task.grid_row} rows, or all cells in one line")
    return puzzles


def parse_puzzles(texts: Iterable[tuple[str, str]], task: Task) -> Problem:
    """Return one puzzle or more as one batch; each text comes with the place that a fault names."""
    problems: list[Problem] = []
    rest = iter(texts)
    while some := list(islice(rest, AT_ONCE)):
        together = task.parse_all([text for _, text in some])
        for where, problem in _each_parsed(some, task) if together is None else [(some[0][0], together)]:
            problems.append(problem)
            first, last = (problem.solution.shape[1] for problem in (problems[0], problems[-1]))
            if first != last:  # one tensor holds them all
                raise LetgoError(f"{where}: {last} cells after puzzles of {first}; one size at a time")
    if not problems:
        raise LetgoError("no puzzles in it; expected one per row")
    return Problem.cat(problems)


def _each_parsed(texts: Iterable[tuple[str, str]], task: Task) -> Iterator[tuple[str, Problem]]:
    for where, text in texts:
        try:
            yield where, task.parse(text)
        except LetgoError as fault:
            raise LetgoError(f"{where}: {fault}") from None


def _lines(path: FilePath) -> Iterator[tuple[int, str]]:
    with open_bytes(path) as file:
        for line, raw in enumerate(lines_of(path, file), start=1):
            content = raw.removeprefix(BOM) if line == 1 else raw
            yield line, _decode(path, line, content).rstrip("\r\n")


def _decode(path: FilePath, line: int, raw: bytes) -> str:
    control = CONTROL.search(raw)
    try:
        text, foreign = raw.decode(), control[0][0] if control else None
    except UnicodeDecodeError as fault:
        text, foreign = "", raw[fault.start]
    if foreign is not None:
        found = f"byte 0x{foreign:02x} is not text"
        raise LetgoError(f"{place(path, line)}: {found}; expected a text file with one puzzle per line")
    return text
