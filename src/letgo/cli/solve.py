"""`letgo solve`: puzzles in, boards out."""

from __future__ import annotations

import argparse
import json
import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from letgo.cli import options
from letgo.errors import LetgoError, unknown

if TYPE_CHECKING:
    from letgo.answers import Answer
    from letgo.solver import Solver
    from letgo.tasks import Problem

FORMATS = """puzzles, one per word or line (docs/formats.md has an example of each):
  sudoku, latin   the cells row by row, . for a blank; sudoku-extreme too
  queens          one letter per row, the queen's column, . where unknown
  connectivity    the adjacency, rows of 0 and 1 joined by /
  maze            rows joined by /: # wall, . open, S start, G goal; o is the path in an answer
"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.epilog, parser.formatter_class = FORMATS, argparse.RawDescriptionHelpFormatter
    parser.add_argument("words", nargs="*", metavar="[NAME] [PUZZLE ...]", help="a task or model, then puzzles")
    parser.add_argument("--file", help="puzzles, one per line; - for standard input")
    parser.add_argument("--model", help=options.MODEL)
    parser.add_argument("--rule", help=f"{options.RULES} (default: tweedie, or confidence where masked)")
    tries = "how often to try a puzzle (default 10); with --no-verify (default 1) the network chooses among them"
    parser.add_argument("--tries", type=options.at_least(1), help=tries)
    options.flag(parser, "--no-verify", "no check of the constraints on the way")
    options.flag(parser, "--json", "one JSON object per puzzle")
    options.flag(parser, "--show", "draw the boards")
    options.sampler(parser)
    options.own_task(parser)
    options.common(parser)


def run(args: argparse.Namespace) -> int:
    from letgo.data.puzzles import parse_puzzles, read_puzzles
    from letgo.data.source import source_of
    from letgo.progress import Progress
    from letgo.runs import shipped
    from letgo.tasks import TASKS

    started = time.perf_counter()
    name, puzzles = _name_and_puzzles(args.words)
    if puzzles and os.path.isfile(puzzles[0]):
        raise LetgoError(f"{puzzles[0]} is a file; to solve what is in it: --file {puzzles[0]}")
    if name is None and args.model is None and puzzles and re.match("[a-z]{3}", puzzles[0]):
        raise unknown("task, model or run folder", puzzles[0], dict.fromkeys([*TASKS, *shipped()]))
    if puzzles and args.file is not None:
        raise LetgoError("give puzzles as words or by --file, not both")
    if args.file == "" or "" in puzzles:
        raise LetgoError("the puzzle is empty; leave it out to see an example" if puzzles else "--file: no name given")
    solver = options.load_solver(name, args)
    example = not puzzles and args.file is None
    if args.file is not None:
        problem = read_puzzles(args.file, solver.task)
    elif puzzles:
        places = ["the puzzle"] if len(puzzles) == 1 else [f"puzzle {i + 1}" for i in range(len(puzzles))]
        problem = parse_puzzles(zip(places, puzzles, strict=True), solver.task)
    else:
        source = source_of(solver.task)
        puzzle = source.look.example
        problem = source.draw("test", None, 1, args.seed) if puzzle is None else solver.task.parse(puzzle)
    tries = args.tries or (1 if args.no_verify else 10)
    show = Progress("solved", args.progress, args.quiet or len(problem) == 1)
    args.rule = solver.sampler(args.rule, args.steps, **options.settings(args)).rule
    options.warn_of_other_steps(solver, args.rule, args)
    answers = solver.solve(
        problem, args.rule, args.steps, tries, args.seed, not args.no_verify, args.batch, show, **options.settings(args)
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


def _name_and_puzzles(words: list[str]) -> tuple[str | None, list[str]]:
    """NAME is a task or a model; a first word that is neither is a puzzle."""
    from letgo.presets import PRESETS
    from letgo.runs import is_folder, shipped
    from letgo.tasks import TASKS

    if not words or words[0] == "":
        return None, words
    known = words[0] in TASKS or words[0] in PRESETS or words[0] in shipped()
    if known or words[0].startswith("hub:") or is_folder(Path(words[0].rpartition("@")[0] or words[0])):
        return words[0], words[1:]
    return None, words


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
