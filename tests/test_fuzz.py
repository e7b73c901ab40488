"""Every parser takes a nearly valid input as what it says, or refuses it in one line that names the place.

LETGO_FUZZ=2000 pytest tests/test_fuzz.py      # 2,000 new inputs for each test instead of a few that never change
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from registered import small_task
from strategies import (
    STRANGE,
    Draw,
    fuzz,
    near_array,
    near_bytes,
    near_json,
    near_npz,
    near_state,
    near_text,
    near_weights,
    written_grids,
)

import letgo.data.puzzles
from letgo import tasks
from letgo.cli import main
from letgo.config import Config
from letgo.data import load_problems, source_of
from letgo.data.digits import DigitCodec
from letgo.data.make import make
from letgo.data.puzzles import gathered, parse_puzzles, read_puzzles
from letgo.data.store import write_npz
from letgo.data.table import Rows, read_table
from letgo.errors import LetgoError
from letgo.report import Report
from letgo.runs import Run, load_model, load_state, load_weights, read_card, save_state, save_weights, write_json
from letgo.solver import Solver
from letgo.tasks import Problem, Task
from letgo.tasks.latin import Latin
from letgo.tasks.sudoku import Sudoku

NINE = "sudoku 9x9"
NAMES = [*(name for name in tasks.TASKS if name != "table"), NINE]
GRIDS = ["sudoku", NINE, "latin"]
SEPARATORS, BLANKS = ",;|│┃║", ".0_*-xX"


@cache
def task_of(name: str) -> Task:
    return tasks.get("sudoku") if name == NINE else small_task(name)


@cache
def solved(name: str) -> Problem:
    return make(task_of(name), 3, seed=0)


@st.composite
def puzzles(draw: Draw, name: str) -> str:
    """A valid puzzle; where clues may be anywhere, some of them."""
    task, at = task_of(name), draw(st.integers(0, 2))
    problem = solved(name)[at : at + 1]
    if not task.generates:
        return task.format_clues(problem)[0]
    given = draw(st.lists(st.booleans(), min_size=task.cells, max_size=task.cells))
    return task.format_clues(Problem(problem.solution, torch.tensor([given])))[0]


@contextmanager
def refused_by(*places: str) -> Iterator[None]:
    """What is refused, is in one printable line that names one of these; no other exception gets through."""
    try:
        yield
    except LetgoError as error:
        text = str(error)
        assert text.isprintable(), text
        assert len(text) <= 1500, text
        assert any(place in text for place in places), text


def same(one: Problem, other: Problem) -> bool:
    contexts = [problem.context for problem in (one, other)]
    alike = torch.equal(*contexts) if all(c is not None for c in contexts) else contexts == [None, None]
    clues = [problem.solution.where(problem.given, 0) for problem in (one, other)]
    return alike and torch.equal(one.given, other.given) and torch.equal(*clues)


def in_file(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


# Puzzles


@pytest.mark.parametrize("name", NAMES)
@fuzz(8)
@given(data=st.data())
def test_a_puzzle_is_read_as_it_is_written(name: str, data: st.DataObject) -> None:
    task, text = task_of(name), data.draw(puzzles(name))
    assert task.format_clues(task.parse(text)) == [text]


@pytest.mark.parametrize("name", NAMES)
@fuzz(50)
@given(data=st.data())
def test_a_puzzle_that_is_nearly_one_is_not_taken_for_another(name: str, data: st.DataObject) -> None:
    task, text = task_of(name), data.draw(near_text(puzzles(name)))
    with refused_by("cell", "row", "character", "column", "clue", "graph"):
        problem = task.parse(text)
        normal = task.format_clues(problem)[0]
        assert same(task.parse(normal), problem)
        if name == "connectivity":
            assert (normal, set(normal) - {*"01/"}) == (text.strip(), set())
        if name == "maze":
            assert (normal.count("S"), normal.count("G"), set(normal) - {*"SG#./"}) == (1, 1, set())
        if name in GRIDS:
            side = task.grid_row
            for lines in (zip(*[iter(normal)] * side, strict=True), (normal[i::side] for i in range(side))):
                assert all(len(clues) == len(set(clues)) for clues in ([c for c in line if c != "."] for line in lines))
            bare = "".join(c for c in text if not c.isspace() and c not in SEPARATORS)
            if len(bare) == task.cells:  # no border was left out
                assert normal == "".join("." if c in BLANKS else c for c in bare)


@fuzz(10)
@given(st.sampled_from(["", " ", ",", "|", "\n"]), st.integers(0, 7))
def test_queens_that_clash_are_named_whatever_stands_between_them(separator: str, row: int) -> None:
    cells = ["." for _ in range(8)]
    cells[row] = cells[7 - row] = "c"
    first, second = sorted((row + 1, 8 - row))
    with pytest.raises(LetgoError, match=f"c in row {first} and c in row {second} attack each other"):
        task_of("queens").parse(separator.join(cells))


@pytest.mark.parametrize("name", GRIDS)
@fuzz(12)
@given(data=st.data())
def test_a_grid_is_read_whatever_stands_between_its_cells(name: str, data: st.DataObject, folder: Path) -> None:
    task = task_of(name)
    cells = data.draw(st.lists(puzzles(name), min_size=1, max_size=2))
    text = "\n".join(data.draw(written_grids(each, task.grid_row)) for each in cells)
    path = in_file(folder, "grid.txt", text.encode())
    assert task.format_clues(read_puzzles(path, task)) == cells


@pytest.mark.parametrize("name", NAMES)
@fuzz(15)
@given(data=st.data())
def test_a_file_of_puzzles_is_read_or_refused_by_its_line(name: str, data: st.DataObject, folder: Path) -> None:
    task = task_of(name)
    lines = st.lists(puzzles(name), min_size=1, max_size=3).map(lambda texts: "\n".join(texts) + "\n")
    grid = puzzles(name).flatmap(lambda cells: written_grids(cells, task.grid_row)) if name in GRIDS else lines
    text = data.draw(near_text(st.one_of(lines, grid)))
    path = in_file(folder, "puzzles.txt", text.encode(errors="surrogateescape"))
    with refused_by("puzzles.txt"):
        problem = read_puzzles(path, task)
        assert same(parse_puzzles([("", line) for line in task.format_clues(problem)], task), problem)
    words = [word for word in text.split("\n") if word]
    with refused_by("puzzle"):  # the same as words of the command line
        parse_puzzles(gathered([(f"puzzle {i + 1}", word) for i, word in enumerate(words)], task), task)


def read_or_fault(read: Callable[[list[tuple[str, str]], Task], Problem], texts: list[str], task: Task) -> Any:
    try:
        problem = read([(f"puzzle {i}", text) for i, text in enumerate(texts, start=1)], task)
    except LetgoError as fault:
        return str(fault)
    tensors = (problem.solution, problem.given)
    return [(tensor.tolist(), tensor.dtype, tensor.shape) for tensor in tensors], problem.context, problem.number


def one_by_one(texts: list[tuple[str, str]], task: Task) -> Problem:
    problems = list[Problem]()
    for where, text in texts:
        try:
            problems.append(task.parse(text))
        except LetgoError as fault:
            raise LetgoError(f"{where}: {fault}") from None
    return Problem.cat(problems)


@pytest.mark.parametrize("name", GRIDS)
@fuzz(60)
@given(data=st.data())
def test_many_puzzles_are_read_or_refused_as_each_alone_is(name: str, data: st.DataObject) -> None:
    task, plain = task_of(name), puzzles(name)
    signs = st.sampled_from([*BLANKS, *BLANKS, *"12345679aAgG,| \t\n+=²１ß│\udc80"])
    any_cells = st.lists(signs, min_size=task.cells, max_size=task.cells).map("".join)
    grids = plain.flatmap(lambda cells: written_grids(cells, task.grid_row))
    texts = data.draw(st.lists(st.one_of(plain, plain, near_text(plain), any_cells, grids), min_size=1, max_size=6))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(letgo.data.puzzles, "AT_ONCE", data.draw(st.integers(1, 6)))
        assert read_or_fault(parse_puzzles, texts, task) == read_or_fault(one_by_one, texts, task)


@pytest.mark.parametrize("task", [*map(Latin, (2, 9, 10, 33, 34, 35)), *map(Sudoku, (2, 3, 4))])
@pytest.mark.parametrize("place", ["row", "column", "box", "end"])
def test_every_character_is_read_by_the_table_as_by_itself(task: Task, place: str) -> None:
    """It shares a line or a box with a clue, so that some clash, or is one too many."""
    side, strange = task.grid_row, [sign for sign in STRANGE if len(sign) == 1]
    at = {"row": 1, "column": side, "box": side + 1, "end": task.cells}[place]
    texts = ["1".ljust(at, ".") + c + "." * (task.cells - at - 1) for c in [*map(chr, range(256)), *strange]]
    read = [read_or_fault(parse_puzzles, [text], task) for text in texts]
    assert read == [read_or_fault(one_by_one, [text], task) for text in texts]
    plain = [t for t, found in zip(texts, read, strict=True) if not isinstance(found, str) and len(t) == task.cells]
    assert [text for text in texts if task.parse_all([text]) is not None] == plain
    assert bool(plain) == (place != "end")


def test_a_character_too_few_is_not_made_up_for_by_the_next_text() -> None:
    with pytest.raises(LetgoError, match="puzzle 1: expected 16 cells, got 15"):
        parse_puzzles([("puzzle 1", "." * 15), ("puzzle 2", "." * 17)], Sudoku(2))


def test_a_class_that_reads_otherwise_is_asked_for_every_text() -> None:
    class Backwards(Sudoku):
        def parse(self, text: str) -> Problem:
            return super().parse(text[::-1])

    task, text = Backwards(2), "1" + "." * 15
    assert parse_puzzles([("", text)], task).given[0].nonzero().tolist() == [[15]]


@fuzz(20)
@given(st.sampled_from([name for name in NAMES if name not in ("connectivity", "maze")]), st.integers(0, 99))
def test_boards_are_written_symbol_by_symbol(name: str, seed: int) -> None:
    task, rng = task_of(name), np.random.default_rng(seed)
    boards = torch.from_numpy(rng.integers(task.symbols, size=(seed % 4, task.cells)))
    letters, marks = task.look.letters, torch.from_numpy(rng.random(boards.shape) < 0.5)
    for each in (boards, boards.int()):
        assert task.format(each, Problem(each, marks)) == ["".join(letters[s] for s in row) for row in boards.tolist()]
        rows = zip(boards.tolist(), marks.tolist(), strict=True)
        expected = ["".join(letters[s] if clue else "." for s, clue in zip(*row, strict=True)) for row in rows]
        assert task.format_clues(Problem(each, marks)) == expected


# Data


@cache
def csv_of(name: str) -> str:
    task, stream = task_of(name), io.StringIO()
    questions, answers = source_of(task).csv_texts(solved(name))
    rows = zip(questions, answers, strict=True)
    csv.writer(stream, lineterminator="\n").writerows(
        [["source", "question", "answer", "rating"], *(["us", *row, "7"] for row in rows)]
    )
    return stream.getvalue()


@pytest.mark.parametrize("name", [NINE, "maze"])
@fuzz(20)
@given(data=st.data())
def test_a_csv_is_read_or_refused_by_its_line(name: str, data: st.DataObject, folder: Path) -> None:
    task, text = task_of(name), data.draw(near_text(st.just(csv_of(name))))
    path = in_file(folder, "data.csv", text.encode(errors="surrogateescape"))
    with refused_by("data.csv"):
        problem = load_problems(path, task)
        assert task.validate(problem.solution, problem).all()
        written = text.replace(" ", ".")  # an open cell of a maze; two changes that fit may make another one
        assert all(board.replace("/", "") in written for board in task.format(problem.solution, problem))
    with refused_by("data.csv"):
        source_of(task).read_questions(path)


@pytest.mark.parametrize("name", NAMES)
@fuzz(12)
@given(data=st.data())
def test_an_archive_is_read_or_refused_by_name(name: str, data: st.DataObject, folder: Path) -> None:
    task, stream = task_of(name), io.BytesIO()
    meta = {"task": task.name, "size": None, "regime": "x", "seed": 0, "count": 3}
    write_npz(stream, solved(name), meta)
    with np.load(io.BytesIO(stream.getvalue())) as archive:
        arrays = dict(archive)
    path = in_file(folder, "data.npz", data.draw(near_npz(arrays, near_json(meta))))
    with refused_by("data.npz"):
        problem = load_problems(path, task)
        assert len(problem)
        assert task.validate(problem.solution, problem).all()


WORDS = st.one_of(
    st.text("abc1-", min_size=1, max_size=3), st.sampled_from(["red", "0", "10", "-1", "1.5", "é", "a b", 'say "x"'])
)


@st.composite
def tables(draw: Draw) -> list[list[str]]:
    """Rows of words, as a program of the user's own might hold them."""
    columns = draw(st.integers(1, 4))
    values = draw(st.lists(WORDS, min_size=2, max_size=5, unique=True))
    row = st.lists(st.sampled_from(values), min_size=columns, max_size=columns)
    return draw(st.lists(row, min_size=2, max_size=8))


def as_csv(rows: list[list[str]]) -> str:
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows([[f"Column {i}" for i in range(len(rows[0]))], *rows])
    return stream.getvalue()


def words_of(rows: Rows) -> list[list[str]]:
    return [[rows.values[code] for code in row] for row in rows.codes.tolist()]


@fuzz(20)
@given(tables())
def test_a_table_is_read_as_it_is_written(folder: Path, rows: list[list[str]]) -> None:
    path = in_file(folder, "table.csv", as_csv(rows).encode())
    with refused_by("table.csv: every cell is", "table.csv: one value per row"):
        read = read_table(path)
        assert words_of(read) == rows
        assert read.names == tuple(f"Column {i}" for i in range(len(rows[0])))


@pytest.mark.parametrize("suffix", ["csv", "txt"])
@fuzz(20)
@given(data=st.data())
def test_a_table_of_ones_own_is_read_or_refused_by_name(suffix: str, data: st.DataObject, folder: Path) -> None:
    text = data.draw(near_text(tables().map(as_csv)))
    path = in_file(folder, f"table.{suffix}", text.encode(errors="surrogateescape"))
    with refused_by(path.name):
        rows = read_table(path)
        assert len(rows.values) >= 2
        assert rows.codes.max() < len(rows.values)
        words = words_of(rows)
        if all(word.isprintable() for word in rows.values):  # once more, in the form that we write
            task = tasks.get("table", columns=rows.codes.shape[1], values=rows.values, names=rows.names)
            for row in words:
                problem = task.parse(task.separator.join(row))
                assert task.format(problem.solution, problem) == [task.separator.join(row)]
    known = tasks.get("table", columns=2, values=("a", "b", "red", "10"))
    for read in (source_of(known).read, source_of(known).read_partial):
        with refused_by(path.name):
            problem = read(path)
            assert problem.solution.max() < 4


@pytest.mark.parametrize("suffix", ["npy", "npz"])
@fuzz(20)
@given(data=st.data())
def test_an_array_of_ones_own_is_read_or_refused_by_name(suffix: str, data: st.DataObject, folder: Path) -> None:
    array, stream = np.arange(48, dtype=np.uint8).reshape(3, 16) % 5, io.BytesIO()
    if suffix == "npz":
        content = data.draw(near_npz({"boards": array, "more": array}, st.just(b"{}")))
    else:
        np.save(stream, data.draw(near_array(array)))
        content = data.draw(near_bytes(stream.getvalue()))
    path = in_file(folder, f"table.{suffix}", content)
    for blanks in (False, True):
        with refused_by(path.name):
            task = tasks.get("table", columns=16, values=tuple("01234")) if blanks else None
            rows = read_table(path, task, blanks)
            assert rows.codes.ndim == 2
            assert len(rows)


@fuzz(20)
@given(data=st.data())
def test_srms_boards_are_read_or_refused_by_name(data: st.DataObject, folder: Path) -> None:
    task, stream = small_task("mnist-sudoku"), io.BytesIO()
    boards = make(task, 20, seed=0).solution.numpy().astype(np.uint8).reshape(20, 4, 4) + 1
    np.save(stream, data.draw(near_array(boards)))
    path = in_file(folder, "sudokus.npy", data.draw(near_bytes(stream.getvalue())))
    with refused_by(path.name):
        parts = [source_of(task, path).split(split) for split in ("train", "valid", "test")]
        assert all(task.validate(part.solution, part).all() and len(part) for part in parts)


DIGITS = {"source": "mnist", "size": 8, "symbols": 4, "pool": 0, "sha256": "0" * 64, "accuracy": {"value": 1.0}}


@fuzz(30)
@given(content=near_json(DIGITS), tensors=near_bytes(b"\x02\x00\x00\x00\x00\x00\x00\x00{}"))
def test_digits_are_read_or_refused_by_name(content: bytes, tensors: bytes, folder: Path) -> None:
    in_file(folder, "digits.json", content)
    in_file(folder, "digits.safetensors", tensors)
    with refused_by("digits.json", "digits.safetensors"):
        DigitCodec(4, 8, "mnist").open(folder)
        raise AssertionError("no such tensors have this hash")


# What a run folder holds


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


CONFIG = Config(
    "small",
    "sudoku",
    task_options={"box": 2},
    network_options={"width": 8, "depth": 1, "heads": 2, "hidden": 8},
    steps=3,
    sample_steps=2,
)


@cache
def weights() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return {name: value.clone() for name, value in CONFIG.build_model().state_dict().items()}


@pytest.fixture(scope="module")
def run(folder: Path) -> Path:
    """A run folder with a configuration and weights."""
    write_json(folder / "run" / "config.json", CONFIG.as_dict())
    save_weights(folder / "run" / "model.safetensors", weights())
    return folder / "run"


@contextmanager
def changed(path: Path, content: bytes) -> Iterator[Path]:
    """A file with another content, for as long as the block lasts."""
    before = path.read_bytes() if path.exists() else None
    path.write_bytes(content)
    try:
        yield path
    finally:
        path.unlink() if before is None else path.write_bytes(before)


@fuzz(40)
@given(content=near_json(CONFIG.as_dict()))
def test_a_configuration_is_one_or_is_refused_by_its_field(content: bytes, run: Path) -> None:
    with changed(run / "config.json", content), refused_by("config.json"):
        config, _, _ = load_model(str(run))
        assert Config.from_dict(json.loads(json.dumps(config.as_dict()))) == config
        for name, usual in CONFIG.as_dict().items():
            kinds = {float: (float, int), type(None): (str, type(None))}.get(type(usual), (type(usual),))
            assert type(getattr(config, name)) in kinds, name


@fuzz(30)
@given(content=near_json({"summary": "small", "sha256": "0" * 64, "generation_rule": "ddpm", "then": None, "steps": 3}))
def test_a_card_is_one_or_is_refused_by_its_field(content: bytes, run: Path) -> None:
    with changed(run / "card.json", content), refused_by("card.json"):
        assert all(
            isinstance(read_card(run).get(key, ""), str | None) for key in ("summary", "generation_rule", "then")
        )
        load_model(str(run))


TUNED = {"rule": "em-decay", "best": {"sigma": 0.1, "tau_start": 0.5}, "steps": 2, "rows": [{"sigma": 0.1, "valid": 1}]}


@fuzz(30)
@given(content=near_json(TUNED))
def test_tuned_settings_make_a_sampler_or_are_refused_by_their_field(content: bytes, run: Path) -> None:
    with changed(run / "tune-em-decay.json", content), refused_by("tune-em-decay.json", "sigma"):
        tuning = Run(run, CONFIG).tuning("em-decay")
        assert 0 <= tuning["best"].get("sigma", 0) <= 1e6
        config, network, _ = load_model(str(run))
        Solver(config, network, folder=run).sampler("em-decay")


@cache
def state() -> dict[str, Any]:
    zeros = {name: torch.zeros_like(value) for name, value in weights().items()}
    return {
        "step": 2,
        "config": CONFIG.as_dict(),
        "raw": weights(),
        "ema": weights(),
        "optimizer": {"step": 2.0, "exp_avg": zeros, "exp_avg_sq": zeros},
        "loss_sum": {"loss": torch.tensor(1.0)},
        "logged": 1,
        "seconds": 0.5,
        "instances": 7,
    }


@fuzz(40)
@given(data=st.data())
def test_a_state_is_taken_whole_or_refused_by_its_field(data: st.DataObject, folder: Path) -> None:
    path = in_file(folder, "state.pt", data.draw(near_state(state())))
    with refused_by("state.pt"):
        found = load_state(path)
        for kind in ("raw", "ema"):
            assert all(isinstance(value, torch.Tensor) for value in found[kind].values())
        run = Run(folder, Config.from_dict(found["config"]), found)
        assert run.step >= 0
        assert run.seconds >= 0
        save_state(folder / "again.pt", found)
        load_state(folder / "again.pt")


@fuzz(40)
@given(data=st.data())
def test_weights_are_the_ones_that_were_saved_or_refused(data: st.DataObject, run: Path) -> None:
    original = (run / "model.safetensors").read_bytes()
    content = data.draw(near_weights(original))
    with changed(run / "model.safetensors", content) as path:
        with refused_by("model.safetensors"):
            found = load_weights(path)
            if b'"crc32"' in content:
                assert {name: value.tolist() for name, value in found.items()} == {
                    name: value.tolist() for name, value in weights().items()
                }
        with refused_by("model.safetensors", "do not fit its config.json"):
            load_model(str(run))


# Reports


def outcome(kind: str, *rows: list[Any]) -> dict[str, Any]:
    return {"kind": kind, "values": [*rows]}


SCORE = {"value": 0.5, "low": 0.1, "high": 0.9, "n": 2}
REPORT = {
    "model": "small", "regime": "4", "task": "sudoku", "rule": "em", "settings": {"sigma": 0.1}, "steps": 2, "count": 2,
    "seed": 0, "validity": SCORE, "pass_at_k": {**SCORE, "k": 2}, "calls": 4, "seconds": 0.1, "device": "cpu",
    "precision": "fp32", "version": "1", "shard": "0/1", "whole": 2,
    "outcomes": {
        "number": [0, 1], "validity": outcome("rate", [1], [0]), "pass_at_k": outcome("any", [1, 0], [0, 0]),
        "violation_rate": outcome("mean", [0.5], [None]), "codeword_distance": outcome("mean", ["diverged"], [2]),
        "chosen_at_k": outcome("chosen", [1, 2, 3], [0, 2, 4]), "uniqueness": outcome("distinct", [5, 1], [6, 1]),
        "calls_per_instance": outcome("spread", [1], [2]),
    },
}  # fmt: skip


@fuzz(40)
@given(data=st.data())
def test_a_report_is_merged_or_refused_by_name(data: st.DataObject, folder: Path) -> None:
    path = in_file(folder, "part.json", data.draw(near_json(REPORT)))
    for form in ([], ["--json"]):
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = main(["merge", str(path), *form])
        assert code in (0, 2)
        if code:
            assert err.getvalue().count("\n") == 1
            assert not out.getvalue()
            assert "part" in err.getvalue()
        elif form:
            merged = json.loads(out.getvalue())
            assert merged["count"] == 2
            for name in ("task", "rule", "settings", "steps", "seed", "calls", "device", "precision"):
                assert type(merged[name]) is type(REPORT[name]), name


# What longer runs found


def npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


WORD = npy(np.array([["a", "b"]]))
FOUND = {
    "a header that is no Python": npy(np.zeros((3, 16), "u1")).replace(b"(3, 16)", b"(3, 16("),
    "a header that leaves data out": npy(np.zeros((3, 16), "u1")).replace(b"(3, 16)", b"(2, 16)"),
    "an archive by the name of an array": b"PK\x05\x06" + bytes(18),
    "no character": WORD.replace(b"a\0\0\0", b"a\0\xff\0"),
    "half a character": WORD.replace(b"a\0\0\0", b"\0\xd8\0\0"),
}


@pytest.mark.parametrize("what", FOUND)
def test_an_array_that_numpy_chokes_on_is_refused_by_name(what: str, tmp_path: Path) -> None:
    path = in_file(tmp_path, "table.npy", FOUND[what])
    with pytest.raises(LetgoError, match=r"table.npy: not an array of numpy, or cut short"):
        read_table(path)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"shard": "0/999999999"}, "part 1/999999999 is missing"),  # each of the two filled the memory
        ({"whole": 10**12}, "the parts share instances or leave some out"),
        ({"outcomes": {**REPORT["outcomes"], "pass_at_k": outcome("any", [], [])}}, "outcomes"),
        ({"outcomes": {**REPORT["outcomes"], "chosen_at_k": outcome("chosen", [1], [0])}}, "damaged outcomes"),
        ({"outcomes": {"number": [0, 1], "validity": outcome("rate", [1], [0])}}, "no outcomes of pass_at_k"),
    ],
)
def test_a_report_of_other_parts_or_columns_is_refused(change: dict[str, Any], fault: str) -> None:
    with pytest.raises(LetgoError, match=fault):
        Report.merge([Report.from_dict({**REPORT, **change})])


def test_a_report_of_a_network_without_a_name_is_merged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_json(tmp_path / "part.json", {name: value for name, value in REPORT.items() if name != "model"})
    assert main(["merge", str(tmp_path / "part.json")]) == 0
    assert capsys.readouterr().out.startswith("sudoku 4  em sigma=0.1  2 steps, seed 0\nvalidity           0.5000")


def test_a_csv_without_rows_is_refused_by_name(tmp_path: Path) -> None:
    path = in_file(tmp_path, "data.csv", b"source,question")
    with pytest.raises(LetgoError, match=r"data.csv: no rows after the header"):
        source_of(task_of(NINE)).read_questions(path)


def test_a_message_that_quotes_thousands_of_characters_keeps_its_end() -> None:
    text = str(LetgoError(f"unknown task '{'0' * 5000}'; choose one of sudoku, latin"))
    assert len(text) == 1500
    assert text.startswith("unknown task '000")
    assert text.endswith("000'; choose one of sudoku, latin")
