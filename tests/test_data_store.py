"""What `letgo data make` writes: it reads back the same, and a damaged or half-written file never passes."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from refusals import fault

from letgo import tasks
from letgo.cli import main
from letgo.data import load_problems, source_of
from letgo.data.check import check
from letgo.data.files import refuse_unwritable, write_atomically
from letgo.data.make import make, save
from letgo.data.store import load_npz
from letgo.tasks.connectivity import Connectivity
from letgo.tasks.latin import Latin
from letgo.tasks.sudoku import Sudoku

HEADER = "source,question,answer,rating"
QUESTION = "2..1....5...8......7.....4.1..............93.8...5...2........8.34..9....9......."
ANSWER = "286194375945837261371562849123976584457218936869453712712345698534689127698721453"
ROW = f"puzzles2_17_clue,{QUESTION},{ANSWER},7"


def write(path: Path, *lines: str, end: str = "\n") -> Path:
    path.write_bytes("".join(line + end for line in lines).encode())
    return path


def small(task: tasks.Task) -> str:
    return f"{task.name}-{task.cells}"


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz"])
@pytest.mark.parametrize("task", [tasks.get("sudoku-extreme"), tasks.get("maze", size=6)], ids=small)
def test_a_csv_gives_back_clues_and_answers(tmp_path: Path, task: tasks.Task, suffix: str) -> None:
    problem = make(task, 5, seed=3)
    path = tmp_path / f"a{suffix}"
    save(path, problem, task, {"regime": "x"})
    back = load_problems(path, task)
    assert back.solution.equal(problem.solution)
    assert back.given.equal(problem.given)


def test_complete_boards_in_a_puzzle_file_count_as_solved(tmp_path: Path) -> None:
    assert load_problems(write(tmp_path / "a.txt", ANSWER), Sudoku(), solved=True).given.all()


def test_the_same_instances_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a.npz", "b.npz", "a.csv.gz", "b.csv.gz"):
        save(tmp_path / name, make(Sudoku(), 3, seed=1), Sudoku(), {"task": "sudoku", "size": None, "regime": "21"})
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    assert (tmp_path / "a.csv.gz").read_bytes() == (tmp_path / "b.csv.gz").read_bytes()
    with zipfile.ZipFile(tmp_path / "a.npz") as archive:
        assert {entry.date_time[0] for entry in archive.infolist()} == {1980}  # the zip format's "no date"


def npz(path: Path, **changes: Any) -> Path:
    """A good Latin file of two boards, with some arrays changed."""
    problem = make(Latin(4), 2, seed=0)
    arrays = {
        "boards": problem.solution.numpy().astype(np.uint8),
        "given": problem.given.numpy(),
        "meta": np.array('{"task": "latin", "size": 4}'),
    }
    np.savez(path, **{name: value for name, value in (arrays | changes).items() if value is not None})
    return path


def swapped(boards: np.ndarray) -> np.ndarray:
    """The second board with its first cell changed."""
    boards = boards.copy()
    boards[1, 0] = (boards[1, 0] + 1) % 4
    return boards


GOOD = make(Latin(4), 2, seed=0).solution.numpy().astype(np.uint8)


@pytest.mark.fast
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"boards": swapped(GOOD)}, ", board 1: breaks the rules of latin"),
        ({"boards": GOOD + 1}, ", board 0: a symbol above 3, the task's last"),
        ({"boards": GOOD[:, :9], "given": GOOD[:, :9] > 9}, ": boards of 9 cells; the task latin here has 16"),
        ({"boards": GOOD.astype(np.int64)}, ": expected boards uint8 and given bool of one shape, got boards int64"),
        ({"given": GOOD[:1] > 9}, ": expected boards uint8 and given bool of one shape"),
        ({"boards": GOOD[:0], "given": GOOD[:0] > 9}, ": no boards in it"),
        ({"given": None}, ": not an .npz of `letgo data make`: it has no array 'given'"),
        ({"given": np.array([None])}, ": not an .npz of `letgo data make`, or cut short"),
        ({"meta": np.array("latin")}, ": its meta does not say the task and the size"),
        ({"meta": np.array('{"task": "queens", "size": 4}')}, ": made for the task queens, not latin"),
        ({"context": np.zeros((2, 3, 3))}, ": boards (2, 16) do not fit their context (2, 3, 3)"),
    ],
)
def test_an_npz_is_checked_against_the_task(tmp_path: Path, changes: dict[str, Any], expected: str) -> None:
    assert len(load_npz(npz(tmp_path / "good.npz"), Latin(4))) == 2
    path = npz(tmp_path / "a.npz", **changes)
    assert fault(load_npz, path, Latin(4)).startswith(f"{path}{expected}")


def test_boards_of_somebody_else_need_no_more_than_their_symbols(tmp_path: Path) -> None:
    """Rows or squares of any integer type, from 0 or from 1, as .npy or as an .npz of one array or with `boards`."""
    task, expected = Latin(4), torch.from_numpy(GOOD.astype(np.int64))
    np.save(tmp_path / "a.npy", GOOD.astype(np.int16) + 1)
    np.savez(tmp_path / "b.npz", GOOD.astype(np.int64).reshape(2, 4, 4))
    np.savez(tmp_path / "c.npz", boards=GOOD.astype(np.uint16), others=GOOD)
    for name in ("a.npy", "b.npz", "c.npz"):
        problem = source_of(task, str(tmp_path / name)).split("train")
        assert torch.equal(problem.solution, expected)
        assert not problem.given.any()
        assert check(tmp_path / name, "latin", 4)["rows"] == 2
    np.save(tmp_path / "blank.npy", np.where(GOOD == 3, 0, GOOD + 1) + (GOOD == 2))
    assert "it holds 0, a blank; expected complete boards" in fault(load_npz, tmp_path / "blank.npy", task)
    np.save(tmp_path / "real.npy", GOOD / 2)
    assert "an array of float64 of shape (2, 16); expected whole" in fault(load_npz, tmp_path / "real.npy", task)
    np.savez(tmp_path / "two.npz", x=GOOD, y=GOOD)
    assert "it holds x, y; name the one with rows 'boards'" in fault(load_npz, tmp_path / "two.npz", task)
    np.save(tmp_path / "graph.npy", np.zeros((2, 144), int))
    assert "needs the graphs' adjacency, too" in fault(load_npz, tmp_path / "graph.npy", tasks.get("connectivity"))


def test_graphs_without_their_adjacency_are_refused_by_the_name_of_the_file(tmp_path: Path) -> None:
    task, path = tasks.get("connectivity"), tmp_path / "a.npz"
    problem = make(task, 2, seed=0)
    save(path, replace(problem, context=None), task, {"task": "connectivity", "size": 12})
    assert fault(load_npz, path, task) == f"{path}: it has no array 'context', the graphs' adjacency; make it again"


@pytest.mark.parametrize("damage", ["cut", "empty", "text", "npy"])
def test_a_damaged_or_foreign_npz_is_refused(tmp_path: Path, damage: str) -> None:
    path = npz(tmp_path / "a.npz")
    npy = io.BytesIO()
    np.save(npy, GOOD)
    content = {"cut": path.read_bytes()[:-40], "empty": b"", "text": b"hello", "npy": npy.getvalue()}
    path.write_bytes(content[damage])
    assert fault(load_npz, path, Latin(4)) == f"{path}: not an .npz of `letgo data make`, or cut short; make it again"


def test_boards_made_for_sudoku_serve_sudoku_extreme_too(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    save(path, make(Sudoku(), 2, seed=0), Sudoku(), {"task": "sudoku", "size": None})
    assert len(load_npz(path, tasks.get("sudoku-extreme"))) == 2


def test_a_graph_file_brings_its_own_size(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    save(path, make(Connectivity(), 2, seed=0, regime="18"), Connectivity(), {"task": "connectivity", "size": None})
    assert load_npz(path, Connectivity(size=12)).solution.shape == (2, 18 * 18)


def test_a_csv_of_another_task_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", HEADER, ROW)
    assert "not latin of 16 cells; use .npz or .txt" in fault(load_problems, path, Latin(4))
    assert "not latin; use .npz or .txt" in fault(save, tmp_path / "b.csv", make(Latin(4), 1, 0), Latin(4), {})


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.txt", "old")
    monkeypatch.setattr(os, "fsync", lambda _: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, b"half")
    assert path.read_bytes() == b"old\n"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_in_the_middle_of_a_write_leaves_nothing(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("letgo.data.make.write_npz", lambda *_: signal.raise_signal(number))
    before = signal.getsignal(number)
    with pytest.raises(SystemExit) as ended:
        main(["data", "make", "latin", "--count", "1", "--out", str(tmp_path / "a.npz")])
    assert ended.value.code == 128 + number
    assert not [*tmp_path.iterdir()]
    assert signal.getsignal(number) == before


def test_what_a_killed_process_began_to_write_goes_with_the_next_write(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        pass
    path, other = tmp_path / "a.txt", tmp_path / f".b.txt.{gone.pid}.part"
    running = tmp_path / f".a.txt.{os.getppid()}.part"
    for part in (tmp_path / f".a.txt.{gone.pid}.part", running, other):
        part.write_bytes(b"half")
    write_atomically(path, b"whole")
    assert sorted(tmp_path.iterdir()) == sorted([path, other, running])


def test_a_link_stays_a_link_and_a_pipe_is_written_to(tmp_path: Path) -> None:
    real, link, pipe = write(tmp_path / "real", "old"), tmp_path / "link", tmp_path / "pipe"
    link.symlink_to(real)
    os.mkfifo(pipe)
    write_atomically(link, b"new")
    assert (link.is_symlink(), real.read_bytes()) == (True, b"new")
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_atomically(pipe, b"through")
    assert os.read(reader, 99) == b"through"
    assert pipe.is_fifo()
    os.close(reader)


def test_our_own_output_is_added_to_and_not_replaced(tmp_path: Path) -> None:
    code = "print('one'); f('/dev/stdout', 2); print('three')"
    code = (
        "from letgo.runs import write_json\nfrom pathlib import Path\nf = lambda p, v: write_json(Path(p), v)\n" + code
    )
    log = write(tmp_path / "log", "zero")
    with log.open("a") as out:
        subprocess.run([sys.executable, "-c", code], stdout=out, check=True)
    assert log.read_text().split() == ["zero", "one", "2", "three"]


def test_a_folder_or_a_link_to_nowhere_is_refused_before_the_work(tmp_path: Path) -> None:
    loop, away = tmp_path / "loop", tmp_path / "away"
    loop.symlink_to(loop)
    away.symlink_to("/proc/nowhere/x")
    assert fault(refuse_unwritable, tmp_path) == f"--out {tmp_path}: this is a directory; name a file in it"
    assert fault(refuse_unwritable, loop) == f"--out {loop}: a link that leads to itself; name a file"
    assert fault(refuse_unwritable, away) == f"--out {away}: /proc cannot be written to; choose another place"
