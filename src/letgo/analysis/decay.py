"""Validity of EM decay by sigma and tau_start (App. F.3, Table 5): a ridge beside a cliff."""

from __future__ import annotations

from typing import TYPE_CHECKING

from letgo.analysis import Report
from letgo.analysis.drawing import caption, panels
from letgo.analysis.study import Study
from letgo.analysis.sweep import measured, tell
from letgo.tune import grid_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RULE = "em-decay"
TAU_STARTS = (0.5, 0.6, 0.7, 0.8, 0.9)  # wider than what `letgo tune` tries: the cliff is part of the picture

__all__ = ["plot", "run", "tell"]


def run(study: Study) -> Report:
    """Measure EM decay on the grid of `letgo tune`, and beside it Tweedie reprojection, which has neither number."""
    samplers = grid_of(study.solver, RULE, tau_starts=None if study.wish.quick else TAU_STARTS, steps=study.wish.steps)
    beside = measured(study, [study.sampler("tweedie")])
    return {"rows": measured(study, samplers), "tweedie": beside[0]["validity"]}


def plot(reports: list[Report]) -> Figure:
    """Draw a field for each report: darker is more valid, and every field has its number."""
    figure, [axes] = panels(1, len(reports), (3.4, 2.8))
    for axis, report in zip(axes, reports, strict=True):
        broken = {(r["settings"]["sigma"], r["settings"]["tau_start"]) for r in report["rows"] if r.get("diverged")}
        found = {(r["settings"]["sigma"], r["settings"]["tau_start"]): r["validity"]["value"] for r in report["rows"]}
        sigmas, taus = (sorted({key[i] for key in found}) for i in (0, 1))
        values = [[found[sigma, tau] for tau in taus] for sigma in sigmas]
        axis.imshow(values, vmin=0, vmax=1, cmap="Blues", origin="lower", aspect="auto")
        for i, row in enumerate(values):
            for j, value in enumerate(row):
                text = "diverges" if (sigmas[i], taus[j]) in broken else f"{value:.2f}"
                axis.text(j, i, text, ha="center", va="center", color="white" if value > 0.6 else "black")
        axis.set_xticks(range(len(taus)), [f"{tau:g}" for tau in taus])
        axis.set_yticks(range(len(sigmas)), [f"{sigma:g}" for sigma in sigmas])
        axis.grid(visible=False)
        axis.set_xlabel("tau_start")
        axis.set_ylabel("sigma")
        axis.set_title(f"{report['model']}: share valid; Tweedie {report['tweedie']['value']:.2f}", loc="left")
    caption(figure, reports)
    return figure
