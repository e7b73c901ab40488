"""What many sampling runs proposed at every step, judged by the task: the table that several analyses read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from letgo.analysis.study import Piece, Study
from letgo.kernels import ddpm, tweedie
from letgo.samplers import Sampler

CENTERS = {"tweedie": tweedie, "ddpm": ddpm}  # of one step from the same x_t and x0_hat
Steps = Int[Tensor, "steps boards"]


@dataclass(frozen=True)
class Record:
    """Rows are steps, columns boards. Step i is made at progress tau[i] = 1 - t, before x_t moves on."""

    tau: Float[Tensor, "steps"]
    broken: dict[str, Steps]  # cells in broken rules, of the proposal and of both centers
    changes: Steps  # open cells whose decoded proposal is another than a step before
    last_change: Int[Tensor, "boards cells"]  # the step of a cell's last change; 0 where there was none
    open: Bool[Tensor, "boards cells"]
    final: Bool[Tensor, "boards"]  # whether the final state is valid
    moved: Bool[Tensor, "boards"]  # whether it decodes to another board than the last proposal

    @property
    def valid(self) -> dict[str, Bool[Tensor, "steps boards"]]:
        return {name: cells == 0 for name, cells in self.broken.items()}

    @property
    def commitment(self) -> Float[Tensor, "boards"]:
        """Return tau*: the earliest progress from which on the decoded proposal is the final board (App. P)."""
        steps = torch.arange(len(self.tau))[:, None]
        last = ((self.changes > 0) * steps).amax(0)
        return torch.where(self.moved, 1.0, self.tau[last])

    @property
    def found(self) -> Bool[Tensor, "boards"]:
        """Return whether some proposal was valid."""
        return self.valid["proposal"].any(0)


def record(study: Study, rule: str, centers: bool = True) -> Record:
    """Sample every instance with a rule and judge each step's proposal and, with `centers`, both rules' centers."""
    sampler, show = study.sampler(rule), study.progress(f"{rule}: sampled")
    parts = []
    for piece in study.pieces():

        def advance(step: int, piece: Piece = piece) -> None:
            show(piece.start + piece.count * step / sampler.steps, len(study.problem))

        parts.append(_record(piece, sampler, centers, advance))
    return Record(
        parts[0].tau,
        {name: torch.cat([part.broken[name] for part in parts], 1) for name in parts[0].broken},
        torch.cat([part.changes for part in parts], 1),
        *(torch.cat([getattr(part, name) for part in parts]) for name in ("last_change", "open", "final", "moved")),
    )


def _record(piece: Piece, sampler: Sampler, centers: bool, advance: Callable[[int], None]) -> Record:
    """Return the record of one batch."""
    broken: dict[str, list[Tensor]] = {name: [] for name in ("proposal", *(CENTERS if centers else ()))}
    changes, before, last = [], None, torch.zeros_like(piece.rows.solution)
    final = last
    for i, (step, x_s) in enumerate(piece.transitions(sampler)):
        board = piece.decode(step.x0_hat)
        broken["proposal"].append(piece.judge(board))
        for name in CENTERS if centers else ():
            broken[name].append(piece.broken(CENTERS[name](step).center))
        changed = torch.zeros_like(board, dtype=torch.bool) if before is None else board != before
        changes.append(changed.sum(1))
        last[changed] = i
        before = board
        if i + 1 == sampler.steps:
            final = piece.decode(x_s)
        advance(i + 1)
    return Record(
        1 - sampler.times()[:-1],
        {name: torch.stack(cells).int() for name, cells in broken.items()},
        torch.stack(changes).int(),
        last,
        ~piece.rows.given,
        piece.judge(final) == 0,
        (final != before).any(1),
    )


def bins(tau: Float[Tensor, "steps"], most: int = 40) -> tuple[list[float], Int[Tensor, "steps"]]:
    """Return equal bins of progress: their middles, and the bin of each step."""
    count = min(most, len(tau))
    index = (tau.double() * count + 1e-6).long().clamp(max=count - 1)  # tau = .3 is the beginning of its bin
    return [(i + 0.5) / count for i in range(count)], index


def by_bin(values: Float[Tensor, "steps boards"], index: Int[Tensor, "steps"]) -> list[float]:
    """Return the mean over boards and over the steps of each bin."""
    return [round(float(values[index == i].mean()), 6) for i in range(int(index.max()) + 1)]
