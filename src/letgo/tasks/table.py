"""Rows of symbols without rules, such as `red,blue,.`; a function of one's own may say which rows are valid.

Single characters stand side by side (`ab.a`), words have commas between them, or semicolons where words have commas
themselves; '.' is a blank.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import isqrt
from typing import Any

import torch

from letgo.errors import LetgoError
from letgo.estimates import Column
from letgo.shapes import CellMask, Symbols
from letgo.tasks import import_from
from letgo.tasks.task import Look, Problem, Task

SEPARATORS = ",;|\t"  # the first that stands in no value is between words
BLANKS = (".", "?")  # beside an empty cell; where one of them is a value, it is none
MOST_VALUES = 255  # a cell is a byte, and one code is for blanks

Check = Callable[[list[str]], Any]
CHECKS: dict[str, Check] = {}  # by their function's name; a run folder names one and never runs it


def load_check(place: str) -> str:
    """Take 'FILE.py:function', which gets a row's values as text and says whether the row is valid; runs the file."""
    found = import_from("--valid", place)
    if not callable(found):
        raise LetgoError(f"--valid {place}: no function; write `def {place.rpartition(':')[2]}(row)` there")
    CHECKS[place.rpartition(":")[2]] = found
    return place


@dataclass(frozen=True)
class Table(Task):
    """`columns` cells hold any of `values`; `grid` is how they are laid out, `valid` the check's name."""

    columns: int = 2
    values: Sequence[str] = ("0", "1")
    grid: Sequence[int] = ()
    valid: str = ""
    names: Sequence[str] = ()  # of the columns
    choices: Sequence[Sequence[int]] = ()  # the values of each column, by number; without them any column has any
    cells: int = field(init=False)
    symbols: int = field(init=False)
    name = "table"
    regimes = ("random", "gen")

    def __post_init__(self) -> None:
        for key in ("values", "grid", "names"):  # JSON has lists
            object.__setattr__(self, key, tuple(getattr(self, key)))
        odd = any(value in ("", ".") or "\n" in value for value in self.values)
        if not 2 <= len(self.values) <= MOST_VALUES or odd or self.columns < 1 or self.separator not in SEPARATORS:
            raise LetgoError(
                f"a table of {self.columns} columns with the values {self.values}; expected 2 or more words"
            )
        if self.names and len(self.names) != self.columns:
            raise LetgoError(f"names: {len(self.names)} of {self.columns} columns")
        if self.grid and (len(self.grid) != 2 or min(self.grid) < 1 or self.grid[0] * self.grid[1] != self.columns):
            raise LetgoError(
                f"--grid {'x'.join(map(str, self.grid))}: a row has {self.columns} cells; give HxW of these"
            )
        object.__setattr__(self, "choices", tuple(map(tuple, self.choices)))
        numbers = {number for own in self.choices for number in own}
        some = len(self.choices) == self.columns and all(self.choices)
        if self.choices and not (some and numbers <= {*range(len(self.values))}):
            raise LetgoError(f"choices: expected numbers of values for each of {self.columns} columns")
        object.__setattr__(self, "cells", self.columns)
        object.__setattr__(self, "symbols", len(self.values))

    @property
    def usual_clues(self) -> int:
        return self.cells // 2

    @property
    def has_rules(self) -> bool:
        return bool(self.valid)

    def checked_by(self, place: str) -> Table:
        """Return the same rows, valid as this function says; none where the one that they name is not loaded."""
        place = place or (self.valid if self.valid.rpartition(":")[2] in CHECKS else "")
        return replace(self, valid=place)

    @property
    def separator(self) -> str:
        used = "".join(self.values)
        words = any(len(value) > 1 or value == "," for value in self.values)
        return next((sign for sign in SEPARATORS if sign not in used), "none") if words else ""

    @property
    def look(self) -> Look:
        side = isqrt(self.cells)
        rows, columns = self.grid or ((side, side) if side**2 == self.cells else (1, self.cells))
        blank = self.separator.join("." * self.cells)
        return Look("Table", rows, columns, self.values, separator=self.separator, example=blank)

    def broken(self, boards: Symbols, problem: Problem) -> CellMask:
        """Return all cells of a row that the check refuses; without a check nothing is known, and nothing is broken."""
        if not self.valid or not len(boards):
            return torch.zeros_like(boards, dtype=torch.bool)
        name = self.valid.rpartition(":")[2]
        if name not in CHECKS:
            raise LetgoError(f"rows of this table are checked by {self.valid}; give --valid FILE.py:{name}")
        fine = [self._passes(CHECKS[name], [self._word(symbol) for symbol in board]) for board in boards.tolist()]
        return ~torch.tensor(fine, dtype=torch.bool, device=boards.device)[:, None].expand_as(boards)

    def _passes(self, check: Check, row: list[str]) -> bool:
        try:
            return bool(check(row))
        except Exception as fault:
            shown = self.separator.join(row)
            raise LetgoError(f"{self.valid} fails on the row {shown}: {type(fault).__name__}: {fault}") from fault

    def outcomes(self, tries: Sequence[Symbols], problem: Problem) -> dict[str, Column]:
        """Return how often a completion is the very row that was held out, and how many open cells agree with it."""
        same, hidden = tries[0] == problem.solution, ~problem.given
        return {
            "exact": Column.of("rate", same.all(1)),
            "agreement": Column.of("share", (same & hidden).sum(1) / hidden.sum(1)),
        }

    def _word(self, symbol: int) -> str:
        return self.values[symbol]

    def some_values(self, cell: int) -> str:
        """Name the values that a cell may have, or the first few of many."""
        own = [self.values[number] for number in self.choices[cell]] if self.choices else self.values
        return ", ".join(own[:8]) + (", ..." if len(own) > 8 else "")

    def symbol(self, text: str, cell: int) -> int:
        found = self.values.index(text) if text in self.values else -1
        if found < 0 or (self.choices and found not in self.choices[cell]):
            expected = f"expected one of {self.some_values(cell)}, or '.' for a blank"
            raise LetgoError(f"cell {cell + 1} is {text!r}; {expected}")
        return found

    def parse(self, text: str) -> Problem:
        sign = self.separator or ("," if "," in text else "")
        parts = [part.strip() for part in text.split(sign)] if sign else list(text.strip())
        if len(parts) != self.cells:
            raise LetgoError(f"expected {self.cells} cells, got {len(parts)}; '.' for a blank")
        blank = {"", *BLANKS} - {*self.values}
        given = torch.tensor([[part not in blank for part in parts]])
        symbols = [0 if part in blank else self.symbol(part, cell) for cell, part in enumerate(parts)]
        return Problem(torch.tensor([symbols]), given)

    def format(self, boards: Symbols, problem: Problem) -> list[str]:
        return [self.separator.join(self._word(symbol) for symbol in board) for board in boards.tolist()]

    def format_clues(self, problem: Problem) -> list[str]:
        rows = zip(problem.solution.tolist(), problem.given.tolist(), strict=True)
        return [
            self.separator.join(self._word(symbol) if known else "." for symbol, known in zip(*row, strict=True))
            for row in rows
        ]
