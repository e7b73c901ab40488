"""`letgo bench`: words in, a table of speeds out."""

from __future__ import annotations

import argparse
from dataclasses import replace

from letgo.cli import options
from letgo.errors import LetgoError


def add(parser: argparse.ArgumentParser) -> None:
    whole = options.at_least(1)
    parser.add_argument("what", choices=["train", "sample", "solve"], help="what is timed")
    parser.add_argument(
        "preset", nargs="?", default="sudoku", metavar="PRESET", help="default sudoku; of solve a model"
    )
    options.device(parser)
    options.batch(parser, "boards per step (default: the preset's, or the sampler's)")
    parser.add_argument("--steps", type=whole, help="steps per measurement (default: fewer on a CPU)")
    parser.add_argument("--repeats", type=whole, default=5, help="measurements; the median counts (default 5)")
    parser.add_argument("--seeds", type=whole, default=1, help="models trained together (default 1)")
    solving = parser.add_argument_group("of solve, which tries again until the network is sure")
    solving.add_argument("--data", help=options.INSTANCES)
    solving.add_argument("--count", type=options.boards, default=4000, help="puzzles (default 4000)")
    solving.add_argument("--images", type=whole, default=1, help="each under so many symmetries (default 1: as it is)")
    solving.add_argument("--tries", type=whole, default=48, help="of a puzzle at most (default 48)")
    options.precision(parser, "of sampling in `ours` (default auto: bf16 on a GPU, else fp32)")
    options.report(parser)
    options.common(parser)


def run(args: argparse.Namespace) -> int:
    import torch

    from letgo.bench.speed import bench_sample, bench_train, summary
    from letgo.data.files import refuse_unwritable
    from letgo.machine import device_name, pick_device
    from letgo.presets import preset
    from letgo.progress import doing

    refuse_unwritable(args.out)
    if args.seeds != 1 and args.what != "train":
        raise LetgoError("--seeds is for `letgo bench train`; sampling has one model")
    if args.what == "solve":
        return _solve(args)
    if (args.data, args.count, args.images, args.tries) != (None, 4000, 1, 48):
        raise LetgoError("--data, --count, --images and --tries are for `letgo bench solve`; leave them out")
    config, device = preset(args.preset), pick_device(args.device)
    torch.set_num_threads(args.threads)

    args.voice.announce(f"timing: {args.what} {args.preset}, on {device_name(device)}")
    if args.what == "train":
        config = replace(config, batch=args.batch or config.batch)
        report = bench_train(config, device, args.steps, args.repeats, args.seeds, doing)
    else:
        report = bench_sample(config, device, args.batch, args.steps, args.repeats, args.threads, args.precision, doing)
    options.publish({**report, "command": args.command_line}, args, summary)
    return 0


def _solve(args: argparse.Namespace) -> int:
    from letgo.bench.solve import bench_solve, puzzles_of, summary
    from letgo.machine import device_name
    from letgo.progress import doing
    from letgo.solver import load

    solver = load(args.preset, args.device, threads=args.threads, precision=args.precision)
    args.voice.announce(f"timing: solve {args.preset}, on {device_name(solver.device)}")
    problem = puzzles_of(solver.task, args.data, args.count, args.images)
    report = bench_solve(solver, problem, args.tries, args.steps, args.batch, args.repeats, doing)
    report["images"] = args.images
    options.publish({**report, "command": args.command_line}, args, summary)
    return 0
