"""Readers of data files: what they return, and the one line they give for a bad file."""

from __future__ import annotations

import gzip
import io
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from refusals import fault

from letgo.data import columns, load_problems, mnist
from letgo.data.maze_hard import read_maze_hard
from letgo.data.mnist import read_mnist
from letgo.data.puzzles import read_puzzles
from letgo.data.sudoku_extreme import SHARES, SudokuTable, read_sudoku_extreme, sample_by_source
from letgo.tasks.connectivity import Connectivity
from letgo.tasks.maze import Maze
from letgo.tasks.sudoku import Sudoku

pytestmark = pytest.mark.fast

HEADER = "source,question,answer,rating"
QUESTION = "2..1....5...8......7.....4.1..............93.8...5...2........8.34..9....9......."
ANSWER = "286194375945837261371562849123976584457218936869453712712345698534689127698721453"
ROW = f"puzzles2_17_clue,{QUESTION},{ANSWER},7"
MAZE_QUESTION, MAZE_ANSWER = "S ## ## G", "So##o##oG"  # S right, down, down, right to G


def write(path: Path, *lines: str, end: str = "\n") -> Path:
    path.write_bytes("".join(line + end for line in lines).encode())
    return path


# Sudoku-Extreme


def test_a_row_of_sudoku_extreme_becomes_symbols_clues_source_and_rating(tmp_path: Path) -> None:
    table = read_sudoku_extreme(write(tmp_path / "a.csv", HEADER, ROW, ROW.replace(",7", ",0")))
    assert table.boards.dtype == np.uint8
    assert table.boards[0].tolist() == [int(digit) - 1 for digit in ANSWER]
    assert table.given[0].tolist() == [cell != "." for cell in QUESTION]
    assert table.ratings.tolist() == [7, 0]
    assert table.sources.tolist() == ["puzzles2_17_clue"] * 2
    assert table.problem.solution.dtype == torch.int64
    assert Sudoku().validate(table.problem.solution, table.problem).all()
    assert len(table[:1]) == 1
    assert table[np.array([1])].ratings.tolist() == [0]


@pytest.mark.parametrize("disguise", ["plain", "gzip", "crlf", "bom", "blank lines", "zeros", "no end of line"])
def test_every_disguise_of_a_csv_reads_the_same(tmp_path: Path, disguise: str) -> None:
    text = f"{HEADER}\n{ROW}\n{ROW}\n"
    content = {
        "crlf": text.replace("\n", "\r\n").encode(),
        "gzip": gzip.compress(text.encode()),
        "bom": b"\xef\xbb\xbf" + text.encode(),
        "blank lines": text.replace("\n", "\n\n").encode(),
        "zeros": text.replace(".", "0").encode(),
        "no end of line": text.rstrip().encode(),
    }.get(disguise, text.encode())
    path = tmp_path / ("a.csv.gz" if disguise == "gzip" else "a.csv")
    path.write_bytes(content)
    table = read_sudoku_extreme(path)
    assert table.boards.tolist() == [[int(digit) - 1 for digit in ANSWER]] * 2
    assert table.given.sum() == 2 * 17


BAD_ROWS = {
    "question: expected 81 cells, got 80": ROW.replace(QUESTION, QUESTION[1:]),
    "question, cell 1: 'x' is not a cell": ROW.replace(QUESTION, "x" + QUESTION[1:]),
    r"question, cell 81: '\xe9' is not a cell": ROW.replace(QUESTION, QUESTION[:-1] + "é"),
    "answer: expected 81 cells, got 82": ROW.replace(ANSWER, ANSWER + "1"),
    "answer, cell 2: '.' is not a cell": ROW.replace(ANSWER, ANSWER[0] + "." + ANSWER[2:]),
    "answer, cell 1: '3' where the question has '2'": ROW.replace(ANSWER, "3" + ANSWER[1:]),
    "answer: row 1 does not hold each digit once": ROW.replace(ANSWER, ANSWER[0] + "2" + ANSWER[2:]),
    "answer: column 2 does not hold each digit once": ROW.replace(ANSWER, "268" + ANSWER[3:]),
    "rating: expected a whole number, got 'hard'": ROW.replace(",7", ",hard"),
    "expected 4 columns (source,question,answer,rating), got 3": ROW.removesuffix(",7"),
}


@pytest.mark.parametrize(("expected", "row"), BAD_ROWS.items(), ids=BAD_ROWS)
def test_a_bad_row_names_file_line_and_fault(tmp_path: Path, expected: str, row: str) -> None:
    path = write(tmp_path / "a.csv", HEADER, ROW, ROW, ROW, row, ROW, BAD_ROWS[expected])
    assert fault(read_sudoku_extreme, path).startswith(f"{path}, line 5: {expected}")


def test_lines_are_counted_across_chunks_and_blank_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "ROWS_AT_ONCE", 2)
    good = write(tmp_path / "good.csv", HEADER, ROW, "", ROW.replace("puzzles2", "a"), ROW, ROW, ROW)
    table = read_sudoku_extreme(good)
    assert table.sources.tolist() == ["puzzles2_17_clue", "a_17_clue", *["puzzles2_17_clue"] * 3]
    bad = write(tmp_path / "bad.csv", HEADER, ROW, "", ROW, ROW, ROW.replace(",7", ",x"))
    assert fault(read_sudoku_extreme, bad).startswith(f"{bad}, line 6: rating")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (
            b"",
            ", line 1: expected the header source,question,answer,rating, or at least one like quizzes",
        ),
        (HEADER.encode(), ": no rows after the header"),
        (ROW.encode(), ", line 1: expected the header"),
        (bytes(range(256)) * 9, ", line 1: expected the header"),
        (b"a" * 200_000, ", line 1: not a CSV row (field larger than field limit"),
        (gzip.compress(f"{HEADER}\n{ROW}\n".encode() * 999)[:-9], ": the gzip stream is cut short or damaged"),
        (b"\x1f\x8b" + b"no gzip at all", ": the gzip stream is cut short or damaged"),
    ],
    ids=["empty", "header only", "no header", "binary", "endless field", "truncated gzip", "false gzip"],
)
def test_a_file_that_is_no_table_gives_one_clear_line(tmp_path: Path, content: bytes, expected: str) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    assert fault(read_sudoku_extreme, path).startswith(f"{path}{expected}")


def test_an_empty_rating_is_unknown(tmp_path: Path) -> None:
    table = read_sudoku_extreme(write(tmp_path / "a.csv", HEADER, ROW.removesuffix("7")))
    assert table.ratings.tolist() == [-1]


# Shares of sources


def sourced(**counts: int) -> SudokuTable:
    """Blank puzzles with these numbers of rows per source; the rating tells the rows apart."""
    names = np.repeat(np.array([*counts], object), list(counts.values()))
    boards = np.zeros((len(names), 81), np.uint8)
    return SudokuTable(boards, boards > 0, names, np.arange(len(names)))


EVERY_GROUP = {
    "puzzles5_forum_hardest_1905_11+": 500,
    "generated_vicinity": 600,
    "puzzles1_unbiased": 400,
    "generated_kaggle_like": 40,
    "puzzles2_17_clue": 5,
    "my_own": 300,
}


def test_default_shares_are_those_of_sudoku_extreme() -> None:
    sample = sample_by_source(sourced(**EVERY_GROUP), 995, np.random.default_rng(0))
    names, counts = np.unique(sample.sources, return_counts=True)
    found = dict(zip(names.tolist(), counts.tolist(), strict=True))
    assert "my_own" not in found
    assert found["puzzles5_forum_hardest_1905_11+"] + found["generated_vicinity"] == 730
    assert (found["puzzles1_unbiased"], found["generated_kaggle_like"], found["puzzles2_17_clue"]) == (230, 23, 12)


def test_no_row_comes_twice_before_every_row_of_its_group_has_come_once() -> None:
    sample = sample_by_source(sourced(**EVERY_GROUP), 995, np.random.default_rng(0))
    times = {name: np.unique(sample.ratings[sample.sources == name], return_counts=True)[1] for name in EVERY_GROUP}
    assert times["puzzles1_unbiased"].max() == 1
    assert sorted(times["puzzles2_17_clue"].tolist()) == [2, 2, 2, 3, 3]  # 12 draws of 5 rows


@pytest.mark.parametrize("count", [0, 1, 2, 7, 100, 101])
def test_rounded_counts_add_up(count: int) -> None:
    assert len(sample_by_source(sourced(**EVERY_GROUP), count, np.random.default_rng(0))) == count


def test_a_group_without_rows_is_an_error() -> None:
    message = fault(sample_by_source, sourced(puzzles1_unbiased=9), 100, np.random.default_rng(0))
    assert message.startswith("no rows of the source group 'hard' to draw 74 from")
    assert set(SHARES) == {"hard", "unbiased", "kaggle", "17_clue"}


# Maze-Hard


def test_a_maze_row_gives_walls_and_ends_as_clues_and_keeps_its_spaces(tmp_path: Path) -> None:
    path = write(tmp_path / "m.csv", HEADER, f"s,{MAZE_QUESTION},{MAZE_ANSWER},0", end="\r\n")
    problem = read_maze_hard(path, Maze(size=3))
    assert problem.solution.tolist() == [["# SGo".index(cell) for cell in MAZE_ANSWER]]
    assert problem.given.tolist() == [[cell != " " for cell in MAZE_QUESTION]]
    assert load_problems(path, Maze(size=3)).solution.equal(problem.solution)


def test_a_maze_that_begins_and_ends_with_open_cells_is_not_stripped(tmp_path: Path) -> None:
    question, answer = " S##  #G ", " S##oo#G "
    assert len(question) == 9
    path = write(tmp_path / "m.csv", HEADER, f"s,{question},{answer.replace('oo', 'o ')},0")
    assert read_maze_hard(path, Maze(size=3)).given[0].tolist() == [cell != " " for cell in question]


@pytest.mark.parametrize(
    ("question", "answer", "expected"),
    [
        (MAZE_QUESTION[:-1], MAZE_ANSWER, "question: expected 9 cells, got 8"),
        ("So## ## G", MAZE_ANSWER, "question, cell 2: 'o' is not a cell"),
        ("S ## ##SG", MAZE_ANSWER, "question: expected one S, got 2"),
        ("S ## ##  ", MAZE_ANSWER, "question: expected one G, got 0"),
        (MAZE_QUESTION, "Soo#o##oG", "answer, cell 3: 'o' where the question has '#'"),
        (MAZE_QUESTION, "S#########"[:9], "answer, cell 2: '#' where the question has ' '"),
        (MAZE_QUESTION, "So## ##oG", "answer: the path does not join S and G"),
    ],
)
def test_a_bad_maze_names_file_line_and_fault(tmp_path: Path, question: str, answer: str, expected: str) -> None:
    good = f"s,{MAZE_QUESTION},{MAZE_ANSWER},0"
    path = write(tmp_path / "m.csv", HEADER, good, f"s,{question},{answer},0", good)
    assert fault(read_maze_hard, path, Maze(size=3)).startswith(f"{path}, line 3: {expected}")


# MNIST


def idx(magic: int, values: np.ndarray) -> bytes:
    return struct.pack(f">{1 + values.ndim}I", magic, *values.shape) + values.tobytes()


IMAGES = np.arange(3 * 4 * 5, dtype=np.uint8).reshape(3, 4, 5)
LABELS = np.array([7, 0, 9], np.uint8)


@pytest.mark.parametrize("spelling", ["{}-idx{}-ubyte", "{}-idx{}-ubyte.gz", "{}.idx{}-ubyte"])
def test_mnist_reads_under_every_usual_name(tmp_path: Path, spelling: str) -> None:
    for name, content in (("images", idx(2051, IMAGES)), ("labels", idx(2049, LABELS))):
        path = tmp_path / spelling.format(f"t10k-{name}", 3 if name == "images" else 1)
        path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    digits = read_mnist(tmp_path, "test")
    assert digits.images.tolist() == IMAGES.tolist()
    assert digits.labels.tolist() == LABELS.tolist()
    assert len(digits) == 3
    assert torch.from_numpy(digits.images).shape == (3, 4, 5)  # warns, so fails, on a read-only array


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (idx(2051, IMAGES)[:-1], ": expected 3 x 4 x 5 bytes of images, got 59; fetch it again"),
        (idx(2051, IMAGES) + b"x", ": expected 3 x 4 x 5 bytes of images, got 61; fetch it again"),
        (idx(2049, LABELS) * 2, ": not an IDX file of images (expected magic 2051; it starts with 2049)"),
        (b"P5 28 28 255 ....", ": not an IDX file of images (expected magic 2051; it starts with 1345658930)"),
        (b"", ": not an IDX file of images (expected magic 2051; it has 0 bytes)"),
        (gzip.compress(idx(2051, IMAGES))[:-12], ": the gzip stream is cut short or damaged; fetch it again"),
    ],
    ids=["short", "long", "labels", "foreign", "empty", "truncated gzip"],
)
def test_a_truncated_or_foreign_idx_file_is_refused(tmp_path: Path, content: bytes, expected: str) -> None:
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(content)
    assert fault(mnist.read_images, path) == f"{path}{expected}"


def test_labels_must_be_digits_and_as_many_as_images(tmp_path: Path) -> None:
    (tmp_path / "train-images-idx3-ubyte").write_bytes(idx(2051, IMAGES))
    labels = tmp_path / "train-labels-idx1-ubyte"
    labels.write_bytes(idx(2049, np.array([1, 10], np.uint8)))
    assert fault(read_mnist, tmp_path) == f"{labels}: label 1 is 10; expected 0 to 9"
    labels.write_bytes(idx(2049, LABELS[:2]))
    assert "3 train images but 2 labels" in fault(read_mnist, tmp_path)


def test_a_folder_without_mnist_says_what_to_put_there(tmp_path: Path) -> None:
    assert "no train-images-idx3-ubyte.gz here" in fault(read_mnist, tmp_path)
    assert "choose train or test" in fault(read_mnist, tmp_path, "valid")


# Plain puzzle files


def test_comments_blank_lines_crlf_and_a_bom_are_passed_over(tmp_path: Path) -> None:
    lines = ["\ufeff# my puzzles", "", QUESTION, "   ", f"  {QUESTION.replace('.', '0')}  # the same", "#"]
    problem = read_puzzles(write(tmp_path / "p.txt", *lines, end="\r\n"), Sudoku())
    assert problem.given.sum(dim=1).tolist() == [17, 17]
    assert problem.solution[0].equal(problem.solution[1])


def test_a_gzipped_puzzle_file_and_standard_input_read_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = tmp_path / "p.txt.gz"
    packed.write_bytes(gzip.compress(f"{QUESTION}\n".encode()))
    pipe = io.TextIOWrapper(io.BufferedReader(io.BytesIO(f"{QUESTION}\n".encode())))
    monkeypatch.setattr(sys, "stdin", pipe)
    assert read_puzzles(packed, Sudoku()).given.equal(read_puzzles("-", Sudoku()).given)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(b"12\n"))))
    assert fault(read_puzzles, "-", Sudoku()).startswith("standard input, line 1: expected 81 cells, got 2")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (
            f"{QUESTION}\n# why\n{QUESTION[1:]}\n".encode(),
            ", line 3: expected 81 cells, got 80; one puzzle per line, '.' for a blank",
        ),
        (f"{QUESTION}\ny{QUESTION[1:]}\n".encode(), ", line 2: character 1 (r1c1) is 'y'"),
        (f"22{QUESTION[2:]}\n".encode(), ", line 1: clues clash: 2 stands at r1c1 and at r1c2"),
        (b"", ": no puzzles in it; expected one puzzle per line"),
        (b"# nothing\n\n", ": no puzzles in it; expected one puzzle per line"),
        (f"{QUESTION}\n".encode() + b"\x89PNG\r\n\x1a\n", ", line 2: byte 0x89 is not text"),
        (b"\x7fELF\x02\x01\x01\x00", ", line 1: byte 0x02 is not text"),
        (QUESTION.encode("utf-16"), ", line 1: byte 0xff is not text"),
        (gzip.compress(f"{QUESTION}\n".encode() * 99)[:-9], ": the gzip stream is cut short or damaged"),
    ],
    ids=["80 cells", "letter", "clash", "empty", "comments only", "png", "elf", "utf-16", "truncated gzip"],
)
def test_a_malformed_puzzle_file_gives_one_line(tmp_path: Path, content: bytes, expected: str) -> None:
    path = tmp_path / "puzzles.txt"
    path.write_bytes(content)
    assert fault(read_puzzles, path, Sudoku()).startswith(f"{path}{expected}")


def test_in_a_maze_file_a_hash_is_a_wall_and_a_semicolon_begins_a_comment(tmp_path: Path) -> None:
    path = write(tmp_path / "m.txt", "; two mazes", "# S # G  ", "", MAZE_QUESTION)
    problem = read_puzzles(path, Maze(size=3))
    assert len(problem) == 2
    assert problem.given[0].tolist() == [cell != " " for cell in "# S # G  "]
    broken = write(tmp_path / "b.txt", MAZE_QUESTION, "# no comment")
    assert fault(read_puzzles, broken, Maze(size=3)).startswith(f"{broken}, line 2: ")


def test_one_file_holds_one_size(tmp_path: Path) -> None:
    path = write(tmp_path / "g.txt", "01/10", "010/101/010")
    assert (
        fault(read_puzzles, path, Connectivity()) == f"{path}, line 2: 9 cells after puzzles of 4; one size at a time"
    )
