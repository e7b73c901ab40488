"""Board-steps per second of the reverse loop."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from statistics import median
from typing import Any

import torch

from letgo.bench.clock import Memory, builds, copy_bandwidth, matmul_peak, process_peak, race, seconds
from letgo.bench.report import head, share, spread
from letgo.bench.scheduler import agreement, make_scheduler, scheduler_loop
from letgo.bench.work import Work
from letgo.config import Config
from letgo.data.source import source_of
from letgo.errors import LetgoError
from letgo.runs import load_model, shipped
from letgo.solver import Solver


def bench_sample(
    config: Config,
    device: torch.device,
    batch: int | None = None,
    steps: int | None = None,
    repeats: int = 5,
    threads: int = 1,
    precision: str = "auto",
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Board-steps per second of DDPM to the last step, one batch: ours, plain, and diffusers' DDPMScheduler.

    Ours has by default the precision of `letgo solve`; the two others have the device's plain one.
    """
    gpu = device.type == "cuda"
    has_weights = config.name in shipped()
    if has_weights:
        config, network, _ = load_model(config.name)
    else:
        torch.manual_seed(0)
        network = config.build_model()
    precision = Solver(config, network, device.type, precision=precision).precision
    ours = Solver(config, network, device.type, threads=threads, precision=precision)
    plain = Solver(config, network, device.type, fast=False, threads=threads)
    batch = batch or (ours.default_batch() if gpu else 16)
    steps = steps or (200 if gpu else 20)
    problem = source_of(ours.task).draw("test", None, batch, 0)
    precisions = {"ours": precision, "plain": plain.precision, "diffusers": plain.precision}
    peaks = {kind: matmul_peak(device, kind == "bf16") for kind in set(precisions.values())}
    work, peak = Work.of(config, problem[:1], gpu), peaks[precision]
    notes: dict[str, dict[str, Any]] = {}
    works: dict[str, Callable[[], object]] = {
        name: partial(solver.sample, problem, solver.sampler("ddpm", steps), batch=batch)
        for name, solver in (("ours", ours), ("plain", plain))
    }
    try:
        scheduler = make_scheduler(config, steps)
        clues = plain.clues(problem)
        works["diffusers"] = partial(scheduler_loop, plain, scheduler, problem, clues)
        notes["diffusers"] = {"difference": agreement(config, deepcopy(network), problem[:4], min(steps, 10))}
    except LetgoError as error:
        notes["diffusers"] = {"note": str(error)}
    for name, sample in works.items():
        say(f"{name}: warming up")
        memory = Memory(device)
        first = seconds(sample, device)
        notes[name] = {"warm_up_seconds": round(first, 2), **notes.get(name, {}), "peak_memory": memory.peak()}
    before = builds() + _captured(ours)
    say(f"{repeats} times {batch} boards, {steps} steps")
    taken = race(works, repeats, device)
    rebuilt, memory_used = builds() + _captured(ours) - before, process_peak()
    bandwidth = copy_bandwidth(device)  # last: its buffers are larger than all else on a CPU
    rows: list[dict[str, Any]] = []
    for name, times in taken.items():
        speeds = [batch * steps / second for second in times]
        rows.append({
            "path": name,
            "precision": precisions[name],
            **spread("board_steps_per_second", speeds),
            "ms": 1e3 * median(times) / steps,
            **share(work.forward * median(speeds), peaks[precisions[name]]),
            **notes[name],
            "rebuilt": rebuilt,
        })  # fmt: skip
    if "diffusers" not in works:
        rows.append({"path": "diffusers", **notes["diffusers"]})
    speed = {row["path"]: row["board_steps_per_second"] for row in rows if "ms" in row}
    return {
        **head("sample", config, device, peak, bandwidth),
        "weights": "shipped" if has_weights else "freshly drawn",
        "rule": "ddpm",
        "batch": batch,
        "steps_each": steps,
        "repeats": repeats,
        "board_step_flops": work.forward,
        "step_bytes": work.sample_bytes(batch, precision == "bf16"),
        "floor_board_steps_per_second": {
            "arithmetic": peak / work.forward,
            "bytes": batch * bandwidth / work.sample_bytes(batch, precision == "bf16"),
        },
        "rows": rows,
        "ratios": {f"ours / {p}": speed["ours"] / speed[p] for p in speed if p != "ours"},
        "process_peak_memory": memory_used,
    }


def _captured(solver: Solver) -> int:
    return len(getattr(solver.engine, "steps", ()))  # of the graph engine alone
