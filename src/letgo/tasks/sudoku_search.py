"""Exact Sudoku search, for data and for checks: count and list solutions, thin boards to minimal puzzles.

A node is a board of candidate sets, one bit per symbol. All nodes in hand take a propagation step together:
a cell with one candidate removes it from its row, column and box (naked single), and a symbol with one
place in a row, column or box takes it (hidden single). A node where nothing changes any more splits on a
cell with the fewest candidates into "this symbol" and "not this symbol". The samplers and the scores never
call this.
"""

from __future__ import annotations

import math
import time

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from letgo.errors import LetgoError
from letgo.shapes import PerBoard, Symbols
from letgo.tasks.sudoku_grid import box_of, units, units_of_cell
from letgo.tasks.task import Problem

Counts = Int[Tensor, "batch"]
Array = np.ndarray

WIDTH = 1024  # nodes that step together: enough to hide numpy's cost per call, few enough for the caches

_BIT_COUNT = np.array([i.bit_count() for i in range(1 << 16)], np.uint8)


def completions(problem: Problem, cap: int, seconds: float = math.inf) -> Symbols:
    """Return the solutions of one puzzle (a batch of 1), each once, at most `cap` of them.

    A search that takes longer than `seconds` ends in a TimeoutError.
    """
    if len(problem) != 1:
        raise LetgoError(f"completions takes one puzzle, got {len(problem)}; count_solutions takes many")
    _, boards = search(candidates(problem), cap, deadline=time.monotonic() + seconds)
    return torch.from_numpy(boards)


def count_solutions(problem: Problem, cap: int = 2) -> Counts:
    """Return how many solutions every puzzle has, counted up to `cap`."""
    sets, counts = candidates(problem), np.zeros(len(problem), np.int64)
    for part in _parts(len(sets)):
        owners, _ = search(sets[part], cap)
        counts[part] = np.bincount(owners, minlength=len(sets[part]))
    return torch.from_numpy(counts)


def is_unique(problem: Problem) -> PerBoard:
    """Say which puzzles have exactly one solution."""
    return count_solutions(problem, cap=2) == 1


def solve(problem: Problem) -> tuple[Symbols, PerBoard]:
    """Return one solution of every puzzle, and whether there is one; where there is none the board is all 0."""
    sets = candidates(problem)
    boards, solved = np.zeros(sets.shape, np.int64), np.zeros(len(sets), bool)
    for part in _parts(len(sets)):
        owners, found = search(sets[part], cap=1)
        boards[part][owners], solved[part][owners] = found, True
    return torch.from_numpy(boards), torch.from_numpy(solved)


def all_boards(box: int = 2) -> Symbols:
    """Return every complete board: 288 for 4x4. Larger boards are too many."""
    if box != 2:
        raise LetgoError(f"cannot list all boards with boxes of side {box}; only box = 2 (4x4) has few enough")
    blank = Problem(torch.zeros(1, 16, dtype=torch.long), torch.zeros(1, 16, dtype=torch.bool))
    return completions(blank, cap=1 << 16)


def minimal_puzzles(boards: Symbols, rng: np.random.Generator) -> Problem:
    """Return puzzles with these boards as their only solutions, which a puzzle loses with any of its clues.

    Clues go in random order, if the solution stays the only one. A clue that is needed stays needed when
    others go, so one pass is enough.
    """
    symbols = boards.cpu().numpy()
    given = np.ones(symbols.shape, bool)
    for part in _parts(len(symbols)):
        given[part] = _minimal_masks(symbols[part], rng)
    return Problem(boards, torch.from_numpy(given).to(boards.device))


def _minimal_masks(boards: Array, rng: np.random.Generator) -> Array:
    each = np.arange(len(boards))
    given = np.ones(boards.shape, bool)
    everything = _everything(boards.shape[1])
    own = np.uint16(1) << boards.astype(np.uint16)
    for cell in rng.random(boards.shape).argsort(axis=1).T:
        given[each, cell] = False
        sets = np.where(given, own, everything)
        sets[each, cell] ^= own[each, cell]  # a solution with another symbol here would be a second one
        needed, _ = search(sets, cap=1)
        given[needed, cell[needed]] = True
    return given


def candidates(problem: Problem) -> Array:
    """Return (batch, cells) candidate sets: the clue's bit, or every bit."""
    own = np.uint16(1) << problem.solution.cpu().numpy().astype(np.uint16)
    return np.where(problem.given.cpu().numpy(), own, _everything(own.shape[1]))


def _everything(cells: int) -> np.uint16:
    return np.uint16((1 << box_of(cells) ** 2) - 1)


def _parts(count: int) -> list[slice]:
    return [slice(start, start + WIDTH) for start in range(0, count, WIDTH)]


def search(
    sets: Array, cap: int, rng: np.random.Generator | None = None, width: int = WIDTH, deadline: float = math.inf
) -> tuple[Array, Array]:
    """Find solutions in (batch, cells) candidate sets, at most `cap` for each: owners, ascending, and boards.

    Depth first, `width` nodes at a time. A split tries the lowest candidate first, with an rng a random one. Past the
    `deadline` of the monotonic clock it gives up with a TimeoutError.
    """
    box = box_of(sets.shape[1])
    stack, owner = sets.T.copy(), np.arange(len(sets))  # nodes last, so that every operation runs along them
    counts = np.zeros(len(sets), np.int64)
    owners, boards = [np.empty(0, np.int64)], [np.empty((0, sets.shape[1]), np.uint16)]
    while len(owner):
        if time.monotonic() > deadline:
            raise TimeoutError("the search took too long")
        below = max(len(owner) - width, 0)
        wanted = below + np.flatnonzero(counts[owner[below:]] < cap)
        nodes, their = stack[:, wanted], owner[wanted]
        after, alive = _propagate(nodes, box)
        still = alive & (after == nodes).all(axis=0)
        solved = still & (after & (after - 1) == 0).all(axis=0)
        owners.append(their[solved])
        boards.append(after[:, solved].T)
        np.add.at(counts, their[solved], 1)
        split, moving = still & ~solved, alive & ~still
        this, other = _split(after[:, split], rng)
        stack = np.concatenate([stack[:, :below], other, this, after[:, moving]], axis=1)
        owner = np.concatenate([owner[:below], their[split], their[split], their[moving]])
    return _first_of_each(np.concatenate(owners), np.concatenate(boards), cap)


def _propagate(nodes: Array, box: int) -> tuple[Array, Array]:
    """Take one step of naked and hidden singles on (cells, nodes); return which nodes may still have a solution too."""
    everything = _everything(len(nodes))
    single = nodes * (nodes & (nodes - 1) == 0)
    in_units, singles = nodes[units(box)], single[units(box)]  # (3 n^2 units, n^2 places, nodes)
    once, twice = np.zeros_like(in_units[:, 0]), np.zeros_like(in_units[:, 0])
    for place in range(box**2):
        twice |= once & in_units[:, place]
        once |= in_units[:, place]
    taken: Array = np.bitwise_or.reduce(singles, axis=1)
    clash = np.add.reduce(singles, axis=1, dtype=np.uint32) != taken  # equal unless a bit comes twice
    alive = ((once == everything) & ~clash).all(axis=0)
    after = np.where(single > 0, nodes, nodes & ~_seen_from_cells(taken, box))
    hidden = after & _seen_from_cells(once & ~twice, box)
    return np.where(hidden > 0, hidden, after), alive & (nodes > 0).all(axis=0)


def _seen_from_cells(per_unit: Array, box: int) -> Array:
    row, column, square = units_of_cell(box)
    return per_unit[row] | per_unit[column] | per_unit[square]


def _split(nodes: Array, rng: np.random.Generator | None) -> tuple[Array, Array]:
    """Return each node twice: with one candidate of its narrowest open cell, and without that candidate."""
    each = np.arange(nodes.shape[1])
    sizes = _BIT_COUNT[nodes]
    cell = np.where(sizes < 2, 99, sizes).argmin(axis=0)
    there = nodes[cell, each]
    bit = there & (~there + 1) if rng is None else _random_bit(there, rng)
    this, other = nodes.copy(), nodes.copy()
    this[cell, each], other[cell, each] = bit, there ^ bit
    return this, other


def _random_bit(sets: Array, rng: np.random.Generator) -> Array:
    member = sets[:, None] >> np.arange(16, dtype=np.uint16) & 1
    return np.uint16(1) << (member * (1 + rng.random(member.shape))).argmax(axis=1).astype(np.uint16)


def _first_of_each(owners: Array, sets: Array, cap: int) -> tuple[Array, Array]:
    """Sort by owner, drop what is beyond the cap (one step can find several), turn bits into symbols."""
    order = owners.argsort(kind="stable")
    owners = owners[order]
    first = np.arange(len(owners)) - np.searchsorted(owners, owners) < cap
    return owners[first], _BIT_COUNT[sets[order][first] - 1].astype(np.int64)
