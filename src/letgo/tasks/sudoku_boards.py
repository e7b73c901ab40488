"""Random complete boards. For 9x9 they are exactly uniform, by a rejection search over triples of digits.

The digits of a box form three row triples and three column triples. The box can be filled in, and in one
way, if and only if every row triple meets every column triple in exactly one digit: the two partitions of
the digits are then *orthogonal*. In a band the row triples of one box leave 56 choices for those of the
other two, and in a stack the column triples do the same. So a board is: the top band and the left stack;
one of 56 choices for each other band (row triples) and for each other stack (column triples); and four
boxes that turn out orthogonal.

Everything but the last two stacks is drawn uniformly. Each of those stacks must then pass two boxes; it
takes the j-th of its passing choices, j uniform below the largest number of choices that can ever pass.
Where there is no j-th choice the search starts again from nothing. So a board is one path through the
draws, no draw's odds depend on the path, and all 6,670,903,752,021,072,936,960 boards are equally likely.
One attempt in 75 succeeds.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, permutations

import numpy as np

from letgo.tasks.sudoku_search import all_boards, search

ROUND = 1 << 14  # attempts per round; part of what a seed means, and small enough for the caches

Array = np.ndarray


@dataclass(frozen=True)
class Triples:
    """Triples are the 280 partitions of nine digits, each in 6 orders: `6 u + k` is order k of u."""

    sets: Array  # (1680, 3) the triples as bit masks
    partners: Array  # (280, 56, 2) the choices beside u in its first order: triples of the two other boxes
    orthogonal: Array  # (280, 36) the partitions orthogonal to u
    passing: Array  # (2, 280, 280) bit c of [k, u, v]: choice c beside v makes its k-th box orthogonal to u
    most_passing: int  # the most choices that can pass two boxes


@lru_cache(maxsize=1)
def triples() -> Triples:
    """Return every table of the search, from the nine digits alone."""
    sets = np.array([order for parts in _partitions() for order in permutations(parts)])
    meets = sets[::6, None, :, None] & sets[None, ::6, None, :]
    # Three triples that share at most one digit each with a triple share exactly one.
    orthogonal = ((meets & (meets - 1)) == 0).all(axis=(2, 3))
    partners = _partners(sets)
    fits = orthogonal[:, partners // 6]  # (280, 280, 56, 2)
    passing = (fits * (np.uint64(1) << np.arange(56, dtype=np.uint64))[:, None]).sum(axis=2, dtype=np.uint64)
    # Renaming the digits carries any partition to partition 0, so that one shows the largest number.
    beside_first = fits[:, 0].astype(np.int64)
    most_passing = int((beside_first[:, :, 0] @ beside_first[:, :, 1].T).max())
    neighbours = np.stack([np.flatnonzero(row) for row in orthogonal])
    return Triples(sets, partners, neighbours, passing.transpose(2, 0, 1).copy(), most_passing)


def _partitions() -> list[tuple[int, ...]]:
    masks = [sum(1 << digit for digit in triple) for triple in combinations(range(9), 3)]
    return [(a, b, c) for a, b, c in combinations(masks, 3) if a | b | c == 511]


def _partners(sets: Array) -> Array:
    """Return (280, 56, 2): the second box repeats no digit of the first in a row, the third takes what is left."""
    index = np.zeros((512, 512), np.int64)
    index[sets[:, 0], sets[:, 1]] = np.arange(len(sets))
    first, second = np.nonzero(((sets[::6, None] & sets[None]) == 0).all(axis=2))
    third = 511 - sets[6 * first] - sets[second]
    return np.stack([second, index[third[:, 0], third[:, 1]]], axis=1).reshape(280, 56, 2)


def random_boards(box: int, count: int, rng: np.random.Generator) -> Array:
    """Draw (count, n^4) uint8; with the same seed a smaller count gives the first boards of a larger one.

    4x4 and 9x9 boards are exactly uniform. 16x16 boards come from a depth-first search with random choices,
    which can reach every board, but not all with the same odds.
    """
    rounds = {2: _round_of_mini, 3: _round_of_uniform, 4: _round_of_large}[box]
    boards, total = [np.empty((0, box**4), np.uint8)], 0
    while total < count:
        boards.append(rounds(rng))
        total += len(boards[-1])
    return np.concatenate(boards)[:count]


def _round_of_mini(rng: np.random.Generator) -> Array:
    boards = all_boards(2).numpy().astype(np.uint8)
    return boards[rng.integers(len(boards), size=ROUND)]


def _round_of_uniform(rng: np.random.Generator) -> Array:
    return _shuffle(_fill(*_attempt(rng)), rng)


def _round_of_large(rng: np.random.Generator) -> Array:
    blank = np.full((16, 4**4), (1 << 16) - 1, np.uint16)
    return search(blank, cap=1, rng=rng, width=len(blank))[1].astype(np.uint8)


def _attempt(rng: np.random.Generator) -> tuple[Array, Array]:
    """Return the row and column triples of every box, (boards, 3, 3) each, where one of ROUND attempts succeeded."""
    table = triples()
    rows, columns = np.zeros((2, ROUND, 3, 3), np.int64)  # the first box is the digits in order ...
    columns[:, 0, 0] = 6 * _index_of_columns(table)  # ... until they are renamed at the end
    rows[:, 0, 1:] = table.partners[0, rng.integers(56, size=ROUND)]
    columns[:, 1:, 0] = table.partners[columns[0, 0, 0] // 6, rng.integers(56, size=ROUND)]
    for k in (1, 2):  # lines are shuffled at the end, so here a stack or band takes its first order
        columns[:, 0, k] = 6 * table.orthogonal[rows[:, 0, k] // 6, rng.integers(36, size=ROUND)]
        rows[:, k, 0] = 6 * table.orthogonal[columns[:, k, 0] // 6, rng.integers(36, size=ROUND)]
        rows[:, k, 1:] = table.partners[rows[:, k, 0] // 6, rng.integers(56, size=ROUND)]
    for k in (1, 2):
        above = columns[:, 0, k] // 6
        passing = table.passing[0, rows[:, 1, k] // 6, above] & table.passing[1, rows[:, 2, k] // 6, above]
        alive, choice = _pick(passing, rng.integers(table.most_passing, size=len(passing)))
        rows, columns = rows[alive], columns[alive]
        columns[:, 1:, k] = table.partners[above[alive], choice]
    return rows, columns


def _index_of_columns(table: Triples) -> int:
    """Return the partition 036 | 147 | 258."""
    return int(np.flatnonzero((table.sets[::6] == np.array([0o111, 0o222, 0o444])).all(axis=1))[0])


def _pick(passing: Array, j: Array) -> tuple[Array, Array]:
    """Return which boards have a j-th passing choice, and which choice that is."""
    some = np.flatnonzero(passing)
    bits = (passing[some, None] >> np.arange(56, dtype=np.uint64)) & np.uint64(1) == 1
    hit = bits & (bits.cumsum(axis=1, dtype=np.int8) == j[some, None] + 1)
    return some[hit.any(axis=1)], np.nonzero(hit)[1]


def _fill(rows: Array, columns: Array) -> Array:
    """Return the one board with these row and column triples, (boards, 9, 9)."""
    digit = np.zeros(512, np.uint8)
    digit[1 << np.arange(9)] = np.arange(9)
    sets = triples().sets
    boxes = digit[sets[rows][..., :, None] & sets[columns][..., None, :]]  # board, band, stack, row, column
    return boxes.transpose(0, 1, 3, 2, 4).reshape(-1, 9, 9)


def _shuffle(boards: Array, rng: np.random.Generator) -> Array:
    """Make the draws that `_attempt` left out: digits' names, order of the lines in later bands and stacks."""
    each = np.arange(len(boards))
    digits, lines = _orders(len(boards), 9, rng).astype(np.uint8), []
    for _ in ("rows", "columns"):
        later = [start + _orders(len(boards), 3, rng) for start in (3, 6)]
        lines.append(np.concatenate([np.tile(np.arange(3), (len(boards), 1)), *later], axis=1))
    shuffled = boards[each[:, None, None], lines[0][:, :, None], lines[1][:, None, :]]
    return digits[each[:, None, None], shuffled].reshape(-1, 81)


def _orders(count: int, length: int, rng: np.random.Generator) -> Array:
    """Draw uniform permutations of 0 .. length - 1."""
    return rng.permuted(np.tile(np.arange(length), (count, 1)), axis=1)
