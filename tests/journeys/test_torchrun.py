"""Several processes train one model, started by torchrun: the weights are those of one process, and nothing is lost."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from letgo.runs import load_state

pytestmark = [pytest.mark.journey, pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")]

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]

TRAIN = """
import sys
import letgo
from letgo.presets import PRESETS

small = {"width": 16, "depth": 1, "heads": 2, "hidden": 32, "dropout": 0.0}
mini = PRESETS["sudoku-mini"].changed(network_options=small, batch=12, boards=40, steps=20, decay=0.0, precision="fp32")
graphs = PRESETS["connectivity-ired"].changed(network_options={"width": 8}, task_options={"size": 6}, batch=12,
                                              boards=40, steps=20)
configs = {
    "self-correction": mini,
    "simple": mini.changed(objective="simple"),
    "full": mini.changed(full_gradient=True),
    "two rollouts, a DDPM mean": mini.changed(objective_options={"rollouts": 2, "target": "ddpm-mean"}),
    "muon, clipped": mini.changed(optimizer="muon", clip_norm=0.05),
    "looped": mini.changed(network="looped", network_options={**small, "turns": 2}, objective="cross-entropy"),
    "graphs": graphs,
    "looped graphs": graphs.changed(network="looped-nlm", objective="cross-entropy"),
    "masked": mini.changed(codec="masked", path="absorbing", network="categorical", objective="masked"),
}
out, names, steps = sys.argv[1], sys.argv[2].split("/"), int(sys.argv[3])
for name in configs if names == ["all"] else names:
    letgo.train(configs[name].changed(steps=steps), f"{out}/{name}", validate=0, device="cpu", log_every=5)
"""


def train(folder: Path, processes: int, names: str = "all", steps: int = 20) -> None:
    (folder.parent / "train.py").write_text(TRAIN)
    start = [sys.executable] if processes == 1 else [*TORCHRUN, str(processes)]
    command = [*start, str(folder.parent / "train.py"), str(folder), names, str(steps)]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def assert_equal(one: Path, other: Path) -> None:
    """All weights and averages agree to 1e-6, but for the keys' biases.

    These add the same to all scores of a query, so no softmax heeds them: their gradients are rounding errors, which
    Adam makes steps of.
    """
    a, b = (load_state(folder / "state.pt") for folder in (one, other))
    assert a["step"] == b["step"] == 20
    for kind in ("raw", "ema"):
        for name, weight in a[kind].items():
            differs = (weight - b[kind][name]).abs()
            if name.endswith("qkv.bias"):
                queries, keys, values = differs.chunk(3)
                assert keys.max() < 1e-4, (other.name, name)
                differs = torch.cat([queries, values])
            assert differs.max() < 1e-6, (other.name, name)


def test_two_processes_learn_what_one_does(tmp_path: Path) -> None:
    train(tmp_path / "one", 1)
    train(tmp_path / "two", 2)
    names = [path.name for path in sorted((tmp_path / "one").iterdir())]
    assert len(names) == 9
    for name in names:
        one, two = tmp_path / "one" / name, tmp_path / "two" / name
        assert_equal(one, two)
        logs = [[json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()] for run in (one, two)]
        for mine, theirs in zip(*logs, strict=True):
            del mine["steps_per_second"], theirs["steps_per_second"]
            assert theirs == pytest.approx(mine, rel=1e-4, abs=1e-6), name
    # Another number of processes goes on with a run.
    name = "self-correction"
    for first, second in ((2, 1), (1, 3)):
        train(tmp_path / f"{first}", first, name, steps=10)
        train(tmp_path / f"{first}", second, name)
        assert_equal(tmp_path / "one" / name, tmp_path / f"{first}" / name)


@contextmanager
def training(folder: Path, *more: str) -> Iterator[subprocess.Popen[str]]:
    """Two processes of `letgo train` that have taken some steps."""
    words = ["train", "sudoku-mini", "--out", "run", "--steps", "1000000", "--batch", "4", "--boards", "40"]
    words += ["--device", "cpu", "--log-every", "1", *more]
    command = [*TORCHRUN, "2", "-m", "letgo", *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=folder, env=ENVIRONMENT, **pipes) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for_steps(folder: Path, process: subprocess.Popen[str]) -> None:
    log = folder / "run" / "metrics.jsonl"
    while not log.exists() or len(log.read_text().splitlines()) < 3:
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)


def letgo(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "letgo", *words]
    return subprocess.run(command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True)


def state_of(folder: Path) -> dict[str, Any]:
    state = load_state(folder / "run" / "state.pt")
    assert all(bool(torch.isfinite(value).all()) for value in state["raw"].values())
    return state


def test_a_signal_to_all_saves_and_one_process_goes_on(tmp_path: Path) -> None:
    with training(tmp_path) as process:
        wait_for_steps(tmp_path, process)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate()
    step = state_of(tmp_path)["step"]
    assert step >= 3
    assert re.findall(r"stopped at step ([\d,]+) of 1,000,000; saved in run\.", err) == [f"{step:,}"]  # said once
    words = ["--batch", "4", "--boards", "40", "--device", "cpu", "--validate", "0", "--quiet"]
    done = letgo(tmp_path, "train", "sudoku-mini", "--out", "run", "--steps", str(step + 2), *words)
    assert (done.returncode, done.stderr) == (0, "")
    assert state_of(tmp_path)["step"] == step + 2


def worker(process: subprocess.Popen[str], rank: int) -> int:
    """The number of the process of that rank."""
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            parent = int((path.parent / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == process.pid and f"\0RANK={rank}\0".encode() in b"\0" + path.read_bytes():
                return int(path.parent.name)
        except OSError:  # it has ended meanwhile
            continue
    raise AssertionError(f"no process of rank {rank}")


@pytest.mark.parametrize("rank", [0, 1])
def test_a_process_that_dies_ends_the_other_with_a_line(tmp_path: Path, rank: int) -> None:
    with training(tmp_path) as process:
        wait_for_steps(tmp_path, process)
        os.kill(worker(process, rank), signal.SIGKILL)
        _, err = process.communicate()
        assert process.returncode != 0
    (line,) = re.findall(r"letgo: .*another process of this training has ended.*", err)
    assert line.endswith("; give the command again to go on")
    step = state_of(tmp_path)["step"]
    assert (f"; step {step:,} is saved" in line) == (rank == 1)
    assert line.startswith("letgo: process 1: ") == (rank == 0)


def test_a_batch_that_cannot_be_shared_is_refused(tmp_path: Path) -> None:
    with training(tmp_path, "--batch", "5") as process:
        _, err = process.communicate()
    refused = "letgo: 2 processes cannot share a batch of 1 x 5; give one seed, and a --batch that they divide"
    assert refused in err.splitlines()
    assert not (tmp_path / "run").exists()
