"""Sudoku boards as SVG, side by side: clues in black, answers in blue, broken cells on red."""

from __future__ import annotations

import math
from html import escape

from letgo.shapes import Symbols
from letgo.tasks import Problem, Task

CELL, MARGIN, TITLE = 34, 24, 52


def _board(task: Task, board: Symbols | None, problem: Problem, left: int, title: str, note: str) -> str:
    """One board (batch of 1); None draws the puzzle alone."""
    side = math.isqrt(task.cells)
    box = math.isqrt(side)
    shown = problem.solution if board is None else board
    text = task.format(shown, problem)[0]
    given = problem.given[0].tolist()
    wrong = [False] * task.cells if board is None else task.violations(board, problem)[0].tolist()
    parts = [
        f'<text x="{left}" y="22" class="title">{escape(title)}</text>',
        f'<text x="{left}" y="42" class="note">{escape(note)}</text>',
    ]
    for cell in range(task.cells):
        row, column = divmod(cell, side)
        x, y = left + column * CELL, TITLE + row * CELL
        fill = "#f7c6c3" if wrong[cell] else "#ece9e2" if given[cell] else "#ffffff"
        parts.append(f'<rect x="{x}" y="{y}" width="{CELL}" height="{CELL}" fill="{fill}" stroke="#c9c5bb"/>')
        if board is not None or given[cell]:
            kind = "clue" if given[cell] else "wrong" if wrong[cell] else "answer"
            parts.append(f'<text x="{x + CELL / 2}" y="{y + CELL * 0.69}" class="{kind}">{escape(text[cell])}</text>')
    for line in range(0, side + 1, box):
        at, end = line * CELL, side * CELL
        parts.append(
            f'<path d="M{left + at} {TITLE}v{end}M{left} {TITLE + at}h{end}" stroke="#33302b" stroke-width="2"/>'
        )
    return "\n".join(parts)


def svg(task: Task, problem: Problem, panels: list[tuple[str, str, Symbols | None]]) -> str:
    """Panels of (title, note, board) in one picture."""
    size = math.isqrt(task.cells) * CELL
    width = MARGIN + len(panels) * (size + MARGIN)
    height = TITLE + size + MARGIN
    boards = [
        _board(task, board, problem, MARGIN + i * (size + MARGIN), title, note)
        for i, (title, note, board) in enumerate(panels)
    ]
    style = (
        "text{font-family:Helvetica,Arial,sans-serif;fill:#33302b}.title{font-size:18px;font-weight:bold}"
        ".note{font-size:13px;fill:#6b665c}.clue,.answer,.wrong{font-size:19px;text-anchor:middle}"
        ".clue{font-weight:bold}.answer{fill:#1f5fa8}.wrong{fill:#b3261e;font-weight:bold}"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">\n'
        f'<style>{style}</style>\n<rect width="{width}" height="{height}" fill="#fbfaf7"/>\n'
        + "\n".join(boards)
        + "\n</svg>\n"
    )


class Picture:
    """The same for a notebook, which draws it."""

    def __init__(self, task: Task, problem: Problem, panels: list[tuple[str, str, Symbols | None]]):
        self.text = svg(task, problem, panels)

    def _repr_svg_(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return "<boards, side by side>"
