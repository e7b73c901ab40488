"""What is shipped says what it is: cards, weights and result files agree, as tools/ship.py wrote them."""

from __future__ import annotations

import importlib.util
import json
import shlex
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

import letgo
from letgo.cli import main
from letgo.config import Config
from letgo.errors import LetgoError
from letgo.presets import PRESETS
from letgo.reproduce.store import Store
from letgo.runs import Run, load_state, load_weights, read_json, shipped, write_json

ROOT = Path(__file__).parent.parent
SHIPPED = ROOT / "src" / "letgo" / "shipped"
SMALL = {"width": 16, "depth": 1, "heads": 2, "hidden": 32}
MINI = replace(PRESETS["sudoku-mini"], network_options=SMALL, batch=4, boards=16, steps=3)


@pytest.fixture
def ship(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The tool, writing to folders of the test."""
    spec = importlib.util.spec_from_file_location("ship", ROOT / "tools" / "ship.py")
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    monkeypatch.setattr(tool, "SHIPPED", tmp_path / "shipped")
    monkeypatch.setattr(tool, "RESULTS", tmp_path / "results")
    write_json(tmp_path / "results" / "training.json", {"older": {"steps": 1}, "note": "the last word"})
    return tool


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Three steps of training, and a report of them."""
    out = tmp_path / "run"
    letgo.train(MINI, out, keep=(2,), log_every=1, validate=0, device="cpu")
    return out


def measured(run: Path, *more: str) -> Path:
    """A list with one report of `letgo evaluate`."""
    out = run.parent / "report.json"
    words = ["evaluate", str(run), "--rule", "tweedie", "--count", "4", "--steps", "3", "--quiet", *more]
    assert main([*words, "--out", str(out)]) == 0
    report = {**read_json(out), "command": " ".join(["letgo", *words, "--out", str(out)])}
    write_json(run.parent / "reports.json", [report])
    return run.parent / "reports.json"


def shipping(ship: Any, monkeypatch: pytest.MonkeyPatch, run: Path, reports: Path, *more: str) -> dict[str, Any]:
    words = [str(run), "mini", str(reports), "--trained-on", "one CPU core", "--summary", "small", "--limit", "many"]
    monkeypatch.setattr(sys, "argv", ["ship.py", *words, *more])
    ship.main()
    return read_json(ship.SHIPPED / "mini" / "card.json")


@pytest.mark.parametrize("name", shipped())
def test_every_card_says_what_its_configuration_and_its_weights_are(name: str, ship: Any) -> None:
    card = read_json(SHIPPED / name / "card.json")
    config = Config.from_dict(read_json(SHIPPED / name / "config.json"))
    text = (SHIPPED / name / "README.md").read_text()
    for part in (card["licence"], card["data"], card["recipe"], f"{card['steps']:,} steps", f"results/{name}.json"):
        assert part in text
    assert (card["data"], card["licence"]) == (ship.data_text(config), ship.licence(config))
    assert (card["recipe"], card["weights"].lower()) == (ship.recipe(config), config.weights)
    assert sum(w.numel() for w in load_weights(SHIPPED / name / "model.safetensors").values()) == card["parameters"]
    reports = Store(ROOT / "results").reports(name)
    assert card["generation_rule"] == ship.best_from_nothing(SHIPPED / name, reports)
    assert all(report["model"] == name for report in reports)
    ship.RESULTS = ROOT / "results"
    assert card["figures"] == ship.figures(reports, config.sample_rule)
    usual = {"ddpm", "tweedie"} if config.codec != "masked" else {"ancestral", "confidence", "remask", "remdm"}
    rules = usual if config.sample_rule is None else {config.sample_rule}
    assert {figure["rule"] for figure in card["figures"]} == rules
    assert {key: card[key] for key in ("commands", "again", "again_seen", "made_note")} == ship.again(name, config)
    assert text == ship.card_text(card, config, name)


def test_the_line_that_trains_a_model_again_gives_its_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    for name in shipped():
        card, config = (read_json(SHIPPED / name / f"{kind}.json") for kind in ("card", "config"))
        if card["again"]:
            capsys.readouterr()
            assert main([*card["again"].split()[1:], "--dry-run", "--quiet"]) == 0
            told = {**json.loads(capsys.readouterr().out), "weights": config["weights"]}
            if "in one line instead of" in card["again_seen"]:  # which has a schedule of its own
                told |= {key: config[key] for key in ("steps", "warmup", "decay", "init")}
            config.get("codec_options", {}).pop("source", None)  # of digits: known when they have been read
            assert told == Config.from_dict(config).as_dict(), name


def test_the_lines_that_made_a_model_follow_from_one_another() -> None:
    """Pasted in order they end in the model's own run: what one starts from is shipped or made before it."""
    for name in shipped():
        made: list[str] = []
        for line in read_json(SHIPPED / name / "card.json")["commands"]:
            words = shlex.split(line)
            given = dict(pairwise(words))
            assert given.get("--init") in (None, *made, *shipped()), line
            out = given["--out"]
            made += [out, *(f"{out}/s{seed}" for seed in given.get("--seeds", "").split(",") if seed)]
        assert out in (f"runs/{name}", f"runs/{name}/s0"), name


def test_all_models_together_are_under_40_megabytes() -> None:
    assert sum(path.stat().st_size for path in SHIPPED.rglob("*") if path.is_file()) < 40e6


def test_only_the_models_of_sudoku_extreme_owe_something_to_public_lists(ship: Any) -> None:
    for name, config in PRESETS.items():
        generated = "no third-party data" in ship.licence(config)
        assert generated == (config.task != "sudoku-extreme"), name
        assert ("public lists" in ship.data_text(config)) != generated
        assert f"{config.boards:,}" in ship.data_text(config)


def test_a_command_loses_what_belongs_to_one_machine(ship: Any) -> None:
    command = "letgo evaluate runs/x --rule ddpm --data here/packs/sudoku-extreme --count 9 --out r.json --passes 10"
    told = ship.public(command, "runs/x", "sudoku-extreme")
    assert told == "letgo evaluate sudoku-extreme --rule ddpm --data sudoku-extreme --count 9 --passes 10"
    told = ship.public("letgo reproduce solve --tasks maze --data maze=here/test.npz --models runs", "", "maze")
    assert told == "letgo reproduce solve --tasks maze --data maze=test.npz"


def test_a_run_becomes_a_model_that_loads_by_its_card(
    ship: Any, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reports, data = measured(run, "--passes", "2"), tmp_path / "test.npz"
    data.write_bytes(b"rows")
    (run / "model.safetensors").unlink()  # then the average of the state is shipped
    words = ["--command", "letgo train sudoku-mini --out run", "--note", "short", "--data", str(data)]
    card = shipping(ship, monkeypatch, run, reports, *words)
    ema = load_state(run / "state.pt")["ema"]
    for key, value in load_weights(ship.SHIPPED / "mini" / "model.safetensors").items():
        assert torch.equal(value, ema[key].half().float())
    assert (card["steps"], card["weights"], card["validation"]) == (3, "EMA", None)
    [report] = read_json(ship.RESULTS / "mini.json")
    assert (report["model"], report["training_steps"], report["objective"]) == ("mini", 3, "self-correction")
    assert report["weights"] == "fp32, before rounding to fp16"
    digest = "bc51e9e65d79e1c90ba544ab2eae1044ccdf8c1af7a559ba375cba4276f7d99e"  # printf rows | sha256sum
    assert report["data"] == {"file": "test.npz", "sha256": digest}
    assert report["command"].startswith("letgo evaluate mini --rule tweedie")
    assert "--out" not in report["command"]
    assert "raw ones were not compared on validation boards" in (ship.SHIPPED / "mini" / "README.md").read_text()
    training = read_json(ship.RESULTS / "training.json")
    assert list(training) == ["older", "mini", "note"]
    assert [line["step"] for line in training["mini"]["loss"]] == [3]
    facts = (training["mini"]["steps"], training["mini"]["precision"], training["mini"]["rate"])
    assert facts == (3, "fp32", "falls to 0 over the last 20%")
    assert main(["solve", str(ship.SHIPPED / "mini"), "--steps", "3", "--tries", "1", "1234341221434321"]) == 0
    assert capsys.readouterr().out.endswith("1234341221434321\n")


def test_generation_takes_the_rule_that_was_measured_best_with_the_models_own_settings(ship: Any, tmp_path: Path):
    (tmp_path / "config.json").write_text((SHIPPED / "sudoku-mini" / "config.json").read_text())
    (tmp_path / "model.safetensors").symlink_to(SHIPPED / "sudoku-mini" / "model.safetensors")
    measured = [("ddpm", "0", 0.3), ("em-decay", "0", 0.6), ("tweedie", "4", 0.9)]
    reports = [
        {"rule": r, "regime": regime, "steps": 50, "settings": {"sigma": 7.0} if r == "em-decay" else {},
         "validity": {"value": value}}
        for r, regime, value in measured
    ]  # fmt: skip
    assert ship.best_from_nothing(tmp_path, []) == "tweedie"
    assert ship.best_from_nothing(tmp_path, reports) == "ddpm"  # EM decay had a setting that the model does not have
    (tmp_path / "tune-em-decay.json").write_text(json.dumps({"best": {"sigma": 7.0}}))
    assert ship.best_from_nothing(tmp_path, reports) == "em-decay"


def test_a_checkpoint_that_tuning_went_back_to_is_shipped_with_its_own_step(
    ship: Any, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Run.load(run).export(2, "raw", {"checkpoint": {"step": 2}})
    reports = measured(run)
    card = shipping(ship, monkeypatch, run, reports)
    assert (card["steps"], card["run_steps"], card["weights"]) == (2, 3, "raw")
    assert read_json(ship.RESULTS / "mini.json")[0]["training_steps"] == 2
    text = (ship.SHIPPED / "mini" / "README.md").read_text()
    assert "2 steps of a run of 3 in" in text
    assert "raw weights\n  (chosen on validation boards)" in text
    assert "mini" not in read_json(ship.RESULTS / "training.json")
    (run / "model.safetensors").unlink()
    with pytest.raises(SystemExit):
        shipping(ship, monkeypatch, run, reports)


def test_sudoku_extreme_solves_a_newspaper_puzzle_offline(capsys: pytest.CaptureFixture[str]) -> None:
    puzzle = "53..7....6..195....98....6.8...6...34..8.3..17...2...6.6....28....419..5....8..79"
    assert main(["solve", "sudoku-extreme", puzzle, "--steps", "50", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["board"] == "534678912672195348198342567859761423426853791713924856961537284287419635345286179"


def test_a_model_of_digits_ships_without_its_training_digits(ship: Any, tmp_path: Path) -> None:
    from digits import write_mnist

    config = replace(PRESETS["sudoku-mini-digits"], network_options=SMALL)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("letgo.data.decoder.STEPS", {8: 3})
        more: dict[str, Any] = {"steps": 1, "batch": 2, "boards": 4, "validate": 0, "device": "cpu"}
        run = letgo.train(config, tmp_path / "run", digits=str(write_mnist(tmp_path / "mnist", 12, 4)), **more)
    named = Config.from_dict(read_json(run.folder / "config.json"))
    assert "8x8 images of mnist's training digits" in ship.data_text(named)
    assert "CC BY-SA 3.0" in ship.licence(named)
    for name, content in ship.without_training_digits(run.folder).items():
        (tmp_path / name).write_bytes(content)
    assert len(named.build_codec(tmp_path, "test").images.on(torch.device("cpu"))) == 16
    with pytest.raises(LetgoError, match="holds other digits"):
        named.build_codec(tmp_path, "train")
    assert (tmp_path / "digits.safetensors").stat().st_size < (run.folder / "digits.safetensors").stat().st_size
