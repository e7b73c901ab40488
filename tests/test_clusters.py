"""The same sweep on clusters: submitit's local executor, and Ray on two nodes of which one is really killed."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch

from letgo.cli import main
from letgo.runs import Run
from letgo.sweep.cells import Folder
from letgo.sweep.spec import Cell, read_spec

TINY = {"width": 8, "depth": 1, "heads": 2, "hidden": 8}
TRAIN: dict[str, Any] = {
    "preset": "sudoku-mini", "network_options": TINY, "batch": 2, "boards": 8, "validate": 2, "warmup": 1,
}  # fmt: skip
RULES = {"rule": ["ddpm", "tweedie"], "count": 4, "steps": 2}
MODEL = {"evaluate": {"model": "sudoku-mini", **RULES}}


def written(folder: Path, values: dict[str, Any]) -> tuple[Path, list[Cell]]:
    spec = folder / "grid.json"
    spec.write_text(json.dumps(values))
    return spec, read_spec(spec).cells


def until(what: Callable[[], Any], seconds: float = 240) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := what():
            return found
        time.sleep(0.1)
    raise AssertionError("it never came")


@pytest.mark.parametrize(("flags", "extra"), [(["--slurm"], "slurm"), (["--ray", "local"], "ray")])
def test_without_the_extra_the_flag_says_what_to_install(
    tmp_path: Path, flags: list[str], extra: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, {"slurm": "submitit", "ray": "ray"}[extra], None)
    spec, _ = written(tmp_path, MODEL)
    assert main(["sweep", str(spec), *flags, "--quiet"]) == 2
    assert f"needs the {extra} extra: pip install 'letgo[{extra}]'" in capsys.readouterr().err
    assert not (tmp_path / "grid").exists()


@pytest.mark.extras
def test_submitit_does_a_sweep_and_what_a_killed_job_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("submitit")
    from letgo.sweep import run
    from letgo.sweep.clusters import Slurm

    train = {**TRAIN, "steps": 3, "seed": [0, 1]}
    spec, cells = written(tmp_path, {"train": train, "evaluate": RULES, "slurm": {"cluster": "local"}})
    killed: list[int] = []

    def kill_the_first(self: Slurm, job: Any, start: Callable[..., None] = Slurm.start) -> None:
        start(self, job)
        if not killed:
            handle = self.under_way[job.name][0]
            killed.append(int(handle.job_id))
            handle._process.send_signal(signal.SIGKILL)

    monkeypatch.setattr(Slurm, "start", kill_the_first)
    monkeypatch.setattr(run, "LOOK_SECONDS", 0.2)
    assert main(["sweep", str(spec), "--slurm", "--device", "cpu", "--quiet"]) == 0
    folder = Folder(tmp_path / "grid")
    assert killed
    assert all(folder.record(cell) is not None for cell in cells)
    assert len([*(tmp_path / "grid" / "slurm").glob("*.pkl")]) >= 3  # the lost one again
    bad, _ = written(tmp_path, {**MODEL, "slurm": {"cluster": "local", "timeout": 3}})
    assert main(["sweep", str(bad), "--slurm", "--device", "cpu", "--quiet"]) == 2


@pytest.mark.extras
def test_a_job_whose_time_is_up_saves_first_and_goes_on_from_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("submitit")
    from letgo.sweep import run
    from letgo.sweep.clusters import Slurm

    train = {**TRAIN, "steps": 600}
    spec, [cell, *_] = written(tmp_path, {"train": train, "evaluate": RULES, "slurm": {"cluster": "local"}})
    folder = Folder(tmp_path / "grid")
    model, saved = Path(folder.model(cell)), []

    def warn_once_it_trains(self: Slurm, seconds: float, wait: Callable[..., Any] = Slurm.wait) -> Any:
        if not saved:
            until(lambda: (model / "metrics.jsonl").is_file() and (model / "metrics.jsonl").read_text())
            [(handle, _)] = self.under_way.values()
            controller = handle._process.pid
            [child] = Path(f"/proc/{controller}/task/{controller}/children").read_text().split()
            os.kill(int(child), signal.SIGUSR2)
            until(lambda: "Requeued" in handle.stdout())
            saved.append(torch.load(model / "state.pt")["step"])
        return wait(self, seconds)

    monkeypatch.setattr(Slurm, "wait", warn_once_it_trains)
    monkeypatch.setattr(run, "LOOK_SECONDS", 0.2)
    assert main(["sweep", str(spec), "--slurm", "--device", "cpu", "--quiet"]) == 0
    assert 100 <= saved[0] < 600  # a run saves by itself at its start and then every minute
    assert all(folder.record(cell) is not None for cell in read_spec(spec).cells)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head that takes no work, to which tests add nodes; all ask for a token, which Ray reads once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_worker_niceness", "0")  # Ray's own 15 would wait for every other test of a busy machine
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        from ray.cluster_utils import Cluster

        made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
        yield made
        made.shutdown()


@pytest.mark.ray
@pytest.mark.filterwarnings("ignore")
def test_a_node_that_is_killed_loses_no_finished_work_and_the_other_one_goes_on(cluster: Any, tmp_path: Path):
    first = cluster.add_node(num_cpus=1)
    train = {**TRAIN, "steps": 200_000, "seed": 1}
    quick = {"evaluate": {**MODEL["evaluate"], "rule": "ddpm"}}
    spec, [cell] = written(tmp_path, {"train": train, "evaluate": {**RULES, "rule": "ddpm"}})
    easy = tmp_path / "easy.json"
    easy.write_text(json.dumps(quick))
    words = [sys.executable, "-m", "letgo", "sweep"]
    flags = ["--ray", cluster.address, "--device", "cpu", "--out", "grid"]
    done = subprocess.run([*words, "easy.json", *flags], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "cell: valid" in done.stdout
    folder = Folder(tmp_path / "grid")
    [finished] = read_spec(easy).cells
    before = folder.result(finished).stat().st_mtime_ns
    state = tmp_path / "grid" / "runs" / str(cell.run) / "state.pt"
    command = [*words, spec.name, *flags]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=tmp_path, stdout=pipe, stderr=pipe, text=True) as sweep, ExitStack() as last:
        last.callback(sweep.kill)  # a test that fails does not wait for all steps
        until(state.exists)
        held = str(folder.holder(str(cell.run)))
        cluster.add_node(num_cpus=1)
        cluster.remove_node(first, allow_graceful=False)  # SIGKILL for all of its processes
        until(lambda: folder.holder(str(cell.run)) not in (None, held))  # the other node has taken it over
        log, since = state.with_name("metrics.jsonl"), time.time()
        until(lambda: log.exists() and log.stat().st_size and log.stat().st_mtime > since)  # and goes on with it
        sweep.send_signal(signal.SIGINT)
        _, said = sweep.communicate(timeout=120)
    assert sweep.returncode == 130, said
    assert "1 job for 2 nodes of Ray" in said  # the head is one
    assert "its worker died" in said
    assert "it is started again" in said
    until(lambda: folder.holder(str(cell.run)) is None)  # Ctrl-C has reached the node
    assert 0 < Run.load(state.parent).step < 200_000  # and the training was saved
    assert folder.result(finished).stat().st_mtime_ns == before


@pytest.mark.ray
@pytest.mark.filterwarnings("ignore")
def test_a_cluster_asks_for_its_token(cluster: Any, tmp_path: Path):
    written(tmp_path, MODEL)
    command = [sys.executable, "-m", "letgo", "sweep", "grid.json", "--ray", cluster.address, "--quiet"]
    environment = {**os.environ, "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    refused = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=180)
    assert refused.returncode == 2, refused.stderr
    assert "--ray" in refused.stderr
    assert not (tmp_path / "grid").exists()
