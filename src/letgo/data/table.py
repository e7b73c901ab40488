"""A table of one's own: every row of a .csv, .npz or .txt file is a valid configuration; some rows are held out."""

from __future__ import annotations

import csv
import zipfile
from typing import Any

import numpy as np
import torch

from letgo.data.files import FilePath, file_kind, open_bytes, open_csv, place
from letgo.data.source import Source, held_out
from letgo.errors import LetgoError
from letgo.tasks.table import Table
from letgo.tasks.task import Problem

Rows = list[list[str]]


def table_of(path: FilePath, **options: Any) -> Table:
    """The task of a file's rows: as many cells as it has columns, and every value that occurs."""
    rows = read_rows(path)
    values = sorted({value for row in rows for value in row}, key=_order)
    return Table(len(rows[0]), values, **options)


def options_of(task: Table) -> dict[str, Any]:
    """What `Config.task_options` holds, so that a run folder can be loaded without the file."""
    named = {"columns": task.columns, "values": list(task.values), "grid": list(task.grid), "valid": task.valid}
    return {name: value for name, value in named.items() if value}


class TableRows(Source):
    """Rows of a file, a random tenth of them (at most 4,000) held out: half for validation, half for test."""

    task: Table

    def read(self, path: FilePath, solved: bool = False) -> Problem:
        rows = read_rows(path)
        symbols = [[self._symbol(path, i, row, cell) for cell in range(self.task.cells)] for i, row in enumerate(rows)]
        boards = torch.tensor(symbols)
        return Problem(boards, torch.zeros_like(boards, dtype=torch.bool))

    def split(self, split: str) -> Problem:
        if self._folder() is not None:
            return super().split(split)
        rows = self.read(str(self.data))
        order = torch.from_numpy(np.random.default_rng(0).permutation(len(rows)))
        part = held_out(len(rows) // 2)  # of each kind
        parts = {"test": order[:part], "valid": order[part : 2 * part], "train": order[2 * part :].sort().values}
        if not part:
            raise LetgoError(f"{self.data}: {len(rows)} rows are too few to hold some out; give 20 or more")
        return rows[parts[split]]

    def validation(self, count: int, seed: int) -> Problem:
        return self.draw("valid", None, count, seed)

    def _symbol(self, path: FilePath, number: int, row: list[str], cell: int) -> int:
        if len(row) != self.task.cells:
            raise LetgoError(f"{place(path)}, row {number + 1}: {len(row)} values; this table has {self.task.cells}")
        try:
            return self.task.symbol(row[cell], cell)
        except LetgoError as fault:
            raise LetgoError(f"{place(path)}, row {number + 1}: {fault}") from None


def read_rows(path: FilePath) -> Rows:
    """Rows of equal length; the first line of a .csv is a header if none of its words occurs below."""
    kind = file_kind(path)
    rows = _npz(path) if kind == "npz" else _csv(path) if kind == "csv" else _lines(path)
    if not rows:
        raise LetgoError(f"{place(path)}: no rows in it; expected one configuration per row")
    for i, row in enumerate(rows):
        if len(row) != len(rows[0]):
            raise LetgoError(f"{place(path)}, row {i + 1}: {len(row)} values after rows of {len(rows[0])}")
        if "" in row or "." in row:
            raise LetgoError(f"{place(path)}, row {i + 1}: a blank; a table to learn from has complete rows")
    return rows


def _csv(path: FilePath) -> Rows:
    with open_csv(path) as text:
        rows = [[value.strip() for value in row] for row in csv.reader(text) if row]
    below = {value for row in rows[1:] for value in row}
    return rows[1:] if below and below.isdisjoint(rows[0]) else rows


def _lines(path: FilePath) -> Rows:
    """Values with commas or spaces between them, or a character each."""
    with open_bytes(path) as file:
        texts = [raw.decode(errors="replace").strip() for raw in file]
    parted = [text.replace(",", " ").split() for text in texts if text]
    return [row if len(row) > 1 else list(row[0]) for row in parted]


def _npz(path: FilePath) -> Rows:
    with open_bytes(path) as file:
        try:
            with np.load(file, allow_pickle=False) as archive:
                name = "boards" if "boards" in archive.files else archive.files[0]
                boards = archive[name]
        except (ValueError, TypeError, EOFError, IndexError, zipfile.BadZipFile):
            raise LetgoError(f"{place(path)}: not an .npz of arrays, or cut short") from None
    if boards.ndim != 2:
        raise LetgoError(f"{place(path)}: the array {name!r} has shape {boards.shape}; expected rows and columns")
    return [[str(value) for value in row] for row in boards.tolist()]


def _order(value: str) -> tuple[bool, float, str]:
    """Numbers by size, then words."""
    try:
        return False, float(value), value
    except ValueError:
        return True, 0.0, value
