"""The paper's numbers as data: table, column, rule and objective give a value with its spread over seeds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

RULES = ("ddpm", "euler", "em", "em-decay", "tweedie")
OBJECTIVES = ("baseline", "self-correction")
STEPS = 2_000_000  # optimiser steps of the paper's runs (Table 4)

QUEENS_BOARDS, QUEENS_TRAINING, QUEENS_SAMPLES = 365_596, 168_000, 500_000  # App. O.2


@dataclass(frozen=True)
class Number:
    """A printed value; `std` is over three training seeds, None where the paper gives none."""

    value: float
    std: float | None = None


@dataclass(frozen=True)
class Column:
    """What a column measures: a model, a clue regime, and the entry of a report that holds the score."""

    key: str
    title: str
    model: str  # of self-correction; `-baseline` without it
    regime: str
    score: str = "validity"
    steps: int = 200
    passes: int = 1
    count: int = 2000
    at: int | None = None  # optimiser steps of the checkpoint, where it is not the last
    of: str = ""  # the task, where the model has another name
    file: bool = False  # instances of a data file alone count: what we draw ourselves is easier
    caveat: str = ""  # what sets every run of ours apart from the paper's
    early: str = ""  # the table that has the paper's figure after 200,000 steps

    @property
    def task(self) -> str:
        return self.of or self.model


@dataclass(frozen=True)
class Table:
    """One table of the paper, with rules as rows."""

    name: str
    title: str
    columns: tuple[Column, ...]
    values: dict[str, dict[str, tuple[Number, ...]]] = field(repr=False)
    digits: tuple[int, int] = (1, 1)  # decimals of our numbers and of the paper's
    unit: float = 1.0  # what the paper prints for a score of 1: 100 for percentages
    lower_is_better: bool = False
    within_spread: bool = False  # a miss is below the paper by more than its spread between seeds

    def cells(self) -> Iterator[Cell]:
        for column in self.columns:
            for objective, rows in self.values.items():
                for rule in rows:
                    yield Cell(self, column, rule, objective)


@dataclass(frozen=True)
class Cell:
    """One printed number and what it takes to measure our own."""

    table: Table
    column: Column
    rule: str
    objective: str

    @property
    def name(self) -> str:
        return f"{self.table.name}/{self.column.key}/{self.rule}/{self.objective}"

    @property
    def model(self) -> str:
        return self.column.model if self.objective == "self-correction" else f"{self.column.model}-baseline"

    @property
    def paper(self) -> Number:
        return self.table.values[self.objective][self.rule][self.table.columns.index(self.column)]


def _numbers(text: str) -> tuple[Number, ...]:
    """`.31±.02 .83±.01` as the paper prints it."""
    pairs = [word.partition("±") for word in text.split()]
    return tuple(Number(float(value), float(std) if std else None) for value, _, std in pairs)


def _rows(baseline: dict[str, str], corrected: dict[str, str]) -> dict[str, dict[str, tuple[Number, ...]]]:
    halves = zip(OBJECTIVES, (baseline, corrected), strict=True)
    return {objective: {rule: _numbers(text) for rule, text in rows.items()} for objective, rows in halves}


_SUDOKU = (
    Column("sudoku-21", "Sudoku, 21 clues", "sudoku", "21", early="table8"),
    Column("sudoku-medium", "Sudoku, medium", "sudoku", "medium"),
    Column("sudoku-hard", "Sudoku, hard", "sudoku", "hard"),
)
_EXTREME = Column("extreme-pass1", "Sudoku-Extreme, pass@1", "sudoku-extreme", "test", steps=1000, file=True)
_EXTREME_10 = replace(_EXTREME, key="extreme-pass10", title="Sudoku-Extreme, pass@10", score="pass_at_k", passes=10)
_QUEENS = (
    Column("queens-random", "14-queens, random", "queens", "random"),
    Column("queens-gen", "14-queens, generation", "queens", "gen"),
)
_LATIN = (
    Column("latin-random", "Latin, random", "latin", "random"),
    Column("latin-gen", "Latin, generation", "latin", "gen"),
)
_GRAPHS = (
    Column("connectivity-12", "Connectivity, N = 12", "connectivity", "12"),
    Column("connectivity-18", "Connectivity, N = 18", "connectivity", "18"),
)


def _scored(columns: tuple[Column, ...], score: str) -> tuple[Column, ...]:
    return tuple(replace(column, score=score) for column in columns)


TABLE1 = Table(
    "table1",
    "Success rates",
    (*_SUDOKU, _EXTREME, _EXTREME_10, *_QUEENS, *_LATIN, *_GRAPHS),
    _rows(
        {
            "ddpm": ".31±.02 .83±.01 .38±.00 .05±.00 .19±.01 .53±.00 .06±.01 .71±.03 .87±.03 .80±.01 .67±.01",
            "euler": ".20±.01 .78±.00 .23±.00 .04±.00 .13±.01 .45±.02 .04±.01 .58±.02 .75±.03 .74±.01 .58±.02",
            "em": ".21±.01 .76±.01 .28±.00 .04±.00 .13±.01 .45±.02 .04±.00 .59±.02 .79±.07 .73±.00 .56±.02",
            "em-decay": ".81±.03 .96±.01 .80±.02 .18±.02 .58±.03 .69±.01 .15±.03 .96±.02 .99±.01 .94±.01 .89±.03",
            "tweedie": ".95±.01 .99±.00 .93±.01 .26±.01 .64±.02 .83±.00 .25±.01 .99±.01 1.00±.00 .97±.00 .95±.00",
        },
        {
            "ddpm": ".87±.02 .96±.00 .83±.02 .22±.01 .64±.04 .74±.04 .26±.04 .98±.01 .92±.04 .88±.03 .77±.05",
            "euler": ".79±.02 .94±.00 .67±.01 .22±.02 .61±.03 .68±.02 .14±.04 .94±.02 .64±.07 .84±.03 .68±.04",
            "em": ".82±.02 .93±.01 .73±.03 .21±.02 .61±.03 .66±.02 .22±.04 .97±.02 .78±.07 .81±.08 .68±.04",
            "em-decay": ".98±.00 .99±.00 .98±.00 .53±.04 .90±.02 .81±.03 .47±.04 1.00±.00 1.00±.00 .88±.02 .80±.04",
            "tweedie": ".98±.01 .99±.00 .94±.01 .49±.01 .84±.02 .89±.01 .35±.06 1.00±.00 .98±.02 .99±.01 .99±.01",
        },
    ),
    digits=(3, 2),
)

_MAZE = Column(
    "maze-valid", "valid, pass@1", "maze", "test", passes=10, count=1000, caveat="the mazes are not Table 7's"
)
TABLE7 = Table(
    "table7",
    "Mazes: a way from start to goal (valid), and a shortest one (length)",
    (
        _MAZE,
        replace(_MAZE, key="maze-length", title="length, pass@1", score="length"),
        replace(_MAZE, key="maze-valid-pass10", title="valid, pass@10", score="pass_at_k"),
        replace(_MAZE, key="maze-length-pass10", title="length, pass@10", score="length_at_k"),
    ),
    _rows(
        {"ddpm": ".131 .026 .448 .103", "em-decay": ".315 .108 .658 .359", "tweedie": ".408 .205 .621 .371"},
        {"ddpm": ".071 .032 .436 .239", "em-decay": ".842 .558 .991 .900", "tweedie": ".905 .661 .990 .911"},
    ),
    digits=(3, 3),
)

TABLE8 = Table(
    "table8",
    "Sudoku with 21 clues after 200,000 training steps, 500 sampling steps",
    (Column("sudoku-21-500", "Sudoku, 21 clues, 500 steps", "sudoku", "21", steps=500, count=1000, at=200_000),),
    _rows({"ddpm": "34.47±1.75", "tweedie": "99.23±0.35"}, {"ddpm": "78.20±0.98", "tweedie": "99.07±0.31"}),
    unit=100.0,
    digits=(1, 2),
    within_spread=True,
)

_FLOW = replace(_SUDOKU[0], key="flow-21", model="sudoku-flow", of="sudoku", early="")
TABLE9 = Table(
    "table9",
    "Sudoku with rectified flow",
    (
        _FLOW,
        replace(_FLOW, key="flow-medium", title="Sudoku, medium", regime="medium"),
        replace(_FLOW, key="flow-hard", title="Sudoku, hard", regime="hard"),
    ),
    _rows(
        {"euler": ".155 .759 .121", "em-decay": ".427 .864 .417", "tweedie": ".926 .983 .911"},
        {"euler": ".630 .909 .735", "em-decay": ".926 .960 .963", "tweedie": ".988 .993 .995"},
    ),
    digits=(3, 3),
)

TABLE11 = Table(
    "table11",
    "Other representations of Sudoku, 21 clues",
    (
        replace(_FLOW, key="one-hot", title="One-hot", model="sudoku"),
        replace(_FLOW, key="bits", title="Analog bits", model="sudoku-bits"),
        replace(_FLOW, key="embedding", title="Random embedding", model="sudoku-embedding"),
    ),
    _rows(
        {"ddpm": ".31 .19 .26", "em-decay": ".84 .34 .43", "tweedie": ".94 .89 .89"},
        {"ddpm": ".87 .79 .76", "em-decay": ".98 .87 .90", "tweedie": ".98 .98 .93"},
    ),
    digits=(3, 2),
)

TABLE12 = Table(
    "table12",
    "Distance to one-hot, RMSE x 100",
    _scored((*_SUDOKU, _EXTREME, *_QUEENS, *_LATIN, *_GRAPHS), "codeword_distance"),
    _rows(
        {
            "ddpm": "1.5±0.2 0.5±0.1 1.6±0.1 2.3±1.0 0.5±0.0 0.5±0.0 1.2±0.1 1.0±0.1 1.1±0.1 1.1±0.1",
            "euler": "2.1±0.3 0.6±0.1 2.4±0.1 3.3±0.5 0.5±0.0 0.5±0.0 1.8±0.1 1.6±0.0 1.4±0.1 1.3±0.1",
            "em": "9.7±0.0 8.9±0.0 10.2±0.1 6.3±0.1 8.7±0.0 8.7±0.0 9.9±0.1 10.2±0.1 9.7±0.2 9.5±0.1",
            "em-decay": "0.4±0.0 0.3±0.0 0.7±0.1 1.6±0.5 0.5±0.0 0.5±0.1 0.4±0.0 0.4±0.0 0.6±0.3 0.6±0.3",
            "tweedie": "0.3±0.0 0.3±0.0 0.4±0.0 1.2±0.4 0.4±0.1 0.5±0.0 0.3±0.0 0.3±0.0 0.5±0.2 0.6±0.2",
        },
        {
            "ddpm": "0.9±0.1 0.4±0.1 1.6±0.3 3.0±0.3 1.2±0.1 4.3±0.1 0.7±0.1 1.6±0.3 0.5±0.4 0.6±0.2",
            "euler": "1.8±0.1 0.7±0.1 3.2±0.1 4.1±0.5 1.8±0.2 6.1±0.3 1.4±0.2 5.4±0.3 0.5±0.2 0.6±0.2",
            "em": "9.7±0.1 9.0±0.0 11.4±0.3 5.1±0.4 9.5±0.1 13.8±0.4 9.3±0.1 13.2±1.4 1.1±0.1 9.0±0.1",
            "em-decay": "0.3±0.1 0.3±0.0 0.4±0.1 1.9±0.2 0.7±0.1 2.0±0.4 0.4±0.1 0.5±0.1 0.5±0.3 0.4±0.2",
            "tweedie": "0.3±0.1 0.4±0.1 0.7±0.2 1.1±0.2 0.6±0.0 2.9±0.2 0.4±0.1 0.8±0.3 0.7±0.3 0.7±0.3",
        },
    ),
    lower_is_better=True,
    digits=(2, 1),
)

TABLE13 = Table(
    "table13",
    "Predicted cells in a broken rule, %",
    _scored((*_SUDOKU, _EXTREME, *_QUEENS, *_LATIN), "violation_rate"),
    _rows(
        {
            "ddpm": "4.5±0.1 1.3±0.2 3.7±0.1 8.7±0.4 13.1±0.0 24.6±0.7 2.8±0.6 1.1±0.4",
            "euler": "6.0±0.2 1.8±0.1 5.3±0.0 9.6±0.9 17.6±0.8 29.1±2.8 3.9±0.1 2.1±0.3",
            "em": "5.8±0.0 1.8±0.0 4.6±0.0 10.0±0.3 17.3±1.0 27.4±2.4 3.4±0.3 1.9±0.5",
            "em-decay": "0.9±0.0 0.3±0.0 1.0±0.1 4.7±0.1 7.1±0.3 18.9±3.0 0.3±0.1 0.1±0.1",
            "tweedie": "0.3±0.1 0.1±0.0 0.4±0.0 4.0±0.1 4.7±1.0 13.6±0.3 0.1±0.1 0.0±0.0",
        },
        {
            "ddpm": "0.8±0.1 0.3±0.0 1.3±0.3 6.5±0.3 6.5±0.1 12.5±0.2 0.2±0.1 0.9±0.4",
            "euler": "1.6±0.2 0.5±0.0 3.8±0.3 8.1±0.7 9.6±1.0 17.5±1.9 0.7±0.3 5.2±0.6",
            "em": "1.4±0.2 0.5±0.0 2.5±0.5 7.7±0.3 8.7±1.1 17.1±0.1 0.4±0.2 3.2±1.2",
            "em-decay": "0.1±0.0 0.0±0.0 0.1±0.0 3.5±0.1 3.1±0.2 7.5±0.8 0.0±0.0 0.0±0.0",
            "tweedie": "0.1±0.1 0.0±0.0 0.4±0.1 2.7±0.2 2.5±0.2 9.3±0.5 0.0±0.0 0.3±0.3",
        },
    ),
    unit=100.0,
    lower_is_better=True,
)

TABLE14 = Table(
    "table14",
    "Distinct boards among the valid ones, %",
    _scored((*_SUDOKU, _EXTREME, *_QUEENS, *_LATIN), "uniqueness"),
    _rows(
        {
            "ddpm": "100.0 100.0 100.0 100.0 97.0 100.0 100.0 100.0",
            "euler": "100.0 99.9 100.0 100.0 98.2 100.0 100.0 100.0",
            "em": "100.0 100.0 100.0 100.0 100.0 100.0 100.0 100.0",
            "em-decay": "100.0 99.8 100.0 99.7 100.0 100.0 100.0 100.0",
            "tweedie": "100.0 99.9 100.0 99.9 96.0 99.8 100.0 100.0",
        },
        {
            "ddpm": "100.0 99.9 100.0 99.8 96.5 99.8 100.0 100.0",
            "euler": "100.0 99.9 100.0 100.0 97.0 100.0 100.0 100.0",
            "em": "100.0 99.9 100.0 99.9 100.0 100.0 100.0 100.0",
            "em-decay": "100.0 99.9 100.0 99.7 100.0 100.0 100.0 100.0",
            "tweedie": "100.0 99.9 100.0 99.7 95.7 99.5 100.0 100.0",
        },
    ),
    unit=100.0,
)

TABLES = {table.name: table for table in (TABLE1, TABLE7, TABLE8, TABLE9, TABLE11, TABLE12, TABLE13, TABLE14)}


# EM decay's best setting on validation boards: sigma, tau_start, validity.
TABLE5 = {
    "sudoku-extreme-baseline": (14.0, 0.8, 0.177),
    "sudoku-extreme": (20.0, 0.7, 0.531),
    "sudoku-baseline": (7.0, 0.7, 0.843),
    "sudoku": (7.0, 0.7, 0.982),
}

# Distinct valid boards inside and outside the training set.
TABLE15 = {
    ("em-decay", "queens-baseline"): (33_523, 39_629),
    ("em-decay", "queens"): (75_360, 88_436),
    ("tweedie", "queens-baseline"): (41_274, 48_572),
    ("tweedie", "queens"): (57_362, 66_063),
}

# App. O.3: of 297 solutions of 50 puzzles, both objectives find 139 in 1,000 draws a puzzle with Tweedie.
O3_PUZZLES, O3_DRAWS, O3_CLUES, O3_SOLUTIONS = 50, 1000, (32, 38), (2, 12)
O3_FOUND, O3_TOTAL = 139, 297
