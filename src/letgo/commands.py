"""The commands around a trained model: solve, generate, evaluate, tune, and the lists."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

from letgo.answers import Answer
from letgo.data.files import refuse_unwritable
from letgo.data.puzzles import read_puzzles
from letgo.errors import LetgoError
from letgo.presets import PRESETS
from letgo.progress import Progress
from letgo.runs import is_folder, locate, own_name, read_json, shipped, write_json
from letgo.solver import Solver, load
from letgo.tasks import TASKS, Problem

# 21 clues. With `sudoku-baseline` and seed 0, DDPM ends in a broken board here and Tweedie in a valid one.
EXAMPLES = {
    "sudoku": ".6..........6.......9..43.....9...5......7.4....8.....84.1.5.......8.93469.4.....",
}


def _settings(args: argparse.Namespace) -> dict[str, float | None]:
    names = ("sigma", "tau_start", "variance")
    return {name: getattr(args, name) for name in names}


def _remark(solver: Solver, rule: str, args: argparse.Namespace, regime: str | None = None) -> None:
    """Tuned settings are for the steps that they were tuned with: EM decay diverges with far fewer."""
    made_for, steps = solver.tuning(rule, regime).get("steps"), solver.steps(args.steps)
    if made_for not in (None, steps) and args.sigma is None and not args.quiet:
        print(f"letgo: {rule} was tuned for {made_for} steps, not {steps}; with others give --sigma", file=sys.stderr)


def _load_for(name: str | None, args: argparse.Namespace) -> Solver:
    """The model that NAME and --model ask for."""
    model: str | None = args.model
    if model and name and name not in TASKS:
        raise LetgoError(f"two models were named, '{name}' and --model {model}; keep one of them")
    solver = load(model or name or "sudoku", args.device, threads=args.threads, precision=args.precision)
    if model and name in TASKS and solver.task.name != name and solver.config.task != name:
        raise LetgoError(f"model '{model}' was trained for {solver.task.name}, not for {name}")
    return solver


def _name_and_puzzles(words: list[str]) -> tuple[str | None, list[str]]:
    """NAME is a task or a model; a first word that is neither is a puzzle."""
    if not words:
        return None, []
    if words[0] == "":
        return None, words
    known = words[0] in TASKS or words[0] in PRESETS or words[0] in shipped()
    if known or words[0].startswith("hub:") or is_folder(Path(words[0].rpartition("@")[0] or words[0])):
        return words[0], words[1:]
    return None, words


def _parse_words(solver: Solver, puzzles: list[str]) -> Problem:
    problems = []
    for number, text in enumerate(puzzles, 1):
        try:
            problems.append(solver.task.parse(text))
        except LetgoError as error:
            where = f"puzzle {number}" if len(puzzles) > 1 else "the puzzle"
            raise LetgoError(f"{where}: {error}") from None
        if problems[-1].solution.shape != problems[0].solution.shape:
            raise LetgoError(f"puzzle {number} has another size than puzzle 1; solve them one size at a time")
    return Problem.cat(problems)


def solve(args: argparse.Namespace) -> int:
    started = time.perf_counter()
    name, puzzles = _name_and_puzzles(args.words)
    if puzzles and os.path.isfile(puzzles[0]):
        raise LetgoError(f"{puzzles[0]} is a file; to solve what is in it: --file {puzzles[0]}")
    if name is None and args.model is None and puzzles and re.match("[a-z]{3}", puzzles[0]):
        known = ", ".join(dict.fromkeys([*TASKS, *shipped()]))
        raise LetgoError(f"no task, model or run folder '{puzzles[0]}'; there are {known}")
    if puzzles and args.file is not None:
        raise LetgoError("give puzzles as words or by --file, not both")
    if args.file == "" or "" in puzzles:
        raise LetgoError("the puzzle is empty; leave it out to see an example" if puzzles else "--file: no name given")
    solver = _load_for(name, args)
    example = not puzzles and args.file is None
    if args.file is not None:
        problem = read_puzzles(args.file, solver.task)
    elif puzzles:
        problem = _parse_words(solver, puzzles)
    elif solver.task.cells == 81 and solver.task.name in EXAMPLES:
        problem = solver.task.parse(EXAMPLES[solver.task.name])
    else:
        from letgo.evaluate import instances

        problem = instances(solver.task, None, 1, args.seed)
    tries = args.tries or (1 if args.no_verify else 10)
    show = Progress("solved", args.progress, args.quiet or len(problem) == 1)
    settings = {**_settings(args), "soft_until": args.soft_until}
    _remark(solver, args.rule, args)
    answers = solver.solve(
        problem, args.rule, args.steps, tries, args.seed, not args.no_verify, args.batch, show, **settings
    )
    show.close()
    _print_answers(solver, problem, answers, args, example)
    if example and not args.json:
        answer = answers[0]
        verdict = f"Solved by '{solver.config.name}'" if answer.solved else "Not solved"
        tries = "1 try" if answer.tries == 1 else f"{answer.tries} tries"
        total = time.perf_counter() - started
        print(
            f"\n{verdict} with {args.rule}: {tries}, {answer.calls} network calls, {answer.seconds:.2f} s of sampling, "
            f"{total:.2f} s with loading the model."
        )
        if answer.solved:
            print("The network learned from solved instances alone; nobody told it a rule.")
    return 0 if all(a.solved for a in answers) else 1


def _print_answers(
    solver: Solver, problem: Problem, answers: list[Answer], args: argparse.Namespace, example: bool
) -> None:
    for i, answer in enumerate(answers):
        if args.json:
            print(json.dumps(answer.as_dict()))
        elif (args.show or example) and answer.board is not None:
            if example:
                print(f"puzzle  {answer.puzzle}\nanswer  {answer.board}\n")
            one = problem[i : i + 1]
            print(solver.task.draw(_symbols(solver, answer.board, one), one))
        else:
            print(answer.board if answer.solved else "unsolved")


def _symbols(solver: Solver, text: str, problem: Problem) -> Any:
    if problem.context is not None:
        rows = text.replace("/", "")
        return problem.solution.new_tensor([[int(c) for c in rows]])
    return solver.task.parse(text).solution


def generate(args: argparse.Namespace) -> int:
    solver = _load_for(args.name, args)
    problem, name = solver.empty(args.count), args.rule or solver.generation_rule()
    _remark(solver, name, args, solver.generation)
    rule, used = solver.rule(name, regime=solver.generation, **_settings(args))  # pyright: ignore[reportArgumentType]
    show = Progress("sampled", args.progress, args.quiet)
    boards = solver.draw(problem, rule, args.steps, args.seed, args.tries, args.batch, args.soft_until, show)
    valid = solver.task.validate(boards, problem)
    lines = solver.task.format(boards, problem)
    if args.json:
        from letgo.metrics import Rate

        rate = Rate(int(valid.sum()), len(valid)).as_dict()
        print(json.dumps({"model": solver.config.name, "rule": name, "settings": used, "seed": args.seed,
                          "precision": solver.sample_precision, "validity": rate, "boards": lines,
                          "valid": valid.tolist()}))  # fmt: skip
        return 0
    for i, line in enumerate(lines):
        if args.show:
            print(solver.task.draw(boards[i : i + 1], problem[i : i + 1]))
        else:
            print(line)
    if not args.quiet:
        invalid = int((~valid).sum())
        clues = "; it never saw a board without clues" if solver.config.masks == "data" else ""
        print(f"{len(lines) - invalid} of {len(lines)} obey the rules ({name}){clues}", file=sys.stderr)
    return 0


def evaluate(args: argparse.Namespace) -> int:
    from letgo.evaluate import evaluate as measure
    from letgo.evaluate import instances, own_clues

    refuse_unwritable(args.out)
    solver = load(args.model, args.device, not args.plain, args.threads, args.precision)
    problem = instances(solver.task, args.regime, args.count, args.seed, args.data)
    _remark(solver, args.rule, args, args.regime)
    own = args.regime in (None, *solver.task.regimes)
    if solver.task.name == "sudoku-extreme" and args.data is None and own and not args.quiet:
        print("letgo: minimal puzzles of our own, easier than Sudoku-Extreme's; for those give --data", file=sys.stderr)
    show = Progress(f"{solver.config.name}, {args.rule}: sampled", args.progress, args.quiet)
    scores = measure(
        solver, args.rule, problem, args.steps, args.passes, args.seed, args.batch, args.soft_until, show, args.regime,
        **_settings(args),
    )  # fmt: skip
    report = {
        "model": own_name(args.model),
        "regime": "file" if own_clues(problem, solver.task) else args.regime or solver.task.regimes[0],
        **scores,
        "command": args.command_line,
    }
    if args.out:
        write_json(args.out, report)
    if args.json:
        print(json.dumps(report, indent=2))
    else:
        print(summary(report))
    if report["codeword_distance"]["value"] is None and not args.quiet:
        print(f"letgo: the sampler diverged: {report['steps']} steps are too few for this sigma", file=sys.stderr)
    return 0


def summary(report: dict[str, Any]) -> str:
    """The report as a few lines for a reader."""

    def span(score: dict[str, Any]) -> str:
        if score["value"] is None:
            return f"not a number: the sampler diverged  n={score['n']}"
        known = score["low"] is not None  # one board has no spread to judge by
        interval = f"  [{score['low']:.4f}, {score['high']:.4f}]" if known else ""
        return f"{score['value']:.4f}{interval}  n={score['n']}"

    settings = " ".join(f"{k}={v:g}" for k, v in report["settings"].items())
    head = f"{report['model']}  {report['task']} {report['regime']}  {report['rule']} {settings}".rstrip()
    lines = [
        f"{head}  {report['steps']} steps, seed {report['seed']}",
        f"validity           {span(report['validity'])}",
    ]
    if report["pass_at_k"]["k"] > 1:
        lines.append(f"{'pass@' + str(report['pass_at_k']['k']):18} {span(report['pass_at_k'])}")
    if "chosen_at_k" in report:
        lines.append(f"{'chosen of ' + str(report['chosen_at_k']['k']):18} {span(report['chosen_at_k'])}")
    for key in ("violation_rate", "codeword_distance", "uniqueness", "element_accuracy", "balanced_accuracy",
                "length", "marked_share"):  # fmt: skip
        if report.get(key) and report[key]["n"]:
            lines.append(f"{key:18} {span(report[key])}")
    where = f"{report['device']}, {report['precision']}"
    lines.append(f"{report['calls']:,} network calls in {report['seconds']:.1f} s on {where}")
    return "\n".join(lines)


def models(args: argparse.Namespace) -> int:
    rows = []
    for name in shipped():
        folder, _ = locate(name)
        card = read_json(folder / "card.json") if (folder / "card.json").exists() else {}
        rows.append({"name": name, "task": read_json(folder / "config.json")["task"], **card})
    if args.json:
        print(json.dumps(rows, indent=2))
        return 0
    wide = max((len(row["name"]) for row in rows), default=0)
    for row in rows:
        print(f"{row['name']:{wide}}  {row['task']:14}  {row.get('summary', '')}")
    if not rows:
        print("no models are shipped with this build", file=sys.stderr)
    return 0


def presets(args: argparse.Namespace) -> int:
    if args.json:
        print(json.dumps({name: config.as_dict() for name, config in PRESETS.items()}, indent=2))
        return 0
    for name, config in PRESETS.items():
        objective = config.objective + (f" ({config.simple_weight:g})" if config.objective != "simple" else "")
        print(f"{name:26} {config.task:15} {objective:22} batch {config.batch:<4} {config.steps:>9,} steps")
    return 0
