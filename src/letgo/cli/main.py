"""The top of the command line: it finds the verb, runs it, and turns what goes wrong into one line and an exit code."""

from __future__ import annotations

import argparse
import errno
import io
import os
import re
import shlex
import signal
import sys
import threading
from collections.abc import Container, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TextIO

from letgo import __version__
from letgo.cli.options import Parser
from letgo.errors import LetgoError, unknown
from letgo.progress import Voice

VERBS = {  # each is a module of this package, imported when it is asked for
    "solve": "solve puzzles with a trained model",
    "generate": "sample boards without clues",
    "complete": "fill the blanks in rows of a table, by a model that was trained on it",
    "models": "list the shipped models",
    "presets": "list the training presets",
    "train": "train a preset, a table or a task of your own, or go on with a run",
    "evaluate": "measure how often a model and a sampling rule end in a valid board",
    "merge": "join the reports of the parts of one measurement (evaluate --shard)",
    "sweep": "train and measure a grid of settings, on this machine or a cluster; only what is missing",
    "tune": "choose the checkpoint, sigma and tau_start on validation instances",
    "bench": "measure speed: ours, plain PyTorch and a diffusers loop",
    "analyze": "look into a model: one of the paper's diagnostics as JSON and as a picture",
    "reproduce": "measure the paper's tables and write the pages of results",
    "export": "write a model's network as an ONNX file",
    "push": "upload a model with its card to the Hugging Face Hub",
    "app": "serve a page where two samplers run side by side",
    "serve": "serve the page's API by several processes of a Ray cluster",
    "data": "make, fetch and check data files",
    "completion": "print a script that completes these words in a shell",
}

BRIEF = ("models", "presets", "merge", "bench", "app", "serve", "data", "completion")  # other verbs say what they do

EPILOG = """examples:
  letgo solve                                        a built-in puzzle, drawn
  letgo solve sudoku-mini .1..3......2..3.           a puzzle of your own
  letgo solve --file puzzles.txt                     one line per puzzle
  letgo evaluate sudoku-baseline --rule ddpm --regime 21 --count 200
  letgo train sudoku-mini --out runs/mini            two minutes on a laptop
  letgo train --data table.csv --out runs/table      rows of your own
"""

WRITE_FAULTS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)


def build_parser(verbs: Container[str | None] = VERBS) -> Parser:
    """Build the parser; the options of other verbs than `verbs` are left out, and their modules not imported."""
    parser = Parser(
        prog="letgo",
        description="Continuous diffusion for constrained discrete tasks:\nTweedie reprojection and self-correction.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"letgo {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    for name, text in VERBS.items():
        verb = commands.add_parser(name, help=text)
        if name in verbs:
            import_module(f"letgo.cli.{name}").add(verb)
    return parser


def main(argv: list[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else argv
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (for as long as the program runs)
    if sys.stdout is None:
        return _complain("standard output is closed; send it to a file, or to /dev/null")
    try:
        try:
            with _ended_by_signals():
                return dispatch(words)
        finally:
            sys.stdout.flush()  # a reader that has left shows itself here, not while Python shuts down
    except KeyboardInterrupt:
        return _complain("interrupted", 130)
    except BrokenPipeError:
        _give_up_on(sys.stdout)  # the reader has left; say nothing more
        return 141
    except Exception as error:
        text = _explain(error)
        if "--debug" in words or text is None:
            raise
        if isinstance(error, OSError):
            _give_up_on(sys.stdout)
        return _complain(text)


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end a verb as Ctrl-C does: half-written files go. `train` and `app` have their own."""

    def end(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    numbers = [getattr(signal, name, None) for name in ("SIGTERM", "SIGHUP")]
    here = threading.current_thread() is threading.main_thread()
    ours = [n for n in numbers if here and n is not None and signal.getsignal(n) == signal.SIG_DFL]
    for number in ours:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


def _explain(error: Exception) -> str | None:
    """Explain in a line what a user can do something about; return None for a bug."""
    if isinstance(error, LetgoError):
        return str(error)
    if isinstance(error, OSError) and error.filename is not None:
        return str(LetgoError(f"{error.filename}: {error.strerror}"))  # whatever characters it has, and however many
    if isinstance(error, OSError) and error.errno in WRITE_FAULTS:
        return f"cannot write: {error.strerror}; check the disk and where the output goes"
    if isinstance(error, UnicodeEncodeError):
        sign = error.object[error.start]
        return f"the output's encoding, {error.encoding}, has no '{sign}'; set PYTHONIOENCODING=utf-8"
    full = isinstance(error, RuntimeError) and re.search("(allocate|out of) memory", str(error))  # torch says so
    if full or isinstance(error, MemoryError):
        return "not enough memory for that; ask for less at a time: a smaller --batch, or --count where there is one"
    return None


def _complain(text: str, code: int = 2) -> int:
    """Print a line on stderr and return the exit code, which holds even where nobody can read the line."""
    try:
        print(f"letgo: {text}", file=sys.stderr, flush=True)
    except OSError:
        _give_up_on(sys.stderr)
    return code


def _give_up_on(stream: TextIO | io.TextIOBase) -> None:
    """Give a stream up: what it cannot write stays in its buffer, and Python would fail on that again as it ends."""
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _unrecognized(parser: Parser, rest: list[str]) -> LetgoError:
    """Name words that no option takes, with the option that is nearest to the first of them."""
    from difflib import get_close_matches

    option = rest[0].partition("=")[0]
    near = get_close_matches(option, parser.options, 1) if option.startswith("--") else []
    suggestion = f"did you mean {near[0]}? " if near else ""
    return LetgoError(f"unrecognized arguments: {' '.join(rest)}; {suggestion}see `{parser.prog} --help`")


def dispatch(words: list[str]) -> int:
    if any("\0" in word for word in words):
        raise LetgoError("a word holds a NUL byte, which no name or number does; leave it out")
    verb = next((word for word in words if not word.startswith("-")), None)
    if verb is not None and verb not in VERBS:
        raise unknown("command", verb, VERBS, "`letgo --help` lists them")
    parser = build_parser([verb])
    args, rest = parser.parse_known_args(words)
    if args.command is None and not rest:
        parser.print_help()
        return 0
    if args.command == "solve" and not any(word.startswith("-") and word != "-" for word in rest):
        args.words += rest  # argparse gives up on puzzles that come after an option
    elif rest:
        raise _unrecognized(parser.of(*(word for word in words if not word.startswith("-"))), rest)
    if getattr(args, "quiet", False):
        os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"  # of hub:ID, too
    args.command_line = "letgo " + shlex.join(words)
    with Voice(getattr(args, "quiet", True), getattr(args, "progress", False)) as args.voice:
        if args.command not in BRIEF and "torch" not in sys.modules:  # the first import of it may take a while
            args.voice.announce(f"letgo {args.command}: loading PyTorch")
        _load_own(args)
        return import_module(f"letgo.cli.{args.command}").run(args)


def _load_own(args: argparse.Namespace) -> None:
    """Run the files that --task and --valid name, which imports torch."""
    if getattr(args, "own_task", None) is not None:
        from letgo import tasks

        args.own_task = tasks.load(args.own_task)
    if getattr(args, "valid", None) is not None:
        from letgo.tasks.table import load_check

        args.valid = load_check(args.valid)
