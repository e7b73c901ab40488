"""Changes of mind: how often the decoded proposal of a cell changes, when it last did, and what that foretells.

Commitment times are Table 16's. Failures are split as App. P splits them: no proposal was ever valid, or a valid one
came and went. Which of these numbers tells a failed run from a valid one is not in the paper.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from letgo.analysis import Report
from letgo.analysis.drawing import COLOURS, caption, panels
from letgo.analysis.record import Record, bins, by_bin, record
from letgo.analysis.study import Study
from letgo.estimates import mean, rate
from letgo.metrics import auroc

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RULES = ("ddpm", "tweedie")
HALF = 0.5  # the progress that two of the predictors speak of
PREDICTORS = {
    "violations_at_half": "violations at tau .5",
    "changes_after_half": "changes after tau .5",
    "last_change": "last change, mean over cells",
    "commitment": "commitment time",
}
STYLES = {"valid": "-", "invalid": "--"}


def run(study: Study) -> Report:
    tracks = {rule: record(study, rule, centers=False) for rule in RULES}
    return {"tau": bins(tracks["ddpm"].tau)[0], "rules": {rule: of_rule(track) for rule, track in tracks.items()}}


def predictors(track: Record) -> dict[str, Tensor]:
    """Return one number per board; the higher, the likelier a failure."""
    half = int((track.tau < HALF - 1e-6).sum())  # the first step at tau .5 or later
    time_of = track.tau.double()[track.last_change] * track.open
    return {
        "violations_at_half": track.broken["proposal"][half].double(),
        "changes_after_half": track.changes[half:].sum(0).double(),
        "last_change": time_of.sum(1) / track.open.sum(1).clamp(min=1),
        "commitment": track.commitment.double(),
    }


def of_rule(track: Record) -> Report:
    """Return all that is said of one rule's runs, those that end valid and those that do not apart."""
    _, index = bins(track.tau)
    groups = {"valid": track.final, "invalid": ~track.final}
    known = {name: rows for name, rows in groups.items() if rows.any()}
    settled = (track.commitment[None] <= track.tau[:, None]).double()
    failed = ~track.final
    foretell = predictors(track)
    return {
        "validity": rate(int(track.final.sum()), len(track.final)).as_dict(),
        "changes": {name: mean(track.changes[:, rows].sum(0).double()).as_dict() for name, rows in known.items()},
        "changed_cells": {name: by_bin(track.changes[:, rows].double(), index) for name, rows in known.items()},
        "settled": {name: by_bin(settled[:, rows], index) for name, rows in known.items()},
        "last_change": {name: mean(foretell["last_change"][rows]).as_dict() for name, rows in known.items()},
        "commitment": {name: mean(track.commitment[rows], most=1.0).as_dict() for name, rows in known.items()},
        "failures": {
            "never_valid": rate(int((failed & ~track.found).sum()), int(failed.sum())).as_dict(),
            "valid_once": rate(int((failed & track.found).sum()), int(failed.sum())).as_dict(),
        },
        "auroc": {name: auroc(values, failed).as_dict() for name, values in foretell.items()},
    }


def tell(report: Report) -> str:
    lines = []
    for rule, found in report["rules"].items():
        groups = [
            f"{name} n = {c['n']}: {found['changes'][name]['value']:.0f} changes, committed at {c['value']:.2f}"
            for name, c in found["commitment"].items()
        ]
        lines.append(f"{rule}: validity {found['validity']['value']:.3f}; {'; '.join(groups)}")
        never, once = found["failures"]["never_valid"], found["failures"]["valid_once"]
        if never["n"]:
            lines.append(
                f"  of {never['n']} failures {never['value']:.2f} never proposed a valid board, "
                f"{once['value']:.2f} did and lost it"
            )
        known = {label: found["auroc"][name] for name, label in PREDICTORS.items() if found["auroc"][name]["n"]}
        if known:
            lines.append("  failures foretold, AUROC: " + ", ".join(f"{k} {v['value']:.2f}" for k, v in known.items()))
    return "\n".join(lines)


def plot(reports: list[Report]) -> Figure:
    """Draw a row for each model: changing cells, boards that have settled, and how well failures are foretold."""
    figure, axes = panels(len(reports), 3)
    for row, report in zip(axes, reports, strict=True):
        for place, (rule, found) in enumerate(report["rules"].items()):
            for axis, key in ((row[0], "changed_cells"), (row[1], "settled")):
                for name, curve in found[key].items():
                    label = f"{rule}, ends {name}, n = {found['commitment'][name]['n']}"
                    axis.plot(report["tau"], curve, STYLES[name], color=COLOURS[rule], label=label)
            known = [found["auroc"][name] for name in PREDICTORS if found["auroc"][name]["n"]]
            at = torch.arange(len(known)) + 0.18 * (2 * place - 1)
            for y, one in zip(at.tolist(), known, strict=True):
                row[2].plot([one["low"], one["high"]], [y, y], color=COLOURS[rule], lw=1)
            row[2].plot([one["value"] for one in known], at.tolist(), "o", color=COLOURS[rule], ms=4)
        row[0].set_title(f"{report['model']}, regime {report['regime']}", loc="left")
        row[0].set_ylabel("open cells changing per step")
        row[1].set_ylabel("share of settled boards")
        row[1].set_ylim(-0.03, 1.03)
        row[2].set_yticks(range(len(PREDICTORS)), list(PREDICTORS.values()))
        row[2].set_xlim(-0.03, 1.03)
        row[2].axvline(0.5, color="#999999", lw=0.6)
        row[2].set_xlabel("AUROC of failure, 95% interval")
        row[2].set_ylim(-0.6, len(PREDICTORS) - 0.4)
        row[0].set_ylim(0, 1.7 * row[0].get_ylim()[1])
        row[0].legend(frameon=False, loc="upper right", borderaxespad=0)
        for axis in row[:2]:
            axis.set_xlabel("progress tau = 1 - t (0 noise, 1 data)")
    caption(figure, reports)
    return figure
