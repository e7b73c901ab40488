"""An engine is how a network takes a batch of boards from noise to data on one device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import nullcontext

import torch
from torch import Tensor, nn

from letgo.paths import Path
from letgo.pinning import Clues
from letgo.rng import Noise
from letgo.samplers import Sampler
from letgo.sampling import Denoise, Snapshot, Walk, advance, ahead_of, check_proposal, starting_state, trajectory
from letgo.shapes import State, Time

SIZES = (64, 512, 2048, 8192, 32_768)  # of batches on a GPU: few, since each is compiled anew
WHOLE_ROUNDS = 13 * 132 * 192  # cells of a large batch: an H200's 132 multiprocessors take 192 each at a time
PLAIN_CELLS = 128  # of a batch of the plain engine on a CPU


class Engine(ABC):
    """An engine has one network on one device, in one precision."""

    pads = True  # every batch has its full size, so that rounding never depends on how many boards are in it
    building = 0.0  # seconds spent on compiling and capturing

    def __init__(self, network: nn.Module, path: Path, device: torch.device, precision: str):
        self.network, self.path, self.device, self.precision = network, path, device, precision

    @abstractmethod
    def denoise(self, context: Tensor | None) -> Denoise:
        """Return the network with its context bound, as `trajectory` calls it."""

    def walk(
        self, sampler: Sampler, clues: Clues, noise: Noise, context: Tensor | None = None, walk: Walk | None = None
    ) -> Iterator[Snapshot]:
        """Take one batch through Algorithm 1, or what is left of it."""
        denoise = self.told(sampler, context)
        return trajectory(denoise, self.path, sampler.build(), sampler.times(), clues, self.draws(noise), walk)

    def told(self, sampler: Sampler, context: Tensor | None) -> Denoise:
        """Return the network as a sampler asks it, with the time that the sampler tells it."""
        return ahead_of(self.denoise(context), sampler.lead) if sampler.lead else self.denoise(context)

    def draws(self, noise: Noise) -> Noise:
        """Return the same noise, drawn as it suits the device."""
        return noise

    def begin(self, clues: Clues, noise: Noise, context: Tensor | None) -> Walk:
        """Return x_T of these boards."""
        return Walk(starting_state(noise, clues, self.path))

    def slots(self, sampler: Sampler) -> Slots:
        """Return a batch whose boards have steps of their own."""
        return Slots(self, sampler)

    def finish(
        self,
        sampler: Sampler,
        clues: Clues,
        noise: Noise,
        context: Tensor | None = None,
        each: Callable[[int], None] = lambda step: None,
    ) -> State:
        """Return the last state alone; `each` is called after the steps, where they are taken one by one.

        One snapshot is held at a time, so memory is flat in the number of steps.
        """
        last = None
        for last in self.walk(sampler, clues, noise, context):
            each(last.step)
        assert last is not None
        return last.x

    def batch(self, cells: int) -> int:
        """Return how many boards of this size make a batch."""
        if self.device.type == "cpu":  # small fixed batches, so that an answer never depends on its neighbours
            return max(1, PLAIN_CELLS // cells)
        return max(1, WHOLE_ROUNDS // cells)

    def size(self, batch: int, boards: int) -> int:
        """Return the size of the batches that so many boards go through, `batch` at most at a time."""
        return batch if self.device.type == "cpu" else min([batch, *(size for size in SIZES if size >= boards)])

    def smaller(self, whole: int, size: int, left: int, cells: int) -> int:
        """Return how many boards go on when `left` of the `size` in a batch, `whole` at first, are unfinished."""
        if self.device.type == "cpu":  # the small batches of this engine stay whole
            return left if whole > self.batch(cells) else size
        return min([size, *(step for step in SIZES if step >= left)])


class Slots:
    """Each board of the batch has steps of its own: one can take a row while the others are on their way."""

    def __init__(self, engine: Engine, sampler: Sampler):
        self.engine, self.sampler = engine, sampler
        self.rule, self.grid, self.warned = sampler.build(), sampler.times().to(engine.device), False

    def seat(self, clues: Clues, noise: Noise, context: Tensor | None, walk: Walk) -> None:
        """Take these boards, which go on from where they are, in place of those that are there."""
        self.clues, self.noise, self.walk = clues, self.engine.draws(noise), walk
        self.denoise = self.engine.told(self.sampler, context)

    def step(self) -> State:
        """Take every board a step on, and return the proposals that led there."""
        path = self.engine.path
        after, x0_hat = advance(self.denoise, path, self.rule, self.grid, self.clues, self.noise, self.walk)
        self.warned = check_proposal(path, self.grid, self.walk, x0_hat, self.warned)
        self.walk = after
        return x0_hat


class Plain(Engine):
    """The plain engine calls the network as it is, in eager mode."""

    def denoise(self, context: Tensor | None) -> Denoise:
        half = torch.autocast(self.device.type, torch.bfloat16) if self.precision == "bf16" else nullcontext()

        def denoise(x_t: State, t: Time, *memory: Tensor) -> State | tuple[State, Tensor]:
            with half:
                return self.network(x_t, t.expand(len(x_t), 1, 1), context, *memory)

        return denoise
