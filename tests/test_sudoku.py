"""The Sudoku task: rules, clue regimes and text."""

from functools import lru_cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from letgo.errors import LetgoError
from letgo.tasks.sudoku import Sudoku, n_symmetries
from letgo.tasks.sudoku_search import count_solutions, minimal_puzzles, solve
from letgo.tasks.task import Problem

SUDOKU = Sudoku()
seeds = st.integers(0, 2**32 - 1)

SOLVED = "534678912672195348198342567859761423426853791713924856961537284287419635345286179"
PUZZLE = "53..7....6..195....98....6.8...6...34..8.3..17...2...6.6....28....419..5....8..79"


def solved_puzzle() -> Problem:
    """A well-known puzzle together with its solution."""
    return Problem(SUDOKU.parse(SOLVED).solution, SUDOKU.parse(PUZZLE).given)


@lru_cache
def some_boards(box: int) -> torch.Tensor:
    return Sudoku(box).solved(16, np.random.default_rng(0))[0]


def no_clues(boards: torch.Tensor) -> Problem:
    return Problem(boards, torch.zeros_like(boards, dtype=torch.bool))


def random_image(task: Sudoku, problem: Problem, seed: int) -> Problem:
    torch.manual_seed(seed)
    return Problem(*task.random_images(problem.solution, problem.given))


def test_a_published_solution_is_valid_and_its_half_turn_breaks_the_clues():
    problem = solved_puzzle()
    turned = problem.solution.flip(1)
    assert SUDOKU.validate(problem.solution, problem).all()
    assert SUDOKU.validate(turned, no_clues(turned)).all()
    assert not SUDOKU.validate(turned, problem).any()


def test_a_board_of_one_symbol_violates_everywhere():
    """Rows, columns and boxes of nothing but fives have the right sums."""
    boards = torch.full((1, 81), 4)
    assert SUDOKU.violations(boards, no_clues(boards)).all()


def test_swapping_two_cells_of_a_box_and_a_column_breaks_their_two_rows_only():
    board = SUDOKU.parse(SOLVED).solution
    board[0, [0, 9]] = board[0, [9, 0]]
    named = SUDOKU.violations(board, no_clues(board))[0].nonzero().flatten()
    assert len(named) == 4
    assert {0, 9} < set(named.tolist())
    assert set(SUDOKU.positions()[0, named].tolist()) == {0, 1}


def test_swapping_two_cells_of_a_box_and_a_row_breaks_their_two_columns_only():
    board = SUDOKU.parse(SOLVED).solution
    board[0, [0, 1]] = board[0, [1, 0]]
    named = SUDOKU.violations(board, no_clues(board))[0].nonzero().flatten()
    assert len(named) == 4
    assert {0, 1} < set(named.tolist())
    assert set(SUDOKU.positions()[1, named].tolist()) == {0, 1}


@pytest.mark.fast
def test_a_cyclic_latin_square_breaks_the_boxes_only():
    """Symbol (row + column) mod 9: a box has its sums once, twice, three times, twice and once."""
    row, column, _ = SUDOKU.positions()
    board = ((row + column) % 9)[None]
    once = (row % 3 + column % 3 == 0) | (row % 3 + column % 3 == 4)
    assert torch.equal(SUDOKU.violations(board, no_clues(board))[0], ~once)


@settings(deadline=None)
@given(st.sampled_from([2, 3, 4]), st.data())
def test_one_changed_cell_is_named_together_with_cells_that_it_clashes_with(box: int, data: st.DataObject):
    task = Sudoku(box)
    board = some_boards(box)[:1].clone()
    cell = data.draw(st.integers(0, task.cells - 1))
    board[0, cell] = (board[0, cell] + data.draw(st.integers(1, task.symbols - 1))) % task.symbols
    named = task.violations(board, no_clues(board))[0]
    assert named[cell]
    assert 2 <= named.sum() <= 4  # itself and the symbol's place in its row, column and box
    assert (board[0, named] == board[0, cell]).all()
    positions = task.positions()
    assert (positions[:, named] == positions[:, cell : cell + 1]).any(dim=0).all()
    assert not task.validate(board, no_clues(board)).any()


def test_changed_clues_are_violations_even_on_a_complete_board():
    problem = solved_puzzle()
    renamed = torch.tensor([1, 0, 2, 3, 4, 5, 6, 7, 8])[problem.solution]  # 1 and 2 trade places
    changed = problem.given & (problem.solution < 2)
    assert changed.any()
    assert torch.equal(SUDOKU.violations(renamed, problem), changed)


def test_positions_are_row_column_and_box():
    row, column, box = SUDOKU.positions()
    assert (row[40], column[40], box[40]) == (4, 4, 4)
    assert (row[17], column[17], box[17]) == (1, 8, 2)
    assert all(torch.equal(kind.bincount(), torch.full((9,), 9)) for kind in (row, column, box))
    assert len(set(zip(row.tolist(), column.tolist(), strict=True))) == 81


@pytest.mark.parametrize(
    ("regime", "low", "high"),
    [("21", 21, 21), ("medium", 27, 53), ("hard", 0, 26), ("train", 0, 80), ("81", 81, 81)],
)
def test_regimes_have_the_clue_counts_of_table_2(regime: str, low: int, high: int):
    """5000 boards miss one of at most 81 counts with odds below 1e-24."""
    masks = SUDOKU.masks(torch.zeros(5000, 81, dtype=torch.long), regime, np.random.default_rng(0))
    assert set(masks.sum(dim=1).tolist()) == set(range(low, high + 1))


@pytest.mark.parametrize(
    ("box", "regimes"), [(2, {"4": (4, 4), "medium": (5, 10), "hard": (0, 5)}), (4, {"train": (0, 255)})]
)
def test_other_sizes_take_clue_counts_in_proportion(box: int, regimes: dict[str, tuple[int, int]]):
    assert {regime: Sudoku(box).clue_range(regime) for regime in regimes} == regimes


def test_an_unknown_size_is_refused():
    with pytest.raises(LetgoError, match="box is 2"):
        Sudoku(5)


def test_dots_and_zeros_are_blanks_and_letters_take_either_case():
    assert torch.equal(SUDOKU.parse(PUZZLE.replace(".", "0") + "\n").given, SUDOKU.parse(PUZZLE).given)
    assert Sudoku(4).parse("g" + "A" + "." * 254).solution[0, :2].tolist() == [15, 9]


@pytest.mark.fast
@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (PUZZLE[:-1], "expected 81 cells, got 80; one puzzle per line, '.' for a blank"),
        (PUZZLE + "1", "expected 81 cells, got 82"),
        ("", "expected 81 cells, got 0"),
        ("." * 16, "expected 81 cells, got 16; one puzzle per line, '.' for a blank; 4x4 is the model sudoku-mini's"),
        (PUZZLE[:12] + "y" + PUZZLE[13:], r"character 13 \(r2c4\) is 'y'; write clues as 1-9"),
        (PUZZLE[:2] + "\0" + PUZZLE[3:], r"character 3 \(r1c3\) is '.x00'"),
        (PUZZLE[:2] + "²" + PUZZLE[3:], r"character 3 \(r1c3\) is '²'"),
        (".7....7.." + "." * 72, "clues clash: 7 stands at r1c2 and at r1c7, in the same row"),
        (
            "4........" + "4........" + "." * 63,
            "clues clash: 4 stands at r1c1 and at r2c1, in the same column",
        ),
        ("4........" + ".4......." + "." * 63, "clues clash: 4 stands at r1c1 and at r2c2, in the same box"),
    ],
)
def test_a_malformed_puzzle_gets_one_line_that_names_the_fault(text: str, fault: str):
    with pytest.raises(LetgoError, match=fault) as error:
        SUDOKU.parse(text)
    assert "\n" not in str(error.value)


def test_a_letter_beyond_the_boards_symbols_is_refused():
    with pytest.raises(LetgoError, match=r"character 2 \(r1c2\) is 'H'; write clues as 1-9 and A-G"):
        Sudoku(4).parse(".H" + "." * 254)
    with pytest.raises(LetgoError, match="is '5'; write clues as 1-4"):
        Sudoku(2).parse("5" + "." * 15)


def test_a_drawing_shows_boxes_clues_and_broken_answers():
    mini = Sudoku(2)
    problem = Problem(mini.parse("1234341221434321").solution, mini.parse("1.3..4....4..3..").given)
    broken = problem.solution.clone()
    broken[0, 1], broken[0, 13] = 3, 0  # an answer that clashes, and a changed clue
    assert mini.draw(broken, problem) == (
        "┌──────┬──────┐\n"
        "│[1]*4*│[3]*4*│\n"
        "│ 3 [4]│ 1  2 │\n"
        "├──────┼──────┤\n"
        "│ 2 *1*│[4] 3 │\n"
        "│ 4 *1*│ 2 *1*│\n"
        "└──────┴──────┘"
    )


def test_the_symmetry_group_has_the_published_size():
    assert n_symmetries(3) == 1_218_998_108_160  # Russell and Jarvis, 2006
    assert n_symmetries(2) == 3072


@settings(deadline=None)
@given(st.sampled_from([2, 3, 4]), seeds)
def test_symmetries_keep_validity_and_the_number_of_clues(box: int, seed: int):
    task = Sudoku(box)
    problem = Problem(some_boards(box), task.masks(some_boards(box), "train", np.random.default_rng(seed)))
    image = random_image(task, problem, seed)
    assert task.validate(image.solution, image).all()
    assert torch.equal(image.given.sum(dim=1), problem.given.sum(dim=1))


def test_symmetries_carry_clues_along_with_the_solution():
    image = random_image(SUDOKU, minimal_puzzles(some_boards(3), np.random.default_rng(0)), 0)
    assert (count_solutions(image, cap=2) == 1).all()
    assert torch.equal(solve(image)[0], image.solution)


def test_symmetries_move_boards_each_in_its_own_way():
    """Two equal images among 100: odds 1e-8."""
    boards = some_boards(3)[:1].expand(100, -1)
    assert len(random_image(SUDOKU, no_clues(boards), 0).solution.unique(dim=0)) == 100
