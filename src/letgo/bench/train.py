"""Milliseconds per optimiser step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import torch

from letgo.bench.clock import Case, Say, matmul_peak, measure
from letgo.bench.report import head, step_flops
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
    say: Say = lambda text: None,
) -> dict[str, Any]:
    """Measure ms per optimiser step and model, warm, of both objectives; ours with `seeds` models stacked."""
    gpu = device.type == "cuda"
    steps = steps or (200 if gpu else 10)
    problem = config.build_task().generate(BOARDS, data_rng(0, "train"), "train")
    data, peak = TrainingData.of(problem, config.masks, device), matmul_peak(device)
    flops = {o: step_flops(replace(config, objective=o), problem) for o in OBJECTIVES}
    paths = ("ours", "plain") if gpu or seeds > 1 else ("plain",)
    trainers: list[Trainer] = []

    def cases() -> Iterator[Case]:
        for objective, path in product(OBJECTIVES, paths):
            mine = (None, range(seeds)) if path == "ours" else (False, (0,))
            trainer = Trainer.of(replace(config, objective=objective), data, *mine)
            trainers.append(trainer)
            labels, warm_up = {"objective": objective, "path": path}, WARM_STEPS + 4 if gpu and path == "ours" else 3
            yield Case(labels, partial(_advance, trainer), flops[objective], peak, len(trainer.seeds), warm_up)

    rows = measure(cases(), lambda: sum(trainer.captures for trainer in trainers), steps, repeats, device, say)
    return {
        **head("train", config, device, peak),
        "weights": "freshly drawn",
        "batch": config.batch,
        "seeds": seeds,
        "steps_each": steps,
        "repeats": repeats,
        "step_flops": flops,
        "rows": rows,
        "ratios": _ratios({(row["objective"], row["path"]): row["ms"] for row in rows}, paths),
    }


def _advance(trainer: Trainer, steps: int) -> None:
    for _ in range(steps):
        trainer.step()


def _ratios(ms: dict[tuple[str, str], float], paths: tuple[str, ...]) -> dict[str, float]:
    ratios = {f"plain / ours, {o}": ms[o, "plain"] / ms[o, "ours"] for o in OBJECTIVES if "ours" in paths}
    ratios |= {f"self-correction / simple, {p}": ms["self-correction", p] / ms["simple", p] for p in paths}
    return ratios | {"self-correction / simple, App. C": APPENDIX_C}
