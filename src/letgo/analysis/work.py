"""Validity by the work that an instance takes: one try of so many steps, and trying again while the model doubts.

Work is passes through the network's layers, of which a looped network makes one each turn, and seconds: of the
process on a CPU, with one thread those of one core whatever else it has to do; by the clock on a GPU.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from letgo.analysis import Report
from letgo.analysis.drawing import caption, panels
from letgo.analysis.study import Study
from letgo.analysis.sweep import curve, line, measured, try_again, within
from letgo.samplers import RULES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PASSES, FEW_PASSES = (20, 40, 100, 200, 400, 1000), (20, 40)  # of one try
BUDGETS, FEW_BUDGETS = (5, 10, 25, 50, 100, 200, 500, 1000), (5, 10, 25, 50)  # calls of an instance, while in doubt
COLOURS, MARKS = ("#5b8c5a", "#1f6f8b", "#b3541e", "#8a6fb0", "#c28f2c"), ("o", "s", "^")
Found = TypeVar("Found")


def run(study: Study) -> Report:
    solver, quick = study.solver, study.wish.quick
    turns, n = int(getattr(solver.network, "turns", 1)), len(study.problem)
    rows: list[Report] = []
    took: list[float] = []
    for passes in FEW_PASSES if quick else PASSES:
        steps = max(1, passes // (turns * RULES[solver.best_rule].calls))
        sampler = solver.sampler(solver.best_rule, steps, study.wish.regime)
        [row], seconds = timed(study, lambda sampler=sampler: measured(study, [sampler]))
        rows.append({**row, "kind": "one try", "mean_calls": float(sampler.calls)})
        took.append(seconds / n)
    if solver.short_try is not None:
        budgets = FEW_BUDGETS if quick else BUDGETS
        tried, seconds = timed(study, lambda: try_again(study, budgets[-1]))
        for row, budget in zip(within(tried, budgets), budgets, strict=True):
            spent = float(tried.calls.double().clamp(max=budget).mean())
            wrong = int((tried.wrong & (tried.calls <= budget)).sum())
            rows.append({**row, "kind": "while in doubt", "mean_calls": spent, "believed_wrong": wrong})
            took.append(spent * seconds / float(tried.calls.sum()))
    return {"turns": turns, "rows": rows, "took": took, "threads": solver.threads}


def timed(study: Study, work: Callable[[], Found]) -> tuple[Found, float]:
    """Return what was found and its seconds, less those of compiling and capturing."""
    engine = study.solver.sample_engine
    clock = time.process_time if study.solver.device.type == "cpu" else time.perf_counter
    started, built = clock(), engine.building
    return work(), clock() - started - (engine.building - built)


def tell(report: Report) -> str:
    """Tell every row, with the passes that it may take and the seconds that it took on average."""
    lines = []
    for row, seconds in zip(report["rows"], report["took"], strict=True):
        spent = f"{row['calls'] * report['turns']:5} passes at most, {seconds:.3g} s on average"
        lines.append(f"{row['kind']:14} {line(row)}  {spent}")
    return "\n".join(lines)


def plot(reports: list[Report]) -> Figure:
    """Draw validity by passes and by seconds: a line for each kind of work and report, marks for rows `beside`."""
    from matplotlib.ticker import LogLocator, NullLocator

    figure, [axes] = panels(1, 2, (3.9, 3.7), sharey=True)
    lines = [(report, kind) for report in reports for kind in dict.fromkeys(row["kind"] for row in report["rows"])]
    colours = dict(zip(((id(report), kind) for report, kind in lines), COLOURS, strict=False))
    for report, kind in lines:
        here = [i for i, row in enumerate(report["rows"]) if row["kind"] == kind]
        rows = [report["rows"][i] for i in here]
        label, colour = f"{report['model']}, {rows[0]['rule']}, {kind}", colours.get((id(report), kind), "#444444")
        curve(axes[0], rows, [row["calls"] * report["turns"] for row in rows], label, colour)
        curve(axes[1], rows, [report["took"][i] for i in here], label, colour)
    for at, (model, rows) in enumerate(beside(reports).items()):
        named = ", ".join(f"{row['name']} {row['validity']['value']:.2f}" for row in rows)
        label, values = (
            f"{model}, test, {rows[0]['calls']:,} calls:\n{named}",
            [row["validity"]["value"] for row in rows],
        )
        axes[0].plot(
            [row["calls"] for row in rows], values, MARKS[at % 3], mfc="none", mec="#444444", ms=5, label=label
        )
    for axis, text in zip(axes, ("passes through the layers, at most", "seconds an instance, on average"), strict=True):
        axis.set_xscale("log")
        axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.xaxis.set_minor_locator(NullLocator())
        axis.xaxis.set_major_formatter("{x:g}")
        axis.set_xlabel(text)
    axes[0].set_ylabel("share of valid boards")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=2, frameon=False)
    caption(figure, [{key: value for key, value in report.items() if key != "steps"} for report in reports])
    return figure


def beside(reports: list[Report]) -> dict[str, list[dict[str, Any]]]:
    """Return rows that were measured elsewhere, by model."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in reports[0].get("beside", []):
        found.setdefault(row["model"], []).append(row)
    return found
