"""Puzzles as people have them: in a line, as a grid with or without borders, in somebody's table."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
import torch

from letgo import tasks
from letgo.answers import Ledger
from letgo.cli import main
from letgo.data import source_of
from letgo.data.puzzles import read_puzzles
from letgo.errors import LetgoError
from letgo.solver import Solver, load

PUZZLE = "53..7....6..195....98....6.8...6...34..8.3..17...2...6.6....28....419..5....8..79"  # Wikipedia's
ANSWER = "534678912672195348198342567859761423426853791713924856961537284287419635345286179"
ROWS = [PUZZLE[i : i + 9] for i in range(0, 81, 9)]
BORDERED = """
+-------+-------+-------+
| 5 3 . | . 7 . | . . . |
| 6 . . | 1 9 5 | . . . |
| . 9 8 | . . . | . 6 . |
+-------+-------+-------+
| 8 . . | . 6 . | . . 3 |
| 4 . . | 8 . 3 | . . 1 |
| 7 . . | . 2 . | . . 6 |
+=======+=======+=======+
| . 6 . | . . . | 2 8 . |
| . . . | 4 1 9 | . . 5 |
| . . . | . 8 . | . 7 9 |
---------
"""
FORMS = {
    "a line": PUZZLE,
    "rows": "\n".join(ROWS),
    "rows in Windows": "\r\n".join(ROWS),
    "commas": "\n".join(",".join(row) for row in ROWS),
    "commas in one line": ",".join(PUZZLE),
    **{
        f"empty fields between {mark!r}": "\n".join(mark.join(row.replace(".", " ")).replace(" ", "") for row in ROWS)
        for mark in "\t,;"
    },
    "boxes": "\n".join(f"{row[:3]} {row[3:6]} {row[6:]}" + "\n" * (i % 3 == 2) for i, row in enumerate(ROWS)),
    "borders": BORDERED,
    "comments": "# mine\n" + "\n".join(f"{row}  # row" for row in ROWS),
    **{f"blanks {sign}": "\n".join(ROWS).replace(".", sign) for sign in "0_*-xX"},
}  # fmt: skip


@pytest.fixture(scope="module")
def mini() -> Solver:
    return load("sudoku-mini", "cpu")


@pytest.mark.fast
@pytest.mark.parametrize("form", FORMS)
def test_a_puzzle_is_read_in_every_form_that_people_write(form: str, tmp_path: Path):
    task = tasks.get("sudoku")
    (tmp_path / "p.txt").write_bytes(f"{FORMS[form]}\n{FORMS['a line']}\n".encode())
    problem = read_puzzles(tmp_path / "p.txt", task)
    assert task.format_clues(problem) == [PUZZLE, PUZZLE]
    if "#" not in form and "comments" not in form:
        assert task.format_clues(task.parse(FORMS[form])) == [PUZZLE]


def test_a_row_of_a_spreadsheet_may_be_empty(tmp_path: Path):
    (tmp_path / "p.txt").write_text("1\t\t\t\n\t\t\t\n\n\t\t4\t\n\t2\t\t\n")
    task = tasks.get("sudoku", box=2)
    assert task.format_clues(read_puzzles(tmp_path / "p.txt", task)) == ["1.........4..2.."]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\n".join(ROWS[:8]), "p.txt, line 1: a grid of 8 rows of 9 cells; expected 9 rows"),
        ("\n".join([*ROWS[:3], ROWS[3][:8], *ROWS[4:]]), "p.txt, line 4: expected 9 cells in a row of the grid"),
        (PUZZLE.replace(".", " "), "p.txt, line 1: expected 81 cells, got 30"),  # what separates is no blank
        (PUZZLE.replace(".", ","), "p.txt, line 1: expected 81 cells, got 30"),
        ("\n".join(ROWS).replace("8...6...3", "8...6..y3"), "p.txt, line 1: character 35 (r4c8) is 'y'"),
    ],
)  # fmt: skip
def test_a_grid_that_is_none_is_refused_by_its_line(text: str, expected: str, tmp_path: Path):
    (tmp_path / "p.txt").write_text(text)
    with pytest.raises(LetgoError) as fault:
        read_puzzles(tmp_path / "p.txt", tasks.get("sudoku"))
    assert expected in str(fault.value)


def test_nine_words_are_a_grid_and_a_board_of_dashes_is_one_of_blanks(capsys: pytest.CaptureFixture[str]):
    assert main(["solve", "sudoku-mini", ".1..", "3...", "...2", "..3."]) == 0
    assert capsys.readouterr().out == "2143342143121234\n"
    assert not tasks.get("sudoku").parse("-" * 81).given.any()


def test_kaggles_columns_are_read_as_the_data_sets_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    row = f"{PUZZLE.replace('.', '0')},{ANSWER}"
    (tmp_path / "own.csv").write_text(f"source,question,answer,rating\nme,{row},7\n")
    (tmp_path / "kaggle.csv").write_text(f"quizzes,solutions\n{row}\n")
    (tmp_path / "more.csv").write_text(f"id,Puzzle,Solution,clues,difficulty\n9,{row},30,1.5\n")
    (tmp_path / "alone.csv").write_text(f"puzzle\n{PUZZLE}\n")
    task = tasks.get("sudoku")
    first, *others = (source_of(task).read(tmp_path / f"{name}.csv") for name in ("own", "kaggle", "more"))
    for other in others:
        assert torch.equal(other.solution, first.solution)
        assert torch.equal(other.given, first.given)
    assert task.format_clues(source_of(task).read_questions(tmp_path / "alone.csv")) == [PUZZLE]
    assert main(["solve", "--file", str(tmp_path / "kaggle.csv")]) == 0
    assert capsys.readouterr().out == f"{ANSWER}\n"


def test_answers_come_a_few_at_a_time_and_are_those_of_all_at_once(mini: Solver):
    puzzles = source_of(mini.task).draw("test", "4", 12, 0)
    parts = list(mini.solve_each(puzzles, tries=2, seed=3))
    assert [len(part) for part in parts] == [1, 2, 4, 5]
    together = mini.solve(puzzles, tries=2, seed=3)
    for one, other in zip([answer for part in parts for answer in part], together, strict=True):
        assert (one.puzzle, one.board, one.tries, one.calls) == (other.puzzle, other.board, other.tries, other.calls)
    assert len({answer.seconds for answer in together}) > 1  # each has its own share of a batch's time


def test_ctrl_c_keeps_the_answers_that_are_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    original, calls = Ledger.answers, []

    def answers(self: Ledger, *args: object) -> object:
        calls.append(args)
        if len(calls) == 3:
            signal.raise_signal(signal.SIGINT)
        return original(self, *args)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(Ledger, "answers", answers)
    (tmp_path / "p.txt").write_text(".1..3......2..3.\n" * 9)
    assert main(["solve", "sudoku-mini", "--file", str(tmp_path / "p.txt")]) == 130
    assert capsys.readouterr().out == "2143342143121234\n" * 3


def test_boards_are_not_generated_by_settings_for_other_steps(capsys: pytest.CaptureFixture[str]):
    """EM decay, tuned for 200 steps, draws no valid Latin square with 20."""
    solver = load("latin", "cpu")
    assert (solver.generation_rule(), solver.generation_rule(200)) == ("em-decay", "em-decay")
    assert solver.generation_rule(20) == "resample"
    assert main(["generate", "latin", "--count", "4", "--steps", "20", "--json"]) == 0
    assert '"rule": "resample"' in capsys.readouterr().out
