"""Validity under Tweedie reprojection by how many steps ahead the network is told the time (docs/knife-edge.md)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from letgo.analysis import Report
from letgo.analysis.study import Study
from letgo.analysis.sweep import measured, plot_lines, tell

if TYPE_CHECKING:
    from matplotlib.figure import Figure

AHEAD, QUICK = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0), (0.0, 1.0, 2.0, 4.0)

__all__ = ["plot", "run", "tell"]


def run(study: Study) -> Report:
    sampler = study.sampler("tweedie")
    return {"rows": measured(study, [replace(sampler, ahead=c) for c in (QUICK if study.wish.quick else AHEAD)])}


def plot(reports: list[Report]) -> Figure:
    return plot_lines(reports, "ahead", "steps ahead, c of t - c h")
