"""`letgo train`: words in, a run folder out."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from letgo.cli import options
from letgo.errors import LetgoError

if TYPE_CHECKING:
    import torch

    from letgo.presets import Config
    from letgo.tasks import Problem


def add(parser: argparse.ArgumentParser) -> None:
    whole, share = options.at_least(1), options.real(0.0, 1.0)
    parser.add_argument("preset", metavar="PRESET", help="`letgo presets` lists them")
    parser.add_argument("--out", type=options.path, metavar="RUN", help="the run folder; repeat the command to resume")
    parser.add_argument("--init", metavar="M", help="start from this model's weights instead of random ones")
    parser.add_argument("--data", help="training instances: .npz, .csv(.gz), a folder, or hub; default: generated")
    parser.add_argument("--steps", type=whole, help="optimiser steps; schedules follow this number")
    parser.add_argument("--max-seconds", type=options.real(0.0), help="stop cleanly after this time and save")
    parser.add_argument("--seed", type=options.seed)
    several = "several runs: 0,1,2 writes RUN/s0, RUN/s1, RUN/s2"
    parser.add_argument("--seeds", type=options.list_of(options.seed), help=several)
    options.device(parser)
    options.batch(parser, None)
    optimizer = "adam (the paper's), or muon for the blocks' matrices"
    parser.add_argument("--optimizer", choices=["adam", "muon"], help=optimizer)
    parser.add_argument("--learning-rate", type=options.real(0.0))
    parser.add_argument("--warmup", type=options.at_least(0), help="steps of linear warm-up")
    parser.add_argument("--decay", type=share, help="share of the steps, at the end, for the rate to fall to 0")
    parser.add_argument("--precision", choices=["auto", "bf16", "fp16", "fp32"])
    parser.add_argument("--boards", type=options.boards, help="how many instances to generate")
    options.flag(parser, "--symmetries", "mazes: each in its 8 turns and reflections")
    parser.add_argument("--simple-weight", type=options.real(0.0), help="lambda_simple of self-correction")
    options.flag(parser, "--full-gradient", "Algorithm 2 to the letter (dearer)")
    keep = "steps whose weights are kept, e.g. 1000,2000; '' for none"
    parser.add_argument("--keep", type=options.list_of(whole, may_be_empty=True), help=keep)
    validate = "instances that choose between EMA and raw weights; 0: keep EMA"
    parser.add_argument("--validate", type=options.at_least(0), help=validate)
    parser.add_argument("--log-every", type=whole, default=100)
    options.flag(parser, "--tensorboard")
    options.flag(parser, "--plain", "no compilation, no CUDA graph")
    options.flag(parser, "--dry-run", "print the configuration and stop")
    options.common(parser)


def configure(args: argparse.Namespace) -> Config:
    """The preset's row with the flags' values put in; a resumed run keeps what it was started with."""
    from letgo.presets import preset

    config = preset(args.preset)
    names = ("steps", "batch", "optimizer", "learning_rate", "warmup", "decay", "precision", "boards", "seed", "init",
             "simple_weight")  # fmt: skip
    given = {name: getattr(args, name) for name in names}
    given |= {name: getattr(args, name) or None for name in ("full_gradient", "symmetries")}
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
    from letgo.data.load import load_training
    from letgo.presets import preset
    from letgo.rng import data_rng

    task, rng = config.build_task(), data_rng(config.seed, "train")
    if data is not None:
        return load_training(data, task, config.boards, rng)
    if task.name == "sudoku-extreme" and config.boards == preset(config.name).boards:
        raise LetgoError(
            "sudoku-extreme learns from its data set: give --data FOLDER (`letgo data fetch sudoku-extreme`), "
            "or --boards N for N minimal puzzles of our own, at about 200 a second"
        )
    return task.generate(config.boards, rng, "train")


def images(config: Config, problem: Problem) -> Problem:
    return config.build_task().images(problem) if config.symmetries else problem


def validate(
    config: Config, out: Path, device: torch.device, count: int, seed: int, data: str | None = None
) -> tuple[dict[str, float], int]:
    """Euler on validation instances, as the paper picks checkpoints, decides between EMA and raw weights.

    Returns the two scores and the number of instances that they rest on.
    """
    from letgo.evaluate import evaluate, instances
    from letgo.solver import Solver
    from letgo.train import choose_weights

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
    if len(seeds) > 1 and trains_together(config, args):
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


def trains_together(config: Config, args: argparse.Namespace) -> bool:
    """Whether several seeds are faster in one run than one after the other."""
    from letgo.machine import pick_device
    from letgo.trainer import uses_fused_blocks

    return uses_fused_blocks(config, pick_device(args.device), fast(args))


def fast(args: argparse.Namespace) -> bool | None:
    return False if args.plain else None


def run_one(
    args: argparse.Namespace, config: Config, out: Path, max_seconds: float | None, seeds: Sequence[int] = ()
) -> int:
    """One run in `out`, or those of all `seeds` together in its folders."""
    import torch

    from letgo.checkpoints import load_weights, read_json, write_json
    from letgo.evaluate import device_name
    from letgo.machine import pick_device
    from letgo.presets import KEEP
    from letgo.progress import Progress, clock
    from letgo.train import train

    device = pick_device(args.device)
    torch.set_num_threads(args.threads)
    show = Progress(f"{config.name} on {device_name(device)}: step", args.progress, args.quiet)

    def report(step: int, total: int, speed: float, losses: dict[str, float]) -> None:
        show(step, total, f"  loss {losses['loss']:.5f}  {speed:,.0f} steps/s")

    def say(text: str) -> None:
        if not args.quiet:
            print(text, file=sys.stderr)

    def instances_of_all() -> Problem | list[Problem]:
        same = args.data is not None and config.task != "sudoku-extreme"  # of that a file is sampled, by the seed
        if same or not seeds:
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
