"""Figures of the paper: one analysis of some models each. Reports lie in `analysis` beside the other results."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from letgo.analysis import analysis_of
from letgo.analysis.drawing import draw
from letgo.analysis.study import Wish, run_analysis, write_report
from letgo.errors import blaming
from letgo.reproduce.measure import Session
from letgo.reproduce.own_runs import config_of, training
from letgo.reproduce.paper import TABLE1, TABLE1_D3PM
from letgo.reproduce.results import RULE_NAMES, Results, as_table, share, together
from letgo.reproduce.store import Report, Store
from letgo.runs import read_json, shipped
from letgo.samplers import RULES
from letgo.typed import Natural, check


class Known(TypedDict):
    """Known is what is read of every analysis."""

    analysis: str
    n: Natural
    seed: int
    model: NotRequired[str]
    regime: NotRequired[str]
    steps: NotRequired[int]
    command: NotRequired[str]


@dataclass(frozen=True)
class Picture:
    """A Picture is an analysis of some models, drawn together."""

    analysis: str
    models: tuple[str, ...] = ()  # none for an analysis without a model
    regime: str | None = None
    steps: int | None = None
    file: bool = False  # only on instances of a data file
    split: str = "valid"
    count: int | None = None  # instances, and of a quick look; None: the analysis's own
    quick: int | None = None
    beside: str = ""  # a column of Table 1 whose cells, measured on test instances, stand beside

    def size(self, quick: bool) -> int:
        """Return how many instances it has if nobody asks for another number."""
        analysis = analysis_of(self.analysis)
        return (self.quick or analysis.quick) if quick else self.count or analysis.count

    def stem(self, *models: str) -> str:
        """Return NAME-MODEL, as `letgo analyze` names its files; the regime follows where it is not the usual one."""
        return "-".join([self.analysis, *models, *([self.regime] if self.regime else [])])

    @property
    def name(self) -> str:
        return self.stem(*self.models)

    def files(self, store: Store) -> dict[str, Path]:
        """Return the report of each model; "" is none."""
        return {m: store.folder / "analysis" / f"{self.stem(*filter(None, [m]))}.json" for m in self.models or ("",)}

    def reports(self, store: Store) -> list[Report]:
        more = {"beside": cells_beside(store, self.beside)} if self.beside else {}
        return [{**report_of(file), **more} for file in self.files(store).values() if file.is_file()]

    def draw(self, store: Store, folder: Path) -> list[Path]:
        reports = self.reports(store)
        with blaming(", ".join(str(file) for file in self.files(store).values() if file.is_file()), "analyse again"):
            return draw(reports, folder / self.name, ("png",))


def report_of(file: Path) -> Report:
    return check(read_json(file), Known, f"{file} is no report of an analysis")


def cells_beside(store: Store, column: str) -> list[Report]:
    """Return what was measured of a column of Table 1 and its discrete reference, pooled over training seeds."""
    cells = [cell for table in (TABLE1, TABLE1_D3PM) for cell in table.cells()]
    cells = [cell for cell in cells if cell.column.key.removeprefix("d3pm-") == column]
    measured = [(cell, list(found.values())) for cell in cells if (found := store.seeds(cell))]
    return [
        {
            "model": cell.model,
            "name": RULE_NAMES[cell.rule],
            "calls": reports[0]["steps"] * RULES[cell.rule].calls,
            "validity": together(reports, cell.column.score),
        }
        for cell, reports in measured
    ]


def show_pictures(results: Results, name: str, pictures: tuple[Picture, ...]) -> str:
    """Return what was written about an experiment, and what each of its analyses found."""
    parts = results.notes(name)
    for picture in pictures:
        for report in map(results.use, picture.reports(results.store)):
            of = (
                f"`{report['model']}`, regime {report['regime']}, {report['steps']} steps, "
                if "model" in report
                else ""
            )
            with blaming(f"{results.store.folder / 'analysis'}, {picture.analysis}", "analyse again"):
                found = analysis_of(picture.analysis).tell(report)
            parts.append(f"{picture.analysis}: {of}n = {report['n']}, seed {report['seed']}\n\n```\n{found}\n```")
    parts = parts or ["Not measured yet."]
    if lines := [line for picture in pictures for line in _untrained(picture, results.store)]:
        text = "\n".join(dict.fromkeys(lines))
        parts.append(
            f"No weights are shipped of some of its models. What trains them, for `--models runs`:\n\n```\n{text}\n```"
        )
    return "\n\n".join(parts)


def _untrained(picture: Picture, store: Store) -> list[str]:
    """Return what trains those of a picture's models that are neither shipped nor measured."""
    files, there = picture.files(store), shipped()
    return [training(model) for model in picture.models if model not in there and not files[model].is_file()]


def show_work(results: Results, picture: Picture) -> list[str]:
    """Show validity by the work that it takes, each model's rows in the order of their passes."""
    rows = []
    for report in map(results.use, picture.reports(results.store)):
        for row, seconds in zip(report["rows"], report["took"], strict=True):
            passes = [
                str(row["calls"] * report["turns"]),
                f"{row['mean_calls'] * report['turns']:.0f}",
                f"{seconds:.3f}",
            ]
            lead = [report["model"], row["kind"], row["rule"], str(row["steps"]), *passes, share(row["validity"])]
            rows.append([*lead, str(row.get("believed_wrong", "-")), str(report["n"]), str(report["seed"])])
    head = ["model", "work", "rule", "steps of a try", "passes at most", "on average", "seconds", "valid, 95% interval"]
    text = "By work, on validation puzzles; seconds are those of one CPU core, on average:"
    return [text, as_table([*head, "believed, wrong", "n", "seed"], rows)] if rows else []


# The nine tasks that Table 16 does not name: all columns of Table 1 but the graphs of 18 nodes.
COMMITTED = tuple(
    Picture("changes", (f"{model}-baseline", model), regime, file=file)
    for model, regime, file in (
        ("sudoku", None, False),
        ("sudoku", "medium", False),
        ("sudoku", "hard", False),
        ("sudoku-extreme", None, True),
        ("latin", None, False),
        ("latin", "gen", False),
        ("queens", None, False),
        ("queens", "gen", False),
        ("connectivity", None, False),
    )
)
# Table 16: sampler, training: mean commitment time of runs that end valid and of those that do not, with their n
TABLE16 = {
    ("ddpm", "simple"): (0.72, 1229, 0.92, 1075),
    ("ddpm", "self-correction"): (0.88, 1755, 0.98, 549),
    ("tweedie", "simple"): (0.69, 1909, 0.89, 395),
    ("tweedie", "self-correction"): (0.83, 2019, 0.99, 285),
}
BOTH = {"valid": 0, "invalid": 2}  # where they stand in a row of it


def show_commitment(results: Results, pictures: tuple[Picture, ...]) -> str:
    """Show commitment times pooled over all tasks, boards counted alike, as Table 16 has them; then task by task."""
    reports = [results.use(report) for picture in pictures for report in picture.reports(results.store)]
    rows, each = [], []
    for (rule, objective), theirs in TABLE16.items():
        row = [RULE_NAMES[rule], objective]
        for kind, at in BOTH.items():
            times = [r["rules"][rule]["commitment"].get(kind) for r in reports if r["objective"] == objective]
            known = [(score["value"], score["n"]) for score in times if score]
            total = sum(n for _, n in known)
            row.append(f"{sum(v * n for v, n in known) / total:.2f}, n = {total}" if total else "-")
            row.append(f"{theirs[at]:.2f}, n = {theirs[at + 1]}")
        rows.append(row)
    for report in reports:
        for rule, found in report["rules"].items():
            times = [found["commitment"].get(kind) for kind in BOTH]
            cells = [f"{score['value']:.2f}, n = {score['n']}" if score else "-" for score in times]
            never, best = found["failures"]["never_valid"], max(found["auroc"].items(), key=lambda one: one[1]["value"])
            kinds = f"{share(never, 2)}, n = {never['n']}" if never["n"] else "-"
            told = f"{share(best[1], 2)} by {best[0].replace('_', ' ')}" if best[1]["n"] else "-"
            each.append([report["model"], report["regime"], RULE_NAMES[rule], *cells, kinds, told])
    if not reports:
        return "Not measured yet."
    head = ["sampler", "training", "tau* valid", "paper", "tau* invalid", "paper"]
    more = ["model", "regime", "sampler", "tau* valid", "tau* invalid", "failures: never a valid proposal"]
    pooled, apart = as_table(head, rows), as_table([*more, "best predictor of failure, AUROC"], each)
    return "\n\n".join([*results.notes("table16"), pooled, apart])


def analyze_missing(session: Session, pictures: list[Picture]) -> None:
    """Run the analyses that are not there yet, or on fewer instances than are asked for."""
    for picture in pictures:
        for model, file in picture.files(session.store).items():
            if not session.tasks or (model and config_of(model).task in session.tasks):
                _analyze(session, picture, model, file)


def _analyze(session: Session, picture: Picture, model: str, file: Path) -> None:
    analysis = analysis_of(picture.analysis)
    count = session.count or picture.size(session.quick)
    if not session.force and file.is_file() and report_of(file)["n"] >= count:
        session.held += 1
        return
    task = config_of(model).task if model else ""
    if picture.file and task not in session.data:
        session.leave_out(task, f"its files are not at hand: --data FOLDER, or `letgo data fetch {task}`")
        return
    where = session.find(model, 0) if model else ""
    if where is None:
        return
    data = session.data.get(task)
    wish = Wish(count, 0, picture.steps, picture.regime, data, picture.split, quick=session.quick)
    command = _command(session, picture, where, count, data)
    session.begin()
    if session.dry_run:
        session.say(command)
        return
    solver = session.solver(where) if where else None
    report = run_analysis(analysis, solver, wish, lambda label: session.progress(f"{picture.stem(model)}, {label}"))
    own: dict[str, Any] = {"model": model} if model else {}
    write_report(file, {**report, **own, "command": command})
    session.say(f"{file.stem}:\n{analysis.tell(report)}")


def _command(session: Session, picture: Picture, where: str, count: int, data: str | None) -> str:
    """Return the `letgo analyze` that repeats it."""
    words: list[Any] = ["letgo", "analyze", picture.analysis, *([where] if where else []), "--count", count]
    for flag, value in (("--regime", picture.regime), ("--steps", picture.steps)):
        words += [] if value is None else [flag, value]
    words += ["--split", picture.split] if picture.split != "valid" else []
    if data is not None:
        words += ["--data", data if data == "hub" or session.dry_run else "FOLDER"]
    words += ["--device", session.device] if session.device != "auto" and where else []
    words += ["--quick"] if session.quick else []
    return shlex.join(map(str, words))
