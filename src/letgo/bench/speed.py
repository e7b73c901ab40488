"""Two benchmarks, board-steps of sampling and optimiser steps of training, each as JSON and as a table for a reader.

Speed does not depend on the weights: sampling takes the shipped ones where there are any, training starts afresh.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from letgo import __version__
from letgo.bench.clock import Case, Say, copy_bandwidth, matmul_peak, measure
from letgo.bench.scheduler import make_scheduler, scheduler_loop
from letgo.config import Config
from letgo.data.source import source_of
from letgo.errors import LetgoError
from letgo.machine import device_name
from letgo.models.looped import Looped
from letgo.rng import data_rng
from letgo.runs import load_model, shipped
from letgo.solver import Solver
from letgo.tasks import Problem
from letgo.training.data import TrainingData
from letgo.training.trainer import WARM_STEPS, Trainer

BOARDS = 512  # training instances: speed does not depend on how many there are, and mazes take long to make
OBJECTIVES = ("simple", "self-correction")  # the paper's two, which stand beside the preset's own
APPENDIX_C = 1.43  # self-correction's cost over the simple loss in the paper


def board_flops(config: Config, problem: Problem, backward: bool = False) -> int:
    """Count FLOPs of a forward pass (and a backward one) of a board: products and attention of the plain network."""
    network, state = config.build_model(), config.build_codec().encode(problem.solution[:1])
    context, counter = None if problem.context is None else problem.context[:1].float(), FlopCounterMode(display=False)
    with counter, torch.set_grad_enabled(backward), sdpa_kernel(SDPBackend.MATH):  # as products, which it can count
        x0_hat = network(state, torch.full((1, 1, 1), 0.5), context)
        if backward:
            x0_hat.square().mean().backward()
    return counter.get_total_flops()


def step_flops(config: Config, problem: Problem) -> int:
    """Count FLOPs of an optimiser step: the whole batch's losses and gradients, of tensors without numbers."""
    trainer = Trainer.of(config, TrainingData.of(problem, config.masks, torch.device("cpu")), fast=False)
    counter = FlopCounterMode(display=False)
    with FakeTensorMode(allow_non_fake_inputs=True), sdpa_kernel(SDPBackend.MATH), counter:
        trainer.losses(trainer.flat)[0].backward()
    return counter.get_total_flops()


def trained_by(config: Config, objective: str) -> Config:
    """Return the preset with another objective; the options of its own are that one's alone."""
    return config if objective == config.objective else replace(config, objective=objective, objective_options={})


def turns_of(network: nn.Module) -> dict[str, int]:
    """Name the turns of a call, of a network that has some."""
    return {"turns": network.turns} if isinstance(network, Looped) else {}


def report(what: str, config: Config, device: torch.device, peak: float, **figures: Any) -> dict[str, Any]:
    """Return a bench's JSON: the machine, what it could do at best, and the figures."""
    machine = {"device": device_name(device), "threads": torch.get_num_threads(), "torch": torch.__version__}
    best = {"matmul_peak_tflops": peak / 1e12, "copy_gb_per_second": copy_bandwidth(device) / 1e9}
    return {"bench": what, "preset": config.name, **machine, "version": __version__, **best, **figures}


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
        network = config.for_sampling().build_model()
    precision = Solver(config, network, device.type, precision=precision).precision
    ours = Solver(config, network, device.type, threads=threads, precision=precision)
    plain = Solver(config, network, device.type, fast=False, threads=threads)
    batch, steps = batch or (ours.default_batch() if gpu else 16), steps or (200 if gpu else 20)
    problem = source_of(ours.task).draw("test", None, batch, 0)
    works: dict[str, Any] = {
        name: (lambda n, s=solver: s.sample(problem, s.sampler("ddpm", n), batch=batch), solver.precision)
        for name, solver in (("ours", ours), ("plain", plain))
    }
    try:
        scheduler, clues = make_scheduler(config, steps), plain.clues(problem)
        works["diffusers"] = (lambda _: scheduler_loop(plain, scheduler, problem, clues), plain.precision)
    except LetgoError as error:
        notes.append(f"diffusers left out: {error}")
    flops = board_flops(config, problem)
    peaks = {kind: matmul_peak(device, kind == "bf16") for _, kind in works.values()}
    cases = [Case({"path": p, "precision": k}, run, batch * flops, peaks[k]) for p, (run, k) in works.items()]
    rows = measure(cases, steps, repeats, device, say)
    for row in rows:  # a slow step is a low speed
        row |= turns_of(network)
        row["board_steps_per_second"] = batch * 1e3 / row["ms"]
        row["low"], row["high"] = batch * 1e3 / row["high"], batch * 1e3 / row["low"]
    speed = {row["path"]: row["board_steps_per_second"] for row in rows}
    ratios = {f"ours / {path}": speed["ours"] / speed[path] for path in speed if path != "ours"}
    about = {"weights": "shipped" if has_weights else "freshly drawn", "rule": "ddpm", "batch": batch}
    about |= {"steps_each": steps, "repeats": repeats, "board_step_flops": flops}
    return report("sample", config, device, peaks[precision], **about, rows=rows, notes=notes, ratios=ratios)


def bench_train(
    config: Config,
    device: torch.device,
    steps: int | None = None,
    repeats: int = 5,
    seeds: int = 1,
    say: Say = lambda text: None,
) -> dict[str, Any]:
    """Measure ms per optimiser step and model, warm, of the paper's objectives and the preset's own.

    Ours has `seeds` models stacked.
    """
    gpu = device.type == "cuda"
    steps = steps or (200 if gpu else 10)
    problem = config.build_task().generate(BOARDS, data_rng(0, "train"), "train")
    data, peak = TrainingData.of(problem, config.masks, device, config.build_image()), matmul_peak(device)
    variants = {name: trained_by(config, name) for name in (*OBJECTIVES, config.objective)}
    flops = {name: step_flops(variant, problem) for name, variant in variants.items()}
    paths = ("ours", "plain") if gpu or seeds > 1 else ("plain",)

    def advance(trainer: Trainer, steps: int) -> None:
        for _ in range(steps):
            trainer.step()

    def cases() -> Iterator[Case]:
        for objective, path in product(variants, paths):
            mine = (None, range(seeds)) if path == "ours" else (False, (0,))
            trainer = Trainer.of(variants[objective], data, *mine)
            labels, warm_up = {"objective": objective, "path": path}, WARM_STEPS + 4 if gpu and path == "ours" else 3
            yield Case(labels, partial(advance, trainer), flops[objective], peak, len(trainer.seeds), warm_up)

    rows = [{**row, **turns_of(config.build_model())} for row in measure(cases(), steps, repeats, device, say)]
    ms = {(row["objective"], row["path"]): row["ms"] for row in rows}
    ratios = {f"plain / ours, {o}": ms[o, "plain"] / ms[o, "ours"] for o in variants if "ours" in paths}
    ratios |= {f"{o} / simple, {p}": ms[o, p] / ms["simple", p] for o in variants if o != "simple" for p in paths}
    ratios |= {"self-correction / simple, App. C": APPENDIX_C}
    about = {"weights": "freshly drawn", "batch": config.batch, "seeds": seeds, "steps_each": steps}
    return report("train", config, device, peak, **about, repeats=repeats, step_flops=flops, rows=rows, ratios=ratios)


def name_of(row: dict[str, Any]) -> str:
    """Name a row in words: `cross-entropy, plain, 4 turns`."""
    words = [row[key] for key in ("objective", "path", "precision") if key in row]
    return ", ".join([*words, *([f"{row['turns']} turns"] if "turns" in row else [])])


def summary(report: dict[str, Any]) -> str:
    """Write the report as a table for a reader."""
    train, models = report["bench"] == "train", report.get("seeds", 1)
    size = f"batch {report['batch']}" + (f", ours {models} models stacked" if models > 1 else "")
    names = [name_of(row) for row in report["rows"]]
    wide = max(26, *(len(name) + 1 for name in names))
    lines = [
        f"{report['bench']} {report['preset']}, {size}, {report['weights']} weights; {report['device']}, "
        f"{report['threads']} thread(s), torch {report['torch']}",
        f"large product {report['matmul_peak_tflops']:.3g} TFLOP/s, copy {report['copy_gb_per_second']:.3g} GB/s; "
        f"median of {report['repeats']} x {report['steps_each']} steps",
        f"{'':{wide}}{'ms/step':>9}{'' if train else ' board-steps/s':>14}{'TFLOP/s':>9}{'of peak':>9}{'memory':>10}"
        f"{'warm-up':>10}{'rebuilt':>9}",
    ]
    for name, row in zip(names, report["rows"], strict=True):
        speed = "" if train else f"{row['board_steps_per_second']:,.0f}"
        memory = "-" if row["peak_memory"] is None else f"{row['peak_memory'] / 2**20:,.0f} MiB"
        lines.append(
            f"{name:{wide}}{row['ms']:>9.3f}{speed:>14}{row['tflops']:>9.3g}{row['share_of_peak']:>9.1%}{memory:>10}"
            f"{row['warm_up_seconds']:>8.1f} s{row['rebuilt']:>9}"
        )
    lines += [f"{name}: {ratio:.2f}" for name, ratio in report["ratios"].items()]
    return "\n".join([*lines, *report.get("notes", [])])
