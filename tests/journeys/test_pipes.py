"""`letgo solve` and what is on its standard input: closed, empty, silent, or full of puzzles."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.journey

SUDOKU = "53..7....6..195....98....6.8...6...34..8.3..17...2...6.6....28....419..5....8..79"
PUZZLE, ANSWER = ".1..3......2..3.", "2143342143121234"
LETGO = f"{sys.executable} -m letgo"
SOURCE = Path(__file__).parents[2] / "src"


def shell(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1", "LETGO": LETGO}
    return subprocess.run(["bash", "-c", line], cwd=folder, env=env, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("line", ["$LETGO solve sudoku-mini <&-", "$LETGO solve sudoku-mini < empty.txt",
                                  "sleep 20 | { $LETGO solve sudoku-mini; kill 0; }"],
                         ids=["closed", "an empty file", "a silent open pipe"])  # fmt: skip
def test_without_a_puzzle_the_built_in_one_is_solved(line: str, tmp_path: Path):
    (tmp_path / "empty.txt").write_text("")
    done = subprocess.run(["setsid", "bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, timeout=15,
                          env={**os.environ, "PYTHONPATH": str(SOURCE), "LETGO": LETGO})  # fmt: skip
    assert f"answer  {ANSWER}" in done.stdout
    assert "Solved by 'sudoku-mini'" in done.stdout


def test_what_is_piped_is_solved_with_or_without_a_dash(tmp_path: Path):
    for words in ("", " -"):
        done = shell(f"echo {PUZZLE} | $LETGO solve sudoku-mini{words}", tmp_path)
        assert (done.returncode, done.stdout) == (0, f"{ANSWER}\n")
    done = shell("$LETGO solve - < /dev/null", tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "standard input: no puzzles in it" in done.stderr.splitlines()[-1]


def test_a_reader_that_takes_one_answer_ends_the_work(tmp_path: Path):
    """4,000 Sudokus would take minutes; the pipe ends with the second or third batch."""
    (tmp_path / "many.txt").write_text(f"{SUDOKU}\n" * 4000)
    done = shell("$LETGO solve --file many.txt | head -1; echo ${PIPESTATUS[0]}", tmp_path)
    board, code = done.stdout.splitlines()
    assert len(board) == 81
    assert code == "141"
    assert "Traceback" not in done.stderr
