"""N-queens: all boards, rules, clue regimes and text."""

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from letgo.data.make import make
from letgo.data.source import source_of
from letgo.errors import LetgoError
from letgo.presets import preset
from letgo.tasks.queens import Queens, all_boards, search, train_split
from letgo.tasks.task import Problem
from letgo.training.train import training_instances

seeds = st.integers(0, 2**32 - 1)
HINT = "one puzzle per line, '.' for a blank; a cell is a row, its letter the column of the queen"
PARTS = ("train", "valid", "test")
KNOWN = {
    1: 1,
    2: 0,
    3: 0,
    4: 2,
    5: 10,
    6: 4,
    7: 40,
    8: 92,
    9: 352,
    10: 724,
    11: 2680,
    12: 14200,
}  # OEIS A000170


def unclued(boards):
    return Problem(boards, torch.zeros_like(boards, dtype=torch.bool))


def peaceful(boards):
    """The judge: no column, rising or falling diagonal holds two queens."""
    boards = np.asarray(boards)
    row = np.arange(boards.shape[1])
    lines = (boards, boards + row, boards - row)
    return np.all([(np.diff(np.sort(line, axis=1), axis=1) > 0).all(axis=1) for line in lines], axis=0)


@pytest.mark.parametrize(("size", "count"), KNOWN.items())
def test_there_are_as_many_boards_as_known(size, count):
    boards = all_boards(size)
    assert len(boards) == len(boards.unique(dim=0)) == count
    assert peaceful(boards).all()


def test_all_365596_boards_of_14_queens_are_listed():
    boards = all_boards(14)
    assert boards.shape == (365_596, 14)
    assert peaceful(boards).all()
    assert len(np.unique(boards.numpy() @ 14 ** np.arange(14))) == 365_596


@pytest.mark.fast
@pytest.mark.parametrize("size", [4, 5, 6, 7, 8])
def test_the_valid_permutations_are_the_listed_boards_in_order(size):
    boards = torch.tensor(list(permutations(range(size))))
    assert torch.equal(boards[Queens(size).validate(boards, unclued(boards))], all_boards(size))


def test_changing_a_listing_does_not_change_the_next_one():
    all_boards(4).zero_()
    assert all_boards(4).tolist() == [[1, 3, 0, 2], [2, 0, 3, 1]]


def test_draws_are_uniform_over_the_complete_set():
    """Chi-square of 92 boards below mean plus five deviations: odds of a false alarm 1 in 100,000."""
    boards, context = Queens(8).solved(20_000, np.random.default_rng(0))
    found, counts = boards.unique(dim=0, return_counts=True)
    assert context is None
    assert len(found) == 92
    expected = 20_000 / 92
    assert float(((counts - expected) ** 2 / expected).sum()) < 91 + 5 * (2 * 91) ** 0.5


@pytest.mark.parametrize("size", [15, 20, 26, 30])
def test_larger_boards_are_found_by_search(size):
    boards, _ = Queens(size).solved(30, np.random.default_rng(size))
    assert boards.shape == (30, size)
    assert peaceful(boards).all()
    assert len(boards.unique(dim=0)) > 20  # even 15 queens have 2,279,184 boards


@pytest.mark.parametrize("size", [4, 5, 6, 7])
def test_the_search_can_find_every_board(size):
    found = {tuple(board) for board in search(size, 2000, np.random.default_rng(0)).tolist()}
    assert found == {tuple(board) for board in all_boards(size).tolist()}


def test_the_training_split_is_168000_distinct_boards_and_the_rest():
    train, rest = train_split()
    assert (len(train), len(rest)) == (168_000, 197_596)
    codes = np.concatenate([train, rest]) @ 14 ** np.arange(14)
    assert len(np.unique(codes)) == 365_596


def codes(boards):
    """One number per board: 14 digits of base 14."""
    return np.asarray(boards) @ 14 ** np.arange(14)


def test_training_validation_and_test_share_no_board():
    drawn = {part: codes(source_of(Queens()).draw(part, "gen", 20_000, 0).solution) for part in PARTS}
    train, rest = (codes(boards) for boards in train_split())
    assert np.isin(drawn["train"], train).all()
    assert np.isin(drawn["valid"], rest).all()
    assert np.isin(drawn["test"], rest).all()
    assert not np.isin(drawn["valid"], drawn["test"]).any()
    # 20,000 uniform draws of 98,798 boards find about 18,100 of them
    assert all(17_500 < len(np.unique(drawn[part])) < 18_700 for part in ("valid", "test"))
    assert 0.4 < np.isin(codes(Queens().solved(2000, np.random.default_rng(0))[0]), train).mean() < 0.52  # 9 sigma
    with pytest.raises(LetgoError, match="no part 'exam'"):
        source_of(Queens()).draw("exam", "gen", 1, 0)


def test_the_preset_trains_on_the_training_split_and_is_measured_outside_it():
    """All of it, each board once; the same for every seed."""
    train, _ = train_split()
    for seed in (0, 1):
        config = replace(preset("queens"), seed=seed)
        problem = training_instances(config, None)
        assert sorted(codes(problem.solution)) == sorted(codes(train))
    few = training_instances(replace(config, boards=500), None)
    assert len(np.unique(codes(few.solution))) == 500
    for regime in ("random", "gen"):
        test, valid = (codes(source_of(Queens()).draw(p, regime, 2000, 0).solution) for p in ("test", "valid"))
        assert not np.isin(np.concatenate([test, valid]), codes(train)).any()
        assert not np.isin(test, valid).any()


def test_made_training_boards_are_the_split_too():
    assert sorted(codes(make(Queens(), 168_000, 5, "train").solution)) == sorted(codes(train_split()[0]))


def test_the_training_split_follows_its_seed():
    (first, rest), (again, _), (other, _) = (train_split(8, 40, seed) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert len(rest) == 52
    with pytest.raises(LetgoError, match="8 queens have 92"):
        train_split(8, 93)


@settings(deadline=None, max_examples=50)
@given(seeds, st.integers(4, 12))
def test_mirrored_and_turned_boards_stay_valid(seed, size):
    task = Queens(size)
    boards, _ = task.solved(2, np.random.default_rng(seed))
    for turned in (boards, boards.argsort(1)):  # the inverse permutation mirrors at the diagonal
        for moved in (turned, turned.flip(1), size - 1 - turned, size - 1 - turned.flip(1)):
            assert task.validate(moved, unclued(moved)).all()


@settings(deadline=None, max_examples=50)
@given(seeds, st.integers(4, 20))
def test_one_moved_queen_is_named(seed, size):
    rng = np.random.default_rng(seed)
    task = Queens(size)
    boards, _ = task.solved(1, rng)
    row, shift = int(rng.integers(size)), int(rng.integers(1, size))
    moved = boards.clone()
    moved[0, row] = (moved[0, row] + shift) % size
    named = task.violations(moved, unclued(boards))[0]
    same_column = moved[0] == moved[0, row]
    assert same_column.sum() == 2
    assert named[same_column].all()
    assert not task.validate(moved, unclued(boards)).any()


@settings(deadline=None, max_examples=50)
@given(seeds, st.integers(4, 9))
def test_violations_are_the_queens_that_a_loop_finds(seed, size):
    board = np.random.default_rng(seed).integers(size, size=size).tolist()
    expected = [any(i != j and abs(board[i] - board[j]) in (0, abs(i - j)) for j in range(size)) for i in range(size)]
    boards = torch.tensor([board])
    assert Queens(size).violations(boards, unclued(boards))[0].tolist() == expected


@pytest.mark.parametrize(
    ("size", "regime", "clues"),
    [(14, None, 7), (14, "random", 7), (9, "random", 4), (14, "gen", 0), (14, "3", 3)],
)
def test_a_regime_gives_its_number_of_clues(size, regime, clues):
    problem = Queens(size).generate(50, np.random.default_rng(0), regime)
    assert problem.given.sum(1).unique().tolist() == [clues]


@pytest.mark.fast
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", f"expected 4 cells, got 0; {HINT}"),
        ("bdacb", f"expected 4 cells, got 5; {HINT}"),
        ("bea.", "character 2 (row 2) is 'e'; write clues as a-d and blanks as one of . 0 _ * - x"),
        ("b.1.", "character 3 (row 3) is '1'; write clues as a-d and blanks as one of . 0 _ * - x"),
        ("b.b.", "two clues clash: b in row 1 and b in row 3 attack each other; move one of these queens"),
        (".b.d", "two clues clash: b in row 2 and d in row 4 attack each other; move one of these queens"),
        ("..cB", "two clues clash: c in row 3 and B in row 4 attack each other; move one of these queens"),
    ],
)
def test_a_malformed_text_is_one_clear_line(text, message):
    with pytest.raises(LetgoError) as error:
        Queens(4).parse(text)
    assert str(error.value) == message


def test_a_drawing_tells_clues_answers_and_faults_apart():
    task = Queens(4)
    problem = task.parse("b..c")
    right = " . [Q] .  . \n .  .  .  Q \n Q  .  .  . \n .  . [Q] . "
    assert task.draw(torch.tensor([[1, 3, 0, 2]]), problem) == right
    wrong = " . [Q] .  . \n . *Q* .  . \n*Q* .  .  . \n .  . [Q] . "
    assert task.draw(torch.tensor([[1, 1, 0, 2]]), problem) == wrong


def test_impossible_sizes_are_refused():
    for size in (2, 3):
        with pytest.raises(LetgoError, match="choose 4 or more"):
            Queens(size)
    with pytest.raises(LetgoError, match="15 queens"):
        all_boards(15)
    big = Queens(27)
    problem = big.generate(1, np.random.default_rng(0), "gen")
    with pytest.raises(LetgoError, match="27 queens have no text form"):
        big.format(problem.solution, problem)
