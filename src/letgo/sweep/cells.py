"""The folder of a sweep: a file per finished cell, a folder per training, and who is at work on what."""

from __future__ import annotations

import os
import shlex
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from letgo import tasks
from letgo.errors import LetgoError
from letgo.evaluation import evaluate_model
from letgo.report import MOST_REPORT, Report
from letgo.runs import Run, locate, read_json, write_json
from letgo.runs.files import weights_digest
from letgo.runs.locks import take
from letgo.solver import load
from letgo.sweep.spec import Cell, Words, configuration
from letgo.training.train import train


@dataclass(frozen=True)
class Job:
    """A Job is what a worker does without a pause: cells, of which those that share a training wait for it together."""

    cells: tuple[Cell, ...]
    trains: bool = False
    losses: int = 0  # workers that were lost over it

    @property
    def name(self) -> str:
        return str(self.cells[0].run) if self.trains else self.cells[0].name


@dataclass
class Outcome:
    """An Outcome says what became of a job: others are at work on the rest of its cells, or it was told to stop."""

    done: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)


class Folder:
    """`cells/NAME.json` is there when a cell is finished; `runs/NAME` are trainings; `claims` are locks.

    A lock belongs to a process and ends with it, however it ends. Its file stays and says who had it last. Where there
    are no locks, two sweeps may do a cell twice, with the same result.
    """

    def __init__(self, path: Path):
        self.path = path

    def result(self, cell: Cell) -> Path:
        return self.path / "cells" / f"{cell.name}.json"

    def model(self, cell: Cell) -> str:
        return str(cell.evaluate["model"]) if cell.run is None else str(self.path / "runs" / cell.run)

    def record(self, cell: Cell) -> dict[str, Any] | None:
        """Return a cell's result; None if it is missing, damaged, or was measured on other weights than are there."""
        try:
            record = read_json(self.result(cell), MOST_REPORT)
            if "validity" not in Report.from_dict(record).scores or record.get("cell") != cell.words:
                return None
        except LetgoError:
            return None
        weights = _digest(self.model(cell))
        return record if weights in (None, record.get("weights_sha256")) else None

    def refuse_lost(self, cell: Cell) -> None:
        """Refuse a result that was written just now and does not count, rather than measure it without end."""
        if self.record(cell) is None:
            raise LetgoError(
                f"{self.result(cell)} was written and does not count: it has more than {MOST_REPORT:,} bytes (cut the "
                "cell by shard), or its model was changed meanwhile (give the same command again)"
            )

    def trained(self, cell: Cell) -> bool:
        """Return whether its training is over, as far as can be seen without reading its weights."""
        if cell.train is None:
            return True
        config = configuration(cell.train)
        return Run(Path(self.model(cell)), config).validation.get("step") == config.steps

    def jobs(self, cells: Sequence[Cell]) -> list[Job]:
        """Return the missing among these cells; those of one training that is not over are one job."""
        jobs: dict[str, Job] = {}
        for cell in cells:
            if self.record(cell) is None:
                job = Job((cell,), trains=not self.trained(cell))
                known = jobs.get(job.name)
                jobs[job.name] = job if known is None else replace(known, cells=(*known.cells, cell))
        return list(jobs.values())

    @contextmanager
    def claim(self, name: str) -> Iterator[bool]:
        """Try to claim a name for this process; nobody else may work on it meanwhile."""
        path = self.path / "claims" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            ours = take(handle)
            if ours:
                os.truncate(handle, 0)
                os.write(handle, f"{socket.gethostname()}, process {os.getpid()}\n".encode())
            yield ours
        finally:
            os.close(handle)

    def holder(self, name: str) -> str | None:
        """Return who works on that name just now, if anybody."""
        with self.claim(name) as free:
            path = self.path / "claims" / name
            return None if free else path.read_text(encoding="utf-8", errors="replace").strip() or "another process"


def _digest(model: str) -> str | None:
    """Return the digest of a model's weights; None where there are none."""
    try:
        return weights_digest(*locate(model))
    except (LetgoError, OSError):
        return None


def work(job: Job, out: str, device: str, threads: int, own_task: str | None = None) -> Outcome:
    """Do what is missing of a job; on every machine of a cluster this is what runs."""
    folder, outcome = Folder(Path(out)), Outcome()
    if not (folder.path / "sweep.json").is_file():
        words = f"{socket.gethostname()} has no {folder.path}; a sweep's --out must lie on a disk that all nodes share"
        return Outcome(failed={cell.name: words for cell in job.cells})
    if own_task is not None:
        tasks.load(own_task)
    if job.trains:
        try:
            with folder.claim(job.name) as ours:
                if not ours or not _train(folder, job.cells[0], device, threads):
                    return outcome
        except Exception as error:  # one training must not stop the others
            return Outcome(failed={cell.name: _words(error) for cell in job.cells})
    for cell in job.cells:
        try:
            with folder.claim(cell.name) as ours:
                if ours:
                    if folder.record(cell) is None:
                        write_json(folder.result(cell), _measure(folder, cell, device, threads))
                        folder.refuse_lost(cell)
                    outcome.done.append(cell.name)
        except Exception as error:
            outcome.failed[cell.name] = _words(error)
    return outcome


def _train(folder: Folder, cell: Cell, device: str, threads: int) -> bool:
    """Train, or go on with a training; False where it was told to stop."""
    import torch

    assert cell.train is not None
    torch.set_num_threads(threads)
    more = {name: cell.train[name] for name in ("data", "validate") if name in cell.train}
    run = train(configuration(cell.train), folder.model(cell), device=device, command="letgo sweep", **more)
    return run.stopped_by == "done"


def _measure(folder: Folder, cell: Cell, device: str, threads: int) -> dict[str, Any]:
    model, words = folder.model(cell), {name: value for name, value in cell.evaluate.items() if name != "model"}
    solver, weights = load(model, device, threads=threads), _digest(model)
    report = replace(evaluate_model(solver, **words), model=model, command=_command(model, words))
    return {**report.as_dict(), "weights_sha256": weights, "cell": cell.words}


def _command(model: str, words: Words) -> str:
    """Return what repeats the measurement alone."""
    flags = [[f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])] for name, value in words.items()]
    return shlex.join(["letgo", "evaluate", model, *(word for flag in flags for word in flag)])


def _words(error: Exception) -> str:
    return str(error) if isinstance(error, LetgoError) else f"{type(error).__name__}: {error}".partition("\n")[0]
