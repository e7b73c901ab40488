"""The CSV layout that Sudoku-Extreme and Maze-Hard share: `source,question,answer,rating`.

Other files have the same columns by other names (Kaggle's Sudokus: `quizzes,solutions`), in any order among others.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

import numpy as np
from jaxtyping import Int, UInt8

from letgo.data.files import FilePath, lines_of, open_csv, place
from letgo.errors import LetgoError

HEADER = ["source", "question", "answer", "rating"]
ALSO = {  # what else a column is called
    "question": ("question", "questions", "quizzes", "quiz", "puzzle", "puzzles", "problem"),
    "answer": ("answer", "answers", "solutions", "solution"),
}
ILLEGAL = 255  # what `alphabet` gives for a character that may not occur
ROWS_AT_ONCE = 1 << 15  # enough to keep numpy busy, little enough to keep 3.8M rows out of memory as strings

Row = list[str]
Cells = np.ndarray
T = TypeVar("T")


def alphabet(codes: dict[str, int]) -> UInt8[np.ndarray, "256"]:
    """Return a table from a byte to the symbol it stands for."""
    table = np.full(256, ILLEGAL, np.uint8)
    for character, code in codes.items():
        table[ord(character)] = code
    return table


def cells(
    column: str, texts: Sequence[str], size: int, table: UInt8[np.ndarray, "256"]
) -> UInt8[np.ndarray, "rows {size}"]:
    """Return texts of `size` characters as symbols; all rows at once, since there may be millions."""
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


def check_clues(question: Cells, answer: Cells, legal: Cells, letters: str) -> None:
    """Refuse an answer that is not legal where the question has a clue, or where it is open."""
    if not legal.all():
        row, cell = divmod(int((~legal).argmax()), legal.shape[1])
        clue, symbol = letters[question[row, cell]], letters[answer[row, cell]]
        raise LetgoError(f"answer, cell {cell + 1}: {symbol!r} where the question has {clue!r}")


def whole_numbers(column: str, texts: Sequence[str]) -> Int[np.ndarray, "rows"]:
    """Return the numbers; an empty field is -1, which is unknown."""
    try:
        return np.array([int(text) if text else -1 for text in texts], np.int32)
    except (ValueError, OverflowError):
        shown = ascii(next((text for text in texts if not text.isdecimal()), texts[0]))
        raise LetgoError(f"{column}: expected a whole number, got {shown[:40]}") from None


def read_columns(path: FilePath, parse: Callable[[list[Row]], T]) -> list[T]:
    """Apply `parse` to chunks of rows; a row it refuses is named by its line."""
    parts = [_parse_rows(path, rows, parse) for rows in _chunks(path, ROWS_AT_ONCE)]
    if not parts:
        raise LetgoError(f"{place(path)}: no rows after the header; expected one puzzle per row")
    return parts


def first_question(path: FilePath) -> str:
    """Return the first row's puzzle, whose length tells a Sudoku from a maze."""
    return next((row[1] for _, row in questions(path)), "")


def questions(path: FilePath) -> Iterator[tuple[int, Row]]:
    """Yield every row with its line number; the answer may be missing."""
    for rows in _chunks(path, rows_at_once=1):
        yield rows[0]


def is_header(line: str) -> bool:
    """Tell the first line of a .csv of puzzles from a puzzle."""
    return any(name.strip().lower() in ALSO["question"] for name in line.lstrip("\ufeff").split(","))


def _places(path: FilePath, header: Row) -> list[int | None]:
    """Return where the columns of HEADER stand; all but the question may be missing."""
    names = [name.strip().lower() for name in header]
    wanted = [ALSO.get(column, (column,)) for column in HEADER]
    places = [next((names.index(name) for name in also if name in names), None) for also in wanted]
    if places[1] is None:
        found = ascii(",".join(header))[:60]
        expected = f"expected the header {','.join(HEADER)}, or at least one like quizzes,solutions"
        raise LetgoError(f"{place(path, 1)}: {expected}, got {found}")
    return places


def _chunks(path: FilePath, rows_at_once: int) -> Iterator[list[tuple[int, Row]]]:
    """Yield rows with their line numbers, in the order of HEADER; blank lines are passed over."""
    with open_csv(path) as text:
        reader = csv.reader(lines_of(path, text))
        try:
            header = next(reader, [])
            places = _places(path, header)

            def ordered(row: Row) -> Row:
                if len(row) != len(header):
                    expected = f"expected {len(header)} columns ({','.join(header)})"
                    raise LetgoError(f"{place(path, reader.line_num)}: {expected}, got {len(row)}")
                return ["" if at is None else row[at] for at in places]

            numbered = ((reader.line_num, ordered(row)) for row in reader if row)
            while rows := list(islice(numbered, rows_at_once)):
                yield rows
        except csv.Error as fault:
            raise LetgoError(f"{place(path, reader.line_num)}: not a CSV row ({fault})") from None


def _parse_rows(path: FilePath, rows: list[tuple[int, Row]], parse: Callable[[list[Row]], T]) -> T:
    """Parse all rows at once; a fault is looked for by halves, so that checks are written once, for many rows."""
    try:
        return parse([row for _, row in rows])
    except LetgoError as fault:
        if len(rows) == 1:
            raise LetgoError(f"{place(path, rows[0][0])}: {fault}") from None
    half = len(rows) // 2
    _parse_rows(path, rows[:half], parse)
    return _parse_rows(path, rows[half:], parse)
