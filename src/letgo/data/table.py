"""A table of one's own: every row of a file is a valid configuration; some rows are held out.

Read are .csv and .txt (gzipped or not), .npy and .npz of numpy, and .parquet with the extra of that name. A row is kept
as one byte per cell, so that a million rows of a hundred cells take a tenth of a gigabyte.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice
from typing import Any

import numpy as np
import torch
from jaxtyping import UInt8

from letgo.data.columns import ALSO
from letgo.data.files import STDIN, FilePath, lines_of, open_bytes, open_csv, place
from letgo.data.source import Source, held_out
from letgo.data.store import read_bare
from letgo.errors import LetgoError
from letgo.shapes import PerBoard, Symbols
from letgo.tasks.table import BLANKS, MOST_VALUES, Table
from letgo.tasks.task import Problem

AT_ONCE = 8192  # rows that are read as text at a time
BLANK = 255  # the code of a cell that is not filled in
LEAST_ROWS = 20

Texts = list[str]


@dataclass(frozen=True)
class Rows:
    """Rows of a file are codes of its values; BLANK where a partial row has none."""

    codes: UInt8[np.ndarray, "rows cells"]
    values: tuple[str, ...]
    names: tuple[str, ...] = ()  # of the columns, where the file has a header
    grid: tuple[int, ...] = ()  # where the file has boards of two dimensions

    def __len__(self) -> int:
        return len(self.codes)

    def choices(self) -> list[list[int]]:
        """Return the values of every column, by number."""
        counts = (np.bincount(column, minlength=len(self.values)) for column in self.codes.T)
        return [np.flatnonzero(count).tolist() for count in counts]

    def keys(self) -> np.ndarray:
        """Return every row as one item, to be compared whole."""
        return np.ascontiguousarray(self.codes).view(f"V{self.codes.shape[1]}")[:, 0]


def table_of(path: FilePath, **options: Any) -> Table:
    """Return the task of a file's rows: as many cells as it has columns, and every value that occurs."""
    rows = read_table(path)
    options = {"grid": rows.grid, "names": rows.names, **options}
    return Table(rows.codes.shape[1], rows.values, **options)


def options_of(task: Table) -> dict[str, Any]:
    """Return what `Config.task_options` holds, so that a run folder can be loaded without the file."""
    lists = {name: list(getattr(task, name)) for name in ("values", "grid", "names")}
    lists["choices"] = [list(own) for own in task.choices]
    return {name: value for name, value in ({"columns": task.columns, "valid": task.valid} | lists).items() if value}


def shared_codes(choices: Sequence[Sequence[int]], values: int) -> list[list[int]]:
    """Return for every column the value of each code, -1 where it has none: the `columns` of `codecs.ColumnCodes`.

    A value has one code in all columns, and two values share one where no column has both. Those of most columns come
    first, and each takes the least code that is free, so that few are needed; columns alike need one for each value.
    """
    homes = [[c for c, own in enumerate(choices) if value in own] for value in range(values)]
    columns: list[dict[int, int]] = [{} for _ in choices]
    for value in sorted(range(values), key=lambda value: -len(homes[value])):
        taken = {code for c in homes[value] for code in columns[c]}
        code = next(code for code in range(values) if code not in taken)
        for c in homes[value]:
            columns[c][code] = value
    codes = 1 + max(code for column in columns for code in column)
    return [[column.get(code, -1) for code in range(codes)] for column in columns]


class TableRows(Source):
    """It has rows of a file and holds out a random tenth of the distinct ones (at most 4,000): half for validation,
    half for test.

    The copies of a row stay together, so that no row that is held out is also trained on.
    """

    task: Table
    partial = True

    def read(self, path: FilePath, solved: bool = False) -> Problem:
        return _problem(read_table(path, self.task).codes)

    def read_partial(self, path: FilePath) -> Problem:
        return _problem(read_table(path, self.task, blanks=True).codes)

    def split(self, split: str) -> Problem:
        if self._folder() is not None:
            return super().split(split)
        rows = read_table(str(self.data), self.task)
        part = _parts(rows, str(self.data))[split]
        return _problem(rows.codes[part], torch.int16 if split == "train" else torch.int64)

    def validation(self, count: int, seed: int) -> Problem:
        return self.draw("valid", None, count, seed)

    def own_clues(self, problem: Problem) -> bool:
        return False  # rows are complete, whatever a check says of them

    def check_tuning(self) -> None:
        if not self.task.has_rules:
            raise LetgoError("tuning counts the rows that are valid; say which are with --valid FILE.py:FUNCTION")
        super().check_tuning()

    def remark(self, regime: str | None) -> str:
        return "" if self.task.has_rules else (
            "no --valid says which rows are valid, so validity counts kept clues alone; `exact` and `agreement` "
            "compare with the rows that were held out"
        )  # fmt: skip

    def known(self, boards: Symbols) -> PerBoard:
        """Say which boards are rows of the file, held out or not."""
        rows = read_table(str(self.data), self.task)
        asked = Rows(boards.cpu().numpy().astype(np.uint8), rows.values)
        return torch.from_numpy(np.isin(asked.keys(), rows.keys()))


def _problem(codes: np.ndarray, kind: torch.dtype = torch.int64) -> Problem:
    given = torch.from_numpy(codes != BLANK)
    boards = torch.from_numpy(np.where(codes == BLANK, 0, codes)).to(kind)
    return Problem(boards, given if not bool(given.all()) else torch.zeros_like(given))


def _parts(rows: Rows, path: str) -> dict[str, np.ndarray]:
    """Return the rows of each split, by number."""
    _, first, group = np.unique(rows.keys(), return_index=True, return_inverse=True)
    if len(first) < LEAST_ROWS:
        found = f"{len(first)} distinct row{'s' * (len(first) != 1)}"
        raise LetgoError(f"{path}: {found}, too few to learn from and hold some out; give {LEAST_ROWS} or more")
    count = max(1, held_out(len(first) // 2))  # of each kind
    order = np.random.default_rng(0).permutation(len(first))
    kind = np.full(len(first), 2)
    kind[order[:count]], kind[order[count : 2 * count]] = 0, 1
    train = np.flatnonzero(kind[group.reshape(-1)] == 2)
    return {"test": np.sort(first[kind == 0]), "valid": np.sort(first[kind == 1]), "train": train}


@dataclass(frozen=True)
class Look:
    """It says what one should know of a table before training on it."""

    rows: int
    distinct: int
    cells: int
    values: tuple[str, ...]
    constant: tuple[str, ...]  # columns that hold one value alone, as 'name (value)'
    numbered: tuple[str, ...]  # columns that hold another value in every row
    strange: tuple[str, ...]  # values of the first row that occur nowhere else, where it might be a header

    @staticmethod
    def at(path: FilePath) -> Look:
        rows = read_table(path)
        same = np.flatnonzero((rows.codes == rows.codes[0]).all(axis=0))
        constant = tuple(f"{column_name(rows.names, c)} ({rows.values[rows.codes[0, c]]})" for c in same.tolist())
        many = (c for c, own in enumerate(rows.choices()) if len(own) == len(rows) > 1)
        numbered = tuple(column_name(rows.names, c) for c in many)
        once = np.bincount(rows.codes.reshape(-1), minlength=len(rows.values))[rows.codes[0]] == 1
        strange = tuple(rows.values[code] for code in rows.codes[0][once]) if not rows.names else ()
        distinct = len(np.unique(rows.keys()))
        return Look(len(rows), distinct, rows.codes.shape[1], rows.values, constant, numbered, strange)


def column_name(names: Sequence[str], cell: int) -> str:
    return f"column {cell + 1}" + (f" '{names[cell]}'" if names and names[cell] else "")


# Reading


def read_table(path: FilePath, task: Table | None = None, blanks: bool = False) -> Rows:
    """Read all rows of a file. Values that the task does not have are refused by row and column; with `blanks`, cells
    may be open."""
    if str(path) == STDIN and task is None:
        raise LetgoError("--data -: a table is read more than once, standard input is not; write it to a file")
    stamp = os.stat(path) if os.path.exists(path) else None
    key = None if stamp is None else (stamp.st_mtime_ns, stamp.st_size)
    if task is None:
        return _read(str(path), key)
    if not blanks:
        with suppress(LetgoError):  # the table that the task was made of, perhaps, which is still in memory
            rows = _read(str(path), key)
            if (rows.values, rows.codes.shape[1]) == (task.values, task.cells):
                return _of_its_columns(rows, task, path)
    expected = tuple(map(task.some_values, range(task.cells)))
    shape = (tuple(task.values), tuple(task.names), task.cells, expected)
    return _of_its_columns(_read(str(path), key, shape, blanks), task, path)


def _of_its_columns(rows: Rows, task: Table, path: FilePath) -> Rows:
    """Refuse a value that only other columns have, where the columns have values of their own."""
    for cell, own in enumerate(task.choices):
        strange = ~np.isin(rows.codes[:, cell], [*own, BLANK])
        if strange.any():
            row = int(strange.argmax())
            value, expected = task.values[rows.codes[row, cell]], f"expected one of {task.some_values(cell)}"
            at = f"{place(path)}, row {row + 1}, {column_name(task.names, cell)}"
            raise LetgoError(f"{at}: {value!r} was never seen there in training; {expected}, or '.' for a blank")
    return rows


Shape = tuple[tuple[str, ...], tuple[str, ...], int, tuple[str, ...]]  # values, names, cells, values of each in words


@lru_cache(maxsize=2)
def _read(path: str, stamp: tuple[int, int] | None, shape: Shape | None = None, blanks: bool = False) -> Rows:
    name = path.lower().removesuffix(".gz")
    coder = _Coder(path, shape, blanks)
    if name.endswith((".npy", ".npz")):
        coder.take_array(read_bare(path))
    elif name.endswith(".parquet"):
        names, rows = _parquet(path)
        coder.names = coder.names or names
        coder.take(rows)
    elif name.endswith((".csv", ".tsv")) or (path == STDIN and coder.names):
        coder.take(_csv(path), header=True)
    else:
        coder.take(_lines(path))
    return coder.rows()


class _Coder:
    """A coder gives every value a code, in the order in which they come; `rows` puts them in order."""

    def __init__(self, path: str, shape: Shape | None, blanks: bool):
        self.path, self.blanks = path, blanks
        self.known, self.names, self.cells, self.expected = shape or (None, (), None, ())
        self.values: list[str] = list(self.known or ())
        self.codes = {value: code for code, value in enumerate(self.values)}  # of texts as they stand in the file
        self.parts: list[np.ndarray] = []
        self.done, self.grid = 0, ()

    def take(self, rows: Iterable[Texts], header: bool = False) -> None:
        rows = iter(rows)
        while chunk := list(islice(rows, AT_ONCE)):
            if header and self._is_header(chunk):
                self.names = tuple(text.strip() for text in chunk.pop(0))
                self._refuse_puzzles(chunk)
            header = False
            if chunk:
                self._add(chunk)

    def take_array(self, boards: np.ndarray) -> None:
        if boards.ndim == 3:
            self.grid = boards.shape[1:]
            boards = boards.reshape(len(boards), -1)
        if boards.ndim != 2 or boards.dtype.kind not in "iubUf" or not boards.shape[1]:
            found = f"{boards.dtype} of shape {boards.shape}"
            raise LetgoError(f"{place(self.path)}: an array of {found}; expected whole numbers or words, a row each")
        for start in range(0, len(boards), AT_ONCE):
            found, inverse = np.unique(boards[start : start + AT_ONCE], return_inverse=True)
            texts = [self._text(value) for value in found.tolist()]
            part = inverse.reshape(-1, boards.shape[1])
            self._learn(texts, lambda text, part=part, texts=texts: np.argwhere(part == texts.index(text))[0])
            self._keep(np.array([self.codes[text] for text in texts], np.uint8)[part])

    def rows(self) -> Rows:
        if not self.done:
            raise LetgoError(f"{place(self.path)}: no rows in it; expected one configuration per row")
        codes = np.concatenate(self.parts)
        if self.known is not None:
            return Rows(codes, self.known, self.names, self.grid)
        values = sorted(self.values, key=_order)
        if codes.shape[1] < 2:
            raise LetgoError(f"{place(self.path)}: one value per row; expected several, with commas between them")
        if len(values) < 2:
            raise LetgoError(f"{place(self.path)}: every cell is {values[0]!r}; there is nothing to learn")
        order = {value: code for code, value in enumerate(values)}
        new = np.array([order[value] for value in self.values], np.uint8)
        return Rows(new[codes], tuple(values), self.names, self.grid)

    def _text(self, value: Any) -> str:
        if isinstance(value, float) and not value.is_integer():
            found = f"it holds {value:g}; expected whole numbers or words"
            raise LetgoError(f"{place(self.path)}: {found}: bin what is measured")
        number = not isinstance(value, str)
        if self.blanks and number and value < 0 and str(int(value)) not in self.codes:
            return ""  # a blank of an array
        return str(int(value)) if number else value

    def _is_header(self, chunk: list[Texts]) -> bool:
        """Say whether the first line is a header: it is the table's own, or none of its words is a value or a blank.

        In a table to learn from, where no row has blanks, a column may be without a name.
        """
        first = {text.strip() for text in chunk[0]}
        if self.names and [text.strip() for text in chunk[0]] == [*self.names]:
            return True
        below = set(self.known) if self.known is not None else {text.strip() for row in chunk[1:] for text in row}
        blanks = {*BLANKS, ""} if self.known is not None else {*BLANKS}
        return bool(below) and first.isdisjoint(below - {""}) and not first & blanks and first != {""}

    def _refuse_puzzles(self, rows: list[Texts]) -> None:
        """Refuse a data set of puzzles: a table would take the whole board in each of its two columns for a word."""
        names = [name.lower() for name in self.names]
        kinds = {kind for kind, also in ALSO.items() for name in also if name in names}
        if self.known is None and len(kinds) == 2 and rows and max(map(len, rows[0])) == 81:
            found = f"the columns {', '.join(self.names)} hold whole Sudokus"
            raise LetgoError(f"{place(self.path)}: {found}; learn from them by `letgo train sudoku --data {self.path}`")

    def _add(self, chunk: list[Texts]) -> None:
        cells = self.cells or len(chunk[0])
        for i, row in enumerate(chunk):
            if len(row) != cells:
                raise LetgoError(
                    f"{place(self.path)}, row {self.done + i + 1}: {len(row)} values after rows of {cells}"
                    if self.known is None
                    else f"{place(self.path)}, row {self.done + i + 1}: {len(row)} values; this table has {cells}"
                )
        if self.names and len(self.names) != cells:
            raise LetgoError(f"{place(self.path)}: a header of {len(self.names)} names, and rows of {cells} values")
        flat = [*chain.from_iterable(chunk)]
        self._learn(dict.fromkeys(flat), lambda text: divmod(flat.index(text), cells))
        self._keep(np.fromiter(map(self.codes.__getitem__, flat), np.uint8, len(flat)).reshape(-1, cells))

    def _keep(self, part: np.ndarray) -> None:
        if self.cells not in (None, part.shape[1]):
            raise LetgoError(f"{place(self.path)}: rows of {part.shape[1]} values; this table has {self.cells}")
        self.cells, self.done = part.shape[1], self.done + len(part)
        self.parts.append(part)

    def _learn(self, texts: Iterable[str], where: Any) -> None:
        """Give a code to every text that has none; `where` says the row and column in which one stands."""
        for text in texts:
            if text in self.codes:
                continue
            value, fault = text.strip(), ""
            if value in self.codes:
                self.codes[text] = self.codes[value]
            elif value in ("", *BLANKS):
                self.codes[text] = BLANK
                fault = "" if self.blanks else "a blank; leave incomplete rows out, or write a word there, such as none"
            elif self.known is not None:
                some = self.expected[int(where(text)[1])]
                fault = f"{value!r} was never seen in training; expected one of {some}, or '.' for a blank"
            elif "\ufffd" in value:
                fault = f"{value!r} is not UTF-8; save the file as text in UTF-8"
            elif len(value.splitlines()) > 1:
                fault = f"{value!r} holds a line break; write it otherwise"
            elif len(self.values) == MOST_VALUES:
                fault = (
                    f"{value!r} is the {MOST_VALUES + 1}th value; a table has at most {MOST_VALUES}: bin what is "
                    "measured, leave out free text and numbers of rows"
                )
            else:
                self.codes[text] = self.codes[value] = len(self.values)
                self.values.append(value)
            if fault:
                row, column = where(text)
                at = f"row {self.done + row + 1}, {column_name(self.names, int(column))}"
                raise LetgoError(f"{place(self.path)}, {at}: {fault}")


def _csv(path: str) -> Iterator[Texts]:
    """Read values with commas between them; or semicolons, or tabs, if the first line has those and no comma."""
    with open_csv(path) as text:
        try:
            lines = lines_of(path, text)
            first = next(lines, "")
            _refuse_binary(path, first)
            between = next((sign for sign in ",;\t" if sign in first), ",")
            yield from (row for row in csv.reader(chain([first], lines), delimiter=between) if row)
        except csv.Error as fault:
            raise LetgoError(f"{place(path)}: not a CSV row ({fault})") from None


def _lines(path: str) -> Iterator[Texts]:
    """Read values with commas or spaces between them, or a character each."""
    with open_bytes(path) as file:
        for raw in lines_of(path, file):
            text = raw.decode(errors="replace").strip()
            _refuse_binary(path, text)
            if text:
                parts = [part.strip() for part in text.split(",")] if "," in text else text.split()
                yield parts if len(parts) > 1 else list(text)


def _refuse_binary(path: str, line: str) -> None:
    if "\0" in line or line.startswith("PK\3\4"):  # as an .xlsx begins
        raise LetgoError(f"{place(path)}: not text; save a spreadsheet as .csv (UTF-8)")


def _parquet(path: str) -> tuple[tuple[str, ...], Iterator[Texts]]:
    """Return the names of the columns, and the rows."""
    try:
        from pyarrow import ArrowInvalid, parquet  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise LetgoError(
            f"{place(path)} needs the parquet extra: pip install 'letgo[parquet]', or write a .csv"
        ) from None
    with open_bytes(path):  # one that is not there, or a folder, is no damaged file
        pass
    try:
        table = parquet.ParquetFile(path)
    except (OSError, ArrowInvalid) as fault:
        raise LetgoError(f"{place(path)}: not a Parquet file ({str(fault).splitlines()[0]})") from None

    def rows() -> Iterator[Texts]:
        try:
            for batch in table.iter_batches(AT_ONCE):
                for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                    yield ["" if value is None else str(value) for value in row]
        except (OSError, ArrowInvalid) as fault:  # pages are unpacked one by one
            raise LetgoError(f"{place(path)}: damaged ({str(fault).splitlines()[0]}); write it again") from None

    return tuple(table.schema_arrow.names), rows()


def _order(value: str) -> tuple[bool, float, str]:
    """Put numbers in order by size, then words."""
    try:
        return False, float(value), value
    except ValueError:
        return True, 0.0, value
