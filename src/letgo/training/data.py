"""Training instances, resident on the device, and the batches drawn from them."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from letgo.shapes import CellMask, Symbols
from letgo.tasks import Problem

Image = Callable[[Symbols, CellMask], tuple[Symbols, CellMask]]


def random_clues(batch: int, cells: int, device: torch.device) -> CellMask:
    """Draw k ~ U{0..cells-1} clues at random places (Table 2), on the device.

    One cell is never given, the others each with probability p ~ U(0, 1): how many are then is uniform, and no sort is
    needed to place them.
    """
    hidden = torch.randint(cells, (batch, 1), device=device)
    given = torch.rand(batch, cells, device=device) < torch.rand(batch, 1, device=device)
    return given & (torch.arange(cells, device=device) != hidden)


@dataclass(frozen=True)
class TrainingData:
    """Solved instances stay on the device, one byte per cell. Without `given`, clues are drawn at random."""

    boards: Tensor
    given: Tensor | None
    context: Tensor | None
    starts: Tensor | None = None  # where the instances of each stacked model begin; None: they are everybody's
    image: Image | None = None  # draws a symmetry for each board and returns its image

    @staticmethod
    def of(
        problem: Problem | Sequence[Problem], masks: str, device: torch.device, image: Image | None = None
    ) -> TrainingData:
        """Take one problem for all models, or as many as there are models."""
        problems, starts = ([problem] if isinstance(problem, Problem) else problem), None
        if len(problems) > 1:
            count = len(problems[0])
            assert all(len(p) == count for p in problems), "stacked models have equally many instances"
            starts = torch.arange(0, count * len(problems), count, device=device)
        whole = Problem.cat(list(problems)) if len(problems) > 1 else problems[0]
        context = None if whole.context is None else compact(whole.context).to(device)
        given = whole.given.to(device) if masks == "data" else None
        return TrainingData(whole.solution.to(device, torch.uint8), given, context, starts, image)

    def draw(self, batch: int) -> tuple[Symbols, CellMask, Tensor | None]:
        """Draw `batch` boards in all; with several models they are each model's in turn."""
        device, (count, cells) = self.boards.device, self.boards.shape
        if self.starts is None:
            index = torch.randint(count, (batch,), device=device)
        else:
            models = len(self.starts)
            index = (torch.randint(count // models, (batch // models, models), device=device) + self.starts).flatten()
        given = random_clues(batch, cells, device) if self.given is None else self.given[index]
        boards = self.boards[index].long()
        if self.image is not None:
            boards, given = self.image(boards, given)
        return boards, given, None if self.context is None else self.context[index].float()


def compact(context: Tensor) -> Tensor:
    """Return the context as bytes, where they hold it exactly: adjacencies are 0/1 floats."""
    small = context.clamp(0, 255).to(torch.uint8)
    return small if torch.equal(small.to(context.dtype), context) else context


def fingerprint(problem: Problem) -> int:
    """Hash the training instances to 32 bits, whatever file they came from."""
    parts = [problem.solution.to(torch.uint8), problem.given]
    parts += [] if problem.context is None else [compact(problem.context)]
    total = 0
    for part in parts:
        total = zlib.crc32(part.cpu().numpy().tobytes(), total)
    return total
