"""MNIST-Sudoku at 28x28: SRM's levels of clues, its file of boards, its pool of digits; a run at tiny size."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from digits import write_mnist
from refusals import fault

import letgo
from letgo.cli import main
from letgo.data import decoder
from letgo.data.source import source_of
from letgo.presets import PRESETS
from letgo.runs import read_json
from letgo.tasks import get

pytestmark = pytest.mark.fast


@pytest.fixture(scope="module")
def boards() -> np.ndarray:
    return source_of(get("mnist-sudoku")).training(60, 5).solution.numpy().reshape(60, 9, 9) + 1


def test_the_levels_are_srms() -> None:
    task = get("mnist-sudoku")
    assert task.regimes == ("hard", "medium", "easy")
    for level, (low, high) in {"hard": (0, 26), "medium": (27, 53), "easy": (54, 80)}.items():
        clues = source_of(task).draw("test", level, 600, 0).given.sum(1)
        assert (int(clues.min()), int(clues.max())) == (low, high)  # of 27 numbers one is missed with odds of 1e-9
    assert "choose hard, medium, easy" in fault(source_of(task).draw, "test", "21x", 1, 0)


def test_srms_file_is_cut_from_its_end(boards: np.ndarray, tmp_path: Path) -> None:
    np.save(tmp_path / "sudokus.npy", boards)
    source = source_of(get("mnist-sudoku"), tmp_path)
    parts = [source.split(split).solution.view(-1, 9, 9).numpy() + 1 for split in ("train", "valid", "test")]
    assert [len(part) for part in parts] == [48, 6, 6]
    assert np.array_equal(np.concatenate(parts), boards)
    drawn = source.draw("test", "hard", 4, 0)
    assert {tuple(b) for b in drawn.solution.tolist()} <= {tuple((b.flatten() - 1).tolist()) for b in boards[-6:]}
    assert drawn.given.sum(1).max() <= 26
    assert source.identity("test")["file"] == "sudokus.npy"
    assert len(source_of(get("mnist-sudoku"), tmp_path / "sudokus.npy").training(0, 0)) == 48


def test_boards_that_are_none_are_refused(boards: np.ndarray, tmp_path: Path) -> None:
    path = tmp_path / "sudokus.npy"

    def refusal(array: np.ndarray) -> str:
        np.save(path, array, allow_pickle=True)
        return fault(source_of(get("mnist-sudoku"), tmp_path).split, "test")

    assert "expected boards (n, 9, 9)" in refusal(boards[:, :8])
    assert "not an array of numpy" in refusal(np.array([{}]))
    wrong = boards.copy()
    wrong[3, 0, 0] = wrong[3, 0, 1]
    assert "board 4 breaks a rule" in refusal(wrong)
    assert "too few to cut" in refusal(boards[:9])
    path.write_bytes(b"\x93NUMPY\x01\x00")
    assert "not an array of numpy" in fault(source_of(get("mnist-sudoku"), path).split, "test")


def test_a_run_of_the_preset_by_its_own_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """4x4 cells of 28x28 pixels from a pool of 5 images a digit; Euler and Tweedie of the same weights."""
    mnist, small = write_mnist(tmp_path / "mnist", 12, 4), {"width": 16, "depth": 1, "heads": 2, "hidden": 16}
    config = PRESETS["mnist-sudoku-baseline"].changed(
        task_options={"box": 2}, codec_options={"size": 28, "pool": 5}, network_options=small, sample_steps=3
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoder, "LARGE_STEPS", 10)
        letgo.train(config, tmp_path / "r", digits=str(mnist), steps=2, batch=4, boards=8, validate=2, device="cpu")
    facts = read_json(tmp_path / "r" / "digits.json")
    assert (facts["pool"], facts["pool_accuracy"]["n"], facts["accuracy"]["n"]) == (5, 20, 16)
    codec = letgo.load(tmp_path / "r").codec
    assert len(codec.images.on(torch.device("cpu"))) == 20
    for rule in ("euler", "tweedie"):
        words = [
            "evaluate",
            str(tmp_path / "r"),
            "--rule",
            rule,
            "--regime",
            "hard",
            "--count",
            "3",
            "--json",
            "--quiet",
        ]
        assert main(words) == 0
        report = json.loads(capsys.readouterr().out)
        assert (report["task"], report["regime"], report["count"]) == ("mnist-sudoku", "hard", 3)


def test_the_preset_is_a_rectified_flow_on_784_pixels_a_cell() -> None:
    config = PRESETS["mnist-sudoku-baseline"]
    assert (config.path, config.objective, config.sample_steps) == ("linear", "simple", 500)
    assert config.build_codec().dim == 784
    assert sum(p.numel() for p in config.build_model().parameters()) == 1_023_248
