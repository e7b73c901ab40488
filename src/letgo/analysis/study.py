"""What an analysis is given: a model, instances and the common settings; and what every report says beside its own."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from letgo import __version__
from letgo.analysis import Analysis, Report
from letgo.data.files import write_atomically
from letgo.data.source import source_of
from letgo.errors import LetgoError
from letgo.kernels import Transition
from letgo.machine import cpu_threads, device_name
from letgo.pinning import Clues
from letgo.rng import Noise
from letgo.samplers import Sampler, Unfit
from letgo.sampling import starting_state
from letgo.shapes import State, Symbols, Time
from letgo.solver import Solver
from letgo.tasks import Problem
from letgo.tasks.task import solved

SPLITS = ("valid", "test")
Advance = Callable[[float | int, int], None]  # how many are done, and of how many


@dataclass(frozen=True)
class Wish:
    """A Wish holds what is asked of an analysis; None is the analysis's, the model's or the task's own choice."""

    count: int | None = None
    seed: int = 0
    steps: int | None = None
    regime: str | None = None
    data: str | None = None
    split: str = "valid"  # curves and choices are made on validation instances
    batch: int | None = None
    quick: bool = False


@dataclass
class Study:
    """A Study is a model with instances to study it on. Without a model, `count` is what there is to draw."""

    wish: Wish
    count: int
    model: Solver | None = None
    instances: Problem | None = None
    progress: Callable[[str], Advance] = lambda label: lambda done, total: None
    samplers: dict[str, Sampler] = field(default_factory=dict)  # those that were asked for, by name of their rule

    @property
    def solver(self) -> Solver:
        assert self.model is not None, "this analysis has no model"
        return self.model

    @property
    def problem(self) -> Problem:
        assert self.instances is not None, "this analysis has no instances"
        return self.instances

    @property
    def seed(self) -> int:
        return self.wish.seed

    @property
    def split(self) -> str:
        """Return the split, which is the regime for some tasks."""
        return self.wish.regime if self.wish.regime in SPLITS else self.wish.split

    @property
    def steps(self) -> int:
        return self.solver.steps(self.wish.steps)

    def sampler(self, rule: str) -> Sampler:
        """Return a rule as tuned for the regime; the report names its settings."""
        self.samplers[rule] = self.solver.sampler(rule, self.wish.steps, self.wish.regime)
        return self.samplers[rule]

    def pieces(self, problem: Problem | None = None) -> Iterator[Piece]:
        """Yield the instances in batches that the device takes; noise is keyed as `letgo evaluate` keys it."""
        problem = self.problem if problem is None else problem
        number = torch.arange(len(problem)) if problem.number is None else problem.number
        number = number.to(self.solver.device)
        noise, done = Noise(self.seed, number, torch.zeros_like(number)), 0
        with cpu_threads(self.solver.threads):
            for count, part, part_noise in self.solver.chunks(problem, noise, self.wish.batch):
                yield Piece(self.solver, part, part_noise, count, done)
                done += count


@dataclass(frozen=True)
class Piece:
    """A Piece is a batch of instances on the model's device; a padding engine repeats some after the first `count`."""

    solver: Solver
    problem: Problem
    noise: Noise
    count: int
    start: int  # how many instances came before

    @property
    def clues(self) -> Clues:
        return self.solver.clues(self.problem)

    @property
    def rows(self) -> Problem:
        """Return the true instances."""
        return self.problem[: self.count]

    def transitions(self, sampler: Sampler) -> Iterator[tuple[Transition, State]]:
        """Yield every step of the reverse loop as its rule saw it, and the state that it led to, pinned."""
        solver, clues, grid = self.solver, self.solver.clues(self.problem, sampler.soft_until), sampler.times().tolist()
        x_t = starting_state(self.noise, clues, solver.path)
        walk = solver.sample_engine.walk(sampler, clues, self.noise, solver.context(self.problem))
        for t, snapshot in zip(grid, walk, strict=False):
            times = (torch.full((1, 1, 1), time, device=x_t.device) for time in (t, snapshot.t))
            yield Transition(solver.path, not_again, x_t, snapshot.x0_hat.float(), *times), snapshot.x
            x_t = snapshot.x

    def propose(self, x_t: State, t: Time) -> State:
        """Return x0_hat of states that no sampler made; they are pinned first, as all states are."""
        denoise = self.solver.sample_engine.denoise(self.solver.context(self.problem))
        with torch.no_grad():
            out = denoise(self.clues.pin(x_t), t)
        return (out[0] if isinstance(out, tuple) else out).float()

    def decode(self, x: State) -> Symbols:
        """Return D(x) on the open cells of the true instances, the clues elsewhere; on the CPU."""
        return self.rows.with_clues(self.solver.codec.decode(x)[: self.count].cpu())

    def broken(self, x: State) -> Tensor:
        """Return how many cells of each decoded board take part in a broken rule; 0 is a valid board."""
        return self.judge(self.decode(x))

    def judge(self, boards: Symbols) -> Tensor:
        return self.solver.task.violations(boards, self.rows).sum(1).cpu()


def write_report(path: Path, report: Report) -> None:
    """Write JSON to read and to compare: an entry a line, but a list of numbers on one."""
    text = re.sub(
        r"\[\s+([-+.\deE,\snul]*?)\s+\]", lambda m: f"[{' '.join(m[1].split())}]", json.dumps(report, indent=2)
    )
    write_atomically(path, f"{text}\n")


def solutions(study: Study) -> None:
    """Refuse puzzles without their answers: there is nothing to noise."""
    if not solved(study.problem, study.solver.task):
        raise LetgoError("noised solutions need solutions; give --data a file that has the answers, or leave it out")


def not_again(x: State, t: Tensor) -> State:
    raise LetgoError("a rule that calls the network again cannot be studied so; take another")


def run_analysis(
    analysis: Analysis,
    solver: Solver | None,
    wish: Wish,
    progress: Callable[[str], Advance] = lambda label: lambda done, total: None,
) -> Report:
    """Draw the instances, run the analysis, and say in its report what it was run on."""
    count = wish.count or (analysis.quick if wish.quick else analysis.count)
    started, study = time.perf_counter(), Study(wish, count, solver, None, progress)
    about: Report = {"analysis": analysis.name, "shows": analysis.shows, "paper": analysis.paper}
    if solver is not None:
        if not solver.task.has_rules:
            raise LetgoError(f"{solver.task.name} has no rules to judge a board by; give --valid FILE.py:FUNCTION")
        source = source_of(solver.task, wish.data)
        split = study.split
        regime = split if split in source.regimes else wish.regime or source.regimes[0]
        solver.on_split(split)
        study.instances, data = source.draw(split, wish.regime, count, wish.seed), source.identity(split)
        about |= {"model": solver.config.name, "task": solver.task.name, "objective": solver.config.objective}
        about |= {"regime": regime, "split": split, "data": data, "steps": study.steps}
    try:
        found = analysis.run(study)
    except Unfit as error:
        reason = str(error).partition(";")[0]
        raise LetgoError(f"{analysis.name}: {reason}; analyse another model, or take another of --list") from None
    settings = {rule: sampler.settings for rule, sampler in study.samplers.items()}
    where: dict[str, Any] = {} if solver is None else {"settings": settings, "precision": solver.sample_precision}
    return {
        **about,
        "n": count if study.instances is None else len(study.instances),
        "seed": wish.seed,
        **where,
        **found,
        "device": "cpu" if solver is None else device_name(solver.device),
        "seconds": round(time.perf_counter() - started, 3),
        "version": __version__,
    }
