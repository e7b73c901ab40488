"""Small files that unpack to gigabytes, and what each command takes to refuse them: `python tests/bombs.py FOLDER`.

It prints exit code, seconds of CPU, the most memory and the line that was said; CI tries the same at smaller sizes.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from test_robust import bomb

ROOT = Path(__file__).parents[1]
MIB = 1 << 20


def packed(path: Path, piece: bytes) -> Path:
    """A file of 3 GiB, packed."""
    with gzip.open(path, "wb", 1) as file:
        for _ in range(3 << 10):
            file.write(piece * MIB)
    return path


def deep(folder: Path) -> Path:
    """A shipped model whose configuration has 10^9 layers."""
    shutil.copytree(ROOT / "src" / "letgo" / "shipped" / "sudoku-mini", folder)
    config = json.loads((folder / "config.json").read_text())
    config["network_options"]["depth"] = 10**9
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def tell(*words: str | Path) -> None:
    command = [sys.executable, "-m", "letgo", *map(str, words), "--quiet"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as run:
        assert run.stdout is not None
        said = run.stdout.read().strip()
        _, status, usage = os.wait4(run.pid, 0)
        run.returncode = os.waitstatus_to_exitcode(status)
    seconds, memory = usage.ru_utime + usage.ru_stime, usage.ru_maxrss >> 10
    print(f"{run.returncode}  {seconds:4.1f} s  {memory:5,} MiB  {said[-150:]}", flush=True)


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True)
    line, empty = packed(folder / "line.csv.gz", b"x"), packed(folder / "empty.txt.gz", b"\n")
    boards = bomb(folder / "boards.npz", ("boards.npy", "given.npy"), 2200 * MIB)
    unasked = bomb(folder / "unasked.npz", ("unasked.npy",), 2200 * MIB)
    run = folder / "run"
    tell("train", "sudoku-mini", "--out", run, "--steps", "5")
    bomb(run / "state.pt", ("archive/data.pkl",), 3200 * MIB)
    puzzle = ".1..3......2..3."
    tell("solve", "sudoku-mini", puzzle)  # what an honest command takes
    tell("solve", "--file", line)
    tell("solve", "--file", empty)
    for model, file in (("sudoku-extreme", line), ("sudoku", boards), ("sudoku", unasked)):
        tell("evaluate", model, "--rule", "ddpm", "--data", file)
    for file in (line, boards, unasked):
        tell("train", "--data", file, "--out", folder / "new")
    tell("train", "sudoku-mini", "--out", run, "--steps", "10")
    tell("solve", "--model", deep(folder / "deep"), puzzle)
    tell("generate", "sudoku", "--count", "1000000000")
    tell("solve", "--file", "/dev/zero")


if __name__ == "__main__":
    main()
