"""Mazes: distances against scipy, far pairs, the tie-break, what counts as valid, and text."""

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.ndimage import label
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import shortest_path as scipy_shortest_path

from letgo.errors import LetgoError
from letgo.tasks.maze import (
    GOAL,
    OPEN,
    PATH,
    START,
    WALL,
    Maze,
    distances,
    marked_share,
    path_length_optimal,
    path_valid,
    random_layouts,
    shortest_path,
)
from letgo.tasks.task import Problem

seeds = st.integers(0, 2**32 - 1)
sizes = st.integers(3, 9)


def scipy_distances(passable, source):
    """The judge: moves from a cell on the grid's graph, inf without a way."""
    n = len(passable)
    number = np.arange(n * n).reshape(n, n)
    beside = [(number[:, :-1], number[:, 1:]), (number[:-1], number[1:])]
    pairs = np.concatenate([np.stack([a.ravel(), b.ravel()], 1) for a, b in beside])
    pairs = pairs[passable.ravel()[pairs].all(axis=1)]
    graph = csr_matrix((np.ones(len(pairs)), pairs.T), shape=(n * n, n * n))
    return scipy_shortest_path(graph, directed=False, unweighted=True, indices=source)


def distance_apart(board):
    grid = board.numpy()
    start, goal = (int(np.flatnonzero(grid == mark)[0]) for mark in (START, GOAL))
    side = int(len(grid) ** 0.5)
    return scipy_distances((grid != WALL).reshape(side, side), start)[goal]


def hang_together(board):
    """The judge of 'valid': S and G carry the same label of scipy.ndimage."""
    side = int(len(board) ** 0.5)
    grid = board.numpy().reshape(side, side)
    labels, _ = label(np.isin(grid, (START, GOAL, PATH)))
    return labels[grid == START] == labels[grid == GOAL]


def unanswered(seed, size, walls=0.3):
    """Any maze, its goal in reach or not."""
    rng = np.random.default_rng(seed)
    board = torch.from_numpy((rng.random((1, size**2)) > walls).astype(np.int64))
    start, goal = rng.permutation(size**2)[:2]
    board[0, start], board[0, goal] = START, GOAL
    return Problem(board, board != OPEN)


@settings(deadline=None, max_examples=50)
@given(seeds, sizes, st.floats(0, 0.6))
def test_distances_are_those_of_scipy(seed, size, walls):
    rng = np.random.default_rng(seed)
    passable = rng.random((3, size, size)) > walls
    sources = rng.integers(size**2, size=3)
    source = torch.zeros(3, size**2, dtype=torch.bool)
    source[range(3), sources] = True
    passable.reshape(3, -1)[range(3), sources] = True
    ours = distances(torch.from_numpy(passable), source.view(3, size, size)).flatten(1)
    for moves, grid, cell in zip(ours, passable, sources, strict=True):
        judged = scipy_distances(grid, cell)
        assert moves.tolist() == np.where(np.isinf(judged), -1, judged).tolist()


def test_a_30x30_maze_has_a_shortest_path_longer_than_110_moves():
    task = Maze()
    problem = task.generate(12, np.random.default_rng(0))
    assert problem.solution.shape == (12, 900)
    for board in problem.solution:
        apart = distance_apart(board)
        assert apart > 110
        assert int((board == PATH).sum()) == apart - 1
        assert hang_together(board)
        assert int((board == START).sum()) == int((board == GOAL).sum()) == 1
        assert 0.33 * 900 <= int((board == WALL).sum()) <= 0.40 * 900


@pytest.mark.parametrize(("size", "min_length"), [(3, 2), (4, 6), (5, 10), (10, 30), (20, 70), (30, 110)])
def test_other_sizes_have_a_length_of_their_own(size, min_length):
    task = Maze(size)
    assert task.min_length == min_length
    problem = task.generate(60 if size < 20 else 3, np.random.default_rng(0), "train")
    assert all(distance_apart(board) > min_length for board in problem.solution)
    assert path_length_optimal(problem.solution, problem).all()


def test_the_goal_need_not_be_the_furthest_cell():
    """With a low bound any length from 6 moves on may come; fixed seed, about 25 different ones expected."""
    problem = Maze(10, min_length=5).generate(200, np.random.default_rng(0))
    assert len((problem.solution == PATH).sum(1).unique()) >= 10


def test_a_length_that_no_layout_reaches_is_refused():
    with pytest.raises(LetgoError, match=r"no maze of size 3 with a path longer than 9 moves .* lower min_length"):
        Maze(3, min_length=9).generate(1, np.random.default_rng(0))


def test_layouts_place_a_uniform_number_of_walls():
    walls = (~random_layouts(500, 10, np.random.default_rng(0))).sum((1, 2))
    assert walls.unique().tolist() == list(range(33, 41))  # missing one: odds 8 * (7/8)^500 < 1e-28


def test_the_same_seed_gives_the_same_mazes_and_a_smaller_count_the_first_of_them():
    many, few, other = (Maze(8).solved(n, np.random.default_rng(seed))[0] for n, seed in [(9, 0), (4, 0), (4, 1)])
    assert torch.equal(many[:4], few)
    assert not torch.equal(few, other)


@settings(deadline=None, max_examples=100)
@given(seeds, sizes)
def test_the_label_steps_up_left_right_or_down_in_that_order(seed, size):
    problem = unanswered(seed, size)
    board = problem.solution[0].numpy().reshape(size, size)
    goal = int(np.flatnonzero(board.ravel() == GOAL)[0])
    moves = scipy_distances(board != WALL, goal).reshape(size, size)
    row, column = np.argwhere(board == START)[0]
    expected = board.copy()
    while np.isfinite(moves[row, column]) and moves[row, column] > 1:
        around = [(row - 1, column), (row, column - 1), (row, column + 1), (row + 1, column)]
        inside = [(i, j) for i, j in around if 0 <= i < size and 0 <= j < size]
        row, column = next((i, j) for i, j in inside if moves[i, j] == moves[row, column] - 1)
        expected[row, column] = PATH
    assert shortest_path(problem.solution)[0].tolist() == expected.ravel().tolist()


@pytest.mark.fast
@pytest.mark.parametrize(
    ("maze", "answer"),
    [
        ("G..../...../..S../...../.....", "Goo../..o../..S../...../....."),  # up before left
        ("....G/...../..S../...../.....", "..ooG/..o../..S../...../....."),  # up before right
        ("...../###../S#G../###../.....", "...../###../S#G../###../....."),  # no way
        ("...../.#.../S#G../.#.../.....", "ooo../o#o../S#G../.#.../....."),  # up before down
        ("..S../.###./..G../...../.....", "ooS../o###./ooG../...../....."),  # left before right
        ("..S../...../G..../...../.....", "ooS../o..../G..../...../....."),  # left before down
        ("..S../...../....G/...../.....", "..Soo/....o/....G/...../....."),  # right before down
    ],
)
def test_every_tie_is_broken_as_stated(maze, answer):
    task = Maze(5)
    assert task.format(shortest_path(task.parse(maze).solution), task.parse(maze)) == [answer]


def test_labels_of_different_lengths_share_a_batch():
    texts = [
        "S..../...../...../...../....G",
        "SG.../...../...../...../.....",
        "S#..G/##.../...../...../.....",
    ]
    boards = torch.cat([Maze(5).parse(text).solution for text in texts])
    assert (shortest_path(boards) == PATH).sum(1).tolist() == [7, 0, 0]  # the third has no way


@settings(deadline=None, max_examples=150)
@given(seeds, st.integers(3, 6), st.sampled_from([0.0, 0.5, 0.9]))
def test_a_board_is_valid_when_s_and_g_hang_together_and_nothing_else_changed(seed, size, marked):
    rng = np.random.default_rng(seed)
    problem, task = unanswered(seed, size, walls=0.2), Maze(size)
    marks = torch.from_numpy(rng.random((1, size**2)) < marked) & ~problem.given
    boards = torch.where(marks, PATH, problem.solution)
    joined = bool(hang_together(boards[0]))
    assert path_valid(boards, problem).tolist() == [joined]
    assert task.validate(boards, problem).tolist() == [joined]
    odd = boards.clone()
    cell = int(rng.integers(size**2))
    odd[0, cell] = rng.choice([s for s in range(5) if s != odd[0, cell]])
    allowed = not problem.given[0, cell] and int(odd[0, cell]) in (OPEN, PATH)
    assert task.validate(odd, problem).tolist() == [allowed and bool(hang_together(odd[0]))]
    if not allowed:
        assert task.violations(odd, problem)[0, cell]


def test_a_broken_path_names_both_ends_and_what_is_cut_off_from_the_start():
    task = Maze(4)
    problem = task.parse("S.../###./G.../....")
    board = task.parse("Soo./###./Gooo/....").solution
    assert task.violations(board, problem)[0].nonzero().flatten().tolist() == [0, 8, 9, 10, 11]
    whole = task.parse("Sooo/###o/Gooo/....").solution
    assert not task.violations(whole, problem).any()


def test_marks_on_walls_do_not_join():
    task = Maze(3)
    problem = task.parse("S#G/.../...")
    board = problem.solution.clone()
    board[0, 1] = PATH
    assert not path_valid(board, problem).any()
    assert not task.validate(board, problem).any()


def test_all_open_cells_marked_is_valid_but_not_shortest():
    problem = Maze(10).generate(20, np.random.default_rng(0))
    everything = torch.where(problem.given, problem.solution, PATH)
    assert path_valid(everything, problem).all()
    assert not path_length_optimal(everything, problem).any()  # size 10 leaves at least 58 free cells
    assert (marked_share(everything, problem) == 1).all()
    assert (marked_share(problem.solution, problem) < 1).all()
    nothing = torch.where(problem.given, problem.solution, OPEN)
    assert not path_valid(nothing, problem).any()
    assert (marked_share(nothing, problem) == 0).all()


def shortest_paths(board, size):
    """The judge of 'length': every shortest path as a set of cells, by walking on from each shorter walk."""
    start, goal = (int(np.flatnonzero(board == mark)[0]) for mark in (START, GOAL))
    walks = {(start,)}
    while walks and not any(walk[-1] == goal for walk in walks):
        steps = set()
        for walk in walks:
            row, column = divmod(walk[-1], size)
            around = [(row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1)]
            inside = (i * size + j for i, j in around if 0 <= i < size and 0 <= j < size)
            steps |= {(*walk, cell) for cell in inside if board[cell] != WALL and cell not in walk}
        walks = steps
    return {frozenset(walk[1:-1]) for walk in walks if walk[-1] == goal}


@settings(deadline=None, max_examples=25)
@given(seeds)
def test_of_all_markings_exactly_the_shortest_paths_have_optimal_length(seed):
    problem = unanswered(seed, 4, walls=0.4)
    free = (~problem.given[0]).nonzero().flatten()
    assume(len(free) <= 11)
    marks = torch.tensor(list(product([False, True], repeat=len(free))), dtype=torch.bool)
    boards = problem.solution.repeat(len(marks), 1)
    boards[:, free] = torch.where(marks, PATH, OPEN)
    many = Problem(problem.solution.expand_as(boards), problem.given.expand_as(boards))
    best = boards[path_length_optimal(boards, many)]
    found = {frozenset((board == PATH).nonzero().flatten().tolist()) for board in best}
    assert found == shortest_paths(problem.solution[0].numpy(), 4)


@settings(deadline=None, max_examples=50)
@given(seeds)
def test_every_changed_clue_is_named(seed):
    rng = np.random.default_rng(seed)
    task = Maze(6)
    problem = task.generate(2, rng)
    boards = torch.from_numpy(rng.integers(5, size=(2, 36)))
    named = task.violations(boards, problem)
    changed = boards != problem.solution
    assert (named >= (problem.given & changed)).all()
    free = ~problem.given
    assert (named >= (free & ((boards == WALL) | (boards == START) | (boards == GOAL)))).all()
    assert not (named & free & (boards == OPEN)).any()


def test_the_eight_images_of_a_maze_are_its_turns_and_reflections_and_keep_the_path_shortest():
    two = Maze(8).generate(2, np.random.default_rng(5))
    turned = Maze(8).images(two)
    for i, square in enumerate(two.solution.view(2, 8, 8)):
        expected = {tuple(torch.rot90(g, k).flatten().tolist()) for g in (square, square.flip(0)) for k in range(4)}
        assert {tuple(board) for board in turned.solution[8 * i : 8 * i + 8].tolist()} == expected
        assert len(expected) == 8
    assert torch.equal(turned.given, Maze(8).masks(turned.solution, "test", np.random.default_rng(0)))
    assert path_length_optimal(turned.solution, turned).all()


def test_walls_start_and_goal_are_given_in_every_regime():
    task = Maze(6)
    for regime in (None, "valid", "test", "train"):
        problem = task.generate(4, np.random.default_rng(0), regime)
        free = (problem.solution == OPEN) | (problem.solution == PATH)
        assert torch.equal(problem.given, ~free)
    with pytest.raises(LetgoError, match="choose one of test, valid, train"):
        task.generate(1, np.random.default_rng(0), "hard")


@settings(deadline=None, max_examples=50)
@given(seeds, sizes)
def test_what_is_written_is_read_back(seed, size):
    task, problem = Maze(size), unanswered(seed, size)
    answered = Problem(shortest_path(problem.solution), problem.given)
    line = task.format(answered.solution, answered)[0]
    for text in (line, line.replace("/", "").replace(".", " "), line + "\r\n"):
        again = task.parse(text)
        assert torch.equal(again.solution, answered.solution)
        assert torch.equal(again.given, answered.given)
    question = task.parse(task.format_clues(answered)[0])
    assert torch.equal(question.solution, problem.solution)
    assert torch.equal(question.given, problem.given)


@pytest.mark.fast
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected 9 cells, 3 rows of 3; got 0"),
        ("S........G", "expected 9 cells, 3 rows of 3; got 10"),
        ("S../...", "expected 9 cells, 3 rows of 3; got 6"),
        ("S../..../G..", "row 2 has 4 cells; expected 3 rows of 3"),
        ("S../.x./..G", "'x' in row 2, column 2; expected '#', '.' or a space, 'S', 'G' or 'o'"),
        ("S../.../...", "0 cells are G; expected exactly one S and one G"),
        ("S../.S./..G", "2 cells are S; expected exactly one S and one G"),
    ],
)
def test_a_malformed_text_is_one_clear_line(text, message):
    with pytest.raises(LetgoError) as error:
        Maze(3).parse(text)
    assert str(error.value) == message


def test_a_drawing_frames_the_maze():
    task = Maze(3)
    problem = task.parse("S.#/oo#/#oG")
    assert task.draw(problem.solution, problem) == "+---+\n|S #|\n|oo#|\n|#oG|\n+---+"


def test_impossible_sizes_are_refused():
    with pytest.raises(LetgoError, match="size 2: choose 3 or more"):
        Maze(2)
