"""A run's kept checkpoints, raw and averaged: which of them samples well, and whether the gain tells it beforehand.

Section 4 picks a checkpoint by Euler. What is picked so is compared with what Tweedie reprojection makes of it, and
with the gain of a push of the blurred proposal (`gain`), which needs no sampling. Not in the paper.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from letgo.analysis import Report, gain
from letgo.analysis.drawing import COLOURS, caption, panels
from letgo.analysis.study import Study
from letgo.analysis.sweep import curve, line, measured
from letgo.runs import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RULES = ("euler", "tweedie")
KINDS = {"ema": "simple", "raw": "self-correction"}  # and their colours
NAMES = {"ema": "averages", "raw": "raw weights"}


def run(study: Study) -> Report:
    """Measure validity under both rules and the gain, of everything that a run keeps; else of the model alone."""
    whole, rows = study.solver, []
    run = None if whole.folder is None else Run.load(whole.folder)
    known = sorted(run.candidates()) if run is not None else []
    for step, kind in known or [(int(whole.card.get("steps", whole.config.steps)), "ema")]:
        network = run.network(step, kind) if run is not None and known else whole.network
        study.model = whole.with_network(network)
        found = {row["rule"]: row for row in measured(study, [study.sampler(rule) for rule in RULES])}
        rows.append({"training_steps": step, "weights": kind, "rules": found, "gain": gain.measured(study)})
    study.model = whole
    return {"rows": rows}


def picked(rows: list[Report]) -> Report:
    """Return the weights that Euler finds best."""
    return max(rows, key=lambda row: row["rules"]["euler"]["validity"]["value"])


def tell(report: Report) -> str:
    lines = []
    for row in report["rows"]:
        mark = "  <- picked by Euler" if row is picked(report["rows"]) else ""
        since = row["gain"]["crossing"]
        grown = "a push never grows" if since is None else f"a push grows from t = {since:.4f} on"
        lines.append(f"step {row['training_steps']}, {NAMES[row['weights']]}: {grown}{mark}")
        lines += [f"  {line(row['rules'][rule])}" for rule in RULES]
    return "\n".join(lines)


def plot(reports: list[Report]) -> Figure:
    """Draw for each run Tweedie's validity by training step, and by the time from which on a push grows."""
    figure, axes = panels(len(reports), 2, (3.4, 2.5), sharey=True)
    for (by_step, by_gain), report in zip(axes, reports, strict=True):
        for kind, colour in KINDS.items():
            rows = [row for row in report["rows"] if row["weights"] == kind]
            if not rows:
                continue
            found = [row["rules"]["tweedie"] for row in rows]
            curve(by_step, found, [row["training_steps"] for row in rows], NAMES[kind], COLOURS[colour])
            at = [row["gain"]["crossing"] or 0.0 for row in rows]
            by_gain.plot(at, [one["validity"]["value"] for one in found], "o", color=COLOURS[colour], ms=4)
        by_step.set_title(f"{report['model']}, regime {report['regime']}", loc="left")
        by_step.set_ylabel("valid boards, Tweedie")
        by_step.set_xlabel("training steps")
        by_step.legend(frameon=False)
        by_gain.set_xlabel("time t from which on a push grows")
    caption(figure, reports)
    return figure
