"""What a request asks of the sampler: an answer, two trajectories, a race of many seeds, or tries until it is sure."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from letgo.answers import Ledger
from letgo.app.frames import View, explain, frame
from letgo.app.limits import BACKLOG
from letgo.estimates import rate
from letgo.evaluation import Doubt
from letgo.rng import Noise
from letgo.samplers import Sampler
from letgo.sampling import BELIEF_TIMES, diverged
from letgo.shapes import Symbols
from letgo.solver import Solver, identities
from letgo.tasks import Problem

Emit = Callable[[str, dict[str, Any]], None]
PROGRESS_SECONDS = 0.2  # between two notes on how far a race has come
YOUNG_SECONDS, GROWN_SECONDS = (
    0.1,
    1.0,
)  # of sampling: until the first a job is a newcomer, from the second all are alike


@dataclass(eq=False)
class Lane:
    """A Lane is one trajectory of a job, from noise to data."""

    job: Job
    side: int
    seed: int
    attempt: int = 0
    seconds: float = 0.0
    open: bool = True

    number: int = 0  # of the job's puzzles

    @property
    def solver(self) -> Solver:
        return self.job.solvers[self.side]

    @property
    def problem(self) -> Problem:
        problem = self.job.problem
        return problem if len(problem) == 1 else problem[self.number : self.number + 1]

    @property
    def sampler(self) -> Sampler:
        return self.job.samplers[self.side]

    @property
    def key(self) -> tuple[Any, ...]:
        """Lanes of one key can share a batch: same network, sampler and board shape."""
        return id(self.solver), self.sampler, self.job.problem.solution.shape[1]


class Job(ABC):
    """A Job is one request. `emit` may be called from the worker's thread; after `cancel` nothing more is emitted."""

    def __init__(self, solvers: Sequence[Solver], problem: Problem, samplers: Sequence[Sampler]):
        self.solvers, self.problem, self.samplers, self.steps = solvers, problem, samplers, samplers[0].steps
        self.pending: deque[Lane] = deque()
        self.client = ""  # whose share of the time it takes
        self.batches, self.served = 0, 0.0  # under way for this job; CPU seconds of sampling that it has had
        self.emitted = self.taken = 0  # events, counted by the worker and by whoever sends them
        self.finished = self.cancelled = False
        self.solved = 0  # valid boards among its answers
        self.status = 200  # of the answer, where it is one
        self.emit: Emit = lambda name, data: None

    @property
    def over(self) -> bool:
        return self.finished or self.cancelled

    @property
    def choked(self) -> bool:
        """Say whether its client does not read; nothing more is computed until it does."""
        return self.emitted - self.taken >= BACKLOG

    @property
    def young(self) -> bool:
        return self.served < YOUNG_SECONDS

    @property
    def weight(self) -> float:
        """Return its share beside others of its client: the less the longer it has run, to a tenth of the first."""
        return 1 / min(max(self.served, YOUNG_SECONDS), GROWN_SECONDS)

    def cancel(self) -> None:
        self.cancelled = True
        self.pending.clear()

    def fail(self, words: str, status: int = 503) -> None:
        if not self.over:
            self.finished, self.status = True, status
            self.emit("error", {"detail": words})

    @abstractmethod
    def step(self, lane: Lane, view: View, row: int) -> None:
        """Take note of a step; this may close the lane."""

    @abstractmethod
    def last(self, lane: Lane, view: View, row: int) -> None:
        """Take note of the last step of a lane that is still open; `step` has seen it too."""


class SolveJob(Job):
    """It works like `Solver.solve` for one puzzle: stop at the first valid proposal, then try again."""

    def __init__(self, solver: Solver, problem: Problem, sampler: Sampler, tries: int, seed: int):
        super().__init__([solver], problem, [sampler])
        self.solver = solver
        self.tries, self.calls, self.seconds = tries, 0, 0.0
        self.pending.append(Lane(self, 0, seed))

    def step(self, lane: Lane, view: View, row: int) -> None:
        if self.solver.task.has_rules and bool(view.proposal.valid[row]):
            self._close(lane, view, row, view.proposal.symbols)

    def last(self, lane: Lane, view: View, row: int) -> None:
        self._close(lane, view, row, view.state.symbols if bool(view.state.valid[row]) else None)

    def _close(self, lane: Lane, view: View, row: int, boards: Any | None) -> None:
        lane.open = False
        self.calls += view.steps[row] * lane.sampler.calls_per_step
        self.seconds += lane.seconds
        if boards is None and lane.attempt + 1 < self.tries:
            self.pending.append(Lane(self, 0, lane.seed, lane.attempt + 1))
            return
        self.finished, self.solved = True, int(boards is not None)
        task = self.solver.task
        answer = {
            "puzzle": task.format_clues(self.problem)[0],
            "solved": boards is not None,
            "board": None if boards is None else task.format(boards[row : row + 1], self.problem)[0],
            "tries": lane.attempt + 1,
            "calls": self.calls,
            "seconds": round(self.seconds, 4),
        }
        self.emit("answer", answer)


class TrajectoryJob(Job):
    """It shows every step of every side. The task's rules are looked at, to be shown, but never change the run."""

    def __init__(
        self,
        solvers: Sequence[Solver],
        problem: Problem,
        samplers: Sequence[Sampler],
        seed: int,
        probabilities: bool = False,
    ):
        super().__init__(solvers, problem, samplers)
        self.probabilities = probabilities
        self.first_valid: list[int | None] = [None] * len(samplers)
        self.left = len(samplers)
        self.pending.extend(Lane(self, side, seed) for side in range(len(samplers)))

    def step(self, lane: Lane, view: View, row: int) -> None:
        if self.first_valid[lane.side] is None and bool(view.proposal.valid[row]):
            self.first_valid[lane.side] = view.steps[row]
        if not bool(view.state.x[row].isfinite().all()):
            return self.fail(str(diverged(view.steps[row])), status=422)
        self.emit("frame", {"side": lane.side, **frame(view, row, self.probabilities)})

    def last(self, lane: Lane, view: View, row: int) -> None:
        lane.open, valid = False, bool(view.state.valid[row])
        self.left -= 1
        self.solved += valid
        verdict = {
            "side": lane.side,
            "valid": valid,
            "violations": int(view.state.violations[row].sum()),
            "first_valid": self.first_valid[lane.side],
            "steps": self.steps,
            "calls": lane.sampler.calls,
            "seconds": round(lane.seconds, 4),
            **explain(view, row),
        }
        self.finished = self.left == 0
        self.emit("verdict", verdict)
        if self.finished:
            self.emit("done", {})


class RaceJob(Job):
    """It scores final states of one puzzle from many seeds, or of many puzzles from one, as `letgo evaluate` does."""

    def __init__(
        self,
        solvers: Sequence[Solver],
        problem: Problem,
        samplers: Sequence[Sampler],
        seed: int,
        count: int,
        vary: str = "seeds",
    ):
        super().__init__(solvers, problem, samplers)
        self.many = vary == "puzzles"
        starts = [(seed, i) if self.many else ((seed + i) % 2**32, 0) for i in range(count)]
        sides = range(len(samplers))
        self.pending.extend(Lane(self, side, s, number=number) for s, number in starts for side in sides)
        self.left = len(self.pending)
        self.total, self.walked, self.noted = self.left * self.steps, 0, time.monotonic()
        self.wins, self.runs = [0] * len(samplers), [0] * len(samplers)

    def step(self, lane: Lane, view: View, row: int) -> None:
        self.walked += 1
        if time.monotonic() - self.noted > PROGRESS_SECONDS:
            self.noted = time.monotonic()
            self.emit("progress", {"done": self.walked, "total": self.total})

    def last(self, lane: Lane, view: View, row: int) -> None:
        lane.open, side, valid = False, lane.side, bool(view.state.valid[row])
        self.left -= 1
        self.wins[side] += valid
        self.solved += valid
        self.runs[side] += 1
        share = rate(self.wins[side], self.runs[side]).as_dict()
        self.finished = self.left == 0
        result = {"side": side, "seed": lane.seed, "valid": valid, "wins": self.wins[side], **share}
        if self.many:
            result |= {"number": lane.number, "puzzle": lane.solver.task.format_clues(lane.problem)[0]}
        self.emit("result", result)
        if self.finished:
            self.emit("done", {})


class SureJob(Job):
    """Like `Solver.solve` without `verify`, it tries again until the network is sure of its board. No rule decides."""

    def __init__(self, solver: Solver, problem: Problem, sampler: Sampler, tries: int, seed: int, doubt: Doubt):
        super().__init__([solver], problem, [sampler])
        self.solver, self.tries, self.best = solver, tries, 0
        self.early, self.proposed = doubt.early, problem.solution
        self.ledger = Ledger(problem, True, doubt.sure)
        self.pending.append(Lane(self, 0, seed))

    def step(self, lane: Lane, view: View, row: int) -> None:
        if not bool(view.state.x[row].isfinite().all()):
            return self.fail(str(diverged(view.steps[row])), status=422)
        if not self.early:
            return self.emit("frame", {"side": 0, **frame(view, row)})
        asked, self.proposed = self.proposed, view.proposal.symbols[row : row + 1]
        cells = self.solver.cell_likelihood(view.x0_hat[row : row + 1], asked, self.problem)
        steps, sure = view.steps[row], bool(cells.sum(1) > self.ledger.sure)
        over = steps == lane.sampler.steps or (steps > 1 and sure)  # before the first step there is no board
        shown = replace(view, x=view.proposal.x, times=[0.0] * len(view.times)) if over else view
        self.emit("frame", {"side": 0, **frame(shown, row)})
        if over:
            self.ends(lane, self.proposed, view.proposal.valid[row : row + 1], cells, steps)

    def last(self, lane: Lane, view: View, row: int) -> None:
        board, started = view.state.symbols[row : row + 1], time.perf_counter()
        instance = identities(self.problem).to(self.solver.device)
        cells = self.solver.cell_belief(board, self.problem, Noise(lane.seed, instance, torch.zeros_like(instance)))
        lane.seconds += time.perf_counter() - started
        self.ends(lane, board, view.state.valid[row : row + 1], cells, lane.sampler.calls + len(BELIEF_TIMES))

    def ends(self, lane: Lane, board: Symbols, valid: Tensor, cells: Tensor, calls: int) -> None:
        """Tell that a try is over, with what each cell has in the likelihood of its board."""
        lane.open, number, belief = False, lane.attempt + 1, cells.sum(1)
        if bool(belief > self.ledger.belief):
            self.best = number
        spent = torch.tensor([lane.seconds], dtype=torch.float64)
        self.ledger.enter(torch.tensor([0]), board, valid, torch.tensor([calls]), spent, belief)
        sure = len(self.ledger.open()) == 0
        told = {"number": number, "belief": round(float(belief), 4), "mark": round(self.ledger.sure, 4), "sure": sure}
        self.emit("try", {**told, "cells": [round(cell, 3) for cell in cells[0].tolist()], "calls": calls})
        if not sure and number < self.tries:
            self.pending.append(Lane(self, 0, lane.seed, lane.attempt + 1))
            return
        [answer] = self.ledger.answers(self.solver.task)
        self.finished, self.solved = True, int(answer.solved)
        self.emit("choice", {**answer.as_dict(), "number": self.best, "sure": sure})
        self.emit("done", {})
