"""The paper's numbers as data: table, column, rule and objective give a value with its spread over seeds."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from letgo.presets import preset

RULES = ("ddpm", "euler", "em", "em-decay", "tweedie")
OBJECTIVES = ("baseline", "self-correction")
DECODERS, D3PM = ("ancestral", "confidence", "remask"), "d3pm"  # the rows of Table 1's reference, and its training
CORRUPTED = ("corrupt-20", "corrupt-40")  # Table 8's trainings with random symbols, by their names in `letgo train`
STEPS = 2_000_000  # optimiser steps of the paper's runs (Table 4)
TRIES = 10  # of pass@10, and of our verified solving

QUEENS_BOARDS, QUEENS_TRAINING, QUEENS_SAMPLES = 365_596, 168_000, 500_000  # App. O.2


@dataclass(frozen=True)
class Number:
    """A Number is a printed value; `std` is over three training seeds, None where the paper gives none."""

    value: float
    std: float | None = None


@dataclass(frozen=True)
class Column:
    """A Column says what it measures: a model, a clue regime, and the entry of a report that holds the score."""

    key: str
    title: str
    model: str  # of self-correction, `-baseline` without it; of masked diffusion its own
    regime: str
    score: str = "validity"
    steps: int = 200
    passes: int = 1
    count: int = 2000
    at: int | None = None  # optimiser steps of the checkpoint, where it is not the last
    file: bool = False  # instances of a data file alone count: what we draw ourselves is easier
    also: Sequence[str] = ()  # models of other recipes to measure and show beside the paper's

    @property
    def task(self) -> str:
        return preset(self.model).task


@dataclass(frozen=True)
class Table:
    """A Table is one of the paper's, with rules as rows."""

    name: str
    title: str
    columns: tuple[Column, ...]
    values: dict[str, dict[str, tuple[Number, ...]]] = field(repr=False)
    digits: tuple[int, int]  # decimals of our numbers and of the paper's
    unit: float = 1.0  # what the paper prints for a score of 1: 100 for percentages
    lower_is_better: bool = False
    label: str = ""  # what it is called, where that is not its name

    def cells(self) -> Iterator[Cell]:
        for column in self.columns:
            for objective, rows in self.values.items():
                for rule in rows:
                    yield Cell(self, column, rule, objective)


@dataclass(frozen=True)
class Cell:
    """A Cell is one printed number and what it takes to measure our own."""

    table: Table
    column: Column
    rule: str
    objective: str
    recipe: str = ""  # the model of another recipe in the place of the column's

    @property
    def name(self) -> str:
        return f"{self.table.name}/{self.column.key}/{self.rule}/{self.objective}"

    @property
    def model(self) -> str:
        model = self.recipe or self.column.model
        return model if self.objective in ("self-correction", D3PM) else f"{model}-{self.objective}"

    def with_others(self) -> list[Cell]:
        """Return the cell, and the same of other recipes."""
        return [self, *(replace(self, recipe=name) for name in self.column.also)]

    @property
    def paper(self) -> Number:
        return self.table.values[self.objective][self.rule][self.table.columns.index(self.column)]


def _numbers(text: str) -> tuple[Number, ...]:
    """Read `.31±.02 .83±.01` as the paper prints it."""
    pairs = [word.partition("±") for word in text.split()]
    return tuple(Number(float(value), float(std) if std else None) for value, _, std in pairs)


def _tables() -> dict[str, Table]:
    """Return the tables of paper.toml; one with a score of its own has it in all its columns."""
    read = tomllib.loads(Path(__file__).with_name("paper.toml").read_text(encoding="utf-8"))
    known, tables = {key: Column(key, **column) for key, column in read.pop("columns").items()}, {}
    for name, table in read.items():
        score = {"score": table.pop("score")} if "score" in table else {}
        columns = tuple(replace(known[key], **score) for key in table.pop("columns"))
        rows = {objective: table.pop(objective) for objective in (*OBJECTIVES, *CORRUPTED, D3PM) if objective in table}
        values = {o: {rule: _numbers(text) for rule, text in part.items()} for o, part in rows.items()}
        tables[name] = Table(name, columns=columns, values=values, **{**table, "digits": tuple(table["digits"])})
    return tables


TABLES = _tables()
TABLE1, TABLE1_D3PM, TABLE7 = TABLES["table1"], TABLES["table1-d3pm"], TABLES["table7"]

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
