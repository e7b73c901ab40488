"""`letgo train`: words in, a run folder out."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from letgo.checkpoints import load_weights, read_json, write_json
from letgo.data.source import source_of
from letgo.errors import LetgoError
from letgo.evaluate import device_name, evaluate, instances
from letgo.machine import pick_device
from letgo.presets import KEEP, PRESETS, Config, preset
from letgo.progress import Progress, clock
from letgo.solver import Solver
from letgo.tasks import Problem
from letgo.train import choose_weights, train
from letgo.trainer import uses_fused_blocks


def configure(args: argparse.Namespace) -> Config:
    """The preset's row with the flags' values put in; a resumed run keeps what it was started with."""
    config = preset(args.preset)
    given = {
        "steps": args.steps,
        "batch": args.batch,
        "optimizer": args.optimizer,
        "learning_rate": args.learning_rate,
        "warmup": args.warmup,
        "decay": args.decay,
        "precision": args.precision,
        "boards": args.boards,
        "seed": args.seed,
        "init": args.init,
        "full_gradient": args.full_gradient or None,
        "symmetries": args.symmetries or None,
        "simple_weight": args.simple_weight,
    }
    config = replace(config, **{k: v for k, v in given.items() if v is not None})
    if config.objective == "simple" and (args.full_gradient or args.simple_weight is not None):
        flag = "--full-gradient" if args.full_gradient else "--simple-weight"
        raise LetgoError(
            f"{flag} is for self-correction, and {config.name} has none; train {config.name.removesuffix('-baseline')}"
        )
    if config.optimizer == "muon" and config.network != "transformer":
        raise LetgoError(f"muon is for Transformers, and {config.name} has another network; leave --optimizer out")
    return config


def training_instances(config: Config, data: str | None) -> Problem:
    """From a file or folder, or drawn by the task's own generator with the run's seed."""
    source = source_of(config.build_task(), data)
    if config.name in PRESETS and config.boards == PRESETS[config.name].boards:
        source.check_training()
    return source.training(config.boards, config.seed)


def images(config: Config, problem: Problem) -> Problem:
    return config.build_task().images(problem) if config.symmetries else problem


def validate(
    config: Config, out: Path, device: torch.device, count: int, seed: int, data: str | None = None
) -> tuple[dict[str, float], int]:
    """Euler on validation instances, as the paper picks checkpoints, decides between EMA and raw weights.

    Returns the two scores and the number of instances that they rest on.
    """
    task = config.build_task()
    folder = data if data is not None and (data == "hub" or Path(data).is_dir()) else None  # a file has no valid part
    problem = instances(task, None, count, seed, folder, purpose="valid")

    def score(weights: dict[str, torch.Tensor]) -> float:
        network = config.build_model()
        network.load_state_dict(weights)
        solver = Solver(config, network, device.type, fast=False)
        return evaluate(solver, "euler", problem)["validity"]["value"]

    return choose_weights(out, score, len(problem)), len(problem)


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
    seeds = list(dict.fromkeys(args.seeds))
    if len(seeds) > 1 and args.data == "-":
        raise LetgoError("--data -: standard input can be read once, and --seeds needs it for each; write it to a file")
    if len(seeds) > 1 and uses_fused_blocks(config, pick_device(args.device), fast(args)):
        return run_one(args, config, args.out, args.max_seconds, seeds)
    end = None if args.max_seconds is None else time.monotonic() + args.max_seconds
    for seed in seeds:
        left = None if end is None else end - time.monotonic()  # one limit for all seeds together
        if left is not None and left <= 0:
            if not args.quiet:
                waiting = ", ".join(map(str, seeds[seeds.index(seed) :]))
                print(f"no time left for seed {waiting}. To go on: {args.command_line}", file=sys.stderr)
            break
        status = run_one(args, replace(config, seed=seed), args.out / f"s{seed}", left)
        if status != 0:  # interrupted: the other seeds must not begin
            return status
    return 0


def fast(args: argparse.Namespace) -> bool | None:
    return False if args.plain else None


def run_one(
    args: argparse.Namespace, config: Config, out: Path, max_seconds: float | None, seeds: Sequence[int] = ()
) -> int:
    """One run in `out`, or those of all `seeds` together in its folders."""
    device = pick_device(args.device)
    torch.set_num_threads(args.threads)
    show = Progress(f"{config.name} on {device_name(device)}: step", args.progress, args.quiet)

    def report(step: int, total: int, speed: float, losses: dict[str, float]) -> None:
        show(step, total, f"  loss {losses['loss']:.5f}  {speed:,.0f} steps/s")

    def say(text: str) -> None:
        if not args.quiet:
            print(text, file=sys.stderr)

    def instances_of_all() -> Problem | list[Problem]:
        if not seeds or not source_of(config.build_task(), args.data).seeded:
            return images(config, training_instances(config, args.data))
        return [images(config, training_instances(replace(config, seed=seed), args.data)) for seed in seeds]

    keep = KEEP if args.keep is None else args.keep
    result = train(
        config,
        instances_of_all,
        out,
        device,
        max_seconds,
        keep,
        report,
        args.log_every,
        args.tensorboard,
        fast(args),
        seeds,
        args.data not in (None, "-"),  # what the task draws itself follows from the configuration
    )
    again = args.command_line
    if result.stopped_by != "done":
        show.close()
        late = "" if result.trained else " (starting took all of --max-seconds: give more)"
        say(f"stopped at step {result.step:,} of {config.steps:,}{late}; saved in {out}. To go on: {again}")
        if result.stopped_by == "signal":
            return 128 + result.signal
    folders = {seed: out / f"s{seed}" for seed in seeds} or {config.seed: out}
    for seed, folder in folders.items():
        if args.validate != 0 and not (folder / "validation.json").exists():  # training removes it
            count = args.validate or (512 if device.type == "cuda" else 64)
            scores, count = validate(replace(config, seed=seed), folder, device, count, seed, args.data)
            chosen = read_json(folder / "validation.json")
            write_json(folder / "validation.json", {**chosen, "rule": "euler", "count": count, "command": again})
            whose = f"seed {seed}, " if seeds else ""
            ema, raw = scores["ema"], scores["raw"]
            say(f"{whose}validation, Euler, n={count}: EMA {ema:.3f}, raw {raw:.3f}; kept {chosen['weights']}")
        assert load_weights(folder / "model.safetensors")
    if result.stopped_by == "done":
        where = f"the runs are in {out}" if seeds else f"the run is in {out}"
        say(f"{config.name}: {result.step:,} steps in {clock(result.seconds)}; {where}")
    return 0
