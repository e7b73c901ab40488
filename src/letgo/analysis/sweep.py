"""Validity of many samplers on the same instances: what the analyses of settings, steps and calls share."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from letgo.analysis import Report
from letgo.analysis.drawing import caption, panels
from letgo.analysis.study import Study
from letgo.estimates import rate
from letgo.evaluation import doubt_of, until_sure
from letgo.samplers import RULES, USUAL, Sampler, fitting
from letgo.sampling import Diverged

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST = 5000  # steps of one run
FEW = 4  # lines whose names have room in a panel
RUNS = 3  # the instances in equal parts, other clues in each: Table 10's standard errors are over such runs
LINES = {
    "ddpm": "#b3541e", "tweedie": "#1f6f8b", "resample": "#5b8c5a", "euler": "#8a6fb0", "heun": "#c28f2c",
    "ddim": "#777777", "em": "#a05080", "em-decay": "#3b3b3b", "ancestral": "#b3541e", "confidence": "#1f6f8b",
    "remask": "#5b8c5a",
}  # fmt: skip


def measured(study: Study, samplers: list[Sampler]) -> list[Report]:
    """Return one row for each sampler; the noise is keyed as `letgo evaluate` keys it."""
    rows, solver, problem = [], study.solver, study.problem
    for done, sampler in enumerate(samplers, 1):
        sampler.check(solver.path, solver.codec)
        show = study.progress(f"{named(sampler)} ({done} of {len(samplers)}): sampled")
        try:
            states = solver.sample(problem, sampler, study.seed, batch=study.wish.batch, progress=show)
        except Diverged:  # of a sweep a setting like any other, of which no board is used
            rows.append({**row_of(sampler, torch.zeros(len(problem), dtype=torch.bool)), "diverged": True})
            continue
        rows.append(row_of(sampler, solver.task.validate(solver.read(states, problem), problem)))
    return rows


def row_of(sampler: Sampler, valid: torch.Tensor) -> Report:
    """Return what was valid of one sampler's boards, with a standard error over RUNS parts of them."""
    parts = [float(part.float().mean()) for part in valid.tensor_split(RUNS) if len(part)]
    error = statistics.stdev(parts) / math.sqrt(len(parts)) if len(parts) == RUNS else None
    return {
        "rule": sampler.rule,
        "steps": sampler.steps,
        "calls": sampler.calls,
        "settings": sampler.settings,
        "validity": rate(int(valid.sum()), len(valid)).as_dict(),
        "standard_error": error,
    }


class Tried(NamedTuple):
    """It is what trying again while in doubt ended in: for each instance, whether its board was believed and right."""

    sampler: Sampler
    settings: dict[str, float]
    right: torch.Tensor
    wrong: torch.Tensor  # believed, and wrong
    calls: torch.Tensor


def try_again(study: Study, most: int) -> Tried:
    """Try each instance again while the model doubts its board, with about so many calls at most."""
    solver = study.solver
    sampler = solver.sampler(solver.best_rule, solver.short_try, study.wish.regime)
    doubt, tries = doubt_of(solver, sampler), max(1, most // sampler.calls)
    show = study.progress(f"{sampler.rule}, up to {tries} tries while in doubt: sure of")
    numbered = replace(study.problem, number=torch.arange(len(study.problem)))
    found = until_sure(solver, numbered, sampler, tries, doubt, study.seed, study.wish.batch, show)
    valid, believed = (found[name].values.bool() for name in ("validity", "believed"))
    settings = {**sampler.settings, "until sure above": doubt.sure}
    return Tried(sampler, settings, valid & believed, believed & ~valid, found["calls_per_instance"].values)


def within(tried: Tried, budgets: Sequence[int]) -> list[Report]:
    """Return what was believed and right within so many calls of an instance."""
    rows = [row_of(tried.sampler, tried.right & (tried.calls <= budget)) for budget in budgets]
    return [{**row, "calls": n, "settings": tried.settings} for row, n in zip(rows, budgets, strict=True)]


def named(sampler: Sampler) -> str:
    """Name a sampler in words: `tweedie, 200 steps, ahead 1`."""
    settings = (f"{name} {value:g}" for name, value in sampler.settings.items())
    return ", ".join([sampler.rule, f"{sampler.steps} steps", *settings])


def untuned(study: Study) -> list[str]:
    """Return the rules that fit the model and have nothing to tune; in the order of RULES."""
    fits = fitting(study.solver.path, study.solver.codec)
    return [rule for rule, kind in RULES.items() if rule in fits and not kind.takes]


def line(row: Report) -> str:
    """Tell a row in a line: `tweedie  200  ahead=1  0.553 [0.504, 0.601] ± 0.012`."""
    found, error = row["validity"], row["standard_error"]
    settings = " ".join(f"{name}={value:g}" for name, value in row["settings"].items())
    if row["calls"] != row["steps"] * RULES[row["rule"]].calls:  # tried again, or settled before the last step
        settings += f", {row['calls']} calls at most"
    spread = "" if error is None else f" ± {error:.3f}"
    return (
        f"{row['rule']:10} {row['steps']:5} steps  {settings:24} "
        f"{found['value']:.3f} [{found['low']:.3f}, {found['high']:.3f}]{spread}{' diverged' * row.get('diverged', 0)}"
    )


def tell(report: Report) -> str:
    return "\n".join(map(line, report["rows"]))


def counts(study: Study, factors: Sequence[float], quick: int = 0) -> list[int]:
    """Return so many times the model's own steps (or --steps), 1 at least and MOST at most.

    A quick look goes no further than the model's own, or `quick` of them where that is more.
    """
    found = sorted({min(max(1, round(factor * study.steps)), MOST) for factor in factors})
    return [count for count in found if not study.wish.quick or count <= max(study.steps, quick)]


def by_setting(rows: list[Report], name: str) -> dict[str, list[Report]]:
    """Group rows that differ in one number alone, by what they share: the points of a line, in order."""
    lines: dict[str, list[Report]] = {}
    for row in rows:
        rest = [f"{key} {value:g}" for key, value in row["settings"].items() if key != name]
        steps = [] if name in ("steps", "calls") else [f"{row['steps']} steps"]
        lines.setdefault(", ".join([row["rule"], *steps, *rest]), []).append(row)
    return {label: sorted(line, key=lambda row: at(row, name)) for label, line in lines.items()}


def at(row: Report, name: str) -> float | int:
    """Return the number on the horizontal axis: steps, calls, or a setting, which may be left at its usual value."""
    return row[name] if name in row else row["settings"].get(name, USUAL[name])


def plot_lines(reports: list[Report], name: str, label: str, logarithmic: bool = False) -> Figure:
    """Draw a panel for each report, a line for each sampler."""
    figure, [axes] = panels(1, len(reports), (3.6, 2.8), sharey=True)
    many = any(len(by_setting(report["rows"], name)) > FEW for report in reports)
    for axis, report in zip(axes, reports, strict=True):
        lines, seen = by_setting(report["rows"], name), set()
        for text, rows in lines.items():
            rule = rows[0]["rule"]
            curve(axis, rows, [at(row, name) for row in rows], text, LINES.get(rule, "#444444"), rule in seen)
            seen.add(rule)
        if logarithmic:
            axis.set_xscale("log")
            ticks = sorted({at(row, name) for row in report["rows"]})
            axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks], rotation=45)
            axis.minorticks_off()
        axis.set_title(report["model"], loc="left")
        axis.set_xlabel(label)
        if not many:
            axis.legend(frameon=False)
    if many:  # beside the panels, where it hides no line
        lines = {line.get_label(): line for axis in axes for line in axis.lines}
        figure.legend([*lines.values()], [*lines], loc="outside right upper", frameon=False)
    axes[0].set_ylabel("share of valid boards")
    told = {"steps"} if name in ("steps", "calls") else set()  # the axis tells them
    caption(figure, [{key: value for key, value in report.items() if key not in told} for report in reports])
    return figure


def curve(
    axis: Any, rows: list[Report], x: Sequence[float | int], label: str, colour: str, dashed: bool = False
) -> None:
    """Draw a line through the rates with their 95% intervals."""
    dash = "--" if dashed else "-"
    axis.plot(x, [row["validity"]["value"] for row in rows], dash, marker="o", ms=3, color=colour, label=label)
    lows, highs = ([row["validity"][end] for row in rows] for end in ("low", "high"))
    axis.vlines(x, lows, highs, color=colour, lw=0.8, alpha=0.7)
    axis.set_ylim(-0.03, 1.03)
