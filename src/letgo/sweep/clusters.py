"""Workers on a cluster: jobs of SLURM by submitit, or tasks of Ray. Both hand out `letgo.sweep.cells.work`."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from letgo.errors import LetgoError
from letgo.extras import connected_ray, extra
from letgo.sweep.cells import Job, Outcome, work
from letgo.sweep.run import Lost
from letgo.sweep.spec import Words

MINUTES = 240  # of a job of SLURM, unless [slurm] says otherwise; one that meets this limit goes on in another
POLL_SECONDS = 0.5
CONNECT_SECONDS = 20


class Work:
    """submitit pickles it as a job. A node that is taken away, or the time limit, puts it in the queue again; a
    training saves first."""

    def __init__(self, job: Job, arguments: tuple[Any, ...]):
        self.job, self.arguments = job, arguments

    def __call__(self) -> Outcome:
        with _saving_first():
            return work(self.job, *self.arguments)

    def checkpoint(self) -> Any:
        import submitit

        return submitit.helpers.DelayedSubmission(self)  # a training goes on with what it saved last


@contextmanager
def _saving_first() -> Iterator[None]:
    """At the warning before a job's time is up submitit leaves at once; here it leaves when a training has saved."""
    from submitit import JobEnvironment

    warning = signal.Signals[f"SIG{JobEnvironment.USR_SIG}"]
    leave: Any = signal.getsignal(warning)
    idle, told = signal.getsignal(signal.SIGTERM), []

    def warn(number: int, frame: Any) -> None:
        if signal.getsignal(signal.SIGTERM) is idle:  # no training is under way
            leave(number, frame)
        elif not told:
            told.append(number)
            signal.raise_signal(signal.SIGTERM)

    if callable(leave):  # else this is no job's process
        signal.signal(warning, warn)
    yield
    if told:
        leave(warning, None)


class Slurm:
    """All jobs are in SLURM's queue at once; it decides which run."""

    def __init__(self, words: Words, arguments: tuple[Any, ...]):
        submitit = extra("submitit", "slurm", "--slurm")
        options = {"timeout_min": MINUTES, "name": "letgo-sweep", **words}
        cluster = options.pop("cluster", "slurm")
        logs = Path(arguments[0]) / "slurm"
        try:
            self.executor = submitit.AutoExecutor(folder=logs, cluster=cluster)
            self.executor.update_parameters(**options)
        except (RuntimeError, NameError, TypeError, ValueError, AssertionError) as error:
            reason = str(error).partition("\n")[0]
            raise LetgoError(
                f"--slurm: {reason}; is this a login node, and are the words of [slurm] submitit's?"
            ) from None
        self.arguments = arguments
        self.under_way: dict[str, tuple[Any, Job]] = {}  # by the name of a job

    def free(self) -> bool:
        return True

    def start(self, job: Job) -> None:
        self.under_way[job.name] = self.executor.submit(Work(job, self.arguments)), job

    def wait(self, seconds: float) -> list[tuple[Job, Outcome | Lost]]:
        end = time.monotonic() + seconds
        while True:
            ended = [name for name, (handle, _) in self.under_way.items() if handle.done()]
            if ended or time.monotonic() >= end:
                return [self._outcome(*self.under_way.pop(name)) for name in ended]
            time.sleep(POLL_SECONDS)

    def _outcome(self, handle: Any, job: Job) -> tuple[Job, Outcome | Lost]:
        from submitit.core.utils import FailedJobError, UncompletedJobError

        try:
            return job, handle.result()
        except (UncompletedJobError, FailedJobError) as error:
            what = "met its time limit too often" if "timed-out" in str(error) else f"ended as {handle.state}"
            return job, Lost(f"job {handle.job_id} {what}; see {handle.paths.stderr}")

    def stop(self) -> None:
        for handle, _ in self.under_way.values():
            with suppress(Exception):  # it may have ended by itself
                handle.cancel()


def work_in(folder: str, job: Job, *arguments: Any) -> Outcome:
    """Return the work, with names of models and files as they are from that folder."""
    with suppress(OSError):
        os.chdir(folder)
    return work(job, *arguments)


class Ray:
    """All jobs are tasks of Ray at once. A task whose node dies is lost; the sweep starts it again on another."""

    def __init__(self, address: str, words: Words, arguments: tuple[Any, ...]):
        self.ray, self.arguments = connected_ray(address), arguments
        try:
            self.remote = self.ray.remote(work_in).options(**{"num_cpus": arguments[2], **words, "max_retries": 0})
        except (TypeError, ValueError) as error:
            self.ray.shutdown()
            raise LetgoError(f"[ray]: {error}") from None
        self.under_way: dict[Any, Job] = {}  # by what will hold its outcome

    def nodes(self) -> int:
        return sum(node["Alive"] for node in self.ray.nodes())

    def free(self) -> bool:
        return True

    def start(self, job: Job) -> None:
        self.under_way[self.remote.remote(os.getcwd(), job, *self.arguments)] = job

    def wait(self, seconds: float) -> list[tuple[Job, Outcome | Lost]]:
        ready, _ = self.ray.wait([*self.under_way], num_returns=1, timeout=seconds)
        return [(self.under_way.pop(handle), self._outcome(handle)) for handle in ready]

    def _outcome(self, handle: Any) -> Outcome | Lost:
        try:
            return self.ray.get(handle)
        except self.ray.exceptions.RayTaskError:
            raise
        except self.ray.exceptions.RayError as error:
            return Lost(f"its worker died ({type(error).__name__})")

    def stop(self) -> None:
        for handle in self.under_way:
            with suppress(Exception):
                self.ray.cancel(handle)  # as Ctrl-C: a training saves first
        if self.under_way:
            self.ray.wait([*self.under_way], num_returns=len(self.under_way), timeout=CONNECT_SECONDS)
        self.ray.shutdown()
