"""Graph connectivity: from a graph's adjacency, say which nodes a path joins. Three in a row and a lone one:
    0 1 0 0 / 1 0 1 0 / 0 1 0 0 / 0 0 0 0    is joined as    1 1 1 0 / 1 1 1 0 / 1 1 1 0 / 0 0 0 1
As text `0100/1010/0100/0000` and `1110/1110/1110/0001`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from letgo.errors import LetgoError, unknown
from letgo.estimates import Column
from letgo.shapes import CellMask, Symbols
from letgo.tasks.task import Look, Problem, Task, solved

Adjacency = Float[Tensor, "batch n n"]
MOST_NODES = 256  # the network looks at triples: 1.1 GB for a graph of 128 nodes, eight times that here


@dataclass(frozen=True)
class Connectivity(Task):
    """Graphs are IRED's, of any size N and density p (Table 2: trained at N = 12, also evaluated at N = 18).

    Answering "all joined" is right on the connected graphs: about .27 of those with N = 12, .49 with N = 18.
    """

    size: int = 12
    p: float = 0.2
    cells: int = field(init=False)
    name = "connectivity"
    symbols = 2
    generates = False
    context = "the graphs' adjacency"
    regimes = ("12", "18")  # here a regime is the number of nodes; 'train' is the task's own

    def __post_init__(self) -> None:
        if not 2 <= self.size <= MOST_NODES:
            raise LetgoError(f"a graph of {self.size} nodes: choose 2 to {MOST_NODES}; memory grows with their cube")
        object.__setattr__(self, "cells", self.size**2)

    def generate(self, count: int, rng: np.random.Generator, regime: str | None = None) -> Problem:
        sized = Connectivity(self._nodes(regime or "train"), self.p)
        boards, adjacency = sized.solved(count, rng)
        return Problem(boards, torch.zeros_like(boards, dtype=torch.bool), adjacency)

    def solved(self, count: int, rng: np.random.Generator) -> tuple[Symbols, Tensor | None]:
        adjacency = random_graphs(count, self.size, self.p, rng)
        return reachability(adjacency).flatten(1).long(), adjacency

    def masks(self, boards: Symbols, regime: str, rng: np.random.Generator) -> CellMask:
        """Give no entry of the answer; the clue is the adjacency."""
        self._nodes(regime)
        return torch.zeros_like(boards, dtype=torch.bool)

    def broken(self, boards: Symbols, problem: Problem) -> CellMask:
        """Return the entries that differ from the reachability of the problem's adjacency."""
        return boards != reachability(_adjacency(problem)).flatten(1)

    def outcomes(self, tries: Sequence[Symbols], problem: Problem) -> dict[str, Column]:
        """Return IRED's element-wise scores, where answers are known, and what the answer "all joined" would reach."""
        boards, floor = tries[0], Column.of("rate", self.validate(torch.ones_like(tries[0]), problem))
        if not solved(problem, self):  # nothing to compare the entries with
            return {"all_joined": floor}
        return {
            "element_accuracy": Column.of("share", (boards == problem.solution).float().mean(1)),
            "balanced_accuracy": Column.of("balanced", entry_counts(boards, problem.solution)),
            "all_joined": floor,
        }

    @property
    def look(self) -> Look:
        return Look("Graph connectivity", self.size, self.size, "01", "graph")

    def parse(self, text: str) -> Problem:
        """Read rows of the adjacency joined by '/': square, of any size, symmetric, 0 on the diagonal."""
        rows = text.strip().split("/")
        _refuse_misshapen(rows)
        adjacency = torch.tensor([[[float(char) for char in row] for row in rows]])
        for i, j in (adjacency != adjacency.mT)[0].nonzero()[:1].tolist():
            raise LetgoError(
                f"row {i + 1}, column {j + 1} and row {j + 1}, column {i + 1} differ; an edge goes both ways"
            )
        for i in adjacency[0].diagonal().nonzero().flatten()[:1].tolist():
            raise LetgoError(f"row {i + 1} joins node {i + 1} to itself; expected 0 on the diagonal")
        unknown = torch.zeros(1, len(rows) ** 2, dtype=torch.long)
        return Problem(unknown, unknown.bool(), adjacency)

    def format(self, boards: Symbols, problem: Problem) -> list[str]:
        """Write the answers as `parse` reads a graph: rows of 0 and 1 joined by '/'."""
        n = _adjacency(problem).shape[1]
        return ["/".join("".join(map(str, row)) for row in b) for b in boards.unflatten(1, (n, n)).tolist()]

    def format_clues(self, problem: Problem) -> list[str]:
        """Return the graphs themselves."""
        return self.format(_adjacency(problem).flatten(1).long(), problem)

    def draw(self, board: Symbols, problem: Problem) -> str:
        """Draw the board's matrix, '#' joined by an edge, '+' joined otherwise, '.' not; and its components."""
        edges = _adjacency(problem)
        joined = board.view_as(edges)
        marks = torch.where(joined > 0, 1 + (edges > 0).long(), 0)[0].tolist()
        n = len(marks)
        rows = [["", *range(1, n + 1)], *([i, *(".+#"[v] for v in row)] for i, row in enumerate(marks, 1))]
        matrix = "\n".join("".join(f"{entry:>{len(str(n)) + 1}}" for entry in row) for row in rows)
        groups = " ".join("{" + ", ".join(str(node + 1) for node in group) + "}" for group in components(joined))
        return f"{matrix}\ncomponents: {groups}"

    def _nodes(self, regime: str) -> int:
        if regime == "train":
            return self.size
        if regime.isdecimal() and int(regime) >= 2:
            return int(regime)
        raise unknown("regime", regime, ["train"], "choose 12, 18, any number of nodes from 2, or train")


def random_graphs(count: int, n: int, p: float, rng: np.random.Generator) -> Adjacency:
    """Draw points of the unit square, each linked to its k nearest, k ~ U{1 .. max(1, floor(np))}, as IRED does."""
    points = rng.random((count, n, 2))
    distance = np.square(points[:, :, None] - points[:, None]).sum(-1)
    distance[:, np.arange(n), np.arange(n)] = np.inf  # no edge to oneself
    rank = distance.argsort(axis=2).argsort(axis=2)
    nearest = rng.integers(1, min(max(1, int(n * p)), n - 1), size=(count, n, 1), endpoint=True)
    edges = torch.from_numpy(rank < nearest)
    return (edges | edges.mT).float()


def entry_counts(boards: Symbols, truth: Symbols) -> Int[Tensor, "batch 4"]:
    """Count hits, positives, rejections and negatives of each graph, pooled since a connected one has no negatives."""
    yes, said = truth > 0, boards > 0
    return torch.stack([count.sum(1) for count in (yes & said, yes, ~yes & ~said, ~yes)], dim=1)


def reachability(adjacency: Adjacency) -> Bool[Tensor, "batch n n"]:
    """Return which nodes a path of any length joins, a node with itself included; squaring doubles the length."""
    n = adjacency.shape[1]
    reach = (adjacency > 0) | torch.eye(n, dtype=torch.bool, device=adjacency.device)
    for _ in range((n - 1).bit_length()):
        reach = reach.float() @ reach.float() > 0
    return reach


def components(joined: Int[Tensor, "1 n n"]) -> list[list[int]]:
    """Return the components of one matrix, nodes from 0 in ascending order; an entry in one direction is enough."""
    reach = reachability((joined + joined.mT).float())[0]
    first = reach.int().argmax(dim=1)  # the first node that each node reaches stands for its component
    return [(first == node).nonzero().flatten().tolist() for node in first.unique()]


def _adjacency(problem: Problem) -> Adjacency:
    if problem.context is None:
        raise LetgoError("a connectivity problem needs its graph: put the adjacency into its `context`")
    return problem.context


def _refuse_misshapen(rows: list[str]) -> None:
    """Refuse rows that are not as long as there are rows, or not of 0 and 1."""
    n = len(rows)
    if n > MOST_NODES:
        raise LetgoError(f"a graph of {n} nodes: choose at most {MOST_NODES}; memory grows with their cube")
    for i, row in enumerate(rows, start=1):
        if len(row) != n or not row:
            raise LetgoError(f"row {i} of {n} has {len(row)} entries; expected a square such as 010/101/010")
        for j, char in enumerate(row, start=1):
            if char not in "01":
                raise LetgoError(f"{char!r} in row {i}, column {j}; expected 0 or 1")
