"""The CSV layout that Sudoku-Extreme and Maze-Hard share: `source,question,answer,rating`."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

import numpy as np
from jaxtyping import Int, UInt8

from letgo.data.files import FilePath, open_csv, place
from letgo.errors import LetgoError

HEADER = ["source", "question", "answer", "rating"]
ILLEGAL = 255  # what `alphabet` gives for a character that may not occur
ROWS_AT_ONCE = 1 << 15  # enough to keep numpy busy, little enough to keep 3.8M rows out of memory as strings

Row = list[str]
T = TypeVar("T")


def alphabet(codes: dict[str, int]) -> UInt8[np.ndarray, "256"]:
    """A table from a byte to the symbol it stands for."""
    table = np.full(256, ILLEGAL, np.uint8)
    for character, code in codes.items():
        table[ord(character)] = code
    return table


def cells(
    column: str, texts: Sequence[str], size: int, table: UInt8[np.ndarray, "256"]
) -> UInt8[np.ndarray, "rows {size}"]:
    """Texts of `size` characters as symbols; all rows at once, since there may be millions."""
    for length in set(map(len, texts)) - {size}:
        raise LetgoError(f"{column}: expected {size} cells, got {length}")
    joined = "".join(texts)
    symbols = table[np.frombuffer(joined.encode("ascii", "replace"), np.uint8)]
    if (symbols == ILLEGAL).any():
        at = int((symbols == ILLEGAL).argmax())
        legal = "".join(chr(byte) for byte in np.flatnonzero(table != ILLEGAL))
        found = ascii(joined[at])
        raise LetgoError(f"{column}, cell {at % size + 1}: {found} is not a cell; expected one of {legal!r}")
    return symbols.reshape(len(texts), size)


def whole_numbers(column: str, texts: Sequence[str]) -> Int[np.ndarray, "rows"]:
    """An empty field is -1: unknown."""
    try:
        return np.array([int(text) if text else -1 for text in texts], np.int32)
    except (ValueError, OverflowError):
        shown = ascii(next((text for text in texts if not text.isdecimal()), texts[0]))
        raise LetgoError(f"{column}: expected a whole number, got {shown[:40]}") from None


def read_columns(path: FilePath, parse: Callable[[list[Row]], T]) -> list[T]:
    """`parse` applied to chunks of rows; a row it refuses is named by its line."""
    parts = [_parse_chunk(path, rows, parse) for rows in _chunks(path, ROWS_AT_ONCE)]
    if not parts:
        raise LetgoError(f"{place(path)}: no rows after the header; expected one puzzle per row")
    return parts


def first_question(path: FilePath) -> str:
    """The first row's puzzle, whose length tells a Sudoku from a maze."""
    for rows in _chunks(path, rows_at_once=1):
        return rows[0][1][1] if len(rows[0][1]) > 1 else ""
    return ""


def _chunks(path: FilePath, rows_at_once: int) -> Iterator[list[tuple[int, Row]]]:
    """Rows with their line numbers; blank lines are passed over."""
    with open_csv(path) as text:
        reader = csv.reader(text)
        try:
            _check_header(path, next(reader, []))
            numbered = ((reader.line_num, row) for row in reader if row)
            while rows := list(islice(numbered, rows_at_once)):
                yield rows
        except csv.Error as fault:
            raise LetgoError(f"{place(path, reader.line_num)}: not a CSV row ({fault})") from None


def _check_header(path: FilePath, row: Row) -> None:
    if row != HEADER:
        found = ascii(",".join(row))[:60]
        raise LetgoError(f"{place(path, 1)}: expected the header {','.join(HEADER)}, got {found}")


def _parse_chunk(path: FilePath, rows: list[tuple[int, Row]], parse: Callable[[list[Row]], T]) -> T:
    try:
        return _parse_rows(rows, parse)
    except LetgoError:
        line, fault = _first_fault(rows, parse)
        raise LetgoError(f"{place(path, line)}: {fault}") from None


def _parse_rows(rows: list[tuple[int, Row]], parse: Callable[[list[Row]], T]) -> T:
    for _, row in rows:
        if len(row) != len(HEADER):
            raise LetgoError(f"expected {len(HEADER)} columns ({','.join(HEADER)}), got {len(row)}")
    return parse([row for _, row in rows])


def _first_fault(rows: list[tuple[int, Row]], parse: Callable[[list[Row]], T]) -> tuple[int, str]:
    """Halve until one row is left: so the checks are written once, for many rows."""
    while len(rows) > 1:
        first = rows[: len(rows) // 2]
        rows = first if _fault(first, parse) else rows[len(first) :]
    return rows[0][0], str(_fault(rows, parse))


def _fault(rows: list[tuple[int, Row]], parse: Callable[[list[Row]], T]) -> LetgoError | None:
    try:
        _parse_rows(rows, parse)
    except LetgoError as fault:
        return fault
    return None
