"""The sweep itself: it hands out what is missing, and hears what became of it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

from letgo.errors import LetgoError
from letgo.sweep.cells import Folder, Job, Outcome
from letgo.sweep.spec import Cell

LOSSES = 3  # workers that one job may lose: it may be the job that kills them
LOOK_SECONDS = 2.0  # between two looks at what other processes are at work on


class Lost(Exception):
    """The worker of a job died, or its machine did."""


@runtime_checkable
class Workers(Protocol):
    """They do jobs: processes of this machine, or a cluster."""

    def free(self) -> bool:
        """Return whether another job can be handed out."""
        ...

    def start(self, job: Job) -> None: ...

    def wait(self, seconds: float) -> list[tuple[Job, Outcome | Lost]]:
        """Return the jobs that have ended; nothing if none has by then."""
        ...

    def stop(self) -> None:
        """Tell all to stop, and return when they have."""
        ...


@dataclass
class Sweep:
    """A Sweep hands out jobs until no cell is missing that could be done."""

    folder: Folder
    workers: Workers
    say: Callable[[str], None]
    tell: Callable[[Cell, dict[str, Any]], None]  # a cell that is finished
    show: Callable[[int, int], None]  # cells that are there, of how many
    total: int
    done: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    queue: deque[Job] = field(default_factory=deque)
    elsewhere: dict[str, Job] = field(default_factory=dict)  # what other processes are at work on
    told: set[str] = field(default_factory=set)  # of which this was said
    under_way: int = 0

    def run(self, jobs: Sequence[Job]) -> None:
        self.queue.extend(jobs)
        self.show(self.done, self.total)
        while self.queue or self.under_way or self.elsewhere:
            while self.queue and self.workers.free():
                self.workers.start(self.queue.popleft())
                self.under_way += 1
            if self.under_way:
                for job, outcome in self.workers.wait(LOOK_SECONDS):
                    self.under_way -= 1
                    self.ended(job, outcome)
            else:
                time.sleep(LOOK_SECONDS / 4)
            self.look_elsewhere()

    def ended(self, job: Job, outcome: Outcome | Lost) -> None:
        lost = isinstance(outcome, Lost)
        failed = {} if lost else outcome.failed
        self.failed.update(failed)
        for name, words in failed.items():
            self.say(f"{name}: {words}")
        for cell in job.cells:
            if cell.name not in failed and (record := self.folder.record(cell)) is not None:
                self.finished(cell, record)
        rest = [cell for cell in job.cells if cell.name not in failed and self.folder.record(cell) is None]
        losses = job.losses + lost
        if lost and losses >= LOSSES:
            words = f"{losses} workers died over it ({outcome}); is there enough memory?"
            self.failed.update({cell.name: words for cell in rest})
            self.say(f"{job.name}: {words}")
            return
        if lost and rest:
            self.say(f"{job.name}: {outcome}; it is started again")
        for each in self.folder.jobs(rest):
            if lost:
                self.queue.append(replace(each, losses=losses))
            else:
                self.elsewhere[each.name] = each

    def finished(self, cell: Cell, record: dict[str, Any]) -> None:
        self.done += 1
        self.tell(cell, record)
        self.show(self.done, self.total)

    def look_elsewhere(self) -> None:
        """Take what others have finished as done; what they have left is ours again."""
        for name, job in list(self.elsewhere.items()):
            if (holder := self.folder.holder(name)) is not None:
                if name not in self.told:
                    self.say(f"{name}: {holder} is at work on it")
                    self.told.add(name)
                continue
            del self.elsewhere[name]
            for cell in job.cells:
                if (record := self.folder.record(cell)) is not None:
                    self.finished(cell, record)
            self.queue.extend(self.folder.jobs([cell for cell in job.cells if self.folder.record(cell) is None]))


def line(cell: Cell, record: dict[str, Any]) -> str:
    """Return a cell and its validity, for a reader."""
    score = record["validity"]
    if score["value"] is None:
        return f"{cell.title}: the sampler diverged, n={score['n']}"
    span = "" if score["low"] is None else f" [{score['low']:.4f}, {score['high']:.4f}]"
    return f"{cell.title}: valid {score['value']:.4f}{span}, n={score['n']}, {record['seconds']:.1f} s"


def refuse_failures(failed: dict[str, str], total: int, where: object) -> None:
    if failed:
        name, words = next(iter(failed.items()))
        raise LetgoError(
            f"{len(failed)} of {total} cells failed, first {name}: {words}; the others are in {where}, and the same "
            "command does only what is missing"
        )
