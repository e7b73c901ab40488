"""A measured cell beside the paper's: pooled over training seeds, the difference, and where it is a miss."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from letgo.estimates import Estimate, Score, number, rate
from letgo.metrics import pool
from letgo.reproduce.paper import STEPS, TABLE1, TABLES, Cell
from letgo.reproduce.store import Report, Store, data_digest

RULE_NAMES = {"ddpm": "DDPM", "euler": "Euler", "em": "EM", "em-decay": "EM decay", "tweedie": "Tweedie"}
RULE_NAMES |= {"ancestral": "Ancestral", "confidence": "Confidence", "remask": "Remask"}
MEANS = ("codeword_distance", "violation_rate")  # all other scores are rates
LONG, MARGIN = 1_000_000, 0.05
EXCESS, ROUNDING = 0.5, 0.05  # where lower is better: half of the paper's value, and of its last printed digit


@dataclass(frozen=True)
class Result(Estimate):
    """A Result is a measured cell; numbers in the paper's unit."""

    cell: Cell
    reports: dict[int, Report]  # by training seed
    values: dict[int, float]  # by training seed

    @property
    def std(self) -> float | None:
        """Return the spread between training seeds."""
        return statistics.stdev(self.values.values()) if len(self.values) > 1 else None

    @property
    def apart(self) -> int:
        """Return -1 or 1 where it lies below or above the paper by more than two standard errors of the mean over
        seeds, ours and the paper's together, and half of the paper's last digit; else 0."""
        ours, theirs = (
            (std or 0.0) / math.sqrt(n) for std, n in ((self.std, len(self.values)), (self.cell.paper.std, 3))
        )
        difference = self.value - self.cell.paper.value
        margin = 2 * math.hypot(ours, theirs) + 0.5 * 10 ** -self.cell.table.digits[1]
        return 0 if abs(difference) <= margin else 1 if difference > 0 else -1

    @property
    def all_steps(self) -> list[int]:
        """Return the optimiser steps of the runs."""
        return [report.get("training_steps") or 0 for report in self.reports.values()]


def together(reports: list[Report], score: str) -> Score:
    """Pool one score of several training seeds. What they were measured on counts once: reports with one evaluation
    seed share their boards, so they are averaged and have the n of one of them; draws from one file share some."""
    groups: dict[int, list[Score]] = {}
    for report in reports:
        groups.setdefault(report["seed"], []).append(report[score])
    pooled = pool([_mean(group) for group in groups.values()], is_rate=score not in MEANS)
    value, low, high, n = (pooled[key] for key in ("value", "low", "high", "n"))
    share = _distinct(reports)
    if share == 1.0 or value is None or low is None or high is None or not n:
        return pooled
    fewer = max(1, round(share * n))
    if score in MEANS:
        low, high = (value + (end - value) / math.sqrt(share) for end in (low, high))
    else:
        low, high = rate(round(value * fewer), fewer).interval95
    return {**pooled, "low": low, "high": high, "n": fewer}


def _distinct(reports: list[Report]) -> float:
    """Return the share of instances to be expected that no other evaluation seed drew from the same file before."""
    drawn = {report["seed"]: report for report in reports}.values()
    files = {(sha, report["data"].get("rows")) for report in drawn if (sha := data_digest(report))}
    rows = next(iter(files))[1] if len(files) == 1 and all(map(data_digest, drawn)) else None
    if not rows or len(drawn) < 2:
        return 1.0
    counts = [min(report["count"], rows) for report in drawn]
    return rows * (1 - math.prod(1 - count / rows for count in counts)) / sum(counts)


def _mean(scores: list[Score]) -> Score:
    parts = {key: [score[key] for score in scores] for key in ("value", "low", "high")}
    means = {key: None if None in part else statistics.fmean(map(number, part)) for key, part in parts.items()}
    return {**means, "n": min(int(score["n"] or 0) for score in scores)}


def reference(found: Result) -> tuple[float, str, float]:
    """Return the figure to reach, what it is, and by how much it may be missed.

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


class Results:
    """Sections are made of them. They remember the reports that they gave away: their commands repeat a section."""

    def __init__(self, store: Store, quick: bool = False):
        self.store, self.quick = store, quick
        self.used: dict[int, Report] = {}

    def use(self, report: Report) -> Report:
        self.used[id(report)] = report
        return report

    def result(self, cell: Cell) -> Result | None:
        """Return a cell in the paper's unit, pooled over the training seeds that have it."""
        reports, unit, score = self.store.seeds(cell), cell.table.unit, cell.column.score
        if not reports:
            return None
        pooled = together([self.use(report) for report in reports.values()], score)
        value, *ends = (unit * number(pooled[key]) for key in ("value", "low", "high"))
        values = {seed: unit * number(report[score]["value"]) for seed, report in reports.items()}
        return Result(value, (ends[0], ends[1]), int(pooled["n"] or 0), cell, reports, values)

    def miss(self, found: Result | None) -> tuple[str, str] | None:
        """Say what a cell was compared with, and why it falls short of that by more than the margin; None where it
        holds.

        A quick run misses nothing, for 16 boards cannot, nor does another recipe.
        """
        if found is None or self.quick or found.cell.recipe or found.n == 0:  # no distinct boards among no valid ones
            return None
        target, source, margin = reference(found)
        sign = -1 if found.cell.table.lower_is_better else 1
        if sign * (found.value - target) + margin >= -1e-9:
            return None
        steps = min(found.all_steps)
        notes = [note for note in self.store.reports("notes") if found.cell.name in note.get("cells", ())]
        written = [note["text"] for note in notes if note["training_steps"] in (None, steps)]  # of that run
        unknown = f"No tested reason; trained for {steps:,} steps, the paper's for {found.cell.column.at or STEPS:,}."
        return f"{source}: {target:g}", written[0] if written else unknown

    def notes(self, about: str) -> list[str]:
        """Return what was written about an experiment."""
        return [note["text"] for note in self.store.reports("notes") if note.get("about") == about]


def share(score: Score, digits: int = 3) -> str:
    """Write a rate with its interval: `0.953 [0.943, 0.961]`."""
    if score.get("low") is None:
        return f"{score['value']:.{digits}f}"
    return f"{score['value']:.{digits}f} [{score['low']:.{digits}f}, {score['high']:.{digits}f}]"


def as_table(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows])


def signed(difference: float, digits: int) -> str:
    return f"{round(difference, digits) + 0.0:+.{digits}f}"  # + 0.0: no -0.0


def steps_span(steps: Sequence[int]) -> str:
    """Write `200,000`, or `200,000 to 232,000` where runs differ."""
    return " to ".join(dict.fromkeys(f"{end:,}" for end in (min(steps), max(steps))))
