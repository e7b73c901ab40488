"""Folders of train, valid and test files, Sudoku-Extreme by source, and the packs made of them."""

from __future__ import annotations

import gzip
import importlib.util
import sys
from dataclasses import replace
from itertools import islice, permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from letgo import tasks
from letgo.cli import main
from letgo.data.source import source_of
from letgo.errors import LetgoError
from letgo.presets import PRESETS
from letgo.tasks import Problem

HEADER = "source,question,answer,rating"
QUESTION = "2..1....5...8......7.....4.1..............93.8...5...2........8.34..9....9......."
ANSWER = "286194375945837261371562849123976584457218936869453712712345698534689127698721453"
LABELS = [str.maketrans("123456789", "".join(p)) for p in islice(permutations("123456789"), 2000)]
EXTREME = tasks.get("sudoku-extreme")
MADE_UP = {
    "puzzles5_forum_hardest_1905_11+": 100,
    "generated_vicinity": 100,
    "generated_unbiased_like": 100,
    "generated_kaggle_like": 20,
    "puzzles2_17_clue": 20,
}
REAL = {
    "puzzles4_forum_hardest_1905": 100,
    "01_file1": 50,
    "puzzles1_unbiased": 46,
    "puzzles0_kaggle": 5,
    "puzzles2_17_clue": 3,
}


def rows(first: int, **sources: int) -> list[str]:
    """One puzzle with its digits renamed, differently in each row from number `first` on."""
    names = [name for name, count in sources.items() for _ in range(count)]
    labels = LABELS[first : first + len(names)]
    return [f"{n},{QUESTION.translate(t)},{ANSWER.translate(t)},1" for n, t in zip(names, labels, strict=True)]


def write(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(exist_ok=True)
    text = "".join(f"{line}\n" for line in [HEADER, *lines]).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)


def numbers(problem: Problem) -> list[int]:
    """Which renaming each row was made with."""
    known = {ANSWER.translate(t): i for i, t in enumerate(LABELS)}
    return [known[text] for text in EXTREME.format(problem.solution, problem)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "d" / "train.csv.gz", rows(0, **MADE_UP))
    write(tmp_path / "d" / "valid.csv.gz", rows(500, a=60))
    write(tmp_path / "d" / "test.csv", rows(600, a=80))
    return tmp_path / "d"


@pytest.mark.fast
def test_each_split_comes_from_its_own_file(folder: Path) -> None:
    assert set(numbers(source_of(EXTREME, folder).draw("test", None, 50, 0))) <= set(range(600, 680))
    assert set(numbers(source_of(EXTREME, folder).draw("test", "test", 80, 0))) == set(range(600, 680))
    assert set(numbers(source_of(EXTREME, folder).draw("test", "valid", 50, 0))) <= set(range(500, 560))
    # validation takes what there is, and is never test, whatever the regime's name
    assert set(numbers(source_of(EXTREME, folder).draw("valid", None, 99, 0))) == set(range(500, 560))
    with pytest.raises(LetgoError, match="holds 80 instances, fewer than --count 81"):
        source_of(EXTREME, folder).draw("test", None, 81, 0)


def test_the_same_seed_gives_the_same_instances_from_a_folder_and_its_file(folder: Path) -> None:
    first, again, other, file = (
        numbers(source_of(EXTREME, data).draw("test", None, 40, seed))
        for seed, data in ((3, folder), (3, folder), (4, folder), (3, folder / "test.csv"))
    )
    assert first == again == file
    assert first != other


def test_rows_with_made_up_sources_are_drawn_by_the_shares_of_sudoku_extreme(folder: Path) -> None:
    for data in (folder, folder / "train.csv.gz"):
        drawn = np.array(numbers(source_of(EXTREME, data).training(199, 0)))
        groups = np.bincount(np.digitize(drawn, [200, 300, 320]))
        assert groups.tolist() == [146, 46, 5, 2]  # .73, .23, .023 and .012 of .995, rounded to add up to 199


def test_real_files_and_prepared_ones_are_taken_whole(folder: Path, tmp_path: Path) -> None:
    write(tmp_path / "real.csv", rows(0, **REAL))
    problem = source_of(EXTREME, tmp_path / "real.csv").training(10, 0)
    assert numbers(problem) == list(range(204))
    # one group is missing, so the shares cannot be kept
    write(tmp_path / "part.csv", rows(0, generated_vicinity=7))
    assert len(source_of(EXTREME, tmp_path / "part.csv").training(3, 0)) == 7
    # with random masks (the task sudoku) only the boards matter
    assert len(source_of(tasks.get("sudoku"), folder).training(10, 0)) == 340


@pytest.mark.parametrize("name", ["sudoku-extreme", "sudoku"])
def test_without_a_validation_file_the_end_of_training_is_held_out(tmp_path: Path, name: str) -> None:
    write(tmp_path / "hub" / "train.csv", rows(0, **REAL))
    write(tmp_path / "hub" / "test.csv", rows(600, a=5))
    task = tasks.get(name)
    train = numbers(source_of(task, tmp_path / "hub").training(10, 0))
    valid = numbers(source_of(task, tmp_path / "hub").split("valid"))
    assert (train, valid) == (list(range(184)), list(range(184, 204)))  # a tenth of 204 rows
    assert numbers(source_of(task, tmp_path / "hub").split("test")) == list(range(600, 605))
    file = tmp_path / "hub" / "train.csv"  # the file alone is no other training set
    assert numbers(source_of(task, file).training(10, 0)) == train
    assert [numbers(source_of(task, file).split(split)) for split in ("train", "valid")] == [train, valid]
    assert numbers(source_of(task, file).split("test")) == list(range(204))


def test_a_folder_without_the_file_says_what_it_expected(tmp_path: Path) -> None:
    for split in ("train", "valid", "test"):
        with pytest.raises(LetgoError, match=rf"no file for {split} in it; expected one of {split}\.npz, {split}\.csv"):
            source_of(EXTREME, tmp_path).split(split)
    with pytest.raises(LetgoError, match="the hub has no data set for latin"):
        source_of(tasks.get("latin"), "hub").split("test")


def test_sudoku_extreme_trains_validates_and_is_measured_from_one_folder(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    short = replace(PRESETS["sudoku-extreme-baseline"], sample_steps=5)  # 1000 steps would take a while here
    monkeypatch.setitem(PRESETS, "sudoku-extreme-baseline", short)
    data = ["--data", str(folder), "--device", "cpu"]
    run = str(tmp_path / "run")
    train = ["train", "sudoku-extreme-baseline", "--out", run, "--steps", "1", "--batch", "2", "--boards", "50"]
    assert main([*train, "--validate", "1", *data]) == 0
    assert "validation, Euler, n=1" in capsys.readouterr().err
    assert main(["evaluate", run, "--rule", "ddpm", "--count", "2", "--steps", "2", "--regime", "valid", *data]) == 0
    assert main(["train", "sudoku-extreme", "--out", str(tmp_path / "other"), "--device", "cpu"]) == 2
    assert "give --data FOLDER" in capsys.readouterr().err


def tool(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, Path(__file__).parents[1] / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_packs_give_the_instances_of_their_originals(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder / "train.csv.gz", rows(0, **REAL))
    pack = tool("pack")
    monkeypatch.setattr(sys, "argv", ["pack.py", str(tmp_path / "packs"), "sudoku-extreme", "--data", str(folder)])
    assert pack.main() == 0
    made = tmp_path / "packs" / "sudoku-extreme"
    assert numbers(source_of(EXTREME, made).training(10, 0)) == list(range(204))
    for regime in ("valid", "test"):
        packed, original = (source_of(EXTREME, data).draw("test", regime, 40, 2) for data in (made, folder))
        assert torch.equal(packed.solution, original.solution)
        assert torch.equal(packed.given, original.given)
    monkeypatch.setattr(sys, "argv", ["pack.py", str(tmp_path / "more"), "sudoku-extreme"])
    assert pack.main() == 2
    assert "--data FOLDER" in capsys.readouterr().err
