"""A sweep does what is missing, once, whoever is killed meanwhile."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import letgo
from letgo.cli import main
from letgo.errors import LetgoError
from letgo.report import Report
from letgo.samplers import SETTINGS
from letgo.sweep.cells import Folder, Job, Outcome, work
from letgo.sweep.run import LOSSES, Lost, Sweep
from letgo.sweep.spec import Cell, Evaluate, Spec, read_spec

TINY = {"width": 8, "depth": 1, "heads": 2, "hidden": 8}
TRAIN: dict[str, Any] = {
    "preset": "sudoku-mini", "network_options": TINY, "steps": 3, "batch": 2, "boards": 8, "validate": 2,
    "warmup": 1, "ema": 0.5,
}  # fmt: skip
EVALUATE = {"rule": ["ddpm", "tweedie"], "count": 4, "steps": 2}
MODEL = {"evaluate": {"model": "sudoku-mini", **EVALUATE}}


@pytest.mark.parametrize("text", [b"a=" + b"[" * 100_000, b"a=" + b"9" * 5000, b"a='\xff'", b"a"])
def test_a_spec_that_is_no_toml_is_refused_in_a_line(text: bytes, tmp_path: Path) -> None:
    (tmp_path / "grid.toml").write_bytes(text)
    with pytest.raises(LetgoError, match=r"grid\.toml is not readable TOML"):
        read_spec(tmp_path / "grid.toml")


@pytest.mark.fast
def test_a_cell_may_have_every_setting_of_a_sampler() -> None:
    assert set(SETTINGS) <= Evaluate.__annotations__.keys()


def written(folder: Path, values: dict[str, Any], name: str = "grid.json") -> Path:
    (folder / name).write_text(json.dumps(values))
    return folder / name


def spec_of(folder: Path, values: dict[str, Any]) -> Spec:
    return read_spec(written(folder, values))


def opened(folder: Path, values: dict[str, Any]) -> tuple[Folder, list[Cell]]:
    (folder / "grid").mkdir()
    (folder / "grid" / "sweep.json").write_text("{}")
    return Folder(folder / "grid"), spec_of(folder, values).cells


class Here:
    """Workers that do a job at once; `fates` say what becomes of the first ones instead."""

    def __init__(self, out: Path, *fates: Outcome | Lost):
        self.out, self.fates, self.ended, self.started = out, [*fates], [], []

    def free(self) -> bool:
        return not self.ended

    def start(self, job: Job) -> None:
        self.started.append([cell.title for cell in job.cells])
        fate = self.fates.pop(0) if self.fates else work(job, str(self.out), "cpu", 1)
        self.ended.append((job, fate))

    def wait(self, seconds: float) -> list[tuple[Job, Outcome | Lost]]:
        ended, self.ended = self.ended, []
        return ended

    def stop(self) -> None: ...


def swept(folder: Folder, cells: list[Cell], workers: Here) -> tuple[Sweep, list[str]]:
    said: list[str] = []
    there = sum(folder.record(cell) is not None for cell in cells)
    sweep = Sweep(folder, workers, said.append, lambda c, r: said.append(c.title), lambda d, t: None, len(cells), there)
    sweep.run(folder.jobs(cells))
    return sweep, said


@pytest.mark.fast
def test_every_list_is_an_axis_and_every_combination_a_cell(tmp_path: Path):
    values = {"train": {**TRAIN, "objective": ["simple", "self-correction"], "seed": [0, 1]}, "evaluate": EVALUATE}
    cells = spec_of(tmp_path, values).cells
    assert [cell.title for cell in cells][:3] == ["simple_seed0_ddpm", "simple_seed0_tweedie", "simple_seed1_ddpm"]
    assert len({cell.name for cell in cells}) == 8
    assert len({cell.run for cell in cells}) == 4  # the two rules share a training
    other = spec_of(tmp_path, {**values, "evaluate": {**EVALUATE, "count": 5}}).cells
    assert not {cell.name for cell in cells} & {cell.name for cell in other}  # other settings are other files
    assert {cell.run for cell in cells} == {cell.run for cell in other}  # of the same trainings
    toml = tmp_path / "grid.toml"
    toml.write_text('[evaluate]\nmodel = ["sudoku-mini", "sudoku"]\nrule = "ddpm"\nregime = [4, "5"]\n')
    assert read_spec(toml).cells[0].title == "sudoku-mini_regime4"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"evaluate": EVALUATE}, "give [evaluate] a model, or a table [train]"),
        ({"train": TRAIN, **MODEL}, "one of the two"),
        ({"grid": {}}, "unknown table 'grid'"),
        ({"train": [1]}, "train is list; expected an object"),
        ({"evaluate": {"model": "sudoku-mini"}}, "needs a rule"),
        ({"evaluate": {"model": "sudoku-mini", "rule": []}}, "rule is an empty list"),
        ({"evaluate": {"model": "sudoku-mini", "rule": "dpm"}}, "unknown rule 'dpm'; did you mean ddpm?"),
        ({"evaluate": {"model": "nobody", "rule": "ddpm"}}, "unknown model or run folder 'nobody'"),
        ({"evaluate": {"model": "sudoku-mini", "rule": "ddpm", "cuont": 3}}, "did you mean count?"),
        ({"evaluate": {"model": "sudoku-mini", "rule": "ddpm", "count": "3"}}, "count is '3'; expected a whole number"),
        ({"evaluate": {"model": "sudoku-mini", "rule": "ddpm", "shard": "2/2"}}, "--shard 2/2"),
        ({"evaluate": {"model": "sudoku-mini", "rule": "ddpm", "seed": [*range(400)], "count": [*range(1, 400)]}},
         "more than 100,000"),
        ({"train": {**TRAIN, "objective": "sinple"}, "evaluate": EVALUATE}, "did you mean simple?"),
        ({"train": {**TRAIN, "steps": "many"}, "evaluate": EVALUATE}, "steps is 'many'"),
        ({"train": {"steps": 3}, "evaluate": EVALUATE}, "needs a preset"),
        ({"train": {**TRAIN, "rate": 3}, "evaluate": EVALUATE}, "unknown rate"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_refused_before_anything_is(tmp_path: Path, values: dict[str, Any], words: str):
    with pytest.raises(LetgoError, match=r"grid\.json|table") as caught:
        spec_of(tmp_path, values)
    assert words in str(caught.value)


def test_a_worker_that_dies_loses_nothing_but_its_cell(tmp_path: Path):
    folder, cells = opened(tmp_path, MODEL)
    workers = Here(folder.path, Lost("it died"))
    sweep, said = swept(folder, cells, workers)
    assert (sweep.done, sweep.failed) == (2, {})
    assert workers.started == [["ddpm"], ["tweedie"], ["ddpm"]]
    assert any("it died; it is started again" in words for words in said)
    _, said = swept(folder, cells, workers := Here(folder.path))
    assert workers.started == []  # all are there
    folder.result(cells[1]).write_text("{")  # what is damaged is missing
    swept(folder, cells, workers)
    assert workers.started == [["tweedie"]]


def test_a_job_that_kills_its_workers_is_given_up_and_the_others_are_done(tmp_path: Path):
    folder, cells = opened(tmp_path, MODEL)
    workers = Here(folder.path, *[Lost("killed")] * LOSSES)
    swept(folder, cells[:1], workers)
    assert workers.started == [["ddpm"]] * LOSSES
    workers.fates, workers.started = [Lost("killed"), Lost("killed")], []
    sweep, _ = swept(folder, cells, workers)
    assert sorted(workers.started) == [["ddpm"], ["ddpm"], ["tweedie"], ["tweedie"]]  # each is lost once
    assert (sweep.done, sweep.failed) == (2, {})
    folder.result(cells[0]).unlink()
    workers.fates = [Lost("killed")] * LOSSES
    sweep, _ = swept(folder, cells, workers)
    assert (sweep.done, [*sweep.failed]) == (1, [cells[0].name])


def test_a_result_is_the_report_of_letgo_evaluate_and_parts_merge_to_the_whole(tmp_path: Path):
    values = {"model": "sudoku-mini", "rule": "tweedie", "count": 6, "steps": 5, "shard": ["0/2", "1/2"]}
    folder, cells = opened(tmp_path, {"evaluate": values})
    swept(folder, cells, Here(folder.path))
    parts = [Report.from_dict(folder.record(cell)) for cell in cells]
    whole = letgo.evaluate("sudoku-mini", rule="tweedie", count=6, steps=5, device="cpu")
    merged = Report.merge(parts)
    assert (merged.validity, merged.codeword_distance, merged.calls) == (
        whole.validity,
        whole.codeword_distance,
        whole.calls,
    )
    assert parts[0].command == "letgo evaluate sudoku-mini --rule tweedie --count 6 --steps 5 --shard 0/2"


@pytest.mark.parametrize(
    "damage",
    [
        lambda r: [r],
        lambda r: {**r, "validity": {"n": 4}},
        lambda r: {**r, "validity": 1},
        lambda r: {**r, "seconds": "1"},
    ],
)
def test_a_damaged_result_is_measured_anew(damage: Any, tmp_path: Path):
    folder, cells = opened(tmp_path, MODEL)
    path = folder.result(cells[0])
    swept(folder, cells, Here(folder.path))
    whole = json.loads(path.read_text())
    path.write_text(json.dumps(damage(whole)))
    workers = Here(folder.path)
    swept(folder, cells, workers)
    assert workers.started == [["ddpm"]]
    assert json.loads(path.read_text())["validity"] == whole["validity"]


def test_a_result_that_cannot_be_read_again_fails_instead_of_being_measured_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder, cells = opened(tmp_path, MODEL)
    monkeypatch.setattr("letgo.sweep.cells.MOST_REPORT", 100)
    sweep, _ = swept(folder, cells, Here(folder.path))
    assert sorted(sweep.failed) == sorted(cell.name for cell in cells)
    assert "more than 100 bytes" in sweep.failed[cells[0].name]


def test_a_worker_that_is_told_twice_to_end_leaves_without_a_word():
    script = (
        "import atexit, os, signal; from letgo.sweep.processes import leave; signal.signal(signal.SIGTERM, leave)\n"
        "atexit.register(os.kill, os.getpid(), signal.SIGTERM); os.kill(os.getpid(), signal.SIGTERM)"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stderr) == (128 + signal.SIGTERM, "")


def test_a_trained_cell_is_trained_once_and_measured_again_only_with_other_weights(tmp_path: Path):
    folder, cells = opened(tmp_path, {"train": TRAIN, "evaluate": EVALUATE})
    workers = Here(folder.path)
    swept(folder, cells, workers)
    assert workers.started == [["ddpm", "tweedie"]]  # one training, then both rules
    record = folder.record(cells[0])
    assert record is not None
    assert record["cell"] == {"train": TRAIN, "evaluate": {**EVALUATE, "rule": "ddpm"}}
    run = Path(folder.model(cells[0]))
    assert json.loads((run / "config.json").read_text())["steps"] == 3
    state = (run / "state.pt").stat().st_mtime_ns
    folder.result(cells[0]).unlink()
    swept(folder, cells, workers)
    assert workers.started[1:] == [["ddpm"]]
    assert (run / "state.pt").stat().st_mtime_ns == state
    letgo.train(
        letgo.runs.Run.load(run).config, run, steps=12, validate=2, device="cpu"
    )  # the average moves every ten steps
    assert all(folder.record(cell) is None for cell in cells)  # they are of weights that are gone


def test_what_another_process_is_at_work_on_is_left_to_it(tmp_path: Path):
    folder, cells = opened(tmp_path, MODEL)
    script = (
        "import sys, pathlib; from letgo.sweep.cells import Folder\n"
        f"with Folder(pathlib.Path({str(folder.path)!r})).claim({cells[0].name!r}) as ours:\n"
        "    print(ours, flush=True); sys.stdin.readline()\n"
    )
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "True\n"
        assert str(other.pid) in str(folder.holder(cells[0].name))
        job = folder.jobs(cells)[0]
        assert work(job, str(folder.path), "cpu", 1) == Outcome()  # neither done nor failed
        assert not folder.result(cells[0]).exists()
        other.send_signal(signal.SIGKILL)
    assert folder.holder(cells[0].name) is None  # a claim ends with its process
    sweep, _ = swept(folder, cells, Here(folder.path, Outcome()))  # the first answer comes from before
    assert sweep.done == 2


def test_a_folder_that_a_node_does_not_see_is_said(tmp_path: Path):
    cells = spec_of(tmp_path, MODEL).cells
    failed = work(Job((cells[0],)), str(tmp_path / "nowhere"), "cpu", 1).failed
    assert "must lie on a disk that all nodes share" in failed[cells[0].name]


def test_an_error_of_one_cell_stops_no_other(tmp_path: Path):
    folder, cells = opened(tmp_path, MODEL)
    bad = replace(cells[0], evaluate={**cells[0].evaluate, "regime": "nonsense"})
    sweep, said = swept(folder, [bad, cells[1]], Here(folder.path))
    assert (sweep.done, [*sweep.failed]) == (1, [bad.name])
    assert any("nonsense" in words for words in said)


def children(pid: int) -> list[int]:
    """Processes whose parent this is, where the system tells."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                stat = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(stat[1]) == pid and b"spawn_main" in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
    return found


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc to find the worker")
def test_processes_are_really_killed_and_interrupted_and_nothing_is_done_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    train = {**TRAIN, "steps": 1_000_000}
    written(tmp_path, {"train": train, "evaluate": {**EVALUATE, "rule": "ddpm"}})
    command = [sys.executable, "-m", "letgo", "sweep", "grid.json", "--processes", "1", "--device", "cpu"]
    run = next(iter(spec_of(tmp_path, {"train": train, "evaluate": {**EVALUATE, "rule": "ddpm"}}).cells)).run
    model = tmp_path / "grid" / "runs" / str(run) / "model.safetensors"
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as sweep:
        first = until(lambda: model.exists() and children(sweep.pid))[0]
        os.kill(first, signal.SIGKILL)
        second = until(lambda: [pid for pid in children(sweep.pid) if pid != first])[0]
        until(lambda: f"process {second}" in str(Folder(tmp_path / "grid").holder(str(run))))
        sweep.send_signal(signal.SIGINT)
        said = str(sweep.communicate()[1])
    assert sweep.returncode == 130
    assert "1 cells, 0 there, 1 missing" in said
    assert "died (SIGKILL); it is started again" in said
    assert "stopping: 0 of 1 cells are done; the same command goes on" in said
    assert not Path(f"/proc/{second}").exists()
    assert letgo.runs.Run.load(model.parent).step < 1_000_000  # what it learned was saved
    written(tmp_path, MODEL)
    words = ["sweep", str(tmp_path / "grid.json"), "--processes", "1", "--device", "cpu"]
    assert main(words) == 0
    assert main([*words, "--json"]) == 0
    out = capsys.readouterr()
    assert "2 cells, 0 there, 2 missing" in out.err
    assert "2 cells, 2 there, 0 missing" in out.err
    assert [record["rule"] for record in json.loads(out.out[out.out.index("[\n") :])] == ["ddpm", "tweedie"]
    assert main([*words, "--dry-run"]) == 0
    assert capsys.readouterr().out.count("there") == 2


def until(what: Any, seconds: float = 120) -> Any:
    """What becomes true, sooner or later; a minute is a failure, not a measurement."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := what():
            return found
        time.sleep(0.05)
    raise AssertionError("it never came")
