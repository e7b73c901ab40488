"""Our number beside the paper's, cell by cell: pooled over seeds, the difference, and where it is a miss."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from letgo.metrics import Rate, Score, number, pool
from letgo.presets import PRESETS
from letgo.reproduce.paper import STEPS, TABLES, Cell, Number
from letgo.reproduce.store import NOTES, STAND_IN, Report, Store, rows_of

ALIKE = ("task_options", "codec", "path")  # what another recipe must share with the paper's
MEANS = ("codeword_distance", "violation_rate")  # all other scores are rates
LONG, MARGIN = 1_000_000, 0.05
EXCESS, ROUNDING = 0.5, 0.05  # where lower is better: half of the paper's value, and of its last printed digit
OWN_ROWS = 400_000  # Sudoku-Extreme's own test file has 422,786


@dataclass(frozen=True)
class Result:
    """A measured cell; numbers in the paper's unit."""

    cell: Cell
    reports: dict[int, Report]  # by training seed
    score: Score
    std: float | None  # between training seeds
    all_steps: tuple[int, ...]  # optimiser steps of the runs, as far as known

    @property
    def value(self) -> float:
        return number(self.score["value"])

    @property
    def n(self) -> int:
        return int(self.score["n"] or 0)

    @property
    def steps(self) -> int | None:
        """Those of the shortest run."""
        return min(self.all_steps, default=None)

    def of(self, seed: int) -> float:
        """One training seed's value."""
        return self.cell.table.unit * number(self.reports[seed][self.cell.column.score]["value"])


@dataclass(frozen=True)
class Miss:
    """What a cell was compared with, and why it falls short."""

    against: str
    why: str


def result(store: Store, cell: Cell, model: str | None = None) -> Result | None:
    """A cell from its own model, or from another that was measured the same way."""
    reports = store.seeds(cell, model)
    if not reports:
        return None
    pooled, unit = together(list(reports.values()), cell.column.score), cell.table.unit
    score = {key: None if pooled[key] is None else unit * number(pooled[key]) for key in ("low", "high")}
    score["value"] = unit * number(pooled["value"])
    values = [unit * number(report[cell.column.score]["value"]) for report in reports.values()]
    steps = tuple(s for s in map(store.trained_steps, reports.values()) if s is not None)
    std = statistics.stdev(values) if len(values) > 1 else None
    return Result(cell, reports, {**score, "n": pooled["n"]}, std, steps)


def steps_span(steps: Sequence[int]) -> str:
    """`200,000`, or `200,000 to 232,000` where runs differ."""
    ends = dict.fromkeys(f"{end:,}" for end in (min(steps), max(steps))) if steps else ["?"]
    return " to ".join(ends)


def together(reports: list[Report], score: str) -> Score:
    """One score of several training seeds. What they were measured on counts once: reports with one evaluation seed
    share their boards, so they are averaged and have the n of one of them; draws from one file share some."""
    rate, groups = score not in MEANS, {}
    for report in reports:
        groups.setdefault(report["seed"], []).append(report[score])
    pooled = pool([alike[0] if len(alike) == 1 else _mean(alike) for alike in groups.values()], rate)
    return _thinned(pooled, distinct(reports), rate)


def distinct(reports: list[Report]) -> float:
    """The share of instances to be expected that no other evaluation seed drew from the same file before."""
    drawn = {report["seed"]: report for report in reports}.values()
    files = {(rows_of(r), data.get("rows")) for r in drawn if isinstance(data := r.get("data"), dict)}
    rows = next(iter(files))[1] if len(files) == 1 and all("data" in r for r in drawn) else None
    if not rows or len(drawn) < 2:
        return 1.0
    counts = [min(r["count"], rows) for r in drawn]
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
    def average(key: str) -> float | None:
        values = [score[key] for score in scores]
        return None if None in values else statistics.fmean(float(value or 0) for value in values)

    return {**{key: average(key) for key in ("value", "low", "high")}, "n": min(int(s["n"] or 0) for s in scores)}


def same_training(name: str, found: Result, cell: Cell) -> bool:
    """Whether another model's reports belong beside a cell: same boards and representation, same objective."""
    other, own = PRESETS.get(name), PRESETS.get(cell.model)
    if other and own and any(getattr(other, key) != getattr(own, key) for key in ALIKE):
        return False
    facts = {(r.get("task"), r.get("objective")) for r in found.reports.values()}
    wanted = "simple" if cell.objective == "baseline" else "self-correction"
    return facts == {(cell.column.task, wanted)}


def reference(found: Result) -> tuple[Number, str, float]:
    """The figure to reach, what it is, and by how much it may be missed.

    From a million steps on, the paper's own; before, its figures at 200,000 steps where Table 8 has them, less their
    spread between seeds. They were sampled with 500 steps, so a cell with 200 need not exceed the paper's own figure.
    """
    cell = found.cell
    spread, early = cell.paper.std or 0.0, TABLES.get(cell.column.early)
    if cell.table.within_spread:
        return cell.paper, "the paper", spread
    if cell.table.lower_is_better:
        return cell.paper, "the paper", EXCESS * cell.paper.value + spread + ROUNDING
    short = found.steps is None or found.steps < LONG
    if short and early and early.columns[0].score == cell.column.score and cell.rule in early.values[cell.objective]:
        then = Cell(early, early.columns[0], cell.rule, cell.objective).paper
        if then.value / early.unit < cell.paper.value:
            return Number(then.value / early.unit), "Table 8, after 200,000 steps", (then.std or 0.0) / early.unit
        return cell.paper, f"the paper after {STEPS:,} steps", spread
    return cell.paper, "the paper", MARGIN * cell.table.unit


def miss(store: Store, found: Result) -> Miss | None:
    """None where a cell holds: no worse than the figure to reach by more than its margin."""
    if found.n == 0:
        return None  # distinct boards among no valid ones
    target, source, margin = reference(found)
    sign = -1 if found.cell.table.lower_is_better else 1
    limit = target.value - sign * margin
    if sign * (found.value - limit) >= -1e-9:
        return None
    return Miss(f"{source}: {target.value:g}", why(store, found, limit))


def why(store: Store, found: Result, limit: float) -> str:
    """A written note where there is one for that run, else what is known to differ from the paper's."""
    for note in store.reports(NOTES):
        if found.cell.name in note.get("cells", ()) and note["training_steps"] in (None, found.steps):
            return note["text"]
    reasons = []
    nearest = found.score["low" if found.cell.table.lower_is_better else "high"]
    if nearest is not None and (nearest <= limit if found.cell.table.lower_is_better else nearest >= limit):
        reasons.append(f"the interval still reaches the limit, {limit:.3g}")
    theirs = found.cell.column.at or STEPS
    if found.steps is not None and found.steps < theirs:
        reasons.append(f"no tested reason, but trained for {found.steps:,} of the paper's {theirs:,} steps")
    elif found.steps is not None and found.steps > theirs:
        reasons.append(f"after {found.steps:,} steps, the paper's after {theirs:,}")
    if found.cell.column.at and len(found.reports) == 1:
        reasons.append("one training seed")
    fewest = min(int(report["count"]) for report in found.reports.values())
    if fewest < found.cell.column.count:
        reasons.append(f"measured on {fewest} instances of {found.cell.column.count}")
    if found.cell.column.file:
        reasons.append(data_text(next(iter(found.reports.values()))))
    if found.cell.column.caveat:
        reasons.append(found.cell.column.caveat)
    sentence = "; ".join(reasons) or "no known reason yet"
    return sentence[0].upper() + sentence[1:] + "."


def data_text(report: Report) -> str:
    """Which file a report's instances come from."""
    data = report.get("data")
    if not isinstance(data, dict):
        return "measured on a file that the report does not name"
    if rows_of(report) == STAND_IN:
        return "measured on a stand-in, not the paper's file, and somewhat harder (mean rating 25 against about 22)"
    if (data.get("rows") or 0) >= OWN_ROWS:
        return "measured on Sudoku-Extreme's own test file"
    return f"measured on {data.get('file')} (sha256 {str(data.get('sha256'))[:12]}), not the paper's file"
