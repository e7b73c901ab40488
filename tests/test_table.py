"""Rows of symbols without rules: a task whose instances are the rows of a file."""

from __future__ import annotations

import argparse
import io
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from refusals import fault

from letgo import tasks
from letgo.cli import main
from letgo.cli.complete import written
from letgo.config import Config
from letgo.data import source_of
from letgo.data.table import Look, TableRows, options_of, read_table, shared_codes, table_of
from letgo.runs.files import weights_digest
from letgo.solver import Solver
from letgo.tasks.table import CHECKS, Table, load_check
from letgo.training.table import table_config

WORDS = ("red", "blue", "green one")
ROWS = [[a, b, c] for a in WORDS for b in WORDS for c in ("x", "y", "z")] * 2  # 27 distinct rows, twice


@pytest.fixture
def file(tmp_path: Path) -> Path:
    lines = ["left,right,end", *(",".join(row) for row in ROWS)]
    (tmp_path / "mine.csv").write_text("".join(f"{line}\n" for line in lines))
    return tmp_path / "mine.csv"


def test_a_task_is_made_of_a_file_and_remade_without_it(file: Path):
    task = table_of(file)
    assert (task.cells, task.values) == (3, ("blue", "green one", "red", "x", "y", "z"))
    file.unlink()
    assert tasks.get("table", **json.loads(json.dumps(options_of(task)))) == task


def test_every_row_is_trained_on_or_held_out(file: Path):
    task = table_of(file)
    source = source_of(task, file)
    parts = {split: source.split(split) for split in ("train", "valid", "test")}
    assert {split: len(part) for split, part in parts.items()} == {"train": 50, "valid": 1, "test": 1}
    lines = {split: task.format(part.solution, part) for split, part in parts.items()}
    assert sorted(lines["train"] + 2 * (lines["valid"] + lines["test"])) == sorted(",".join(row) for row in ROWS)
    assert source.training(9, 0).solution.equal(parts["train"].solution)
    test = source.draw("test", "2", 1, 0)
    assert (test.given.sum(1) == 2).all()
    assert len(source.validation(2, 0)) == 1
    assert task.validate(test.solution, test).all()
    assert "table draws no instances of its own; give --data FILE" in fault(source_of(task).draw, "test", None, 1, 0)


@pytest.mark.fast
def test_text_is_words_with_commas_or_characters_side_by_side(file: Path):
    task = table_of(file)
    problem = task.parse("red, .,y")
    assert (task.format_clues(problem), problem.given.tolist()) == (["red,.,y"], [[True, False, True]])
    assert fault(task.parse, "red,pink,y").startswith("cell 2 is 'pink'; expected one of blue, green one, red, x, y, z")
    assert fault(task.parse, "red,y") == "expected 3 cells, got 2; '.' for a blank"
    short = Table(4, ("a", "b"))
    assert short.format_clues(short.parse("ab.a")) == short.format_clues(short.parse("ab?a")) == ["ab.a"]
    assert (short.look.rows, short.look.columns, replace(short, grid=(1, 4)).look.columns) == (2, 2, 4)


def test_the_three_kinds_of_file_hold_the_same_rows(tmp_path: Path):
    numbers = np.random.default_rng(0).integers(0, 12, (30, 4))
    np.savez(tmp_path / "a.npz", numbers)
    texts = [[str(n) for n in row] for row in numbers.tolist()]
    (tmp_path / "a.csv").write_text("".join(",".join(row) + "\n" for row in texts))
    (tmp_path / "a.txt").write_text("".join(" ".join(row) + "\n" for row in texts))
    np.save(tmp_path / "b.npy", numbers.astype(np.int16).reshape(30, 2, 2))
    np.savez(tmp_path / "c.npz", boards=numbers.astype(np.uint8), given=numbers > 3, meta="of `letgo data make`")
    for name in ("a.npz", "a.csv", "a.txt", "b.npy", "c.npz"):
        rows = read_table(tmp_path / name)
        assert rows.values == tuple(map(str, range(12)))  # by size, not 0, 1, 10, 11, 2
        assert [[rows.values[code] for code in row] for row in rows.codes.tolist()] == texts
    assert table_of(tmp_path / "b.npy").grid == (2, 2)
    for name, between in (("d.csv", ";"), ("e.csv", "\t"), ("f.tsv", "\t")):  # as spreadsheets write them
        lines = [between.join(row) for row in [["left", "a b", "c", "right"], *texts]]
        (tmp_path / name).write_text("\r\n".join(lines))
        rows = read_table(tmp_path / name)
        assert rows.names == ("left", "a b", "c", "right")
        assert [[rows.values[code] for code in row] for row in rows.codes.tolist()] == texts
    np.savez(tmp_path / "two.npz", first=numbers, second=numbers)
    assert "it holds first, second; name the one with rows 'boards'" in fault(read_table, tmp_path / "two.npz")
    np.save(tmp_path / "objects.npy", np.array([["a", None]], dtype=object))
    assert "save words by `rows.astype(str)`" in fault(read_table, tmp_path / "objects.npy")
    np.save(tmp_path / "measured.npy", numbers + 0.25)
    assert "it holds 0.25; expected whole numbers or words: bin" in fault(read_table, tmp_path / "measured.npy")


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
    assert fault(load_check, str(tmp_path / "my.py")).endswith("my.py:NAME")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "no rows in it"),
        ("a,b\na,b,a\n", "row 2: 3 values after rows of 2"),
        ("a,b\nb,\n", "row 2, column 2: a blank; leave incomplete rows out, or write a word there"),
        ("a,b\nb,a\na,b\nb,a\n", "t.csv: 2 distinct rows, too few to learn from and hold some out; give 20 or more"),
        ("a\nb\n", "one value per row; expected several, with commas between them"),
        ('a,b\n"b\nc",d\n', "row 1, column 1 'a': 'b\\nc' holds a line break; write it otherwise"),
        ("a,b\n\udce9,b\n", "row 2, column 1: '\ufffd' is not UTF-8; save the file as text in UTF-8"),
        ("a,b,c\nd,e\n", "t.csv: a header of 3 names, and rows of 2 values"),
        ("PK\3\4\n", "not text; save a spreadsheet as .csv"),
        (f"quizzes,solutions\n{'0' * 81},{'1' * 81}\n", "hold whole Sudokus; learn from them by `letgo train sudoku"),
    ],
)
def test_a_bad_table_is_refused_in_one_line(tmp_path: Path, content: str, expected: str):
    (tmp_path / "t.csv").write_text(content, errors="surrogateescape")
    assert expected in fault(lambda: source_of(table_of(tmp_path / "t.csv"), tmp_path / "t.csv").split("train"))


def test_a_dry_run_looks_at_the_table_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    few, some = tmp_path / "few.csv", tmp_path / "some.csv"
    few.write_text("a,b\nb,a\na,b\n")
    some.write_text("\n".join(f"{n % 5},{n // 5},x" for n in range(25)))
    assert main(["train", "--data", str(few), "--dry-run"]) == 2
    said = capsys.readouterr()
    assert (said.out, "2 distinct rows, too few to learn from" in said.err) == ("", True)
    assert main(["train", "--data", str(some), "--dry-run"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["task_options"]["columns"] == 3
    assert "the same in every row, so nothing to learn there: column 3 (x)" in said.err


def test_a_row_of_another_table_is_refused_by_its_number(file: Path):
    other = Table(3, ("red", "blue"))
    message = "mine.csv, row 1, column 3 'end': 'x' was never seen in training; expected one of red, blue"
    assert message in fault(source_of(other, file).split, "train")
    assert "row 1: 3 values; this table has 2" in fault(source_of(Table(2, ("red", "blue")), file).split, "train")


def test_what_one_should_know_before_training_is_found(tmp_path: Path):
    numbers = np.random.default_rng(0).permutation(np.arange(60))
    rows = [f"a,{n % 3},{n % 5},{n % 4}" for n in [*numbers, 3, 3]]  # by the Chinese remainder theorem all different
    (tmp_path / "t.csv").write_text("\n".join(["kind,three,five,four", *rows]))
    look = Look.at(tmp_path / "t.csv")
    assert (look.rows, look.distinct, look.cells, look.constant) == (62, 60, 4, ("column 1 'kind' (a)",))
    assert look.numbered == look.strange == ()
    (tmp_path / "i.csv").write_text(",a kind,b,c,d\n" + "".join(f"{i},{row}\n" for i, row in enumerate(rows)))
    numbered = Look.at(tmp_path / "i.csv")  # as pandas writes its index: the first column has no name
    assert (numbered.rows, numbered.cells, numbered.numbered) == (62, 5, ("column 1",))
    (tmp_path / "s.csv").write_text("\n".join(["kind,three,five,a", *rows]))
    assert Look.at(tmp_path / "s.csv").strange == ("kind", "three", "five")
    source = source_of(table_of(tmp_path / "t.csv"), tmp_path / "t.csv")
    assert isinstance(source, TableRows)
    boards = source.task.parse("a,0,3,3").solution  # 3
    assert source.known(torch.cat([boards, boards.roll(1, 1)])).tolist() == [True, False]


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("p.csv", "left,right,end\nred,,x\n.,?,y\n", [[1, 0, 1], [0, 0, 1]]),
        ("p.txt", "red,.,x\n.,.,y\n", [[1, 0, 1], [0, 0, 1]]),
        ("p.csv", "red,blue,.\n", [[1, 1, 0]]),
        ("p.csv", "red,pink,.\n", "p.csv, row 1, column 2 'right': 'pink' was never seen in training; expected one of"),
        ("p.csv", "left,right,end\nred,blue\n", "p.csv, row 1: 2 values; this table has 3"),
        ("p.csv", "left,right,end\n", "p.csv: no rows in it"),
        ("p.csv", "left,right\nred,blue,pink\n", "p.csv: a header of 2 names, and rows of 3 values"),
    ],
)
def test_partial_rows_have_blanks_and_no_symbols_that_were_never_seen(
    file: Path, tmp_path: Path, name: str, content: str, expected: Any
):
    (tmp_path / name).write_text(content)
    source = source_of(table_of(file))
    assert isinstance(source, TableRows)
    if isinstance(expected, str):
        assert expected in fault(source.read_partial, tmp_path / name)
        return
    problem = source.read_partial(tmp_path / name)
    assert problem.given.int().tolist() == expected
    assert source.task.format_clues(problem)[0] in ("red,.,x", "red,blue,.")


def test_arrays_have_negative_blanks_and_too_many_values_are_refused(tmp_path: Path):
    np.save(tmp_path / "a.npy", np.array([[0, 1], [1, 0]] * 20 + [[i, i] for i in range(30)]))
    source = source_of(table_of(tmp_path / "a.npy"))
    np.save(tmp_path / "p.npy", np.array([[-1, 3], [29, -9]]))
    assert isinstance(source, TableRows)
    assert source.read_partial(tmp_path / "p.npy").given.tolist() == [[False, True], [True, False]]
    np.save(tmp_path / "many.npy", np.arange(600).reshape(300, 2))
    assert "row 128, column 2: '255' is the 256th value" in fault(read_table, tmp_path / "many.npy")
    np.save(tmp_path / "half.npy", np.array([[0.5, 1.0]]))
    assert "it holds 0.5; expected whole numbers or words" in fault(read_table, tmp_path / "half.npy")


def test_columns_of_their_own_words_have_few_codes_and_columns_alike_one_for_each_value(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    config = table_config(str(file))
    assert (config.codec, config.build_codec().dim) == ("columns", 3)  # 6 values, of which a column has 3
    task = config.build_task()
    assert isinstance(task, Table)
    assert [[task.values[number] for number in own] for own in task.choices] == [[*sorted(WORDS)]] * 2 + [[*"xyz"]]
    assert Config.from_dict(json.loads(json.dumps(config.as_dict()))).build_task() == task
    assert fault(task.parse, "x,.,.") == "cell 1 is 'x'; expected one of blue, green one, red, or '.' for a blank"
    (tmp_path / "p.csv").write_text("red,.,x\nred,y,.\n")
    source = source_of(task)
    assert isinstance(source, TableRows)
    assert "p.csv, row 2, column 2 'right': 'y' was never seen there in training; expected one of blue" in fault(
        source.read_partial, tmp_path / "p.csv"
    )
    (tmp_path / "q.csv").write_text("red,.,x\nred,.,green\n")
    assert "row 2, column 3 'end': 'green' was never seen in training; expected one of x, y, z, or" in fault(
        source.read_partial, tmp_path / "q.csv"
    )
    text = 'left;right;end\nred;"green one";.\n'  # a header, quotes, another sign between
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(text.encode()))))
    assert source.read_partial("-").given.tolist() == [[True, True, False]]
    assert "p.csv, row 1, column 3" not in fault(source_of(task, tmp_path / "p.csv").split, "train")
    (tmp_path / "alike.txt").write_text("".join(f"{a}{b}\n" for a in "abcde" for b in "abcde"))
    alike = table_config(str(tmp_path / "alike.txt"))
    assert (alike.codec, alike.build_task()) == ("one-hot", table_of(tmp_path / "alike.txt"))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"names": [{}, "b", "c"]}, "task_options: names.0 is dict; expected text"),
        ({"names": "abc"}, "task_options: names is 'abc'; expected a list"),
        ({"names": ["a"]}, "names: 1 of 3 columns"),
        ({"grid": [0.5, 6]}, "task_options: grid.0 is 0.5; expected a whole number"),
        ({"grid": [-1, -3]}, "--grid -1x-3: a row has 3 cells"),
        ({"values": [1, 2]}, "task_options: values.0 is 1; expected text"),
        ({"choices": [[0], [True], [1]]}, "task_options: choices.1.0 is True; expected a whole number"),
        ({"choices": [[0], [], [1]]}, "choices: expected numbers of values for each of 3 columns"),
        ({"columns": [[0, 1], [0, 2]]}, "codec_options: 2 columns, for boards of 3 cells"),
        ({"columns": [[0, 1.5]] * 3}, "codec_options: columns.0.1 is 1.5; expected a whole number"),
        ({"columns": [[0, 2**70]] * 3}, "columns: expected symbols from 0 to 5 in each, or -1"),
        ({"columns": [[0], [], [1]]}, "columns: expected symbols from 0 to 5 in each, or -1"),
    ],
)
def test_a_tables_configuration_is_refused_by_its_option(file: Path, options: dict[str, Any], says: str):
    config = table_config(str(file))
    kind = "codec_options" if "columns" in options else "task_options"
    config = replace(config, **{kind: {**getattr(config, kind), **options}})
    assert says in fault(config.build_codec)


def test_the_codes_of_a_table_are_few_and_tell_every_column_its_values():
    """Against random columns: a value keeps its code, a column has all of its values, none twice."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        choices = [sorted(rng.choice(12, rng.integers(1, 6), replace=False).tolist()) for _ in range(5)]
        columns = shared_codes(choices, 12)
        assert [sorted(value for value in row if value >= 0) for row in columns] == choices
        places = {(value, code) for row in columns for code, value in enumerate(row) if value >= 0}
        assert len(places) == len({value for value, _ in places})
        assert max(map(len, choices)) <= len(columns[0]) <= len({value for own in choices for value in own})


def test_words_with_commas_are_written_with_semicolons_and_in_a_file_with_quotes(tmp_path: Path):
    rows = [(a, b) for a in ("Bern, CH", "Lyon, FR", "東京") for b in "uvwxyzrst"]
    (tmp_path / "t.csv").write_text("place,kind\n" + "".join(f'"{a}",{b}\n' for a, b in rows))
    task = table_of(tmp_path / "t.csv")
    problem = task.parse("Lyon, FR; .")
    assert (task.separator, task.format_clues(problem)) == (";", ["Lyon, FR;."])
    config = table_config(str(tmp_path / "t.csv"), network_options={"width": 8, "depth": 1, "heads": 2, "hidden": 8})
    solver = Solver(config, config.build_model())
    args = argparse.Namespace(json=False, count=1)
    found = [[{"values": "Bern, CH;u", "likelihood": -1.0}], []]
    assert written(solver, found, args) == 'place,kind\n"Bern, CH",u\nunsolved\n'


def test_parquet_needs_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    import sys

    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "t.parquet").write_bytes(b"PAR1")
    assert "pip install 'letgo[parquet]'" in fault(read_table, tmp_path / "t.parquet")


@pytest.mark.extras
def test_parquet_is_read_as_a_csv_is(file: Path, tmp_path: Path):
    parquet = pytest.importorskip("pyarrow.parquet")
    csv = pytest.importorskip("pyarrow.csv")
    parquet.write_table(csv.read_csv(file), tmp_path / "t.parquet")
    one, other = read_table(file), read_table(tmp_path / "t.parquet")
    assert (one.values, one.names) == (other.values, other.names)
    assert (one.codes == other.codes).all()


@pytest.mark.extras
def test_parquet_has_nulls_for_blanks_and_says_where_it_is_damaged(tmp_path: Path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rng = np.random.default_rng(0)
    columns = {name: rng.integers(3, size=4000).tolist() for name in "abc"}
    parquet.write_table(arrow.table(columns), tmp_path / "t.parquet", compression="gzip")
    source = source_of(table_of(tmp_path / "t.parquet"))
    assert isinstance(source, TableRows)
    parquet.write_table(arrow.table({"a": [None, 2], "b": [1, None], "c": [0, 0]}), tmp_path / "p.parquet")
    assert source.read_partial(tmp_path / "p.parquet").given.tolist() == [[False, True, True], [True, False, True]]
    twice = arrow.table([arrow.array(columns[name]) for name in "ab"], names=["a", "a"])
    parquet.write_table(twice, tmp_path / "twice.parquet")
    assert read_table(tmp_path / "twice.parquet").codes.shape == (4000, 2)
    whole = (tmp_path / "t.parquet").read_bytes()
    (tmp_path / "cut.parquet").write_bytes(whole[:-40])
    assert "cut.parquet: not a Parquet file" in fault(read_table, tmp_path / "cut.parquet")
    assert fault(read_table, tmp_path / "no.parquet").endswith("no.parquet: no such file; check the path")
    (tmp_path / "hurt.parquet").write_bytes(whole[:200] + bytes(200) + whole[400:])  # within the first column
    assert "hurt.parquet: damaged" in fault(read_table, tmp_path / "hurt.parquet")


def test_the_page_draws_a_table(file: Path):
    pytest.importorskip("fastapi")
    from letgo.app.catalog import describe
    from letgo.app.frames import View

    small = {"width": 16, "depth": 1, "heads": 2, "hidden": 16}
    config = table_config(str(file), network_options=small, sample_steps=5)
    task = config.build_task()
    assert isinstance(task, Table)
    solver = Solver(config, config.build_model())
    card = describe("mine", solver)
    assert (card.rows, card.columns, card.letters, card.separator) == (1, 3, list(task.values), ",")
    assert (card.example.puzzle, card.regime.usual) == (".,.,.", 1)
    [answer] = solver.solve(["red,.,y"], steps=3)
    assert answer.board is not None
    assert answer.board.split(",")[0] == "red"
    problem = task.parse("red,.,y")
    x0_hat = solver.codec.encode(problem.solution) * 0.75
    view = View(solver, problem, solver.clues(problem), x0_hat, x0_hat, [1], [0.5])
    assert view.proposal.probabilities[0, 1].tolist() == [0.75, 0, 0, 0, 0, 0]  # of blue, green one, red, x, y, z
    assert (view.state.probabilities[0, 1] > 0).tolist() == [True, True, True, False, False, False]


@pytest.mark.journey
def test_a_table_is_trained_measured_and_solved_by_the_doors_of_all_tasks(tmp_path: Path):
    """Rows of two equal halves; the network must put the second half there."""
    import letgo

    rows = np.random.default_rng(0).choice(list("abcdef"), (400, 3))
    data = tmp_path / "twice.txt"
    data.write_text("".join("".join(row) * 2 + "\n" for row in rows.tolist()))
    task = table_of(data, grid=(2, 3))
    config = Config.for_task(task, task_options=options_of(task), steps=300, batch=64, decay=0.5)
    run = letgo.train(config, tmp_path / "run", data=str(data), device="cpu", validate=16)
    data.rename(tmp_path / "test.txt")  # a run folder needs no file
    report = letgo.evaluate(run, rule="tweedie", count=8, data=str(tmp_path / "test.txt"), device="cpu")
    assert (report.task, report.regime, report.count) == ("table", "random", 8)
    answers = letgo.load(run.folder).solve(["abc...", "...cca", "a.c.b."], steps=50)
    assert [answer.board for answer in answers] == ["abcabc", "ccacca", "abcabc"]


def test_a_table_that_is_trained_on_gets_a_report_on_its_new_weights(tmp_path: Path):
    """And only then; a report that `letgo evaluate` wrote there is nobody else's to replace."""
    rows = np.random.default_rng(0).choice(list("ab"), (200, 6))
    (data := tmp_path / "rows.txt").write_text("".join("".join(row) + "\n" for row in rows.tolist()))
    words = ["train", "--data", str(data), "--out", str(tmp_path / "run"), "--quiet", "--device", "cpu", "--batch", "4"]
    path, found = tmp_path / "run" / "report.json", []
    for steps in ("2", "4", "4"):
        assert main([*words, "--validate", "4", "--warmup", "0", "--steps", steps]) == 0
        found.append((json.loads(path.read_text())["weights_sha256"], path.stat().st_mtime_ns))
    assert found[0] != found[1] == found[2]
    assert found[2][0] == weights_digest(tmp_path / "run")
    path.write_text('{"rule": "tweedie"}')
    assert main([*words, "--validate", "4", "--warmup", "0", "--steps", "6"]) == 0
    assert json.loads(path.read_text()) == {"rule": "tweedie"}
