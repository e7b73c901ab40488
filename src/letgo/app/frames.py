"""One step of a batch as the page shows it: leading symbols, certainty, broken cells."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor

from letgo.app.pictures import picture
from letgo.codecs import by_symbol
from letgo.metrics import symbol_chances
from letgo.pinning import Clues
from letgo.shapes import CellMask, PerBoard, State, Symbols, Time
from letgo.solver import Solver
from letgo.tasks import Problem

DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"  # one character per cell: a symbol, or a certainty from 0 to 35
ILLEGAL = "?"  # no symbol: a masked cell, or a code of bits beyond the last symbol
MASKED = -1  # no symbol yet
MOST_TOLD = 40  # cells and pairs that a verdict names
SPREAD = 0.3  # how far a proposal may lie from a codeword and still count as fairly sure, where no share is at hand

Certainty = Float[Tensor, "batch cells"]


@dataclass(frozen=True)
class Reading:
    """A Reading has a batch's states or proposals as symbols; the rest is computed when a job first asks for it."""

    view: View
    x: State
    time: Time | None = None  # of each state; a proposal has none

    @cached_property
    def symbols(self) -> Symbols:
        symbols = self.view.solver.read(self.x, self.view.problem)
        return symbols if self.view.continuous or self.time is None else symbols.where(self.certainty > 0, MASKED)

    @cached_property
    def violations(self) -> CellMask:
        """Return the cells that break a rule whatever the masked ones will be, and those."""
        task, problem, masked = self.view.solver.task, self.view.problem, self.symbols == MASKED
        if not bool(masked.any()):
            return task.violations(self.symbols, problem)
        fills = (self.symbols.masked_fill(masked, symbol) for symbol in range(task.symbols))
        return torch.stack([task.violations(board, problem) for board in fills]).all(0) | masked

    @cached_property
    def valid(self) -> PerBoard:
        return ~self.violations.any(dim=1)

    @cached_property
    def certainty(self) -> Certainty:
        """Return how likely the leading symbol is: of a state by Bayes' rule for the cell alone, from equal chances.

        A one-hot proposal estimates E[x0 | x_t], so its largest entry is that probability; in masked diffusion a cell
        is open, with one symbol, or masked.
        """
        return self.probabilities.amax(-1)

    @cached_property
    def probabilities(self) -> Float[Tensor, "batch cells symbols"]:
        """Return how likely every symbol is in every cell."""
        solver, path = self.view.solver, cast(Any, self.view.solver.path)
        if not self.view.continuous or (self.time is None and solver.codec.one_hot):
            return by_symbol(solver.codec, self.x, solver.task.symbols).float().clamp(0, 1).cpu()
        t = self.time
        alpha, beta = (1.0, SPREAD) if t is None else (path.alpha(t), path.beta(t).clamp(min=1e-3))
        return symbol_chances(self.x, solver.codec, solver.task.symbols, alpha, beta).cpu()


@dataclass(frozen=True)
class View:
    """A View is a batch after one more step: states, the steps behind each board, and the proposals that led there."""

    solver: Solver
    problem: Problem
    clues: Clues
    x: State
    x0_hat: State
    steps: list[int]
    times: list[float]

    @property
    def continuous(self) -> bool:
        """Say whether the diffusion is Gaussian; in the other kind cells are open or masked."""
        return self.solver.path.family == "gaussian"

    @cached_property
    def proposal(self) -> Reading:
        return Reading(self, self.clues.pin(self.x0_hat))

    @cached_property
    def state(self) -> Reading:
        return Reading(self, self.x, torch.tensor(self.times).view(-1, 1, 1))


def frame(view: View, row: int, probabilities: bool = False) -> dict[str, Any]:
    """Describe one board of a batch. x: the state after this step; p: the proposal that led to it."""
    frame: dict[str, Any] = {"step": view.steps[row], "t": round(view.times[row], 6)}
    for name, reading in (("x", view.state), ("p", view.proposal)):
        frame[name] = _symbols(reading.symbols[row], view.solver.task.symbols)
        frame[f"{name}c"] = _levels(reading.certainty[row])
        frame[f"{name}bad"] = reading.violations[row].nonzero().flatten().tolist()
        if image := picture(view.solver, reading.x[row]):
            frame[f"{name}i"] = image
    if probabilities:
        frame["probabilities"] = [[round(p, 3) for p in cell] for cell in view.proposal.probabilities[row].tolist()]
    return {**frame, "valid": bool(view.proposal.valid[row])}


def explain(view: View, row: int) -> dict[str, Any]:
    """Explain why a final board is broken: pairs of cells that clash, and the open ones with how sure the network is of
    them.

    `left` are the symbols that would break no rule in a cell, if nothing else changed; often there is none.
    """
    solver, rows = view.solver, slice(row, row + 1)
    board, problem = view.state.symbols[rows], view.problem[rows]
    open_cells = (view.state.violations[row] & ~problem.given[0]).nonzero().flatten().tolist()
    clashes = solver.task.clashes(board, problem) if open_cells else []
    return {
        "clashes": clashes[:MOST_TOLD],
        "broken": [
            {
                "cell": cell,
                "certainty": round(float(view.proposal.certainty[row, cell]), 3),
                "left": _left(solver, board, problem, cell) if clashes else None,
            }
            for cell in open_cells[:MOST_TOLD]
        ],
    }


def _left(solver: Solver, board: Symbols, problem: Problem, cell: int) -> list[int]:
    symbols = solver.task.symbols
    boards = board.repeat(symbols, 1)
    boards[:, cell] = torch.arange(symbols)
    same = Problem.cat([problem] * symbols)
    return (~solver.task.violations(boards, same)[:, cell]).nonzero().flatten().tolist()


def _symbols(board: Tensor, symbols: int) -> str:
    return "".join(DIGITS[s] if 0 <= s < symbols else ILLEGAL for s in board.tolist())


def _levels(certainty: Tensor) -> str:
    shares = certainty.nan_to_num(0.0)  # a state so far off that its distances overflow says nothing
    return "".join(DIGITS[level] for level in (shares * 35).round().long().tolist())
