"""Latin squares: rules, random squares, clue regimes and text."""

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from letgo.errors import LetgoError
from letgo.tasks.latin import Latin, all_squares, fill, shuffle_class
from letgo.tasks.task import Problem

seeds = st.integers(0, 2**32 - 1)
sizes = st.integers(2, 12)


def unclued(boards):
    return Problem(boards, torch.zeros_like(boards, dtype=torch.bool))


def is_latin(board, n):
    """The judge: every line, as a set, holds all symbols."""
    grid = np.asarray(board).reshape(n, n)
    return all(set(line.tolist()) == set(range(n)) for line in (*grid, *grid.T))


def intercalates(square):
    """2x2 subsquares of a 4x4 Latin square: 12 in the class of the Klein group, 4 in the cyclic group's."""
    pairs = [(i, j) for i in range(4) for j in range(i)]
    return sum(square[a][c] == square[b][d] and square[a][d] == square[b][c] for a, b in pairs for c, d in pairs)


@pytest.mark.parametrize(("order", "count"), [(1, 1), (2, 2), (3, 12), (4, 576), (5, 161280)])
def test_there_are_as_many_latin_squares_as_known(order, count):
    squares = all_squares(order)
    assert len(squares) == len(squares.unique(dim=0)) == count
    assert all(is_latin(square, order) for square in squares[:576])


@pytest.mark.fast
def test_of_all_boards_of_order_3_exactly_the_12_latin_ones_are_valid():
    boards = torch.tensor(list(product(range(3), repeat=9)))
    valid = Latin(3).validate(boards, unclued(boards))
    assert valid.tolist() == [is_latin(board, 3) for board in boards]
    assert int(valid.sum()) == 12  # OEIS A002860


@pytest.mark.parametrize("size", [*range(2, 13), 20])
def test_random_squares_are_latin_at_every_size(size):
    task = Latin(size)
    boards, context = task.solved(20, np.random.default_rng(size))
    assert boards.shape == (20, size**2)
    assert context is None
    assert all(is_latin(board, size) for board in boards)


def test_more_squares_than_one_chunk_are_all_different():
    boards, _ = Latin(7).solved(9000, np.random.default_rng(0))
    assert len(boards.unique(dim=0)) == 9000  # a repeat has odds below 9000^2 / (2 * 6e13), were the draw uniform


def test_order_4_draws_are_uniform_within_each_class_with_one_eighth_in_kleins():
    """Five standard deviations each: a false alarm has odds of about 1 in a million."""
    draws, _ = Latin(4).solved(20_000, np.random.default_rng(0))
    squares, counts = draws.unique(dim=0, return_counts=True)
    assert len(squares) == 576
    klein = torch.tensor([intercalates(square) == 12 for square in squares.view(-1, 4, 4).tolist()])
    assert int(klein.sum()) == 144
    share = float(counts[klein].sum() / 20_000)
    assert abs(share - 1 / 8) < 5 * (1 / 8 * 7 / 8 / 20_000) ** 0.5
    expected = torch.where(klein, counts[klein].float().mean(), counts[~klein].float().mean())
    chi2 = float(((counts - expected) ** 2 / expected).sum())
    assert chi2 < 574 + 5 * (2 * 574) ** 0.5


def row_cycles(square):
    """Cycles of the permutations that carry one row into another, over all pairs; isotopies keep the number."""
    total = 0
    for upper in square:
        for lower in square:
            follow, seen = dict(zip(upper, lower, strict=True)), set()
            for first in upper:
                total += first not in seen
                while first not in seen:
                    seen.add(first)
                    first = follow[first]
    return total


def test_a_shuffled_square_takes_all_its_roles_and_no_others():
    """60 copies miss one of three roles with odds 3 * (2/3)^60 < 1e-10."""
    square = Latin(7).solved(1, np.random.default_rng(2))[0].view(7, 7).numpy()
    by_symbol = np.argsort(square, axis=1)  # the column of each symbol in each row
    expected = {row_cycles(view.tolist()) for view in (square, square.T, by_symbol.T)}
    assert len(expected) == 3
    shuffled = shuffle_class(np.tile(square, (60, 1, 1)), np.random.default_rng(0))
    assert {row_cycles(copy) for copy in shuffled.tolist()} == expected


class Zeros(np.random.Generator):
    """A generator that draws nothing but the lowest number."""

    def random(self, size=None, dtype=np.float64, out=None):
        return np.zeros(size or (), dtype)


def test_the_search_takes_a_free_symbol_even_when_zero_is_drawn():
    options = np.array([[[False, True], [True, False]]])
    never = np.zeros((2, 2, 2, 2), dtype=bool)
    assert fill(options, never, Zeros(np.random.PCG64())).tolist() == [[1, 0]]


def test_the_search_marks_a_dead_end():
    options = np.array([[[True, False], [True, False]]])
    same_symbol = np.broadcast_to(np.eye(2, dtype=bool)[None, :, None, :], (2, 2, 2, 2))
    assert sorted(fill(options, same_symbol, np.random.default_rng(0))[0].tolist()) == [-1, 0]


@settings(deadline=None, max_examples=50)
@given(seeds, sizes)
def test_permuted_rows_columns_and_symbols_stay_valid(seed, size):
    rng = np.random.default_rng(seed)
    task = Latin(size)
    boards, _ = task.solved(3, rng)
    rows, columns, names = (torch.from_numpy(rng.permutation(size)) for _ in range(3))
    grid = names[boards].view(-1, size, size)[:, rows][:, :, columns]
    for moved in (grid.flatten(1), grid.mT.flatten(1)):
        assert task.validate(moved, unclued(moved)).all()


@settings(deadline=None, max_examples=50)
@given(seeds, sizes)
def test_one_changed_cell_is_named_with_its_two_twins(seed, size):
    rng = np.random.default_rng(seed)
    task = Latin(size)
    boards, _ = task.solved(1, rng)
    cell, shift = rng.integers(size**2), rng.integers(1, size)
    changed = boards.clone()
    changed[0, cell] = (changed[0, cell] + shift) % size
    named = task.violations(changed, unclued(boards))[0]
    twins = (changed[0] == changed[0, cell]).view(size, size)
    row, column = divmod(int(cell), size)
    expected = torch.zeros(size, size, dtype=torch.bool)
    expected[row] |= twins[row]
    expected[:, column] |= twins[:, column]
    assert int(named.sum()) == 3
    assert torch.equal(named, expected.flatten())


@settings(deadline=None, max_examples=50)
@given(seeds, st.integers(2, 6))
def test_violations_are_the_cells_that_a_loop_finds(seed, size):
    board = np.random.default_rng(seed).integers(size, size=(size, size))
    expected = [
        (board[i] == board[i, j]).sum() > 1 or (board[:, j] == board[i, j]).sum() > 1
        for i in range(size)
        for j in range(size)
    ]
    boards = torch.from_numpy(board.reshape(1, -1))
    assert Latin(size).violations(boards, unclued(boards))[0].tolist() == expected


@pytest.mark.parametrize(
    ("size", "regime", "clues"),
    [(7, None, 14), (7, "random", 14), (5, "random", 10), (7, "gen", 0), (7, "33", 33)],
)
def test_a_regime_gives_its_number_of_clues(size, regime, clues):
    problem = Latin(size).generate(50, np.random.default_rng(0), regime)
    assert problem.given.sum(1).unique().tolist() == [clues]


def test_training_draws_every_clue_count_below_the_full_board():
    problem = Latin(4).generate(2000, np.random.default_rng(0), "train")
    assert problem.given.sum(1).unique().tolist() == list(range(16))  # missing one: odds 16 * (15/16)^2000 < 1e-54


def test_a_drawing_tells_clues_answers_and_faults_apart():
    task = Latin(2)
    problem = task.parse("1...")
    assert task.draw(torch.tensor([[0, 1, 1, 0]]), problem) == "[1] 2 \n 2  1 "
    assert task.draw(torch.tensor([[0, 1, 1, 1]]), problem) == "[1]*2*\n*2**2*"


def test_impossible_orders_are_refused():
    for order in (1, 36):
        with pytest.raises(LetgoError, match=f"order {order}"):
            Latin(order)
    with pytest.raises(LetgoError, match="order 6"):
        all_squares(6)
