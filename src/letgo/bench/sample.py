"""Board-steps per second of the reverse loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from letgo.bench.clock import Case, Say, matmul_peak, measure
from letgo.bench.report import board_flops, head
from letgo.bench.scheduler import make_scheduler, scheduler_loop
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
    say: Say = lambda text: None,
) -> dict[str, Any]:
    """Measure board-steps per second of DDPM, all steps, one batch: ours, plain, and diffusers' DDPMScheduler.

    Ours has by default the precision of `letgo solve`; the two others have the device's plain one.
    """
    gpu, has_weights, notes = device.type == "cuda", config.name in shipped(), []
    if has_weights:
        config, network, _ = load_model(config.name)
    else:
        torch.manual_seed(0)
        network = config.build_model()
    precision = Solver(config, network, device.type, precision=precision).precision
    ours = Solver(config, network, device.type, threads=threads, precision=precision)
    plain = Solver(config, network, device.type, fast=False, threads=threads)
    batch, steps = batch or (ours.default_batch() if gpu else 16), steps or (200 if gpu else 20)
    problem = source_of(ours.task).draw("test", None, batch, 0)

    def sampling(solver: Solver) -> Callable[[int], object]:
        return lambda steps: solver.sample(problem, solver.sampler("ddpm", steps), batch=batch)

    works = {"ours": (sampling(ours), precision), "plain": (sampling(plain), plain.precision)}
    try:
        scheduler, clues = make_scheduler(config, steps), plain.clues(problem)
        works["diffusers"] = (lambda _: scheduler_loop(plain, scheduler, problem, clues), plain.precision)
    except LetgoError as error:
        notes.append(f"diffusers left out: {error}")
    flops, peaks = (
        board_flops(config, problem),
        {kind: matmul_peak(device, kind == "bf16") for _, kind in works.values()},
    )
    cases = [
        Case({"path": path, "precision": kind}, advance, batch * flops, peaks[kind])
        for path, (advance, kind) in works.items()
    ]
    rows = measure(cases, lambda: len(getattr(ours.engine, "steps", ())), steps, repeats, device, say)
    for row in rows:  # a slow step is a low speed
        row["board_steps_per_second"] = batch * 1e3 / row["ms"]
        row["low"], row["high"] = batch * 1e3 / row["high"], batch * 1e3 / row["low"]
    speed = {row["path"]: row["board_steps_per_second"] for row in rows}
    return {
        **head("sample", config, device, peaks[precision]),
        "weights": "shipped" if has_weights else "freshly drawn",
        "rule": "ddpm",
        "batch": batch,
        "steps_each": steps,
        "repeats": repeats,
        "board_step_flops": flops,
        "rows": rows,
        "notes": notes,
        "ratios": {f"ours / {path}": speed["ours"] / speed[path] for path in speed if path != "ours"},
    }
