"""Measure what is missing. A model is loaded once and goes through all its needs, so it is compiled once."""

from __future__ import annotations

import shlex
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from letgo import __version__
from letgo.data.files import write_atomically
from letgo.data.source import source_of
from letgo.errors import LetgoError
from letgo.estimates import rate
from letgo.evaluation import evaluate
from letgo.machine import device_name
from letgo.reproduce.coverage import Advance, ambiguous_puzzles, coverage_report, solutions_report
from letgo.reproduce.own_runs import how_to_train
from letgo.reproduce.paper import TABLES, TRIES, Cell
from letgo.reproduce.results import share
from letgo.reproduce.store import Report, Store, passes, sampler, size, stale
from letgo.runs import is_folder, locate, read_card, read_json, read_log, read_validation, shipped
from letgo.runs.files import weights_digest
from letgo.samplers import rule_kind
from letgo.solver import Solver, load
from letgo.tasks import TASKS, Problem
from letgo.tasks.sudoku import Sudoku

QUICK_RULES, QUICK_COUNT, QUICK_SOLVED = ("ddpm", "tweedie"), 16, 4


@dataclass(frozen=True)
class Need:
    """A Need is one report: what is measured of a model (by its seed 0's name), in which regime, with which rule."""

    task: str
    model: str
    regime: str
    rule: str
    steps: int
    count: int
    passes: int = 1  # samples per instance
    at: int | None = None  # the kept checkpoint to measure, where the run has it
    file: bool = False  # only on instances of a data file
    kind: str = "evaluate"  # a key of KINDS
    first: bool = False  # training seed 0 alone

    @staticmethod
    def of(cell: Cell) -> Need:
        c = cell.column
        return Need(c.task, cell.model, c.regime, cell.rule, c.steps, c.count, c.passes, c.at, c.file)


@dataclass
class Session:
    """A Session knows where models, data and results lie, what is asked for, and what has been loaded."""

    store: Store
    models: Path | None = None
    seeds: tuple[int, ...] = (0, 1, 2)
    device: str = "auto"
    data: dict[str, str] = field(default_factory=dict)  # task -> file, folder or 'hub'
    tasks: tuple[str, ...] | None = None  # None: all of them
    rules: tuple[str, ...] | None = None
    count: int | None = None  # None: as many instances as the paper has
    quick: bool = False
    threads: int = 1
    force: bool = False
    dry_run: bool = False
    say: Callable[[str], None] = print
    progress: Callable[[str], Advance] = lambda label: lambda done, total: None
    skipped: dict[str, str] = field(default_factory=dict)  # what was left out, and why
    held: int = 0  # reports that were there already
    made: int = 0  # reports that are there now, or commands that would make them
    ignored: bool = False  # git is to leave what is written alone
    _solver: tuple[str, Solver] | None = None
    _problems: dict[tuple[Any, ...], Problem] = field(default_factory=dict)

    def needed(self, needs: Iterable[Need]) -> list[Need]:
        """Return what is left of these needs; one report serves several where it can, as the largest of them."""
        rules, joined = self.rules or (QUICK_RULES if self.quick else None), {}
        for need in needs:
            sizes = KINDS[need.kind].quick if self.quick else (need.count, need.passes)
            if (not self.tasks or need.task in self.tasks) and (not rules or need.rule in rules):
                key = (need.kind, need.model, need.regime, need.rule, need.steps)
                known = joined.get(key, replace(need, count=0, passes=1))
                count, passes = max(known.count, self.count or sizes[0]), max(known.passes, sizes[1])
                joined[key] = replace(need, count=count, passes=passes)
        return list(joined.values())

    def find(self, model: str, seed: int) -> str | None:
        """Return the folder of a model's seed, or its shipped name without a folder; None, noted, if missing."""
        name = f"{model}.s{seed}" if seed else model
        why = f"no weights of it are shipped; name a folder of runs with --models{how_to_train(model, seed=seed)}"
        if self.models is not None:
            places = [self.models / f"{model}.s{seed}", self.models / model / f"s{seed}"]
            places = [self.models / model, *places] if seed == 0 else places
            for place in places:
                if is_folder(place) and (place / "model.safetensors").is_file():
                    return f"./{place}" if str(place) in shipped() else str(place)
            why = f"no run of it in {self.models}{how_to_train(model, str(self.models), seed)}"
        elif name in shipped():
            return name
        if seed == 0 or self.find(model, 0) is not None:  # a model that is missing is named once, not for each seed
            self.leave_out(name, why)
        return None

    def solver(self, where: str) -> Solver:
        """Return the model, loaded once; another model takes its place."""
        if self._solver is None or self._solver[0] != where:
            self._solver = None  # frees the old one's memory first
            self._solver = where, load(where, self.device, threads=self.threads)
        return self._solver[1]

    def problem(self, solver: Solver, need: Need, seed: int) -> Problem:
        """Return the instances, which are the same for all models of a task."""
        task, key = solver.task, (solver.task, need.regime, need.count, seed)
        if key not in self._problems:
            self._problems[key] = source_of(task, self.data.get(task.name)).draw("test", need.regime, need.count, seed)
        return self._problems[key]

    def begin(self) -> None:
        """Count a report that is to be made, or its command."""
        if self.ignored and not self.made and not self.dry_run:
            write_atomically(self.store.folder / ".gitignore", "*\n")
        self.made += 1

    def leave_out(self, what: str, why: str) -> None:
        self.skipped.setdefault(what, why)


def data_files(texts: list[str]) -> dict[str, str]:
    """Read --data TASK=FILE; without a task it is the one that counts on its file alone. Fetched ones lie in ./data."""
    [task_of_file] = {column.task for table in TABLES.values() for column in table.columns if column.file}
    files = {task_of_file: str(folder)} if (folder := Path("data") / task_of_file).is_dir() else {}
    for text in texts:
        task, equals, path = text.partition("=")
        files |= {task: path} if equals and task in TASKS else {task_of_file: text}
    for task, path in files.items():
        if path != "hub" and not Path(path).exists():
            raise LetgoError(f"--data {path}: no such file or folder for {task}")
    return files


def about(session: Session, solver: Solver, where: str) -> Report:
    """Return what every report says of the model and the data behind it."""
    folder, step = locate(where)
    facts: Report = {
        "objective": solver.config.objective,
        "training_steps": trained_steps(folder) if step is None else step,
        "weights": "fp16, as shipped" if where in shipped() else "fp32" if step is None else "fp16, as kept",
        "weights_sha256": weights_digest(folder, step),
    }
    data = session.data.get(solver.task.name)
    return facts if data is None else {**facts, "data": source_of(solver.task, data).identity("test")}


def trained_steps(folder: Path) -> int | None:
    """Return the optimiser steps behind the weights: by a shipped model's card, the picked checkpoint or the log."""
    if (folder / "card.json").is_file():
        return read_card(folder).get("steps")
    chosen = read_validation(folder)
    if "checkpoint" in chosen and "step" in chosen:  # `letgo tune` may have gone back to an earlier one
        return int(chosen["step"])
    last = [int(row["step"]) for row in read_log(folder)[-1:]]
    return max([*last, *([chosen["step"]] if "step" in chosen else [])], default=None)


def settings_for(session: Session, solver: Solver, need: Need, where: str) -> dict[str, float] | None:
    """Return the settings a rule will use; None, noted, where it has not been tuned."""
    if rule_kind(need.rule).takes and not solver.tuned(need.rule, need.regime or None):
        data = " --data FOLDER" if need.file else ""
        how = "as shipped" if where in shipped() else f"`letgo tune {where} --rule {need.rule}{data}`"
        session.leave_out(f"{where}, {need.rule}", f"not tuned yet: {how}")
        return None
    return solver.sampler(need.rule, regime=need.regime or None).settings


def evaluate_boards(session: Session, solver: Solver, need: Need, seed: int, show: Advance) -> Report:
    sampler = solver.sampler(need.rule, need.steps, need.regime)
    return evaluate(solver, session.problem(solver, need, seed), sampler, need.passes, seed, None, show).as_dict()


def solve_boards(session: Session, solver: Solver, need: Need, seed: int, show: Advance) -> Report:
    """Solve with verification: early exit at a valid proposal, up to ten tries, and the network calls it took."""
    problem = session.problem(solver, need, seed)
    answers = solver.solve(problem, need.rule, need.steps, TRIES, seed, progress=show)
    solved = sum(a.solved for a in answers)
    return {
        "tries": TRIES,
        "puzzles": need.count,
        "solved": solved,
        "share": rate(solved, need.count).as_dict(),
        "needed_more_than_one_try": sum(a.tries > 1 for a in answers),
        "mean_calls": statistics.fmean(a.calls for a in answers),
        "median_calls": statistics.median(a.calls for a in answers),
    }


def cover_boards(session: Session, solver: Solver, need: Need, seed: int, show: Advance) -> Report:
    return coverage_report(solver, need.rule, need.count, seed, show)


def find_solutions(session: Session, solver: Solver, need: Need, seed: int, show: Advance) -> Report:
    puzzles, solutions = ambiguous_puzzles(cast(Sudoku, solver.task), need.count, seed)
    return solutions_report(solver, puzzles, solutions, need.passes, need.rule, seed, show)


@dataclass(frozen=True)
class Kind:
    """A Kind says how one kind of report is made, where it is kept, and what tells it from others."""

    run: Callable[[Session, Solver, Need, int, Advance], Report]
    same: tuple[str, ...]
    quick: tuple[int, int]  # count and passes of a quick run
    command: str = ""  # the `letgo reproduce` that repeats it; of "" it is `letgo evaluate`


# A kind's reports lie in the file of its name; those of `evaluate` in a file for each model.
KINDS = {
    "evaluate": Kind(evaluate_boards, ("model", "regime", "rule", "steps", "seed"), (QUICK_COUNT, 1)),
    "solve": Kind(
        solve_boards, ("model", "regime", "rule", "steps", "tries", "seed"), (QUICK_SOLVED, 1), "solve --tasks {task}"
    ),
    "coverage": Kind(cover_boards, ("model", "rule", "seed"), (64, 1), "table15 --rules {rule}"),
    "solutions": Kind(find_solutions, ("model", "rule", "seed"), (2, 8), "solutions"),
}


def measure(session: Session, need: Need, seed: int, where: str) -> None:
    """Make one report, unless it is there already."""
    if need.at is not None and (Path(where) / "checkpoints" / f"{need.at}.safetensors").is_file():
        where = f"{where}@{need.at}"
    name, kind, solver = f"{need.model}.s{seed}" if seed else need.model, KINDS[need.kind], session.solver(where)
    settings = settings_for(session, solver, need, where)
    if settings is None:
        return
    facts = {"settings": settings, **about(session, solver, where)}
    own = {"model": name, "regime": need.regime, "rule": need.rule, "steps": need.steps, "seed": seed}
    file, key = need.kind if kind.command else name, {k: v for k, v in own.items() if k in kind.same}
    if not session.force and any(serves(report, need, key, facts) for report in session.store.reports(file)):
        session.held += 1
        return
    command = command_of(session, need, seed, where, facts)
    session.begin()
    if session.dry_run:
        session.say(command)
        return
    show, started = session.progress(f"{name} {need.regime}, {need.rule}: sampled"), time.perf_counter()
    scores = kind.run(session, solver, need, seed, show)
    more = {"seconds": round(time.perf_counter() - started, 3), "device": device_name(solver.device)}
    own = {k: v for k, v in own.items() if v != ""} | {"task": solver.task.name}
    report = {**own, **more, "version": __version__, **scores, **facts, "command": command}
    session.store.add(file, report, kind.same)
    score = report.get("share") or report.get("share_found") or report["validity"]
    session.say(f"{name} {need.regime} {need.rule}: {share(score, 4)} n={score['n']}, {report['seconds']:.1f} s")


def command_of(session: Session, need: Need, seed: int, where: str, facts: Report) -> str:
    """Return what repeats a report. Settings are named: another copy of the run may lack the file that held them."""
    how = KINDS[need.kind].command.format(task=need.task, rule=need.rule)
    if not how:
        words: list[Any] = ["evaluate", where, "--rule", need.rule, "--regime", need.regime, "--steps", need.steps]
        words += ["--count", need.count, "--seed", seed, *(["--passes", need.passes] if need.passes > 1 else [])]
        words += [w for k, v in facts["settings"].items() for w in (f"--{k.replace('_', '-')}", f"{v:g}")]
    else:
        words = ["reproduce", *how.split(), "--count", need.count, *(["--quick"] if session.quick else [])]
        words += ["--models", session.models] if session.models and where not in shipped() else []
    if "data" in facts:  # the file's own name, its folder left open; a dry run shows what was given
        data = session.data[need.task]
        data = data if session.dry_run or data == "hub" else f"FOLDER/{facts['data']['file']}"
        words += ["--data", f"{need.task}={data}" if how else data]
    words += ["--device", session.device] if session.device != "auto" else []
    words += ["--threads", session.threads] if session.threads != 1 else []
    return shlex.join(["letgo", *map(str, words)])


def serves(report: Report, need: Need, key: Report, facts: Report) -> bool:
    """Return whether a report is the one that is needed, of this model, with these settings."""
    if sampler(report) or any(report.get(k) != v for k, v in key.items()):
        return False
    return size(report) >= need.count and need.passes in (1, passes(report)) and not stale(report, facts)


def measure_all(session: Session, needs: list[Need]) -> None:
    """Measure all needs, model by model and seed by seed; some of them are of seed 0 alone."""
    plan = {seed: session.needed(need for need in needs if seed == 0 or not need.first) for seed in session.seeds}
    for model in dict.fromkeys(need.model for part in plan.values() for need in part):
        for seed, part in plan.items():
            mine = [need for need in part if need.model == model]
            if any(need.file and need.task not in session.data for need in mine):
                why = f"its test file is not at hand: --data FILE, or `letgo data fetch {mine[0].task}`"
                session.leave_out(mine[0].task, why)
                continue
            where = session.find(model, seed) if mine else None
            for need in mine if where is not None else ():
                measure(session, need, seed, str(where))


def collect_tuning(session: Session, needs: Iterable[Need]) -> None:
    """Copy what tuning chose (Table 5) beside the other results."""
    for need in needs:
        where = session.find(need.model, 0) if not session.tasks or need.task in session.tasks else None
        if where is None or settings_for(session, session.solver(where), need, where) is None:
            continue
        session.begin()
        if session.dry_run:
            continue
        folder, _ = locate(where)
        table = {"model": need.model, "training_steps": trained_steps(folder)}
        session.store.add("tune", table | read_json(folder / f"tune-{need.rule}.json"), ("model", "rule"))
