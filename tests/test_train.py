"""Training on tiny 4x4 boards: schedules, the average, and a run that can be stopped and resumed at any moment."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor
from torch.testing import assert_close

from letgo import train as training
from letgo.checkpoints import load_model, load_state, load_weights, locked, read_json, save_weights, write_json
from letgo.cli import main
from letgo.errors import LetgoError
from letgo.presets import PRESETS, Config
from letgo.rng import data_rng
from letgo.tasks import Problem
from letgo.train import Result, choose_weights, train
from letgo.trainer import EMA_EVERY, Trainer, TrainingData, ema_weight, learning_rate, random_clues
from letgo.tune import keep_checkpoint

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


def instances(config: Config) -> Problem:
    return config.build_task().generate(config.boards, data_rng(config.seed, "train"), "train")


def trainer(config: Config = MINI) -> Trainer:
    return Trainer(config, TrainingData.of(instances(config), config.masks, CPU), CPU)


def go(config: Config, out: Path, **options: Any) -> Result:
    return train(config, lambda: instances(config), out, CPU, **options)


def lines(out: Path) -> list[dict[str, float]]:
    """metrics.jsonl without what a clock decides."""
    entries = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in entry.items() if k != "steps_per_second"} for entry in entries]


def contents(out: Path) -> dict[str, bytes]:
    return {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file()}


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


@pytest.mark.parametrize(
    "config",
    [MINI, replace(MINI, objective="simple", ema=0.5), replace(MINI, optimizer="muon"), GRAPHS],
    ids=["sc", "simple", "muon", "nlm"],
)
def test_twenty_steps_equal_ten_a_stop_and_ten_more_bit_for_bit(
    config: Config, tmp_path: Path, after: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("letgo.trainer.EMA_EVERY", 1)  # so that the average differs from the weights this early
    whole = go(config, tmp_path / "whole", log_every=4)
    assert (whole.step, whole.stopped_by) == (20, "done")
    after(10, lambda _: signal.raise_signal(signal.SIGINT))
    first = go(config, tmp_path / "parts", log_every=4)  # 10 lies between two lines of the log
    assert (first.step, first.stopped_by, first.signal) == (10, "signal", signal.SIGINT)
    torch.randn(7)  # what else the process draws must not matter
    second = go(config, tmp_path / "parts", log_every=4)
    assert (second.step, second.stopped_by) == (20, "done")
    assert_same_run(tmp_path / "whole", tmp_path / "parts")
    state = load_state(tmp_path / "whole" / "state.pt")
    assert any(not torch.equal(state["raw"][name], state["ema"][name]) for name in state["raw"])
    assert [entry["step"] for entry in lines(tmp_path / "parts")] == [4, 8, 12, 16, 20]


def test_another_seed_gives_another_run(tmp_path: Path) -> None:
    go(MINI, tmp_path / "a")
    go(replace(MINI, seed=1), tmp_path / "b")
    assert lines(tmp_path / "a") != lines(tmp_path / "b")


def test_seeds_draw_other_numbers_from_the_same_weights_and_instances() -> None:
    """The low 32 bits are all that torch's generator on the CPU takes of its seed."""
    data, losses = TrainingData.of(instances(MINI), MINI.masks, CPU), set()
    start = trainer(MINI).weights("raw")
    for seed in (0, 1, 2, 2**32 - 1):
        run = Trainer(MINI, data, CPU, seeds=[seed])
        run.set_weights("raw", start, "the start")
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


def test_repeating_a_finished_command_changes_nothing(tmp_path: Path) -> None:
    go(MINI, tmp_path)
    before = (tmp_path / "model.safetensors").read_bytes(), lines(tmp_path)
    assert go(MINI, tmp_path).step == 20
    assert ((tmp_path / "model.safetensors").read_bytes(), lines(tmp_path)) == before


def test_a_finished_run_keeps_the_weights_that_were_chosen_since(tmp_path: Path) -> None:
    go(MINI, tmp_path)
    choose_weights(tmp_path, lambda weights: float(weights is load_state), 8)
    save_weights(tmp_path / "model.safetensors", {"another": torch.ones(3)})
    chosen = (tmp_path / "model.safetensors").read_bytes()
    assert not go(MINI, tmp_path).trained
    assert (tmp_path / "model.safetensors").read_bytes() == chosen
    assert (tmp_path / "validation.json").exists()


def test_a_new_run_leaves_weights_alone_that_it_did_not_write(tmp_path: Path) -> None:
    save_weights(tmp_path / "checkpoints" / "7.safetensors", {"another": torch.ones(3)})
    go(MINI, tmp_path)
    assert (tmp_path / "checkpoints" / "7.safetensors").exists()


def test_a_deleted_model_comes_back_from_the_state(tmp_path: Path) -> None:
    go(MINI, tmp_path)
    write_json(tmp_path / "tune-em.json", {})
    before = contents(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    assert not go(MINI, tmp_path).trained
    assert contents(tmp_path) == before


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_damaged_file_comes_back_from_the_state(name: str, tmp_path: Path) -> None:
    go(MINI, tmp_path)
    before = contents(tmp_path)
    (tmp_path / name).write_text("{")
    assert not go(MINI, tmp_path).trained
    assert contents(tmp_path) == before


def test_a_damaged_choice_does_not_keep_a_damaged_model_from_coming_back(tmp_path: Path) -> None:
    go(MINI, tmp_path, keep=(10,))
    before = contents(tmp_path)
    keep_checkpoint(tmp_path, {"step": 10, "weights": "raw"})
    (tmp_path / "model.safetensors").write_text("{")
    (tmp_path / "checkpoints" / "10.safetensors").write_text("{")
    assert not go(MINI, tmp_path).trained
    assert contents(tmp_path) | {"checkpoints/10.safetensors": b""} == before | {"checkpoints/10.safetensors": b""}


def test_a_lost_configuration_takes_no_chosen_weights_with_it(tmp_path: Path) -> None:
    go(MINI, tmp_path, keep=(10,))
    keep_checkpoint(tmp_path, {"step": 10, "weights": "raw"})
    write_json(tmp_path / "tune-em.json", {})
    before = contents(tmp_path)
    (tmp_path / "checkpoints" / "10.safetensors").unlink()
    (tmp_path / "config.json").unlink()
    assert not go(MINI, tmp_path).trained
    after = contents(tmp_path)
    assert all(after[name] == before[name] for name in ("model.safetensors", "config.json", "tune-em.json"))


def test_a_baseline_begun_with_a_weight_that_it_does_not_have_goes_on(tmp_path: Path) -> None:
    simple = replace(MINI, objective="simple")
    go(replace(simple, simple_weight=0.5, steps=3), tmp_path)
    assert go(simple, tmp_path).step == MINI.steps


def test_a_run_that_never_took_a_step_may_begin_anew(tmp_path: Path, after: Callable[..., None]) -> None:
    def fail(trainer: Trainer) -> None:
        if trainer.config.batch == 6:
            raise MemoryError

    after(3, fail)
    with pytest.raises(MemoryError):
        go(replace(MINI, batch=6), tmp_path, keep=(2,))
    assert go(MINI, tmp_path).step == MINI.steps
    assert not (tmp_path / "checkpoints" / "2.safetensors").exists()
    assert read_json(tmp_path / "config.json")["batch"] == MINI.batch


@pytest.mark.parametrize(("step", "kind"), [(10, "raw"), (10, "ema"), (20, "raw"), (20, "ema")])
def test_a_deleted_model_comes_back_as_it_was_chosen(
    step: int, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("letgo.trainer.EMA_EVERY", 1)
    go(MINI, tmp_path, keep=(10, 20))
    keep_checkpoint(tmp_path, {"step": step, "weights": kind})
    write_json(tmp_path / "tune-em.json", {})
    before = contents(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    assert not go(MINI, tmp_path).trained
    assert contents(tmp_path) == before


def test_where_the_chosen_weights_are_gone_too_what_was_found_for_them_goes(tmp_path: Path) -> None:
    go(MINI, tmp_path, keep=(10,))
    keep_checkpoint(tmp_path, {"step": 10, "weights": "raw"})
    write_json(tmp_path / "tune-em.json", {})
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "checkpoints" / "10.safetensors").unlink()
    assert not go(MINI, tmp_path).trained
    assert {path.name for path in tmp_path.iterdir()} == WHOLE_RUN | {"checkpoints"}
    assert json.loads((tmp_path / "config.json").read_text())["weights"] == "ema"
    assert_same_tree(load_weights(tmp_path / "model.safetensors"), load_state(tmp_path / "state.pt")["ema"])


def test_going_on_without_a_step_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("letgo.trainer.EMA_EVERY", 1)
    config = replace(MINI, decay=0.0)
    go(config, tmp_path, keep=(10,), log_every=5)
    keep_checkpoint(tmp_path, {"step": 10, "weights": "raw"})
    write_json(tmp_path / "tune-em.json", {})
    before, longer = contents(tmp_path), replace(config, steps=25)
    result = go(longer, tmp_path, max_seconds=0.0)
    assert (result.step, result.stopped_by, result.trained) == (20, "time", False)
    assert contents(tmp_path) == before
    go(longer, tmp_path, log_every=5)
    go(longer, tmp_path / "whole", log_every=5)
    assert_same_run(tmp_path, tmp_path / "whole")
    assert {path.name for path in tmp_path.iterdir()} == WHOLE_RUN | {"checkpoints", "whole"}


def test_a_run_killed_in_its_first_step_back_has_lost_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Trainer) -> None:
        raise MemoryError

    go(MINI, tmp_path)
    choose_weights(tmp_path, lambda weights: 0.5, 8)
    before = contents(tmp_path)
    monkeypatch.setattr(Trainer, "step", fail)
    with pytest.raises(MemoryError):
        go(replace(MINI, steps=25), tmp_path)
    assert contents(tmp_path) == before


def test_the_command_line_validates_only_weights_that_are_new(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a run that takes no step nor a seed that was finished before the others."""
    monkeypatch.setattr("letgo.cli.train.trains_together", lambda *_: True)
    words = ["train", "sudoku-mini", "--out", str(tmp_path), "--batch", "2", "--boards", "20", "--validate", "4"]
    words += ["--device", "cpu", "--steps", "3", "--keep", "2"]
    assert main([*words, "--seeds", "0,1"]) == 0
    keep_checkpoint(tmp_path / "s0", {"step": 2, "weights": "raw"})
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


def test_training_on_drops_what_was_found_for_the_weights_before(tmp_path: Path) -> None:
    go(MINI, tmp_path)
    for name in ("validation.json", "tune-em.json", "tune-em-decay.json"):
        (tmp_path / name).write_text("{}")
    go(MINI, tmp_path)  # finished: nothing changes
    assert (tmp_path / "tune-em.json").exists()
    go(replace(MINI, steps=25), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == WHOLE_RUN


def test_a_finished_run_refuses_data_that_it_was_not_trained_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As an unfinished one does: the model that is there is not one of that data."""
    for seed in ("0", "1"):
        path = str(tmp_path / f"{seed}.npz")
        assert main(["data", "make", "sudoku", "--size", "4", "--count", "20", "--seed", seed, "--out", path]) == 0
    words = ["train", "sudoku-mini", "--out", str(tmp_path / "run"), "--steps", "2", "--batch", "2", "--device", "cpu"]
    words += ["--validate", "0", "--data"]
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


def test_a_run_does_not_go_on_with_other_instances(tmp_path: Path) -> None:
    go(MINI, tmp_path)
    longer, other = replace(MINI, steps=30), instances(replace(MINI, seed=5))
    with pytest.raises(LetgoError, match=r"trained on other instances than these; repeat the --data"):
        train(longer, lambda: other, tmp_path, CPU)
    assert go(longer, tmp_path).step == 30


def test_a_second_signal_does_not_wait_for_the_step() -> None:
    with training.interruptible() as caught:
        signal.raise_signal(signal.SIGINT)
        assert caught == [signal.SIGINT]
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_a_run_leaves_its_files_and_nothing_else(tmp_path: Path) -> None:
    go(MINI, tmp_path, keep=(10,))
    assert {p.name for p in tmp_path.iterdir()} == WHOLE_RUN | {"checkpoints"}
    assert [p.name for p in (tmp_path / "checkpoints").iterdir()] == ["10.safetensors"]


def test_the_log_is_cut_back_to_the_saved_step(tmp_path: Path, after: Callable[..., None]) -> None:
    """A killed run's log may be ahead of its state and end in half a line."""
    after(12, lambda _: signal.raise_signal(signal.SIGTERM))
    assert go(MINI, tmp_path, log_every=4).signal == signal.SIGTERM
    with (tmp_path / "metrics.jsonl").open("a") as log:
        log.write('{"step": 16, "loss": 9}\n{"step": 20, "lo')
    go(MINI, tmp_path, log_every=4)
    assert [entry["step"] for entry in lines(tmp_path)] == [4, 8, 12, 16, 20]
    assert all(entry["loss"] < 9 for entry in lines(tmp_path))


def test_a_time_limit_stops_and_saves_and_the_schedule_does_not_notice(tmp_path: Path) -> None:
    result = go(MINI, tmp_path, max_seconds=0.0)
    assert (result.step, result.stopped_by) == (0, "time")
    assert json.loads((tmp_path / "config.json").read_text())["steps"] == 20
    load_model(str(tmp_path))
    assert go(MINI, tmp_path, max_seconds=600.0).stopped_by == "done"
    go(MINI, tmp_path / "whole")
    assert_same_run(tmp_path, tmp_path / "whole")


def test_handlers_of_signals_are_put_back(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    go(MINI, tmp_path)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_the_seconds_of_all_parts_add_up(tmp_path: Path, after: Callable[..., None]) -> None:
    after(10, lambda _: signal.raise_signal(signal.SIGINT))
    first = go(MINI, tmp_path)
    second = go(MINI, tmp_path)
    assert second.seconds > first.seconds
    assert load_state(tmp_path / "state.pt")["seconds"] >= first.seconds


# One process forks children that train, saving after every step; each is killed at a random moment. What it left must
# load, and the run that goes on from there must end with the very bits of one that was never killed.
KILLED = """
import os, random, signal, sys, time
from dataclasses import replace
from pathlib import Path
import torch
from letgo import train as training
from letgo.checkpoints import load_model, load_state, load_weights
from letgo.presets import Config
from letgo.rng import data_rng
import json

config, out = Config.from_dict(json.loads(sys.argv[1])), Path(sys.argv[2])
problem = config.build_task().generate(config.boards, data_rng(config.seed, "train"), "train")
training.SAVE_SECONDS = -1
moments, steps, loaded, leftovers = random.Random(0), [], 0, 0
warm = torch.zeros(1, requires_grad=True)  # torch imports much at its first optimiser; not backward: it forbids forks
warm.grad = torch.zeros(1)
torch.optim.Adam([warm]).step()

def work():
    training.train(config, lambda: problem, out, torch.device("cpu"), keep=range(1, 1000, 7), log_every=1)

def written():
    return (out / "state.pt").stat().st_mtime_ns if (out / "state.pt").exists() else 0

for attempt in range(14):  # half of them as soon as they begin, half once they have saved
    seen = {written()}
    child = os.fork()
    if child == 0:
        work()
        os._exit(0)
    while attempt % 2 == 0 and len(seen) < 4:  # three saves: two steps at least, however slow the machine
        seen.add(written())
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            break  # it has finished
        time.sleep(0.001)
    time.sleep(moments.uniform(0.0, 0.15))
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    leftovers += len([*out.glob(".*.part"), *out.glob("checkpoints/.*.part")])
    if (out / "state.pt").exists():
        steps.append(load_state(out / "state.pt")["step"])
    if (out / "model.safetensors").exists():
        load_model(str(out))
        loaded += 1
    for file in out.glob("checkpoints/*.safetensors"):
        assert load_weights(file, "ema.") and load_weights(file, "raw.")
    if not os.WIFSIGNALED(status):
        break
work()
print(json.dumps({"steps": steps, "loaded": loaded, "leftovers": leftovers}))
"""


def python(code: str, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1", **environment}
    return subprocess.run([sys.executable, "-c", code, *words], env=env, capture_output=True, text=True, timeout=300)


def test_a_run_killed_after_its_last_step_is_tidied_up(tmp_path: Path) -> None:
    go(MINI, tmp_path)
    (tmp_path / ".state.pt.1.part").write_bytes(b"half")
    assert not go(MINI, tmp_path).trained
    assert not [*tmp_path.glob(".*.part")]


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


def test_leftovers_of_a_killed_write_are_cleared_away(tmp_path: Path) -> None:
    go(MINI, tmp_path, keep=(10,))
    for name in (".state.pt.123.part", "checkpoints/.10.safetensors.123.part"):
        (tmp_path / name).write_bytes(b"half")
    go(replace(MINI, steps=21), tmp_path)
    assert not [*tmp_path.rglob(".*.part")]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_save_and_say_how_to_go_on(number: signal.Signals, tmp_path: Path) -> None:
    words = ["train", "sudoku-mini", "--out", str(tmp_path / "run"), "--batch", "2", "--boards", "20"]
    words += ["--steps", "1000000", "--log-every", "1", "--device", "cpu"]
    env = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([sys.executable, "-m", "letgo", *words], env=env, stderr=subprocess.PIPE, text=True)
    log, deadline = tmp_path / "run" / "metrics.jsonl", time.monotonic() + 120
    while not (log.exists() and log.stat().st_size) and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert stderr.count("\n") == 1
    assert f"To go on: letgo {' '.join(words)}" in stderr
    state = load_state(tmp_path / "run" / "state.pt")
    assert state["step"] > 0
    assert f"stopped at step {state['step']:,} of 1,000,000" in stderr


def test_a_second_process_is_refused_until_the_first_is_gone_however_it_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("fcntl")
    words = ["train", "sudoku-mini", "--out", str(tmp_path / "run"), "--batch", "2", "--boards", "20", "--validate"]
    words += ["0", "--steps", "1000000", "--device", "cpu"]
    env = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([sys.executable, "-m", "letgo", *words, "--quiet"], env=env)
    try:
        deadline = time.monotonic() + 120
        while not (tmp_path / "run" / "state.pt").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        (tmp_path / "run" / ".state.pt.1.part").write_bytes(b"being written")
        assert main([*words, "--max-seconds", "5"]) == 2
        said = capsys.readouterr().err
        assert said == (
            f"letgo: another process is training or tuning in {tmp_path / 'run'}; "
            "wait until it ends, or choose another --out\n"
        )
        assert (tmp_path / "run" / ".state.pt.1.part").exists()
    finally:
        process.kill()
        process.wait()
    assert main([*words, "--max-seconds", "0"]) == 0
    assert {path.name for path in (tmp_path / "run").iterdir()} >= {"config.json", "model.safetensors", "state.pt"}
    assert not [*(tmp_path / "run").glob(".*")]


def test_stacked_runs_are_refused_where_one_of_them_is_in_use(tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    with locked(tmp_path / "s1"), pytest.raises(LetgoError, match=r"is training or tuning in .*s1; wait until it ends"):
        go_together(MINI, tmp_path)
    assert not [*tmp_path.iterdir()]
    with locked(tmp_path / "s2"):
        go_together(MINI, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"s0", "s1"}


def test_two_seeds_never_share_a_folder(tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    (tmp_path / "s0").mkdir()
    (tmp_path / "s1").symlink_to(tmp_path / "s0")
    with pytest.raises(LetgoError, match="another process is training or tuning in"):
        go_together(MINI, tmp_path)


def test_weights_are_not_chosen_while_another_process_trains(tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    go(MINI, tmp_path)
    before = contents(tmp_path)
    with locked(tmp_path), pytest.raises(LetgoError, match="another process is training or tuning in"):
        choose_weights(tmp_path, lambda weights: 0.5, 8)
    assert contents(tmp_path) == before


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


@pytest.mark.parametrize("room", [100, 20_000])
def test_a_full_disk_loses_nothing_already_saved(room: int, tmp_path: Path) -> None:
    """A limit on the size of any file written: the small one stops config.json, the large one state.pt."""
    words = ["train", "sudoku-mini", "--out", str(tmp_path), "--batch", "2", "--boards", "20", "--validate", "0"]
    assert main([*words, "--steps", "3", "--quiet", "--device", "cpu"]) == 0
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    assert len(before["state.pt"]) > 20_000
    done = python(FULL_DISK, str(room), *words, "--steps", "6", "--device", "cpu")
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1
    assert "File too large" in done.stderr
    after = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    assert after.keys() == before.keys()
    for name in ("state.pt", "model.safetensors", "metrics.jsonl"):
        assert after[name] == before[name]
    assert main([*words, "--steps", "6", "--quiet", "--device", "cpu"]) == 0
    assert load_state(tmp_path / "state.pt")["step"] == 6


def test_a_foreign_configuration_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    for text in ('{"my": "config"}', "[1]", "no json"):
        path.write_text(text)
        with pytest.raises(LetgoError, match=r"config\.json is no configuration of letgo; choose another --out"):
            go(MINI, tmp_path)
        assert path.read_text() == text
        assert [p.name for p in tmp_path.iterdir() if p.name != ".lock"] == ["config.json"]
    path.write_text(json.dumps(MINI.as_dict()))  # of a run that was killed before its first step was saved
    assert go(MINI, tmp_path).step == MINI.steps


def test_a_disk_that_fills_up_while_training_ends_it_with_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "metrics.jsonl").symlink_to("/dev/full") if Path("/dev/full").exists() else pytest.skip("no /dev/full")
    monkeypatch.setattr(training, "_drop_later_lines", lambda path, step: None)
    with pytest.raises(LetgoError, match=r"holds a run without its state\.pt"):
        go(MINI, tmp_path, log_every=5)
    (tmp_path / "metrics.jsonl").unlink()
    go(replace(MINI, steps=5), tmp_path)
    (tmp_path / "metrics.jsonl").unlink()
    (tmp_path / "metrics.jsonl").symlink_to("/dev/full")
    with pytest.raises(LetgoError, match="No space left on device; what was saved before is intact"):
        go(MINI, tmp_path, log_every=5)
    assert load_state(tmp_path / "state.pt")["step"] == 5


def test_a_loss_that_explodes_is_reported_and_never_saved(tmp_path: Path) -> None:
    with pytest.raises(LetgoError, match=r"no longer finite at step 5.*lower --learning-rate"):
        go(replace(MINI, learning_rate=1e30, warmup=0), tmp_path, log_every=5)
    state = load_state(tmp_path / "state.pt")
    assert all(bool(value.isfinite().all()) for kind in ("raw", "ema") for value in state[kind].values())


def test_weights_that_explode_between_two_log_lines_are_not_saved_either(
    tmp_path: Path, after: Callable[..., None]
) -> None:
    after(20, lambda trainer: trainer.flat.data[0, 7:9].fill_(math.nan))
    with pytest.raises(LetgoError, match="no longer finite at step 20"):
        go(MINI, tmp_path)
    assert load_state(tmp_path / "state.pt")["step"] == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch": 9}, "batch=8, not 9"),
        ({"seed": 3}, "seed=0, not 3"),
        ({"optimizer": "muon"}, "optimizer='adam', not 'muon'"),
        ({"objective": "simple"}, "objective='self-correction', not 'simple'"),
        ({"network_options": {**SMALL, "width": 32}}, "network_options="),
    ],
)
def test_a_configuration_that_disagrees_is_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    go(replace(MINI, steps=2), tmp_path)
    before = (tmp_path / "config.json").read_bytes()
    with pytest.raises(LetgoError, match="was started with") as error:
        go(replace(MINI, **changes), tmp_path)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert (tmp_path / "config.json").read_bytes() == before


@pytest.mark.parametrize("fault", ["other shape", "broadcasts", "missing", "extra"])
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
    with pytest.raises(LetgoError, match="belongs to another network"):
        go(MINI, tmp_path)


def test_a_run_without_its_state_is_not_overwritten(tmp_path: Path) -> None:
    go(replace(MINI, steps=2), tmp_path)
    (tmp_path / "state.pt").unlink()
    with pytest.raises(LetgoError, match=r"holds a run without its state\.pt"):
        go(MINI, tmp_path)


def test_the_loss_falls(tmp_path: Path) -> None:
    go(replace(MINI, batch=32, steps=150, warmup=20), tmp_path, log_every=50)
    losses = [entry["loss"] for entry in lines(tmp_path)]
    assert losses[2] < 0.7 * losses[0]


def test_reports_come_with_step_total_speed_and_losses(tmp_path: Path) -> None:
    seen: list[tuple[int, int, float, dict[str, float]]] = []
    go(MINI, tmp_path, log_every=8, report=lambda *report: seen.append(report))
    assert [(step, total) for step, total, _, _ in seen] == [(8, 20), (16, 20), (20, 20)]
    assert all(speed > 0 and set(losses) == {"loss", "recovery", "simple"} for _, _, speed, losses in seen)


def test_logged_losses_are_the_means_of_their_steps(tmp_path: Path) -> None:
    one, many = tmp_path / "one", tmp_path / "many"
    go(MINI, one, log_every=1)
    go(MINI, many, log_every=8)
    losses = [entry["loss"] for entry in lines(one)]
    expected = [np.mean(losses[:8]), np.mean(losses[8:16]), np.mean(losses[16:])]
    assert [entry["loss"] for entry in lines(many)] == pytest.approx(expected, rel=1e-5)


def test_the_learning_rate_warms_up_stays_and_falls_to_nothing() -> None:
    config = replace(MINI, steps=1000, warmup=100, learning_rate=0.5, decay=0.2)
    for step, expected in [(0, 0.005), (49, 0.25), (99, 0.5), (100, 0.5), (800, 0.5), (900, 0.25), (999, 0.0025)]:
        assert learning_rate(config, step) == pytest.approx(expected)
    assert learning_rate(replace(config, decay=0.0), 999) == 0.5
    assert learning_rate(replace(config, warmup=0), 0) == 0.5


def test_the_optimizer_follows_the_schedule_after_a_restore_too() -> None:
    config = replace(MINI, steps=8, warmup=4, decay=0.5)
    one = trainer(config)
    rates = []
    for _ in range(4):
        one.step()
        rates.append(float(one.optimizer.param_groups[0]["lr"]))
    other = trainer(config)
    other.restore(one.state())
    for _ in range(4):
        other.step()
        rates.append(float(other.optimizer.param_groups[0]["lr"]))
    assert rates == pytest.approx([learning_rate(config, step) for step in range(8)])


def test_the_average_remembers_at_most_a_tenth_of_the_steps() -> None:
    config = replace(MINI, ema=0.9999)
    for step in (100, 1000, 12_340, 100_000, 1_000_000):
        horizon = EMA_EVERY / ema_weight(config, step)
        assert horizon == pytest.approx(min(step / 10, 10_000))
    assert ema_weight(config, 10) == 1.0  # no memory at all before a tenth of the steps is one update
    assert ema_weight(replace(config, ema=0.0), 1_000_000) == 1.0


def test_the_average_is_what_its_weights_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("letgo.trainer.EMA_EVERY", 5)
    config = replace(MINI, steps=200)
    run = trainer(config)
    average = run.flat.detach().clone()
    for step in range(1, 121):
        run.step()
        if step % 5 == 0:
            weight = min(1.0, 5 / (step / 10))
            average = average + weight * (run.flat.detach() - average)
    assert_close(run.ema, average)
    assert not torch.equal(run.ema, run.flat)


def test_kept_steps_hold_raw_and_averaged_weights_in_half_precision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from safetensors.torch import load_file

    monkeypatch.setattr("letgo.trainer.EMA_EVERY", 1)
    go(MINI, tmp_path, keep=(15, 20))
    kept = load_file(tmp_path / "checkpoints" / "20.safetensors")
    state = load_state(tmp_path / "state.pt")
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


def test_the_model_file_holds_the_average(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("letgo.trainer.EMA_EVERY", 1)
    go(MINI, tmp_path)
    assert_same_tree(load_weights(tmp_path / "model.safetensors"), load_state(tmp_path / "state.pt")["ema"])


@pytest.mark.parametrize("better", ["raw", "ema"])
def test_validation_chooses_between_raw_and_averaged_weights_and_says_so(
    better: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("letgo.trainer.EMA_EVERY", 1)
    go(MINI, tmp_path)
    state = load_state(tmp_path / "state.pt")
    scores = choose_weights(
        tmp_path, lambda weights: float(torch.equal(weights["head.bias"], state[better]["head.bias"])), 64
    )
    assert scores == {"raw": float(better == "raw"), "ema": float(better == "ema")}
    assert_same_tree(load_weights(tmp_path / "model.safetensors"), state[better])
    said = json.loads((tmp_path / "validation.json").read_text())
    assert (said["weights"], said["step"], said["scores"]) == (better, 20, scores)
    assert json.loads((tmp_path / "config.json").read_text())["weights"] == better
    go(replace(MINI, steps=21), tmp_path)
    assert not (tmp_path / "validation.json").exists()  # the file is the average again, whatever was chosen
    assert json.loads((tmp_path / "config.json").read_text())["weights"] == "ema"


@pytest.mark.parametrize(("raw", "chosen"), [(0.52, "ema"), (0.60, "raw")])
def test_a_lead_within_one_standard_error_leaves_the_average_in_place(raw: float, chosen: str, tmp_path: Path) -> None:
    """At 0.5 and 64 boards the standard error is 0.0625."""
    go(MINI, tmp_path)
    values = iter([0.5, raw])
    choose_weights(tmp_path, lambda weights: next(values), 64)
    assert json.loads((tmp_path / "config.json").read_text())["weights"] == chosen


def test_bfloat16_trains_on_the_cpu_and_keeps_full_weights(tmp_path: Path) -> None:
    go(replace(MINI, precision="bf16"), tmp_path)
    assert all(value.dtype == torch.float32 for value in load_state(tmp_path / "state.pt")["raw"].values())
    assert math.isfinite(lines(tmp_path)[-1]["loss"])
    go(MINI, tmp_path / "fp32")
    assert lines(tmp_path) != lines(tmp_path / "fp32")


def test_precisions_that_cannot_be_had_are_refused() -> None:
    with pytest.raises(LetgoError, match="fp16 training needs a GPU"):
        trainer(replace(MINI, precision="fp16"))
    with pytest.raises(LetgoError, match="unknown precision 'fp8'; choose one of bf16, fp16, fp32"):
        trainer(replace(MINI, precision="fp8"))


def test_random_clues_are_uniform_in_number_and_place() -> None:
    """Fixed seed; a new one fails with odds of 2e-4 (two tests at 1e-4)."""
    torch.manual_seed(0)
    given = random_clues(8000, 16, CPU)
    assert stats.chisquare(given.sum(1).bincount(minlength=16).numpy()).pvalue > 1e-4  # 0 to 15 of 16 cells
    assert given.sum(1).max() == 15
    assert stats.chisquare(given.sum(0).numpy()).pvalue > 1e-4


def test_batches_are_drawn_from_the_instances_with_their_own_clues_and_context() -> None:
    problem = instances(GRAPHS)
    assert problem.context is not None
    data = TrainingData.of(problem, "data", CPU)
    boards, given, context = data.draw(200)
    assert context is not None
    index = {
        (tuple(b.tolist()), tuple(c.flatten().tolist())) for b, c in zip(problem.solution, problem.context, strict=True)
    }
    assert {(tuple(b.tolist()), tuple(c.flatten().tolist())) for b, c in zip(boards, context, strict=True)} <= index
    assert not given.any()
    mini = TrainingData.of(instances(MINI), "random", CPU)
    assert mini.given is None
    assert mini.draw(5)[2] is None


def test_a_run_can_start_from_another_models_weights(tmp_path: Path) -> None:
    go(MINI, tmp_path / "first")
    weights = load_weights(tmp_path / "first" / "model.safetensors")
    trainer = go(replace(MINI, init=str(tmp_path / "first"), steps=0), tmp_path / "second")
    assert trainer.step == 0
    assert_same_tree(load_state(tmp_path / "second" / "state.pt")["raw"], weights)
    other = replace(
        MINI, init=str(tmp_path / "first"), network_options={"width": 16, "depth": 1, "heads": 1, "hidden": 8}
    )
    with pytest.raises(LetgoError, match="belongs to another network"):
        go(other, tmp_path / "third")


def together(config: Config, seeds: tuple[int, ...]) -> Trainer:
    problems = [instances(replace(config, seed=seed)) for seed in seeds]
    return Trainer(config, TrainingData.of(problems, config.masks, CPU), CPU, seeds=seeds)


def go_together(config: Config, out: Path, seeds: tuple[int, ...] = (0, 1), **options: Any) -> Result:
    problems = [instances(replace(config, seed=seed)) for seed in seeds]
    return train(config, lambda: problems, out, CPU, seeds=seeds, **options)


CALM = {**SMALL, "dropout": 0.0}
FORMS = {
    "simple": replace(MINI, network_options=CALM, objective="simple"),
    "self-correction": replace(MINI, network_options=CALM, simple_weight=0.3),
    "full": replace(MINI, network_options=CALM, full_gradient=True),
    "nlm": replace(GRAPHS, simple_weight=0.5),
}


@pytest.mark.parametrize("form", FORMS)
def test_stacked_models_have_the_losses_and_gradients_that_each_has_alone(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same boards, times and noise, once in turn for three models and once for each by itself."""
    config, seeds = FORMS[form], (4, 0, 9)
    stacked = together(config, seeds)
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
            assert_close(losses[name][model], value)


def test_a_step_of_stacked_models_is_adams_step_of_each() -> None:
    """Adam's first step moves every weight that has a gradient by the learning rate, whatever the others do."""
    stacked = together(replace(MINI, warmup=0), (0, 1))
    before = stacked.flat.detach().clone()
    stacked.step()
    assert stacked.flat.grad is not None
    moved, gradient = (stacked.flat.detach() - before), stacked.flat.grad
    clear = gradient.abs() > 1e-5
    assert bool(clear.any(1).all())
    assert_close(moved[clear], -MINI.learning_rate * gradient[clear].sign(), rtol=2e-3, atol=1e-6)


def test_weights_drawn_for_a_seed_do_not_depend_on_its_neighbours() -> None:
    stacked = together(MINI, (5, 2))
    for model, seed in enumerate((5, 2)):
        assert_same_tree(stacked.weights("raw", model), trainer(replace(MINI, seed=seed)).weights("raw"))


def test_stacked_models_drop_out_different_cells() -> None:
    """Twice the same weights and boards, yet two answers."""
    config = replace(MINI, network_options={**SMALL, "dropout": 0.5})
    stacked = Trainer(config, TrainingData.of(instances(config), "random", CPU), CPU, seeds=(0, 0))
    x, t = torch.randn(3, 16, 4).repeat_interleave(2, 0), torch.full((6, 1, 1), 0.5)
    one, other = stacked.network(stacked.flat.detach(), x, t, None).unflatten(0, (-1, 2)).unbind(1)
    assert float((one - other).abs().max()) > 1e-3


@pytest.mark.parametrize("config", [MINI, replace(MINI, optimizer="muon"), GRAPHS], ids=["sudoku", "muon", "graphs"])
def test_stacked_runs_stop_and_go_on_bit_for_bit(config: Config, tmp_path: Path, after: Callable[..., None]) -> None:
    assert go_together(config, tmp_path / "whole", log_every=4).step == 20
    after(10, lambda _: signal.raise_signal(signal.SIGINT))
    first = go_together(config, tmp_path / "parts", log_every=4)
    assert (first.step, first.stopped_by) == (10, "signal")
    assert go_together(config, tmp_path / "parts", log_every=4).stopped_by == "done"
    for name in ("s0", "s1"):
        assert_same_run(tmp_path / "whole" / name, tmp_path / "parts" / name)
        assert {p.name for p in (tmp_path / "whole" / name).iterdir()} == WHOLE_RUN
        assert json.loads((tmp_path / "whole" / name / "config.json").read_text())["seed"] == int(name[1])
    assert lines(tmp_path / "whole" / "s0") != lines(tmp_path / "whole" / "s1")


def test_states_go_from_one_model_to_many_and_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("letgo.trainer.EMA_EVERY", 1)
    alone = [trainer(replace(MINI, seed=seed)) for seed in (3, 8)]
    for run in alone:
        for _ in range(3):
            run.step()
    alone[1].mean_losses()  # its log is ahead
    states = [run.state() for run in alone]
    stacked = together(MINI, (3, 8))
    stacked.restore(*states)
    assert_same_tree(stacked.state(0), states[0])
    assert_same_tree(stacked.state(1), states[1])
    stacked.step()
    assert [entry["loss"] > 0 for entry in stacked.mean_losses()] == [True, True]
    again = trainer(replace(MINI, seed=8))
    again.restore(stacked.state(1))
    assert_same_tree(again.state(), stacked.state(1))
    again.step()
    assert again.adam["step"] == again.steps_done == 5


def test_a_saved_state_holds_one_model_and_not_its_neighbours(tmp_path: Path) -> None:
    go_together(replace(MINI, steps=2), tmp_path, seeds=(0, 1, 2))
    go(replace(MINI, steps=2), tmp_path / "alone")
    alone = (tmp_path / "alone" / "state.pt").stat().st_size
    assert (tmp_path / "s2" / "state.pt").stat().st_size == pytest.approx(alone, rel=0.05)


def test_runs_at_different_steps_first_catch_up(tmp_path: Path, after: Callable[..., None]) -> None:
    """A kill between two saves, or a seed trained before the others, must not keep them from being trained together."""
    seen: list[tuple[int, tuple[int, ...]]] = []
    go(replace(MINI, seed=2), tmp_path / "s2", log_every=4)
    with pytest.MonkeyPatch.context() as patch:
        original = Trainer.step

        def until_ten(self: Trainer) -> None:
            original(self)
            if self.steps_done == 10:
                signal.raise_signal(signal.SIGINT)

        patch.setattr(Trainer, "step", until_ten)
        go(replace(MINI, seed=1), tmp_path / "s1", log_every=4)
    finished = (tmp_path / "s2" / "model.safetensors").read_bytes()
    for at in range(1, 21):
        after(at, lambda run: seen.append((run.steps_done, run.seeds)))
    assert go_together(MINI, tmp_path, seeds=(0, 1, 2), log_every=4).step == 20
    assert seen == [(step, (0,)) for step in range(1, 11)] + [(step, (0, 1)) for step in range(11, 21)]
    assert (tmp_path / "s2" / "model.safetensors").read_bytes() == finished
    for name in ("s0", "s1", "s2"):
        assert load_state(tmp_path / name / "state.pt")["step"] == 20
        assert [entry["step"] for entry in lines(tmp_path / name)] == [4, 8, 12, 16, 20]


def test_states_that_cannot_be_stacked_are_refused() -> None:
    ahead, behind = trainer(MINI), trainer(MINI)
    ahead.step()
    with pytest.raises(LetgoError, match="one state each, all of the same step"):
        together(MINI, (0, 1)).restore(ahead.state(), behind.state())
    old = {**behind.state(), "optimizer": {0: {}}}
    with pytest.raises(LetgoError, match="written by another version; start from its weights with --init"):
        behind.restore(old)


def test_of_stacked_runs_the_one_that_explodes_is_named(tmp_path: Path, after: Callable[..., None]) -> None:
    after(20, lambda run: run.flat.data[1, 3].fill_(math.nan))
    with pytest.raises(LetgoError, match=r"no longer finite at step 20; .*s7 keeps what was saved before"):
        go_together(MINI, tmp_path, seeds=(0, 7))
    assert [load_state(tmp_path / name / "state.pt")["step"] for name in ("s0", "s7")] == [0, 0]


def test_each_stacked_model_draws_from_its_own_instances() -> None:
    """All of them in 500 draws from 32, but for odds of 1e-5."""
    sets = [instances(replace(GRAPHS, seed=seed)) for seed in (0, 1)]
    _, _, context = TrainingData.of(sets, "data", CPU).draw(1000)
    assert context is not None
    own = [{tuple(graph.flatten().tolist()) for graph in part.context} for part in sets if part.context is not None]
    assert own[0] != own[1]
    for model in (0, 1):
        assert {tuple(graph.flatten().tolist()) for graph in context[model::2]} == own[model]


def test_symmetries_train_on_every_image_of_an_instance_and_only_where_there_are_some(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = {}

    def note(config: Config, instances: Callable[[], Problem], *rest: Any) -> NoReturn:
        seen[config.name] = instances()
        raise LetgoError("enough")

    monkeypatch.setattr("letgo.train.train", note)
    words = ["--boards", "2", "--out", str(tmp_path / "run"), "--device", "cpu"]
    for name in ("maze", "maze-symmetries"):
        assert main(["train", name, *words]) == 2
    assert torch.equal(seen["maze-symmetries"].solution[::8], seen["maze"].solution)
    assert len(seen["maze-symmetries"]) == 16
    capsys.readouterr()
    assert main(["train", "sudoku-mini", "--symmetries", *words]) == 2
    assert "sudoku knows no symmetries to train on; leave --symmetries out" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
