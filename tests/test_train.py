"""Training on tiny 4x4 boards: schedules, the average, and a run that can be stopped and resumed at any moment."""

from __future__ import annotations

import doctest
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn
from torch.testing import assert_close

import letgo
from letgo.cli import main
from letgo.codecs import OneHot
from letgo.config import Config
from letgo.errors import LetgoError
from letgo.objectives import Batch
from letgo.paths import CosinePath
from letgo.presets import PRESETS
from letgo.rng import data_rng
from letgo.runs import Run, load_model, load_state, load_weights, locked, read_json, read_log, save_weights, write_json
from letgo.tasks import Problem, get
from letgo.training.data import TrainingData, fingerprint, random_clues
from letgo.training.loop import Options, interruptible, train_runs
from letgo.training.train import training_instances
from letgo.training.trainer import EMA_EVERY, Recipe, Trainer

CPU = torch.device("cpu")
SOURCE = Path(__file__).parents[1] / "src"
SMALL = {"width": 16, "depth": 1, "heads": 2, "hidden": 32, "dropout": 0.1}
MINI = replace(PRESETS["sudoku-mini"], network_options=SMALL, batch=8, boards=64, steps=20, warmup=5)
GRAPHS = replace(
    PRESETS["connectivity"],
    task_options={"size": 5},
    network_options={"width": 4, "time_features": 8},
    batch=6,
    boards=32,
    steps=20,
    warmup=5,
)
WHOLE_RUN = {"config.json", "model.safetensors", "state.pt", "metrics.jsonl"}
WORDS = ["train", "sudoku-mini", "--batch", "2", "--boards", "20", "--device", "cpu"]


def instances(config: Config) -> Problem:
    return config.build_task().generate(config.boards, data_rng(config.seed, "train"), "train")


def test_adam_has_its_authors_betas() -> None:
    """Kingma and Ba (2015): after gradients 1 and 3 the means are (1 - b1)(b1 1 + 3) and (1 - b2)(b2 1 + 9)."""
    trainer = Trainer.of(MINI, TrainingData.of(instances(MINI), MINI.masks, CPU))
    trainer.rate.fill_(0.1)
    before = trainer.flat.detach().clone()
    for gradient in (1.0, 3.0):
        trainer.flat.grad = torch.full_like(trainer.flat, gradient)
        trainer.optimizer.step()
    first, second = 0.1 * (0.9 + 3) / (1 - 0.9**2), 0.001 * (0.999 + 9) / (1 - 0.999**2)
    moved = 0.1 * (1 + first / math.sqrt(second))  # the first step is the rate itself
    assert_close(before - trainer.flat.detach(), torch.full_like(before, moved), rtol=1e-4, atol=1e-5)


def trainer(config: Config = MINI, *seeds: int) -> Trainer:
    """For one seed, or for several with instances of their own."""
    sets = [instances(replace(config, seed=seed)) for seed in seeds or (config.seed,)]
    return Trainer.of(config, TrainingData.of(sets, config.masks, CPU), seeds=seeds)


def go_together(config: Config, folders: dict[int, Path], **options: Any) -> list[Run]:
    sets = [instances(replace(config, seed=seed)) for seed in folders]
    return train_runs(config, lambda: sets, folders, CPU, Options(**options))


def go(config: Config, out: Path, **options: Any) -> Run:
    return go_together(config, {config.seed: out}, **options)[0]


def seeds_in(out: Path, *seeds: int) -> dict[int, Path]:
    return {seed: out / f"s{seed}" for seed in seeds}


def lines(out: Path) -> list[dict[str, float]]:
    """metrics.jsonl without what a clock decides."""
    entries = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in entry.items() if k != "steps_per_second"} for entry in entries]


def contents(out: Path) -> dict[str, bytes]:
    return {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file()}


def names(out: Path) -> set[str]:
    return {path.name for path in out.iterdir()}


def assert_same_tree(one: Any, other: Any) -> None:
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_same_tree(one[key], other[key])
    elif isinstance(one, Tensor):
        assert torch.equal(one, other)
    else:
        assert one == other


def assert_same_run(one: Path, other: Path) -> None:
    """Bit for bit, but for the seconds that went by."""
    states = [{k: v for k, v in load_state(out / "state.pt").items() if k != "seconds"} for out in (one, other)]
    assert_same_tree(*states)
    assert (one / "model.safetensors").read_bytes() == (other / "model.safetensors").read_bytes()
    assert lines(one) == lines(other)


@pytest.fixture
def after(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, Callable[[Trainer], object]], None]:
    """Do something to the trainer right after a given step."""

    def install(at: int, do: Callable[[Trainer], object]) -> None:
        original = Trainer.step

        def step(self: Trainer) -> None:
            original(self)
            if self.steps_done == at:
                do(self)

        monkeypatch.setattr(Trainer, "step", step)

    return install


@pytest.fixture
def averaged_always(monkeypatch: pytest.MonkeyPatch) -> None:
    """The average is updated at every step, so that it differs from the weights this early."""
    monkeypatch.setattr("letgo.training.trainer.EMA_EVERY", 1)


@pytest.mark.slow
@pytest.mark.usefixtures("averaged_always")
@pytest.mark.parametrize("seeds", [(0,), (0, 1)], ids=["alone", "stacked"])
@pytest.mark.parametrize(
    "config",
    [
        MINI,
        replace(MINI, objective="simple", ema=0.5),
        replace(MINI, optimizer="muon"),
        replace(GRAPHS, objective="rollouts", objective_options={"steps": 6}),  # its pool has contexts, too
    ],
    ids=["sc", "simple", "muon", "nlm, rollouts"],
)
def test_twenty_steps_equal_ten_a_stop_and_ten_more_bit_for_bit(
    config: Config, seeds: tuple[int, ...], tmp_path: Path, after: Callable[..., None]
) -> None:
    whole, parts = seeds_in(tmp_path / "whole", *seeds), seeds_in(tmp_path / "parts", *seeds)
    assert {(run.step, run.stopped_by) for run in go_together(config, whole, log_every=4)} == {(20, "done")}
    after(10, lambda _: signal.raise_signal(signal.SIGINT))
    first = go_together(config, parts, log_every=4)  # 10 lies between two lines of the log
    assert {(run.step, run.stopped_by, run.signal) for run in first} == {(10, "signal", signal.SIGINT)}
    torch.randn(7)  # what else the process draws must not matter
    second = go_together(config, parts, log_every=4)
    assert {(run.step, run.stopped_by) for run in second} == {(20, "done")}
    for seed in seeds:
        assert_same_run(whole[seed], parts[seed])
        assert [entry["step"] for entry in lines(parts[seed])] == [4, 8, 12, 16, 20]
        state = load_state(whole[seed] / "state.pt")
        assert any(not torch.equal(state["raw"][name], state["ema"][name]) for name in state["raw"])
        assert state["seconds"] > 0
        assert names(whole[seed]) == WHOLE_RUN
        assert read_json(whole[seed] / "config.json")["seed"] == seed
    assert len({json.dumps(lines(out)) for out in whole.values()}) == len(seeds)


def test_a_run_begun_before_a_field_was_known_goes_on(tmp_path: Path, after: Callable[..., None]) -> None:
    """Also one that took no step yet."""
    go(MINI, tmp_path / "whole")
    for at in (0, 10):
        out = tmp_path / str(at)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Trainer, "step", Trainer.step)
            after(at, lambda _: signal.raise_signal(signal.SIGINT))
            go(MINI, out, max_seconds=None if at else 0.0)
        state = load_state(out / "state.pt")
        for name in ("codec_options", "path_options", "objective_options"):
            del state["config"][name]
        torch.save(state, out / "state.pt")
        write_json(out / "config.json", state["config"])
        load_model(str(out))
        go(MINI, out)
        assert_same_run(out, tmp_path / "whole")


@pytest.mark.parametrize("fault", ["shape", "missing", "unknown", "none"])
def test_a_pool_of_other_rollouts_is_refused_and_one_without_begins_anew(fault: str) -> None:
    config = replace(MINI, objective="rollouts")
    first, second = trainer(config), trainer(config)
    first.step()
    state = first.state()
    pool = state["objective"]
    pool |= {"shape": {"x": pool["x"][1:]}, "unknown": {"z": pool["x"]}}.get(fault, {})
    pool.pop("given" if fault == "missing" else "", None)
    if fault == "none":
        del state["objective"]  # as an earlier version saved it
        second.restore(state)
        second.step()
    else:
        with pytest.raises(LetgoError, match="pool of rollouts belongs to other boards"):
            second.restore(state)


def test_seeds_draw_other_numbers_from_the_same_weights_and_instances() -> None:
    """The low 32 bits are all that torch's generator on the CPU takes of its seed."""
    data, losses = TrainingData.of(instances(MINI), MINI.masks, CPU), set()
    start = trainer(MINI).weights("raw")
    for seed in (0, 1, 2, 2**32 - 1):
        run = Trainer.of(MINI, data, seeds=[seed])
        for _ in range(2):  # nor may two steps of a run be alike
            run.set_weights("raw", start, "the start")
            run.step()
            losses.add(run.mean_losses()[0]["loss"])
    assert len(losses) == 8


def test_a_longer_run_may_go_on_from_a_shorter_one_and_a_shorter_may_not(tmp_path: Path) -> None:
    go(MINI, tmp_path)
    assert go(replace(MINI, steps=25, decay=0.5), tmp_path).step == 25
    with pytest.raises(LetgoError, match="is at step 25 already, past --steps 20"):
        go(MINI, tmp_path)


def test_a_finished_run_keeps_the_weights_that_were_chosen_since(tmp_path: Path) -> None:
    go(MINI, tmp_path).export(20, "raw", {"scores": {}})
    save_weights(tmp_path / "model.safetensors", {"another": torch.ones(3)})
    before = contents(tmp_path)
    assert not go(MINI, tmp_path).trained
    assert contents(tmp_path) == before


def test_a_new_run_leaves_weights_alone_that_it_did_not_write(tmp_path: Path) -> None:
    save_weights(tmp_path / "checkpoints" / "7.safetensors", {"another": torch.ones(3)})
    go(MINI, tmp_path, keep=(10,))
    assert names(tmp_path) == WHOLE_RUN | {"checkpoints"}
    assert names(tmp_path / "checkpoints") == {"7.safetensors", "10.safetensors"}


@pytest.mark.usefixtures("averaged_always")
@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
@pytest.mark.parametrize("fault", [None, "{"])
@pytest.mark.parametrize("chosen", [None, (10, "raw")])
def test_what_is_lost_or_damaged_comes_back_as_it_was_chosen(
    name: str, fault: str | None, chosen: tuple[int, str] | None, tmp_path: Path
) -> None:
    run = go(MINI, tmp_path, keep=(10, 20))
    if chosen is not None:
        run.export(*chosen, {"checkpoint": {}})
    write_json(tmp_path / "tune-em.json", {})
    before = contents(tmp_path)
    (tmp_path / name).unlink() if fault is None else (tmp_path / name).write_text(fault)
    assert not go(MINI, tmp_path).trained
    assert contents(tmp_path) == before


@pytest.mark.parametrize("fault", [None, "{"])
def test_where_the_chosen_weights_are_gone_too_what_was_found_for_them_goes(fault: str | None, tmp_path: Path) -> None:
    before = contents(go(MINI, tmp_path, keep=(10,)).folder)
    kept = tmp_path / "checkpoints" / "10.safetensors"
    Run.load(tmp_path).export(10, "raw", {"checkpoint": {}})
    write_json(tmp_path / "tune-em.json", {})
    for path in (tmp_path / "model.safetensors", kept):
        path.unlink() if fault is None else path.write_text(fault)
    assert not go(MINI, tmp_path).trained
    kept.unlink(missing_ok=True)
    assert contents(tmp_path) == {name: data for name, data in before.items() if "checkpoints" not in name}


def test_a_baseline_begun_with_a_weight_that_it_does_not_have_goes_on(tmp_path: Path) -> None:
    simple = replace(MINI, objective="simple")
    go(replace(simple, simple_weight=0.5, steps=3), tmp_path)
    assert go(simple, tmp_path).step == MINI.steps


def test_a_run_that_never_took_a_step_may_begin_anew(tmp_path: Path, after: Callable[..., None]) -> None:
    def fail(trainer: Trainer) -> None:
        if trainer.recipe.batch == 6:
            raise MemoryError

    after(3, fail)
    with pytest.raises(MemoryError):
        go(replace(MINI, batch=6), tmp_path, keep=(2,))
    assert go(MINI, tmp_path).step == MINI.steps
    assert not (tmp_path / "checkpoints" / "2.safetensors").exists()
    assert read_json(tmp_path / "config.json")["batch"] == MINI.batch


@pytest.mark.usefixtures("averaged_always")
@pytest.mark.parametrize("stop", ["time", "memory"])
def test_going_on_without_a_step_changes_nothing(stop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Trainer) -> None:
        raise MemoryError

    config = replace(MINI, decay=0.0)
    go(config, tmp_path, keep=(10,), log_every=5).export(10, "raw", {"checkpoint": {}})
    write_json(tmp_path / "tune-em.json", {})
    before, longer = contents(tmp_path), replace(config, steps=25)
    if stop == "time":
        run = go(longer, tmp_path, max_seconds=0.0)
        assert (run.step, run.stopped_by, run.trained) == (20, "time", False)
    else:
        with monkeypatch.context() as patch:
            patch.setattr(Trainer, "step", fail)
            with pytest.raises(MemoryError):
                go(longer, tmp_path)
    assert contents(tmp_path) == before
    go(longer, tmp_path, log_every=5)
    go(longer, tmp_path / "whole", log_every=5)
    assert_same_run(tmp_path, tmp_path / "whole")
    assert names(tmp_path) == WHOLE_RUN | {"checkpoints", "whole"}  # what was found for the weights before is gone
    assert read_json(tmp_path / "config.json")["weights"] == "ema"


@pytest.mark.slow
def test_the_command_line_validates_only_weights_that_are_new(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a run that takes no step nor a seed that was finished before the others."""
    monkeypatch.setattr("letgo.training.train.uses_fused_blocks", lambda *_: True)
    words = [*WORDS, "--out", str(tmp_path), "--validate", "4", "--steps", "3", "--keep", "2"]
    assert main([*words, "--seeds", "0,1"]) == 0
    Run.load(tmp_path / "s0").export(2, "raw", {"checkpoint": {}})
    write_json(tmp_path / "s0" / "tune-em.json", {})
    before = contents(tmp_path / "s0")
    capsys.readouterr()
    assert main([*words, "--seeds", "0,1", "--steps", "5", "--max-seconds", "0"]) == 0
    assert "validation" not in capsys.readouterr().err
    assert main([*words, "--seeds", "0,1,2"]) == 0
    said = capsys.readouterr().err
    assert "seed 2, validation" in said
    assert "seed 0" not in said
    assert contents(tmp_path / "s0") == before


def test_a_finished_run_refuses_data_that_it_was_not_trained_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As an unfinished one does: the model that is there is not one of that data."""
    for seed in ("0", "1"):
        path = str(tmp_path / f"{seed}.npz")
        assert main(["data", "make", "sudoku", "--size", "4", "--count", "20", "--seed", seed, "--out", path]) == 0
    words = [*WORDS, "--out", str(tmp_path / "run"), "--steps", "2", "--validate", "0", "--data"]
    assert main([*words, str(tmp_path / "0.npz")]) == 0
    before = contents(tmp_path / "run")
    assert main([*words, str(tmp_path / "0.npz")]) == 0
    capsys.readouterr()
    assert main([*words, str(tmp_path / "2.npz")]) == 2
    assert capsys.readouterr().err == f"letgo: {tmp_path / '2.npz'}: no such file; check the path\n"
    assert main([*words, str(tmp_path / "1.npz")]) == 2
    assert "was trained on other instances than these; repeat the --data" in capsys.readouterr().err
    assert main(words[:-1]) == 0  # nothing is asked of the data where none is named
    assert contents(tmp_path / "run") == before
    assert main([*words, str(tmp_path / "1.npz"), "--steps", "3"]) == 2
    assert "was trained on other instances than these; repeat the --data" in capsys.readouterr().err


def test_handlers_of_signals_are_put_back_and_a_second_signal_does_not_wait_for_the_step() -> None:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    with interruptible() as caught:
        signal.raise_signal(signal.SIGHUP)
        assert caught == [signal.SIGHUP]
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert [signal.getsignal(number) for number in numbers] == before
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as `nohup` starts a command
    try:
        with interruptible() as caught:
            signal.raise_signal(signal.SIGHUP)
        assert caught == []
    finally:
        signal.signal(signal.SIGHUP, before[2])


@pytest.mark.parametrize("steps", [20, 24])
def test_what_a_killed_process_left_is_cleared_away(steps: int, tmp_path: Path) -> None:
    """Half-written files; where a run goes on, log lines ahead of its state and half a line as well."""
    go(MINI, tmp_path, log_every=4, keep=(10,))
    for name in (".state.pt.123.part", "checkpoints/.10.safetensors.123.part"):
        (tmp_path / name).write_bytes(b"half")
    if steps > 20:
        with (tmp_path / "metrics.jsonl").open("a") as log:
            log.write('{"step": 24, "loss": 9}\n{"step": 28, "lo')
    assert go(replace(MINI, steps=steps), tmp_path, log_every=4).trained == (steps > 20)
    assert not [*tmp_path.rglob(".*.part")]
    assert [entry["step"] for entry in lines(tmp_path)] == [*range(4, steps + 1, 4)]
    assert all(entry["loss"] < 9 for entry in lines(tmp_path))


NO_LINES = [
    b"\xff\xfe",
    b"[" * 100_000,
    b'{"step": 1%s}' % b"0" * 5000,
    b'{"step": 1%s}' % (b"0" * 400),
    b'{"step": ""}',
]


@pytest.mark.parametrize("line", NO_LINES)
def test_what_is_no_line_of_the_log_goes(line: bytes, tmp_path: Path) -> None:
    log = tmp_path / "metrics.jsonl"
    log.write_bytes(b'{"step": 4, "loss": 0.5}\n' + line + b"\n")
    assert read_log(tmp_path) == [{"step": 4, "loss": 0.5}]
    Run(tmp_path, MINI, {"step": 9}).tidy(None)
    assert log.read_bytes() == b'{"step": 4, "loss": 0.5}\n'


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "state.pt", "metrics.jsonl", "validation.json"])
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/full")])
def test_a_run_of_pipes_devices_and_folders_is_refused_at_once(
    name: str, make: Callable[[Path], None], tmp_path: Path
) -> None:
    make(tmp_path / name)
    with pytest.raises(LetgoError, match=f"{name}: (not a regular file|this is a directory)"):
        go(MINI, tmp_path)


def test_a_time_limit_stops_and_saves_and_the_schedule_does_not_notice(tmp_path: Path) -> None:
    run = go(MINI, tmp_path, max_seconds=0.0)
    assert (run.step, run.stopped_by) == (0, "time")
    assert read_json(tmp_path / "config.json")["steps"] == 20
    load_model(str(tmp_path))
    again = go(MINI, tmp_path, max_seconds=600.0)
    assert again.stopped_by == "done"
    assert again.seconds > run.seconds
    go(MINI, tmp_path / "whole")
    assert_same_run(tmp_path, tmp_path / "whole")


# One process forks children that train in one folder, saving after every step, and kills each at a random moment. What
# they left must load, and the run that goes on from there must end with the very bits of one that was never killed.
KILLED = """
import json, os, random, signal, sys, time
from pathlib import Path
import torch
from letgo.config import Config
from letgo.rng import data_rng
from letgo.runs import load_model, load_state, load_weights
from letgo.training import loop

config, out = Config.from_dict(json.loads(sys.argv[1])), Path(sys.argv[2])
problem = config.build_task().generate(config.boards, data_rng(config.seed, "train"), "train")
loop.SAVE_SECONDS = -1
warm = torch.zeros(1, requires_grad=True)  # torch imports much at its first optimiser; not backward: it forbids forks
warm.grad = torch.zeros(1)
torch.optim.Adam([warm]).step()

def work(folder):
    options = loop.Options(keep=range(1, 1000, 7), log_every=1, max_seconds=None)
    return loop.train_runs(config, lambda: problem, {config.seed: folder}, torch.device("cpu"), options)[0]

def forked(do):
    child = os.fork()
    if child == 0:
        code = 1
        try:
            do()
            code = 0
        finally:
            os._exit(code)
    return child

def written():
    return (out / "state.pt").stat().st_mtime_ns if (out / "state.pt").exists() else 0

moments, steps, loaded = random.Random(0), [], 0
for attempt in range(10):  # half of them as soon as they begin, half once they have saved
    seen = {written()}
    child = forked(lambda: work(out))
    while attempt % 2 == 0 and len(seen) < 4:  # three saves: two steps at least, however slow the machine
        seen.add(written())
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            break  # it has finished
        time.sleep(0.001)
    time.sleep(moments.uniform(0.0, 0.15))
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if (out / "state.pt").exists():
        steps.append(load_state(out / "state.pt")["step"])
    if (out / "model.safetensors").exists():
        load_model(str(out))
        loaded += 1
    for file in out.glob("checkpoints/*.safetensors"):
        assert load_weights(file, "ema.") and load_weights(file, "raw.")
    if not os.WIFSIGNALED(status):
        break
work(out)
print(json.dumps({"steps": steps, "loaded": loaded}))
"""


def python(code: str, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, "-c", code, *words], env=env, capture_output=True, text=True, timeout=600)


@pytest.mark.journey
def test_a_process_killed_at_any_moment_leaves_a_run_that_loads_and_resumes(tmp_path: Path) -> None:
    config = replace(MINI, steps=80, batch=2)
    done = python(KILLED, json.dumps(config.as_dict()), str(tmp_path / "killed"))
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["loaded"] > 0
    assert seen["steps"] == sorted(seen["steps"])
    assert any(0 < step < 80 for step in seen["steps"]), seen  # it was killed on its way, not only at the ends
    go(config, tmp_path / "whole", log_every=1)
    assert_same_run(tmp_path / "killed", tmp_path / "whole")
    assert not [*(tmp_path / "killed").rglob(".*.part")]


@pytest.mark.journey
def test_a_kill_or_a_full_disk_at_any_file_operation_loses_nothing(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
    words = [sys.executable, str(Path(__file__).with_name("crash.py")), str(tmp_path), "3"]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    lost, places = re.findall(r"\d+", done.stdout)
    assert int(lost) == 0
    assert int(places) > 100


@pytest.fixture
def training_process(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """`letgo train` in tmp_path/run, which has taken steps and would take a million."""
    words = [*WORDS, "--out", str(tmp_path / "run"), "--steps", "1000000", "--log-every", "1", "--validate", "0"]
    env = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([sys.executable, "-m", "letgo", *words], env=env, stderr=subprocess.PIPE, text=True)
    log, deadline = tmp_path / "run" / "metrics.jsonl", time.monotonic() + 120
    while not (log.exists() and log.stat().st_size) and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.02)
    yield process
    process.kill()
    process.communicate()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_save_and_say_how_to_go_on(
    number: signal.Signals, tmp_path: Path, training_process: subprocess.Popen[str]
) -> None:
    training_process.send_signal(number)
    _, stderr = training_process.communicate(timeout=60)
    assert training_process.returncode == 128 + number
    assert f"To go on: letgo {' '.join(WORDS)} --out {tmp_path / 'run'}" in stderr.splitlines()[-1]
    state = load_state(tmp_path / "run" / "state.pt")
    assert state["step"] > 0
    assert f"stopped at step {state['step']:,} of 1,000,000" in stderr


def test_a_second_process_is_refused_until_the_first_is_gone_however_it_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], training_process: subprocess.Popen[str]
) -> None:
    pytest.importorskip("fcntl")
    words = [*WORDS, "--out", str(tmp_path / "run"), "--steps", "1000000", "--validate", "0"]
    (tmp_path / "run" / ".state.pt.1.part").write_bytes(b"being written")
    assert main([*words, "--max-seconds", "5"]) == 2
    assert capsys.readouterr().err == (
        f"letgo: another process is training or tuning in {tmp_path / 'run'}; "
        "wait until it ends, or choose another --out\n"
    )
    assert (tmp_path / "run" / ".state.pt.1.part").exists()
    training_process.kill()
    training_process.wait()
    assert main([*words, "--max-seconds", "0"]) == 0
    assert names(tmp_path / "run") >= {"config.json", "model.safetensors", "state.pt"}
    assert not [*(tmp_path / "run").glob(".*")]


def test_stacked_runs_are_refused_where_one_of_them_is_in_use(tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    both = seeds_in(tmp_path, 0, 1)
    with locked(both[1]), pytest.raises(LetgoError, match=r"is training or tuning in .*s1; wait until it ends"):
        go_together(MINI, both)
    assert not [*tmp_path.iterdir()]
    with locked(tmp_path / "s2"):
        go_together(MINI, both)
    assert names(tmp_path) == {"s0", "s1"}
    (tmp_path / "s3").symlink_to(tmp_path / "s0")  # nor do two seeds share a folder
    with pytest.raises(LetgoError, match="another process is training or tuning in"):
        go_together(MINI, seeds_in(tmp_path, 0, 3))


def test_instances_that_cannot_be_had_leave_no_folder(tmp_path: Path) -> None:
    assert main(["train", "sudoku-extreme", "--out", str(tmp_path / "run")]) == 2
    assert not [*tmp_path.iterdir()]


FULL_DISK = """
import json, resource, sys
from letgo.cli import main
limit = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("room", [100, 20_000])
def test_a_full_disk_loses_nothing_already_saved(room: int, tmp_path: Path) -> None:
    """A limit on the size of any file written: the small one stops config.json, the large one state.pt."""
    words = [*WORDS, "--out", str(tmp_path), "--validate", "0"]
    assert main([*words, "--steps", "3", "--quiet"]) == 0
    before = contents(tmp_path)
    assert len(before["state.pt"]) > 20_000
    done = python(FULL_DISK, str(room), *words, "--steps", "6")
    assert done.returncode == 2, done.stderr
    assert "File too large" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    after = contents(tmp_path)
    assert after.keys() == before.keys()
    for name in ("state.pt", "model.safetensors"):
        assert after[name] == before[name]
    assert main([*words, "--steps", "6", "--quiet"]) == 0
    assert load_state(tmp_path / "state.pt")["step"] == 6


def test_a_foreign_configuration_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    for text in ('{"my": "config"}', "[1]", "no json"):
        path.write_text(text)
        with pytest.raises(LetgoError, match=r"config\.json is no configuration of letgo; choose another --out"):
            go(MINI, tmp_path)
        assert contents(tmp_path) == {"config.json": text.encode()}
    path.write_text(json.dumps(MINI.as_dict()))  # of a run that was killed before its first step was saved
    assert go(MINI, tmp_path).step == MINI.steps


def test_a_disk_that_fills_up_while_training_ends_it_with_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full")
    go(replace(MINI, steps=5), tmp_path)
    (tmp_path / "metrics.jsonl").unlink()
    (tmp_path / "metrics.jsonl").symlink_to("/dev/full")
    monkeypatch.setattr(Run, "tidy", lambda *_: None)
    monkeypatch.setattr("letgo.runs.run.regular_file", lambda path: None)  # which refuses a device in the file's place
    with pytest.raises(LetgoError, match="No space left on device; what was saved before is intact"):
        go(MINI, tmp_path, log_every=5)
    assert load_state(tmp_path / "state.pt")["step"] == 5


def test_a_loss_that_explodes_is_reported_and_never_saved(tmp_path: Path) -> None:
    with pytest.raises(LetgoError, match=r"no longer finite at step 5.*lower --learning-rate"):
        go(replace(MINI, learning_rate=1e30, warmup=0), tmp_path, log_every=5)
    state = load_state(tmp_path / "state.pt")
    assert all(bool(value.isfinite().all()) for kind in ("raw", "ema") for value in state[kind].values())


@pytest.mark.parametrize("seeds", [(7,), (0, 7)])
def test_weights_that_explode_between_two_log_lines_are_not_saved_either(
    seeds: tuple[int, ...], tmp_path: Path, after: Callable[..., None]
) -> None:
    after(20, lambda trainer: trainer.flat.data[-1, 7:9].fill_(math.nan))
    with pytest.raises(LetgoError, match=r"no longer finite at step 20; .*s7 keeps what was saved before"):
        go_together(replace(MINI, seed=7), seeds_in(tmp_path, *seeds))
    assert {load_state(tmp_path / f"s{seed}" / "state.pt")["step"] for seed in seeds} == {0}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch": 9}, "batch=8, not 9"),
        ({"seed": 3}, "seed=0, not 3"),
        ({"optimizer": "muon"}, "optimizer='adam', not 'muon'"),
        ({"objective": "simple"}, "objective='self-correction', not 'simple'"),
        ({"objective_options": {"rollouts": 2}}, "objective_options={}, not {'rollouts': 2}"),
        ({"network_options": {**SMALL, "width": 32}}, "network_options="),
    ],
)
def test_a_configuration_that_disagrees_is_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    go(replace(MINI, steps=2), tmp_path)
    before = contents(tmp_path)
    with pytest.raises(LetgoError, match="was started with") as error:
        go(replace(MINI, **changes), tmp_path)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("fault", ["other shape", "broadcasts", "missing", "extra", "no state"])
def test_a_state_of_another_network_is_refused(fault: str, tmp_path: Path) -> None:
    go(replace(MINI, steps=2), tmp_path)
    state = load_state(tmp_path / "state.pt")
    if fault == "other shape":
        state["raw"]["embed.weight"] = torch.zeros(7, 4)
    elif fault == "broadcasts":
        state["ema"]["embed.weight"] = torch.zeros(1, 4)
    elif fault == "missing":
        del state["raw"]["embed.weight"]
    else:
        state["raw"]["another.weight"] = torch.zeros(1)
    torch.save(state, tmp_path / "state.pt")
    if fault == "no state":
        (tmp_path / "state.pt").unlink()
    with pytest.raises(LetgoError, match=r"belongs to another network|holds a run without its state\.pt"):
        go(MINI, tmp_path)


def test_logged_losses_are_the_means_of_their_steps_and_reported_with_the_speed(tmp_path: Path) -> None:
    seen: list[tuple[int, int, float, dict[str, float]]] = []
    one, many = tmp_path / "one", tmp_path / "many"
    go(MINI, one, log_every=1)
    go(MINI, many, log_every=8, progress=lambda *report: seen.append(report))
    losses = [entry["loss"] for entry in lines(one)]
    expected = [np.mean(losses[:8]), np.mean(losses[8:16]), np.mean(losses[16:])]
    assert [entry["loss"] for entry in lines(many)] == pytest.approx(expected, rel=1e-5)
    assert [(step, total) for step, total, _, _ in seen] == [(8, 20), (16, 20), (20, 20)]
    assert all(speed > 0 and set(losses) == {"loss", "recovery", "simple"} for _, _, speed, losses in seen)


@pytest.mark.fast
def test_the_learning_rate_warms_up_stays_and_falls_to_nothing() -> None:
    recipe = Recipe(steps=1000, warmup=100, learning_rate=0.5, decay=0.2)
    for step, expected in [(0, 0.005), (49, 0.25), (99, 0.5), (100, 0.5), (800, 0.5), (900, 0.25), (999, 0.0025)]:
        assert recipe.rate(step) == pytest.approx(expected)
    assert replace(recipe, decay=0.0).rate(999) == 0.5
    assert replace(recipe, warmup=0).rate(0) == 0.5


def test_the_optimizer_follows_the_schedule_after_a_restore_too() -> None:
    one, other, rates = *(trainer(replace(MINI, steps=8, warmup=4, decay=0.5)) for _ in range(2)), []
    for run in (one, other):
        if run is other:
            other.restore(one.state())
        for _ in range(4):
            run.step()
            rates.append(float(run.optimizer.param_groups[0]["lr"]))
    assert rates == pytest.approx([one.recipe.rate(step) for step in range(8)])


def test_the_average_remembers_at_most_a_tenth_of_the_steps() -> None:
    recipe = Recipe(ema=0.9999)
    for step in (100, 1000, 12_340, 100_000, 1_000_000):
        horizon = EMA_EVERY / recipe.ema_weight(step)
        assert horizon == pytest.approx(min(step / 10, 10_000))
    assert recipe.ema_weight(10) == 1.0  # no memory at all before a tenth of the steps is one update
    assert replace(recipe, ema=0.0).ema_weight(1_000_000) == 1.0


def test_the_average_is_what_its_weights_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("letgo.training.trainer.EMA_EVERY", 5)
    run = trainer(replace(MINI, steps=200))
    average = run.flat.detach().clone()
    for step in range(1, 121):
        run.step()
        if step % 5 == 0:
            weight = min(1.0, 5 / (step / 10))
            average = average + weight * (run.flat.detach() - average)
    assert_close(run.ema, average)
    assert not torch.equal(run.ema, run.flat)


@pytest.mark.usefixtures("averaged_always")
def test_kept_steps_hold_raw_and_averaged_weights_in_half_precision_and_the_model_the_average(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    go(MINI, tmp_path, keep=(15, 20))
    kept = load_file(tmp_path / "checkpoints" / "20.safetensors")
    state = load_state(tmp_path / "state.pt")
    assert_same_tree(load_weights(tmp_path / "model.safetensors"), state["ema"])
    assert set(kept) == {f"{kind}.{name}" for kind in ("raw", "ema") for name in state["raw"]}
    assert {tensor.dtype for tensor in kept.values()} == {torch.float16}
    for kind in ("raw", "ema"):
        for name, value in state[kind].items():
            assert torch.equal(kept[f"{kind}.{name}"], value.half())
    _, network, folder = load_model(f"{tmp_path}@20")
    assert folder == tmp_path
    for name, value in network.named_parameters():
        assert torch.equal(value.detach(), state["ema"][name].half().float())
    earlier = load_model(f"{tmp_path}@15")[1]
    assert not torch.equal(earlier.get_parameter("head.weight"), network.get_parameter("head.weight"))
    with pytest.raises(LetgoError, match="keeps no step 17; it has 15, 20"):
        load_model(f"{tmp_path}@17")


@pytest.mark.usefixtures("averaged_always")
@pytest.mark.parametrize(("ema", "raw", "chosen"), [(1.0, 0.0, "ema"), (0.5, 0.52, "ema"), (0.5, 0.60, "raw")])
def test_validation_prefers_raw_weights_where_they_lead_by_more_than_a_standard_error_and_says_so(
    ema: float, raw: float, chosen: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At 0.5 and 64 boards the standard error is 0.0625."""
    values = iter([ema, raw])
    monkeypatch.setattr("letgo.tune._valid", lambda *_: torch.tensor([next(values)]))
    said: list[str] = []
    run = letgo.train(MINI, tmp_path, validate=64, device="cpu", say=said.append, command="again")
    assert said[0] == f"validation, Euler, n=64: EMA {ema:.3f}, raw {raw:.3f}; kept {chosen}" + (
        ", as raw leads by less than a standard error" if chosen == "ema" and raw > ema else ""
    )
    assert said[1].startswith("sudoku-mini: 20 steps in ")
    assert_same_tree(load_weights(tmp_path / "model.safetensors"), load_state(tmp_path / "state.pt")[chosen])
    found = read_json(tmp_path / "validation.json")
    assert found.pop("seconds") == round(run.seconds, 1)
    scores = {"ema": ema, "raw": raw}
    about = {"step": 20, "weights": chosen, "scores": scores, "rule": "euler", "count": 64, "command": "again"}
    assert found == about
    assert read_json(tmp_path / "config.json")["weights"] == chosen
    with locked(tmp_path), pytest.raises(LetgoError, match="another process is training or tuning in"):
        letgo.train(MINI, tmp_path, device="cpu")


def test_bfloat16_trains_on_the_cpu_and_keeps_full_weights(tmp_path: Path) -> None:
    go(replace(MINI, precision="bf16"), tmp_path)
    assert all(value.dtype == torch.float32 for value in load_state(tmp_path / "state.pt")["raw"].values())
    assert math.isfinite(lines(tmp_path)[-1]["loss"])
    go(MINI, tmp_path / "fp32")
    assert lines(tmp_path) != lines(tmp_path / "fp32")
    with pytest.raises(LetgoError, match="choose one of bf16, fp32"):
        trainer(replace(MINI, precision="fp16"))


@pytest.mark.fast
def test_random_clues_are_uniform_in_number_and_place() -> None:
    """Fixed seed; a new one fails with odds of 2e-4 (two tests at 1e-4)."""
    torch.manual_seed(0)
    given = random_clues(8000, 16, CPU)
    assert stats.chisquare(given.sum(1).bincount(minlength=16).numpy()).pvalue > 1e-4  # 0 to 15 of 16 cells
    assert given.sum(1).max() == 15
    assert stats.chisquare(given.sum(0).numpy()).pvalue > 1e-4


def test_each_model_draws_from_its_own_instances_with_their_clues_and_context() -> None:
    """All of them in 500 draws from 32, but for odds of 1e-5."""

    def pairs(boards: Tensor, context: Tensor | None) -> set[tuple[Any, ...]]:
        assert context is not None
        rows = zip(boards, context, strict=True)
        return {(*board.tolist(), *graph.flatten().tolist()) for board, graph in rows}

    sets = [instances(replace(GRAPHS, seed=seed)) for seed in (0, 1)]
    boards, given, context = TrainingData.of(sets, "data", CPU).draw(1000)
    own = [pairs(part.solution, part.context) for part in sets]
    assert own[0] != own[1]
    assert context is not None
    for model in (0, 1):
        assert pairs(boards[model::2], context[model::2]) == own[model]
    assert not given.any()
    part = instances(GRAPHS)
    assert part.context is not None
    halves = replace(part, context=part.context / 2)
    drawn = TrainingData.of(halves, "data", CPU).draw(100)[2]
    assert drawn is not None
    assert drawn.unique().tolist() == [0, 0.5]  # not cut down to whole numbers
    assert fingerprint(halves) != fingerprint(replace(part, context=0 * part.context))
    mini = TrainingData.of(instances(MINI), "random", CPU)
    assert mini.given is None
    assert mini.draw(5)[2] is None


def test_a_run_can_start_from_another_models_weights(tmp_path: Path) -> None:
    go(MINI, tmp_path / "first")
    weights = load_weights(tmp_path / "first" / "model.safetensors")
    from_first = replace(MINI, init=str(tmp_path / "first"), steps=0)
    assert go(from_first, tmp_path / "second").step == 0
    assert_same_tree(load_state(tmp_path / "second" / "state.pt")["raw"], weights)
    with pytest.raises(LetgoError, match="belongs to another network"):
        go(replace(from_first, network_options={**SMALL, "hidden": 8}), tmp_path / "third")


@pytest.mark.parametrize("codec", ["bits", "embedding"])
def test_a_run_can_start_from_a_model_with_another_codec(tmp_path: Path, codec: str) -> None:
    """Its two ends then map our states to those of the model's own codec, and its answers back."""
    go(MINI, tmp_path / "first")
    _, first, _ = load_model(str(tmp_path / "first"))
    go(replace(MINI, codec=codec, init=str(tmp_path / "first"), steps=0), tmp_path / "second")
    config, second, _ = load_model(str(tmp_path / "second"))
    symbols, t = torch.randint(4, (8, 16)), torch.full((8, 1, 1), 0.5)
    table = config.build_codec().encode(torch.arange(4)[None])[0]  # a state for each of the four symbols
    with torch.no_grad():
        ours, answer = second(table[symbols], t), first(torch.eye(4)[symbols], t)
        exact = answer @ table
        middle = (table.T @ table * 16 * 64 / 4 + 16 * 64 * torch.eye(table.shape[1])).inverse()  # under unit noise
        told = first(table[symbols] @ middle @ table.T * 16 * 64 / 4, t) @ table
    assert (ours - told).norm() < 0.05 * exact.norm()


CALM = {**SMALL, "dropout": 0.0}
FORMS = {
    "simple": replace(MINI, network_options=CALM, objective="simple"),
    "self-correction": replace(MINI, network_options=CALM, simple_weight=0.3),
    "full": replace(MINI, network_options=CALM, full_gradient=True),
    "nlm": replace(GRAPHS, simple_weight=0.5),
    "looped nlm": replace(GRAPHS, network="looped-nlm", objective="cross-entropy", simple_weight=0.5),
}


@pytest.mark.parametrize("form", FORMS)
def test_stacked_models_have_the_losses_and_gradients_that_each_has_alone(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same boards, times and noise, once in turn for three models and once for each by itself."""
    config, seeds = FORMS[form], (4, 0, 9)
    stacked = trainer(config, *seeds)
    boards, given, context = stacked.data.draw(3 * config.batch)
    noise = iter(())

    def given_noise(x: Tensor) -> Tensor:
        value = next(noise)
        assert value.shape == x.shape
        return value

    monkeypatch.setattr("letgo.objectives.uniform_times", lambda x: next(noise))
    monkeypatch.setattr(torch, "randn_like", given_noise)
    state = (len(boards), boards.shape[1], stacked.codec.dim)
    times, clean = torch.rand(2, len(boards), 1, 1), torch.randn(2, *state)
    numbers = [times[0], clean[0]] if form == "simple" else [times[0], times[1], clean[0], clean[1]]
    noise = iter(numbers)
    total, losses = stacked._losses(stacked.flat, boards, given, context)
    total.backward()
    gradient = stacked.flat.grad
    assert gradient is not None
    for model, seed in enumerate(seeds):
        mine = slice(model, None, 3)
        alone = trainer(replace(config, seed=seed))
        noise = iter([value[mine] for value in numbers])
        loss, parts = alone._losses(alone.flat, boards[mine], given[mine], None if context is None else context[mine])
        loss.backward()
        assert alone.flat.grad is not None
        assert torch.equal(alone.flat[0], stacked.flat[model])
        assert_close(gradient[model], alone.flat.grad[0], rtol=1e-4, atol=1e-6)
        assert float((gradient[model] - gradient[model - 1]).abs().max()) > 1e-3
        assert parts.keys() == losses.keys()
        for name, value in parts.items():
            assert_close(losses[name][model], value[0])


@pytest.mark.fast
def test_a_step_of_stacked_models_is_adams_step_of_each() -> None:
    """Adam's first step moves every weight that has a gradient by the learning rate, whatever the others do."""
    stacked = trainer(replace(MINI, warmup=0), 0, 1)
    before = stacked.flat.detach().clone()
    stacked.step()
    assert stacked.flat.grad is not None
    moved, gradient = (stacked.flat.detach() - before), stacked.flat.grad
    clear = gradient.abs() > 1e-5
    assert bool(clear.any(1).all())
    assert_close(moved[clear], -MINI.learning_rate * gradient[clear].sign(), rtol=2e-3, atol=1e-6)


def test_stacked_models_drop_out_different_cells() -> None:
    """Twice the same weights and boards, yet two answers."""
    config = replace(MINI, network_options={**SMALL, "dropout": 0.5})
    stacked = trainer(config, 0, 0)
    x, t = torch.randn(3, 16, 4).repeat_interleave(2, 0), torch.full((6, 1, 1), 0.5)
    one, other = stacked.network(stacked.flat.detach(), x, t, None).unflatten(0, (-1, 2)).unbind(1)
    assert float((one - other).abs().max()) > 1e-3


@pytest.mark.usefixtures("averaged_always")
def test_states_go_from_one_model_to_many_and_back(tmp_path: Path) -> None:
    alone = [trainer(replace(MINI, seed=seed)) for seed in (3, 8)]
    for run in alone:
        for _ in range(3):
            run.step()
    alone[1].mean_losses()  # its log is ahead
    states = [run.state() for run in alone]
    stacked = trainer(MINI, 3, 8)
    stacked.restore(*states)
    assert_same_tree(stacked.state(0), states[0])
    assert_same_tree(stacked.state(1), states[1])
    for name, state in (("one", states[1]), ("of two", stacked.state(1))):  # and holds no neighbour
        torch.save(state, tmp_path / name)
    assert (tmp_path / "of two").stat().st_size == pytest.approx((tmp_path / "one").stat().st_size, rel=0.05)
    stacked.step()
    assert [entry["loss"] > 0 for entry in stacked.mean_losses()] == [True, True]
    again = trainer(replace(MINI, seed=8))
    again.restore(stacked.state(1))
    assert_same_tree(again.state(), stacked.state(1))
    again.step()
    assert again.adam["step"] == again.steps_done == 5


def test_runs_at_different_steps_first_catch_up(tmp_path: Path, after: Callable[..., None]) -> None:
    """A kill between two saves, or a seed trained before the others, must not keep them from being trained together."""
    seen: list[tuple[int, tuple[int, ...]]] = []
    go(replace(MINI, seed=2), tmp_path / "s2", log_every=4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "step", Trainer.step)  # put back in the end
        after(10, lambda run: signal.raise_signal(signal.SIGINT) if run.seeds == (1,) else None)
        go(replace(MINI, seed=1), tmp_path / "s1", log_every=4)
    finished = (tmp_path / "s2" / "model.safetensors").read_bytes()
    for at in range(1, 21):
        after(at, lambda run: seen.append((run.steps_done, run.seeds)))
    assert {run.step for run in go_together(MINI, seeds_in(tmp_path, 0, 1, 2), log_every=4)} == {20}
    assert seen == [(step, (0,)) for step in range(1, 11)] + [(step, (0, 1)) for step in range(11, 21)]
    assert (tmp_path / "s2" / "model.safetensors").read_bytes() == finished
    for name in ("s0", "s1", "s2"):
        assert load_state(tmp_path / name / "state.pt")["step"] == 20
        assert [entry["step"] for entry in lines(tmp_path / name)] == [4, 8, 12, 16, 20]


def test_states_that_cannot_be_stacked_are_refused() -> None:
    ahead, behind = trainer(MINI), trainer(MINI)
    ahead.step()
    with pytest.raises(LetgoError, match="one state each, all of the same step"):
        trainer(MINI, 0, 1).restore(ahead.state(), behind.state())
    old = {**behind.state(), "optimizer": {0: {}}}
    with pytest.raises(LetgoError, match="written by another version; start from its weights with --init"):
        behind.restore(old)


def test_symmetries_train_on_every_image_of_an_instance_and_only_where_there_are_some(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mazes = [training_instances(replace(PRESETS[name], boards=2), None) for name in ("maze", "maze-symmetries")]
    assert torch.equal(mazes[1].solution[::8], mazes[0].solution)
    assert len(mazes[1]) == 16
    assert main(["train", "latin", "--boards", "4", "--symmetries", "--out", str(tmp_path / "run")]) == 2
    assert "latin knows no symmetries to train on; leave --symmetries out" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_the_example_of_letgo_train_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from letgo.training import train as module

    monkeypatch.chdir(tmp_path)
    assert doctest.testmod(module) == (0, 4)


def test_several_seeds_and_a_problem_of_ones_own_in_python(tmp_path: Path) -> None:
    problem = instances(MINI)
    runs = letgo.train(MINI, tmp_path, seeds=[3, 4], data=problem, steps=2, validate=0, device="cpu")
    assert [(run.folder, run.config.seed, run.step) for run in runs] == [
        (tmp_path / f"s{seed}", seed, 2) for seed in (3, 4)
    ]
    with pytest.raises(LetgoError, match="seeds 3,4,3: one of them twice; each seed is a run of its own"):
        letgo.train(MINI, tmp_path, seeds=[3, 4, 3])
    with pytest.raises(LetgoError, match="unknown field of a configuration 'weihgts'; did you mean weights"):
        letgo.train(MINI, tmp_path, weihgts=3)


class Reader(nn.Module):
    """A network that returns a memory beside its answer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x_t: Tensor, t: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return self.linear(x_t), x_t


class Absolute:
    """An objective with one number per board."""

    weights = {"loss": 2.0}  # noqa: RUF012

    def __call__(self, network: Callable[..., Tensor], path: Any, batch: Batch) -> dict[str, Tensor]:
        t = torch.full((len(batch), 1, 1), 0.5)
        assert torch.equal(batch.x0.argmax(-1), batch.symbols)
        return {"loss": (network(batch.x0, t, None) - batch.x0).abs().mean((1, 2))}


@pytest.mark.parametrize("models", [1, 2])
def test_a_trainer_takes_objects_of_ones_own(models: int) -> None:
    data, recipe = TrainingData.of(instances(MINI), "random", CPU), Recipe(batch=8, warmup=0, learning_rate=0.01)
    networks: Sequence[nn.Module] = [Reader() for _ in range(models)]
    before = [network.linear.weight.detach().clone() for network in networks if isinstance(network, Reader)]
    recipe = replace(recipe, seeds=tuple(range(models)))
    run = Trainer(networks, Absolute(), OneHot(4), CosinePath(), data, recipe)
    losses = []
    for _ in range(30):
        run.step()
        losses.append([each["loss"] for each in run.mean_losses()])
    for model in range(models):
        assert losses[-1][model] < 0.7 * losses[0][model]
        assert not torch.equal(run.weights("raw", model)["linear.weight"], before[model])
    with pytest.raises(LetgoError, match="3 networks for"):
        Trainer([Reader()] * 3, Absolute(), OneHot(4), CosinePath(), data, recipe)


def test_a_task_of_ones_own_gets_a_configuration_of_its_size() -> None:
    tiny, paper = Config.for_task(get("sudoku", box=2), task_options={"box": 2}), Config.for_task(get("sudoku"))
    middle = Config.for_task(get("latin", size=6), task_options={"size": 6})
    sizes = [sum(p.numel() for p in config.build_model().parameters()) for config in (tiny, middle, paper)]
    assert sizes == sorted(sizes)
    assert paper.network_options == {}
    assert tiny.steps < middle.steps < paper.steps
    assert tiny.sample_steps < middle.sample_steps < paper.sample_steps == 200
