"""Milliseconds per optimiser step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import product
from statistics import median
from typing import Any

import torch

from letgo.bench.clock import Memory, builds, copy_bandwidth, matmul_peak, process_peak, race, seconds
from letgo.bench.report import head, share, spread
from letgo.bench.work import Work
from letgo.config import Config
from letgo.rng import data_rng
from letgo.training.data import TrainingData
from letgo.training.trainer import WARM_STEPS, Trainer

BOARDS = 512  # training instances: speed does not depend on how many there are, and mazes take long to make
OBJECTIVES = ("simple", "self-correction")
APPENDIX_C = 1.43  # self-correction's cost over the simple loss in the paper


def bench_train(
    config: Config,
    device: torch.device,
    steps: int | None = None,
    repeats: int = 5,
    seeds: int = 1,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Milliseconds per optimiser step and model, warm, of both objectives; ours with `seeds` models stacked."""
    gpu = device.type == "cuda"
    task = config.build_task()
    problem = task.generate(BOARDS, data_rng(0, "train"), "train")
    data = TrainingData.of(problem, config.masks, device)
    half = gpu and config.precision in ("auto", "bf16", "fp16")
    work, peak = Work.of(config, problem[:1], half), matmul_peak(device)
    paths = ("ours", "plain") if gpu or seeds > 1 else ("plain",)
    runs: dict[tuple[str, str], Trainer] = {}
    notes: dict[tuple[str, str], dict[str, Any]] = {}
    for objective, path in product(OBJECTIVES, paths):
        say(f"{objective}, {path}: warming up")
        memory, ours, case = Memory(device), path == "ours", replace(config, objective=objective)
        trainer = Trainer.of(case, data, None if ours else False, range(seeds) if ours else ())
        warm = WARM_STEPS + 4 if gpu and ours else 3
        first = seconds(partial(_advance, trainer, warm), device)
        notes[objective, path] = {"warm_up_seconds": round(first, 2), "peak_memory": memory.peak()}
        runs[objective, path] = trainer
        if steps is None:  # half a second where a step is short
            steps = 200 if gpu else max(1, min(50, round(0.5 * warm / first)))
    assert steps is not None
    before = builds() + sum(trainer.captures for trainer in runs.values())
    say(f"{repeats} times {steps} steps of each")
    taken = race({key: partial(_advance, trainer, steps) for key, trainer in runs.items()}, repeats, device)
    rebuilt = builds() + sum(trainer.captures for trainer in runs.values()) - before
    rows: list[dict[str, Any]] = []
    for (objective, path), times in taken.items():
        models = len(runs[objective, path].seeds)
        per_step = [1e3 * second / steps / models for second in times]
        flops = work.step_flops(replace(config, objective=objective))
        rows.append({
            "objective": objective,
            "path": path,
            "models": models,
            **spread("ms", per_step),
            **share(flops / (median(per_step) / 1e3), peak),
            **notes[objective, path],
            "rebuilt": rebuilt,
        })  # fmt: skip
    memory_used = process_peak()
    bandwidth = copy_bandwidth(device)  # last: its buffers are larger than all else on a CPU
    counted = {o: replace(config, objective=o) for o in OBJECTIVES}
    return {
        **head("train", config, device, peak, bandwidth),
        "weights": "freshly drawn",
        "batch": config.batch,
        "seeds": seeds,
        "steps_each": steps,
        "repeats": repeats,
        "step_flops": {o: work.step_flops(c) for o, c in counted.items()},
        "step_bytes": {o: work.step_bytes(c) for o, c in counted.items()},
        "floor_ms": {
            o: {"arithmetic": 1e3 * work.step_flops(c) / peak, "bytes": 1e3 * work.step_bytes(c) / bandwidth}
            for o, c in counted.items()
        },
        "rows": rows,
        "ratios": _train_ratios(rows),
        "process_peak_memory": memory_used,
    }


def _advance(trainer: Trainer, steps: int) -> None:
    for _ in range(steps):
        trainer.step()


def _train_ratios(rows: list[dict[str, Any]]) -> dict[str, float]:
    ms = {(row["objective"], row["path"]): row["ms"] for row in rows}
    ratios = {}
    for objective in OBJECTIVES:
        if (objective, "ours") in ms:
            ratios[f"plain / ours, {objective}"] = ms[objective, "plain"] / ms[objective, "ours"]
    for path in ("ours", "plain"):
        if ("simple", path) in ms:
            ratios[f"self-correction / simple, {path}"] = ms["self-correction", path] / ms["simple", path]
    return ratios | {"self-correction / simple, App. C": APPENDIX_C}
