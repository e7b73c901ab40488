"""Validity of a run's kept checkpoints (Figs. 9 and 10): how far an objective has come after so many steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torch import nn

from letgo.analysis import Report
from letgo.analysis.drawing import caption, panels
from letgo.analysis.study import Study
from letgo.analysis.sweep import LINES, curve, measured, tell
from letgo.runs import Run
from letgo.solver import Solver

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RULES = ("ddpm", "tweedie")

__all__ = ["plot", "run", "tell"]


def run(study: Study) -> Report:
    """Measure the average of each kept checkpoint, as `letgo train` leaves it beside the raw weights."""
    whole, rows = study.solver, []
    for step, network in checkpoints(whole):
        study.model = whole.with_network(network)
        rows += [{**row, "training_steps": step} for row in measured(study, [study.sampler(rule) for rule in RULES])]
    study.model = whole
    return {"rows": rows, "simple_weight": whole.config.simple_weight, "options": whole.config.objective_options}


def checkpoints(solver: Solver) -> Iterator[tuple[int, nn.Module]]:
    """Yield steps and networks in order; of a model without kept checkpoints the model itself is the only point."""
    run = None if solver.folder is None else Run.load(solver.folder)
    steps = sorted({step for step, kind in run.candidates() if kind == "ema"}) if run else []
    if run and steps:
        yield from ((step, run.network(step, "ema")) for step in steps)
    else:
        yield int(solver.card.get("steps", solver.config.steps)), solver.network


def plot(reports: list[Report]) -> Figure:
    """Draw a panel for each rule, a line for each run."""
    figure, [axes] = panels(1, len(RULES), (3.4, 2.8), sharey=True)
    colours = [*dict.fromkeys(LINES.values())]
    for axis, rule in zip(axes, RULES, strict=True):
        for i, report in enumerate(reports):
            rows = [row for row in report["rows"] if row["rule"] == rule]
            x = [row["training_steps"] for row in rows]
            curve(axis, rows, x, report["model"], colours[i % len(colours)], i >= len(colours))
        axis.set_title(rule, loc="left")
        axis.set_xlabel("training steps")
    axes[0].set_ylabel("share of valid boards")
    axes[-1].legend(frameon=False)
    caption(figure, reports)
    return figure
