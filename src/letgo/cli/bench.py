"""`letgo bench`: words in, a table of speeds out."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace

from letgo.cli import options
from letgo.errors import LetgoError


def add(parser: argparse.ArgumentParser) -> None:
    whole = options.at_least(1)
    parser.add_argument("what", choices=["train", "sample"], help="what is timed")
    parser.add_argument("preset", nargs="?", default="sudoku", metavar="PRESET", help="default sudoku")
    options.device(parser)
    options.batch(parser, "boards per step (default: the preset's, or the sampler's)")
    parser.add_argument("--steps", type=whole, help="steps per measurement (default: fewer on a CPU)")
    parser.add_argument("--repeats", type=whole, default=5, help="measurements; the median counts (default 5)")
    parser.add_argument("--seeds", type=whole, default=1, help="models trained together (default 1)")
    options.precision(parser, "of sampling in `ours` (default auto: bf16 on a GPU, else fp32)")
    options.report(parser)
    options.common(parser)


def run(args: argparse.Namespace) -> int:
    import torch

    from letgo.bench.speed import bench_sample, bench_train, summary
    from letgo.data.files import refuse_unwritable
    from letgo.machine import pick_device
    from letgo.presets import preset

    refuse_unwritable(args.out)
    config, device = preset(args.preset), pick_device(args.device)
    torch.set_num_threads(args.threads)

    def say(text: str) -> None:
        if not args.quiet and (args.progress or sys.stderr.isatty()):
            print(text, file=sys.stderr)

    if args.what == "train":
        config = replace(config, batch=args.batch or config.batch)
        report = bench_train(config, device, args.steps, args.repeats, args.seeds, say)
    elif args.seeds != 1:
        raise LetgoError("--seeds is for `letgo bench train`; sampling has one model")
    else:
        report = bench_sample(config, device, args.batch, args.steps, args.repeats, args.threads, args.precision, say)
    options.publish({**report, "command": args.command_line}, args, summary)
    return 0
