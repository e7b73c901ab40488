"""`letgo train`: words in, a run folder out."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path

import torch

from letgo.checkpoints import load_weights, read_json, write_json
from letgo.data.load import load_problems
from letgo.errors import LetgoError
from letgo.evaluate import device_name, evaluate, instances
from letgo.presets import KEEP, Config, preset
from letgo.progress import Progress, clock
from letgo.rng import data_rng
from letgo.solver import Solver, pick_device
from letgo.tasks import Problem
from letgo.train import choose_weights, train


def configure(args: argparse.Namespace) -> Config:
    """The preset's row with the flags' values put in; a resumed run keeps what it was started with."""
    config = preset(args.preset)
    given = {
        "steps": args.steps,
        "batch": args.batch,
        "learning_rate": args.learning_rate,
        "warmup": args.warmup,
        "decay": args.decay,
        "precision": args.precision,
        "boards": args.boards,
        "seed": args.seed,
        "init": args.init,
        "full_gradient": args.full_gradient or None,
        "simple_weight": args.simple_weight,
    }
    return replace(config, **{k: v for k, v in given.items() if v is not None})


def training_instances(config: Config, data: str | None) -> Problem:
    """From a file, or drawn by the task's own generator with the run's seed."""
    task = config.build_task()
    if data is not None:
        return load_problems(Path(data), task, solved=True)
    return task.generate(config.boards, data_rng(config.seed, "train"), "train")


def validate(config: Config, out: Path, device: torch.device, count: int, seed: int) -> dict[str, float]:
    """Euler on validation instances, as the paper picks checkpoints, decides between EMA and raw weights."""
    task = config.build_task()
    problem = instances(task, None, count, seed, purpose="valid")

    def score(weights: dict[str, torch.Tensor]) -> float:
        network = config.build_model()
        network.load_state_dict(weights)
        solver = Solver(config, network, device.type, fast=False)
        return evaluate(solver, "euler", problem)["validity"]["value"]

    return choose_weights(out, score, count)


def run(args: argparse.Namespace) -> int:
    config = configure(args)
    if args.dry_run:
        import json

        print(json.dumps(config.as_dict(), indent=2))
        return 0
    if args.out is None:
        raise LetgoError("train needs --out RUN, the folder to write to")
    if not args.seeds:
        return run_one(args, config, args.out, args.max_seconds)
    if args.seed is not None:
        raise LetgoError("give --seed or --seeds, not both")
    end = None if args.max_seconds is None else time.monotonic() + args.max_seconds
    for seed in args.seeds:
        left = None if end is None else end - time.monotonic()  # one limit for all seeds together
        if left is not None and left <= 0:
            break
        status = run_one(args, replace(config, seed=seed), args.out / f"s{seed}", left)
        if status != 0:  # interrupted: the other seeds must not begin
            return status
    return 0


def run_one(args: argparse.Namespace, config: Config, out: Path, max_seconds: float | None) -> int:
    device = pick_device(args.device)
    torch.set_num_threads(args.threads)
    show = Progress(f"{config.name} on {device_name(device)}: step", args.progress, args.quiet)

    def report(step: int, total: int, speed: float, losses: dict[str, float]) -> None:
        show(step, total, f"  loss {losses['loss']:.5f}  {speed:,.0f} steps/s")

    def say(text: str) -> None:
        if not args.quiet:
            print(text, file=sys.stderr)

    keep = KEEP if args.keep is None else args.keep
    result = train(
        config,
        lambda: training_instances(config, args.data),
        out,
        device,
        max_seconds,
        keep,
        report,
        args.log_every,
        args.tensorboard,
        None if args.plain is False else False,
    )
    again = args.command_line
    if result.stopped_by != "done":
        show.close()
        say(f"stopped at step {result.step:,} of {config.steps:,}; saved in {out}. To go on: {again}")
        if result.stopped_by == "signal":
            return 128 + result.signal
    if args.validate != 0:
        count = args.validate or (512 if device.type == "cuda" else 64)
        scores = validate(config, out, device, count, config.seed)
        chosen = read_json(out / "validation.json")
        write_json(out / "validation.json", {**chosen, "rule": "euler", "count": count, "command": again})
        say(f"validation, Euler, n={count}: EMA {scores['ema']:.3f}, raw {scores['raw']:.3f}; kept {chosen['weights']}")
    if result.stopped_by == "done":
        say(f"{config.name}: {result.step:,} steps in {clock(result.seconds)}; the run is in {out}")
    assert load_weights(out / "model.safetensors")
    return 0
