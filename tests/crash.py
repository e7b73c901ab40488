"""Commands that are killed before each of their file operations, or meet a full disk from there on, and are repeated.

    PYTHONPATH=src python tests/crash.py FOLDER [EVERY]    a full disk at every EVERY-th operation alone (default 1)

Whatever was left must load, and the same command, given again, must end in the files of one that was never disturbed.
Operations are those that Python audits (files opened for writing, renamed, removed, folders made), and fsync.
"""

from __future__ import annotations

import errno
import itertools
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import torch

import letgo
from letgo.cli import main
from letgo.presets import PRESETS
from letgo.runs import Run, load_model

MINI = replace(
    PRESETS["sudoku-mini"],
    network_options={"width": 8, "depth": 1, "heads": 2, "hidden": 8},
    batch=2, boards=8, steps=3, warmup=1, sample_steps=2,
)  # fmt: skip
TORN = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.truncate")


# Commands are run inside their folder, so that what they note down names no folder.


def train(steps: int = 3) -> int:
    letgo.train(MINI, "run", steps=steps, keep=(2, 4), validate=4, log_every=1, device="cpu", command="again")
    return 0


def tune() -> int:
    words = ["tune", "run", "--rule", "em", "--sigmas", "0.1,0.2", "--count", "5", "--device", "cpu"]
    return main([*words, "--quiet"])


def make(*more: str) -> int:
    return main(["data", "make", "latin", "--size", "4", "--count", "3", "--out", "a.npz", *more])


Command = Callable[[], int]
# name: what is there before, and the command
SCENARIOS: dict[str, tuple[list[Command], Command]] = {
    "train": ([], train),
    "go on": ([train, tune], lambda: train(5)),
    "tune": ([train], tune),
    "make": ([], make),
    "make again": ([make], lambda: make("--force", "--seed", "1")),
}


def disturbed(command: Command, folder: Path, number: int, full: bool) -> int:
    """Run the command; at its operation `number` it is killed, or the disk is full from then on."""
    count = itertools.count(1)

    def operation() -> None:
        at = next(count)
        if at == number and not full:
            os.kill(os.getpid(), signal.SIGKILL)
        if at >= number and full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event not in TORN or (event == "open" and not args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)):
            return
        if full and event in ("os.remove", "os.rmdir"):  # what a full disk still does
            return
        if isinstance(args[0], str | os.PathLike) and Path(args[0]).resolve().is_relative_to(folder):
            operation()

    sync = os.fsync

    def fsync(handle: int) -> None:
        operation()
        sync(handle)

    os.fsync = fsync
    sys.addaudithook(hook)
    return command()


def in_child(folder: Path, do: Command) -> tuple[int, str]:
    """Return the exit code (-9 where killed) and what was printed on stderr."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        text, code = StringIO(), 99
        with redirect_stderr(text), redirect_stdout(StringIO()):
            try:
                os.chdir(folder)
                code = do()
            except letgo.LetgoError as error:
                text.write(f"letgo: {error}\n")
                code = 2
            except BaseException as error:
                text.write(f"{type(error).__name__}: {error}\n")
        os.write(write, text.getvalue().encode()[:4000])
        os._exit(code)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        said = pipe.read().decode()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said


def contents(folder: Path) -> dict[str, Any]:
    """Everything in a folder that does not hang on the clock."""
    return {str(path.relative_to(folder)): _content(path) for path in sorted(folder.rglob("*")) if path.is_file()}


def _content(path: Path) -> Any:
    if path.name == "state.pt":
        state = torch.load(path, weights_only=True)
        return repr({name: value for name, value in state.items() if name != "seconds"})
    if path.name == "metrics.jsonl":
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        return [{name: value for name, value in line.items() if name != "steps_per_second"} for line in lines]
    if path.name == "validation.json":
        return {name: value for name, value in json.loads(path.read_text()).items() if name != "seconds"}
    return path.read_bytes()


def faults(out: Path, every: int) -> Iterator[str]:
    """Every place where something was lost; the last line says how many places there are."""
    places = 0
    for name, (before, command) in SCENARIOS.items():
        start, whole = out / f"{name}-start", out / f"{name}-whole"
        start.mkdir(parents=True)
        for step in before:
            assert in_child(start, step)[0] == 0
        shutil.copytree(start, whole)
        code, said = in_child(whole, command)
        assert code == 0, said
        expected = contents(whole)
        for full in (False, True):
            for number in itertools.count(1, every if full else 1):
                folder = out / "at"
                shutil.rmtree(folder, ignore_errors=True)
                shutil.copytree(start, folder)
                code, said = in_child(folder, partial(disturbed, command, folder, number, full))
                if code == 0:
                    break
                places += 1
                where = f"{name}, {'full disk' if full else 'kill'} at operation {number}"
                yield from (f"{where}: {fault}" for fault in _after(folder, command, code, said, full, expected))
    yield str(places)


def _after(folder: Path, command: Command, code: int, said: str, full: bool, expected: dict[str, Any]) -> Iterator[str]:
    if code != (2 if full else -signal.SIGKILL) or (full and said.count("\n") != 1):
        yield f"exit code {code}, {said!r}"
    run = folder / "run"
    if (run / "state.pt").exists() and (run / "model.safetensors").exists():
        try:
            load_model(str(run))
            Run.load(run)
        except letgo.LetgoError as error:
            yield f"left what does not load: {error}"
    words = command
    if (folder / "a.npz").exists() and command is make:  # it was made, and is not made twice
        words = lambda: 0  # noqa: E731
    code, said = in_child(folder, words)
    found = contents(folder)
    if code:
        yield f"cannot be repeated: {said!r}"
    elif found != expected:
        names = sorted(set(found) ^ set(expected)) or [name for name in found if found[name] != expected[name]]
        yield f"other than undisturbed: {', '.join(names)}"


if __name__ == "__main__":
    torch.set_num_threads(1)
    warm = torch.zeros(1, requires_grad=True)  # torch imports much at its first optimiser; backward would forbid forks
    warm.grad = torch.zeros(1)
    torch.optim.Adam([warm]).step()
    *lost, places = faults(Path(sys.argv[1]).resolve(), int(sys.argv[2]) if sys.argv[2:] else 1)
    print(*lost, f"{len(lost)} of {places} places lose something", sep="\n")
    sys.exit(bool(lost))
