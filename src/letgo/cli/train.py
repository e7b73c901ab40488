"""`letgo train`: words in, a run folder out."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from letgo.cli import options
from letgo.errors import LetgoError

if TYPE_CHECKING:
    from letgo.config import Config


def add(parser: argparse.ArgumentParser) -> None:
    add, whole = parser.add_argument, options.at_least(1)
    add("preset", nargs="?", metavar="PRESET", help="`letgo presets` lists them; none with --task")
    add("--out", type=options.path, metavar="RUN", help="the run folder; repeat the command to resume")
    add("--init", metavar="M", help="start from this model's weights instead of random ones")
    add("--data", help="training instances: .npz, .csv(.gz), a folder, or hub; default: generated")
    add("--steps", type=whole, help="optimiser steps; schedules follow this number")
    add("--max-seconds", type=options.real(0.0), help="stop cleanly after this time and save")
    add("--seed", type=options.seed, help="of weights, boards and noise (default 0)")
    add("--seeds", type=options.list_of(options.seed), help="several runs: 0,1,2 writes RUN/s0, RUN/s1, RUN/s2")
    options.device(parser)
    options.batch(parser, "boards per step (default: the preset's, as of all that follows)")
    add("--optimizer", choices=["adam", "muon"], help="adam (the paper's), or muon for the blocks' matrices")
    add("--learning-rate", type=options.real(0.0), help="its value between warm-up and decay")
    add("--warmup", type=options.at_least(0), help="steps of linear warm-up")
    add("--decay", type=options.real(0.0, 1.0), help="share of the steps, at the end, for the rate to fall to 0")
    add("--precision", choices=["auto", "bf16", "fp32"], help="auto: bf16 on a GPU, fp32 elsewhere")
    add("--boards", type=options.boards, help="how many instances to generate")
    options.flag(parser, "--symmetries", "mazes: each in its 8 turns and reflections")
    add("--simple-weight", type=options.real(0.0), help="lambda_simple of self-correction")
    options.flag(parser, "--full-gradient", "Algorithm 2 to the letter (slower)")
    keep = options.list_of(whole, may_be_empty=True)
    add("--keep", type=keep, help="steps whose weights are kept, e.g. 1000,2000; '' for none")
    add("--validate", type=options.at_least(0), help="instances that choose between EMA and raw weights; 0: keep EMA")
    add("--log-every", type=whole, default=100, help="steps between lines of metrics.jsonl (default 100)")
    options.flag(parser, "--plain", "no compilation, no CUDA graph")
    options.flag(parser, "--dry-run", "print the configuration and stop")
    options.own_task(parser)
    options.common(parser)


def run(args: argparse.Namespace) -> int:
    from dataclasses import fields

    from letgo import tasks
    from letgo.config import Config
    from letgo.training.train import configured

    if args.preset is None and args.own_task is None:
        raise LetgoError("train needs a PRESET (`letgo presets` lists them), or --task FILE.py:Class")
    flags = {field.name: getattr(args, field.name, None) for field in fields(Config)}
    changes = {name: value for name, value in flags.items() if value is not False}  # a flag that was left out
    config = configured(args.preset or Config.for_task(tasks.get(args.own_task)), **changes)
    if args.dry_run:
        print(json.dumps(config.as_dict(), indent=2))
        return 0
    if args.out is None:
        raise LetgoError("train needs --out RUN, the folder to write to")
    if args.seeds and args.seed is not None:
        raise LetgoError("give --seed or --seeds, not both")
    return train(args, config)


def train(args: argparse.Namespace, config: Config) -> int:
    import torch

    import letgo
    from letgo.machine import device_name, pick_device
    from letgo.progress import Progress

    device = pick_device(args.device)
    torch.set_num_threads(args.threads)
    show = Progress(f"{config.name} on {device_name(device)}: step", args.progress, args.quiet)

    def say(text: str) -> None:
        show.close()
        if not args.quiet:
            print(text, file=sys.stderr)

    def progress(step: int, total: int, speed: float, losses: dict[str, float]) -> None:
        show(step, total, f"  loss {losses['loss']:.5f}  {speed:,.0f} steps/s")

    same = ("seeds", "data", "max_seconds", "keep", "validate", "log_every")
    more = {"fast": False if args.plain else None, "command": args.command_line, "progress": progress, "say": say}
    runs = letgo.train(config, args.out, device=device, **{name: getattr(args, name) for name in same}, **more)
    signal = max(run.signal for run in (runs if isinstance(runs, list) else [runs]))
    return 128 + signal if signal else 0
