"""Plain puzzle files: one puzzle per line in the task's own text, blank lines and comments ignored.

A comment starts with '#' and runs to the end of its line. In a maze '#' is a wall and a space is an open
cell, so there a comment is a whole line that starts with ';', and spaces are never stripped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from letgo.data.files import FilePath, open_bytes, place
from letgo.errors import LetgoError
from letgo.tasks.maze import Maze
from letgo.tasks.problem import Problem, Task

BOM = b"\xef\xbb\xbf"
CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")  # what no text holds; tabs and line ends are no fault


def read_puzzles(path: FilePath, task: Task) -> Problem:
    """Every puzzle of a file ('-' is standard input); a fault names file, line and what was expected."""
    problems: list[Problem] = []
    for line, text in _lines(path):
        puzzle = _without_comment(text, task)
        if puzzle.strip():
            problems.append(_parse(path, line, puzzle, task))
            _refuse_another_size(path, line, problems)
    if not problems:
        raise LetgoError(f"{place(path)}: no puzzles in it; expected one puzzle per line")
    return Problem.cat(problems)


def _lines(path: FilePath) -> Iterator[tuple[int, str]]:
    with open_bytes(path) as file:
        for line, raw in enumerate(file, start=1):
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


def _without_comment(text: str, task: Task) -> str:
    if isinstance(task, Maze):
        return "" if text.startswith(";") else text
    return text.partition("#")[0].strip()


def _parse(path: FilePath, line: int, text: str, task: Task) -> Problem:
    try:
        return task.parse(text)
    except LetgoError as fault:
        raise LetgoError(f"{place(path, line)}: {fault}") from None


def _refuse_another_size(path: FilePath, line: int, problems: list[Problem]) -> None:
    """One tensor holds them all; a task that reads any size (graphs, mazes) may meet two in one file."""
    first, last = (problem.solution.shape[1] for problem in (problems[0], problems[-1]))
    if first != last:
        raise LetgoError(f"{place(path, line)}: {last} cells after puzzles of {first}; one size per file")
