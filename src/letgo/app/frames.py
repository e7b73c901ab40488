"""One step of a batch as the page shows it: leading symbols, certainty, broken cells."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from letgo.pinning import Clues
from letgo.sampling import Snapshot
from letgo.shapes import CellMask, PerBoard, State, Symbols
from letgo.solver import Solver
from letgo.tasks import Problem

DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"  # one character per cell: a symbol, or a certainty from 0 to 35
ILLEGAL = "?"  # no symbol: a masked cell, or a code of bits beyond the last symbol
MASKED = -1  # no symbol yet
SPREAD = 0.3  # how far a proposal may lie from a codeword and still count as fairly sure, where no share is at hand

Certainty = Float[Tensor, "batch cells"]


@dataclass(frozen=True)
class Look:
    """A snapshot read as symbols. Each property is computed when a job first asks for it."""

    solver: Solver
    problem: Problem
    clues: Clues
    snapshot: Snapshot

    @property
    def step(self) -> int:
        return self.snapshot.step

    @cached_property
    def pinned(self) -> State:
        return self.clues.pin(self.snapshot.x0_hat)

    @cached_property
    def proposal(self) -> Symbols:
        return self.solver.codec.decode(self.pinned).cpu()

    @cached_property
    def state(self) -> Symbols:
        symbols = self.solver.codec.decode(self.snapshot.x).cpu()
        return symbols if self.continuous else torch.where(self.state_certainty > 0, symbols, MASKED)

    @property
    def continuous(self) -> bool:
        """Whether the state is one of Gaussian diffusion; in the other kind a cell is open or masked."""
        return self.solver.path.family == "gaussian"

    @cached_property
    def proposal_violations(self) -> CellMask:
        return self.solver.task.violations(self.proposal, self.problem)

    @cached_property
    def state_violations(self) -> CellMask:
        return self.solver.task.violations(self.state, self.problem)

    @cached_property
    def proposal_valid(self) -> PerBoard:
        return ~self.proposal_violations.any(dim=1)

    @cached_property
    def state_valid(self) -> PerBoard:
        return ~self.state_violations.any(dim=1)

    @cached_property
    def proposal_certainty(self) -> Certainty:
        """One-hot: x0_hat estimates E[x0 | x_t], so its largest entry is the leading symbol's probability."""
        if self.solver.codec.one_hot or not self.continuous:
            return self.pinned.float().amax(-1).clamp(0, 1).cpu()
        return self._posterior(self.pinned, 1.0, SPREAD)

    @cached_property
    def state_certainty(self) -> Certainty:
        """Bayes' rule for the cell alone: what x_t says of its symbol if all were equally likely beforehand."""
        path: Any = self.solver.path
        if not self.continuous:
            return self.snapshot.x[..., : self.solver.task.symbols].float().amax(-1).cpu()
        t = torch.full((1, 1, 1), self.snapshot.t)
        return self._posterior(self.snapshot.x, float(path.alpha(t)), max(float(path.beta(t)), 1e-3))

    def _posterior(self, x: State, alpha: float, beta: float) -> Certainty:
        symbols = torch.arange(self.solver.task.symbols, device=x.device)
        codewords = alpha * self.solver.codec.encode(symbols[None])[0]
        squares = (x.float()[:, :, None] - codewords).square().sum(-1)
        return torch.softmax(-squares / (2 * beta**2), -1).amax(-1).cpu()


def frame(look: Look, row: int) -> dict[str, Any]:
    """One board of a batch. x: the state after this step; p: the proposal that led to it."""
    return {
        "step": look.step,
        "t": round(look.snapshot.t, 6),
        "x": _symbols(look.state[row], look.solver.task.symbols),
        "xc": _levels(look.state_certainty[row]),
        "xbad": look.state_violations[row].nonzero().flatten().tolist(),
        "p": _symbols(look.proposal[row], look.solver.task.symbols),
        "pc": _levels(look.proposal_certainty[row]),
        "pbad": look.proposal_violations[row].nonzero().flatten().tolist(),
        "valid": bool(look.proposal_valid[row]),
    }


def _symbols(board: Tensor, symbols: int) -> str:
    return "".join(DIGITS[s] if 0 <= s < symbols else ILLEGAL for s in board.tolist())


def _levels(certainty: Tensor) -> str:
    return "".join(DIGITS[level] for level in (certainty * 35).round().long().tolist())
