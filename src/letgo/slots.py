"""Slots: a puzzle that is settled makes room for the next one, so a batch is full while any puzzle waits.

A puzzle is tried again before another one begins. When none waits, and the engine fills its batches up, free rows take
further tries of those that are open; a try counts when all earlier ones of its puzzle have ended without settling it.
Noise is keyed by puzzle, try and step, so no answer hangs on what else is in the batch.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from letgo.answers import Ledger
from letgo.engines import Engine
from letgo.machine import cpu_threads
from letgo.pinning import Clues
from letgo.rng import Noise
from letgo.samplers import Sampler
from letgo.sampling import BELIEF_TIMES, Walk, cell_likelihood, joined
from letgo.shapes import State, Symbols
from letgo.tasks import Problem

if TYPE_CHECKING:
    from letgo.solver import Solver

Rows = Int[Tensor, "rows"]
Begun = tuple[Int[Tensor, "new"], Int[Tensor, "new"]]  # puzzles whose tries begin, and the number of each try
Found = tuple[  # boards, whether they are valid, states, beliefs
    Int[Tensor, "rows cells"], Bool[Tensor, "rows"], Float[Tensor, "rows cells dim"], Float[Tensor, "rows"] | None
]


@dataclass(frozen=True)
class Tries:
    """Tries have come to an end: which tries of which puzzles, with what board and state, after how many steps."""

    rows: Rows
    attempt: Rows
    boards: Symbols
    valid: Bool[Tensor, "rows"]
    steps: Rows
    seconds: Float[Tensor, "rows"]
    x: State
    belief: Float[Tensor, "rows"] | None = None

    def __getitem__(self, index: Tensor) -> Tries:
        columns: dict[str, Any] = {
            name: None if part is None else part[index.to(part.device)] for name, part in vars(self).items()
        }
        return Tries(**columns)

    @staticmethod
    def cat(several: list[Tries]) -> Tries:
        parts = {name: [getattr(tries, name) for tries in several] for name in vars(several[0])}
        columns: dict[str, Any] = {name: None if part[0] is None else torch.cat(part) for name, part in parts.items()}
        return Tries(**columns)


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
        self.rows = 0  # boards that went through the network, those that only fill a batch or run ahead too
        self.begun = self.ledger.tries.clone()  # tries of each puzzle, those that run ahead too
        self.finished = torch.zeros(len(self.problem), dtype=torch.bool)
        self.held: list[Tries] = []  # they have ended, and an earlier try of their puzzle has not

    def run(self) -> Iterator[tuple[Tries, Bool[Tensor, "rows"]]]:
        """Settle all puzzles; yield the tries as they count, each with whether its board is the answer until now."""
        batch = (Looking if self.looking else Doubting if self.early else Blind)(self)
        again, waiting = torch.zeros(0, dtype=torch.long), 0
        while not bool(self.finished.all()):
            room = min(self.whole, 1 + 3 * int(self.finished.sum())) if self.gently else self.whole
            last = min(len(self.problem), waiting + max(0, room - len(batch) - len(again)))
            fresh, waiting = torch.cat([again, torch.arange(waiting, last)]), last
            with cpu_threads(self.solver.threads):
                self.held += batch.advance(fresh)
            again = again[:0]
            while (tries := self.due()) is not None:
                calls = tries.steps * self.sampler.calls_per_step + batch.asks
                better = self.ledger.enter(tries.rows, tries.boards, tries.valid, calls, tries.seconds, tries.belief)
                more = self.ledger.is_open(tries.rows) & (self.ledger.tries[tries.rows] < self.tries)
                self.finished[tries.rows] = ~more
                again = torch.cat([again, tries.rows[more]])
                yield tries, better
            again = again[~self.finished[again]].unique()

    def due(self) -> Tries | None:
        """Return the ended tries that are the next ones of their puzzles, and hold on to those that run ahead.

        A try that runs ahead of one that settles its puzzle is dropped.
        """
        if not self.held:
            return None
        ended = Tries.cat(self.held)
        ahead = (ended.attempt - self.ledger.tries[ended.rows]).where(self.ledger.is_open(ended.rows), -1)
        later, now = (ahead > 0).nonzero().flatten(), (ahead == 0).nonzero().flatten()
        self.held = [ended[later]] if len(later) else []
        return ended[now] if len(now) else None

    def room(self, boards: int) -> int:
        """Return how many rows a batch of so many boards has: where the engine pads, more."""
        if boards < self.size:
            self.size = self.engine.smaller(self.whole, self.size, boards, self.problem.solution.shape[1])
        return self.size if self.engine.pads else boards

    def begin(self, going: Int[Tensor, "going"], fresh: Int[Tensor, "fresh"]) -> Begun:
        """Begin the next tries of fresh puzzles; rows that would be filled up take further ones of all that are open.

        The puzzles with the fewest tries come first.
        """
        fresh = fresh[self.begun[fresh] == self.ledger.tries[fresh]]  # of others the next try is on its way
        who, attempt, count = [fresh], [self.begun[fresh]], len(going) + len(fresh)
        self.begun[fresh] += 1
        free = self.room(count) - count
        puzzles = torch.cat([going, fresh]).unique() if free else fresh
        while free and len(puzzles := puzzles[self.begun[puzzles] < self.tries]):
            begun = self.begun[puzzles]
            more = puzzles[begun == begun.min()][:free]
            who, attempt, free = [*who, more], [*attempt, self.begun[more]], free - len(more)
            self.begun[more] += 1
        return torch.cat(who), torch.cat(attempt)

    def inputs(self, who: Rows, attempt: Rows) -> tuple[Problem, Noise]:
        """Return these tries of these puzzles."""
        device = self.solver.device
        return self.problem[who], Noise(self.seed, self.instance[who].to(device), attempt.to(device))


def filling(count: int, room: int) -> Int[Tensor, "filled"]:
    """Return rows that fill so much room: all of them, then the first one again and again."""
    index = torch.arange(max(count, room))
    return index.where(index < count, 0)


@dataclass(frozen=True)
class Seats:
    """Seats are what the engine is told of its rows, on its device; a row that only fills the batch has a copy."""

    clues: Clues
    noise: Noise
    context: Tensor | None
    walk: Walk

    def __len__(self) -> int:
        return len(self.noise)

    def __getitem__(self, index: Tensor) -> Seats:
        context = None if self.context is None else self.context[index]
        return Seats(self.clues[index], self.noise[index], context, self.walk[index])

    @staticmethod
    def cat(several: list[Seats]) -> Seats:
        clues, noises = [seats.clues for seats in several], [seats.noise for seats in several]
        contexts = [seats.context for seats in several if seats.context is not None]
        values, given = torch.cat([each.values for each in clues]), torch.cat([each.given for each in clues])
        instance, attempt = (torch.cat([getattr(each, name) for each in noises]) for name in ("instance", "attempt"))
        return Seats(
            Clues(values, given, clues[0].soft_until),
            Noise(noises[0].seed, instance, attempt),
            torch.cat(contexts) if contexts else None,
            joined([seats.walk for seats in several]),
        )


class Stepwise(ABC):
    """It is a batch whose boards are judged after every step; each has a step of its own.

    What the engine needs of them stays on its device. Only boards that begin are sent there, and only ones that end
    come back.
    """

    asks = 0  # calls of the network at the end of a try

    def __init__(self, slots: Slots):
        self.slots, self.boards = slots, slots.engine.slots(slots.sampler)
        self.seats: Seats | None = None
        self.who = self.attempt = self.done = self.stay = torch.zeros(0, dtype=torch.long)
        self.seconds = torch.zeros(0, dtype=torch.float64)

    def __len__(self) -> int:
        return len(self.stay)

    @abstractmethod
    def ending(self, x0_hat: State) -> Rows:
        """Return the rows whose tries end with these proposals."""

    @abstractmethod
    def found(self, ended: Rows, x0_hat: State) -> Found:
        """Return what those tries have come to."""

    def seat(self, stay: Int[Tensor, "stay"], begun: Begun) -> Int[Tensor, "filled"]:
        """Let those who stay go on and tries begin; return where each row was, the new ones behind all others."""
        slots, (who, attempt) = self.slots, begun
        old = [] if self.seats is None else [replace(self.seats, walk=self.boards.walk)]
        rows = torch.cat([stay, sum(map(len, old)) + torch.arange(len(who))])
        index = rows[filling(len(rows), slots.room(len(rows)))].to(slots.solver.device)
        self.who, self.attempt = torch.cat([self.who[stay], who]), torch.cat([self.attempt[stay], attempt])
        self.done = torch.cat([self.done[stay], torch.zeros_like(who)])
        self.seconds = torch.cat([self.seconds[stay], self.seconds.new_zeros(len(who))])
        self.seats = Seats.cat([*old, *([self.newcomers(begun)] if len(who) else [])])[index]
        self.boards.seat(self.seats.clues, self.seats.noise, self.seats.context, self.seats.walk)
        return index

    def newcomers(self, begun: Begun) -> Seats:
        solver, (problem, noise) = self.slots.solver, self.slots.inputs(*begun)
        clues, context = solver.clues(problem, self.slots.sampler.soft_until), solver.context(problem)
        return Seats(clues, noise, context, self.slots.engine.begin(clues, noise, context).apart())

    def advance(self, fresh: Int[Tensor, "fresh"]) -> list[Tries]:
        started, slots, ledger = time.perf_counter(), self.slots, self.slots.ledger
        stay = self.stay[ledger.is_open(self.who[self.stay])]  # what runs ahead in a puzzle that is settled ends
        begun = slots.begin(self.who[stay], fresh)
        if len(begun[0]) or len(stay) < len(self.who):
            self.seat(stay, begun)
        x0_hat = self.boards.step()
        self.done += 1
        slots.rows += len(x0_hat) * slots.sampler.calls_per_step
        ended = self.ending(x0_hat)
        goes_on = torch.ones_like(self.who, dtype=torch.bool)
        goes_on[ended] = False
        self.stay = goes_on.nonzero().flatten()
        found = self.found(ended, x0_hat) if len(ended) else None
        counts = self.attempt == ledger.tries[self.who]
        self.seconds += counts * ((time.perf_counter() - started) / int(counts.sum()))
        if found is None:
            return []
        boards, valid, x, belief = found
        who, attempt, done, seconds = (part[ended] for part in (self.who, self.attempt, self.done, self.seconds))
        return [Tries(who, attempt, boards, valid, done, seconds, x, belief)]


class Looking(Stepwise):
    """A try ends with the first proposal that breaks no rule of the task."""

    def ending(self, x0_hat: State) -> Rows:
        solver, task, problem = self.slots.solver, self.slots.solver.task, self.slots.problem[self.who]
        boards = problem.with_clues(solver.read(x0_hat[: len(problem)], problem))
        valid = task.validate(boards, problem)
        last = (~valid & (self.done == self.slots.sampler.steps)).nonzero().flatten()
        ends = valid.clone()
        if len(last):  # no proposal was valid; the state that they led to may be
            x = self.boards.walk.x
            boards[last] = solver.read(x[last.to(x.device)], problem[last])
            valid[last] = task.validate(boards[last], problem[last])
            ends[last] = True
        self.proposed, self.valid = boards, valid
        return ends.nonzero().flatten()

    def found(self, ended: Rows, x0_hat: State) -> Found:
        return self.proposed[ended], self.valid[ended], self.boards.walk.x[ended.to(x0_hat.device)], None


class Doubting(Stepwise):
    """A try ends with the first board that the next proposal finds likely. No rule of the task is looked at.

    The state between the two is that board under fresh noise, as where `belief` asks for a finished one; here the
    answer takes no call, for the next step needs it anyway.
    """

    def __init__(self, slots: Slots):
        super().__init__(slots)
        self.proposed = slots.solver.codec.encode(slots.problem.solution[:0].to(slots.solver.device))

    def seat(self, stay: Int[Tensor, "stay"], begun: Begun) -> Int[Tensor, "filled"]:
        index = super().seat(stay, begun)
        none = self.proposed.new_zeros(len(begun[0]), *self.proposed.shape[1:])
        self.proposed = torch.cat([self.proposed, none])[index]
        return index

    def ending(self, x0_hat: State) -> Rows:
        assert self.seats is not None
        codec, slots = self.slots.solver.codec, self.slots
        likelihood = cell_likelihood(x0_hat, self.proposed, self.seats.clues.given).sum(1).cpu()[: len(self.who)]
        self.belief = likelihood.where(self.done > 1, -math.inf)  # first there is no board
        self.proposed = codec.encode(codec.decode(x0_hat))
        return ((self.belief > slots.ledger.sure) | (self.done == slots.sampler.steps)).nonzero().flatten()

    def found(self, ended: Rows, x0_hat: State) -> Found:
        solver, problem, x = self.slots.solver, self.slots.problem[self.who[ended]], x0_hat[ended.to(x0_hat.device)]
        boards = problem.with_clues(solver.read(x, problem))
        return boards, solver.task.validate(boards, problem), x, self.belief[ended]


class Blind:
    """It is a batch whose boards go to their end, all together."""

    def __init__(self, slots: Slots):
        self.slots = slots
        self.asks = len(BELIEF_TIMES) if slots.ledger.choosing else 0

    def __len__(self) -> int:
        return 0

    def advance(self, fresh: Int[Tensor, "fresh"]) -> list[Tries]:
        slots, solver, started = self.slots, self.slots.solver, time.perf_counter()
        who, attempt = slots.begin(fresh[:0], fresh)
        count, index = len(who), filling(len(who), slots.room(len(who)))
        problem, noise = slots.inputs(who[index], attempt[index])
        clues, context = solver.clues(problem, slots.sampler.soft_until), solver.context(problem)
        x = slots.engine.finish(slots.sampler, clues, noise, context)
        slots.rows += len(x) * (slots.sampler.calls + self.asks)
        boards = solver.read(x, problem)
        belief = solver.belief(boards, problem, noise)[:count] if self.asks else None
        valid = solver.task.validate(boards[:count], problem[:count])
        steps = torch.full_like(who, slots.sampler.steps)
        taken = torch.full((count,), (time.perf_counter() - started) / len(fresh), dtype=torch.float64)
        taken = taken.where(attempt == slots.ledger.tries[who], 0.0)
        return [Tries(who, attempt, boards[:count], valid, steps, taken, x[:count], belief)]
