"""`letgo tune`: the settings of a rule for a run, or one setting for several seeds of a configuration (section 4)."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from letgo.cli import options
from letgo.errors import LetgoError

if TYPE_CHECKING:
    from torch import nn

    from letgo.solver import Solver
    from letgo.tasks import Problem

GRIDS = ("sigma", "tau_start", "t_max", "t_min")  # --sigmas and so on


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", metavar="RUN", nargs="+", help="run folders, tuned as one; shipped names with --out")
    rules = "em, em-decay, tweedie or resample; with --belief any rule (default: the model's best)"
    parser.add_argument("--rule", help=rules)
    options.flag(parser, "--belief", "find the self-likelihood from which on the network is sure of a board")
    parser.add_argument(
        "--regime", help="clue regime; settings of rules for another than the first are kept apart (default: the first)"
    )
    parser.add_argument("--count", type=options.boards, default=500, help="validation instances (default 500)")
    options.steps_and_seed(parser)
    sigmas, tau_starts = options.list_of(options.real(0.0)), options.list_of(options.real(0.0, 1.0))
    parser.add_argument(
        "--sigmas", type=sigmas, help="values to try, e.g. 0.05,0.1,0.2 (default: those for the rule and its steps)"
    )
    parser.add_argument("--tau-starts", type=tau_starts, help="values to try (default 0.6,0.7,0.8)")
    parser.add_argument("--t-maxs", type=tau_starts, help="tweedie, resample: values to try (default 1,0.7,0.5,0.3)")
    parser.add_argument("--t-mins", type=tau_starts, help="tweedie, resample: values to try (default 0,0.1,0.2)")
    options.flag(parser, "--as-is", "tune the weights that RUN has; pick no checkpoint by Euler")
    parser.add_argument(
        "--data", help="validation instances: a file, a folder with valid.csv, or hub (default: generated)"
    )
    options.device(parser)
    options.flag(parser, "--plain", "no compilation")
    options.batch(parser)
    options.report(parser, "write here and leave RUN as it is (default RUN/tune-RULE.json)")
    options.own_task(parser)
    options.common(parser)


def run(args: argparse.Namespace) -> int:
    from letgo.data.files import refuse_unwritable
    from letgo.runs import all_locked, locate
    from letgo.samplers import rule_kind

    if args.regime == "test":
        raise LetgoError("tuning never looks at test instances; leave --regime out")
    if not args.belief and (args.rule is None or not rule_kind(args.rule).tuned):
        raise LetgoError("tune needs --rule em or --rule em-decay (or tweedie, resample), or --belief")
    if args.tau_starts is not None and args.rule == "em":
        raise LetgoError("rule 'em' keeps sigma constant and takes no --tau-starts; use em-decay")
    known = GRIDS if args.rule is None else rule_kind(args.rule).tuned
    for name in GRIDS:
        if getattr(args, f"{name}s") is not None and name not in known:
            raise LetgoError(f"rule '{args.rule}' takes no --{name.replace('_', '-')}s; leave it out")
    refuse_unwritable(args.out)
    if args.out is not None:
        return _tune_all(args)
    for name in args.runs:
        _refuse_to_store(name)
    folders = {folder.resolve(): folder for folder, _ in map(locate, args.runs)}  # one folder may have several names
    with all_locked(folders.values()):  # the weights that are tuned must be those that the settings are kept with
        return _tune_all(args)


def _refuse_to_store(name: str) -> None:
    """Refuse a model that the settings cannot be stored with."""
    from letgo.runs import locate, own_name, shipped

    if own_name(name) in shipped() or name.startswith("hub:"):
        raise LetgoError(f"'{name}' keeps the settings it came with; write yours to a file, with --out FILE")
    folder, step = locate(name)
    if step is not None:
        raise LetgoError(f"settings of step {step} would be kept as those of {folder}'s last step; give --out FILE")


def _tune_all(args: argparse.Namespace) -> int:
    from letgo.data.source import source_of
    from letgo.machine import device_name
    from letgo.runs import Run, locate, write_json
    from letgo.solver import load
    from letgo.tune import advice, check_count, together

    solvers = [load(name, args.device, not args.plain, args.threads).on_split("valid") for name in args.runs]
    first = solvers[0]
    for name, solver in zip(args.runs, solvers, strict=True):
        if (solver.task, solver.steps(args.steps)) != (first.task, first.steps(args.steps)):
            raise LetgoError(f"{name} is not of the same task and steps as {args.runs[0]}; tune them apart")
    source = source_of(first.task, args.data)
    what = f"{args.rule or first.best_rule} for {', '.join(args.runs)}"
    args.voice.announce(f"tuning {what} by {args.count:,} instances, on {device_name(first.device)}")
    usual = "valid" if "valid" in source.regimes else source.regimes[0]
    regime = args.regime or usual
    source.check_tuning()
    problem = source.draw("valid", regime, args.count, args.seed)
    about = {"regime": regime, "data": source.identity("valid"), "command": args.command_line}
    if args.belief:
        return _tune_belief(args, first, problem, about)
    check_count(problem)
    remarks = []
    if regime != usual and not args.as_is and args.out is None:  # RUN has one model
        remarks.append(
            f"the checkpoint is picked in regime {usual} alone; the model is tuned as it is (with --out FILE one is "
            f"picked for regime {regime}, and RUN left as it is)"
        )
        args.as_is = True
    pairs = [_tune(args, name, solver, problem) for name, solver in zip(args.runs, solvers, strict=True)]
    checkpoints, tables = zip(*pairs, strict=True)
    alone = {"checkpoint": checkpoints[0]} if len(pairs) == 1 else {"runs": args.runs}
    table = {**together([*tables]), **alone, **about}
    if args.out is not None:
        write_json(args.out, table)
    for name, checkpoint in zip(args.runs, checkpoints, strict=True) if args.out is None else ():
        run = Run.load(locate(name)[0])
        if checkpoint is not None:  # it becomes the run's model, so that this is measured as it was tuned
            run.export(checkpoint["step"], checkpoint["weights"], {"checkpoint": checkpoint})
        run.save_tuning(args.rule, None if regime == usual else regime, {**table, "checkpoint": checkpoint})
    options.print_json(table) if args.json else print(json.dumps(table["best"]))
    for remark in (*remarks, advice(table)) if not args.quiet else ():
        if remark:
            print(f"letgo: {remark}", file=sys.stderr)
    return 0


def _tune_belief(args: argparse.Namespace, solver: Solver, problem: Problem, about: dict[str, Any]) -> int:
    """Store the self-likelihood of a board that the network is sure of; None where there is no such number.

    A model has one such mark, in whatever regime it was found.
    """
    from letgo.runs import Run, locate, write_json
    from letgo.tune import find_sure

    if len(args.runs) > 1:
        raise LetgoError("--belief measures one run; name one")
    solver.check_belief()
    table = {**find_sure(solver, problem, solver.sampler(args.rule, args.steps), args.seed, args.batch), **about}
    if args.out is not None:
        write_json(args.out, table)
    else:
        Run.load(locate(args.runs[0])[0]).save_tuning("belief", None, table)
    options.print_json(table) if args.json else print(json.dumps(table["best"]))
    if not any(mark is not None for mark in table["best"].values()) and not args.quiet:
        remark = "right and wrong boards have overlapping self-likelihoods: this model cannot tell when to try again"
        print(f"letgo: {remark}", file=sys.stderr)
    return 0


def _tune(
    args: argparse.Namespace, name: str, solver: Solver, problem: Problem
) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """Return the checkpoint that Euler picks for one run, if there is a choice, and the table of its settings."""
    from letgo.progress import Progress
    from letgo.runs import Run, locate
    from letgo.solver import Solver
    from letgo.tune import grid_of, pick_checkpoint, tune

    (folder, step), checkpoint = locate(name), None
    run = None if args.as_is or step is not None else Run.load(folder)
    if run is not None and (candidates := run.candidates()):
        config, fast = solver.config, not args.plain
        show = Progress(f"{config.name}, euler: checkpoints", voice=args.voice)

        def build(network: nn.Module) -> Solver:
            return Solver(config, network, args.device, folder, fast, args.threads).on_split("valid")

        checkpoint = pick_checkpoint(run, candidates, build, problem, args.steps, args.seed, args.batch, show)
        solver = build(run.network(checkpoint["step"], checkpoint["weights"]))
        show.close()
    show = Progress(f"{solver.config.name}, {args.rule}: settings", voice=args.voice)
    samplers = grid_of(solver, args.rule, args.sigmas, args.tau_starts, args.steps, args.t_maxs, args.t_mins)
    table = tune(solver, problem, samplers, args.seed, args.batch, show)
    show.close()
    return checkpoint, table
