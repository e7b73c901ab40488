"""Every table and figure of the paper, and what we add: one entry of one list.

A new one is an Experiment: `needs` are the reports that must be there, `show` makes its section out of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from letgo.reproduce import sections
from letgo.reproduce.measure import Need, Session, collect_tuning, measure_all
from letgo.reproduce.paper import O3_DRAWS, O3_PUZZLES, QUEENS_SAMPLES, TABLE1, TABLE5, TABLE7, TABLE15, TABLES, TRIES
from letgo.reproduce.plots import Plot
from letgo.reproduce.results import Results


@dataclass(frozen=True)
class Experiment:
    """A table or a figure: the reports that it needs, and how it is shown."""

    name: str
    title: str
    show: Callable[[Results], str]
    needs: tuple[Need, ...] = ()
    plot: Plot | None = None


def grid(name: str, plot: Plot | None = None) -> Experiment:
    """A table of the paper with rules as rows; verified solving stands beside some of its cells."""
    table = TABLES[name]
    needs = [Need.of(one) for cell in table.cells() for one in cell.with_others()]
    title = f"Table {name.removeprefix('table')}: {table.title}"
    return Experiment(name, title, partial(sections.show_grid, table=table), (*needs, *SOLVED.get(name, ())), plot)


SOLVED = {}
for _table in (TABLE1, TABLE7):  # pass@1 and pass@10 of Tweedie reprojection stand beside verified solving
    _needs = [replace(Need.of(cell), passes=TRIES, first=True) for cell in sections.solved_cells(_table)]
    SOLVED[_table.name] = (*_needs, *(replace(need, passes=1, kind="solve") for need in _needs))
TUNED = tuple(Need(model.removesuffix("-baseline"), model, "", "em-decay", 0, 1, kind="tune") for model in TABLE5)
COVERED = tuple(
    Need("queens", model, "gen", rule, 200, QUEENS_SAMPLES, kind="coverage", first=True) for rule, model in TABLE15
)
SEVERAL = tuple(
    Need("sudoku", model, "", "tweedie", 200, O3_PUZZLES, O3_DRAWS, kind="solutions", first=True)
    for model in ("sudoku-baseline", "sudoku")
)

EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        grid("table1", Plot(TABLE1, (3, 4))),
        Experiment("solve", "Verified solving", sections.show_solve, (*SOLVED["table1"], *SOLVED["table7"])),
        Experiment("table5", "Table 5: EM decay's settings, as tuned", sections.show_tuning, TUNED),
        grid("table7", Plot(TABLE7, (1, 5), "maze-muon")),
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
    """Measure what these experiments lack, all together, for they share reports."""
    needs: list[Need] = []
    for experiment in (EXPERIMENTS[name] for name in names if name in EXPERIMENTS):
        needs += experiment.needs
        if experiment.needs and session.tasks and not any(need.task in session.tasks for need in experiment.needs):
            tasks = dict.fromkeys(need.task for need in experiment.needs)
            session.leave_out(experiment.name, f"it has {', '.join(tasks)} alone")
    if session.quick and any(need.kind == "solve" for need in needs):
        session.leave_out("verified solving", "never in a quick run; leave --quick out")
    measure_all(session, [need for need in needs if need.kind != "tune"])
    collect_tuning(session, [need for need in needs if need.kind == "tune"])
