"""`letgo generate`: boards without clues."""

from __future__ import annotations

import argparse
import sys

from letgo.cli import options


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="a task or model")
    parser.add_argument("--count", type=options.boards, default=1, help="boards (default 1)")
    parser.add_argument("--model", help=f"{options.MODEL} (default: the task's)")
    parser.add_argument(
        "--rule", help="sampling rule (default: the one that draws most valid boards, by the model's card)"
    )
    parser.add_argument(
        "--tries",
        type=options.at_least(1),
        default=1,
        help="draw this many for each board, keep the one that the network finds likeliest (default 1)",
    )
    options.flag(parser, "--json", "one object with boards, their validity and the rate")
    options.flag(parser, "--show", "draw the boards")
    options.sampler(parser)
    options.own_task(parser)
    options.valid(parser)
    options.common(parser)


def run(args: argparse.Namespace) -> int:
    from letgo.progress import Progress

    solver = options.load_solver(args.name, args)
    options.check_rows(solver, args)
    problem, usual = solver.empty(args.count), solver.generation_rule(args.steps if args.sigma is None else None)
    name, best = args.rule or usual, solver.generation_rule()
    if name != best and args.rule is None and not args.quiet:
        tuned = f"{best}, which draws most valid boards, was tuned for {solver.steps()} steps"
        print(
            f"letgo: {tuned}; with {args.steps} it is {name}, and fewer are valid: leave --steps out", file=sys.stderr
        )
    options.warn_of_other_steps(solver, name, solver.steps(args.steps), args, solver.generation)
    sampler = solver.sampler(name, args.steps, solver.generation, **options.settings(args))
    args.voice.announce(f"sampling {args.count:,} board{'s' * (args.count > 1)} by {solver.config.name} with {name}")
    show = Progress("sampled", voice=args.voice)
    boards = solver.draw(problem, sampler, args.seed, args.tries, args.batch, show)
    valid = solver.task.validate(boards, problem)
    lines = solver.task.format(boards, problem)
    if args.json:
        from letgo.estimates import rate

        known = solver.task.has_rules
        validity = (rate(int(valid.sum()), len(valid)) if known else rate(0, 0)).as_dict()
        options.print_json({"model": solver.config.name, "rule": name, "settings": sampler.settings, "seed": args.seed,
                          "precision": solver.sample_precision, "validity": validity, "boards": lines,
                          "valid": valid.tolist() if known else [None] * len(lines)})  # fmt: skip
        return 0
    for i, line in enumerate(lines):
        print(solver.task.draw(boards[i : i + 1], problem[i : i + 1]) if args.show else line)
    if not args.quiet:
        if not solver.task.has_rules:
            print(f"{len(set(lines))} of {len(lines)} are different; nothing says which are valid", file=sys.stderr)
            return 0
        invalid = int((~valid).sum())
        clues = "; it never saw a board without clues" if solver.config.masks == "data" else ""
        print(f"{len(lines) - invalid} of {len(lines)} obey the rules ({name}){clues}", file=sys.stderr)
    return 0
