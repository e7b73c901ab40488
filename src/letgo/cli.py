"""The command line: words in, words out. Heavy imports wait until a command needs them."""

from __future__ import annotations

import argparse
import errno
import io
import math
import os
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TextIO, TypeVar

from letgo import __version__
from letgo.errors import LetgoError, Parser, at_least, boards

EPILOG = """examples:
  letgo solve                                          a built-in puzzle, drawn as a board
  letgo solve 53..7....6..195....98....6.8...6...34..8.3..17...2...6.6....28....419..5....8..79
  letgo solve sudoku --file puzzles.txt --tries 10     one line per puzzle
  letgo evaluate sudoku-baseline --rule ddpm --regime 21 --count 200
  letgo train sudoku-mini --out runs/mini              two minutes on a laptop
"""


FORMATS = """puzzles, one per word or line (docs/formats.md has an example of each):
  sudoku, latin   the cells row by row, . for a blank; sudoku-extreme too
  queens          one letter per row, the queen's column, . where unknown
  connectivity    the adjacency, rows of 0 and 1 joined by /
  maze            rows joined by /: # wall, . open, S start, G goal; o is the path in an answer
"""

WRITE_FAULTS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)

T = TypeVar("T")


def _threads(text: str) -> int:
    most = os.cpu_count() or 1
    if not text.isdecimal() or not 1 <= int(text) <= most:
        raise argparse.ArgumentTypeError(f"expected a number of threads from 1 to {most}, got '{text}'")
    return int(text)


def _path(text: str) -> Path:
    if not text:
        raise argparse.ArgumentTypeError("expected a path, got nothing; is a variable of the shell unset?")
    return Path(text)


def seed(text: str) -> int:
    """32 bits: a training step's seed is (seed, step)."""
    if not text.isdecimal() or int(text) >= 2**32:
        raise argparse.ArgumentTypeError(f"expected a seed from 0 to {2**32 - 1}, got '{text}'")
    return int(text)


def _real(least: float, most: float = math.inf) -> Callable[[str], float]:
    def number(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not least <= value <= most or math.isinf(value):
            span = f"from {least:g}" if math.isinf(most) else f"from {least:g} to {most:g}"
            raise argparse.ArgumentTypeError(f"expected a number {span}, got '{text}'")
        return value

    return number


def _list_of(kind: Callable[[str], T], may_be_empty: bool = False) -> Callable[[str], tuple[T, ...]]:
    def values(text: str) -> tuple[T, ...]:
        found = tuple(kind(part) for part in text.split(",") if part)
        if not found and not may_be_empty:
            raise argparse.ArgumentTypeError(f"expected values with commas between them, got '{text}'")
        return found

    return values


def _common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--threads", type=_threads, default=1, help="CPU threads; more than 1 pays only if idle")
    parser.add_argument("--progress", action="store_true", help="show progress even where stderr is no terminal")
    parser.add_argument("--quiet", action="store_true", help="no progress, no remarks")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")


def _sampler(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--steps", type=at_least(1), help="sampler steps (default: the model's own)")
    parser.add_argument("--seed", type=seed, default=0, help="seed of instances and noise (default 0)")
    parser.add_argument("--sigma", type=_real(0.0), help="noise scale of em and em-decay (default: as tuned)")
    parser.add_argument("--tau-start", type=_real(0.0, 1.0), help="progress 1 - t at which em-decay begins to fall")
    parser.add_argument("--variance", type=_real(0.0), default=1.0, help="factor on the rule's variance (Figure 11)")
    parser.add_argument("--soft-until", type=_real(0.0, 1.0), help="t*: soft pinning while t >= t* (default: never)")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or mps")
    parser.add_argument("--batch", type=at_least(1), help="boards sampled together")
    parser.add_argument(
        "--precision",
        choices=["auto", "bf16", "fp32"],
        default="auto",
        help="of the network's products (auto: bf16 on a GPU, and in `solve` where the CPU has it; else fp32)",
    )


def build_parser() -> Parser:
    parser = Parser(
        prog="letgo",
        description="Continuous diffusion for constrained discrete tasks: Tweedie reprojection, self-correction.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"letgo {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)

    solve = commands.add_parser(
        "solve",
        help="solve puzzles with a trained model",
        epilog=FORMATS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    solve.add_argument("words", nargs="*", metavar="[NAME] [PUZZLE ...]", help="a task or model, then puzzles")
    solve.add_argument("--file", help="puzzles, one per line; - for standard input")
    solve.add_argument("--model", help="shipped name, run folder, RUN@STEP or hub:ID")
    solve.add_argument("--rule", default="tweedie", help="ddpm ddim tweedie resample euler heun em em-decay")
    tries = "how often to try a puzzle (default 10); with --no-verify (default 1) the network chooses among them"
    solve.add_argument("--tries", type=at_least(1), help=tries)
    solve.add_argument("--no-verify", action="store_true", help="no look at the rules on the way")
    solve.add_argument("--json", action="store_true", help="one JSON object per puzzle")
    solve.add_argument("--show", action="store_true", help="draw the boards")
    _sampler(solve)
    _common(solve)

    generate = commands.add_parser("generate", help="draw boards without clues")
    generate.add_argument("name", metavar="NAME", help="a task or model")
    generate.add_argument("--count", type=boards, default=1, help="boards (default 1)")
    generate.add_argument("--model", help="shipped name, run folder, RUN@STEP or hub:ID")
    generate.add_argument("--rule", help="default: what draws most valid boards, by the model's card")
    generate.add_argument("--tries", type=at_least(1), default=1, help="of so many, what the network believes most")
    generate.add_argument("--json", action="store_true", help="one object with boards, their validity and the rate")
    generate.add_argument("--show", action="store_true", help="draw the boards")
    _sampler(generate)
    _common(generate)

    for name, text in (("models", "list the shipped models"), ("presets", "list the training presets")):
        listing = commands.add_parser(name, help=text)
        listing.add_argument("--json", action="store_true")
        _common(listing)

    train = commands.add_parser("train", help="train a preset, or go on with a run")
    train.add_argument("preset", metavar="PRESET", help="`letgo presets` lists them")
    train.add_argument("--out", type=_path, metavar="RUN", help="the run folder; repeat the command to resume")
    train.add_argument("--init", metavar="M", help="start from this model's weights instead of random ones")
    train.add_argument("--data", help="training instances: .npz, .csv(.gz), a folder, or hub; default: generated")
    train.add_argument("--steps", type=at_least(1), help="optimiser steps; schedules follow this number")
    train.add_argument("--max-seconds", type=_real(0.0), help="stop cleanly after this time and save")
    train.add_argument("--seed", type=seed)
    train.add_argument("--seeds", type=_list_of(seed), help="several runs: 0,1,2 writes RUN/s0, RUN/s1, RUN/s2")
    train.add_argument("--device", default="auto", help="auto, cpu, cuda or mps")
    train.add_argument("--batch", type=at_least(1))
    train.add_argument(
        "--optimizer", choices=["adam", "muon"], help="adam (the paper's), or muon for the blocks' matrices"
    )
    train.add_argument("--learning-rate", type=_real(0.0))
    train.add_argument("--warmup", type=at_least(0), help="steps of linear warm-up")
    train.add_argument(
        "--decay", type=_real(0.0, 1.0), help="share of the steps, at the end, for the rate to fall to 0"
    )
    train.add_argument("--precision", choices=["auto", "bf16", "fp16", "fp32"])
    train.add_argument("--boards", type=boards, help="how many instances to generate")
    train.add_argument("--symmetries", action="store_true", help="mazes: each in its 8 turns and reflections")
    train.add_argument("--simple-weight", type=_real(0.0), help="lambda_simple of self-correction")
    train.add_argument("--full-gradient", action="store_true", help="Algorithm 2 to the letter (dearer)")
    train.add_argument(
        "--keep",
        type=_list_of(at_least(1), may_be_empty=True),
        help="steps whose weights are kept, e.g. 1000,2000; '' for none",
    )
    train.add_argument(
        "--validate", type=at_least(0), help="instances that choose between EMA and raw weights; 0: keep EMA"
    )
    train.add_argument("--log-every", type=at_least(1), default=100)
    train.add_argument("--tensorboard", action="store_true")
    train.add_argument("--plain", action="store_true", help="no compilation, no CUDA graph")
    train.add_argument("--dry-run", action="store_true", help="print the configuration and stop")
    _common(train)

    evaluate = commands.add_parser("evaluate", help="measure a model with a rule")
    evaluate.add_argument("model", metavar="MODEL", help="shipped name, run folder, RUN@STEP or hub:ID")
    evaluate.add_argument("--rule", required=True, help="ddpm ddim tweedie resample euler heun em em-decay")
    evaluate.add_argument("--regime", help="clue regime, e.g. 21, medium, hard for sudoku")
    evaluate.add_argument("--count", type=boards, default=2000, help="instances (default 2000)")
    evaluate.add_argument("--passes", type=at_least(1), default=1, help="k of pass@k, and of the network's own choice")
    evaluate.add_argument("--data", help="instances: a file, a folder with valid.csv and test.csv (or .npz), or hub")
    evaluate.add_argument("--json", action="store_true")
    evaluate.add_argument("--out", type=_path, help="write the JSON report here")
    evaluate.add_argument("--plain", action="store_true", help="no compilation: quicker for a short measurement")
    _sampler(evaluate)
    _common(evaluate)

    tune = commands.add_parser("tune", help="choose the checkpoint, sigma and tau_start on validation instances")
    tune.add_argument("runs", metavar="RUN", nargs="+", help="run folders, tuned as one; shipped names with --out")
    tune.add_argument("--rule", required=True, choices=["em", "em-decay"])
    tune.add_argument("--regime", help="of the validation instances; its settings are kept apart (default: the first)")
    tune.add_argument("--count", type=boards, default=500, help="validation instances (default 500)")
    tune.add_argument("--steps", type=at_least(1), help="sampler steps (default: the model's own)")
    tune.add_argument("--seed", type=seed, default=0, help="seed of instances and noise (default 0)")
    tune.add_argument("--sigmas", type=_list_of(_real(0.0)), help="values to try, e.g. 0.05,0.1,0.2")
    tune.add_argument("--tau-starts", type=_list_of(_real(0.0, 1.0)), help="values to try, e.g. 0.6,0.7,0.8")
    tune.add_argument("--quick", action="store_true", help="a smaller grid around the paper's settings")
    tune.add_argument("--as-is", action="store_true", help="tune the weights that RUN has; pick no checkpoint by Euler")
    tune.add_argument("--data", help="validation instances: a file, a folder with valid.csv, or hub")
    tune.add_argument("--device", default="auto", help="auto, cpu, cuda or mps")
    tune.add_argument("--plain", action="store_true", help="no compilation")
    tune.add_argument("--batch", type=at_least(1))
    tune.add_argument("--json", action="store_true")
    tune.add_argument("--out", type=_path, help="write here instead of RUN/tune-RULE.json and leave RUN as it is")
    _common(tune)

    bench = commands.add_parser("bench", help="measure speed: ours, the plain path and a diffusers loop")
    bench.add_argument("what", choices=["train", "sample"])
    bench.add_argument("preset", nargs="?", default="sudoku", metavar="PRESET", help="default sudoku")
    bench.add_argument("--device", default="auto", help="auto, cpu, cuda or mps")
    bench.add_argument("--batch", type=at_least(1), help="boards per step (default: the preset's, or the sampler's)")
    bench.add_argument("--steps", type=at_least(1), help="steps per measurement (default: fewer on a CPU)")
    bench.add_argument("--repeats", type=at_least(1), default=5, help="measurements; the median counts (default 5)")
    bench.add_argument("--seeds", type=at_least(1), default=1, help="models trained together (default 1)")
    bench.add_argument("--precision", choices=["auto", "bf16", "fp32"], default="auto", help="of sampling in `ours`")
    bench.add_argument("--json", action="store_true")
    bench.add_argument("--out", type=_path, help="write the JSON report here")
    _common(bench)

    reproduce = commands.add_parser("reproduce", help="measure the paper's tables and write the page of results")
    reproduce.add_argument("names", nargs="*", metavar="TABLE", help="table1, table5, ...; `--list` shows all")
    reproduce.add_argument("--list", action="store_true", help="what can be reproduced")
    reproduce.add_argument("--quick", action="store_true", help="DDPM and Tweedie, n = 16, pass@1: minutes on a CPU")
    reproduce.add_argument("--models", type=_path, metavar="FOLDER", help="holds run folders X, X-baseline, X.s1, ...")
    reproduce.add_argument("--device", default="auto", help="auto, cpu, cuda or mps")
    reproduce.add_argument("--count", type=boards, help="instances per cell (default: the paper's)")
    reproduce.add_argument("--seeds", type=_list_of(seed), help="training seeds (default 0,1,2, as far as trained)")
    reproduce.add_argument("--tasks", type=_list_of(str), help="only these tasks, e.g. sudoku,latin")
    reproduce.add_argument("--rules", type=_list_of(str), help="only these rules, e.g. ddpm,tweedie")
    reproduce.add_argument("--data", action="append", metavar="[TASK=]PATH", help="Sudoku-Extreme's files, or TASK's")
    reproduce.add_argument("--also", type=_list_of(str), help="other recipes to measure beside the paper's")
    reproduce.add_argument(
        "--out", type=_path, metavar="FOLDER", help="the JSON (default results; quick: results/quick)"
    )
    reproduce.add_argument("--page", type=_path, metavar="FILE", help="write the page here (default docs/results.md)")
    reproduce.add_argument("--force", action="store_true", help="measure again what is there already")
    reproduce.add_argument("--dry-run", action="store_true", help="print the commands that are missing and stop")
    reproduce.add_argument("--commands", action="store_true", help="print the commands behind what is there and stop")
    reproduce.add_argument("--batch", type=at_least(1), help="boards sampled together")
    reproduce.add_argument("--plain", action="store_true", help="no compilation")
    _common(reproduce)

    app = commands.add_parser("app", help="the page where two samplers think side by side")
    app.add_argument("--host", default="127.0.0.1", help="address to listen on (default: this machine only)")
    app.add_argument("--port", type=at_least(0), default=8077, help="default 8077; 0 takes any free one")
    app.add_argument("--open", action="store_true", help="open the page in a browser")
    app.add_argument("--model", action="append", metavar="RUN", help="offer this run folder too; may be repeated")
    app.add_argument("--device", default="cpu", help="auto, cpu, cuda or mps (default cpu)")
    app.add_argument("--queue", type=at_least(1), default=64, help="requests under way or waiting (default 64)")
    app.add_argument("--allow-host", action="append", metavar="NAME", help="answer to this host name too")
    _common(app)

    data = commands.add_parser("data", help="make, fetch and check data files", add_help=False)
    data.add_argument("rest", nargs=argparse.REMAINDER)
    return parser


def main(argv: list[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else argv
    debug = "--debug" in words
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (for as long as the program runs)
    if sys.stdout is None:
        return _complain("standard output is closed; send it to a file, or to /dev/null")
    try:
        try:
            return _dispatch(words)
        finally:
            sys.stdout.flush()  # a reader that has left shows itself here, not while Python shuts down
    except LetgoError as error:
        if debug:
            raise
        return _complain(str(error))
    except KeyboardInterrupt:
        return _complain("interrupted", 130)
    except BrokenPipeError:
        _give_up_on(sys.stdout)  # the reader has left; say nothing more
        return 141
    except OSError as error:
        if debug or (error.filename is None and error.errno not in WRITE_FAULTS):
            raise
        _give_up_on(sys.stdout)
        if error.filename is None:
            return _complain(f"cannot write: {error.strerror}; check the disk and where the output goes")
        return _complain(f"{error.filename}: {error.strerror}")
    except UnicodeEncodeError as error:
        if debug:
            raise
        sign = error.object[error.start]
        return _complain(f"the output's encoding, {error.encoding}, has no '{sign}'; set PYTHONIOENCODING=utf-8")
    except (MemoryError, RuntimeError) as error:
        full = isinstance(error, MemoryError) or re.search("(allocate|out of) memory", str(error))  # torch says so
        if debug or not full:
            raise
        return _complain(
            "not enough memory for that; ask for less at a time: a smaller --batch, or --count where there is one"
        )


def _complain(text: str, code: int = 2) -> int:
    """One line on stderr, and the exit code, which holds even where nobody can read the line."""
    try:
        print(f"letgo: {text}", file=sys.stderr, flush=True)
    except OSError:
        _give_up_on(sys.stderr)
    return code


def _give_up_on(stream: TextIO | io.TextIOBase) -> None:
    """What it cannot write stays in its buffer, and Python would fail on that once more while it shuts down."""
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _dispatch(words: list[str]) -> int:
    if words[:1] == ["data"]:
        from letgo import commands_data

        return commands_data.main(words[1:])
    args, rest = build_parser().parse_known_args(words)
    if args.command == "solve" and not any(word.startswith("-") for word in rest):
        args.words += rest  # argparse gives up on puzzles that come after an option
    elif rest:
        raise LetgoError(f"unrecognized arguments: {' '.join(rest)}; see `letgo {args.command} --help`")
    args.command_line = "letgo " + shlex.join(words)
    if args.command is None:
        build_parser().print_help()
        return 0
    if args.command == "train":
        from letgo import commands_train

        return commands_train.run(args)
    if args.command == "tune":
        from letgo import commands_tune

        return commands_tune.run(args)
    if args.command == "app":
        from letgo import commands_app

        return commands_app.run(args)
    if args.command == "bench":
        from letgo import commands_bench

        return commands_bench.run(args)
    if args.command == "reproduce":
        from letgo import commands_reproduce

        return commands_reproduce.run(args)
    from letgo import commands

    return getattr(commands, args.command)(args)
