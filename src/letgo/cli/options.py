"""Types of options, and the options that several verbs share. Nothing here imports torch or numpy when it is loaded."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from letgo.errors import LetgoError, unknown

if TYPE_CHECKING:
    from letgo.solver import Solver

MODEL = "shipped name, run folder, RUN@STEP or hub:ID"
REGIME = "clue regime, e.g. 21, medium, hard for sudoku (default: the task's first)"
INSTANCES = "instances: a file, a folder with valid.csv and test.csv (or .npz), or hub (default: generated)"
RULES = "ddpm ddim tweedie resample euler heun em em-decay; masked diffusion: ancestral confidence remask remdm"
MOST = 10**9  # of any number that names no other bound
MOST_STEPS = 10**6  # of a sampler

T = TypeVar("T")


class Parser(argparse.ArgumentParser):
    """A Parser reads arguments; its complaints are one-line errors."""

    def error(self, message: str) -> NoReturn:
        raise LetgoError(f"{message}; see `{self.prog} --help`")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse a word that is none of an argument's choices by the nearest of them."""
        if action.choices is not None and value not in action.choices:
            raise argparse.ArgumentError(action, str(unknown("choice", str(value), map(str, action.choices))))

    def of(self, *words: str) -> Parser:
        """Return the parser of the verb that these words begin with, which may be two such as `data make`."""
        verbs = next((action.choices for action in self._actions if isinstance(action.choices, dict)), {})
        return verbs[words[0]].of(*words[1:]) if words and words[0] in verbs else self

    @property
    def options(self) -> list[str]:
        """Return the long options."""
        return [name for action in self._actions for name in action.option_strings if name.startswith("--")]


# Types


def at_least(least: int, most: int | None = None, what: str = "whole number") -> Callable[[str], int]:
    """Return the type of an option that is a whole number."""
    largest = most or MOST

    def whole_number(text: str) -> int:
        plain = text.removeprefix("-").isdecimal()
        if not plain or len(text) > 20 or not least <= int(text) <= largest:
            large = text.isdecimal() and (len(text) > 20 or int(text) > largest)
            span = f"from {least} to {largest}" if large or most else f"from {least}"  # MOST is told where it matters
            raise argparse.ArgumentTypeError(f"expected a {what} {span}, got '{text[:40]}'")
        return int(text)

    return whole_number


boards = at_least(1, 10**9)  # all of them lie in memory
threads = at_least(1, os.cpu_count() or 1, "number of threads")
seed = at_least(0, 2**32 - 1, "seed")  # 32 bits, since a training step's seed is (seed, step)


def path(text: str) -> Path:
    if not text:
        raise argparse.ArgumentTypeError("expected a path, got nothing; is a variable of the shell unset?")
    return Path(text)


def grid(text: str) -> tuple[int, ...]:
    sides = tuple(int(part) for part in text.lower().split("x") if part.isdecimal())
    if len(sides) != 2 or not all(sides) or text.lower().count("x") != 1:
        raise argparse.ArgumentTypeError(f"expected HxW, for instance 7x4, got '{text}'")
    return sides


def real(least: float, most: float = math.inf) -> Callable[[str], float]:
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


def positive(text: str) -> float:
    value = real(0.0)(text)
    if value == 0:
        raise argparse.ArgumentTypeError("expected a number above 0, got 0")
    return value


def list_of(kind: Callable[[str], T], may_be_empty: bool = False) -> Callable[[str], tuple[T, ...]]:
    def values(text: str) -> tuple[T, ...]:
        parts = tuple(kind(part) for part in text.split(",") if part)
        if not parts and not may_be_empty:
            raise argparse.ArgumentTypeError(f"expected values with commas between them, got '{text}'")
        return parts

    return values


# Options


def flag(parser: argparse.ArgumentParser, name: str, text: str) -> None:
    parser.add_argument(name, action="store_true", help=text)


def common(parser: argparse.ArgumentParser, idle: bool = False) -> None:
    """Add the options that verbs share; with `idle` the number of threads follows what the machine has idle."""
    text = "CPU threads (default: idle cores)" if idle else "CPU threads (default 1; more pay only if idle)"
    parser.add_argument("--threads", type=threads, default=None if idle else 1, help=text)
    flag(parser, "--progress", "without a terminal, a line every 5 seconds instead of every 30")
    flag(parser, "--quiet", "no progress, no remarks")
    flag(parser, "--debug", "show the traceback of an error")


def own_task(parser: argparse.ArgumentParser) -> None:
    text = "a task of your own: a class in a Python file, which is run (default: none)"
    parser.add_argument("--task", dest="own_task", metavar="FILE.py:CLASS", help=text)


def valid(parser: argparse.ArgumentParser) -> None:
    text = "tables: a function that gets a row's words as a list and returns whether it is valid; its file is run"
    parser.add_argument("--valid", metavar="FILE.py:FUNCTION", help=f"{text} (default: none)")


def device(
    parser: argparse.ArgumentParser, default: str = "auto", text: str = "auto, cpu, cuda, cuda:1 or mps (default auto)"
) -> None:
    parser.add_argument("--device", default=default, help=text)


def batch(
    parser: argparse.ArgumentParser, text: str = "boards sampled together (default: as suits the device)"
) -> None:
    parser.add_argument("--batch", type=at_least(1), help=text)


def precision(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("--precision", choices=["auto", "bf16", "fp32"], default="auto", help=text)


def steps_and_seed(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--steps", type=at_least(1, MOST_STEPS), help="sampler steps (default: the model's own)")
    parser.add_argument("--seed", type=seed, default=0, help="seed of instances and noise (default 0)")


def report(parser: argparse.ArgumentParser, text: str = "write the JSON report here (default: nowhere)") -> None:
    flag(parser, "--json", "print the report as JSON")
    parser.add_argument("--out", type=path, help=text)


def sampler(parser: argparse.ArgumentParser) -> None:
    steps_and_seed(parser)
    parser.add_argument("--sigma", type=real(0.0), help="noise scale of em and em-decay (default: as tuned)")
    parser.add_argument(
        "--tau-start", type=real(0.0, 1.0), help="progress 1 - t at which em-decay begins to fall (default: as tuned)"
    )
    late = "em-decay: take sigma this many steps ahead; 1 is the end of a step (default: its beginning, Eq. 28)"
    parser.add_argument("--sigma-ahead", type=real(0.0), help=late)
    parser.add_argument(
        "--variance", type=real(0.0), default=1.0, help="factor on the rule's variance, Figure 11 (default 1)"
    )
    ahead = "tell the network the time this many steps ahead of the state's (default 0)"
    parser.add_argument("--ahead", type=real(0.0), default=0.0, help=ahead)
    band = "tweedie, resample: the time from 0 to 1 that the first proposal is noised to"
    parser.add_argument("--t-max", type=real(0.0, 1.0), help=f"{band} (default: as tuned, else 1)")
    band = "the same of the last proposal but one; times fall evenly from --t-max to it"
    parser.add_argument("--t-min", type=real(0.0, 1.0), help=f"{band} (default: as tuned, else 0)")
    parser.add_argument("--soft-until", type=real(0.0, 1.0), help="t*: soft pinning while t >= t* (default: never)")
    text = "confidence, remask: the likeliest symbols, and Gumbel noise of this scale in the order of cells"
    parser.add_argument("--order-noise", type=real(0.0), help=f"{text} (default: symbols are drawn)")
    text = "confidence, remask: of the drawn symbols; 1 draws as the network says, 0 takes the likeliest (default 0.5)"
    parser.add_argument("--temperature", type=real(0.0), help=text)
    device(parser)
    batch(parser)
    precision(
        parser,
        "of the network's products (default auto: bf16 on a GPU, and in `solve` where the CPU has it; else fp32)",
    )


# What they mean


def print_json(value: Any) -> None:
    """Print one object to read and to parse; verbs that answer many questions print one line for each instead."""
    print(json.dumps(value, indent=2))


def publish(report: dict[str, Any], args: argparse.Namespace, summary: Callable[[dict[str, Any]], str]) -> None:
    """Write the report to --out and print it, as JSON or for a reader."""
    from letgo.runs import write_json

    if args.out:
        write_json(args.out, report)
    print_json(report) if args.json else print(summary(report))


def settings(args: argparse.Namespace) -> dict[str, Any]:
    from letgo.samplers import SETTINGS

    return {name: getattr(args, name) for name in SETTINGS}


def warn_of_other_steps(
    solver: Solver, rule: str, steps: int, args: argparse.Namespace, regime: str | None = None
) -> None:
    """Warn of tuned settings at other steps than they were tuned with: EM decay diverges with far fewer."""
    from letgo.samplers import rule_kind

    tuned = solver.tuning(rule, regime).get("steps") if rule_kind(rule).takes else None
    if tuned not in (None, steps) and args.sigma is None and not args.quiet:
        print(f"letgo: {rule} was tuned for {tuned} steps, not for {steps}; give --sigma for these", file=sys.stderr)


def check_rows(solver: Solver, args: argparse.Namespace) -> None:
    """Take the function of --valid for the rows of a table. The one that its run names counts if it is loaded."""
    named, solver.task = solver.task.valid, solver.task.checked_by(args.valid or "")
    if named and not solver.task.valid and not args.quiet:
        remark = f"{named} is not run, so nothing is checked; give --valid {named} if you trust it"
        print(f"letgo: {remark}", file=sys.stderr)


def load_solver(name: str | None, args: argparse.Namespace) -> Solver:
    """Load the solver of the model that NAME and --model ask for."""
    from letgo.solver import load
    from letgo.tasks import USUAL, find

    model: str | None = args.model
    named = find(name) is not None if name else False
    if model and name and not named:
        raise LetgoError(f"two models were named, '{name}' and --model {model}; keep one of them")
    solver = load(model or name or USUAL, args.device, threads=args.threads, precision=args.precision)
    if model and named and solver.task.name != name and solver.config.task != name:
        raise LetgoError(f"model '{model}' was trained for {solver.task.name}, not for {name}")
    return solver
