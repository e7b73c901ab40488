"""The exact search and the board generator, against counts and a solver that are not ours."""

from math import factorial

import numpy as np
import pytest
import torch
from ortools.sat.python import cp_model

from letgo import tasks
from letgo.data.source import source_of
from letgo.errors import LetgoError
from letgo.tasks.sudoku import Sudoku
from letgo.tasks.sudoku_boards import ROUND, _attempt, random_boards, triples
from letgo.tasks.sudoku_grid import units
from letgo.tasks.sudoku_search import (
    all_boards,
    completions,
    count_solutions,
    is_unique,
    minimal_puzzles,
    solve,
)
from letgo.tasks.task import Problem, random_masks

BOARDS_9X9 = 6_670_903_752_021_072_936_960  # Felgenhauer and Jarvis, 2005
SUDOKU = Sudoku()


def boards_9x9(count: int, seed: int) -> torch.Tensor:
    return SUDOKU.solved(count, np.random.default_rng(seed))[0]


def every_unit_is_complete(boards: np.ndarray, box: int) -> bool:
    return bool((np.sort(boards[:, units(box)], axis=2) == np.arange(box**2)).all())


class Peer:
    """OR-tools CP-SAT on one puzzle: up to two solutions."""

    def __init__(self, solution: list[int], given: list[bool]) -> None:
        self.model = cp_model.CpModel()
        self.cells = [
            self.model.new_int_var(s, s, "") if g else self.model.new_int_var(0, 8, "")
            for s, g in zip(solution, given, strict=True)
        ]
        # Written out here, so that a mistake in our own tables cannot hide.
        for i in range(9):
            self.model.add_all_different(self.cells[9 * i : 9 * i + 9])
            self.model.add_all_different(self.cells[i::9])
            corner = 27 * (i // 3) + 3 * (i % 3)
            self.model.add_all_different(self.cells[corner + 9 * r + c] for r in range(3) for c in range(3))

    def solutions(self) -> list[list[int]]:
        found: list[list[int]] = []
        while len(found) < 2 and (board := self._solve()):
            found.append(board)
            differs = [self.model.new_bool_var("") for _ in board]
            for cell, symbol, other in zip(self.cells, board, differs, strict=True):
                self.model.add(cell != symbol).only_enforce_if(other)
            self.model.add_bool_or(differs)
        return found

    def _solve(self) -> list[int] | None:
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        status = solver.solve(self.model)
        assert status in (cp_model.OPTIMAL, cp_model.FEASIBLE, cp_model.INFEASIBLE)
        return None if status == cp_model.INFEASIBLE else [solver.value(cell) for cell in self.cells]


def without_one_clue(problem: Problem) -> Problem:
    """Every puzzle without its first clue."""
    given = problem.given.clone()
    given[torch.arange(len(given)), given.int().argmax(dim=1)] = False
    return Problem(problem.solution, given)


def with_one_wrong_clue(problem: Problem) -> Problem:
    """A further clue, in the first blank cell, that is not the solution's."""
    blank = (~problem.given).int().argmax(dim=1)
    solution, given = problem.solution.clone(), problem.given.clone()
    each = torch.arange(len(given))
    solution[each, blank] = (solution[each, blank] + 1) % 9
    given[each, blank] = True
    return Problem(solution, given)


def mixed_puzzles() -> Problem:
    """200 puzzles: 80 minimal, 50 with one clue fewer, 20 spoilt, 50 with random clues."""
    rng = np.random.default_rng(5)
    boards = boards_9x9(200, seed=5)
    minimal = minimal_puzzles(boards[:150], rng)
    scattered = Problem(boards[150:], random_masks(50, 81, 25, 50, rng))
    return Problem.cat([minimal[:80], without_one_clue(minimal[80:130]), with_one_wrong_clue(minimal[130:]), scattered])


@pytest.mark.slow
def test_cp_sat_agrees_on_200_puzzles_about_solutions_and_uniqueness():
    puzzles = mixed_puzzles()
    counts, (answers, solved) = count_solutions(puzzles, cap=2), solve(puzzles)
    peers = [Peer(s, g).solutions() for s, g in zip(puzzles.solution.tolist(), puzzles.given.tolist(), strict=True)]
    assert counts.tolist() == [len(found) for found in peers]
    assert is_unique(puzzles).tolist() == [len(found) == 1 for found in peers]
    assert solved.tolist() == [len(found) > 0 for found in peers]
    assert all(answers[i].tolist() == found[0] for i, found in enumerate(peers) if len(found) == 1)
    assert counts.bincount(minlength=3).min() >= 20  # no solution, one, several: all of them were compared


def test_answers_of_puzzles_with_many_solutions_are_distinct_and_valid():
    puzzle = Problem(boards_9x9(1, seed=1), random_masks(1, 81, 21, 21, np.random.default_rng(1)))
    answers = completions(puzzle, cap=50)
    assert len(answers) == len(answers.unique(dim=0)) == 50
    repeated = Problem(puzzle.solution.expand(50, -1), puzzle.given.expand(50, -1))
    assert SUDOKU.validate(answers, repeated).all()


@pytest.mark.fast
def test_there_are_288_mini_boards():
    boards = all_boards(2)
    assert len(boards) == len(boards.unique(dim=0)) == 288
    assert every_unit_is_complete(boards.numpy(), box=2)


def test_larger_boards_are_not_listed():
    with pytest.raises(LetgoError, match="only box = 2"):
        all_boards(3)


def random_symmetry(boards: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
    """Every board transposed or not, with bands, stacks, the lines of each and the symbols in an order of its own."""
    count, cells = boards.shape
    box = round(cells**0.25)

    def lines() -> np.ndarray:
        bands = rng.permuted(np.tile(np.arange(box), (count, 1)), axis=1)
        inside = rng.permuted(np.tile(np.arange(box), (count, box, 1)), axis=2)
        return (bands[:, :, None] * box + inside).reshape(count, box**2)

    source = lines()[:, :, None] * box**2 + lines()[:, None, :]
    flip = rng.integers(2, size=(count, 1, 1)) == 1
    source = torch.from_numpy(np.where(flip, source.transpose(0, 2, 1), source)).flatten(1)
    names = torch.from_numpy(rng.permuted(np.tile(np.arange(box**2), (count, 1)), axis=1))
    return names.gather(1, boards.gather(1, source))


def test_the_mini_boards_fall_into_two_classes_under_symmetry():
    """Two essentially different 4x4 boards exist; 5,000 draws miss one of 192 images with odds 1e-9."""
    rng = np.random.default_rng(0)
    boards = all_boards(2)
    orbits = []
    for board in boards:
        if not any((orbit == board).all(dim=1).any() for orbit in orbits):
            orbits.append(random_symmetry(board.expand(5_000, -1), rng).unique(dim=0))
    assert sorted(len(orbit) for orbit in orbits) == [96, 192]


@pytest.mark.fast
@pytest.mark.parametrize(
    ("puzzle", "answer"),
    [
        (  # Inkala, 2012
            "8..........36......7..9.2...5...7.......457.....1...3...1....68..85...1..9....4..",
            "812753649943682175675491283154237896369845721287169534521974368438526917796318452",
        ),
        (  # made to defeat a search that goes row by row
            "..............3.85..1.2.......5.7.....4...1...9.......5......73..2.1........4...9",
            "987654321246173985351928746128537694634892157795461832519286473472319568863745219",
        ),
    ],
)
def test_known_hard_puzzles_have_their_one_known_solution(puzzle: str, answer: str):
    problem = SUDOKU.parse(puzzle)
    assert SUDOKU.format(completions(problem, cap=10), problem) == [answer]


def test_a_17_clue_puzzle_without_a_clue_has_several_solutions():
    """No 16-clue puzzle is unique (McGuire, Tugemann and Civario, 2012)."""
    puzzle = SUDOKU.parse("000000010400000000020000000000050407008000300001090000300400200050100000000806000")
    assert puzzle.given.sum() == 17
    assert is_unique(puzzle).all()
    assert not is_unique(without_one_clue(puzzle)).any()


def test_clashing_clues_have_no_solution():
    problem = Problem(torch.zeros(1, 81, dtype=torch.long), torch.arange(81)[None] < 2)
    assert count_solutions(problem).tolist() == [0]
    assert solve(problem)[1].tolist() == [False]


def test_answers_do_not_depend_on_the_batch():
    puzzles = mixed_puzzles()
    alone = torch.cat([count_solutions(puzzles[i : i + 1], cap=3) for i in range(0, 200, 10)])
    assert torch.equal(count_solutions(puzzles, cap=3)[::10], alone)


@pytest.mark.parametrize("box", [2, 3])
def test_minimal_puzzles_are_unique_and_need_every_clue(box: int):
    task = Sudoku(box)
    boards, _ = task.solved(10, np.random.default_rng(3))
    puzzles = minimal_puzzles(boards, np.random.default_rng(3))
    assert torch.equal(solve(puzzles)[0], boards)
    assert is_unique(puzzles).all()
    for i, cell in puzzles.given.nonzero().tolist():
        fewer = puzzles.given[i : i + 1].clone()
        fewer[0, cell] = False
        assert count_solutions(Problem(boards[i : i + 1], fewer)).item() == 2


def test_cp_sat_confirms_that_minimal_puzzles_need_every_clue():
    puzzle = minimal_puzzles(boards_9x9(1, seed=4), np.random.default_rng(4))
    solution, given = puzzle.solution[0].tolist(), puzzle.given[0].tolist()
    assert Peer(solution, given).solutions() == [solution]
    for cell in puzzle.given[0].nonzero().flatten().tolist():
        assert len(Peer(solution, [g and i != cell for i, g in enumerate(given)]).solutions()) == 2


@pytest.mark.parametrize(("box", "count"), [(2, 500), (3, 2000), (4, 20)])
def test_random_boards_are_valid(box: int, count: int):
    boards = random_boards(box, count, np.random.default_rng(0))
    assert boards.shape == (count, box**4)
    assert every_unit_is_complete(boards, box)


@pytest.mark.parametrize(("box", "count"), [(3, 2000), (4, 20)])
def test_random_boards_are_distinct(box: int, count: int):
    """Two equal ones among 2000 uniform 9x9 boards: odds 1e-15."""
    assert len(np.unique(random_boards(box, count, np.random.default_rng(0)), axis=0)) == count


@pytest.mark.parametrize("box", [2, 3, 4])
def test_a_smaller_count_gives_the_first_boards_of_a_larger_one(box: int):
    few, many, other = (random_boards(box, n, np.random.default_rng(s)) for n, s in ((3, 7), (20, 7), (3, 8)))
    assert np.array_equal(few, many[:3])
    assert not np.array_equal(few, other)
    assert len(random_boards(box, 0, np.random.default_rng(7))) == 0


def test_the_searchs_success_rate_gives_the_number_of_9x9_boards():
    """Every board is one of the search's equally likely paths, so successes count boards.

    About 13,000 successes: a standard error of .9%, so 4% is passed by chance with odds 1e-5.
    """
    rng = np.random.default_rng(0)
    rounds = 60
    successes = sum(len(_attempt(rng)[0]) for _ in range(rounds))
    attempts_drawn = 56**4 * 36**4 * triples().most_passing ** 2
    left_out = factorial(9) * 6**4
    estimate = successes / (rounds * ROUND) * attempts_drawn * left_out
    assert estimate == pytest.approx(BOARDS_9X9, rel=0.04)


def test_every_band_and_stack_is_alike():
    """The search draws bands and stacks in different ways; in uniform boards all six have the same law.

    A band whose three boxes have the same row triples has odds of about .04. Six frequencies among 20,000
    boards, with a standard error of .0013, spread by six errors with odds below 1e-3 (the seed is fixed).
    """
    grids = random_boards(3, 20_000, np.random.default_rng(11)).reshape(-1, 9, 9)
    shares = []
    for lines in (grids, grids.transpose(0, 2, 1)):
        triple_masks = (1 << lines.astype(int)).reshape(-1, 3, 3, 3, 3).sum(axis=4)  # board, band, row, box
        in_order = np.sort(triple_masks, axis=2)
        shares += list((in_order == in_order[..., :1]).all(axis=(2, 3)).mean(axis=0))
    assert min(shares) > 0.02
    assert max(shares) - min(shares) < 0.0078


def test_mini_boards_are_uniform():
    """Chi-square over 288 boards: mean 287, standard deviation 24; 430 is passed with odds 1e-7."""
    boards = random_boards(2, 28_800, np.random.default_rng(2))
    _, counts = np.unique(boards, axis=0, return_counts=True)
    assert len(counts) == 288
    assert ((counts - 100) ** 2 / 100).sum() < 430


@pytest.mark.parametrize("regime", ["test", "valid", "train"])
def test_sudoku_extreme_without_its_data_set_asks_minimal_puzzles_with_one_solution(regime: str) -> None:
    source = source_of(tasks.get("sudoku-extreme"))
    assert source.regimes == ("test", "valid")
    problem = source.draw("test", regime, 6, 0)
    assert is_unique(problem).all()
    for cell in problem.given[0].nonzero().flatten():
        fewer = problem.given[:1].clone()
        fewer[0, cell] = False
        assert not is_unique(Problem(problem.solution[:1], fewer)).any()
