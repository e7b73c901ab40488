"""Mazes: mark a shortest way from S to G, in steps to the four neighbours. One of size 5, and its answer:
    .#S#. / .#... / #G##. / #.#.. / #....    and    .#S#. / .#ooo / #G##o / #o#oo / #ooo.
As text `.#S#./.#.../#G##./#.#../#....`, or the rows without '/'; an open cell may also be a space.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import pad

from letgo.errors import LetgoError, unknown
from letgo.estimates import Column
from letgo.shapes import CellMask, PerBoard, Symbols
from letgo.tasks.task import Look, Problem, Task, solved

WALL, OPEN, START, GOAL, PATH = range(5)
CHARACTERS = "#.SGo"
Grid = Bool[Tensor, "batch side side"]
Moves = Int[Tensor, "batch side side"]
Share = Float[Tensor, "batch"]

BATCH = 256  # layouts searched at once
PATIENCE = 200  # batches without a single maze after which `solved` gives up


@dataclass(frozen=True)
class Maze(Task):
    """Square mazes are like Maze-Hard's (App. H): random walls, the way from S to G longer than `min_length`."""

    size: int = 30
    min_length: int = -1  # chosen by the size
    cells: int = field(init=False)
    name = "maze"
    symbols = 5
    generates = False
    regimes = ("test", "valid")  # as is 'train': the same distribution; the draws differ by their rng

    def __post_init__(self) -> None:
        if self.size < 3:
            raise LetgoError(f"a maze of size {self.size}: choose 3 or more")
        object.__setattr__(self, "cells", self.size**2)
        if self.min_length < 0:
            # Maze-Hard's 110 at size 30; from size 8 on, one or two layouts in a hundred have a longer path.
            object.__setattr__(self, "min_length", max(2, 4 * self.size - 10))

    def solved(self, count: int, rng: np.random.Generator) -> tuple[Symbols, Tensor | None]:
        """Draw random layouts that hold a far pair of cells (`far_pairs`), answered by `shortest_path`."""
        found, batches = [torch.empty(0, self.cells, dtype=torch.long)], 0
        while sum(map(len, found)) < count:
            found.append(far_pairs(random_layouts(BATCH, self.size, rng), self.min_length, rng))
            batches += 1
            if batches >= PATIENCE and not any(map(len, found)):
                raise LetgoError(
                    f"no maze of size {self.size} with a path longer than {self.min_length} moves"
                    f" among {batches * BATCH} layouts; lower min_length"
                )
        return shortest_path(torch.cat(found)[:count]), None

    def masks(self, boards: Symbols, regime: str, rng: np.random.Generator) -> CellMask:
        """Give walls, S and G; only the path is predicted."""
        if regime not in (*self.regimes, "train"):
            raise unknown("regime", regime, (*self.regimes, "train"))
        return (boards != OPEN) & (boards != PATH)

    def broken(self, boards: Symbols, problem: Problem) -> CellMask:
        """Return free cells that are neither open nor path; S, G and what is cut off from S, if G is."""
        reached, path = reached_cells(boards, problem), path_cells(boards, problem)
        ends = problem.given & ((problem.solution == START) | (problem.solution == GOAL))
        broken = (ends & ~reached).any(1, keepdim=True)
        neither = ~problem.given & (boards != OPEN) & (boards != PATH)
        return neither | broken & (ends | path & ~reached)

    def solutions(self, problem: Problem, cap: int, seconds: float) -> Symbols | None:
        """Return no solution where S and G do not even hang together through all free cells; else there are many."""
        everywhere = torch.where(problem.given, problem.solution, PATH)
        return None if bool(path_valid(everywhere, problem)) else everywhere[:0]

    def outcomes(self, tries: Sequence[Symbols], problem: Problem) -> dict[str, Column]:
        """Return App. H's 'length' in the first try and in any of them, and how much of the maze is marked."""
        shortest = torch.stack([path_length_optimal(boards, problem) for boards in tries], dim=1)
        return {
            "length": Column.of("rate", shortest[:, 0]),
            "length_at_k": Column.of("any", shortest),
            "marked_share": Column.of("share", marked_share(tries[0], problem)),
        }

    def facts(self, problem: Problem, sample: int) -> dict[str, Any]:
        """Return how many answers are shortest paths; puzzle lines have no answers."""
        return {"shortest": int(path_length_optimal(problem.solution, problem).sum())} if solved(problem, self) else {}

    def sized(self, side: int) -> Maze:
        return Maze(side)

    def without_comment(self, line: str) -> str:
        """'#' is a wall and a space is a cell, so a comment is a whole line that starts with ';'."""
        return "" if line.startswith(";") else line

    @property
    def look(self) -> Look:
        return Look("Maze", self.size, self.size, CHARACTERS, "maze")

    def images(self, problem: Problem) -> Problem:
        """Return each maze under the square's 8 symmetries; the path's tie-break turns with it."""
        square = torch.arange(self.cells, device=problem.solution.device).view(self.size, self.size)
        turned = [torch.rot90(square, k) for k in range(4)]
        orders = torch.stack([*turned, *(grid.T for grid in turned)]).flatten(1)
        return Problem(problem.solution[:, orders].flatten(0, 1), problem.given[:, orders].flatten(0, 1))

    def parse(self, text: str) -> Problem:
        """Read rows joined by '/', or all cells in one run. Cells marked 'o' are the known answer, never clues."""
        line = text.strip("\r\n")  # a space is an open cell
        rows = line.split("/")
        for i, row in enumerate(rows, start=1):
            if len(rows) > 1 and len(row) != self.size:
                raise LetgoError(f"row {i} has {len(row)} cells; expected {self.size} rows of {self.size}")
        flat = "".join(rows)
        if len(flat) != self.cells:
            raise LetgoError(f"expected {self.cells} cells, {self.size} rows of {self.size}; got {len(flat)}")
        codes = {char: symbol for symbol, char in enumerate(CHARACTERS)} | {" ": OPEN}
        for i, char in enumerate(flat):
            if char not in codes:
                where = f"row {i // self.size + 1}, column {i % self.size + 1}"
                raise LetgoError(f"{char!r} in {where}; expected '#', '.' or a space, 'S', 'G' or 'o'")
        board = torch.tensor([[codes[char] for char in flat]])
        for mark in "SG":
            if flat.count(mark) != 1:
                raise LetgoError(f"{flat.count(mark)} cells are {mark}; expected exactly one S and one G")
        return Problem(board, (board != OPEN) & (board != PATH))

    def format(self, boards: Symbols, problem: Problem) -> list[str]:
        """Write rows joined by '/', with '.' for open cells, so that no line ends in a space."""
        grids = boards.unflatten(1, (self.size, self.size)).tolist()
        return ["/".join("".join(CHARACTERS[cell] for cell in row) for row in grid) for grid in grids]

    def format_clues(self, problem: Problem) -> list[str]:
        """Return the mazes themselves, without a path."""
        return self.format(problem.solution.masked_fill(~problem.given, OPEN), problem)

    def draw(self, board: Symbols, problem: Problem) -> str:
        """Draw the maze in a frame; open cells are blank."""
        edge, text = "+" + "-" * self.size + "+", self.format(board, problem)[0]
        return "\n".join([edge, *(f"|{row}|" for row in text.replace(".", " ").split("/")), edge])


def random_layouts(count: int, size: int, rng: np.random.Generator) -> Grid:
    """Draw layouts, True where open: walls on 33% to 40% of the cells, all placements alike, as Searchformer draws
    them.

    Its range is 30% to 50%, but fewer walls leave shortcuts and more cut the maze to pieces.
    """
    cells = size**2
    walls = rng.integers(math.ceil(0.33 * cells), math.floor(0.40 * cells), size=(count, 1), endpoint=True)
    rank = rng.random((count, cells)).argsort(axis=1).argsort(axis=1)
    return torch.from_numpy(rank >= walls).unflatten(1, (size, size))


def far_pairs(layouts: Grid, min_length: int, rng: np.random.Generator) -> Int[Tensor, "found cells"]:
    """Return unanswered mazes from those layouts in which two sweeps find a pair further apart than min_length.

    One end is a cell furthest from a random one, the other any cell that is far enough from it.
    """
    sweep = distances(layouts, one_cell(layouts.long(), rng))
    hopeful = 2 * sweep.flatten(1).amax(1) > min_length  # cells joined to the random one can meet by way of it
    layouts, sweep = layouts[hopeful], sweep[hopeful]
    end = one_cell(sweep, rng)
    far = distances(layouts, end) > min_length
    layouts, end, far = (grid[far.flatten(1).any(1)] for grid in (layouts, end, far))
    other = one_cell(far.long(), rng)
    swap = torch.from_numpy(rng.random((len(layouts), 1, 1)) < 0.5)
    boards = layouts.long()  # WALL is 0 and OPEN is 1
    boards[torch.where(swap, other, end)] = START
    boards[torch.where(swap, end, other)] = GOAL
    return boards.flatten(1)


def one_cell(score: Moves, rng: np.random.Generator) -> Grid:
    """Return a random one of the cells with the highest score."""
    flat = score.flatten(1)
    best = (flat + torch.from_numpy(rng.random(flat.shape))).argmax(1, keepdim=True)
    return torch.zeros_like(flat, dtype=torch.bool).scatter(1, best, True).view_as(score)


def distances(passable: Grid, source: Grid) -> Moves:
    """Count breadth-first moves from the source through passable cells, on all boards at once; -1 without a way."""
    reached = source
    moves = torch.zeros_like(source, dtype=torch.int16)
    while True:
        grown = reached.clone()
        grown[:, 1:] |= reached[:, :-1]
        grown[:, :-1] |= reached[:, 1:]
        grown[:, :, 1:] |= reached[:, :, :-1]
        grown[:, :, :-1] |= reached[:, :, 1:]
        grown &= passable
        if torch.equal(grown, reached):
            return moves.masked_fill(~reached, -1)
        moves += ~reached
        reached = grown


def shortest_path(boards: Symbols) -> Symbols:
    """Mark one shortest path: from S always to the first of up, left, right, down that is nearer to G."""
    grid = _grid(boards)
    moves = pad(distances(grid != WALL, grid == GOAL), (1, 1, 1, 1), value=-1)
    side = moves.shape[1]
    here = pad(grid == START, (1, 1, 1, 1)).flatten(1).long().argmax(1, keepdim=True)
    around = torch.tensor([-side, -1, 1, side], device=boards.device)
    moves, path = moves.flatten(1), torch.zeros_like(moves.flatten(1), dtype=torch.bool)
    for _ in range(max(moves.gather(1, here).flatten().tolist(), default=0)):
        left = moves.gather(1, here)
        nearer = moves.gather(1, here + around) == left - 1
        step = around[nearer.long().argmax(1, keepdim=True)]
        here = torch.where(left > 0, here + step, here)  # stay on G, and on an S without a way
        path.scatter_(1, here, True)
    path = path.view(-1, side, side)[:, 1:-1, 1:-1].flatten(1)
    return torch.where(path & (boards == OPEN), PATH, boards)


def path_cells(boards: Symbols, problem: Problem) -> CellMask:
    """Return the free cells marked as path; marks on walls, S or G do not count."""
    return ~problem.given & (boards == PATH)


def reached_cells(boards: Symbols, problem: Problem) -> CellMask:
    """Return S, and the path cells and G where they hang together with S."""
    start, goal = _clue(problem, START), _clue(problem, GOAL)
    way = path_cells(boards, problem) | start | goal
    return (distances(_grid(way), _grid(start)) >= 0).flatten(1)


def path_valid(boards: Symbols, problem: Problem) -> PerBoard:
    """App. H, 'valid': S and G hang together through path cells. Marking every open cell is valid too."""
    return (reached_cells(boards, problem) & _clue(problem, GOAL)).any(1)


def path_length_optimal(boards: Symbols, problem: Problem) -> PerBoard:
    """App. H, 'length': valid with d - 1 path cells, d the distance; so they are one shortest path."""
    walls = _clue(problem, WALL)
    moves = distances(_grid(~walls), _grid(_clue(problem, START))).flatten(1)
    shortest = moves.masked_fill(~_clue(problem, GOAL), -1).amax(1)
    return path_valid(boards, problem) & (path_cells(boards, problem).sum(1) == shortest - 1)


def marked_share(boards: Symbols, problem: Problem) -> Share:
    """Return the share of the free cells that are marked as path: 1 for the trivial valid answer."""
    return path_cells(boards, problem).sum(1) / (~problem.given).sum(1)


def _grid(cells: Tensor) -> Tensor:
    side = math.isqrt(cells.shape[1])
    return cells.unflatten(1, (side, side))


def _clue(problem: Problem, symbol: int) -> CellMask:
    return problem.given & (problem.solution == symbol)
