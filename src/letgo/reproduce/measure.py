"""Measure what is missing. A model is loaded once and goes through all its cells, so it is compiled once."""

from __future__ import annotations

import hashlib
import json
import shlex
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from letgo import __version__
from letgo.config import Config
from letgo.data.source import source_of
from letgo.evaluation import evaluate
from letgo.machine import device_name
from letgo.metrics import Rate
from letgo.paper import Column
from letgo.presets import PRESETS
from letgo.reproduce.compare import ALIKE
from letgo.reproduce.plan import SOLVED, TRIES, Limits, Need, merged, solve_columns, solve_needs, table_needs
from letgo.reproduce.store import SOLVE, TUNE, Report, Store, sampler, seeded
from letgo.runs import is_folder, locate, read_json, shipped
from letgo.solver import Solver, load
from letgo.tasks import Problem

SAME = ("regime", "rule", "steps", "seed")
Advance = Callable[[int, int], None]


@dataclass
class Session:
    """Where models, data and results lie, and what has been loaded."""

    store: Store
    models: Path | None = None
    also: tuple[str, ...] = ()  # other recipes in that folder, by name
    seeds: tuple[int, ...] = (0, 1, 2)
    device: str = "auto"
    data: dict[str, str] = field(default_factory=dict)  # task -> file, folder or 'hub'
    limits: Limits = field(default_factory=Limits)
    batch: int | None = None
    plain: bool = False
    threads: int = 1
    force: bool = False
    dry_run: bool = False
    say: Callable[[str], None] = print
    progress: Callable[[str], Advance] = lambda label: lambda done, total: None
    skipped: dict[str, str] = field(default_factory=dict)  # what was left out, and why
    held: set[tuple[Any, ...]] = field(default_factory=set)  # reports that were there already
    made: set[tuple[Any, ...]] = field(default_factory=set)
    _solver: tuple[str, Solver] | None = None
    _problems: dict[tuple[Any, ...], Problem] = field(default_factory=dict)

    def find(self, model: str, seed: int) -> str | None:
        """The folder of one seed of a model, or its shipped name where no folder was given; None, noted, if missing."""
        name, why = seeded(model, seed), "no weights of it are shipped; name a folder of runs with --models"
        if self.models is not None:
            places = [self.models / f"{model}.s{seed}", self.models / model / f"s{seed}"]
            places = [self.models / model, *places] if seed == 0 else places
            for place in places:
                if is_folder(place) and (place / "model.safetensors").is_file():
                    return f"./{place}" if str(place) in shipped() else str(place)
            why = f"no run of it in {self.models}"
        elif name in shipped():
            return name
        if seed == 0 or self.find(model, 0) is not None:  # a model that is missing is named once, not for each seed
            self.leave_out(name, why)
        return None

    def stands_for(self, model: str) -> str | None:
        """The paper's model in whose cells this one is measured; of another recipe, that of its task and objective."""
        if model not in self.also:
            return model
        where = self.find(model, 0)
        if where is None:
            return None
        config = Config.from_dict(read_json(locate(where)[0] / "config.json"))
        own = PRESETS[config.task + ("-baseline" if config.objective == "simple" else "")]
        if any(getattr(config, key) != getattr(own, key) for key in ALIKE):
            self.leave_out(model, "other boards, path or representation than the paper's")
            return None
        return own.name

    def solver(self, where: str) -> Solver:
        """The model, loaded once; another model takes its place."""
        if self._solver is None or self._solver[0] != where:
            self._solver = None  # frees the old one's memory first
            self._solver = where, load(where, self.device, not self.plain, self.threads)
        return self._solver[1]

    def problem(self, solver: Solver, regime: str, count: int, seed: int) -> Problem:
        """Instances are the same for all models of a task; those of one task are kept."""
        task = solver.task
        key = (task, regime, count, seed)
        if any(known[0] != task for known in self._problems):
            self._problems.clear()
        if key not in self._problems:
            self._problems[key] = source_of(task, self.data.get(task.name)).draw("test", regime, count, seed)
        return self._problems[key]

    def words(self, *words: str | int) -> str:
        """A command that repeats a measurement, with what it shares with the others."""
        extra = ["--device", self.device] if self.device != "auto" else []
        extra += ["--batch", str(self.batch)] if self.batch else []
        extra += ["--plain"] if self.plain else []
        extra += ["--threads", str(self.threads)] if self.threads != 1 else []
        return shlex.join(["letgo", *map(str, words), *extra])

    def data_word(self, task: str, facts: Report) -> str:
        """--data for a command: the file's own name, its folder left open; a dry run shows what was given."""
        given = self.data[task]
        return given if self.dry_run or given == "hub" else f"FOLDER/{facts['data']['file']}"

    def keep(self, *report: Any) -> None:
        """A report need not be measured; one that was measured just now is no news."""
        if report not in self.made:
            self.held.add(report)

    def leave_out(self, what: str, why: str) -> None:
        if what not in self.skipped:
            self.skipped[what] = why


def about(session: Session, solver: Solver, where: str) -> Report:
    """What every report says of the model and the data behind it."""
    folder, step = locate(where)
    known: Report = {
        "objective": solver.config.objective,
        "training_steps": trained_steps(folder) if step is None else step,
        "weights": "fp16, as shipped" if where in shipped() else "fp32" if step is None else "fp16, as kept",
        "weights_sha256": weights_digest(folder / ("model" if step is None else f"checkpoints/{step}")),
    }
    data = session.data.get(solver.task.name)
    return known if data is None else {**known, "data": source_of(solver.task, data).identity("test")}


def trained_steps(folder: Path) -> int | None:
    """Optimiser steps behind the weights: by the card of a shipped model, the picked checkpoint or the log."""
    if (folder / "card.json").is_file():
        return int(read_json(folder / "card.json")["steps"])
    chosen = read_json(folder / "validation.json") if (folder / "validation.json").is_file() else {}
    if "checkpoint" in chosen:  # `letgo tune` may have gone back to an earlier one
        return int(chosen["step"])
    log = folder / "metrics.jsonl"
    last = [json.loads(line)["step"] for line in log.read_text().splitlines()[-1:]] if log.is_file() else []
    return max([*last, *([chosen["step"]] if "step" in chosen else [])], default=None)


def weights_digest(path: Path) -> str | None:
    """The first 12 digits of a weights file's sha256: trained anew, a model has the same steps but another file."""
    path = path.with_name(f"{path.name}.safetensors")
    return _digest(path, path.stat().st_mtime_ns) if path.is_file() else None


@cache
def _digest(path: Path, _changed: int) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]


def settings_for(
    session: Session, solver: Solver, rule: str, where: str, regime: str | None = None
) -> dict[str, float] | None:
    """The settings a rule will use; None, noted, where it has not been tuned."""
    if rule in ("em", "em-decay") and not solver.tuned(rule, regime):
        data = " --data FOLDER" if solver.task.name == "sudoku-extreme" else ""
        how = "as shipped" if where in shipped() else f"`letgo tune {where} --rule {rule}{data}`"
        session.leave_out(f"{where}, {rule}", f"not tuned yet: {how}")
        return None
    return solver.sampler(rule, regime=regime).settings


def measure(session: Session, need: Need, seed: int, where: str) -> None:
    """One report, unless it is there already."""
    if need.at is not None and (Path(where) / "checkpoints" / f"{need.at}.safetensors").is_file():
        where = f"{where}@{need.at}"
    name, solver = seeded(need.model, seed), session.solver(where)
    used = settings_for(session, solver, need.rule, where, need.regime)
    if used is None:
        return
    facts = {"settings": used, **about(session, solver, where)}
    if not session.force and any(serves(session.store, r, need, seed, facts) for r in session.store.reports(name)):
        session.keep(name, need.regime, need.rule, need.steps, seed)
        return
    session.made.add((name, need.regime, need.rule, need.steps, seed))
    words: list[str | int] = ["evaluate", where, "--rule", need.rule, "--regime", need.regime]
    words += ["--steps", need.steps, "--count", need.count, "--seed", seed]
    words += ["--passes", need.passes] if need.passes > 1 else []
    words += ["--data", session.data_word(need.task, facts)] if "data" in facts else []
    command = session.words(*words)
    if session.dry_run:
        session.say(command)
        return
    problem = session.problem(solver, need.regime, need.count, seed)
    show = session.progress(f"{name} {need.regime}, {need.rule}: sampled")
    sampler = solver.sampler(need.rule, need.steps, need.regime)
    scores = evaluate(solver, problem, sampler, need.passes, seed, session.batch, show).as_dict()
    report = {"model": name, "regime": need.regime, **scores, **facts, "command": command}
    session.store.add(name, report, SAME)
    session.say(line(report))


def serves(store: Store, report: Report, need: Need, seed: int, facts: Report) -> bool:
    """Whether a report is the one that is needed, of this model, with these settings."""
    key = (report.get("regime"), report.get("rule"), report.get("steps"), report.get("seed"))
    if sampler(report):
        return False
    enough = report.get("count", 0) >= need.count and need.passes in (1, report["pass_at_k"]["k"])
    return key == (need.regime, need.rule, need.steps, seed) and enough and not store.stale(report, facts)


def line(report: Report) -> str:
    score = report["validity"]
    text = f"{report['model']} {report['regime']} {report['rule']}: {score['value']:.4f}"
    text += f" [{score['low']:.4f}, {score['high']:.4f}] n={score['n']}"
    if report["pass_at_k"]["k"] > 1:
        text += f", pass@{report['pass_at_k']['k']} {report['pass_at_k']['value']:.4f}"
    return f"{text}, {report['seconds']:.1f} s"


def shipped_instead() -> tuple[str, ...]:
    """Shipped recipes of tasks whose own model is not shipped: they are measured unasked."""
    tasks = {name: str(read_json(locate(name)[0] / "config.json")["task"]) for name in shipped()}
    return tuple(name for name, task in tasks.items() if task not in tasks)


def with_others(session: Session, needs: list[Need]) -> list[Need]:
    """For each other recipe the needs of the paper's model that it stands for."""
    pairs = [(name, session.stands_for(name)) for name in session.also]
    return [*needs, *(replace(need, model=name) for name, own in pairs for need in needs if need.model == own)]


def measure_all(session: Session, needs: list[Need], beside: list[Need], solving: list[Column]) -> None:
    """All needs, model by model and seed by seed; of seed 0 also those `beside`, and `solving` with rules in view."""
    first = merged(needs, beside)
    for model, task in dict.fromkeys((need.model, need.task) for need in first):
        if task == "sudoku-extreme" and "sudoku-extreme" not in session.data:
            why = "its test file is not at hand: --data FILE, or `letgo data fetch sudoku-extreme`"
            session.leave_out("sudoku-extreme", why)
            continue
        for seed in session.seeds:
            mine = [need for need in (first if seed == 0 else needs) if need.model == model]
            where = session.find(model, seed) if mine else None
            if where is None:
                continue
            for need in mine:
                measure(session, need, seed, where)
            if seed == 0:
                solve_model(session, model, where, solving)


def solve_model(session: Session, model: str, where: str, columns: list[Column]) -> None:
    """Verified solving: early exit at a valid proposal, up to ten tries, and the network calls it took."""
    solver, own = session.solver(where), session.stands_for(model)
    for column in columns:
        if own is None or own.removesuffix("-baseline") != column.model:
            continue
        count = session.limits.count or column.count
        facts = {"settings": {}, **about(session, solver, where)}
        key = {"model": model, "regime": column.regime, "rule": "tweedie", "steps": column.steps, "tries": TRIES,
               "seed": 0}  # fmt: skip
        same = [r for r in session.store.reports(SOLVE) if all(r.get(k) == v for k, v in key.items())]
        held = any(r["puzzles"] >= count and not session.store.stale(r, facts) for r in same)
        if held and not session.force:
            session.keep(SOLVE, model, column.regime)
            continue
        session.made.add((SOLVE, model, column.regime))
        words: list[str | int] = ["reproduce", "solve", "--tasks", column.model, "--count", count]
        words += ["--models", str(session.models)] if session.models and where not in shipped() else []
        words += ["--also", model] if model != own else []
        prefix = "" if column.model == "sudoku-extreme" else f"{column.model}="
        words += ["--data", prefix + session.data_word(column.model, facts)] if "data" in facts else []
        command = session.words(*words)
        if session.dry_run:
            session.say(command)
            continue
        problem = session.problem(solver, column.regime, count, 0)
        show = session.progress(f"{model} {column.regime}: solved")
        answers = solver.solve(problem, "tweedie", column.steps, TRIES, 0, True, session.batch, show)
        solved = sum(a.solved for a in answers)
        report = {
            **key,
            "task": solver.task.name,
            "puzzles": count,
            "solved": solved,
            "share": Rate(solved, count).as_dict(),
            "needed_more_than_one_try": sum(a.tries > 1 for a in answers),
            "mean_calls": statistics.fmean(a.calls for a in answers),
            "median_calls": statistics.median(a.calls for a in answers),
            "seconds": round(sum(a.seconds for a in answers), 3),
            "device": device_name(solver.device),
            "version": __version__,
            **facts,
            "command": command,
        }
        session.store.add(SOLVE, report, tuple(key))
        session.say(f"{model} {column.regime}: solved {solved} of {count}, {report['mean_calls']:.0f} calls each")


def run_tables(session: Session, names: list[str]) -> None:
    """The reports behind tables of the grid kind; Tables 1 and 7 bring verified solving with them."""
    solving = solve_columns(names, session.limits)
    needs, beside = (
        with_others(session, part)
        for part in (table_needs(names, session.limits), solve_needs(solving, session.limits))
    )
    measure_all(session, needs, beside, solving)


def run_solve(session: Session) -> None:
    solving = solve_columns(SOLVED, session.limits)
    measure_all(session, [], with_others(session, solve_needs(solving, session.limits)), solving)


def run_tune(session: Session, models: tuple[str, ...]) -> None:
    """Table 5: what tuning chose, copied beside the other results."""
    if not any(session.limits.task(model.removesuffix("-baseline")) for model in models):
        session.skipped["table5"] = f"it has {', '.join(models)} alone"
    for model in models:
        if not session.limits.task(model.removesuffix("-baseline")):
            continue
        where = session.find(model, 0)
        if where is None:
            continue
        solver = session.solver(where)
        if settings_for(session, solver, "em-decay", where) is None or session.dry_run:
            continue
        folder, _ = locate(where)
        table = read_json(folder / "tune-em-decay.json")
        session.store.add(TUNE, {"model": model, "training_steps": trained_steps(folder), **table}, ("model", "rule"))
