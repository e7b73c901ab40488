"""Every table and figure of the paper, and what we add: one entry of one list.

A new one is an Experiment: `needs` are the reports that must be there, `show` makes its section out of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from letgo.reproduce import sections
from letgo.reproduce.grids import show_grid
from letgo.reproduce.measure import Session, collect_tuning, measure_all
from letgo.reproduce.paper import O3_DRAWS, O3_PUZZLES, QUEENS_SAMPLES, TABLE1, TABLE5, TABLE7, TABLE15, TABLES
from letgo.reproduce.plan import TRIES, Need
from letgo.reproduce.plots import Plot
from letgo.reproduce.results import Results
from letgo.reproduce.store import COVERAGE, SOLUTIONS, SOLVE


@dataclass(frozen=True)
class Experiment:
    """A table or a figure: the reports that it needs, how missing ones are measured, and how it is shown."""

    name: str
    title: str
    show: Callable[[Results], str]
    needs: tuple[Need, ...] = ()
    measure: Callable[[Session, list[Need]], None] = measure_all
    plot: Plot | None = None


def solving(*columns: int) -> tuple[Need, ...]:
    """Verified solving, and pass@1 and pass@10 of Tweedie reprojection to stand beside it."""
    needs = [Need.of(cell) for cell in sections.solved_cells(tuple(sections.SOLVED_COLUMNS[i] for i in columns))]
    beside = [replace(need, passes=TRIES, first=True) for need in needs]
    return *beside, *(replace(need, passes=1, kind=SOLVE, first=True, quick=None) for need in needs)


def grid(name: str, *more: Need, plot: Plot | None = None) -> Experiment:
    table = TABLES[name]
    needs = tuple(Need.of(cell) for cell in table.cells())
    title = f"Table {name.removeprefix('table')}: {table.title}"
    return Experiment(name, title, partial(show_grid, table=table), (*needs, *more), plot=plot)


TUNED = tuple(Need(model.removesuffix("-baseline"), model, "", "em-decay", 0, 1) for model in TABLE5)
COVERED = tuple(
    Need("queens", model, "gen", rule, 200, QUEENS_SAMPLES, kind=COVERAGE, first=True, quick=(64, 1))
    for rule, model in TABLE15
)
SEVERAL = tuple(
    Need("sudoku", model, "", "tweedie", 200, O3_PUZZLES, O3_DRAWS, kind=SOLUTIONS, first=True, quick=(2, 8))
    for model in ("sudoku-baseline", "sudoku")
)

EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        grid("table1", *solving(*range(6)), plot=Plot(TABLE1, (3, 4))),
        Experiment("solve", "Verified solving", sections.show_solve, solving(*range(7))),
        Experiment("table5", "Table 5: EM decay's settings, as tuned", sections.show_tuning, TUNED, collect_tuning),
        grid("table7", *solving(6), plot=Plot(TABLE7, (1, 5), ("maze", "maze-muon"))),
        *map(grid, ("table8", "table9", "table11", "table12", "table13", "table14")),
        Experiment("table15", "Table 15: coverage of the 14-queens boards", sections.show_coverage, COVERED),
        Experiment("solutions", "App. O.3: several solutions of one puzzle", sections.show_solutions, SEVERAL),
        Experiment("entries", "Graphs, entry by entry", sections.show_entries),
        Experiment("resample", "A rule of our own: resample", sections.show_resample),
        Experiment("choice", "Choosing among tries without the rules", sections.show_choice),
        Experiment("others", "Measured beside the tables", sections.show_others),
        Experiment("training", "How the models were trained", sections.show_training),
    )
}


def run_missing(session: Session, names: list[str]) -> None:
    """Measure what these experiments lack; those that are measured alike go together, for they share reports."""
    groups: dict[Callable[[Session, list[Need]], None], list[Need]] = {}
    for experiment in (EXPERIMENTS[name] for name in names if name in EXPERIMENTS):
        needs, limits = list(experiment.needs), session.limits
        if needs and limits.tasks and not any(need.task in limits.tasks for need in needs):
            models = dict.fromkeys(need.model for need in needs)
            session.leave_out(experiment.name, f"it has {', '.join(models)} alone")
        if limits.quick and any(need.quick is None for need in needs):
            session.leave_out("verified solving", "never in a quick run; leave --quick out")
        groups.setdefault(experiment.measure, []).extend(needs)
    for measure, needs in groups.items():
        measure(session, needs)
