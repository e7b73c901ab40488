"""Workers that are processes of this machine. One that dies takes nobody along, and another takes its place."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import connection, get_context, parent_process
from typing import Any

from letgo.sweep.cells import Job, Outcome, work
from letgo.sweep.run import Lost

STOP_SECONDS = 60.0  # for a training to end its step and save


@dataclass
class Worker:
    """A Worker is a process, the pipe to it, and what it is at work on."""

    process: Any
    pipe: Any
    job: Job | None = None


class Processes:
    """There are so many processes; each has a GPU of its own where there are several."""

    def __init__(self, count: int, devices: list[str], arguments: tuple[Any, ...]):
        self.count, self.devices, self.arguments = count, devices, arguments  # (out, threads, own_task)
        self.workers: dict[int, Worker] = {}  # by place

    def free(self) -> bool:
        return sum(worker.job is not None for worker in self.workers.values()) < self.count

    def start(self, job: Job) -> None:
        place = next(i for i in range(self.count) if i not in self.workers or self.workers[i].job is None)
        if place not in self.workers:
            self.workers[place] = self._hire(self.devices[place % len(self.devices)])
        self.workers[place].job = job
        with suppress(OSError):  # it has died idle: `wait` sees that
            self.workers[place].pipe.send(job)

    def wait(self, seconds: float) -> list[tuple[Job, Outcome | Lost]]:
        busy = {place: worker for place, worker in self.workers.items() if worker.job is not None}
        signs = [sign for worker in busy.values() for sign in (worker.pipe, worker.process.sentinel)]
        ready, ended = connection.wait(signs, seconds), []
        for place, worker in busy.items():
            if worker.pipe not in ready and worker.process.sentinel not in ready:
                continue
            assert worker.job is not None
            outcome = self._outcome(worker)
            if isinstance(outcome, Lost):
                del self.workers[place]
            ended.append((worker.job, outcome))
            worker.job = None
        return ended

    def _outcome(self, worker: Worker) -> Outcome | Lost:
        try:
            return worker.pipe.recv()
        except (EOFError, OSError):
            worker.process.join()
            code = worker.process.exitcode
            return Lost(f"process {worker.process.pid} died ({signal_name(code)})")

    def _hire(self, device: str) -> Worker:
        context = get_context("spawn")
        ours, theirs = context.Pipe()
        with _ignoring_interrupts():  # Ctrl-C reaches this process alone, which tells the others to stop
            process = context.Process(target=serve, args=(theirs, device, *self.arguments), daemon=True)
            process.start()
        theirs.close()
        return Worker(process, ours)

    def stop(self) -> None:
        for worker in self.workers.values():
            worker.pipe.close()
            worker.process.terminate()
        for worker in self.workers.values():
            worker.process.join(STOP_SECONDS)
            worker.process.kill()


def serve(pipe: Any, device: str, out: str, threads: int, own_task: str | None) -> None:
    """Live as a worker: do jobs, until there are no more, or until whoever hands them out is gone."""
    os.setsid()
    signal.signal(signal.SIGTERM, leave)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with suppress(EOFError, OSError):
        while True:
            pipe.send(work(pipe.recv(), out, device, threads, own_task))
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it is leaving already


def leave(number: int, frame: Any) -> None:
    signal.signal(number, signal.SIG_IGN)  # a second one would end in the midst of leaving, with a traceback
    sys.exit(128 + number)


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)  # a training saves first


@contextmanager
def _ignoring_interrupts() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def signal_name(code: int | None) -> str:
    if code is not None and code < 0:
        with suppress(ValueError):
            return signal.Signals(-code).name
    return f"exit code {code}"
