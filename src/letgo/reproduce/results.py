"""A measured cell beside the paper's: pooled over training seeds, the difference, and where it is a miss."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from letgo.estimates import Known, Rate, Score, number
from letgo.metrics import pool
from letgo.reproduce.paper import STEPS, TABLE1, TABLES, Cell
from letgo.reproduce.store import Report, Store, data_digest

RULE_NAMES = {"ddpm": "DDPM", "euler": "Euler", "em": "EM", "em-decay": "EM decay", "tweedie": "Tweedie"}
MEANS = ("codeword_distance", "violation_rate")  # all other scores are rates
LONG, MARGIN = 1_000_000, 0.05
EXCESS, ROUNDING = 0.5, 0.05  # where lower is better: half of the paper's value, and of its last printed digit
OWN_ROWS = 400_000  # Sudoku-Extreme's own test file has 422,786
STAND_INS = (  # the sha256 of what stands in for it: test.csv.gz, and the same rows as test.npz
    "88c3594236b6f0206ec4407842df56b99636e062a8c5d16c2cc7a95216d23136",
    "8d04e7734c96a489f8e885e6e9639fc149bdf15dccf451269102e352631033ff",
)


@dataclass(frozen=True)
class Result(Known):
    """A measured cell; numbers in the paper's unit."""

    cell: Cell
    reports: dict[int, Report]  # by training seed
    values: dict[int, float]  # by training seed

    @property
    def std(self) -> float | None:
        """The spread between training seeds."""
        return statistics.stdev(self.values.values()) if len(self.values) > 1 else None

    @property
    def all_steps(self) -> list[int]:
        """Optimiser steps of the runs."""
        return [report.get("training_steps") or 0 for report in self.reports.values()]


def result(store: Store, cell: Cell) -> Result | None:
    reports, unit = store.seeds(cell), cell.table.unit
    if not reports:
        return None
    pooled = together(list(reports.values()), cell.column.score)
    score = {key: None if pooled[key] is None else unit * number(pooled[key]) for key in ("low", "high")}
    score |= {"value": unit * number(pooled["value"]), "n": pooled["n"]}
    return Result(score, cell, reports, {s: unit * number(r[cell.column.score]["value"]) for s, r in reports.items()})


def together(reports: list[Report], score: str) -> Score:
    """One score of several training seeds. What they were measured on counts once: reports with one evaluation seed
    share their boards, so they are averaged and have the n of one of them; draws from one file share some."""
    groups: dict[int, list[Score]] = {}
    for report in reports:
        groups.setdefault(report["seed"], []).append(report[score])
    rate = score not in MEANS
    return _thinned(pool([_mean(group) for group in groups.values()], rate), _distinct(reports), rate)


def _distinct(reports: list[Report]) -> float:
    """The share of instances to be expected that no other evaluation seed drew from the same file before."""
    drawn = {report["seed"]: report for report in reports}.values()
    files = {(sha, report["data"].get("rows")) for report in drawn if (sha := data_digest(report))}
    rows = next(iter(files))[1] if len(files) == 1 and all(map(data_digest, drawn)) else None
    if not rows or len(drawn) < 2:
        return 1.0
    counts = [min(report["count"], rows) for report in drawn]
    return rows * (1 - math.prod(1 - count / rows for count in counts)) / sum(counts)


def _thinned(score: Score, share: float, rate: bool) -> Score:
    """The same value from fewer instances."""
    value, low, high, n = (score[key] for key in ("value", "low", "high", "n"))
    if share == 1.0 or value is None or low is None or high is None or not n:
        return score
    fewer = max(1, round(share * n))
    if rate:
        low, high = Rate(round(value * fewer), fewer).interval95
    else:
        low, high = (value + (end - value) / math.sqrt(share) for end in (low, high))
    return {**score, "low": low, "high": high, "n": fewer}


def _mean(scores: list[Score]) -> Score:
    parts = {key: [score[key] for score in scores] for key in ("value", "low", "high")}
    means = {key: None if None in part else statistics.fmean(map(number, part)) for key, part in parts.items()}
    return {**means, "n": min(int(score["n"] or 0) for score in scores)}


def reference(found: Result) -> tuple[float, str, float]:
    """The figure to reach, what it is, and by how much it may be missed.

    From a million steps on, the paper's own; before, its figures at 200,000 steps where Table 8 has them, less their
    spread between seeds. They were sampled with 500 steps, so a cell with 200 need not exceed the paper's own figure.
    """
    cell, paper, spread = found.cell, found.cell.paper.value, found.cell.paper.std or 0.0
    if cell.column.at:  # the paper's figure is of that step too
        return paper, "the paper", spread
    if cell.table.lower_is_better:
        return paper, "the paper", EXCESS * paper + spread + ROUNDING
    like = (cell.model, cell.column.regime, cell.rule)
    for then in TABLES["table8"].cells() if cell.table is TABLE1 and min(found.all_steps) < LONG else ():
        if (then.model, then.column.regime, then.rule) == like:
            early, early_spread = (number / then.table.unit for number in (then.paper.value, then.paper.std or 0.0))
            if early < paper:
                return early, "Table 8, after 200,000 steps", early_spread
            return paper, f"the paper after {STEPS:,} steps", spread
    return paper, "the paper", MARGIN * cell.table.unit


def miss(store: Store, found: Result) -> tuple[str, str] | None:
    """What a cell was compared with, and why it falls short of that by more than the margin; None where it holds."""
    if found.n == 0:
        return None  # distinct boards among no valid ones
    target, source, margin = reference(found)
    sign = -1 if found.cell.table.lower_is_better else 1
    limit = target - sign * margin
    if sign * (found.value - limit) >= -1e-9:
        return None
    return f"{source}: {target:g}", _why(store, found, limit, sign)


def _why(store: Store, found: Result, limit: float, sign: int) -> str:
    """A written note where there is one for that run, else what is known to differ from the paper's."""
    steps, column = min(found.all_steps), found.cell.column
    for note in store.reports("notes"):
        if found.cell.name in note.get("cells", ()) and note["training_steps"] in (None, steps):
            return note["text"]
    reasons = [f"No tested reason; trained for {steps:,} steps, the paper's for {column.at or STEPS:,}"]
    nearest = found.score["high" if sign > 0 else "low"]
    if nearest is not None and sign * (nearest - limit) >= 0:
        reasons.append(f"the interval still reaches the limit, {limit:.3g}")
    fewest = min(int(report["count"]) for report in found.reports.values())
    if fewest < column.count:
        reasons.append(f"measured on {fewest} instances of {column.count}")
    return f"{'; '.join(reasons)}."


def data_text(report: Report) -> str:
    """Which file a report's instances come from."""
    data = report["data"]
    if data_digest(report) in STAND_INS:
        return "measured on a stand-in, not the paper's file, and somewhat harder (mean rating 25 against about 22)"
    if (data.get("rows") or 0) >= OWN_ROWS:
        return "measured on Sudoku-Extreme's own test file"
    return f"measured on {data.get('file')} (sha256 {str(data.get('sha256'))[:12]}), not the paper's file"


class Results:
    """What sections are made of. It remembers the reports that it gave away: their commands repeat a section."""

    def __init__(self, store: Store, quick: bool = False):
        self.store, self.quick = store, quick
        self.used: dict[int, Report] = {}
        self._cells: dict[tuple[str, str], Result | None] = {}

    def use(self, report: Report) -> Report:
        self.used[id(report)] = report
        return report

    def result(self, cell: Cell) -> Result | None:
        key = (cell.name, cell.model)
        if key not in self._cells:
            self._cells[key] = result(self.store, cell)
        found = self._cells[key]
        for report in found.reports.values() if found else ():
            self.use(report)
        return found

    def miss(self, found: Result | None) -> tuple[str, str] | None:
        """Never in a quick run, for 16 boards cannot miss, nor of another recipe."""
        return None if found is None or self.quick or found.cell.recipe else miss(self.store, found)

    def notes(self, about: str) -> list[str]:
        """What was written about an experiment."""
        return [note["text"] for note in self.store.reports("notes") if note.get("about") == about]


def share(score: dict[str, Any], digits: int = 3) -> str:
    """`0.953 [0.943, 0.961]`."""
    if score.get("low") is None:
        return f"{score['value']:.{digits}f}"
    return f"{score['value']:.{digits}f} [{score['low']:.{digits}f}, {score['high']:.{digits}f}]"


def as_table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in lines)


def signed(difference: float, digits: int) -> str:
    return f"{round(difference, digits) + 0.0:+.{digits}f}"  # + 0.0: no -0.0


def steps_span(steps: Sequence[int]) -> str:
    """`200,000`, or `200,000 to 232,000` where runs differ."""
    ends = dict.fromkeys(f"{end:,}" for end in (min(steps), max(steps)))
    return " to ".join(ends)
