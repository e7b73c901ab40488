"""Hostile files and words, thousands of each kind: what is refused, what is taken, what ends in a traceback or hangs.

    PYTHONPATH=src python tests/attack.py [COUNT] [KIND ...]          # COUNT of each kind, default 300

A fault is any other end than an answer or one printable line within five seconds; docs/robustness.md has the counts.
"""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import traceback
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import letgo
from letgo import tasks
from letgo.cli import main
from letgo.data import load_problems
from letgo.data.make import make, save
from letgo.presets import PRESETS
from letgo.runs import load_state, read_json

MINI = replace(
    PRESETS["sudoku-mini"],
    network_options={"width": 8, "depth": 1, "heads": 2, "hidden": 8},
    batch=2, boards=8, steps=3, warmup=1, sample_steps=2,
)  # fmt: skip
SURROGATE = "\udc80"
ODD: list[Any] = [
    None, True, False, 0, 1, -1, -3, 7, 10**9, 2**63, 10**40, 0.5, -0.5, 1e308, float("nan"), float("inf"), "", "x",
    "\x00", SURROGATE, "²", "em", "../..", "0" * 5000, [], [1], ["cosine"], [[]], {}, {"x": 1}, {"depth": {}},
]  # fmt: skip
TEXTS = [b"", b"null", b"[]", b"{", b"\xff\xfe", b"[" * 100_000, b'{"a":' * 100_000, b"9" * 5000, b'"\\ud800"', b"NaN"]


class Slow(BaseException):
    pass


# Mutations


def of_json(rng: random.Random, values: Any) -> bytes:
    """Replace, remove or add something somewhere, or return text that is no such JSON."""
    if rng.random() < 0.1:
        return rng.choice(TEXTS)
    values = json.loads(json.dumps(values))
    places = [values]
    for _ in range(rng.randint(0, 3)):
        inner = [v for v in (places[-1].values() if isinstance(places[-1], dict) else places[-1]) if v]
        inner = [value for value in inner if isinstance(value, dict | list)]
        if inner:
            places.append(rng.choice(inner))
    place = places[-1]
    keys: list[Any] = [*place] if isinstance(place, dict) else [*range(len(place))]
    if not keys or rng.random() < 0.05:
        return json.dumps(rng.choice(ODD)).encode()
    key, kind = rng.choice(keys), rng.random()
    if kind < 0.1:
        del place[key]
    elif kind < 0.15 and isinstance(place, dict):
        place[rng.choice(["zz", SURROGATE, ""])] = rng.choice(ODD)
    else:
        place[key] = rng.choice(ODD)
    return json.dumps(values).encode()


def of_bytes(rng: random.Random, whole: bytes) -> bytes:
    data = bytearray(whole)
    for _ in range(rng.choice([1, 1, 2, 8])):
        kind, at = rng.random(), rng.randrange(len(data)) if data else 0
        if kind < 0.6 and data:
            data[at] ^= 1 << rng.randrange(8)
        elif kind < 0.75:
            del data[at : at + rng.choice([1, 4, 64])]
        elif kind < 0.9:
            data[at:at] = rng.randbytes(rng.choice([1, 4, 64]))
        else:
            del data[at:]
    return bytes(data)


def of_tree(rng: random.Random, tree: Any) -> Any:
    """A state with something replaced or removed."""
    odd = [*ODD, torch.zeros(2), torch.zeros(3, dtype=torch.int64), torch.tensor(float("nan")), torch.zeros(2, 2).T]
    if not isinstance(tree, dict) or not tree or rng.random() < 0.25:
        return rng.choice(odd)
    key = rng.choice([*tree])
    if rng.random() < 0.15:
        return {name: value for name, value in tree.items() if name != key}
    return {**tree, key: of_tree(rng, tree[key])}


def of_npz(rng: random.Random, whole: bytes) -> bytes:
    if rng.random() < 0.4:
        return of_bytes(rng, whole)
    with np.load(io.BytesIO(whole)) as archive:
        arrays = dict(archive)
    name = rng.choice([*arrays, "context"])
    values: list[Any] = [
        np.array(json.dumps(rng.choice([*ODD, {"task": rng.choice(ODD), "size": rng.choice(ODD)}]))),
        np.zeros(rng.choice([(), (0,), (3,), (3, 16), (3, 4, 4), (3, 0, 4), (1, 2, 3, 4), (0, 0)])),
        np.zeros((3, 16), rng.choice(["u1", "?", "i8", "f2", "c16", "U3", "S2", "M8[s]", "m8[D]", "V4", "f4,i2"])),
        np.full((3, 4, 4), rng.choice([np.nan, np.inf, -1, 300])),
        np.array(rng.choice([b"x", 1, 1.5, True, "nul\x00", "[]", "null"])),
    ]
    if rng.random() < 0.15:
        arrays.pop(name, None)
    else:
        arrays[name] = rng.choice(values)
    out, kind = (
        io.BytesIO(),
        rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2]),
    )
    with zipfile.ZipFile(out, "w", kind) as archive:
        for name, value in arrays.items():
            entry = io.BytesIO()
            np.save(entry, value)
            data = entry.getvalue()
            data = of_bytes(rng, data[:120]) + data[120:] if rng.random() < 0.3 else data  # the header of the array
            archive.writestr(f"{name}.npy", data)
    packed = bytearray(out.getvalue())
    if rng.random() < 0.15:  # says that it is encrypted, or packed in an unknown way
        for sign, flag, method in ((b"PK\x01\x02", 8, 10), (b"PK\x03\x04", 6, 8)):
            at = packed.find(sign)
            packed[at + (flag if rng.random() < 0.5 else method)] ^= 1
    return bytes(packed)


def of_words(rng: random.Random, run: str) -> list[str]:
    numbers = ["²", "9" * 5000, "9223372036854775808", "-1", "0", "1e9", "nan", "inf", "", "\x00", "0x10", "１", "1_0"]
    names = ["@", "@1", f"{run}@²", f"{run}@{'9' * 5000}", f"{run}@-1", "a\x00b", "\x00", SURROGATE, "hub:", "hub:\x00"]
    names += ["/dev/null", "/", "." * 5000, "x" * 300, f"{run}/config.json", "https://x/y", "~", "*"]
    number, name = rng.choice(numbers), rng.choice(names)
    option = rng.choice(
        ["--steps", "--seed", "--batch", "--threads", "--sigma", "--tau-start", "--variance", "--tries"]
    )
    short = ["--steps", "1", "--boards", "2", "--validate", "0"]
    return rng.choice(
        [
            ["solve", name], ["solve", "--model", name], ["solve", "--file", name], ["solve", name, "1..."],
            ["evaluate", name, "--rule", "ddpm", "--count", "1"], ["generate", name], ["merge", name],
            ["evaluate", run, "--rule", name, "--count", "1"], ["evaluate", run, "--rule", "ddpm", "--count", number],
            ["evaluate", run, "--rule", "ddpm", "--count", "1", "--regime", rng.choice([name, number])],
            ["evaluate", run, "--rule", "ddpm", "--count", "1", "--shard", number],
            ["evaluate", run, "--rule", "ddpm", "--count", "1", "--data", name],
            ["evaluate", run, "--rule", "ddpm", "--count", "1", "--out", name],
            ["evaluate", run, "--rule", "em", "--sigma", "0.1", "--count", "1", option, number],
            ["solve", "--model", run, "................", option, number], ["data", "check", name],
            ["data", "make", "latin", "--count", "1", "--out", name],
            ["data", "make", name, "--count", "1", "--out", "a"],
            ["data", "make", "latin", "--count", number, "--size", number, "--out", "a.npz"],
            ["tune", name, "--rule", "em"], ["tune", run, "--rule", "em", "--count", "5", "--sigmas", number],
            ["train", name, "--out", "t"], ["train", "sudoku-mini", "--out", name, *short],
            ["train", "sudoku-mini", "--out", "t", *short, "--keep", number],
        ]
    )  # fmt: skip


# Readers


class Attack:
    """A run, a file of each kind, and the readers that they are given to."""

    def __init__(self, folder: Path):
        self.folder, self.run, self.rng = folder, folder / "run", random.Random(0)
        letgo.train(MINI, self.run, validate=0, device="cpu")
        (self.run / "card.json").write_text(json.dumps({"summary": "small", "steps": 3, "generation_rule": "ddpm"}))
        words = ["tune", str(self.run), "--rule", "em", "--sigmas", "0.1", "--count", "5", "--as-is", "--quiet"]
        words += ["--device", "cpu"]
        with redirect_stdout(io.StringIO()):
            assert main(words) == 0
            shard = ["evaluate", str(self.run), "--rule", "ddpm", "--count", "4", "--shard", "0/1", "--out"]
            assert main([*shard, str(folder / "part.json"), "--quiet"]) == 0
        self.state = load_state(self.run / "state.pt")
        self.puzzles = {name: tasks.get(name) for name in tasks.TASKS if name != "table"}
        self.examples = {name: task.format_clues(make(task, 1, 0))[0] for name, task in self.puzzles.items()}
        self.latin, self.graphs = tasks.get("latin", size=4), tasks.get("connectivity", size=4)
        save(folder / "latin.npz", make(self.latin, 3, 0), self.latin, {"task": "latin", "size": 4})
        save(folder / "graphs.npz", make(self.graphs, 3, 0), self.graphs, {"task": "connectivity", "size": 4})
        sudoku = tasks.get("sudoku")
        save(folder / "sudoku.csv", make(sudoku, 3, 0), sudoku, {"regime": "21"})
        self.originals = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    def put_back(self) -> None:
        for path, content in self.originals.items():
            path.write_bytes(content)

    def config(self) -> None:
        path = self.run / "config.json"
        path.write_bytes(of_json(self.rng, read_json(path)))
        solver = letgo.load(self.run)
        solver.sampler()
        solver.solve(["1..............."], steps=2)

    def card(self) -> None:
        path = self.run / "card.json"
        path.write_bytes(of_json(self.rng, read_json(path)))
        letgo.load(self.run).generate(1, steps=2)

    def tuning(self) -> None:
        path = self.run / "tune-em.json"
        path.write_bytes(of_json(self.rng, read_json(path)))
        letgo.load(self.run).solve(["1..............."], "em", steps=2)

    def report(self) -> None:
        path = self.folder / "part.json"
        path.write_bytes(of_json(self.rng, read_json(path)))
        self.command(["merge", str(path), "--json"])

    def go_on(self) -> None:
        letgo.train(MINI, self.run, steps=4, validate=0, device="cpu")

    def state_values(self) -> None:
        torch.save(of_tree(self.rng, self.state), self.run / "state.pt")
        self.go_on()

    def state_bytes(self) -> None:
        path = self.run / "state.pt"
        path.write_bytes(of_bytes(self.rng, path.read_bytes()))
        self.go_on()

    def weights(self) -> None:
        path = self.run / "model.safetensors"
        path.write_bytes(of_bytes(self.rng, path.read_bytes()))
        letgo.load(self.run)

    def npz(self) -> None:
        name, task = self.rng.choice([("latin", self.latin), ("graphs", self.graphs)])
        path = self.folder / f"{name}.npz"
        path.write_bytes(of_npz(self.rng, path.read_bytes()))
        if self.rng.random() < 0.5:
            load_problems(path, task)
        else:
            self.command(["data", "check", str(path)])

    def csv(self) -> None:
        path = self.folder / "sudoku.csv"
        path.write_bytes(of_bytes(self.rng, path.read_bytes()))
        load_problems(path, tasks.get("sudoku"))

    def puzzle(self) -> None:
        name = self.rng.choice([*self.puzzles])
        text = of_bytes(self.rng, self.examples[name].encode()).decode(errors="surrogateescape")
        self.puzzles[name].parse(text)

    def words(self) -> None:
        self.command(of_words(self.rng, str(self.run)))

    def command(self, words: list[str]) -> None:
        said = io.StringIO()
        with redirect_stderr(said), redirect_stdout(io.StringIO()):
            code = main(words if words[0] in ("merge", "data") else [*words, "--quiet"])
        if code not in (0, 1):
            raise letgo.LetgoError(said.getvalue().removesuffix("\n"))


KINDS = (
    "config",
    "card",
    "tuning",
    "report",
    "state_values",
    "state_bytes",
    "weights",
    "npz",
    "csv",
    "puzzle",
    "words",
)


def outcome(read: Callable[[], None], seconds: int = 5) -> tuple[str, str]:
    """'taken', 'refused', 'hang' or 'traceback', and where."""

    def ring(number: int, frame: object) -> None:
        raise Slow

    signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        read()
        return "taken", ""
    except letgo.LetgoError as error:
        text = str(error)
        fine = "\n" not in text and text.isprintable()
        return ("refused", "") if fine else ("traceback", f"not one printable line: {text!r:.150}")
    except Slow:
        return "hang", " < ".join(line.strip() for line in traceback.format_exc().splitlines()[-4:-12:-1])[:200]
    except (Exception, SystemExit) as error:
        own = [frame for frame in traceback.extract_tb(error.__traceback__) if "letgo" in frame.filename]
        where = f"{Path(own[-1].filename).name}:{own[-1].lineno}" if own else "?"
        return "traceback", f"{where} {type(error).__name__}: {str(error).splitlines()[:1]!s:.120}"
    finally:
        signal.alarm(0)


def run(count: int, kinds: list[str]) -> int:
    warnings.simplefilter("error")
    torch.set_num_threads(1)
    faults = 0
    with tempfile.TemporaryDirectory() as folder:
        attack, here = Attack(Path(folder)), Path(folder) / "here"
        for kind in kinds:
            found, places = Counter(), Counter()
            for number in range(count):
                attack.rng = random.Random(f"{kind} {number}")
                shutil.rmtree(here, ignore_errors=True)
                here.mkdir()
                os.chdir(here)
                what, where = outcome(getattr(attack, kind))
                found[what] += 1
                if where:
                    places[where] += 1
                attack.put_back()
            names = ("refused", "taken", "traceback", "hang")
            print(f"{kind:13}", "  ".join(f"{name} {found[name]}" for name in names), flush=True)
            for place, times in places.most_common(12):
                print(f"    {times:4} {ascii(place)[1:-1]}", flush=True)
            faults += found["traceback"] + found["hang"]
    print(f"{faults} of {count * len(kinds)} end in a traceback, a hang or an unreadable line")
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(run(int(sys.argv[1]) if sys.argv[1:] else 300, sys.argv[2:] or [*KINDS]))
