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

from letgo.errors import LetgoError

if TYPE_CHECKING:
    from letgo.solver import Solver

MODEL = "shipped name, run folder, RUN@STEP or hub:ID"
RULES = "ddpm ddim tweedie resample euler heun em em-decay; masked diffusion: ancestral confidence remask"
MOST_BOARDS = 10**9

T = TypeVar("T")


class Parser(argparse.ArgumentParser):
    """An argument parser whose complaints are one-line errors."""

    def error(self, message: str) -> NoReturn:
        raise LetgoError(f"{message}; see `{self.prog} --help`")


# Types


def at_least(least: int) -> Callable[[str], int]:
    """Return the type of an option that is a whole number."""

    def whole_number(text: str) -> int:
        if not text.removeprefix("-").isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"expected a whole number from {least}, got '{text}'")
        return int(text)

    return whole_number


def boards(text: str) -> int:
    """Read how many boards to make; all of them lie in memory."""
    count = at_least(1)(text)
    if count > MOST_BOARDS:
        raise argparse.ArgumentTypeError(f"{text} is more than a billion boards, which fit in no memory; ask for fewer")
    return count


def threads(text: str) -> int:
    return _between(text, 1, os.cpu_count() or 1, "number of threads")


def path(text: str) -> Path:
    if not text:
        raise argparse.ArgumentTypeError("expected a path, got nothing; is a variable of the shell unset?")
    return Path(text)


def seed(text: str) -> int:
    """A seed has 32 bits, since a training step's seed is (seed, step)."""
    return _between(text, 0, 2**32 - 1, "seed")


def _between(text: str, least: int, most: int, what: str) -> int:
    if not text.isdecimal() or not least <= int(text) <= most:
        raise argparse.ArgumentTypeError(f"expected a {what} from {least} to {most}, got '{text}'")
    return int(text)


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


def list_of(kind: Callable[[str], T], may_be_empty: bool = False) -> Callable[[str], tuple[T, ...]]:
    def values(text: str) -> tuple[T, ...]:
        parts = tuple(kind(part) for part in text.split(",") if part)
        if not parts and not may_be_empty:
            raise argparse.ArgumentTypeError(f"expected values with commas between them, got '{text}'")
        return parts

    return values


# Options


def flag(parser: argparse.ArgumentParser, name: str, text: str | None = None) -> None:
    parser.add_argument(name, action="store_true", help=text)


def common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--threads", type=threads, default=1, help="CPU threads; more than 1 pays only if idle")
    flag(parser, "--progress", "show progress even where stderr is no terminal")
    flag(parser, "--quiet", "no progress, no remarks")
    flag(parser, "--debug", "show the traceback of an error")


def own_task(parser: argparse.ArgumentParser) -> None:
    text = "a task of your own: this class of this file, which is run"
    parser.add_argument("--task", dest="own_task", metavar="FILE.py:CLASS", help=text)


def device(parser: argparse.ArgumentParser, default: str = "auto", text: str = "auto, cpu, cuda or mps") -> None:
    parser.add_argument("--device", default=default, help=text)


def batch(parser: argparse.ArgumentParser, text: str | None = "boards sampled together") -> None:
    parser.add_argument("--batch", type=at_least(1), help=text)


def precision(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("--precision", choices=["auto", "bf16", "fp32"], default="auto", help=text)


def steps_and_seed(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--steps", type=at_least(1), help="sampler steps (default: the model's own)")
    parser.add_argument("--seed", type=seed, default=0, help="seed of instances and noise (default 0)")


def report(parser: argparse.ArgumentParser, text: str = "write the JSON report here") -> None:
    flag(parser, "--json")
    parser.add_argument("--out", type=path, help=text)


def sampler(parser: argparse.ArgumentParser) -> None:
    steps_and_seed(parser)
    parser.add_argument("--sigma", type=real(0.0), help="noise scale of em and em-decay (default: as tuned)")
    parser.add_argument("--tau-start", type=real(0.0, 1.0), help="progress 1 - t at which em-decay begins to fall")
    parser.add_argument("--variance", type=real(0.0), default=1.0, help="factor on the rule's variance (Figure 11)")
    parser.add_argument("--soft-until", type=real(0.0, 1.0), help="t*: soft pinning while t >= t* (default: never)")
    device(parser)
    batch(parser)
    precision(parser, "of the network's products (auto: bf16 on a GPU, and in `solve` where the CPU has it; else fp32)")


# What they mean


def publish(report: dict[str, Any], args: argparse.Namespace, summary: Callable[[dict[str, Any]], str]) -> None:
    """Write the report to --out and print it, as JSON or for a reader."""
    from letgo.runs import write_json

    if args.out:
        write_json(args.out, report)
    print(json.dumps(report, indent=2) if args.json else summary(report))


def settings(args: argparse.Namespace) -> dict[str, Any]:
    return {name: getattr(args, name) for name in ("sigma", "tau_start", "variance", "soft_until")}


def warn_of_other_steps(solver: Solver, rule: str, args: argparse.Namespace, regime: str | None = None) -> None:
    """Tuned settings are for the steps that they were tuned with: EM decay diverges with far fewer."""
    tuned, steps = solver.tuning(rule, regime).get("steps"), solver.steps(args.steps)
    if tuned not in (None, steps) and args.sigma is None and not args.quiet:
        print(f"letgo: {rule} was tuned for {tuned} steps, not {steps}; with others give --sigma", file=sys.stderr)


def load_solver(name: str | None, args: argparse.Namespace) -> Solver:
    """Load the solver of the model that NAME and --model ask for."""
    from letgo.solver import load
    from letgo.tasks import TASKS, USUAL

    model: str | None = args.model
    if model and name and name not in TASKS:
        raise LetgoError(f"two models were named, '{name}' and --model {model}; keep one of them")
    solver = load(model or name or USUAL, args.device, threads=args.threads, precision=args.precision)
    if model and name in TASKS and solver.task.name != name and solver.config.task != name:
        raise LetgoError(f"model '{model}' was trained for {solver.task.name}, not for {name}")
    return solver
