"""Boards of one character per cell, such as `1.....4..4.....2`, read and drawn for Sudoku, Latin squares and queens."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np
import torch

from letgo.errors import LetgoError
from letgo.shapes import CellMask, Symbols
from letgo.tasks.task import Problem, Task, cut

ALPHABET = "123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
BLANKS = ".0_*-xX"  # where they are no symbols
SEPARATORS = re.compile(r"[\s,;|│┃║]+")
BORDER = re.compile(r"[-+|=\s─━═│┃║┌┬┐├┼┤└┴┘╔╦╗╠╬╣╚╩╝]+")


def bare_cells(text: str, cells: int, columns: int = 1) -> str:
    """Return the cells of a puzzle as people write it, in one line or several, without borders and what stands between
    them.

    Whitespace, commas and bars separate and are no blanks, but in a row of a spreadsheet, where a field may be empty;
    a line of only `-+|=` is a border, unless it is a whole board of blanks.
    """
    blank, kept = "-" * cells, list[str]()
    for line in text.splitlines():
        if (row := _sheet_row(line, columns)) is not None:
            kept.append(row)
        elif not BORDER.fullmatch(line) or line.strip() == blank:
            kept.append(SEPARATORS.sub("", line))
    return "".join(kept)


def _sheet_row(line: str, columns: int) -> str | None:
    """Return a row of a spreadsheet: as many fields as columns, an empty one for a blank. None where it is no such."""
    for mark in "\t,;":
        fields = [field.strip() for field in line.split(mark)]
        if len(fields) == columns > 1 and all(len(field) < 2 for field in fields):
            return "".join(field or "." for field in fields)
    return None


def read_cells(text: str, cells: int, letters: str, columns: int, hint: str = "") -> Problem:
    """Read one puzzle, row by row: a symbol's letter, or one of BLANKS for a blank."""
    line = bare_cells(text, cells, columns)
    if len(line) != cells:
        raise LetgoError(f"expected {cells} cells, got {len(line)}; one puzzle per line, '.' for a blank{hint}")
    codes = _codes(letters)
    for cell, char in enumerate(line):
        if char not in codes:
            span = f"1-9 and A-{letters[-1]}" if letters[9:] and letters[0] == "1" else f"{letters[0]}-{letters[-1]}"
            where = f"character {cell + 1} ({place(cell, columns)})"
            raise LetgoError(f"{where} is {char!r}; write clues as {span} and blanks as one of . 0 _ * - x")
    board = torch.tensor([[codes[char] for char in line]])
    return Problem(board.clamp(min=0), board >= 0)


@lru_cache
def _codes(letters: str) -> dict[str, int]:
    """Return what a character stands for: a symbol's number, or -1 for a blank."""
    forms = {form: code for code, letter in enumerate(letters) for form in (letter, letter.lower(), letter.upper())}
    return dict.fromkeys(BLANKS, -1) | forms


@lru_cache
def _codes_of_bytes(letters: str) -> np.ndarray:
    """Return the same as a table of ASCII, with -2 for what is no cell."""
    table = np.full(128, -2)
    for char, code in _codes(letters).items():
        table[ord(char)] = code
    return table


def write_cells(boards: Symbols, letters: str) -> list[str]:
    """Write each board in one line, a symbol as its letter."""
    lines = np.frombuffer(letters.encode(), np.uint8)[boards.cpu().numpy()]
    return cut(lines.tobytes().decode(), boards.shape[1])


def place(cell: int, columns: int) -> str:
    row, column = divmod(cell, columns)
    return f"r{row + 1}c{column + 1}" if columns > 1 else f"row {row + 1}"


def refuse_clashes(problem: Problem, units: Iterable[np.ndarray], columns: int) -> None:
    """Refuse two clues of one symbol in a row, column or box; `units` says which of each a cell lies in."""
    board, clues = problem.solution[0].tolist(), problem.given[0].nonzero().flatten().tolist()
    for kind, unit_of in zip(("row", "column", "box"), units, strict=False):
        lines, seen = unit_of.tolist(), dict[tuple[int, int], int]()
        if len({(lines[cell], board[cell]) for cell in clues}) == len(clues):
            continue
        for cell in clues:
            first = seen.setdefault((lines[cell], board[cell]), cell)
            if first != cell:
                raise LetgoError(
                    f"clues clash: {ALPHABET[board[cell]]} stands at {place(first, columns)} and at "
                    f"{place(cell, columns)}, in the same {kind}; change or blank one of them"
                )


def same_symbols(board: Symbols, units: np.ndarray) -> list[tuple[int, int]]:
    """Return pairs of cells (batch of 1) with one symbol and a unit in common; `units` is (kinds of unit, cells)."""
    symbols = board[0].numpy()
    together = (units[:, :, None] == units[:, None, :]).any(0) & (symbols[:, None] == symbols[None, :])
    return [(int(i), int(j)) for i, j in np.argwhere(np.triu(together, 1))]


def framed(letters: str, board: Symbols, problem: Problem, broken: CellMask) -> list[str]:
    """Return the drawn cells (batch of 1): clues in brackets, stars around what breaks a rule, as in `[5] 3 *5*`."""
    clues = problem.given & (board == problem.solution)
    marks = zip(clues[0].tolist(), broken[0].tolist(), strict=True)
    frames = ["[]" if clue else "**" if wrong else "  " for clue, wrong in marks]
    return [left + letter + right for letter, (left, right) in zip(letters, frames, strict=True)]


class Square(Task):
    """It is a square of symbols, none of which may stand twice in a row, a column or another unit."""

    @property
    @abstractmethod
    def units(self) -> np.ndarray:
        """Return for each kind of unit (row, column, box) the one that a cell lies in."""

    @property
    def grid_row(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.symbols

    def without_comment(self, line: str) -> str:
        return line.partition("#")[0].strip(" ")  # tabs at an end are empty fields

    def cells_of(self, line: str) -> str:
        return bare_cells(line, self.cells, self.symbols)

    def clashes(self, board: Symbols, problem: Problem) -> list[tuple[int, int]]:
        """Return the pairs of equal symbols in one unit."""
        return same_symbols(board, self.units)

    def parse(self, text: str) -> Problem:
        """Read one character per cell: a symbol, or one of `. 0 _ * - x` for a blank; in one line or several."""
        problem = read_cells(text, self.cells, ALPHABET[: self.symbols], self.symbols, self.hint(text))
        refuse_clashes(problem, self.units, self.symbols)
        return problem

    def parse_all(self, texts: Sequence[str]) -> Problem | None:
        """Read texts of nothing but cells by a table; others are for `parse`, as are all where a class has its own."""
        line, letters = "".join(texts), ALPHABET[: self.symbols]
        if type(self).parse is not Square.parse or not line.isascii() or {*map(len, texts)} != {self.cells}:
            return None
        boards = _codes_of_bytes(letters)[np.frombuffer(line.encode(), np.uint8)].reshape(-1, self.cells)
        given = boards >= 0
        row, cell = given.nonzero()
        for unit_of in self.units:
            filled = np.zeros((len(texts), self.symbols, self.symbols), dtype=bool)  # [board, unit, symbol]
            filled[row, unit_of[cell], boards[row, cell]] = True
            if filled.sum() < len(cell):  # two clues clash
                return None
        return None if (boards < -1).any() else Problem(torch.from_numpy(boards.clip(0)), torch.from_numpy(given))

    def hint(self, text: str) -> str:
        """Return what a fault adds for this text."""
        return ""

    def format(self, boards: Symbols, problem: Problem) -> list[str]:
        return write_cells(boards, ALPHABET)
