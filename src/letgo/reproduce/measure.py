"""Measure what is missing. A model is loaded once and goes through all its needs, so it is compiled once."""

from __future__ import annotations

import hashlib
import json
import shlex
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, cast

from letgo import __version__
from letgo.config import Config
from letgo.data.source import source_of
from letgo.errors import LetgoError
from letgo.evaluation import evaluate
from letgo.machine import device_name
from letgo.metrics import Rate
from letgo.presets import PRESETS
from letgo.reproduce.compare import ALIKE
from letgo.reproduce.coverage import ambiguous_puzzles, coverage_report, solutions_report
from letgo.reproduce.paper import TABLES
from letgo.reproduce.plan import TRIES, Limits, Need, merged
from letgo.reproduce.store import COVERAGE, SOLUTIONS, SOLVE, TUNE, Report, Store, passes, sampler, seeded, size
from letgo.runs import is_folder, locate, read_json, shipped
from letgo.samplers import rule_kind
from letgo.solver import Solver, load
from letgo.tasks import TASKS, Problem
from letgo.tasks.sudoku import Sudoku

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
        own = PRESETS.get(config.task + ("-baseline" if config.objective == "simple" else ""))
        if own is None or any(getattr(config, key) != getattr(own, key) for key in ALIKE):
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

    def leave_out(self, what: str, why: str) -> None:
        if what not in self.skipped:
            self.skipped[what] = why


def data_files(given: list[str]) -> dict[str, str]:
    """--data TASK=FILE; without a task it is the one that counts on its file alone. Fetched ones lie in ./data."""
    files: dict[str, str] = {}
    [filed] = {column.task for table in TABLES.values() for column in table.columns if column.file}
    for text in given:
        task, equals, path = text.partition("=")
        known = bool(equals) and task in TASKS
        files[task if known else filed] = path if known else text
    if filed not in files and (Path("data") / filed).is_dir():
        files[filed] = str(Path("data") / filed)
    for task, path in files.items():
        if path != "hub" and not Path(path).exists():
            raise LetgoError(f"--data {path}: no such file or folder for {task}")
    return files


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


def settings_for(session: Session, solver: Solver, need: Need, where: str) -> dict[str, float] | None:
    """The settings a rule will use; None, noted, where it has not been tuned."""
    if rule_kind(need.rule).takes and not solver.tuned(need.rule, need.regime or None):
        data = " --data FOLDER" if need.file else ""
        how = "as shipped" if where in shipped() else f"`letgo tune {where} --rule {need.rule}{data}`"
        session.leave_out(f"{where}, {need.rule}", f"not tuned yet: {how}")
        return None
    return solver.sampler(need.rule, regime=need.regime or None).settings


@dataclass(frozen=True)
class Kind:
    """How one kind of report is made, where it is kept, and what tells it from others."""

    run: Callable[[Session, Solver, Need, int, Advance], Report]
    same: tuple[str, ...] = ("model", "regime", "rule", "steps", "seed")
    file: str | None = None  # None: a file for each model
    command: str = ""  # the `letgo reproduce` that repeats it; of "" it is `letgo evaluate`


def evaluate_boards(session: Session, solver: Solver, need: Need, seed: int, show: Advance) -> Report:
    problem = session.problem(solver, need.regime, need.count, seed)
    sampler = solver.sampler(need.rule, need.steps, need.regime)
    return evaluate(solver, problem, sampler, need.passes, seed, session.batch, show).as_dict()


def solve_boards(session: Session, solver: Solver, need: Need, seed: int, show: Advance) -> Report:
    """Verified solving: early exit at a valid proposal, up to ten tries, and the network calls it took."""
    problem = session.problem(solver, need.regime, need.count, seed)
    answers = solver.solve(problem, need.rule, need.steps, TRIES, seed, True, session.batch, show)
    solved = sum(a.solved for a in answers)
    return {
        "tries": TRIES,
        "puzzles": need.count,
        "solved": solved,
        "share": Rate(solved, need.count).as_dict(),
        "needed_more_than_one_try": sum(a.tries > 1 for a in answers),
        "mean_calls": statistics.fmean(a.calls for a in answers),
        "median_calls": statistics.median(a.calls for a in answers),
    }


def cover_boards(session: Session, solver: Solver, need: Need, seed: int, show: Advance) -> Report:
    return coverage_report(solver, need.rule, need.count, seed, session.batch, show)


def find_solutions(session: Session, solver: Solver, need: Need, seed: int, show: Advance) -> Report:
    puzzles, solutions = ambiguous_puzzles(cast(Sudoku, solver.task), need.count, seed)
    return solutions_report(solver, puzzles, solutions, need.passes, need.rule, seed, session.batch, show)


_SOLVED, _COUNTED = ("model", "regime", "rule", "steps", "tries", "seed"), ("model", "rule", "seed")
KINDS = {
    "evaluate": Kind(evaluate_boards),
    SOLVE: Kind(solve_boards, _SOLVED, SOLVE, "solve --tasks {need.task} --count {need.count}"),
    COVERAGE: Kind(cover_boards, _COUNTED, COVERAGE, "table15 --rules {need.rule} --count {need.count}"),
    SOLUTIONS: Kind(find_solutions, _COUNTED, SOLUTIONS, "solutions --count {need.count}"),
}


def measure(session: Session, need: Need, seed: int, where: str) -> None:
    """One report, unless it is there already."""
    if need.at is not None and (Path(where) / "checkpoints" / f"{need.at}.safetensors").is_file():
        where = f"{where}@{need.at}"
    name, kind, solver = seeded(need.model, seed), KINDS[need.kind], session.solver(where)
    used = settings_for(session, solver, need, where)
    if used is None:
        return
    facts = {"settings": used, **about(session, solver, where)}
    known = {"model": name, "regime": need.regime, "rule": need.rule, "steps": need.steps, "seed": seed, "tries": TRIES}
    file, key = kind.file or name, {k: known[k] for k in kind.same}
    entry = (file, *key.values())
    if not session.force and any(serves(session.store, r, need, key, facts) for r in session.store.reports(file)):
        if entry not in session.made:  # what was measured just now is no news
            session.held.add(entry)
        return
    session.made.add(entry)
    command = command_of(session, need, seed, where, facts)
    if session.dry_run:
        session.say(command)
        return
    show = session.progress(f"{name} {need.regime}, {need.rule}: sampled")
    started, own = time.perf_counter(), {k: v for k, v in known.items() if k != "tries" and v != ""}
    scores = kind.run(session, solver, need, seed, show)
    more = {"seconds": round(time.perf_counter() - started, 3), "device": device_name(solver.device)}
    report = {**own, "task": solver.task.name, **more, "version": __version__, **scores, **facts, "command": command}
    session.store.add(file, report, kind.same)
    session.say(line(report))


def command_of(session: Session, need: Need, seed: int, where: str, facts: Report) -> str:
    """What repeats a report. Settings are named: another copy of the run may lack the file that held them."""
    how = KINDS[need.kind].command
    if not how:
        words: list[Any] = ["evaluate", where, "--rule", need.rule, "--regime", need.regime, "--steps", need.steps]
        words += ["--count", need.count, "--seed", seed, *(["--passes", need.passes] if need.passes > 1 else [])]
        words += [w for k, v in facts["settings"].items() for w in (f"--{k.replace('_', '-')}", f"{v:g}")]
    else:
        words = ["reproduce", *how.format(need=need).split(), *(["--quick"] if session.limits.quick else [])]
        words += ["--models", session.models] if session.models and where not in shipped() else []
        words += ["--also", need.model] if need.model in session.also else []
    if "data" in facts:  # the file's own name, its folder left open; a dry run shows what was given
        given = session.data[need.task]
        given = given if session.dry_run or given == "hub" else f"FOLDER/{facts['data']['file']}"
        words += ["--data", f"{need.task}={given}" if how else given]
    words += ["--device", session.device] if session.device != "auto" else []
    words += ["--batch", session.batch] if session.batch else []
    words += ["--plain"] if session.plain else []
    words += ["--threads", session.threads] if session.threads != 1 else []
    return shlex.join(["letgo", *map(str, words)])


def serves(store: Store, report: Report, need: Need, key: Report, facts: Report) -> bool:
    """Whether a report is the one that is needed, of this model, with these settings."""
    if sampler(report) or any(report.get(k) != v for k, v in key.items()):
        return False
    enough = size(report) >= need.count and need.passes in (1, passes(report))
    return enough and not store.stale(report, facts)


def line(report: Report) -> str:
    """A report in a few words."""
    score = report.get("share") or report.get("share_found") or report["validity"]
    text = f"{report['model']} {report.get('regime', '')} {report['rule']}: {score['value']:.4f}"
    text += f" [{score['low']:.4f}, {score['high']:.4f}] n={score['n']}"
    if "pass_at_k" in report and passes(report) > 1:
        text += f", pass@{passes(report)} {report['pass_at_k']['value']:.4f}"
    return f"{text}, {report['seconds']:.1f} s"


def shipped_instead() -> tuple[str, ...]:
    """Shipped recipes of tasks whose own model is not shipped: they are measured unasked."""
    tasks = {name: str(read_json(locate(name)[0] / "config.json")["task"]) for name in shipped()}
    return tuple(name for name, task in tasks.items() if task not in tasks)


def with_others(session: Session, needs: list[Need]) -> list[Need]:
    """For each other recipe the needs of the paper's model that it stands for."""
    pairs = [(name, session.stands_for(name)) for name in session.also]
    shared = [need for need in needs if need.kind in ("evaluate", SOLVE)]
    return [*needs, *(replace(need, model=name) for name, own in pairs for need in shared if need.model == own)]


def measure_all(session: Session, needs: list[Need]) -> None:
    """All needs, model by model and seed by seed; some of them are of seed 0 alone."""
    needs = with_others(session, session.limits.of(needs))
    parts = {seed: merged(need for need in needs if seed == 0 or not need.first) for seed in session.seeds}
    for model in dict.fromkeys(need.model for need in merged(needs)):
        for seed, part in parts.items():
            mine = [need for need in part if need.model == model]
            if any(need.file and need.task not in session.data for need in mine):
                why = f"its test file is not at hand: --data FILE, or `letgo data fetch {mine[0].task}`"
                session.leave_out(mine[0].task, why)
                continue
            where = session.find(model, seed) if mine else None
            for need in mine if where is not None else ():
                measure(session, need, seed, str(where))


def collect_tuning(session: Session, needs: list[Need]) -> None:
    """Table 5: what tuning chose, copied beside the other results."""
    for need in replace(session.limits, rules=None, quick=False).of(needs):
        where = session.find(need.model, 0)
        if where is None or settings_for(session, session.solver(where), need, where) is None or session.dry_run:
            continue
        folder, _ = locate(where)
        table = {"model": need.model, "training_steps": trained_steps(folder)}
        session.store.add(TUNE, table | read_json(folder / f"tune-{need.rule}.json"), ("model", "rule"))
