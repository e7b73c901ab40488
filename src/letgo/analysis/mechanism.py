"""What DDPM's anchor does (section 5, App. K.3): both centers from the same state, along trajectories of either rule.

E_both: the Tweedie center and the DDPM center decode to valid boards; E_+: the Tweedie center alone; E_-: DDPM's alone.
The anchor is harmless on E_both, helpful on E_-, harmful on E_+.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from letgo.analysis import Report
from letgo.analysis.drawing import COLOURS, caption, panels
from letgo.analysis.record import Record, bins, by_bin, record
from letgo.analysis.study import Study
from letgo.estimates import rate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RULES = ("tweedie", "ddpm")
EVENTS = {"both": "both centers valid, E_both", "plus": "only Tweedie's, E_+", "minus": "only DDPM's, E_-"}
DECODED = {"proposal": "proposal", "tweedie": "Tweedie center", "ddpm": "DDPM center"}
SMALL = 0.01  # bins in which neither event is more frequent than that decide nothing


def run(study: Study) -> Report:
    tracks = {rule: record(study, rule) for rule in RULES}
    return {"tau": bins(tracks["ddpm"].tau)[0], "along": {rule: _along(track) for rule, track in tracks.items()}}


def _along(track: Record) -> Report:
    """Return curves over progress along one rule's trajectories, and E_+ beside E_- over all steps."""
    _, index = bins(track.tau)
    valid = track.valid
    events = {
        "both": valid["tweedie"] & valid["ddpm"],
        "plus": valid["tweedie"] & ~valid["ddpm"],
        "minus": valid["ddpm"] & ~valid["tweedie"],
    }
    curves = {name: by_bin(happened.double(), index) for name, happened in events.items()}
    telling = [(p, m) for p, m in zip(curves["plus"], curves["minus"], strict=True) if max(p, m) > SMALL]
    total = {name: float(happened.double().mean()) for name, happened in events.items()}
    return {
        "events": curves,
        "share": total,
        "plus_over_minus": None if total["minus"] == 0 else total["plus"] / total["minus"],
        "bins_that_tell": len(telling),
        "bins_with_plus_above": sum(p > m for p, m in telling),
        "valid": {name: by_bin(mask.double(), index) for name, mask in valid.items()},
        "violations": {name: by_bin(cells.double(), index) for name, cells in track.broken.items()},
        "final": rate(int(track.final.sum()), len(track.final)).as_dict(),
    }


def tell(report: Report) -> str:
    lines = []
    for rule, found in report["along"].items():
        ratio = found["plus_over_minus"]
        steps = report["n"] * report["steps"]
        times = f"E_- never happened in {steps:,} steps" if ratio is None else f"{ratio:.1f} times E_-"
        share = found["share"]
        lines.append(
            f"along {rule:8} E_both {share['both']:.3f}  E_+ {share['plus']:.4f}  E_- {share['minus']:.4f}: {times}; "
            f"E_+ above E_- in {found['bins_with_plus_above']} of {found['bins_that_tell']} bins of progress where "
            f"either exceeds {SMALL}; final validity {found['final']['value']:.3f}"
        )
    return "\n".join(lines)


def plot(reports: list[Report]) -> Figure:
    """Draw two rows for each model: along Tweedie trajectories and along DDPM's."""
    figure, axes = panels(2 * len(reports), 3)
    for row, (report, rule) in zip(axes, [(r, rule) for r in reports for rule in RULES], strict=True):
        found = report["along"][rule]
        for name, label in EVENTS.items():
            row[0].plot(report["tau"], found["events"][name], color=COLOURS[name], label=label)
        for axis, curves in ((row[1], found["valid"]), (row[2], found["violations"])):
            for name, label in DECODED.items():
                style = "--" if name == "tweedie" else "-"  # it lies on the proposal's curve
                axis.plot(report["tau"], curves[name], style, color=COLOURS[name], label=label)
        row[0].set_title(f"{report['model']}, along {rule} trajectories", loc="left")
        row[0].set_ylabel("share of boards")
        row[1].set_ylabel("share of valid boards")
        row[2].set_ylabel("cells in broken rules")
        for axis in row[:2]:
            axis.set_ylim(-0.03, 1.03)
    for axis in axes[0]:
        axis.legend(frameon=False)
    for axis in axes[-1]:
        axis.set_xlabel("progress tau = 1 - t (0 noise, 1 data)")
    caption(figure, reports)
    return figure
