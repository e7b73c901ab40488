"""Validity by two settings of a rule at once: a field for each model."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from letgo.analysis import Report
from letgo.analysis import sweep as sweeps
from letgo.analysis.drawing import caption, panels
from letgo.analysis.study import Study
from letgo.samplers import RULES, USUAL, Sampler
from letgo.tune import grid_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TAU_STARTS = (0.5, 0.6, 0.7, 0.8, 0.9)  # wider than what `letgo tune` tries: the cliff is part of the picture
# The first of each are the usual grid, wherever a task's boards are decided
T_MAXS, FEW_T_MAXS = (1.0, 0.7, 0.5, 0.3, 0.2, 0.1, 0.05), (1.0, 0.5, 0.2, 0.1)
T_MINS, FEW_T_MINS = (0.0, 0.02, 0.05, 0.1, 0.2), (0.0, 0.02, 0.1)


@dataclass(frozen=True)
class Field:
    """The picture has a cell for each pair of settings: darker is more valid, and every one has its number."""

    up: str
    across: str
    samplers: Callable[[Study], list[Sampler]]
    beside: Callable[[Study], list[Sampler]] = lambda study: []  # that has neither number, and is named in the title

    def run(self, study: Study) -> Report:
        rows = sweeps.measured(study, self.samplers(study))
        return {"rows": rows, **{row["rule"]: row["validity"] for row in sweeps.measured(study, self.beside(study))}}

    def plot(self, reports: list[Report]) -> Figure:
        figure, [axes] = panels(1, len(reports), (3.4, 2.8))
        for axis, report in zip(axes, reports, strict=True):
            self._draw(axis, report)
        caption(figure, reports)
        return figure

    def _draw(self, axis: Axes, report: Report) -> None:
        rows = {(self._of(row, self.up), self._of(row, self.across)): row for row in report["rows"]}
        ups, columns = (sorted({pair[i] for pair in rows}) for i in (0, 1))
        shares = [[rows[u, c]["validity"]["value"] if (u, c) in rows else math.nan for c in columns] for u in ups]
        axis.imshow(shares, vmin=0, vmax=1, cmap="Blues", origin="lower", aspect="auto")
        for (up, column), row in rows.items():
            value = row["validity"]["value"]
            text, color = "diverges" if row.get("diverged") else f"{value:.2f}", "white" if value > 0.6 else "black"
            axis.text(columns.index(column), ups.index(up), text, ha="center", va="center", color=color)
        axis.set_xticks(range(len(columns)), [f"{column:g}" for column in columns])
        axis.set_yticks(range(len(ups)), [f"{up:g}" for up in ups])
        axis.grid(visible=False)
        axis.set_xlabel(self.across)
        axis.set_ylabel(self.up)
        others = [f"{rule.capitalize()} {report[rule]['value']:.2f}" for rule in RULES if rule in report]
        axis.set_title("; ".join([f"{report['model']}: share valid", *others]), loc="left")

    def _of(self, row: Report, name: str) -> float:
        return row["settings"].get(name, USUAL[name])

    def tell(self, report: Report) -> str:
        return sweeps.tell(report)


def by_sigma(study: Study) -> list[Sampler]:
    """A ridge beside a cliff: EM decay on the grid of `letgo tune` and beyond (App. F.3, Table 5)."""
    taus = None if study.wish.quick else TAU_STARTS
    return grid_of(study.solver, "em-decay", tau_starts=taus, steps=study.wish.steps)


def by_times(study: Study) -> list[Sampler]:
    """Noise the proposals of a rule that lets go of the state at other times (docs/times.md)."""
    best = study.solver.best_rule
    rule = best if RULES[best].forgets else "tweedie"
    highs, lows = (FEW_T_MAXS, FEW_T_MINS) if study.wish.quick else (T_MAXS, T_MINS)
    return grid_of(study.solver, rule, steps=study.wish.steps, t_maxs=highs, t_mins=lows)


decay = Field("sigma", "tau_start", by_sigma, beside=lambda study: [study.sampler("tweedie")])
times = Field("t_max", "t_min", by_times)
