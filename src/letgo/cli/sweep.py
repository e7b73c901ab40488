"""`letgo sweep`: a grid of trainings and measurements, of which it does what is missing."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from letgo.cli import options
from letgo.errors import LetgoError

if TYPE_CHECKING:
    from letgo.sweep.run import Workers
    from letgo.sweep.spec import Cell, Spec


def add(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "spec", metavar="SPEC", type=options.path, help="a .toml or .json of what to train and measure; docs/formats.md"
    )
    add("--out", type=options.path, help="the sweep's folder (default: SPEC without its ending)")
    where, processes = parser.add_mutually_exclusive_group(), options.at_least(1, 4096)
    text = "how many work on this machine (default: one for each GPU or, without one, for each core)"
    where.add_argument("--processes", type=processes, metavar="N", help=text)
    where.add_argument("--slurm", action="store_true", help="as jobs of SLURM, with the words of [slurm]; extra slurm")
    text = "on a Ray cluster, with the words of [ray]; local starts one here (default: no cluster; extra ray)"
    where.add_argument("--ray", metavar="ADDRESS", help=text)
    options.flag(parser, "--dry-run", "list the cells and whether they are there, and stop")
    options.device(parser)
    text = "a task of your own: this class of this file, which is run; it takes the preset's place (default: none)"
    add("--task", dest="task_file", metavar="FILE.py:CLASS", help=text)
    options.flag(parser, "--json", "print the results as JSON")
    options.common(parser)


def run(args: argparse.Namespace) -> int:
    from letgo import tasks
    from letgo.progress import Progress
    from letgo.runs import write_json
    from letgo.sweep.cells import Folder
    from letgo.sweep.run import Sweep, line, refuse_failures
    from letgo.sweep.spec import read_spec

    own_task = None if args.task_file is None else absolute(args.task_file)
    spec = read_spec(args.spec, own_task and tasks.load(own_task))
    folder = Folder((args.out or args.spec.with_suffix("")).absolute())
    if folder.path.is_file():
        raise LetgoError(f"{folder.path} is a file; name the sweep's folder with --out")
    records = {cell.name: folder.record(cell) for cell in spec.cells}
    if args.dry_run:
        for cell in spec.cells:
            print(f"{'missing' if records[cell.name] is None else 'there':8} {cell.name}")
        return 0

    def tell(cell: Cell, record: dict[str, Any]) -> None:
        args.voice.erase()
        if not args.json:
            print(line(cell, record), flush=True)

    jobs, there = folder.jobs(spec.cells), sum(record is not None for record in records.values())
    state = f"{len(spec.cells)} cells, {there} there, {len(spec.cells) - there} missing"
    args.voice.say(f"letgo sweep: {state}, in {folder.path}")
    for cell in spec.cells:
        if (record := records[cell.name]) is not None:
            tell(cell, record)
    if jobs:
        workers, place = hire(args, spec, str(folder.path), own_task, len(jobs))
        write_json(folder.path / "sweep.json", {"cells": {cell.name: cell.words for cell in spec.cells}})
        args.voice.say(f"letgo sweep: {len(jobs)} job{'s' * (len(jobs) > 1)} for {place}")
        show = Progress(f"{args.spec.name}: cells", voice=args.voice)
        sweep = Sweep(folder, workers, args.voice.say, tell, show, len(spec.cells), there)
        try:
            sweep.run(jobs)
        except BaseException:
            args.voice.say(f"stopping: {sweep.done} of {len(spec.cells)} cells are done; the same command goes on")
            raise
        finally:
            workers.stop()
        refuse_failures(sweep.failed, len(spec.cells), folder.path)
    if args.json:
        options.print_json([folder.record(cell) for cell in spec.cells])
    return 0


def absolute(place: str) -> str:
    """Return FILE.py:Class by its full path: workers may have another folder."""
    path, _, name = place.rpartition(":")
    return f"{Path(path).absolute()}:{name}" if path else place


def hire(args: argparse.Namespace, spec: Spec, out: str, own_task: str | None, jobs: int) -> tuple[Workers, str]:
    """Return those who will do it, and where that is, in words."""
    if args.slurm:
        from letgo.sweep.clusters import Slurm

        return Slurm(spec.slurm, (out, args.device, args.threads, own_task)), "SLURM"
    if args.ray is not None:
        from letgo.sweep.clusters import Ray

        workers = Ray(args.ray, spec.ray, (out, args.device, args.threads, own_task))
        count = workers.nodes()
        return workers, f"{count} node{'s' * (count > 1)} of Ray"
    if not hasattr(os, "setsid"):
        raise LetgoError("letgo sweep needs a POSIX system; use WSL on Windows")
    from letgo.machine import pick_device
    from letgo.sweep.processes import Processes

    devices = gpus() if pick_device(args.device).type == "cuda" and ":" not in args.device else [args.device]
    count = min(jobs, args.processes or default_processes(devices, args.threads))
    return Processes(
        count, devices, (out, args.threads, own_task)
    ), f"{count} process{'es' * (count > 1)} on this machine"


def gpus() -> list[str]:
    import torch

    return [f"cuda:{i}" for i in range(torch.cuda.device_count())]


def default_processes(devices: list[str], threads: int) -> int:
    """Return one for each GPU or, without one, for as many cores as each takes threads."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return len(devices) if devices[0].startswith("cuda") else max(1, cores // threads)
