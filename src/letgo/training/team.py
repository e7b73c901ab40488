"""Several processes that train one model together, as `torchrun` starts them.

Every one draws the whole batch and its noise, and runs the network on its own rows: what they sum up is the gradient
of one process.
"""

from __future__ import annotations

import atexit
import gc
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch import distributed as dist

from letgo.errors import LetgoError
from letgo.shapes import State, Time

T = TypeVar("T")


class TeamLost(LetgoError):
    """Another process of the team has ended."""


@contextmanager
def _faults() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        reason = str(error).strip().partition("\n")[0][:120]
        raise TeamLost(f"another process of this training has ended, or cannot be reached ({reason})") from None


def _leave() -> None:
    """End gloo's threads while Python stands: one that lets go of a tensor later ends the whole process by SIGABRT.

    They are joined when their group is collected, which stands in a cycle of references.
    """
    dist.destroy_process_group()
    gc.collect()


@dataclass(frozen=True)
class Team:
    """A Team is this process among those that train together, by default alone. The first one writes and speaks."""

    rank: int = 0
    size: int = 1

    @staticmethod
    def join(device: torch.device) -> Team:
        """Meet the other processes that `torchrun` started, if any; each has the GPU of its number on its machine."""
        if "TORCHELASTIC_RUN_ID" not in os.environ or os.environ.get("WORLD_SIZE", "1") == "1":
            return ALONE
        cuda = device.type == "cuda"
        if cuda:
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        if not dist.is_initialized():
            with _faults():
                dist.init_process_group("cpu:gloo,cuda:nccl" if cuda else "gloo")
            atexit.register(_leave)
        return Team(dist.get_rank(), dist.get_world_size())

    @property
    def leads(self) -> bool:
        return self.rank == 0

    # What they tell one another

    def told(self, value: T) -> T:
        """Return what the first process has."""
        if self.size == 1:
            return value
        box: list[Any] = [value]
        with _faults():
            dist.broadcast_object_list(box, src=0, device=torch.device("cpu"))
        return box[0]

    def most(self, mine: int) -> int:
        """Return the largest of their numbers."""
        if self.size == 1:
            return mine
        number = torch.tensor(int(mine))
        with _faults():
            dist.all_reduce(number, dist.ReduceOp.MAX)
        return int(number)

    def add_up(self, *parts: Tensor) -> None:
        """Replace each tensor by its sum over all processes, in one message."""
        whole = torch.cat([part.flatten() for part in parts])
        sent = whole if whole.device.type == "cuda" else whole.cpu()
        with _faults():
            dist.all_reduce(sent)
        for part, total in zip(parts, sent.to(whole.device).split([part.numel() for part in parts]), strict=True):
            part.copy_(total.view_as(part))

    # Rows: board i is computed by process i % size

    def shared(self, network: Callable[..., State]) -> Callable[..., State]:
        """Run a network of (weights, x_t, t, context) on one's own rows; it answers 0 for those of others."""

        def rows(flat: Tensor, x_t: State, t: Time, context: Tensor | None, **how: bool) -> State:
            mine = slice(self.rank, None, self.size)
            inputs = (x_t[mine], t[mine] if len(t) > 1 else t, None if context is None else context[mine])
            with self._own_noise(x_t.device):
                answer = network(flat, *inputs, **how)
            whole = answer.new_zeros(len(x_t), *answer.shape[1:])
            whole[mine] = answer
            return whole

        return network if self.size == 1 else rows

    def own(self, terms: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Keep one's own rows of a loss; the others count 0."""

        def kept(term: Tensor) -> Tensor:
            mine = torch.arange(len(term), device=term.device) % self.size == self.rank
            return torch.where(mine.view(-1, *(1 for _ in term.shape[1:])), term, 0.0)

        return {name: term if self.size == 1 else kept(term) for name, term in terms.items()}

    @contextmanager
    def _own_noise(self, device: torch.device) -> Iterator[None]:
        """Dropout differs between processes, and leaves the noise that they share as it was."""
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            torch.manual_seed(int(torch.randint(2**31, (), device=device)) * self.size + self.rank)
            yield


ALONE = Team()
