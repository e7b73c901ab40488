"""What the contract suite runs over: every registered thing in a small form, and some of each kind from outside.

A new name of a registry is tested without a word here; SMALL and FILES only make what is large small enough.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import torch
from own_tasks import Derangements, Differ, Traffic, TwoSteps
from torch import Tensor, nn

from letgo import tasks
from letgo.codecs import CODECS, Codec, DigitImages
from letgo.errors import LetgoError
from letgo.kernels import Gaussian, Transition, generalized_ddim
from letgo.models import NETWORKS
from letgo.objectives import OBJECTIVES, Batch, Network, squares
from letgo.paths import PATHS, GaussianPath, Path
from letgo.registry import choose
from letgo.rng import uniform_times
from letgo.samplers import RULES, Sampler, plain
from letgo.tasks import Problem, Row, Task

SMALL: dict[str, dict[str, Any]] = {
    "sudoku": {"box": 2},
    "sudoku-extreme": {"box": 2},
    "mnist-sudoku": {"box": 2},
    "latin": {"size": 4},
    "queens": {"size": 8},
    "connectivity": {"size": 5},
    "maze": {"size": 6},
    "table": {"columns": 4, "values": ("a", "b", "c", "d")},
}
FILES = {"table": "".join("".join(row) + "\n" for row in product("abcd", repeat=4))}  # of tasks that draw nothing
# Objectives with a network of their own
NETWORK_FOR = {"cross-entropy": "looped", "consistency": "consistency", "self-conditioning": "self-conditioned"}
TASK_OF = dict.fromkeys(("nlm", "looped-nlm"), "connectivity")  # networks that want a context, or one task's shape
WIDTHS: dict[str, dict[str, Any]] = {
    "transformer": {"width": 16, "depth": 2, "heads": 2, "hidden": 32},
    "self-conditioned": {"width": 16, "depth": 2, "heads": 2, "hidden": 32},
    "nlm": {"width": 8, "time_features": 16, "depth": 3},
    "looped-nlm": {"width": 8, "time_features": 16, "turns": 2},
    "velocity": {"width": 16, "depth": 2, "heads": 2, "hidden": 32},
    "categorical": {"width": 16, "depth": 2, "heads": 2, "hidden": 32},
    "consistency": {"width": 16, "depth": 2, "heads": 2, "hidden": 32},
}
CODEC_OF = {"absorbing": "masked"}  # by the family of a path
NETWORK_OF = {"absorbing": "categorical"}
FAMILY_OF = {"masked": "absorbing"}  # of an objective
SETTINGS = {"sigma": 0.3, "tau_start": 0.7}


class Parity(Task):
    """Four coins of which an even number shows tails."""

    name, cells, symbols, regimes = "parity", 4, 2, ("gen", "half")

    def solved(self, count: int, rng: np.random.Generator) -> tuple[Tensor, None]:
        boards = torch.from_numpy(rng.integers(2, size=(count, 4)))
        return torch.cat([boards[:, :3], boards[:, :3].sum(1, keepdim=True) % 2], 1), None

    def masks(self, boards: Tensor, regime: str, rng: np.random.Generator) -> Tensor:
        if regime not in (*self.regimes, "train"):
            raise LetgoError(f"unknown regime '{regime}'; choose one of gen, half, train")
        low, high = {"gen": (0, 0), "half": (2, 2), "train": (0, 3)}[regime]
        return tasks.random_masks(len(boards), 4, low, high, rng)

    def broken(self, boards: Tensor, problem: Problem) -> Tensor:
        return (boards.sum(1, keepdim=True) % 2 == 1).expand_as(boards)

    def parse(self, text: str) -> Problem:
        if len(text) != 4 or set(text) - set("HT."):
            raise LetgoError(f"expected 4 characters of H, T and '.', got {text!r}")
        given = torch.tensor([[c != "." for c in text]])
        return Problem(torch.tensor([[int(c == "T") for c in text]]), given)

    def format(self, boards: Tensor, problem: Problem) -> list[str]:
        return ["".join("HT"[symbol] for symbol in board) for board in boards.tolist()]


class Thermometer:
    """A symbol is as many of its cell's channels at +1 as its number says, the others at -1."""

    one_hot = False

    def __init__(self, symbols: int):
        self.dim = symbols - 1

    def encode(self, symbols: Tensor) -> Tensor:
        return (symbols[..., None] > torch.arange(self.dim)).float() * 2 - 1

    def decode(self, x: Tensor) -> Tensor:
        return (x > 0).sum(-1)


class Parabola(GaussianPath):
    """alpha = 1 - t^2, beta = t."""

    def alpha(self, t: Tensor) -> Tensor:
        return 1 - t**2

    def beta(self, t: Tensor) -> Tensor:
        return t

    def dalpha(self, t: Tensor) -> Tensor:
        return -2 * t

    def dbeta(self, t: Tensor) -> Tensor:
        return torch.ones_like(t)


def half_fresh(step: Transition) -> Gaussian:
    """Half of the noise is drawn anew."""
    return generalized_ddim(step, step.beta_s / 2)


class Pooled(nn.Module):
    """Every cell sees itself, the mean of all cells, and the time."""

    def __init__(self, dim: int, task: Task):
        super().__init__()
        self.linear = nn.Linear(2 * dim + 1, dim)

    def forward(self, x_t: Tensor, t: Tensor, context: Tensor | None = None) -> Tensor:
        mean = x_t.mean(1, keepdim=True).expand_as(x_t)
        return self.linear(torch.cat([x_t, mean, t.expand(*x_t.shape[:2], 1)], -1)).sigmoid()


@dataclass(frozen=True)
class Late:
    """The squared error at times of the noisier half alone."""

    @property
    def weights(self) -> dict[str, float]:
        return {"late": 2.0}

    def __call__(self, network: Network, path: Path, batch: Batch) -> dict[str, Tensor]:
        t = (1 + uniform_times(batch.x0)) / 2
        x_t = batch.clues.pin(path.sample(batch.x0, t, torch.randn_like(batch.x0)))
        return {"late": squares(network(x_t, t, batch.context), batch.x0)}


OUTSIDE: list[tuple[dict[str, Any], str, Any]] = [
    (tasks.TASKS, "parity", Row(Parity)),
    *((tasks.TASKS, task.name, Row(task)) for task in (TwoSteps, Derangements, Differ, Traffic)),
    (CODECS, "thermometer", Thermometer),
    (PATHS, "parabola", Parabola),
    (RULES, "half-fresh", plain(half_fresh)),
    (NETWORKS, "pooled", Pooled),
    (OBJECTIVES, "late", lambda simple_weight, full: Late()),
]


def names(table: dict[str, Any]) -> list[str]:
    """All that is registered, and those from outside that `register_outside` adds for a test."""
    return [*table, *(name for other, name, _ in OUTSIDE if other is table)]


def register_outside(set_item: Callable[[dict[str, Any], str, Any], None]) -> None:
    for table, name, entry in OUTSIDE:
        set_item(table, name, entry)


def small_task(name: str) -> Task:
    return tasks.get(name, **SMALL.get(name, {}))


def one_image_each(symbols: int) -> DigitImages:
    """Digits of one random image each, read as the nearest: the codec without its files."""
    images = torch.rand(symbols, 4, 4, generator=torch.Generator().manual_seed(0)) * 2 - 1
    return DigitImages(images, torch.arange(symbols), lambda x: -torch.cdist(x.flatten(1), images.flatten(1)))


IN_MEMORY = {"digits": one_image_each}  # codecs whose images lie in a run's folder


def build_codec(name: str, symbols: int) -> Codec:
    if name in IN_MEMORY:
        return IN_MEMORY[name](symbols)
    return choose("codec", CODECS, name)(symbols)


def build_path(name: str) -> Path:
    return choose("path", PATHS, name)()


class Answer(nn.Module):
    """The prediction alone of a network that returns its memory beside it."""

    def __init__(self, network: nn.Module):
        super().__init__()
        self.network = network

    def forward(self, *inputs: Tensor | None, **more: Tensor) -> Tensor:
        return self.network(*inputs, **more)[0]


def build_network(name: str, dim: int, task: Task) -> nn.Module:
    torch.manual_seed(0)
    network = choose("network", NETWORKS, name)(dim, task, **WIDTHS.get(name, {}))
    return Answer(network) if getattr(network, "remembers", False) else network


def paths_of(family: str) -> list[Path]:
    return [path for path in map(build_path, PATHS) if path.family == family]


def sampler(name: str, steps: int) -> Sampler:
    return Sampler(name, steps, **{setting: SETTINGS[setting] for setting in RULES[name].takes})
