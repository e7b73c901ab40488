"""Validity by where a puzzle comes from: a data set of several sources is as hard as its mix.

As many instances of each source as of any other, as far as it has them: the shares of a data set, or of a stand-in for
it, are a choice, and what a model can do with each kind of puzzle does not hang on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from letgo.analysis import Report
from letgo.analysis.drawing import caption, panels
from letgo.analysis.lines import PAIRS
from letgo.analysis.study import Study
from letgo.analysis.sweep import LINES, row_of
from letgo.data.source import source_of
from letgo.estimates import rate
from letgo.samplers import RULES, Sampler, fitting
from letgo.tasks import Problem

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FEW = 5  # a source of fewer instances is measured, but not told of


def run(study: Study) -> Report:
    """Measure every rule that is tuned or has nothing to tune; of a quick look the two of the paper."""
    problem, names, shares = evenly(study)
    study.instances, solver = problem, study.solver
    rows, samplers = [], samplers_of(study)
    for done, sampler in enumerate(samplers, 1):
        show = study.progress(f"{sampler.rule} ({done} of {len(samplers)}): sampled")
        states = solver.sample(problem, sampler, study.seed, batch=study.wish.batch, progress=show)
        valid = solver.task.validate(solver.read(states, problem), problem)
        by_source = {}
        for name in shares:
            own = valid[[name == other for other in names]]
            by_source[name] = rate(int(own.sum()), len(own)).as_dict()
        mixed = sum(share * by_source[name]["value"] for name, share in shares.items())
        rows.append({**row_of(sampler, valid), "sources": by_source, "mixed": mixed})
    return {"shares": shares, "rows": rows}


def evenly(study: Study) -> tuple[Problem, list[str], dict[str, float]]:
    """Return instances of all sources alike, the source of each, and each source's share of the whole file."""
    wish, whole = study.wish, study.problem
    source = source_of(study.solver.task, wish.data)
    about = source.identity(study.split)
    if not isinstance(about, str) and about.get("rows"):
        whole = source.draw(study.split, wish.regime, about["rows"], wish.seed)
    names = source.names(study.split, whole)
    rows = {name: [i for i, other in enumerate(names) if other == name] for name in set(names)}
    largest = dict(sorted(rows.items(), key=lambda item: (-len(item[1]), item[0])))
    each, count = 0, min(study.count, len(whole))
    while sum(min(len(of), each) for of in rows.values()) < count:
        each += 1
    chosen = sorted(i for of in rows.values() for i in of[:each])
    shares = {name: len(of) / len(names) for name, of in largest.items()}
    return whole[torch.tensor(chosen)], [names[i] for i in chosen], shares


def samplers_of(study: Study) -> list[Sampler]:
    solver, wish = study.solver, study.wish
    fits = fitting(solver.path, solver.codec)
    if wish.quick:
        return [study.sampler(rule) for rule in PAIRS if rule in fits]
    own = [rule for rule in RULES if rule in fits]
    tuned = [rule for rule in own if not RULES[rule].takes or solver.tuned(rule, wish.regime)]
    return [study.sampler(rule) for rule in tuned]


def told(report: Report) -> list[str]:
    """Return the sources that have more than a few instances; all, where none has."""
    first = report["rows"][0]["sources"]
    return [name for name in report["shares"] if first[name]["n"] >= FEW] or list(report["shares"])


def tell(report: Report) -> str:
    """Return a line for each rule: its sources, and their mix."""
    lines = []
    for row in report["rows"]:
        found = {name: row["sources"][name] for name in told(report)}
        parts = [f"{name} {one['value']:.3f} (n = {one['n']})" for name, one in found.items()]
        lines.append(f"{row['rule']:10} {'; '.join(parts)}; in the file's shares {row['mixed']:.3f}")
    return "\n".join(lines)


def plot(reports: list[Report]) -> Figure:
    """Draw a panel for each model, a line of points for each rule; a source's share stands beside its name."""
    most = max(len(report["rows"]) for report in reports)
    figure, [axes] = panels(1, len(reports), (4.6, 2.0 + 0.2 * most), sharex=True)
    for axis, report in zip(axes, reports, strict=True):
        rows = report["rows"]
        names = told(report)[::-1]
        for place, row in enumerate(rows):
            at = [i + 0.7 / len(rows) * ((len(rows) - 1) / 2 - place) for i in range(len(names))]
            found = [row["sources"][name] for name in names]
            colour = LINES.get(row["rule"], "#444444")
            axis.plot([one["value"] for one in found], at, "o", ms=3, color=colour, label=row["rule"])
            axis.hlines(at, [one["low"] for one in found], [one["high"] for one in found], color=colour, lw=1)
        first = rows[0]["sources"]
        labels = [f"{name}\n{report['shares'][name]:.1%} of the file, n = {first[name]['n']}" for name in names]
        axis.set_yticks(range(len(names)), labels)
        axis.set_ylim(-0.6, len(names) - 0.4)
        axis.set_xlim(-0.03, 1.03)
        axis.set_xlabel("share of valid boards, 95% interval")
        axis.set_title(report["model"], loc="left")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right upper", frameon=False)
    caption(figure, reports)
    return figure
