"""`letgo solve`: puzzles in, boards out."""

from __future__ import annotations

import argparse
import json
import os
import re
import select
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from letgo.cli import options
from letgo.errors import LetgoError, unknown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from letgo.answers import Answer
    from letgo.solver import Solver
    from letgo.tasks import Problem

FORMATS = """puzzles, one per word or line (docs/formats.md has an example of each):
  sudoku, latin   the cells row by row, . 0 _ * - or x for a blank; in one line
                  or as a grid; spaces, commas, | and lines of -+|= separate
  queens          one letter per row, the queen's column, . where unknown
  connectivity    the adjacency, rows of 0 and 1 joined by /
  maze            rows joined by /: # wall, . open, S start, G goal; an answer
                  has o on its path
Answers are printed one by one, in order; Ctrl-C keeps those that are there.
"""
SHORT_TRIES = 48  # of a model that knows when it is sure of a board
NO_PUZZLE = "(?![xX]{3})[a-zA-Z]{3}"  # how a wrong name begins, and no Sudoku, of which x is a blank
STDIN, PATIENCE = "-", 1.0  # seconds that a pipe has for its first byte, where nobody asked for what is in it


def add(parser: argparse.ArgumentParser) -> None:
    parser.epilog, parser.formatter_class = FORMATS, argparse.RawDescriptionHelpFormatter
    words = "a task or model, then puzzles; - reads them from standard input, none is an example"
    parser.add_argument("words", nargs="*", metavar="[NAME] [PUZZLE ...]", help=words)
    file = "puzzles, one per line or as grids; .csv with a header; - for standard input (default: the words)"
    parser.add_argument("--file", help=file)
    parser.add_argument("--model", help=f"{options.MODEL} (default: the task's)")
    parser.add_argument("--rule", help=f"{options.RULES} (default: tweedie, or confidence where masked)")
    tries = (
        "how often to try a puzzle (default 10); with --no-verify (default 1) until the network is sure of its board"
    )
    parser.add_argument("--tries", type=options.at_least(1), help=tries)
    options.flag(parser, "--no-verify", "no check of the constraints on the way")
    options.flag(parser, "--json", "one JSON object per puzzle")
    options.flag(parser, "--show", "draw the boards")
    options.sampler(parser)
    options.own_task(parser)
    options.valid(parser)
    options.common(parser)


def run(args: argparse.Namespace) -> int:
    started = time.perf_counter()
    if args.words[-1:] == [STDIN]:
        args.words.pop()
        if args.file is not None:
            raise LetgoError("give puzzles by - or by --file, not both")
        args.file = STDIN
    if args.file is not None:
        _refuse_unreadable(args.file)
        args.voice.announce("letgo solve: loading the model")
    name, puzzles = _name_and_puzzles(args.words)
    _check_words(args, name, puzzles)
    if not puzzles and args.file is None and _something_comes():
        args.file = STDIN
    solver = options.load_solver(name, args)
    options.check_rows(solver, args)
    problem, example = _read(args, solver, puzzles), not puzzles and args.file is None
    args.rule_given = args.rule is not None
    args.rule = solver.sampler(args.rule, args.steps, **options.settings(args)).rule
    options.warn_of_other_steps(solver, args.rule, solver.steps_of_tries(args.steps, _tries(args, solver)), args)
    solved, answer = 0, None
    for i, answer in enumerate(_answers(args, solver, problem)):
        _print_answer(solver, problem[i : i + 1], answer, args, example)
        solved += answer.solved
    if example and not args.json and answer is not None:
        _tell(solver, answer, args.rule, time.perf_counter() - started)
    return 0 if solved == len(problem) else 1


def _check_words(args: argparse.Namespace, name: str | None, puzzles: list[str]) -> None:
    """Refuse words that are no puzzles before a model is loaded."""
    from letgo.runs import shipped
    from letgo.runs.models import runs_beside
    from letgo.tasks import TASKS

    if puzzles and os.path.isfile(puzzles[0]):
        raise LetgoError(f"{puzzles[0]} is a file; to solve what is in it: --file {puzzles[0]}")
    if name is None and args.model is None and puzzles and re.match(NO_PUZZLE, puzzles[0]):
        known = dict.fromkeys([*TASKS, *shipped(), *runs_beside(Path(puzzles[0]))])
        raise unknown("task, model or run folder", puzzles[0], known)
    if puzzles and args.file is not None:
        raise LetgoError("give puzzles as words or by --file, not both")
    if args.file == "" or "" in puzzles:
        raise LetgoError("the puzzle is empty; leave it out to see an example" if puzzles else "--file: no name given")


def _refuse_unreadable(file: str) -> None:
    """Say at once that there is nothing to read; PyTorch and the model come later."""
    if file == STDIN and sys.stdin is None:
        raise LetgoError("standard input is closed; pipe the puzzles in, or name a file")
    if file not in ("", STDIN) and not os.path.exists(file):
        raise LetgoError(f"{file}: no such file; check the path")


def _something_comes() -> bool:
    """Return whether standard input is a file or pipe whose first byte is there within a second.

    Nobody asked for it: a closed input, an empty one and a pipe in which nothing comes are the same as none.
    """
    try:
        if sys.stdin is None or sys.stdin.isatty():
            return False
        ready, _, _ = select.select([sys.stdin.fileno()], [], [], PATIENCE)
        return bool(ready) and bool(sys.stdin.buffer.peek(1))  # pyright: ignore[reportAttributeAccessIssue]
    except (OSError, ValueError):  # no file at all, or (Windows) one that cannot be waited for
        return False


def _first_line() -> str:
    """Look at the first line of standard input without taking it."""
    if sys.stdin is None:
        return ""
    begun: bytes = sys.stdin.buffer.peek(1)  # pyright: ignore[reportAttributeAccessIssue]
    return begun.partition(b"\n")[0].decode(errors="replace")


def _read(args: argparse.Namespace, solver: Solver, puzzles: list[str]) -> Problem:
    from letgo.data.columns import is_header
    from letgo.data.files import file_kind
    from letgo.data.puzzles import gathered, parse_puzzles, read_puzzles
    from letgo.data.source import source_of

    source = source_of(solver.task)
    if args.file is not None:
        csv = file_kind(args.file) == "csv" or (args.file == STDIN and is_header(_first_line()))
        if csv and source.has_csv:
            return source.read_questions(args.file)
        return read_puzzles(args.file, solver.task)
    if puzzles:
        places = ["the puzzle"] if len(puzzles) == 1 else [f"puzzle {i + 1}" for i in range(len(puzzles))]
        return parse_puzzles(gathered(zip(places, puzzles, strict=True), solver.task), solver.task)
    puzzle = source.look.example
    return source.draw("test", None, 1, args.seed) if puzzle is None else solver.task.parse(puzzle)


def _answers(args: argparse.Namespace, solver: Solver, problem: Problem) -> Iterator[Answer]:
    """Yield every answer as soon as it and those before it are there."""
    from letgo.machine import device_name
    from letgo.progress import Progress
    from letgo.solver import load

    then, second = _model_that_takes_over(args, solver), None
    tries = 1 if then else _tries(args, solver)
    show, done = Progress("answered", voice=args.voice), 0
    if len(problem) > 1:
        where = f"{solver.config.name} with {args.rule}, on {device_name(solver.device)}"
        args.voice.announce(f"solving {len(problem):,} puzzles by {where}")
        show(0, len(problem))
    how = {"rule": args.rule, "steps": args.steps, "tries": tries, "seed": args.seed, "verify": not args.no_verify}
    for answers in solver.solve_each(problem, args.batch, **how, **options.settings(args)):
        if then and not all(answer.solved for answer in answers):
            part = problem[done : done + len(answers)]
            second = second or load(then, solver.device, threads=args.threads)
            answers = _taken_over(args, second, part, answers)
        args.voice.erase()
        yield from answers
        sys.stdout.flush()  # a reader that has left shows itself here
        done += len(answers)
        if len(problem) > 1:
            show(done, len(problem))


def _tries(args: argparse.Namespace, solver: Solver) -> int:
    """Return many short tries of a model that has such, else a few long ones; without the rules a single one."""
    return args.tries or (1 if args.no_verify else 10 if solver.short_try is None else SHORT_TRIES)


def _model_that_takes_over(args: argparse.Namespace, solver: Solver) -> str | None:
    """Return the model that the first one's card names for puzzles that it has not solved at its first try.

    There is none where the user chose a model, a sampler or a single try, or wants no look at the rules.
    """
    from letgo.samplers import USUAL

    chosen = (
        args.model or args.no_verify or args.rule_given or args.steps or args.tries == 1 or args.precision != "auto"
    )
    unusual = any(value not in (None, USUAL[name]) for name, value in options.settings(args).items())
    return None if chosen or unusual else solver.card.get("then")


def _taken_over(args: argparse.Namespace, solver: Solver, problem: Problem, answers: list[Answer]) -> list[Answer]:
    """Return the answers with those of another model in place of what is unsolved."""
    import torch

    rows = [i for i, answer in enumerate(answers) if not answer.solved]
    left = max(1, args.tries - 1) if args.tries else SHORT_TRIES
    second = solver.solve(problem[torch.tensor(rows)], None, None, left, args.seed)
    after = {i: answer.after(answers[i], solver.config.name) for i, answer in zip(rows, second, strict=True)}
    return [after.get(i, answer) for i, answer in enumerate(answers)]


def _tell(solver: Solver, answer: Answer, rule: str, seconds: float) -> None:
    """Tell what was done for the example, and how long it took."""
    verdict = f"Solved by '{answer.model or solver.config.name}'" if answer.solved else "Not solved"
    tries = "1 try" if answer.tries == 1 else f"{answer.tries} tries"
    print(
        f"\n{verdict} with {rule}: {tries}, {answer.calls} network calls, {answer.seconds:.2f} s of sampling, "
        f"{seconds:.2f} s with loading the model."
    )
    if answer.solved:
        print("The network learned from solved instances alone; nobody told it a rule.")


def _name_and_puzzles(words: list[str]) -> tuple[str | None, list[str]]:
    """NAME is a task or a model; a first word that is neither is a puzzle."""
    from letgo.presets import PRESETS
    from letgo.runs import is_folder, shipped
    from letgo.tasks import find

    if not words or words[0] == "":
        return None, words
    known = find(words[0]) is not None or words[0] in PRESETS or words[0] in shipped()
    if known or words[0].startswith("hub:") or is_folder(Path(words[0].rpartition("@")[0] or words[0])):
        return words[0], words[1:]
    return None, words


def _print_answer(solver: Solver, problem: Problem, answer: Answer, args: argparse.Namespace, example: bool) -> None:
    if args.json:
        print(json.dumps(answer.as_dict()))
    elif (args.show or example) and answer.symbols is not None:
        if example:
            print(f"puzzle  {answer.puzzle}\nanswer  {answer.board}\n")
        print(solver.task.draw(answer.symbols, problem))
    else:
        print(answer.board if answer.solved else "unsolved")
