"""One thread owns the networks. It forms batches from whatever waits, and gives out time step by step.

Whoever is new has most of the time, however many long jobs there are; what is left is shared by clients, then by jobs.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from letgo.app.frames import View
from letgo.app.jobs import Job, Lane
from letgo.app.limits import Busy
from letgo.app.metrics import BOARDS, Metrics
from letgo.errors import LetgoError
from letgo.rng import Noise
from letgo.sampling import Walk
from letgo.shapes import State
from letgo.solver import Solver, identities
from letgo.tasks import Problem

BATCHES = 4  # of newcomers under way at once; those who wait for one to end go together
BATCHES_PER_JOB = 2
NEW_SHARE = 0.75  # of the time for newcomers, while there are any
GPU_WIDTH = 64
CPU_CELLS = 128  # in a batch: on a core more boards at once would keep a newcomer waiting longer


@dataclass(frozen=True)
class LaneNoise(Noise):
    """Noise of boards that each have a seed of their own; `seed` is the first."""

    seeds: tuple[int, ...] = ()

    def repeat(self, times: int) -> LaneNoise:
        return LaneNoise(self.seed, self.instance.repeat(times), self.attempt.repeat(times), seeds=self.seeds * times)

    def normal(self, step: int | torch.Tensor, purpose: int, cells: int, dim: int) -> State:
        noise = torch.empty(len(self.seeds), cells, dim, device=self.instance.device)
        for seed in set(self.seeds):
            rows = torch.tensor([i for i, other in enumerate(self.seeds) if other == seed], device=noise.device)
            part = Noise(seed, self.instance[rows], self.attempt[rows])
            own = step[rows] if isinstance(step, torch.Tensor) and step.dim() else step
            noise[rows] = part.normal(own, purpose, cells, dim)
        return noise


def width(solver: Solver) -> int:
    """How many boards a batch holds at most."""
    return max(1, CPU_CELLS // solver.task.cells) if solver.device.type == "cpu" else GPU_WIDTH


class Batch:
    """Lanes of one key, in step; with `walk`, which has a row for each, they go on from there."""

    def __init__(self, lanes: list[Lane], walk: Walk | None = None):
        self.lanes, first = lanes, lanes[0].job
        self.solver, self.walk, self.mine = lanes[0].solver, walk, {lane.job for lane in lanes}
        # Elsewhere than on the CPU's fast path the rounding of a product depends on the batch, and answers must not.
        spare = width(self.solver) - len(lanes) if self.solver.engine.pads else 0
        padded = lanes + [lanes[0]] * spare
        self.problem = Problem.cat([lane.problem for lane in padded])
        seeds = tuple(lane.seed for lane in padded)
        instance = identities(self.problem).to(self.solver.device)
        attempt = torch.tensor([lane.attempt for lane in padded], device=instance.device)
        noise = LaneNoise(seeds[0], instance, attempt, seeds=seeds)
        sampler = lanes[0].sampler
        self.clues = self.solver.clues(self.problem)
        self.steps, self.clock = first.steps, 0.0  # the clock runs slower the greater the batch's share is
        rows = torch.tensor([*range(len(lanes)), *[0] * spare], device=instance.device)
        self.snapshots = self.solver.walk(self.problem, noise, sampler, None if walk is None else walk[rows])

    def live(self) -> list[tuple[int, Lane]]:
        return [(row, lane) for row, lane in enumerate(self.lanes) if lane.open and not lane.job.over]

    def jobs(self) -> set[Job]:
        """Whose lanes were open after the last step; asked several times in each turn."""
        return {job for job in self.mine if not job.over}

    @property
    def waits(self) -> bool:
        """Whether nobody reads what it has to say."""
        jobs = self.jobs()
        return bool(jobs) and all(job.choked for job in jobs)

    @property
    def young(self) -> bool:
        return any(job.young for job in self.jobs())

    def split(self) -> list[Batch]:
        """Boards that are settled leave, where a batch may have any size; boards whose client does not read must not
        hold up the others: each kind goes on by itself."""
        live = self.live()
        if 0 < len(live) < len(self.lanes) and not self.solver.engine.pads:  # settled boards make room
            return self.cut([[row for row, _ in live]])
        if len({job.choked for job in self.jobs()}) < 2:
            return []
        kinds = [[row for row, lane in live if lane.job.choked == choked] for choked in (True, False)]
        return self.cut(kinds) if all(kinds) else []

    def cut(self, parts: list[list[int]]) -> list[Batch]:
        """Batches of these rows, which go on from where this one is."""
        rows = [torch.tensor(part, device=self.solver.device) for part in parts]
        walks = [None if self.walk is None else self.walk[part] for part in rows]
        batches = [Batch([self.lanes[row] for row in part], walk) for part, walk in zip(parts, walks, strict=True)]
        for batch in batches:
            batch.clock = self.clock
        return batches

    def advance(self) -> bool:
        """One step; False once no lane needs another."""
        live = self.live()
        if not live:
            return False
        started = time.perf_counter()
        view = View(self.solver, self.problem, self.clues, next(self.snapshots))
        self.walk = view.snapshot.walk
        share = (time.perf_counter() - started) / len(live)
        for row, lane in live:
            lane.seconds += share
            lane.job.step(lane, view, row)
            if view.step == self.steps and lane.open:
                lane.job.last(lane, view, row)
        self.mine = {lane.job for _, lane in self.live()}
        return view.step < self.steps and bool(self.mine)


def shares(batches: Sequence[Batch]) -> list[float]:
    """What part of the time each batch is due.

    Newcomers together have most of it; on either side clients have the same, and a client's jobs by their weight.
    """
    young = [batch.young for batch in batches]
    claims = [
        (i, (young[i], job.client), job.weight / max(job.batches, 1))
        for i, batch in enumerate(batches)
        for job in batch.jobs()
    ]
    of_client: dict[tuple[bool, str], float] = {}
    for _, client, weight in claims:
        of_client[client] = of_client.get(client, 0.0) + weight
    clients = Counter(new for new, _ in of_client)
    side = {True: NEW_SHARE if clients[False] else 1.0, False: 1 - NEW_SHARE if clients[True] else 1.0}
    due = [0.0] * len(batches)
    for i, client, weight in claims:
        due[i] += side[young[i]] / clients[young[i]] * weight / of_client[client]
    return [share or 1.0 for share in due]  # a batch that nobody waits for is about to end


class Scheduler:
    """Takes jobs from any thread, up to `limit` at a time."""

    def __init__(self, limit: int, metrics: Metrics | None = None):
        self.limit, self.finished, self.metrics = limit, 0, metrics or Metrics()
        self.jobs: list[Job] = []  # whose turn it is comes first
        self.batches: list[Batch] = []
        self.due: dict[Batch, float] = {}  # their shares of the time, as of the last turn
        self.changed = threading.Condition()
        self.now = 0.0  # the clock of the batch whose turn it is: where a newcomer's begins
        self.closed = False
        self.thread = threading.Thread(target=self._work, name="letgo-sampler", daemon=True)

    def start(self) -> None:
        self.thread.start()

    def submit(self, job: Job) -> None:
        with self.changed:
            if len(self.jobs) >= self.limit:
                raise Busy(f"all {self.limit} places are taken; try again in a few seconds")
            self.jobs.append(job)
            self.changed.notify()

    def wake(self) -> None:
        """A client reads again."""
        with self.changed:
            self.changed.notify()

    def cancel(self, job: Job) -> None:
        """Frees the job's place at once; its boards stop before their next step."""
        with self.changed:
            job.cancel()
            self._drop_finished()

    def hang_up(self) -> None:
        """Tells everyone that the server stops, so that no connection has to be cut."""
        with self.changed:
            for job in self.jobs:
                job.fail("the server is stopping; start `letgo app` again and repeat")
            self._drop_finished()

    def close(self) -> None:
        with self.changed:
            self.closed = True
            for job in self.jobs:
                job.cancel()
            self.changed.notify()
        if self.thread.is_alive():
            self.thread.join(timeout=10)

    def in_flight(self) -> int:
        return len(self.jobs)

    def running_boards(self) -> int:
        return sum(len(batch.live()) for batch in list(self.batches))

    def _drop_finished(self) -> None:
        self.finished += sum(job.finished for job in self.jobs)
        if solved := sum(job.solved for job in self.jobs if job.over):
            self.metrics.add("letgo_boards_solved_total", float(solved))
        self.jobs = [job for job in self.jobs if not job.over]

    def _work(self) -> None:
        if "OMP_NUM_THREADS" not in os.environ:
            torch.set_num_threads(1)  # these boards are small: on a busy machine, threads wait more than they help
        while (batch := self._next()) is not None:
            if not self._advance(batch):
                self._retire(batch)

    def _next(self) -> Batch | None:
        """The batch whose turn it is, as soon as there is one; None once the server stops."""
        with self.changed:
            while not self.closed:
                self._drop_finished()
                self._form_batches()
                for batch in list(self.batches):
                    if parts := batch.split():
                        self._exchange(batch, parts)
                ready: list[Batch] = []
                for batch in self.batches:
                    if batch.waits:
                        batch.clock = max(batch.clock, self.now)  # whoever waits for a reader saves up no time
                    else:
                        ready.append(batch)
                if ready:
                    self.due = dict(zip(ready, shares(ready), strict=True))
                    batch = min(ready, key=lambda batch: batch.clock)
                    self.now = batch.clock
                    return batch
                self.changed.wait()
        return None

    def _advance(self, batch: Batch) -> bool:
        started, jobs = time.thread_time(), batch.jobs()  # what other processes of this machine take is nobody's
        self.metrics.observe("letgo_batch_boards", float(len(batch.live())), BOARDS)
        self.metrics.add("letgo_network_calls_total", float(batch.lanes[0].sampler.calls_per_step))
        try:
            return batch.advance()
        except LetgoError as error:  # a board that diverges takes nobody along: each goes on by itself
            rows = [[row] for row, _ in batch.live()]
            if len(rows) == 1:
                self._refuse(batch.lanes, error)
                return False
            self._exchange(batch, batch.cut(rows))
            return True
        except Exception as error:  # one bad batch must not stop the others
            self._refuse(batch.lanes, error)
            return False
        finally:
            seconds = time.thread_time() - started
            batch.clock += seconds / self.due[batch]
            for job in jobs:
                job.served += seconds / len(jobs)

    def _refuse(self, lanes: list[Lane], error: Exception) -> None:
        words, status = str(error), 422
        if not isinstance(error, LetgoError):
            traceback.print_exc(file=sys.stderr)
            words, status = f"the sampler failed ({type(error).__name__}: {error}); try other settings", 503
        for job in {lane.job for lane in lanes}:
            job.fail(words, status)

    def _retire(self, batch: Batch) -> None:
        with self.changed:
            self._exchange(batch, [])
            self._drop_finished()

    def _exchange(self, batch: Batch | None, others: list[Batch]) -> None:
        """Others in a batch's place; each job knows how many are under way for it."""
        self.batches = [*(other for other in self.batches if other is not batch), *others]
        for change, group in ((-1, [] if batch is None else [batch]), (1, others)):
            for job in [job for one in group for job in {lane.job for lane in one.lanes}]:
                job.batches += change

    def _form_batches(self) -> None:
        while True:
            room = sum(batch.young for batch in self.batches) < BATCHES
            waiting = [job for job in self.jobs if job.pending and job.batches < BATCHES_PER_JOB and not job.choked]
            first = next((job for job in waiting if room or not job.young), None)
            if first is None:
                return
            lanes = self._gather(first.pending[0], waiting)
            for job in {lane.job for lane in lanes}:
                self.jobs.remove(job)
                self.jobs.append(job)
            try:
                batch = Batch(lanes)
                batch.clock = self.now
                self._exchange(None, [batch])
            except Exception as error:  # one bad request must not stop the others
                self._refuse(lanes, error)

    def _gather(self, first: Lane, waiting: list[Job]) -> list[Lane]:
        """Lanes of the first one's key, its own job's before others', as many as fit."""
        room, lanes = width(first.solver), []
        for job in sorted(waiting, key=lambda job: job is not first.job):
            fitting = [lane for lane in job.pending if lane.key == first.key][: room - len(lanes)]
            for lane in fitting:
                job.pending.remove(lane)
            lanes += fitting
        return lanes
