"""`letgo complete`: partial rows of a table in, complete ones out."""

from __future__ import annotations

import argparse
import csv
import io
import json
import sys
from typing import TYPE_CHECKING, Any

from letgo.cli import options
from letgo.errors import LetgoError

if TYPE_CHECKING:
    from letgo.solver import Solver
    from letgo.tasks import Problem


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="a run of `letgo train --data TABLE`")
    rows = "partial rows, .csv .txt .npy .npz or .parquet; open cells are empty, . or ? (in arrays negative)"
    parser.add_argument("file", metavar="FILE", help=f"{rows}; - for lines from standard input")
    count = "completions for each row, different ones, the likeliest to the network first (default 1)"
    parser.add_argument("--count", type=options.boards, default=1, metavar="K", help=count)
    tries = "rows that are drawn for each, of which the best are taken (default: 4, or twice --count)"
    parser.add_argument("--tries", type=options.at_least(1), help=tries)
    parser.add_argument("--rule", help=f"{options.RULES} (default: tweedie, or confidence where masked)")
    parser.add_argument("--out", type=options.path, metavar="FILE", help="write the rows here (default: print them)")
    options.flag(parser, "--json", "one object per row: its completions with likelihood and validity")
    options.sampler(parser)
    options.valid(parser)
    options.common(parser)


def run(args: argparse.Namespace) -> int:
    from letgo.data.files import refuse_unwritable, write_atomically
    from letgo.data.source import source_of
    from letgo.machine import device_name
    from letgo.progress import Progress
    from letgo.solver import load

    refuse_unwritable(args.out)
    solver = load(args.model, args.device, threads=args.threads, precision=args.precision)
    source = source_of(solver.task)
    if not source.partial:
        raise LetgoError(f"{args.model} was not trained on a table; fill its blanks with `letgo solve {args.model}`")
    options.check_rows(solver, args)
    problem = source.read_partial(args.file)
    rows = f"{len(problem):,} row{'s' * (len(problem) != 1)}"
    args.voice.announce(f"completing {rows} by {solver.config.name}, on {device_name(solver.device)}")
    found = complete(solver, problem, args, Progress("sampled", voice=args.voice))
    text = written(solver, found, args)
    if args.out is None:
        sys.stdout.write(text)
    else:
        write_atomically(args.out, text)
    lacking = [str(row + 1) for row, completions in enumerate(found) if not completions]
    if lacking and not args.quiet:
        some = ", ".join(lacking[:8]) + (", ..." if len(lacking) > 8 else "")
        args.voice.say(f"letgo: no valid completion of row {some}; more --tries may find one")
    return 1 if lacking else 0


def complete(solver: Solver, problem: Problem, args: argparse.Namespace, show: Any) -> list[list[dict[str, Any]]]:
    """Return the best completions of each row, all different; where a check is given, only those that it takes."""
    import torch

    tries, settings = args.tries or max(4, 2 * args.count), options.settings(args)
    sampler = solver.sampler(args.rule, args.steps, **settings)
    states = solver.sample(problem, sampler, args.seed, tries, 0, args.batch, show)
    boards = problem.with_clues(solver.codec.decode(states).unflatten(0, (tries, -1)))
    likelihood = torch.stack([solver.self_likelihood(each, problem, args.seed, args.batch) for each in boards])
    valid = torch.stack([solver.task.validate(each, problem) for each in boards])
    found: list[list[dict[str, Any]]] = []
    for row in range(len(problem)):
        best: dict[tuple[int, ...], dict[str, Any]] = {}
        for attempt in likelihood[:, row].argsort(descending=True).tolist():
            board = boards[attempt, row]
            if bool(valid[attempt, row]) and len(best) < args.count:
                values = solver.task.format(board[None], problem)[0]
                best.setdefault(
                    tuple(board.tolist()), {"values": values, "likelihood": float(likelihood[attempt, row])}
                )
        found.append(list(best.values()))
    return found


def written(solver: Solver, found: list[list[dict[str, Any]]], args: argparse.Namespace) -> str:
    """Write rows as the table has them; with several for each, or as JSON, with their row and likelihood."""
    checked = {"valid": True} if solver.task.has_rules else {}
    if args.json:
        objects = ({"row": row + 1, "completions": [{**c, **checked} for c in each]} for row, each in enumerate(found))
        return "".join(json.dumps(each) + "\n" for each in objects)
    names, separator = getattr(solver.task, "names", ()), getattr(solver.task, "separator", "")
    text, several = io.StringIO(), args.count > 1
    write = csv.writer(text, lineterminator="\n").writerow
    if names:
        write([*(["row", "likelihood"] if several else []), *names])
    for row, each in enumerate(found):
        for completion in each:
            cells = completion["values"].split(separator) if separator else list(completion["values"])
            if several:
                write([row + 1, f"{completion['likelihood']:.3f}", *cells])
            elif names or separator:
                write(cells)
            else:
                text.write(completion["values"] + "\n")
        if not each and not several:
            text.write("unsolved\n")
    return text.getvalue()
