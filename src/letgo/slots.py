"""Slots: a puzzle that is settled makes room for the next one, so a batch is full while any puzzle waits.

A puzzle is tried again before another one begins. Noise is keyed by puzzle, try and step, so no answer hangs on what
else is in the batch.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from letgo.answers import Ledger
from letgo.engines import Engine
from letgo.machine import cpu_threads
from letgo.rng import Noise
from letgo.samplers import Sampler
from letgo.sampling import BELIEF_TIMES, Walk, joined
from letgo.shapes import State, Symbols
from letgo.tasks import Problem

if TYPE_CHECKING:
    from letgo.solver import Solver

Rows = Int[Tensor, "rows"]


@dataclass(frozen=True)
class Tries:
    """Tries have come to an end: of which puzzles, with what board and state, after how many steps."""

    rows: Rows
    boards: Symbols
    valid: Bool[Tensor, "rows"]
    steps: Int[Tensor, "rows"]
    seconds: Float[Tensor, "rows"]
    x: State
    belief: Float[Tensor, "rows"] | None = None

    def __getitem__(self, index: Tensor) -> Tries:
        return Tries(
            self.rows[index],
            self.boards[index],
            self.valid[index],
            self.steps[index],
            self.seconds[index],
            self.x[index.to(self.x.device)],
            None if self.belief is None else self.belief[index],
        )


@dataclass(eq=False)
class Slots:
    """Slots run the tries of a ledger's puzzles by one sampler, so many at a time; `instance` and `seed` key their
    noise.

    With `looking`, a try ends at the first proposal that breaks no rule of the task; with `early`, at the first one
    that finds the board before it likely enough. Otherwise a try goes to its end.
    """

    solver: Solver
    engine: Engine
    sampler: Sampler
    ledger: Ledger
    instance: Int[Tensor, "puzzles"]
    seed: int
    tries: int
    size: int  # boards of a batch
    looking: bool
    early: bool = False
    gently: bool = False  # begin with one board, so that the first answer does not wait for many

    def __post_init__(self) -> None:
        self.problem, self.whole = self.ledger.problem, self.size
        self.rows = 0  # boards that went through the network, those that only fill a batch too
        self.finished = torch.zeros(len(self.problem), dtype=torch.bool)

    def run(self) -> Iterator[tuple[Tries, Bool[Tensor, "rows"]]]:
        """Settle all puzzles; yield the tries as they end, each with whether its board is the answer until now."""
        batch = (Looking if self.looking else Doubting if self.early else Blind)(self)
        again, waiting = torch.zeros(0, dtype=torch.long), 0
        while True:
            room = min(self.whole, 1 + 3 * int(self.finished.sum())) if self.gently else self.whole
            last = min(len(self.problem), waiting + max(0, room - len(batch) - len(again)))
            fresh, waiting = torch.cat([again, torch.arange(waiting, last)]), last
            if len(batch) + len(fresh) == 0:
                return
            with cpu_threads(self.solver.threads):
                ended = batch.advance(fresh)
            again = again[:0]
            for tries in ended:
                tries = tries[self.ledger.is_open(tries.rows)]
                if len(tries.rows) == 0:
                    continue
                calls = tries.steps * self.sampler.calls_per_step + batch.asks
                better = self.ledger.enter(tries.rows, tries.boards, tries.valid, calls, tries.seconds, tries.belief)
                more = self.ledger.is_open(tries.rows) & (self.ledger.tries[tries.rows] < self.tries)
                self.finished[tries.rows] = ~more
                again = torch.cat([again, tries.rows[more]])
                yield tries, better
            again = again[~self.finished[again]].unique()

    def room(self, boards: int) -> int:
        """Return how many rows a batch of so many boards has: where the engine pads, more."""
        if boards < self.size:
            self.size = self.engine.smaller(self.whole, self.size, boards, self.problem.solution.shape[1])
        return self.size if self.engine.pads else boards

    def inputs(self, who: Rows, attempt: Rows) -> tuple[Problem, Noise]:
        """Return these tries of these puzzles, filled up by the first one."""
        index, device = filling(len(who), self.room(len(who))), self.solver.device
        noise = Noise(self.seed, self.instance[who[index]].to(device), attempt[index].to(device))
        return self.problem[who[index]], noise


def filling(count: int, room: int) -> Int[Tensor, "filled"]:
    """Return rows that fill so much room: all of them, then the first one again and again."""
    index = torch.arange(max(count, room))
    return index.where(index < count, 0)


class Stepwise(ABC):
    """It is a batch whose boards are judged after every step; each has a step of its own."""

    asks = 0  # calls of the network at the end of a try

    def __init__(self, slots: Slots):
        self.slots, self.boards = slots, slots.engine.slots(slots.sampler)
        self.who = self.attempt = self.stay = torch.zeros(0, dtype=torch.long)
        self.seconds = torch.zeros(0, dtype=torch.float64)

    def __len__(self) -> int:
        return len(self.stay)

    @abstractmethod
    def judge(self, x0_hat: State, walk: Walk, done: Int[Tensor, "rows"]) -> tuple[Tries, Bool[Tensor, "rows"]]:
        """Say what every try would be if it ended here, and which of them do."""

    def seat(self, fresh: Rows) -> None:
        """Let those who stay go on, and fresh puzzles begin their next try."""
        slots, stay, count = self.slots, self.stay, len(self.stay)
        solver, device = slots.solver, slots.solver.device
        self.who = torch.cat([self.who[stay], fresh])
        self.attempt = torch.cat([self.attempt[stay], slots.ledger.tries[fresh]])
        self.seconds = torch.cat([self.seconds[stay], self.seconds.new_zeros(len(fresh))])
        problem, noise = slots.inputs(self.who, self.attempt)
        clues, context = solver.clues(problem, slots.sampler.soft_until), solver.context(problem)
        self.problem, mine = problem[: len(self.who)], slice(count, len(self.who))
        walks: list[Walk] = [self.boards.walk[stay.to(device)]] if count else []
        if len(fresh):
            told = None if context is None else context[mine]
            walks.append(slots.engine.begin(clues[mine], noise[mine], told).apart())
        self.boards.seat(clues, noise, context, joined(walks)[filling(len(self.who), len(problem)).to(device)])

    def advance(self, fresh: Rows) -> list[Tries]:
        started = time.perf_counter()
        if len(fresh) or len(self.stay) < len(self.who):
            self.seat(fresh)
        count = len(self.who)
        x0_hat = self.boards.step()[:count]
        self.slots.rows += len(self.boards.walk.x) * self.slots.sampler.calls_per_step
        walk = self.boards.walk[:count]
        tries, ends = self.judge(x0_hat, walk, torch.as_tensor(walk.done).cpu())
        self.seconds += (time.perf_counter() - started) / count
        self.stay, ended = (~ends).nonzero().flatten(), ends.nonzero().flatten()
        return [tries[ended]] if len(ended) else []


class Looking(Stepwise):
    """A try ends with the first proposal that breaks no rule of the task."""

    def judge(self, x0_hat: State, walk: Walk, done: Int[Tensor, "rows"]) -> tuple[Tries, Bool[Tensor, "rows"]]:
        solver, task, problem = self.slots.solver, self.slots.solver.task, self.problem
        boards = problem.with_clues(solver.read(x0_hat, problem))
        valid = task.validate(boards, problem)
        last = (~valid & (done == self.slots.sampler.steps)).nonzero().flatten()
        if len(last):  # no proposal was valid; the state that they led to may be
            boards[last] = solver.read(walk.x[last.to(walk.x.device)], problem[last])
            valid[last] = task.validate(boards[last], problem[last])
        ends = valid.clone()
        ends[last] = True
        return Tries(self.who, boards, valid, done, self.seconds, walk.x), ends


class Doubting(Stepwise):
    """A try ends with the first board that the next proposal finds likely. No rule of the task is looked at.

    The state between the two is that board under fresh noise, as where `belief` asks for a finished one; here the
    answer takes no call, for the next step needs it anyway.
    """

    def __init__(self, slots: Slots):
        super().__init__(slots)
        self.proposed = slots.problem.solution[:0]

    def seat(self, fresh: Rows) -> None:
        old = self.proposed[self.stay]
        super().seat(fresh)
        self.proposed = torch.cat([old, torch.zeros_like(self.problem.solution[: len(fresh)])])

    def judge(self, x0_hat: State, walk: Walk, done: Int[Tensor, "rows"]) -> tuple[Tries, Bool[Tensor, "rows"]]:
        solver, problem = self.slots.solver, self.problem
        belief = solver.likelihood(x0_hat, self.proposed, problem).where(done > 1, -math.inf)  # first there is no board
        boards = self.proposed = problem.with_clues(solver.read(x0_hat, problem))
        ends = (belief > self.slots.ledger.sure) | (done == self.slots.sampler.steps)
        valid = solver.task.validate(boards, problem)
        return Tries(self.who, boards, valid, done, self.seconds, x0_hat, belief), ends


class Blind:
    """It is a batch whose boards go to their end, all together.

    Rows that would be filled up take further tries of the same puzzles instead; a try after one that settles its puzzle
    counts for nothing.
    """

    def __init__(self, slots: Slots):
        self.slots = slots
        self.asks = len(BELIEF_TIMES) if slots.ledger.choosing else 0

    def __len__(self) -> int:
        return 0

    def advance(self, fresh: Rows) -> list[Tries]:
        slots, solver, started = self.slots, self.slots.solver, time.perf_counter()
        who, ahead = self.filled(fresh, slots.room(len(fresh)))
        problem, noise = slots.inputs(who, slots.ledger.tries[who] + ahead)
        clues, context, count = solver.clues(problem, slots.sampler.soft_until), solver.context(problem), len(who)
        x = slots.engine.finish(slots.sampler, clues, noise, context)
        slots.rows += len(x) * (slots.sampler.calls + self.asks)
        boards = solver.read(x, problem)
        belief = solver.belief(boards, problem, noise)[:count] if self.asks else None
        valid = solver.task.validate(boards[:count], problem[:count])
        steps = torch.full_like(who, slots.sampler.steps)
        taken = torch.full((count,), (time.perf_counter() - started) / len(fresh), dtype=torch.float64)
        tries = Tries(who, boards[:count], valid, steps, taken.where(ahead == 0, 0.0), x[:count], belief)
        return [tries[(ahead == level).nonzero().flatten()] for level in range(int(ahead.max()) + 1)]

    def filled(self, fresh: Rows, room: int) -> tuple[Int[Tensor, "filled"], Int[Tensor, "filled"]]:
        """Return the puzzles, and again with their later tries while there is room; and how many tries later."""
        who, ahead = [fresh], [torch.zeros_like(fresh)]
        for level in range(1, self.slots.tries):
            more = fresh[self.slots.ledger.tries[fresh] + level < self.slots.tries][: max(0, room - sum(map(len, who)))]
            if len(more) == 0:
                break
            who.append(more)
            ahead.append(torch.full_like(more, level))
        return torch.cat(who), torch.cat(ahead)
