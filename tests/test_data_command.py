"""`letgo data make|fetch|check` as a user meets it."""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import json
import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from refusals import fault

from letgo import tasks
from letgo.cli.data import FETCHED
from letgo.cli.main import dispatch
from letgo.data import fetch as fetching
from letgo.data import load_problems, mnist
from letgo.data.sudoku_extreme import read_sudoku_extreme
from letgo.tasks.queens import TRAINING, train_split
from letgo.tasks.sudoku_search import is_unique

QUESTION = "2..1....5...8......7.....4.1..............93.8...5...2........8.34..9....9......."


def letgo_data(*words: str | Path) -> int:
    return dispatch(["data", *map(str, words)])


def checked(capsys: pytest.CaptureFixture[str], *words: str | Path) -> dict[str, Any]:
    capsys.readouterr()
    assert letgo_data("check", *words, "--json") == 0
    return json.loads(capsys.readouterr().out)


# make


def test_queens_are_test_boards_unless_training_ones_are_asked_for(tmp_path: Path) -> None:
    training = {tuple(board) for board in train_split(14, TRAINING)[0].tolist()}
    for regime, share in (("random", 0.0), ("train", 1.0)):
        path = tmp_path / f"{regime}.npz"
        assert letgo_data("make", "queens", "--count", "50", "--regime", regime, "--out", path) == 0
        boards = [tuple(board) for board in np.load(path)["boards"].tolist()]
        assert sum(board in training for board in boards) / len(boards) == share


@pytest.mark.parametrize("suffix", [".npz", ".txt.gz"])
@pytest.mark.parametrize(
    ("name", "size"), [("sudoku", 4), ("latin", 4), ("queens", 6), ("connectivity", 5), ("maze", 6)]
)
def test_every_task_can_be_made_and_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, size: int, suffix: str
) -> None:
    path = tmp_path / f"a{suffix}"
    assert letgo_data("make", name, "--size", str(size), "--count", "3", "--seed", "1", "--out", path) == 0
    assert capsys.readouterr().err == ""  # stderr is no terminal here
    report = checked(capsys, path, "--task", name, "--size", str(size))
    assert (report["task"], report["rows"], sum(report["clues"].values())) == (name, 3, 3)


def test_made_sudoku_extreme_is_in_its_layout_minimal_and_unique(tmp_path: Path) -> None:
    path = tmp_path / "a.csv.gz"
    letgo_data("make", "sudoku-extreme", "--count", "4", "--out", path)
    with gzip.open(path, "rt") as text:
        assert text.readline() == "source,question,answer,rating\n"
    table = read_sudoku_extreme(path)
    assert is_unique(table.problem).all()
    assert table.sources.tolist() == ["letgo_minimal"] * 4
    puzzle = table[:1]
    for cell in np.flatnonzero(puzzle.given[0]):
        puzzle.given[0, cell] = False
        assert not is_unique(puzzle.problem).any()
        puzzle.given[0, cell] = True


@pytest.mark.fast
def test_a_regime_sets_the_number_of_clues(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.npz"
    letgo_data("make", "sudoku", "--count", "3", "--regime", "30", "--out", path)
    report = checked(capsys, path)
    assert report["clues"] == {"30": 3}
    assert report["made"] | {"version": ""} == {
        "task": "sudoku",
        "size": None,
        "regime": "30",
        "seed": 0,
        "count": 3,
        "version": "",
    }


def test_a_graph_regime_is_its_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.npz"
    letgo_data("make", "connectivity", "--count", "2", "--regime", "7", "--out", path)
    assert checked(capsys, path)["rows"] == 2
    assert load_problems(path, tasks.get("connectivity")).solution.shape == (2, 49)


def test_mazes_are_written_as_maze_hard_writes_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.csv"
    letgo_data("make", "maze", "--size", "7", "--count", "3", "--out", path)
    _, question, answer, _ = path.read_text().splitlines()[1].split(",")
    assert len(question) == len(answer) == 49
    assert set(question) == set("# SG")
    assert answer.replace("o", " ") == question
    report = checked(capsys, path)
    assert (report["task"], report["rows"], report["shortest"]) == ("maze", 3, 3)


def test_an_existing_file_is_kept_unless_forced(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("mine")
    words = ("make", "latin", "--count", "2", "--out", path)
    assert fault(letgo_data, *words) == f"{path}: exists already; pass --force to replace it, or choose another name"
    assert path.read_text() == "mine"
    letgo_data(*words, "--force")
    assert len(path.read_text().splitlines()) == 2
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("chess", "--count", "1", "--out", "a.npz"), "unknown task 'chess'"),
        (("latin", "--count", "0", "--out", "a.npz"), "argument --count: expected a whole number from 1"),
        (
            ("latin", "--count", "1", "--seed", "-1", "--out", "a.npz"),
            "argument --seed: expected a whole number from 0",
        ),
        (("latin", "--count", "many", "--out", "a.npz"), "argument --count: expected a whole number from 1"),
        (("latin", "--count", "1", "--out", "a.json"), "a.json: unknown suffix"),
        (("latin", "--count", "1", "--out", "a.csv"), "a.csv: .csv is for 9x9 Sudokus and mazes, not latin"),
        (("sudoku", "--size", "4", "--count", "1", "--out", "a.csv"), "a.csv: .csv is for 9x9 Sudokus"),
        (("sudoku", "--size", "5", "--count", "1", "--out", "a.npz"), "--size 5: the side of a Sudoku is a square"),
        (("sudoku", "--size", "-1", "--count", "1", "--out", "a.npz"), "argument --size: expected a whole number"),
        (
            ("sudoku", "--count", str(10**12), "--out", "a.npz"),
            "argument --count: expected a whole number from 1 to 1000000000",
        ),
        (("sudoku", "--count", "1", "--out", "-"), "--out -: nothing is written to standard output; name a file"),
        (("sudoku", "--count", "1", "--regime", "soft", "--out", "a.npz"), "unknown regime 'soft'"),
        (("latin", "--count", "1", "--regime", "minimal", "--out", "a.npz"), "unknown regime 'minimal'; choose random"),
    ],
)
def test_make_refuses_in_one_line_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], expected: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert fault(letgo_data, "make", *words).startswith(expected)
    assert list(tmp_path.iterdir()) == []


# check


def test_check_reports_a_puzzle_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "p.txt"
    path.write_text(f"{QUESTION}\n{'.' * 81}\n")
    assert checked(capsys, path) == {
        "file": str(path),
        "format": "txt",
        "task": "sudoku",
        "rows": 2,
        "clues": {"0": 1, "17": 1},
        "unique": {"sampled": 2, "unique": 1},
    }
    assert letgo_data("check", path) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "clues: 0 x 1, 17 x 1" in lines
    assert "unique: sampled 2, unique 1" in lines


def test_check_reports_sources_and_ratings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.csv"
    letgo_data("make", "sudoku-extreme", "--count", "3", "--out", path)
    rows = [line + str(3 * i) for i, line in enumerate(path.read_text().splitlines()[1:])]
    path.write_text("\n".join(["source,question,answer,rating", *rows]).replace("letgo_minimal", "mine", 1))
    report = checked(capsys, path, "--sample", "2")
    assert report["sources"] == {"letgo_minimal": 2, "mine": 1}
    assert report["ratings"] == {"min": 0, "mean": 3.0, "max": 6}
    assert report["unique"] == {"sampled": 2, "unique": 2}


def test_check_reports_mnist_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images, labels = tmp_path / "train-images-idx3-ubyte.gz", tmp_path / "some-labels"
    images.write_bytes(gzip.compress(struct.pack(">4I", 2051, 2, 3, 4) + bytes(24)))
    labels.write_bytes(struct.pack(">2I", 2049, 3) + bytes([1, 1, 9]))
    report = checked(capsys, images)
    assert (report["rows"], report["height"], report["width"], report["standard"]) == (2, 3, 4, False)
    assert checked(capsys, labels)["labels"]["1"] == 2


@pytest.mark.fast
@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("p.txt", QUESTION[1:], ", line 1: expected 81 cells, got 80"),
        ("p.csv", f"source,question,answer,rating\ns,{QUESTION[1:]},1,0", ", line 2: question: expected 81 cells"),
        ("m.csv", "source,question,answer,rating\ns,S # G#,1,0", ", line 2: question: expected 900 cells, got 6"),
        ("p.csv", "source,question,answer,rating\n", ": no rows after the header"),
        ("p.npz", "PK", ": not an .npz of `letgo data make`, or cut short"),
        ("t10k-labels-idx1-ubyte", "hello", ": not an IDX file of images"),
    ],
)
def test_check_names_the_first_fault(tmp_path: Path, name: str, content: str, expected: str) -> None:
    path = tmp_path / name
    path.write_text(content)
    assert fault(letgo_data, "check", path).startswith(f"{path}{expected}")


@pytest.mark.parametrize("content", ["..##S/G....\n", "####/#SG#/####\n"])
def test_check_says_what_it_took_a_text_file_for(tmp_path: Path, content: str) -> None:
    path = tmp_path / "mazes.txt"
    path.write_text(content)
    hint = "; it was read as sudoku, name another task with --task"
    assert fault(letgo_data, "check", path).endswith(hint)
    assert hint not in fault(letgo_data, "check", path, "--task", "maze")


def test_check_names_a_missing_file_and_a_directory(tmp_path: Path) -> None:
    for name in ("a.txt", "a.csv", "a.npz", "a-ubyte"):
        assert fault(letgo_data, "check", tmp_path / name) == f"{tmp_path / name}: no such file; check the path"
    assert "this is a directory" in fault(letgo_data, "check", tmp_path)


# fetch


@pytest.fixture
def no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)  # what Python itself does to forbid an import


@pytest.mark.usefixtures("no_hub")
@pytest.mark.parametrize("name", FETCHED)
def test_without_the_extra_fetch_says_what_to_install_or_to_download(tmp_path: Path, name: str) -> None:
    message = fault(letgo_data, "fetch", name, "--out", tmp_path)
    assert message.startswith("fetching needs huggingface_hub; pip install 'letgo[hub]', or download ")
    assert message.endswith(f"from {fetching.SOURCES[name].page} into {tmp_path}")


@pytest.mark.usefixtures("no_hub")
def test_files_that_are_there_already_need_no_hub(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("train.csv", "test.csv"):
        (tmp_path / name).write_text("here")
    assert letgo_data("fetch", "maze-hard", "--out", tmp_path) == 0
    assert capsys.readouterr().out.split() == [str(tmp_path / "train.csv"), str(tmp_path / "test.csv")]


def test_the_command_and_the_sources_have_the_same_names() -> None:
    assert tuple(fetching.SOURCES) == FETCHED
    assert "unknown data set 'chess'; choose one of sudoku-extreme" in fault(letgo_data, "fetch", "chess")


class FakeHub:
    """The four calls that fetch makes, and what they were asked."""

    def __init__(self, content: bytes = b"content", fault: Exception | None = None, commit: str | None = None) -> None:
        self.content, self.fault, self.commit = content, fault, commit
        self.calls: list[str] = []
        self.revisions: list[str] = []

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        utils = SimpleNamespace(disable_progress_bars=lambda: self.calls.append("quiet"))
        monkeypatch.setitem(sys.modules, "huggingface_hub", self)
        monkeypatch.setitem(sys.modules, "huggingface_hub.utils", utils)

    def hf_hub_url(self, repository: str, name: str, *, repo_type: str, revision: str) -> str:
        return f"{repo_type}:{repository}@{revision}/{name}"

    def get_hf_file_metadata(self, url: str, *, timeout: float, token: bool) -> Any:
        self.calls.append(url)
        assert timeout <= 5
        assert token is False
        if self.fault:
            raise self.fault
        return SimpleNamespace(commit_hash=self.commit)

    def hf_hub_download(self, repository: str, name: str, *, local_dir: Path, **options: Any) -> str:
        self.calls.append(name)
        self.revisions.append(options["revision"])
        assert options["repo_type"] == "dataset"
        (local_dir / name).write_bytes(self.content)
        return str(local_dir / name)


def test_fetch_downloads_what_is_missing_without_a_progress_bar(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = FakeHub()
    hub.install(monkeypatch)
    (tmp_path / "train.csv").write_text("here")
    assert letgo_data("fetch", "sudoku-extreme", "--out", tmp_path) == 0
    commit = "58942f96baeb572ca3127e2a9e9c70f330783d6b"
    assert hub.calls == ["quiet", f"dataset:sapientinc/sudoku-extreme@{commit}/test.csv", "test.csv"]
    assert (tmp_path / "test.csv").read_bytes() == b"content"
    assert (tmp_path / "train.csv").read_text() == "here"
    letgo_data("fetch", "sudoku-extreme", "--out", tmp_path, "--force")
    assert (tmp_path / "train.csv").read_bytes() == b"content"


def test_every_source_is_a_fixed_commit() -> None:
    """A branch would give other rows on another day."""
    assert all(fetching.COMMIT.fullmatch(source.revision) for source in fetching.SOURCES.values())


def test_all_files_come_from_one_commit_and_the_folder_says_which(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = FakeHub(commit="a" * 40)
    hub.install(monkeypatch)
    assert letgo_data("fetch", "maze-hard", "--out", tmp_path) == 0
    assert hub.revisions == ["a" * 40] * 2
    digest = "ed7002b439e9ac845f22357d822bac1444730fbdb6016d3ec9432297b9ec9f73"  # sha256sum's, of "content"
    expected = f"train.csv {'a' * 40} {digest}\ntest.csv {'a' * 40} {digest}\n"
    assert (tmp_path / "fetched.txt").read_text() == expected


def test_a_revision_is_fetched_and_never_taken_for_granted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = "1" * 40, "2" * 40
    hub = FakeHub(commit=one)
    hub.install(monkeypatch)
    fetch = ("fetch", "maze-hard", "--out", tmp_path, "--revision")
    assert letgo_data(*fetch, one) == 0
    assert hub.calls[1] == f"dataset:sapientinc/maze-30x30-hard-1k@{one}/train.csv"
    asked = len(hub.calls)
    assert letgo_data(*fetch, one) == 0
    assert len(hub.calls) == asked  # it is there
    assert "is not recorded as of that revision; --force fetches it again" in fault(letgo_data, *fetch, other)
    hub.commit = other
    assert letgo_data(*fetch, other, "--force") == 0
    assert hub.revisions == [one, one, other, other]
    (tmp_path / "test.csv").write_text("changed since")
    assert f"{tmp_path / 'test.csv'} is not recorded" in fault(letgo_data, *fetch, other)
    assert "expected the 40 hexadecimal digits of a commit" in fault(letgo_data, *fetch, "main")


def test_fetched_mnist_gets_its_usual_names_and_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = FakeHub()
    hub.install(monkeypatch)
    message = fault(letgo_data, "fetch", "mnist", "--out", tmp_path)
    assert "train-images.idx3-ubyte is not MNIST's file (md5 differs)" in message
    assert list(tmp_path.iterdir()) == []
    right = hashlib.md5(hub.content, usedforsecurity=False).hexdigest()
    monkeypatch.setattr(mnist, "FILES", dict.fromkeys(mnist.FILES, right))
    assert letgo_data("fetch", "mnist", "--out", tmp_path) == 0
    assert {path.name for path in tmp_path.iterdir()} == {*mnist.FILES, fetching.RECORD}
    assert set(hub.revisions) == {fetching.SOURCES["mnist"].revision}


def test_an_unknown_fault_of_the_hub_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FakeHub(fault=RuntimeError("404\nwhy\nwhere")).install(monkeypatch)
    message = fault(letgo_data, "fetch", "maze-hard", "--out", tmp_path)
    assert message.startswith("cannot fetch maze-hard: 404; connect and try again, or download train.csv, test.csv")


@contextmanager
def hanging_up() -> Iterator[tuple[int, list[int]]]:
    """A port that accepts and hangs up at once, and how often it was called."""
    calls: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:  # the server was closed
                    return
                calls.append(1)
                connection.close()

        threading.Thread(target=answer, daemon=True).start()
        yield server.getsockname()[1], calls
        server.shutdown(socket.SHUT_RDWR)  # wakes the thread


def test_when_the_hub_does_not_answer_fetch_gives_up_without_retrying(tmp_path: Path) -> None:
    """With the real huggingface_hub where it is installed; its own download would ask six times in 23 seconds."""
    program = "from letgo import cli; raise SystemExit(cli.main(['data', 'fetch', 'maze-hard', '--out', 'x']))"
    with hanging_up() as (port, calls):
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join(sys.path),
            "HF_ENDPOINT": f"http://127.0.0.1:{port}",
            "HOME": str(tmp_path),
        }
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
    installed = importlib.util.find_spec("huggingface_hub") is not None
    expected = "letgo: cannot fetch maze-hard: " if installed else "letgo: fetching needs huggingface_hub"
    assert done.returncode == 2
    assert done.stderr.startswith(expected)
    assert len(done.stderr.splitlines()) == 1
    assert int(installed) <= len(calls) <= 2  # the transport itself may ask twice
    assert not (tmp_path / "x").exists()
