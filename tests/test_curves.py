"""Losses for other programs and for the eye, and words for a shell."""

from __future__ import annotations

import csv
import subprocess
import sys
import types
from pathlib import Path
from xml.etree import ElementTree

import pytest

import letgo
from letgo.cli import main
from letgo.errors import LetgoError
from letgo.training.curves import draw_losses, read_log, tensorboard_log, write_csv

WORDS = ["train", "sudoku-mini", "--steps", "4", "--batch", "2", "--boards", "8", "--log-every", "1", "--device", "cpu"]


def test_the_losses_of_a_run_are_a_picture_and_a_csv(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = tmp_path / "run"
    assert main([*WORDS, "--validate", "0", "--log", "csv", "--out", str(out)]) == 0
    rows = read_log(out)
    assert [row["step"] for row in rows] == [1, 2, 3, 4]
    with (out / "metrics.csv").open() as file:
        read = list(csv.DictReader(file))
    assert [{name: float(text) for name, text in row.items()} for row in read] == rows
    lines = [*ElementTree.parse(out / "loss.svg").iter("{http://www.w3.org/2000/svg}polyline")]
    assert len(lines) == 3  # the loss and its two terms
    heights = [float(pair.split(",")[1]) for pair in lines[0].attrib["points"].split()]
    losses = [row["loss"] for row in rows]
    assert sorted(range(4), key=lambda i: -losses[i]) == sorted(
        range(4), key=lambda i: heights[i]
    )  # the larger, the higher
    assert f"the loss by step: {out / 'loss.svg'}, {out / 'metrics.csv'}" in capsys.readouterr().err


def test_a_hook_sees_every_line_of_the_log(tmp_path: Path):
    seen = []
    options = {"steps": 4, "batch": 2, "boards": 8, "log_every": 2, "device": "cpu", "validate": 0}
    run = letgo.train("sudoku-mini", tmp_path, on_log=lambda *line: seen.append(line), **options)
    assert [(owner.folder, step) for owner, step, _ in seen] == [(tmp_path, 2), (tmp_path, 4)]
    assert [metrics["loss"] for _, _, metrics in seen] == [row["loss"] for row in read_log(run.folder)]
    assert draw_losses(tmp_path / "nowhere") is None
    assert write_csv(tmp_path).read_text().startswith("step,loss,")


def test_tensorboard_is_asked_for_by_name(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(LetgoError, match="pip install tensorboard"):
        tensorboard_log()


def test_a_run_writes_one_file_for_tensorboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Of tensorboard itself only the three calls are here; it is no package of the tests."""
    written: dict[str, list[tuple[str, float, int]]] = {}

    class SummaryWriter:
        def __init__(self, folder: str):
            assert folder not in written, "a second writer is a second file"
            self.lines = written[folder] = []

        def add_scalar(self, name: str, value: float, step: int) -> None:
            self.lines.append((name, value, step))

        def flush(self) -> None:
            pass

    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", types.SimpleNamespace(SummaryWriter=SummaryWriter))
    assert main([*WORDS, "--validate", "0", "--log", "tensorboard", "--seeds", "0,1", "--out", str(tmp_path)]) == 0
    assert set(written) == {str(tmp_path / seed / "tensorboard") for seed in ("s0", "s1")}
    for seed in ("s0", "s1"):
        losses = [
            (value, step) for name, value, step in written[str(tmp_path / seed / "tensorboard")] if name == "loss"
        ]
        assert losses == [(row["loss"], row["step"]) for row in read_log(tmp_path / seed)]


def test_a_shell_completes_verbs_options_and_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out

    def completed(*words: str) -> list[str]:
        ask = f"COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; _letgo; echo ${{COMPREPLY[@]}}"
        return subprocess.run(
            ["bash", "-c", f"{script}\n{ask}"], capture_output=True, text=True, check=True
        ).stdout.split()

    assert completed("letgo", "so") == ["solve"]
    assert "sudoku-mini" in completed("letgo", "train", "sudoku-m")
    assert completed("letgo", "evaluate", "sudoku", "--rule", "twee") == ["tweedie"]
    assert completed("letgo", "complete", "run", "--coun") == ["--count"]
    assert main(["completion", "fish"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("complete -c letgo -n __fish_use_subcommand -f -a solve")
    for line in lines:  # fish reads on where a quote is not closed; an apostrophe in a text is \'
        assert line.replace(r"\'", "").count("'") % 2 == 0, line
