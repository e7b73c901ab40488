"""Sudoku-Extreme: `source,question,answer,rating`, '.' for a blank; every row has one solution (Table 2).

puzzles2_17_clue,2..1....5...8......7.....4.1......(81 characters),286194375945837261371562849...(81 digits),0
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields, replace
from pathlib import Path
from sys import intern
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int, UInt8

from letgo.data.columns import Row, alphabet, cells, check_clues, read_columns, whole_numbers
from letgo.data.files import FilePath, file_kind
from letgo.data.source import Source, clue_counts, held_out, in_rounds, lends_rows, split_file
from letgo.errors import LetgoError
from letgo.rng import data_rng
from letgo.tasks.sudoku_grid import units
from letgo.tasks.task import Look, Problem, Task

CELLS, BLANK = 81, 9
DIGITS = {str(digit + 1): digit for digit in range(9)}
QUESTION = alphabet({**DIGITS, ".": BLANK, "0": BLANK})
ANSWER = alphabet(DIGITS)

# Groups of sources by what their names contain. Magictour's few puzzles count with the hard ones.
GROUPS: dict[str, tuple[str, ...]] = {
    "hard": ("forum_hardest", "vicinity", "01_file1", "magictour"),
    "unbiased": ("unbiased",),
    "kaggle": ("kaggle",),
    "17_clue": ("17_clue",),
}
SHARES: dict[str, float] = {"hard": 0.73, "unbiased": 0.23, "kaggle": 0.023, "17_clue": 0.012}


@dataclass(frozen=True)
class SudokuTable:
    """It keeps puzzles as bytes: 3.8M rows take 0.65 GB, but their `problem` (int64) 2.8 GB, so take parts of it."""

    boards: UInt8[np.ndarray, "rows 81"]  # the answers, symbols 0 .. 8 for the digits 1 .. 9
    given: Bool[np.ndarray, "rows 81"]
    sources: np.ndarray  # the name of each row's source
    ratings: Int[np.ndarray, "rows"]  # backtracks of the tdoku solver; -1 where the file has none

    def __len__(self) -> int:
        return len(self.boards)

    def __getitem__(self, index: slice | np.ndarray) -> SudokuTable:
        return SudokuTable(self.boards[index], self.given[index], self.sources[index], self.ratings[index])

    @property
    def problem(self) -> Problem:
        return Problem(torch.from_numpy(self.boards.astype(np.int64)), torch.from_numpy(self.given.copy()))


class Sudokus(Source):
    """Sudokus have random clues; the boards of a .csv are those of Sudoku-Extreme."""

    hub = "sudoku-extreme"

    @property
    def has_csv(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.task.cells == CELLS

    def read_csv(self, path: FilePath) -> Problem:
        return read_sudoku_extreme(path).problem if self.has_csv else super().read_csv(path)

    def names(self, split: str, problem: Problem) -> list[str]:
        """Return the column `source` of each puzzle's row in a .csv."""
        path = self.file_of(split)
        if path is None or file_kind(path) != "csv":
            return super().names(split, problem)
        table = read_sudoku_extreme(path)
        known = dict(zip(_keys(table.boards, table.given), table.sources.tolist(), strict=True))
        return [known[key] for key in _keys(problem.solution.numpy(), problem.given.numpy())]

    def inspect(self, path: FilePath, sample: int) -> dict[str, Any]:
        """Tell of a .csv also where its rows come from and how hard they are."""
        if file_kind(path) != "csv":
            return super().inspect(path, sample)
        table = read_sudoku_extreme(path)
        chosen = np.random.default_rng(0).permutation(len(table))[: max(sample, 0)]
        return {
            **clue_counts(table.given),
            **({"sources": dict(sorted(Counter(named).items()))} if any(named := table.sources.tolist()) else {}),
            "ratings": _spread(table.ratings[table.ratings >= 0]),
            **self.task.facts(table[chosen].problem, sample),
        }


class SudokuExtreme(Sudokus):
    """Sudokus have the clues of Sudoku-Extreme; without its files, they are minimal puzzles with one solution too."""

    def __init__(self, task: Task, data: str | None = None):
        super().__init__(task, data)
        self.usual, self.counts = "minimal", None
        self.keeps_clues = True

    @property
    def look(self) -> Look:
        return replace(super().look, title="Sudoku Extreme", example=None)

    def generate(self, split: str, regime: str, count: int, rng: np.random.Generator) -> Problem:
        return super().generate(split, "minimal" if regime in (*self.regimes, "train") else regime, count, rng)

    def training(self, count: int, seed: int) -> Problem:
        """Return all rows of a file, but `count` by source of one with made-up sources.

        Such a file does not have the sources' own shares; the hub's has, and is taken whole.
        """
        folder = None if self.data is None else self._folder()
        path = split_file(folder, "train") if folder is not None else self.data
        if path is None or file_kind(path) != "csv":
            return super().training(count, seed)
        table = read_sudoku_extreme(path)
        if lends_rows(Path(path)):
            table = table[: len(table) - held_out(len(table))]
        made_up = any(name.startswith("generated_") for name in set(table.sources.tolist()))
        sampled = made_up and all(len(_rows_of(table, group)) for group in SHARES)
        return (sample_by_source(table, count, data_rng(seed, "train")) if sampled else table).problem

    def check_training(self) -> None:
        if self.data is None:
            raise LetgoError(
                "sudoku-extreme learns from its data set: give --data FOLDER (`letgo data fetch sudoku-extreme`), "
                "or --boards N for N minimal puzzles of our own, at about 200 a second"
            )

    def check_tuning(self) -> None:
        if self.data is None:
            raise LetgoError(
                "sudoku-extreme is tuned on its data set: give --data FOLDER (`letgo data fetch sudoku-extreme`); "
                "minimal puzzles of our own are much easier"
            )
        super().check_tuning()

    def remark(self, regime: str | None) -> str:
        own = self.data is None and regime in (None, *self.regimes)
        return "minimal puzzles of our own, easier than Sudoku-Extreme's; for those give --data" if own else ""


def read_sudoku_extreme(path: FilePath) -> SudokuTable:
    """Return every row of a .csv or .csv.gz, checked: legal cells; the answer keeps the clues and the rules."""
    parts = read_columns(path, _parse)
    columns = ([getattr(part, column.name) for part in parts] for column in fields(SudokuTable))
    return SudokuTable(*map(np.concatenate, columns))


def sample_by_source(table: SudokuTable, count: int, rng: np.random.Generator) -> SudokuTable:
    """Draw `count` rows whose sources have Sudoku-Extreme's SHARES, in random order.

    Within a group no row comes twice before every row has come once. A source of no group is never drawn; a group
    without rows is an error, since leaving it out would change the shares.
    """
    counts = _round_to_total(np.array(list(SHARES.values())), count)
    chosen = [_draw(_rows_of(table, group), wanted, group, rng) for group, wanted in zip(SHARES, counts, strict=True)]
    return table[rng.permutation(np.concatenate(chosen))]


def _keys(boards: np.ndarray, given: np.ndarray) -> list[bytes]:
    """Return a puzzle as bytes: its answer, and which of it is given."""
    return [row.tobytes() for row in np.concatenate([boards.astype(np.uint8), given.astype(np.uint8)], 1)]


def _spread(values: np.ndarray) -> dict[str, Any] | None:
    if not len(values):
        return None
    return {"min": int(values.min()), "mean": round(float(values.mean()), 2), "max": int(values.max())}


def _parse(rows: list[Row]) -> SudokuTable:
    sources, questions, answers, ratings = zip(*rows, strict=True)
    question = cells("question", questions, CELLS, QUESTION)
    answer = cells("answer", answers, CELLS, ANSWER)
    given = question != BLANK
    check_clues(question, answer, ~given | (answer == question), "123456789.")
    _check_units(answer)
    names = np.array([*map(intern, sources)], object)  # few names, each of them held once
    return SudokuTable(answer, given, names, whole_numbers("rating", ratings))


def _check_units(answer: np.ndarray) -> None:
    seen = np.bitwise_or.reduce((np.uint16(1) << answer.astype(np.uint16))[:, units(3)], axis=2)
    broken = seen != 0b111_111_111
    if broken.any():
        kind, index = divmod(int(broken.argmax()) % 27, 9)
        name = ("row", "column", "box")[kind]
        raise LetgoError(f"answer: {name} {index + 1} does not hold each digit once")


def _rows_of(table: SudokuTable, group: str) -> np.ndarray:
    sources = table.sources.tolist()
    member = {name: any(part in name for part in GROUPS[group]) for name in set(sources)}
    return np.flatnonzero([member[name] for name in sources])


def _draw(rows: np.ndarray, wanted: int, group: str, rng: np.random.Generator) -> np.ndarray:
    if wanted and not len(rows):
        raise LetgoError(f"no rows of the source group {group!r} to draw {wanted} from")
    return rows[in_rounds(len(rows), wanted, rng)]


def _round_to_total(weights: np.ndarray, total: int) -> list[int]:
    """Round by largest remainders: whole numbers nearest to the shares that add up to `total`."""
    exact = weights / weights.sum() * total
    whole = np.floor(exact).astype(int)
    most_short = np.argsort(whole - exact, kind="stable")[: total - whole.sum()]
    whole[most_short] += 1
    return whole.tolist()
