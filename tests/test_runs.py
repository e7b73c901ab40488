"""A run folder's files: what is written can be read, and what is damaged or foreign is refused in one clear line."""

from __future__ import annotations

import json
import os
import pickle
import random
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from refusals import fault as refusal

import letgo
from letgo.cli import main
from letgo.config import Config
from letgo.errors import LetgoError
from letgo.presets import PRESETS
from letgo.runs import (
    Run,
    load_model,
    load_state,
    load_weights,
    locate,
    locked,
    models,
    own_name,
    read_json,
    save_state,
    save_weights,
    shipped,
    write_json,
)
from letgo.runs.models import _shapes
from letgo.training.train import configured

MINI = replace(
    PRESETS["sudoku-mini"],
    network_options={"width": 16, "depth": 1, "heads": 2, "hidden": 32},
    batch=4,
    boards=16,
    steps=3,
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three steps of training."""
    return letgo.train(MINI, tmp_path_factory.mktemp("runs") / "run", keep=(2,), validate=0, device="cpu").folder


@pytest.fixture
def run(tmp_path: Path, trained: Path) -> Path:
    """A copy that a test may damage."""
    return shutil.copytree(trained, tmp_path / "run")


@pytest.mark.fast
def test_a_run_loads_as_the_network_that_was_saved(run: Path) -> None:
    config, network, folder = load_model(str(run))
    assert (config, folder) == (MINI, run)
    assert not network.training
    assert letgo.load(Run.load(run)).folder == run
    saved = load_state(run / "state.pt")["ema"]
    assert {name: value.tolist() for name, value in network.named_parameters()} == {
        name: value.tolist() for name, value in saved.items()
    }


def test_a_run_and_a_report_show_themselves_in_a_line(run: Path, tmp_path: Path) -> None:
    assert repr(Run.load(run)) == f"<Run 'sudoku-mini' in {run}: step 3 of 3>"
    options = {"steps": 4, "batch": 4, "boards": 8, "validate": 0, "device": "cpu", "max_seconds": 0.0}
    stopped = letgo.train("sudoku-mini", tmp_path / "new", **options)
    assert repr(stopped) == f"<Run 'sudoku-mini' in {tmp_path / 'new'}: step 0 of 4, stopped by time>"
    told = repr(letgo.evaluate("sudoku-mini", rule="tweedie", count=4, steps=1))
    assert told.startswith("<Report of sudoku-mini by tweedie in 1 steps: 0 of 4 valid [0, 0.4")


@pytest.mark.parametrize("share", [0.0, 0.5, 0.999])
def test_a_file_cut_short_is_refused(share: float, run: Path) -> None:
    for name in ("state.pt", "model.safetensors"):
        whole = (run / name).read_bytes()
        (run / name).write_bytes(whole[: int(share * len(whole))])
    message = refusal(lambda: load_state(run / "state.pt"))
    assert message.startswith(f"{run / 'state.pt'} is not a training state, or is cut short")
    assert "start again in another --out" in message
    assert "is not a safetensors file, or is cut short" in refusal(lambda: load_model(str(run)))


@pytest.mark.parametrize("seed", range(12))
def test_a_flipped_bit_is_found(seed: int, run: Path) -> None:
    """In the numbers, where neither torch nor safetensors would notice; and in shipped weights, by their card."""
    rng = random.Random(seed)
    state = load_state(run / "state.pt")
    for name, value in (("state.pt", state["raw"]["head.weight"]), ("model.safetensors", state["ema"]["head.weight"])):
        whole = bytearray((run / name).read_bytes())
        start = whole.index(value.numpy().tobytes())
        whole[start + rng.randrange(4 * value.numel())] ^= 1 << rng.randrange(8)
        (run / name).write_bytes(whole)
    assert "the checksum of" in refusal(lambda: load_state(run / "state.pt"))
    assert "model.safetensors is damaged: its checksum differs" in refusal(lambda: load_model(str(run)))


def test_a_flipped_bit_of_a_shipped_model_is_found(tmp_path: Path) -> None:
    folder = shutil.copytree(locate("sudoku-mini")[0], tmp_path / "model")
    load_model(str(folder))
    whole = bytearray((folder / "model.safetensors").read_bytes())
    whole[-1] ^= 1
    (folder / "model.safetensors").write_bytes(whole)
    assert "model.safetensors is damaged, or not what its card.json was written for" in refusal(
        lambda: load_model(str(folder))
    )


def test_foreign_files_are_refused(run: Path) -> None:
    (run / "model.safetensors").write_text("not weights at all, but long enough to look like something")
    assert "is not a safetensors file" in refusal(lambda: load_model(str(run)))
    (run / "state.pt").write_text("not a state")
    assert "is not a training state" in refusal(lambda: load_state(run / "state.pt"))
    torch.save({"step": 3, "model": torch.zeros(2)}, run / "state.pt")
    assert "is not a letgo training state" in refusal(lambda: load_state(run / "state.pt"))
    torch.save([1, 2], run / "state.pt")
    assert "is not a letgo training state" in refusal(lambda: load_state(run / "state.pt"))


class Malicious:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (os.environ["LETGO_TEST_TRACE"],)


@pytest.mark.parametrize("protocol", ["torch", "pickle"])
def test_a_state_with_code_in_it_is_refused_and_not_run(
    protocol: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LETGO_TEST_TRACE", str(tmp_path / "was-run"))
    if protocol == "torch":
        torch.save({"step": Malicious()}, run / "state.pt")
    else:
        (run / "state.pt").write_bytes(pickle.dumps({"step": Malicious()}))
    assert "is not a training state" in refusal(lambda: load_state(run / "state.pt"))
    assert not (tmp_path / "was-run").exists()


@pytest.mark.parametrize(
    ("file", "fault"),
    [("state.pt", b"nonsense"), ("config.json", b"{half"), ("config.json", b"[]"), ("state.pt", None)],
)
def test_a_damaged_run_costs_the_command_line_one_line_and_code_2(
    file: str, fault: bytes | None, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if fault is None:
        (run / "state.pt").unlink()
    else:
        (run / file).write_bytes(fault)
    words = ["train", "sudoku-mini", "--out", str(run)] if file != "config.json" else ["solve", "--model", str(run)]
    assert main(words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("letgo: ")
    assert captured.err.count("\n") == 1


@pytest.mark.fast
def test_missing_files_are_named(run: Path) -> None:
    (run / "model.safetensors").unlink()
    assert "model.safetensors is missing; train first" in refusal(lambda: load_model(str(run)))
    (run / "config.json").unlink()
    assert "config.json is missing" in refusal(lambda: load_model(str(run)))


def test_weights_that_do_not_fit_the_configuration_are_refused(run: Path) -> None:
    other = replace(MINI, network_options={"width": 32, "depth": 1, "heads": 2, "hidden": 32})
    write_json(run / "config.json", other.as_dict())
    assert "do not fit its config.json" in refusal(lambda: load_model(str(run)))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"flavour": 3}, "unknown flavour"),
        ({"task": "chess"}, "unknown task 'chess'"),
        ({"codec": "morse"}, "unknown codec 'morse'; choose one of one-hot, columns, bits, embedding"),
        ({"network": "cnn"}, "unknown network 'cnn'; choose one of transformer"),
        ({"network_options": {"wide": 3}}, "wide"),
        ({"codec_options": {"wide": 3}}, "wide"),
        ({"task_options": {"box": 9}}, "no Sudoku with boxes of side 9"),
    ],
)
def test_a_configuration_that_builds_nothing_is_refused_with_its_place(
    changes: dict[str, Any], reason: str, run: Path
) -> None:
    write_json(run / "config.json", {**MINI.as_dict(), **changes})
    message = refusal(lambda: load_model(str(run)))
    assert message.startswith(f"{run / 'config.json'}: ")
    assert reason in message


def test_what_is_no_configuration_is_refused_and_so_are_choices_that_it_cannot_make() -> None:
    for values in ([], None, "sudoku", 3, {}, {"name": "x"}, {**MINI.as_dict(), "flavour": 3}):
        assert "not a letgo configuration" in refusal(lambda: Config.from_dict(values))  # noqa: B023
    assert "unknown path 'zigzag'; choose one of cosine, linear" in refusal(replace(MINI, path="zigzag").build_path)
    assert "choose one of simple, self-correction" in refusal(replace(MINI, objective="hope").build_objective)


def test_every_preset_survives_json_and_builds_its_objects() -> None:
    for name, config in PRESETS.items():
        again = Config.from_dict(json.loads(json.dumps(config.as_dict())))
        assert again == config
        assert config.name == name
        network, codec = again.build_model(), again.build_codec()
        assert sum(p.numel() for p in network.parameters()) > 1000
        assert codec.dim >= 2
        again.build_path()
        again.build_objective()


@pytest.mark.fast
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"steps": -3}, "run: steps is -3; expected a number from 0"),
        ({"steps": "3"}, "run: steps is '3'; expected a whole number"),
        ({"learning_rate": 0.0}, "run: learning_rate is 0.0; expected a number above 0"),
        ({"masks": "rndom"}, "run: masks is 'rndom'; expected one of random, data"),
        ({"weights": "rwa"}, "run: weights is 'rwa'; expected one of ema, raw"),
        ({"batches": 3}, "unknown field of a configuration 'batches'; did you mean batch?"),
        (
            {"task_options": {"boxes": 2}},
            "unknown option 'boxes'; did you mean box? task 'sudoku' has none such; leave it",
        ),
        ({"codec_options": {"dim": 2}}, "unknown option 'dim'; codec 'one-hot' has none such; leave it out of codec_o"),
        ({"path_options": {"power": 2}}, "unknown option 'power'; path 'cosine' has none such"),
        ({"network_options": {"widht": 8}}, "unknown option 'widht'; network 'transformer' has none such"),
        ({"network_options": {"dim": 8}}, "unknown option 'dim'; network 'transformer' has none such"),
        ({"objective_options": {"rollout": 2}}, "unknown option 'rollout'; objective 'self-correction' has none such"),
    ],
)
def test_a_value_or_an_option_that_no_run_has_is_refused_in_python_too(changes: dict[str, Any], said: str) -> None:
    def build() -> None:
        config = configured(Config("run", "sudoku"), **changes)
        config.build_path()
        config.build_objective()
        config.build_model()

    assert refusal(build).startswith(said)


def test_kept_steps_are_listed_where_one_is_missing(run: Path) -> None:
    assert load_model(f"{run}@2")[2] == run
    (run / "checkpoints" / "notes.safetensors").write_text("not a step")
    assert refusal(lambda: load_model(f"{run}@7")) == f"{run} keeps no step 7; it has 2"


def test_names_that_stand_for_no_model_are_refused(tmp_path: Path) -> None:
    assert "unknown model or run folder 'nowhere'" in refusal(lambda: locate("nowhere"))
    assert "unknown model or run folder 'nowhere'" in refusal(lambda: locate("nowhere@100"))
    assert "unknown model or run folder" in refusal(lambda: locate("." * 5000))  # longer than a file name may be
    assert "config.json is missing" in refusal(lambda: load_model(str(tmp_path)))
    (tmp_path / "laptops").mkdir()
    (tmp_path / "laptops" / "config.json").touch()
    assert refusal(lambda: locate(f"{tmp_path}/laptop")).endswith(f"; did you mean {tmp_path}/laptops?")
    assert "did you mean" not in refusal(lambda: locate(f"{tmp_path}/nowhere/laptops"))


def test_a_preset_that_is_not_shipped_says_how_to_train_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "shipped", lambda: ["other"])
    message = refusal(lambda: locate("latin"))
    assert "`letgo train latin --out runs/latin`" in message
    assert "(shipped: other)" in message


def test_shipped_models_are_found_by_name_in_the_order_of_the_presets(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("sudoku.s1", "sudoku-baseline", "sudoku"):
        (tmp_path / "shipped").mkdir(exist_ok=True)
        (tmp_path / "shipped" / name).symlink_to(run)
    (tmp_path / "shipped" / "half").mkdir()
    monkeypatch.setattr(models, "resources", SimpleNamespace(files=lambda _: tmp_path))
    assert shipped() == ["sudoku", "sudoku-baseline", "sudoku.s1"]
    assert locate("sudoku") == (tmp_path / "shipped" / "sudoku", None)
    assert load_model("sudoku")[0] == MINI


def test_a_task_without_a_model_of_its_name_takes_the_first_that_is_shipped_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(models, "shipped", lambda: ["maze-muon", "maze-muon-baseline"])
    assert locate("maze")[0].name == own_name("maze") == "maze-muon"
    assert locate("maze-baseline")[0].name == own_name("maze-baseline") == "maze-muon-baseline"
    monkeypatch.setattr(models, "shipped", lambda: ["maze-muon", "maze"])
    assert locate("maze")[0].name == "maze"
    monkeypatch.setattr(models, "shipped", lambda: ["sudoku-mini"])
    with pytest.raises(LetgoError, match="no model 'maze' is shipped"):
        locate("maze")


def test_what_is_shipped_loads() -> None:
    for name in shipped():
        config, _, _ = load_model(name)
        assert config.name == name.partition(".")[0]


def test_a_model_of_the_hub_is_a_folder_like_any_other(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def download(identifier: str, **_: object) -> str:
        if identifier != "me/mine":
            raise ConnectionError("no route to host\nand a long story")
        return str(run)

    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(snapshot_download=download))  # type: ignore[arg-type]
    assert load_model("hub:me/mine")[0] == MINI
    assert refusal(lambda: locate("hub:no/one")) == "cannot fetch hub:no/one: no route to host; are you online?"
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert refusal(lambda: locate("hub:me/mine")) == "hub:me/mine needs the hub extra: pip install 'letgo[hub]'"


def test_weights_are_written_in_the_asked_precision_and_read_as_float32(tmp_path: Path) -> None:
    weights = {"a.x": torch.tensor([1.0, 2.0 + 2**-20]), "b.x": torch.zeros(2, 3).T}
    save_weights(tmp_path / "full", weights)
    save_weights(tmp_path / "half", weights, torch.float16)
    assert (tmp_path / "half").stat().st_size < (tmp_path / "full").stat().st_size
    assert torch.equal(load_weights(tmp_path / "full")["a.x"], weights["a.x"])
    half = load_weights(tmp_path / "half", "a.")
    assert list(half) == ["x"]
    assert half["x"].dtype == torch.float32
    assert half["x"].tolist() == [1.0, 2.0]


def test_a_write_that_fails_leaves_the_old_file_and_no_litter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "config.json"
    write_json(target, {"old": 1})
    (tmp_path / "plain").write_text("{}")
    assert target.stat().st_mode == (tmp_path / "plain").stat().st_mode  # as readable as any other
    (tmp_path / "plain").unlink()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    for call in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, call, full)
            assert "No space left on device" in refusal(lambda: write_json(target, {"new": 2}))
            assert "No space left on device" in refusal(lambda: save_state(target, {"new": 2}))
            assert "No space left on device" in refusal(lambda: save_weights(target, {"new": torch.zeros(2)}))
        assert read_json(target) == {"old": 1}
        assert [p.name for p in tmp_path.iterdir()] == ["config.json"]


def test_a_run_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    assert str(tmp_path / "file") in refusal(lambda: write_json(tmp_path / "file" / "config.json", {}))
    for path in (tmp_path / "file", tmp_path / "file" / "run"):
        assert refusal(locked(path).__enter__).startswith(f"{path}: ")
    assert "none/metrics.jsonl: No such file" in refusal(lambda: Run(tmp_path / "none", MINI).log(1, {}, 1.0))


def test_a_locked_folder_is_refused_at_once_and_free_afterwards(tmp_path: Path) -> None:
    for _ in range(2):
        with locked(tmp_path / "run", wait=False):
            message = refusal(locked(tmp_path / "run", wait=False).__enter__)
            assert message == (
                f"another process is training or tuning in {tmp_path / 'run'}; "
                "wait until it ends, or choose another --out"
            )
            with locked(tmp_path / "other", wait=False):
                write_json(tmp_path / "run" / "config.json", {})
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["config.json"]
    assert not (tmp_path / "other").exists()  # nothing came into it


def test_a_disk_that_knows_no_locks_is_used_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fcntl = pytest.importorskip("fcntl")

    def unable(*_: object) -> None:
        raise OSError(9, "Bad file descriptor")

    monkeypatch.setattr(fcntl, "flock", unable)
    with locked(tmp_path, wait=False), locked(tmp_path, wait=False):
        pass
    monkeypatch.setitem(sys.modules, "fcntl", None)
    with locked(tmp_path, wait=False), locked(tmp_path, wait=False):
        pass


@pytest.mark.fast
@pytest.mark.parametrize("name", ["sudoku-mini", "connectivity", "sudoku-d3pm", "sudoku-flow-velocity-baseline"])
def test_a_networks_shapes_are_known_before_a_weight_is_drawn(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without numbers, normal draws import the compiler and grids import sympy, at the start of every command."""
    config = PRESETS[name]
    expected = {key: value.shape for key, value in config.build_model().state_dict().items()}

    def slow(*_: object) -> None:
        raise NotImplementedError

    monkeypatch.setattr(torch.nn.init, "_no_grad_normal_", slow)
    monkeypatch.setattr(torch, "_check_type", slow)
    assert _shapes(config) == expected


@pytest.mark.fast
def test_a_network_of_ones_own_may_name_what_it_calls_grids_by(monkeypatch: pytest.MonkeyPatch) -> None:
    class Named(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("grid", torch.linspace(0, 1, steps=5))
            self.register_buffer("scale", torch.logspace(start=0, end=1, steps=3, base=2.0))
            self.weight = torch.nn.Parameter(torch.empty(2, 3).normal_(mean=0.0, std=1.0))

    monkeypatch.setattr("letgo.config.Config.build_model", lambda config: Named())
    assert _shapes(PRESETS["sudoku-mini"]) == {"weight": (2, 3), "grid": (5,), "scale": (3,)}
