"""One thread owns the networks. It forms batches from whatever waits, and gives each batch one step in turn."""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from dataclasses import dataclass

import torch

from letgo.app.frames import View
from letgo.app.jobs import Job, Lane
from letgo.app.limits import Busy
from letgo.rng import Noise
from letgo.shapes import State
from letgo.solver import Solver, identities
from letgo.tasks import Problem

BATCHES = 4  # under way at once: enough that a newcomer sees its first step soon
BATCHES_PER_JOB = 2  # a race leaves room for others
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
    """Lanes of one key, in step."""

    def __init__(self, lanes: list[Lane]):
        self.lanes, first = lanes, lanes[0].job
        self.solver = first.solver
        # Elsewhere than on the CPU's fast path the rounding of a product depends on the batch, and answers must not.
        padded = lanes + [lanes[0]] * (width(self.solver) - len(lanes) if self.solver.engine.pads else 0)
        self.problem = Problem.cat([lane.job.problem for lane in padded])
        seeds = tuple(lane.seed for lane in padded)
        instance = identities(self.problem).to(self.solver.device)
        attempt = torch.tensor([lane.attempt for lane in padded], device=instance.device)
        noise = LaneNoise(seeds[0], instance, attempt, seeds=seeds)
        sampler = lanes[0].sampler
        self.clues = self.solver.clues(self.problem)
        self.steps = first.steps
        self.snapshots = self.solver.walk(self.problem, noise, sampler)

    def live(self) -> list[tuple[int, Lane]]:
        return [(row, lane) for row, lane in enumerate(self.lanes) if lane.open and not lane.job.over]

    def advance(self) -> bool:
        """One step; False once no lane needs another."""
        live = self.live()
        if not live:
            return False
        started = time.perf_counter()
        view = View(self.solver, self.problem, self.clues, next(self.snapshots))
        share = (time.perf_counter() - started) / len(live)
        for row, lane in live:
            lane.seconds += share
            lane.job.step(lane, view, row)
            if view.step == self.steps and lane.open:
                lane.job.last(lane, view, row)
        return view.step < self.steps and bool(self.live())


class Scheduler:
    """Takes jobs from any thread, up to `limit` at a time."""

    def __init__(self, limit: int):
        self.limit, self.finished = limit, 0
        self.jobs: list[Job] = []  # whose turn it is comes first
        self.batches: list[Batch] = []
        self.changed = threading.Condition()
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
        self.jobs = [job for job in self.jobs if not job.over]

    def _work(self) -> None:
        if "OMP_NUM_THREADS" not in os.environ:
            torch.set_num_threads(1)  # these boards are small: on a busy machine, threads wait more than they help
        while True:
            with self.changed:
                self._drop_finished()
                self._form_batches()
                while not self.batches and not self.closed:
                    self.changed.wait()
                    self._form_batches()
                if self.closed:
                    return
                current = list(self.batches)
            for batch in current:
                if not self._advance(batch):
                    self._retire(batch)

    def _advance(self, batch: Batch) -> bool:
        try:
            return batch.advance()
        except Exception as error:  # nor may one bad batch
            self._refuse(batch.lanes, error)
            return False

    def _refuse(self, lanes: list[Lane], error: Exception) -> None:
        traceback.print_exc(file=sys.stderr)
        for job in {lane.job for lane in lanes}:
            job.fail(f"the sampler failed ({type(error).__name__}: {error}); try other settings")

    def _retire(self, batch: Batch) -> None:
        with self.changed:
            self.batches.remove(batch)
            for job in {lane.job for lane in batch.lanes}:
                job.batches -= 1
            self._drop_finished()

    def _form_batches(self) -> None:
        while len(self.batches) < BATCHES:
            ready = [job for job in self.jobs if job.pending and job.batches < BATCHES_PER_JOB]
            if not ready:
                return
            lanes = self._gather(ready)
            for job in {lane.job for lane in lanes}:
                job.batches += 1
                self.jobs.remove(job)
                self.jobs.append(job)
            try:
                self.batches.append(Batch(lanes))
            except Exception as error:  # one bad request must not stop the others
                self._refuse(lanes, error)

    def _gather(self, ready: list[Job]) -> list[Lane]:
        """Lanes of the first one's key, from all jobs in turn, as many as fit."""
        first = ready[0].pending[0]
        room, lanes = width(first.job.solver), []
        for job in ready:
            fitting = [lane for lane in job.pending if lane.key == first.key][: room - len(lanes)]
            for lane in fitting:
                job.pending.remove(lane)
            lanes += fitting
        return lanes
