"""Puzzles in the task's own text: one per line of a file, blank lines and comments ignored, or as words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from letgo.data.files import FilePath, open_bytes, place
from letgo.errors import LetgoError
from letgo.tasks.task import Problem, Task

BOM = b"\xef\xbb\xbf"
CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")  # what no text holds; tabs and line ends are no fault


def read_puzzles(path: FilePath, task: Task) -> Problem:
    """Every puzzle of a file ('-' is standard input); a fault names file, line and what was expected."""
    lines = [(place(path, line), task.without_comment(text)) for line, text in _lines(path)]
    puzzles = [(where, puzzle) for where, puzzle in lines if puzzle.strip()]
    if not puzzles:
        raise LetgoError(f"{place(path)}: no puzzles in it; expected one puzzle per line")
    return parse_puzzles(puzzles, task)


def parse_puzzles(texts: Iterable[tuple[str, str]], task: Task) -> Problem:
    """One puzzle or more as one batch; each text comes with the place that a fault names."""
    problems: list[Problem] = []
    for where, text in texts:
        try:
            problems.append(task.parse(text))
        except LetgoError as fault:
            raise LetgoError(f"{where}: {fault}") from None
        first, last = (problem.solution.shape[1] for problem in (problems[0], problems[-1]))
        if first != last:  # one tensor holds them all
            raise LetgoError(f"{where}: {last} cells after puzzles of {first}; one size at a time")
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
