"""Maze-Hard: the columns of Sudoku-Extreme with mazes of 900 cells: '#' wall, ' ' open, S, G, 'o' path.

A space is a cell, so no field is ever stripped. Source and rating mean nothing here and are passed over.
"""

from __future__ import annotations

import numpy as np
import torch

from letgo.data.columns import Row, alphabet, cells, check_clues, read_columns
from letgo.data.files import FilePath
from letgo.data.source import Source
from letgo.errors import LetgoError
from letgo.tasks.maze import GOAL, OPEN, PATH, START, WALL
from letgo.tasks.task import Problem, Task

SYMBOLS = {"#": WALL, " ": OPEN, "S": START, "G": GOAL, "o": PATH}
CHARACTERS = "".join(sorted(SYMBOLS, key=SYMBOLS.__getitem__))
ANSWER = alphabet(SYMBOLS)
QUESTION = alphabet({character: code for character, code in SYMBOLS.items() if code != PATH})


class Mazes(Source):
    """Mazes have the files of Maze-Hard."""

    hub = "maze-hard"
    has_csv = True

    def read_csv(self, path: FilePath) -> Problem:
        return read_maze_hard(path, self.task)

    def csv_texts(self, problem: Problem) -> tuple[list[str], list[str]]:
        questions, answers = (
            [text.replace("/", "").replace(".", " ") for text in texts] for texts in super().csv_texts(problem)
        )
        return questions, answers


def read_maze_hard(path: FilePath, task: Task) -> Problem:
    """Return every row, checked: walls, S and G are given, and the path cells of the answer join S and G."""
    return Problem.cat(read_columns(path, lambda rows: _parse(rows, task)))


def _parse(rows: list[Row], task: Task) -> Problem:
    _, questions, answers, _ = zip(*rows, strict=True)
    question = cells("question", questions, task.cells, QUESTION)
    answer = cells("answer", answers, task.cells, ANSWER)
    for end in "SG":
        counts = (question == SYMBOLS[end]).sum(axis=1)
        if (counts != 1).any():
            raise LetgoError(f"question: expected one {end}, got {counts[counts != 1][0]}")
    given = question != OPEN
    check_clues(question, answer, np.where(given, answer == question, (answer == OPEN) | (answer == PATH)), CHARACTERS)
    problem = Problem(torch.from_numpy(answer.astype(np.int64)), torch.from_numpy(given))
    if not task.validate(problem.solution, problem).all():
        raise LetgoError("answer: the path does not join S and G")
    return problem
