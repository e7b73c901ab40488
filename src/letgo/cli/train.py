"""`letgo train`: words in, a run folder out."""

from __future__ import annotations

import argparse
import json
import os
from typing import TYPE_CHECKING

from letgo.cli import options
from letgo.errors import LetgoError

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from letgo.config import Config
    from letgo.progress import Progress
    from letgo.training.loop import Watch

A_DAY = 86_400  # seconds
MANY = 50_000  # instances or steps that are worth a forecast: it takes seconds, drawing or taking them longer


def add(parser: argparse.ArgumentParser) -> None:
    add, whole = parser.add_argument, options.at_least(1)
    add(
        "preset",
        nargs="?",
        metavar="PRESET",
        help="what to train (`letgo presets` lists them); none with --task or a table",
    )
    add(
        "--out",
        type=options.path,
        metavar="RUN",
        help="the run folder to write; repeat the command to resume (required, except with --dry-run)",
    )
    add(
        "--init",
        metavar="M",
        help="start from the weights of this model or run, which may have another codec (default: random weights)",
    )
    data = (
        "training data: .npz, .npy, .csv(.gz), a folder, or hub (default: generated). Without PRESET a table of your "
    )
    add("--data", help=f"{data}own, one valid row per line: .csv .tsv .txt .npy .npz .parquet (docs/own-data.md)")
    add(
        "--digits",
        metavar="WHAT",
        help="images, for presets of digits: mnist, optdigits, a folder with MNIST's files or of `letgo data digits` "
        "(default: MNIST of data/mnist, where it was fetched, else optdigits)",
    )
    add(
        "--grid",
        type=options.grid,
        metavar="HxW",
        help="tables: show a row as a grid of this height and width on the page (default: one line)",
    )
    options.valid(parser)
    add("--steps", type=whole, help="optimizer steps (default: the preset's)")
    add(
        "--max-seconds",
        type=options.real(0.0),
        help="stop training after this many seconds and save; choosing weights comes on top (default: never)",
    )
    add("--seed", type=options.seed, help="random seed of weights, boards and noise (default 0)")
    add(
        "--seeds",
        type=options.list_of(options.seed),
        help="train several seeds: 0,1,2 writes RUN/s0, RUN/s1, RUN/s2 (default: one)",
    )
    options.device(parser)
    add_recipe(parser)
    add(
        "--keep",
        type=options.list_of(whole, may_be_empty=True),
        help="steps whose checkpoints are kept, e.g. 1000,2000; '' for none (default: nine, from 20,000 to 2,000,000)",
    )
    add(
        "--validate",
        type=options.at_least(0),
        help="validation instances that decide between EMA and raw weights (default 64, on a GPU 512; 0: keep EMA)",
    )
    add("--log-every", type=whole, default=100, help="steps between lines of metrics.jsonl (default 100)")
    log = "also write metrics as RUN/metrics.csv, or for TensorBoard if it is installed (default: only metrics.jsonl)"
    add("--log", choices=["csv", "tensorboard"], help=log)
    options.flag(parser, "--plain", "plain PyTorch: no compilation, no CUDA graph")
    options.flag(parser, "--dry-run", "print the configuration and stop")
    options.own_task(parser)
    options.common(parser, idle=True)


def add_recipe(parser: argparse.ArgumentParser) -> None:
    """Add what a preset decides and a user may decide otherwise."""
    add = parser.add_argument
    options.batch(parser, "boards per step (default: the preset's, usually 256)")
    add(
        "--optimizer",
        choices=["adam", "muon"],
        help="adam, as in the paper, or muon for the blocks' matrices (default: the preset's, usually adam)",
    )
    add(
        "--learning-rate",
        type=options.positive,
        help="peak learning rate, after warm-up (default: the preset's, usually 0.001)",
    )
    add(
        "--warmup",
        type=options.at_least(0),
        help="steps of linear learning-rate warm-up (default: the preset's, usually 2,000)",
    )
    add(
        "--decay",
        type=options.real(0.0, 1.0),
        help="fraction of the steps, at the end, in which the learning rate falls to 0 (default: the preset's, "
        "usually 0: a constant rate)",
    )
    add(
        "--precision",
        choices=["auto", "bf16", "fp32"],
        help="of matrix products; auto is bf16 on a GPU and fp32 elsewhere (default: the preset's, usually auto)",
    )
    add(
        "--boards",
        type=options.boards,
        help="how many training instances to generate if there is no --data (default: the preset's)",
    )
    options.flag(
        parser,
        "--symmetries",
        "data augmentation: the 8 rotations and reflections of a maze, a random symmetry of each Sudoku",
    )
    add(
        "--simple-weight",
        type=options.real(0.0, 100.0),
        help="lambda_simple, the weight of the simple loss, 0 to 100 (default: the preset's, usually 0.1)",
    )
    add(
        "--ablation",
        metavar="NAME",
        help="an ablation of the objective (App. L.2); a wrong name lists them all (default: none)",
    )
    options.flag(parser, "--full-gradient", "Algorithm 2 to the letter; slower (default: App. C's cheaper form)")


def rank() -> int:
    """Return which of the processes this is that `torchrun` started; the first one, or one alone, is 0."""
    return int(os.environ.get("RANK", 0)) if "TORCHELASTIC_RUN_ID" in os.environ else 0


def run(args: argparse.Namespace) -> int:
    if rank() == 0:
        return run_words(args)
    args.voice.quiet = True
    try:
        return run_words(args)
    except LetgoError as error:
        raise LetgoError(f"process {rank()}: {error}") from None


def run_words(args: argparse.Namespace) -> int:
    from dataclasses import fields

    from letgo import tasks
    from letgo.config import Config
    from letgo.presets import ablated, preset
    from letgo.training.train import configured

    table = args.preset is None and args.own_task is None
    if table and args.data is None:
        raise LetgoError("train needs a PRESET (`letgo presets` lists them), --data TABLE or --task FILE.py:Class")
    if not table and (args.grid or args.valid):
        raise LetgoError(
            f"{'--grid' if args.grid else '--valid'} is for a table, `letgo train --data FILE`; leave it out"
        )
    flags = {field.name: getattr(args, field.name, None) for field in fields(Config)}
    changes = {name: value for name, value in flags.items() if value is not False}  # a flag that was left out
    if table:
        from letgo.training.table import table_config

        args.voice.announce(f"reading {args.data}")
        start = table_config(args.data, args.grid or (), args.valid or "")
    else:
        start = preset(args.preset) if args.preset else Config.for_task(tasks.get(str(args.own_task)))
    config = configured(ablated(start, args.ablation) if args.ablation else start, **changes)
    if args.dry_run:
        if table:
            look_at_table(args, config)
        print(json.dumps(config.as_dict(), indent=2))
        return 0
    if args.out is None:
        raise LetgoError("train needs --out RUN, the folder to write to")
    if args.seeds and args.seed is not None:
        raise LetgoError("give --seed or --seeds, not both")
    if args.seeds and len(set(args.seeds)) < len(args.seeds):
        raise LetgoError(f"--seeds {','.join(map(str, args.seeds))}: one of them twice; each seed is a run of its own")
    if not table:
        return train(args, config)
    return train_table(args, config)


def look_at_table(args: argparse.Namespace, config: Config) -> None:
    """Say what is in the table, and refuse one that nothing can be learned from."""
    from letgo.data.source import source_of
    from letgo.training.table import remarks

    task = config.build_task()
    for line in remarks(args.data, task):
        args.voice.say(line)
    source_of(task, args.data).split("train")


def train_table(args: argparse.Namespace, config: Config) -> int:
    """Look at the table first, and report in the end what was learned of it."""
    from letgo.machine import pick_device
    from letgo.runs import write_json
    from letgo.runs.files import weights_digest
    from letgo.solver import load
    from letgo.training.table import is_reported, report_lines, table_report

    look_at_table(args, config)
    task, code = config.build_task(), train(args, config)
    folders = [args.out] if args.seeds is None else [args.out / f"s{seed}" for seed in args.seeds]
    for folder in folders if code == 0 and args.validate != 0 and rank() == 0 else ():
        if not (folder / "validation.json").exists() or is_reported(folder):
            continue  # it was stopped, or nothing is new
        args.voice.announce(f"completing held-out rows by {folder}")
        report = table_report(load(folder, str(pick_device(args.device))), args.data)
        report["weights_sha256"] = weights_digest(folder)
        write_json(folder / "report.json", report)
        for line in report_lines(report, task.valid):
            args.voice.say(line)
        args.voice.say(
            f"to fill blanks: letgo complete {folder} PARTIAL.csv; new rows: letgo generate {folder} --count 5"
        )
    return code


def train(args: argparse.Namespace, config: Config) -> int:
    import torch

    import letgo
    from letgo.machine import device_name, pick_device, pick_threads
    from letgo.progress import Progress
    from letgo.training.curves import draw_losses, tensorboard_log, write_csv

    device = pick_device(args.device)
    torch.set_num_threads(threads := pick_threads(args.threads))
    where = device_name(device) + (f", {threads} thread{'s' * (threads > 1)}" if device.type == "cpu" else "")
    if "TORCHELASTIC_RUN_ID" in os.environ:
        where += f", {os.environ['WORLD_SIZE']} processes"
    args.voice.announce(f"training {config.name} on {where}: {config.steps:,} steps of {config.batch} boards")
    same = ("seeds", "data", "digits", "max_seconds", "keep", "validate", "log_every")
    more = {"fast": False if args.plain else None, "command": args.command_line, "say": args.voice.say}
    show, warn = Progress(f"{config.name}: step", voice=args.voice), warner(args, device)
    begun = any((folder / "state.pt").exists() for folder in [args.out, *args.out.glob("s[0-9]*")])
    if args.data is None and device.type == "cpu" and max(config.boards, config.steps) > MANY and not begun:
        forecast(args, config, warn)
    more["watch"] = watcher(show, warn)
    if args.log == "tensorboard" and rank() == 0:
        more["on_log"] = tensorboard_log()
    runs = letgo.train(config, args.out, device=device, **{name: getattr(args, name) for name in same}, **more)
    runs = runs if isinstance(runs, list) else [runs]
    for run in runs if rank() == 0 else ():
        written = [curve for curve in (draw_losses(run.folder),) if curve is not None]
        if args.log == "csv":
            written.append(write_csv(run.folder))
        if run.trained and written and run.stopped_by == "done":  # else the last line says how to go on
            args.voice.say(f"the loss by step: {', '.join(map(str, written))}")
    signal = max(run.signal for run in runs)
    return 128 + signal if signal else 0


def forecast(args: argparse.Namespace, config: Config, warn: Callable[[float], None]) -> None:
    """Say how long the steps will take before instances are drawn and the first step is taken, a minute's work each."""
    from letgo.progress import MEASURE, clock
    from letgo.training.train import seconds_of_a_step

    made_of_files = hasattr(config.build_codec(), "prepare")  # images of digits, which are not in the run's folder yet
    if args.max_seconds is not None or made_of_files or "TORCHELASTIC_RUN_ID" in os.environ:
        return
    runs = len(args.seeds or [0])
    left = seconds_of_a_step(config, MEASURE) * config.steps * runs
    if left <= A_DAY:
        args.voice.say(f"the steps take about {clock(left)}; first {config.boards:,} training instances are drawn")
    warn(left)


def watcher(show: Progress, warn: Callable[[float], None]) -> Watch:
    """Show the steps as they are taken, and warn of what they will take."""

    def watch(step: int, total: int, loss: Callable[[], float]) -> None:
        show(step, total, lambda: f"  loss {loss():.5f}{show.speed('steps')}" if step else "")
        left = show.left()
        if show.estimated and left is not None:
            warn(left)

    return watch


def warner(args: argparse.Namespace, device: torch.device) -> Callable[[float], None]:
    """Return what says, once, of a run of more than a day what would not take so long."""
    from letgo.progress import clock

    warned = []

    def warn(left: float) -> None:
        if not warned and left > A_DAY and args.max_seconds is None:
            warned.append(True)
            gpu = "" if device.type == "cuda" else "a GPU is far faster (--device cuda), "
            args.voice.say(
                f"letgo: at this speed it takes {clock(left)}; {gpu}--steps N makes a shorter run, --max-seconds S "
                "ends it cleanly, and `letgo train sudoku-mini` takes two minutes. Ctrl-C saves"
            )

    return warn
