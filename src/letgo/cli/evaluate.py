"""`letgo evaluate`: a model and a rule in, a report out."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from letgo.cli import options


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help=options.MODEL)
    parser.add_argument("--rule", required=True, help=options.RULES)
    parser.add_argument("--regime", help=options.REGIME)
    parser.add_argument("--count", type=options.boards, default=2000, help="instances (default 2000)")
    parser.add_argument(
        "--passes", type=options.at_least(1), default=1, help="k of pass@k, and of the chosen board (default 1)"
    )
    sure = "try again until the network is sure of its board, --passes times at most; no rule is looked at"
    options.flag(parser, "--until-sure", sure)
    parser.add_argument("--sure", type=float, help="self-likelihood of a board it is sure of (default: as tuned)")
    options.flag(parser, "--whole-tries", "doubt only the last board of each try, by calls of its own")
    parser.add_argument(
        "--turns", type=options.at_least(1), metavar="R", help="of a looped network, a call (default: as trained)"
    )
    parser.add_argument("--data", help=options.INSTANCES)
    parser.add_argument(
        "--shard", metavar="I/N", help="measure part I of N alone, from 0; `letgo merge` joins them (default: all)"
    )
    options.report(parser)
    options.flag(parser, "--plain", "no compilation: quicker for a short measurement")
    options.sampler(parser)
    options.own_task(parser)
    options.valid(parser)
    options.common(parser)


def run(args: argparse.Namespace) -> int:
    from dataclasses import replace

    from letgo.data.files import refuse_unwritable
    from letgo.data.source import source_of
    from letgo.evaluation import evaluate_model
    from letgo.machine import device_name
    from letgo.progress import Progress
    from letgo.runs import own_name
    from letgo.solver import load

    refuse_unwritable(args.out)
    solver = load(args.model, args.device, not args.plain, args.threads, args.precision)
    if args.until_sure and args.steps is None:
        args.steps = solver.short_try
    steps = solver.steps(args.steps)
    options.warn_of_other_steps(solver, args.rule, steps, args, args.regime)
    options.check_rows(solver, args)
    if (remark := source_of(solver.task, args.data).remark(args.regime)) and not args.quiet:
        print(f"letgo: {remark}", file=sys.stderr)
    tries = f"{args.passes} times " if args.passes > 1 else ""
    args.voice.announce(
        f"sampling {args.count:,} instances {tries}by {solver.config.name} with {args.rule}, "
        f"{steps} steps, on {device_name(solver.device)}"
    )
    show = Progress(f"{solver.config.name}, {args.rule}: sampled", voice=args.voice)
    names = ("rule", "regime", "steps", "count", "passes", "seed", "data", "shard", "batch")
    names += ("until_sure", "sure", "whole_tries", "turns")
    words: dict[str, Any] = {name: getattr(args, name) for name in names} | options.settings(args)
    measured = evaluate_model(solver, **words, progress=show)
    report = replace(measured, model=own_name(args.model), command=args.command_line).as_dict()
    options.publish(report, args, summary)
    if report["codeword_distance"]["value"] is None and not args.quiet:
        print(f"letgo: the sampler diverged: {report['steps']} steps are too few for this sigma", file=sys.stderr)
    return 0


def summary(report: dict[str, Any]) -> str:
    """Write the report as a few lines for a reader; a task's own scores come last."""
    from letgo.report import SCORES

    def span(score: dict[str, Any]) -> str:
        if score["value"] is None:
            return f"not a number: the sampler diverged  n={score['n']}"
        known = score["low"] is not None  # one board has no spread to judge by
        interval = f"  [{score['low']:.4f}, {score['high']:.4f}]" if known else ""
        return f"{score['value']:.4f}{interval}  n={score['n']}"

    settings = " ".join(f"{k}={v:g}" for k, v in report["settings"].items())
    named = {name: report.get(name) or "" for name in ("model", "regime")}  # networks without a name have none
    head = f"{named['model']}  {report['task']} {named['regime']}  {report['rule']} {settings}".strip()
    lines = [
        f"{head}  {report['steps']} steps, seed {report['seed']}",
        f"validity           {span(report['validity'])}",
    ]
    if report["pass_at_k"]["k"] > 1:
        lines.append(f"{'pass@' + str(report['pass_at_k']['k']):18} {span(report['pass_at_k'])}")
    if "chosen_at_k" in report:
        lines.append(f"{'chosen of ' + str(report['chosen_at_k']['k']):18} {span(report['chosen_at_k'])}")
    if (calls := report.get("calls_per_instance")) and calls["median"] != calls["p95"]:
        lines.append(f"calls a puzzle     {calls['value']:.1f}  median {calls['median']:.0f}  95% {calls['p95']:.0f}")
    own = [key for key, value in report.items() if isinstance(value, dict) and "n" in value and key not in SCORES]
    for key in ("violation_rate", "codeword_distance", "uniqueness", *own):
        if report.get(key) and report[key]["n"] and report[key].get("k") != 1:
            lines.append(f"{key:18} {span(report[key])}")
    where = f"{report['device']}, {report['precision']}"
    lines.append(f"{report['calls']:,} network calls in {report['seconds']:.1f} s on {where}")
    return "\n".join(lines)
