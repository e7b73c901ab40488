"""`letgo tune`: sigma and tau_start for a run, or one setting for several seeds of a configuration (section 4)."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from letgo.cli import options
from letgo.errors import LetgoError

if TYPE_CHECKING:
    from letgo.solver import Solver
    from letgo.tasks import Problem

Table = dict[str, Any]


@dataclass
class Tuned:
    """What was found for one run."""

    folder: Path
    picked: dict[str, Any] | None  # the checkpoint by Euler
    table: Table


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", metavar="RUN", nargs="+", help="run folders, tuned as one; shipped names with --out")
    parser.add_argument("--rule", required=True, choices=["em", "em-decay"])
    regime = "of the validation instances; its settings are kept apart (default: the first)"
    parser.add_argument("--regime", help=regime)
    parser.add_argument("--count", type=options.boards, default=500, help="validation instances (default 500)")
    options.steps_and_seed(parser)
    sigmas, tau_starts = options.list_of(options.real(0.0)), options.list_of(options.real(0.0, 1.0))
    parser.add_argument("--sigmas", type=sigmas, help="values to try, e.g. 0.05,0.1,0.2")
    parser.add_argument("--tau-starts", type=tau_starts, help="values to try, e.g. 0.6,0.7,0.8")
    options.flag(parser, "--quick", "a smaller grid around the paper's settings")
    options.flag(parser, "--as-is", "tune the weights that RUN has; pick no checkpoint by Euler")
    parser.add_argument("--data", help="validation instances: a file, a folder with valid.csv, or hub")
    options.device(parser)
    options.flag(parser, "--plain", "no compilation")
    options.batch(parser, None)
    options.report(parser, "write here instead of RUN/tune-RULE.json and leave RUN as it is")
    options.own_task(parser)
    options.common(parser)


def run(args: argparse.Namespace) -> int:
    from letgo.runs import all_locked, locate

    _refuse(args)
    folders = [locate(name)[0] for name in args.runs] if args.out is None else []
    written = {folder.resolve(): folder for folder in folders}  # two steps of one run lie in one folder
    with all_locked(written.values()):  # the weights that are tuned must be those that the settings are kept with
        return _run(args)


def _run(args: argparse.Namespace) -> int:
    from letgo.data.source import source_of
    from letgo.runs import Run, write_json
    from letgo.solver import load
    from letgo.tune import advice, together

    solvers = [load(name, args.device, not args.plain, args.threads) for name in args.runs]
    first = solvers[0]
    for name, solver in zip(args.runs, solvers, strict=True):
        if (solver.task, solver.steps(args.steps)) != (first.task, first.steps(args.steps)):
            raise LetgoError(f"{name} is not of the same task and steps as {args.runs[0]}; tune them apart")
    source = source_of(first.task, args.data)
    usual = "valid" if "valid" in source.regimes else source.regimes[0]
    regime = args.regime or usual
    source.check_tuning()
    problem = source.draw("valid", regime, args.count, args.seed)
    pick = not args.as_is and regime == usual
    found = [_tune(args, *run, problem, pick) for run in zip(args.runs, solvers, strict=True)]
    about = {"regime": regime, "data": source.identity("valid"), "command": args.command_line}
    alone = {"checkpoint": found[0].picked} if len(found) == 1 else {"runs": args.runs}
    table = {**together([tuned.table for tuned in found]), **alone, **about}
    if args.out is not None:
        write_json(args.out, table)
    for tuned in found if args.out is None else ():
        run, picked = Run.load(tuned.folder), tuned.picked
        if picked is not None:  # it becomes the run's model, so that this is measured as it was tuned
            run.export(picked["step"], picked["weights"], {"checkpoint": picked})
        run.save_tuning(args.rule, None if regime == usual else regime, {**table, "checkpoint": picked})
    print(json.dumps(table if args.json else table["best"]))
    if (said := advice(table)) and not args.quiet:
        print(f"letgo: {said}", file=sys.stderr)
    return 0


def _refuse(args: argparse.Namespace) -> None:
    """What can be told to be wrong before anything is loaded."""
    from letgo.data.files import refuse_unwritable
    from letgo.runs import locate, own_name, shipped

    if args.regime == "test":
        raise LetgoError("tuning never looks at test instances; leave --regime out")
    if args.tau_starts is not None and args.rule == "em":
        raise LetgoError("rule 'em' keeps sigma constant and takes no --tau-starts; use em-decay")
    refuse_unwritable(args.out)
    for name in args.runs if args.out is None else ():
        if own_name(name) in shipped() or name.startswith("hub:"):
            raise LetgoError(f"'{name}' is no run folder, and its settings stay as they are; give --out FILE")
        folder, step = locate(name)
        if step is not None:
            raise LetgoError(
                f"{folder} would take the settings of its step {step} for those of its model; give --out FILE"
            )


def _tune(args: argparse.Namespace, name: str, solver: Solver, problem: Problem, pick: bool) -> Tuned:
    from letgo.progress import Progress
    from letgo.runs import Run, locate
    from letgo.solver import Solver
    from letgo.tune import grid_of, pick_checkpoint, tune

    folder, step = locate(name)
    picked = None
    if step is None and pick:
        show = Progress(f"{solver.config.name}, euler: checkpoints", args.progress, args.quiet)

        def build(weights: dict[str, Any]) -> Solver:
            network = solver.config.build_model()
            network.load_state_dict(weights)
            return Solver(solver.config, network, args.device, folder, not args.plain, args.threads)

        found = pick_checkpoint(build, Run.load(folder), problem, args.steps, args.seed, args.batch, show)
        solver, picked = found or (solver, None)
        show.close()
    show = Progress(f"{solver.config.name}, {args.rule}: settings", args.progress, args.quiet)
    samplers = grid_of(solver, args.rule, args.sigmas, args.tau_starts, args.steps, args.quick)
    table = tune(solver, problem, samplers, args.seed, args.batch, show)
    show.close()
    return Tuned(folder, picked, table)
