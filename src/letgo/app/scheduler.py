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
from collections.abc import Callable, Sequence
from functools import partial

import torch

from letgo.app.frames import View
from letgo.app.jobs import Job, Lane
from letgo.app.limits import Busy
from letgo.app.metrics import BOARDS, Metrics
from letgo.errors import LetgoError
from letgo.rng import Noise, as_int64
from letgo.sampling import Walk, joined
from letgo.solver import Solver, identities
from letgo.tasks import Problem

BATCHES = 4  # of newcomers under way at once; those who wait for one to end go together
BATCHES_PER_JOB = 2
NEW_SHARE = 0.75  # of the time for newcomers, while there are any
GPU_WIDTH = 64
CPU_CELLS = 128  # in a batch: on a core more boards at once would keep a newcomer waiting longer


def width(solver: Solver) -> int:
    """Return how many boards a batch holds at most."""
    return max(1, CPU_CELLS // solver.task.cells) if solver.device.type == "cpu" else GPU_WIDTH


class Batch:
    """A Batch has lanes of one key, each with a step of its own; the first ones have a row of `walk` each."""

    def __init__(self, lanes: list[Lane], walk: Walk | None = None):
        self.solver, self.sampler, self.key = lanes[0].solver, lanes[0].sampler, lanes[0].key
        self.slots, self.times = self.solver.engine.slots(self.sampler), self.sampler.times().tolist()
        self.clock = 0.0  # it runs slower the greater the batch's share is
        self.lanes: list[Lane] = []
        self.seat(lanes, walk)

    def seat(self, lanes: list[Lane], walk: Walk | None) -> None:
        """Take these lanes in place of the ones that are there; those that are not in `walk` begin."""
        old = 0 if walk is None else len(walk.x)
        # Elsewhere than on the CPU's fast path the rounding of a product depends on the batch, and answers must not.
        spare = width(self.solver) - len(lanes) if self.solver.engine.pads else 0
        rows = torch.tensor([*range(len(lanes)), *[0] * spare], device=self.solver.device)
        problem, device = Problem.cat([lane.problem for lane in lanes + [lanes[0]] * spare]), self.solver.device
        seeds = torch.stack([as_int64(lane.seed) for lane in lanes]).to(device)
        attempt = torch.tensor([lane.attempt for lane in lanes], device=device)
        noise = Noise(seeds[rows], identities(problem).to(device), attempt[rows])
        clues, context = self.solver.clues(problem, self.sampler.soft_until), self.solver.context(problem)
        walks = [] if walk is None or not old else [walk]
        if fresh := len(lanes) - old:
            mine = slice(old, old + fresh)
            told = None if context is None else context[mine]
            walks.append(self.solver.engine.begin(clues[mine], noise[mine], told).apart())
        self.walk = joined(walks)
        self.slots.seat(clues, noise, context, self.walk[rows])
        self.lanes, self.mine, self.problem, self.clues = lanes, {lane.job for lane in lanes}, problem, clues

    def join(self, lanes: list[Lane]) -> None:
        """Seat newcomers beside those who are on their way."""
        self.seat([*self.lanes, *lanes], self.walk)

    def leave(self) -> bool:
        """Make room where boards are settled; return whether there were any."""
        live = self.live()
        if not 0 < len(live) < len(self.lanes):
            return False
        rows = torch.tensor([row for row, _ in live], device=self.solver.device)
        self.seat([lane for _, lane in live], self.walk[rows])
        return True

    def live(self) -> list[tuple[int, Lane]]:
        return [(row, lane) for row, lane in enumerate(self.lanes) if lane.open and not lane.job.over]

    def jobs(self) -> set[Job]:
        """Return whose lanes were open after the last step; it is asked several times in each turn."""
        return {job for job in self.mine if not job.over}

    @property
    def waits(self) -> bool:
        """Say whether nobody reads what it has to say."""
        jobs = self.jobs()
        return bool(jobs) and all(job.choked for job in jobs)

    @property
    def young(self) -> bool:
        return any(job.young for job in self.jobs())

    def split(self) -> list[Batch]:
        """Boards whose client does not read must not hold up the others: each kind goes on by itself."""
        if len({job.choked for job in self.jobs()}) < 2:
            return []
        kinds = [[row for row, lane in self.live() if lane.job.choked == choked] for choked in (True, False)]
        return self.cut(kinds) if all(kinds) else []

    def cut(self, parts: list[list[int]]) -> list[Batch]:
        """Return batches of these rows, which go on from where this one is."""
        rows = [torch.tensor(part, device=self.solver.device) for part in parts]
        walks = [self.walk[part] for part in rows]
        batches = [Batch([self.lanes[row] for row in part], walk) for part, walk in zip(parts, walks, strict=True)]
        for batch in batches:
            batch.clock = self.clock
        return batches

    def advance(self) -> bool:
        """Take one step; return False once no lane needs another."""
        live = self.live()
        if not live:
            return False
        started = time.perf_counter()
        x0_hat = self.slots.step()
        self.walk = self.slots.walk[: len(self.lanes)]
        done = torch.as_tensor(self.slots.walk.done).tolist()
        view = View(
            self.solver, self.problem, self.clues, self.slots.walk.x, x0_hat, done, [self.times[step] for step in done]
        )
        share = (time.perf_counter() - started) / len(live)
        for row, lane in live:
            lane.seconds += share
            if not lane.job.over:  # it may have failed at a row above, or in this one
                lane.job.step(lane, view, row)
            if done[row] == self.sampler.steps and lane.open and not lane.job.over:
                lane.job.last(lane, view, row)
        self.mine = {lane.job for _, lane in self.live()}
        return bool(self.mine)


def shares(batches: Sequence[Batch]) -> list[float]:
    """Return what part of the time each batch is due.

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
    """The Scheduler takes jobs from any thread, up to `limit` at a time."""

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
        """Take note that a client reads again."""
        with self.changed:
            self.changed.notify()

    def cancel(self, job: Job) -> None:
        """Free the job's place at once; its boards stop before their next step."""
        with self.changed:
            job.cancel()
            self._drop_finished()

    def hang_up(self) -> None:
        """Tell everyone that the server stops, so that no connection has to be cut."""
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
        """Return the batch whose turn it is, as soon as there is one; None once the server stops."""
        with self.changed:
            while not self.closed:
                self._drop_finished()
                for batch in self.batches:
                    self._change(batch, batch.leave)
                self._fill_batches()
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
        """Put others in a batch's place; each job knows how many are under way for it."""
        self.batches = [*(other for other in self.batches if other is not batch), *others]
        for change, group in ((-1, [] if batch is None else [batch]), (1, others)):
            for job in [job for one in group for job in {lane.job for lane in one.lanes}]:
                job.batches += change

    def _change(self, batch: Batch, change: Callable[[], object]) -> None:
        """Put other lanes in a batch; each job knows how many batches are under way for it."""
        before = {lane.job for lane in batch.lanes}
        change()
        after = {lane.job for lane in batch.lanes}
        for by, jobs in ((-1, before - after), (1, after - before)):
            for job in jobs:
                job.batches += by

    def _fill_batches(self) -> None:
        """Give whoever waits room in a batch that is under way.

        Where batches are padded anyway, that costs nobody anything. Elsewhere every board costs the others time: there
        a job goes on where it is, and newcomers join newcomers.
        """
        for batch in self.batches:
            jobs, joins = batch.jobs(), batch.solver.engine.pads or batch.young
            for job in self.jobs if jobs and not batch.waits else ():
                new = joins and job.batches < BATCHES_PER_JOB and (batch.solver.engine.pads or job.young)
                if job.choked or not (new or job in jobs):
                    continue
                room = width(batch.solver) - len(batch.lanes)
                lanes = [lane for lane in job.pending if lane.key == batch.key][:room]
                for lane in lanes:
                    job.pending.remove(lane)
                try:
                    if lanes:
                        self._change(batch, partial(batch.join, lanes))
                except Exception as error:  # one bad request must not stop the others
                    self._refuse(lanes, error)

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
        """Collect lanes of the first one's key, its own job's before others', as many as fit."""
        room, lanes = width(first.solver), []
        for job in sorted(waiting, key=lambda job: job is not first.job):
            fitting = [lane for lane in job.pending if lane.key == first.key][: room - len(lanes)]
            for lane in fitting:
                job.pending.remove(lane)
            lanes += fitting
        return lanes
