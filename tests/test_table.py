"""Rows of symbols without rules: a task whose instances are the rows of a file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from letgo import tasks
from letgo.data import source_of
from letgo.data.table import options_of, read_rows, table_of
from letgo.errors import LetgoError
from letgo.tasks.table import CHECKS, Table, load_check

ROWS = [[a, b, c] for a in ("red", "blue", "green one") for b in ("red", "blue", "green one") for c in ("x", "y")] * 3


@pytest.fixture
def file(tmp_path: Path) -> Path:
    lines = ["left,right,end", *(",".join(row) for row in ROWS)]
    (tmp_path / "mine.csv").write_text("".join(f"{line}\n" for line in lines))
    return tmp_path / "mine.csv"


def fault(call: Any, *args: Any, **options: Any) -> str:
    with pytest.raises(LetgoError) as caught:
        call(*args, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_task_is_made_of_a_file_and_remade_without_it(file: Path):
    task = table_of(file)
    assert (task.cells, task.values) == (3, ("blue", "green one", "red", "x", "y"))
    file.unlink()
    assert tasks.get("table", **json.loads(json.dumps(options_of(task)))) == task


def test_every_row_is_trained_on_or_held_out(file: Path):
    task = table_of(file)
    source = source_of(task, file)
    parts = {split: source.split(split) for split in ("train", "valid", "test")}
    assert {split: len(part) for split, part in parts.items()} == {"train": 50, "valid": 2, "test": 2}
    together = torch.cat([part.solution for part in parts.values()])
    assert sorted(task.format(together, parts["train"])) == sorted(",".join(row) for row in ROWS)
    assert source.training(9, 0).solution.equal(parts["train"].solution)
    test = source.draw("test", "2", 2, 0)
    assert (test.given.sum(1) == 2).all()
    assert len(source.validation(2, 0)) == 2
    assert task.validate(test.solution, test).all()
    assert "table draws no instances of its own; give --data FILE" in fault(source_of(task).draw, "test", None, 1, 0)


@pytest.mark.fast
def test_text_is_words_with_commas_or_characters_side_by_side(file: Path):
    task = table_of(file)
    problem = task.parse("red, .,y")
    assert (task.format_clues(problem), problem.given.tolist()) == (["red,.,y"], [[True, False, True]])
    assert fault(task.parse, "red,pink,y").startswith("cell 2 is 'pink'; expected one of blue, green one, red, x, y")
    assert fault(task.parse, "red,y") == "expected 3 cells, got 2; '.' for a blank"
    short = Table(4, ("a", "b"))
    assert short.format_clues(short.parse("ab.a")) == ["ab.a"]
    assert (short.look.rows, short.look.columns, replace(short, grid=(1, 4)).look.columns) == (2, 2, 4)


def test_the_three_kinds_of_file_hold_the_same_rows(tmp_path: Path):
    numbers = np.random.default_rng(0).integers(0, 12, (30, 4))
    np.savez(tmp_path / "a.npz", numbers)
    texts = [[str(n) for n in row] for row in numbers.tolist()]
    (tmp_path / "a.csv").write_text("".join(",".join(row) + "\n" for row in texts))
    (tmp_path / "a.txt").write_text("".join(" ".join(row) + "\n" for row in texts))
    assert read_rows(tmp_path / "a.npz") == read_rows(tmp_path / "a.txt") == read_rows(tmp_path / "a.csv") == texts
    assert table_of(tmp_path / "a.npz").values == tuple(map(str, range(12)))  # by size, not 0, 1, 10, 11, 2


def test_a_check_of_ones_own_says_what_is_valid_and_a_run_folder_does_not_run_it(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("letgo.tasks.table.CHECKS", CHECKS.copy())
    (tmp_path / "my.py").write_text("def different(row):\n    return row[0] != row[1]\n\nTWO = 2\n")
    place = f"{tmp_path / 'my.py'}:different"
    task = table_of(file, valid=place)
    problem = source_of(table_of(file), file).split("train")
    assert fault(task.validate, problem.solution, problem).endswith("give --valid FILE.py:different")
    load_check(place)
    expected = [text.split(",")[0] != text.split(",")[1] for text in task.format(problem.solution, problem)]
    assert task.validate(problem.solution, problem).tolist() == expected
    assert "no function" in fault(load_check, f"{tmp_path / 'my.py'}:TWO")
    assert "no such file" in fault(load_check, "your.py:check")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "no rows in it"),
        ("a,b\na,b,a\n", "row 2: 3 values after rows of 2"),
        ("a,b\nb,\n", "row 2: a blank; a table to learn from has complete rows"),
        ("a,b\nb,a\na,b\nb,a\n", "4 rows are too few to hold some out"),
    ],
)
def test_a_bad_table_is_refused_in_one_line(tmp_path: Path, content: str, expected: str):
    (tmp_path / "t.csv").write_text(content)
    assert expected in fault(lambda: source_of(table_of(tmp_path / "t.csv"), tmp_path / "t.csv").split("train"))


def test_a_row_of_another_table_is_refused_by_its_number(file: Path):
    other = Table(3, ("red", "blue"))
    assert "mine.csv, row 1: cell 3 is 'x'; expected one of red, blue" in fault(source_of(other, file).split, "train")


def test_the_page_draws_a_table(file: Path):
    pytest.importorskip("fastapi")
    from letgo.app.catalog import describe
    from letgo.config import Config
    from letgo.solver import Solver

    task = table_of(file)
    small = {"width": 16, "depth": 1, "heads": 2, "hidden": 16}
    config = Config("mine", "table", options_of(task), network_options=small, sample_steps=5)
    solver = Solver(config, config.build_model())
    card = describe("mine", solver)
    assert (card.rows, card.columns, card.letters, card.separator) == (1, 3, list(task.values), ",")
    assert (card.example.puzzle, card.regime.usual) == (".,.,.", 1)
    [answer] = solver.solve(["red,.,y"], steps=3)
    assert answer.board is not None
    assert answer.board.split(",")[0] == "red"


@pytest.mark.journey
def test_a_table_is_trained_measured_and_solved_by_the_doors_of_all_tasks(tmp_path: Path):
    """Rows of two equal halves; the network must put the second half there."""
    import letgo
    from letgo.config import Config

    rows = np.random.default_rng(0).choice(["a", "b", "c"], (400, 3))
    data = tmp_path / "twice.txt"
    data.write_text("".join("".join(row) * 2 + "\n" for row in rows.tolist()))
    task = table_of(data, grid=(2, 3))
    config = Config.for_task(task, task_options=options_of(task), steps=300, batch=64, decay=0.5)
    run = letgo.train(config, tmp_path / "run", data=str(data), device="cpu", validate=16)
    data.rename(tmp_path / "test.txt")  # a run folder needs no file
    report = letgo.evaluate(run, rule="tweedie", count=20, data=str(tmp_path / "test.txt"), device="cpu")
    assert (report.task, report.regime, report.count) == ("table", "random", 20)
    answers = letgo.load(run.folder).solve(["abc...", "...cca", "a.c.b."], steps=50)
    assert [answer.board for answer in answers] == ["abcabc", "ccacca", "abcabc"]
