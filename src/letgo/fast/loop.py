"""Algorithm 1 on a GPU: one whole step compiled and captured in a CUDA graph, replayed with no work on the host.

Everything that differs from run to run lies in buffers of fixed shape and place: states, clues, times, seeds, and also
sigma, tau_start and the variance. `sampling.trajectory` is the plain twin.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from letgo.errors import LetgoError
from letgo.fast.cuda import captured, many_builds
from letgo.kernels import EulerMaruyama, Kernel, Rule, Tempered, Transition, euler_maruyama
from letgo.models.transformer import Transformer
from letgo.paths import GaussianPath
from letgo.pinning import Clues
from letgo.rng import Noise, as_int64
from letgo.sampling import Grid, Snapshot, checked_grid, reverse_step, starting_state
from letgo.shapes import State, Time

MOST_STEPS = 4096  # that one graph has room for; longer runs get their own
WARM_STEPS = 3  # before a step is captured: by then every kernel is compiled and loaded

Kind = Any  # what a rule is without its numbers: `EulerMaruyama`, or the rule itself


@dataclass(frozen=True, eq=False)
class Buffers:
    """All that a step reads and writes. `done` counts the steps behind us."""

    x: State
    x0_hat: State
    done: Int[Tensor, ""]
    times: Float[Tensor, "points"]
    sigmas: Float[Tensor, "steps"]
    spread: Float[Tensor, ""]
    values: State
    given: Bool[Tensor, "batch cells"]
    seed: Int[Tensor, ""]
    instance: Int[Tensor, "batch"]
    attempt: Int[Tensor, "batch"]
    count: Int[Tensor, "many"]
    context: Tensor | None

    @staticmethod
    def like(clues: Clues, context: Tensor | None, steps: int) -> Buffers:
        values, given = clues.values, clues.given
        whole = torch.zeros(len(values), dtype=torch.int64, device=values.device)
        return Buffers(
            x=torch.zeros_like(values),
            x0_hat=torch.zeros_like(values),
            done=whole.new_zeros(()),
            times=values.new_zeros(steps + 1),
            sigmas=values.new_zeros(steps),
            spread=values.new_ones(()),
            values=torch.zeros_like(values),
            given=torch.zeros_like(given),
            seed=whole.new_zeros(()),
            instance=torch.zeros_like(whole),
            attempt=torch.zeros_like(whole),
            count=torch.arange(values[0].numel(), device=values.device),
            context=None if context is None else torch.zeros_like(context),
        )


def kind_of(rule: Rule) -> Kind:
    """Rules that differ only in their numbers share a compiled step."""
    while isinstance(rule, Tempered):
        rule = rule.rule
    return EulerMaruyama if isinstance(rule, EulerMaruyama) else rule


def numbers_of(rule: Rule, times: Grid) -> tuple[Float[Tensor, "steps"], float]:
    """sigma at every step's t, and the factor on the kernel's scale."""
    spread = 1.0
    while isinstance(rule, Tempered):
        spread, rule = spread * rule.variance**0.5, rule.rule
    t = times[:-1]
    return rule.sigma_at(t.view(-1, 1, 1)).flatten() if isinstance(rule, EulerMaruyama) else torch.zeros_like(t), spread


def advance(network: nn.Module, path: GaussianPath, kind: Kind, soft_until: float, b: Buffers) -> None:
    """`reverse_step` from the buffers to the buffers."""

    def denoise(x_t: State, t: Time) -> State:
        half = torch.autocast("cuda", torch.bfloat16) if x_t.device.type == "cuda" else nullcontext()
        with half:
            return network(x_t, t.expand(len(x_t), 1, 1), b.context)

    def rule(step: Transition) -> Kernel:
        if kind is EulerMaruyama:
            kernel = euler_maruyama(step, b.sigmas.index_select(0, now).view(1, 1, 1))
        else:
            kernel = kind(step)
        return Kernel(kernel.center, kernel.scale * b.spread)

    now = b.done.view(1)
    t, s = b.times.index_select(0, now).view(1, 1, 1), b.times.index_select(0, now + 1).view(1, 1, 1)
    clues, noise = Clues(b.values, b.given, soft_until), Noise(b.seed, b.instance, b.attempt, b.count)
    x_s, x0_hat = reverse_step(denoise, path, rule, b.x, t, s, clues, noise, b.done + 1)
    b.x.copy_(x_s)
    b.x0_hat.copy_(x0_hat)
    b.done.add_(1)


@cache
def compiled_advance() -> Callable[..., None]:
    """One for all networks: torch tells by itself which of them can share code. Without Triton, `advance` as it is."""
    if importlib.util.find_spec("triton") is None:
        return advance
    return torch.compile(advance, dynamic=False, fullgraph=True)  # a graph break or too many builds raise


class Fused(nn.Module):
    """The fused Transformer with its weights, called like the plain one. All boards are at the same time."""

    flat: Tensor

    def __init__(self, network: Transformer):
        from letgo.fast.network import FastTransformer

        super().__init__()
        self.fast = FastTransformer(network).eval()
        weights = dict(network.named_parameters())
        flat = torch.cat([weights[name].detach().flatten() for name in self.fast.names])[None]
        self.register_buffer("flat", flat, persistent=False)

    def forward(self, x_t: State, t: Time, context: Tensor | None = None) -> State:
        return self.fast(self.flat, x_t, t[:1])


class Step:
    """A step in buffers of its own; on a GPU a graph."""

    def __init__(self, work: Callable[[], None], buffers: Buffers):
        self.work, self.buffers, self.owner = work, buffers, object()

    def capture(self, pool: Any) -> None:
        for _ in range(WARM_STEPS):
            self.work()
        self.work = captured(self.work, pool).replay

    def load(self, rule: Rule, times: Grid, clues: Clues, noise: Noise, context: Tensor | None) -> None:
        """The inputs of a run: all but the state."""
        b, (sigmas, spread) = self.buffers, numbers_of(rule, times)
        b.times[: len(times)].copy_(times)
        b.sigmas[: len(sigmas)].copy_(sigmas)
        b.spread.fill_(spread)
        b.values.copy_(clues.values)
        b.given.copy_(clues.given)
        b.seed.copy_(as_int64(noise.seed))
        b.instance.copy_(noise.instance)
        b.attempt.copy_(noise.attempt)
        if b.context is not None and context is not None:
            b.context.copy_(context)

    def place(self, x_t: State, done: int) -> None:
        self.buffers.x.copy_(x_t)
        self.buffers.done.fill_(done)


class Loop:
    """One network's reverse loop. A step is built once per kind of rule, shape, t* and shape of the context."""

    def __init__(self, network: nn.Module, path: GaussianPath, compiled: bool = True):
        from letgo.fast import supported

        self.path, self.compiled = path, compiled
        self.network = network
        if compiled and isinstance(network, Transformer) and supported(network):
            self.network = Fused(network)
        self.steps: dict[tuple[tuple[Any, ...], int], Step] = {}
        self.latest: tuple[Any, ...] = ()
        self.pool: Any = None
        self.building = 0.0  # seconds spent on building steps

    def step(self, rule: Rule, count: int, clues: Clues, context: Tensor | None) -> Step:
        """The step for such inputs, built where it is new."""
        kind, room = kind_of(rule), MOST_STEPS * -(-count // MOST_STEPS)
        batch, *shape = clues.values.shape
        about = None if context is None else (context.shape[1:], context.dtype)
        self.latest = (kind, room, *shape, clues.values.device, clues.soft_until, about)
        if (self.latest, batch) not in self.steps:
            started = time.perf_counter()
            self.steps[self.latest, batch] = self._build(kind, Buffers.like(clues, context, room), clues.soft_until)
            self.building += time.perf_counter() - started
        return self.steps[self.latest, batch]

    def sizes(self) -> set[int]:
        """Batch sizes that the latest step has been built for."""
        return {batch for kind, batch in self.steps if kind == self.latest}

    def _build(self, kind: Kind, buffers: Buffers, soft_until: float) -> Step:
        inputs = (self.network, self.path, kind, soft_until, buffers)
        if not self.compiled:
            return Step(lambda: advance(*inputs), buffers)
        function = compiled_advance()
        step = Step(lambda: function(*inputs), buffers)
        try:
            with torch.no_grad(), many_builds():
                if buffers.x.device.type != "cuda":
                    step.work()  # compiled now, so that a failure is told here
                    return step
                if self.pool is None:  # graphs run one after the other and leave nothing behind: one pool for all
                    self.pool = torch.cuda.graph_pool_handle()
                step.capture(self.pool)
        except Exception as error:
            raise LetgoError(
                f"the fast sampling step could not be built for states {tuple(buffers.x.shape)} on "
                f"{buffers.x.device}: {type(error).__name__}: {error}; use --plain (fast=False), or a smaller --batch "
                "where memory ran out"
            ) from error
        return step

    def final(self, rule: Rule, times: Grid, clues: Clues, noise: Noise, context: Tensor | None = None) -> State:
        """The last state alone: nothing is looked at on the way."""
        times = checked_grid(times)
        step = self.step(rule, len(times) - 1, clues, context)
        step.owner = None
        step.load(rule, times, clues, noise, context)
        step.place(starting_state(noise, clues, self.path), 0)
        with torch.no_grad():
            for _ in range(len(times) - 1):
                step.work()
        return step.buffers.x.clone()

    def run(
        self,
        rule: Rule,
        times: Grid,
        clues: Clues,
        noise: Noise,
        context: Tensor | None = None,
        x_t: State | None = None,
        done: int = 0,
    ) -> Iterator[Snapshot]:
        """`trajectory`, or what is left of it when `x_t` is the state after `done` steps."""
        times = checked_grid(times)
        step, mine = self.step(rule, len(times) - 1, clues, context), object()
        x_t = starting_state(noise, clues, self.path) if x_t is None else x_t
        for i, reached in enumerate(times.tolist()[done + 1 :], start=done):
            if step.owner is not mine:  # the first step, or another run took the buffers since
                step.load(rule, times, clues, noise, context)
                step.place(x_t, i)
                step.owner = mine
            with torch.no_grad():
                step.work()
            x_t = step.buffers.x.clone()
            yield Snapshot(i + 1, reached, x_t, step.buffers.x0_hat.clone())
