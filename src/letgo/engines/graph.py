"""The engine for CUDA compiles one whole step, captures it in a graph and replays that with no work on the host.

Everything that differs from run to run lies in buffers of fixed shape and place: states, clues, times, seeds, and also
sigma, tau_start, the variance and the lead. `sampling.trajectory` is the plain twin.
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

from letgo.engines.cuda import captured, many_builds
from letgo.engines.plain import Engine, Slots
from letgo.errors import LetgoError
from letgo.kernels import EulerMaruyama, Kernel, Rule, Tempered, Transition, euler_maruyama
from letgo.models.transformer import Transformer
from letgo.paths import Path
from letgo.pinning import Clues
from letgo.rng import Noise, as_int64
from letgo.samplers import Sampler
from letgo.sampling import (
    FAR,
    Denoise,
    Grid,
    Snapshot,
    Walk,
    ahead_of,
    checked_grid,
    diverged,
    not_finite,
    reverse_step,
    starting_state,
)
from letgo.shapes import State, Time

MOST_STEPS = 4096  # that one graph has room for; longer runs get their own
WARM_STEPS = 3  # before a step is captured: by then every kernel is compiled and loaded

Kind = Any  # what a rule is without its numbers: `EulerMaruyama`, or the rule itself


@dataclass(frozen=True, eq=False)
class Buffers:
    """Buffers hold all that a step reads and writes. `done` counts the steps behind all boards, or behind each."""

    x: State
    x0_hat: State
    done: Int[Tensor, "*rows"]
    times: Float[Tensor, "points"]
    sigmas: Float[Tensor, "steps"]
    spread: Float[Tensor, ""]
    lead: Float[Tensor, ""]
    values: State
    given: Bool[Tensor, "batch cells"]
    seed: Int[Tensor, "batch"]
    instance: Int[Tensor, "batch"]
    attempt: Int[Tensor, "batch"]
    count: Int[Tensor, "many"]
    failed: Int[Tensor, ""]  # 0, or the first step whose answer to a finite state is not finite; -step if that was far
    context: Tensor | None
    memory: Tensor | None

    @staticmethod
    def like(clues: Clues, context: Tensor | None, walk: Walk, steps: int) -> Buffers:
        values, given, memory = clues.values, clues.given, walk.memory
        whole = torch.zeros(len(values), dtype=torch.int64, device=values.device)
        return Buffers(
            x=torch.zeros_like(values),
            x0_hat=torch.zeros_like(values),
            done=whole.new_zeros(whole.shape if is_apart(walk) else ()),
            times=values.new_zeros(steps + 1),
            sigmas=values.new_zeros(steps),
            spread=values.new_ones(()),
            lead=values.new_zeros(()),
            values=torch.zeros_like(values),
            given=torch.zeros_like(given),
            seed=torch.zeros_like(whole),
            instance=torch.zeros_like(whole),
            attempt=torch.zeros_like(whole),
            count=torch.arange(values[0].numel(), device=values.device),
            failed=whole.new_zeros(()),
            context=None if context is None else torch.zeros_like(context),
            memory=None if memory is None else torch.zeros_like(memory),
        )


def is_apart(walk: Walk) -> bool:
    """Say whether each board has a step of its own."""
    return isinstance(walk.done, Tensor) and walk.done.dim() > 0


def kind_of(rule: Rule) -> Kind:
    """Rules that differ only in their numbers share a compiled step."""
    while isinstance(rule, Tempered):
        rule = rule.rule
    return EulerMaruyama if isinstance(rule, EulerMaruyama) else rule


def numbers_of(rule: Rule, times: Grid) -> tuple[Float[Tensor, "steps"], float]:
    """Return sigma at every step's t, and the factor on the kernel's scale."""
    spread = 1.0
    while isinstance(rule, Tempered):
        spread, rule = spread * rule.variance**0.5, rule.rule
    t, h = times[:-1], times[:-1] - times[1:]
    if not isinstance(rule, EulerMaruyama):
        return torch.zeros_like(t), spread
    return rule.sigma_at(t.view(-1, 1, 1), h.view(-1, 1, 1)).flatten(), spread


def bound(network: nn.Module, context: Tensor | None) -> Denoise:
    """Return the network as a step calls it, in bf16 on a GPU; a fused one may be told one time for all boards."""

    def denoise(x_t: State, t: Time, *memory: Tensor) -> State | tuple[State, Tensor]:
        half = torch.autocast("cuda", torch.bfloat16) if x_t.device.type == "cuda" else nullcontext()
        told = t if isinstance(network, Fused) else t.expand(len(x_t), 1, 1)
        with half:
            return network(x_t, told, context, *memory)

    return denoise


def advance(network: nn.Module, path: Path, kind: Kind, soft_until: float, b: Buffers) -> None:
    """Take a `reverse_step` from the buffers to the buffers."""

    def rule(step: Transition) -> Kernel:
        if kind is EulerMaruyama:
            kernel = euler_maruyama(step, b.sigmas.index_select(0, now).view(-1, 1, 1))
        else:
            kernel = kind(step)
        return kernel.spread(b.spread.view(1, 1, 1))

    now = b.done.view(-1)
    times = tuple(b.times.index_select(0, now + i).view(-1, 1, 1) for i in (0, 1))
    clues, noise = Clues(b.values, b.given, soft_until), Noise(b.seed, b.instance, b.attempt, b.count)
    walk = Walk(b.x, b.memory, b.done)
    denoise = ahead_of(bound(network, b.context), b.lead.view(1, 1, 1))
    after, x0_hat = reverse_step(denoise, path, rule, walk, (times[0], times[1]), clues, noise)
    broken = b.x.isfinite().flatten(1).all(1) & ~x0_hat.isfinite().flatten(1).all(1)
    far = b.x.abs().flatten(1).amax(1) > FAR
    steps = torch.where(broken, torch.where(far, -1, 1) * (b.done + 1), 0)
    b.failed.copy_(torch.where(b.failed == 0, torch.where((steps > 0).any(), steps.amax(), steps.amin()), b.failed))
    b.x.copy_(after.x)
    b.x0_hat.copy_(x0_hat)
    if b.memory is not None and after.memory is not None:
        b.memory.copy_(after.memory)
    b.done.add_(1)


@cache
def compiled_advance() -> Callable[..., None]:
    """Return one for all networks: torch tells which can share code. Without Triton it is `advance` as it is."""
    if importlib.util.find_spec("triton") is None:
        return advance
    return torch.compile(advance, dynamic=False, fullgraph=True)  # a graph break or too many builds raise


class Fused(nn.Module):
    """The fused Transformer holds its weights and is called like the plain one, with one time or one for each board."""

    flat: Tensor

    def __init__(self, network: Transformer):
        from letgo.engines.network import FastTransformer

        super().__init__()
        self.fast = FastTransformer(network).eval()
        weights = dict(network.named_parameters())
        flat = torch.cat([weights[name].detach().flatten() for name in self.fast.names])[None]
        self.register_buffer("flat", flat, persistent=False)

    def forward(self, x_t: State, t: Time, context: Tensor | None = None) -> State:
        return self.fast(self.flat, x_t, t)


class Step:
    """A step has buffers of its own; on a GPU it is a graph."""

    def __init__(self, work: Callable[[], None], buffers: Buffers):
        self.work, self.buffers, self.owner = work, buffers, object()
        self.sampler: Sampler | None = None  # whose times and numbers the buffers have

    def capture(self, pool: Any) -> None:
        for _ in range(WARM_STEPS):
            self.work()
        self.work = captured(self.work, pool).replay

    def load(self, sampler: Sampler, clues: Clues, noise: Noise, context: Tensor | None) -> None:
        """Write a run's inputs, all but the state, to the buffers."""
        b = self.buffers
        if sampler != self.sampler:
            times = checked_grid(sampler.times())
            sigmas, spread = numbers_of(sampler.build(), times)
            b.times[: len(times)].copy_(times)
            b.sigmas[: len(sigmas)].copy_(sigmas)
            b.spread.fill_(spread)
            b.lead.fill_(sampler.lead)
            self.sampler = sampler
        b.values.copy_(clues.values)
        b.given.copy_(clues.given)
        b.seed.copy_(as_int64(noise.seed))
        b.instance.copy_(noise.instance)
        b.attempt.copy_(noise.attempt)
        if b.context is not None and context is not None:
            b.context.copy_(context)
        b.failed.zero_()

    def place(self, walk: Walk) -> None:
        self.buffers.x.copy_(walk.x)
        self.buffers.done.copy_(torch.as_tensor(walk.done))
        if self.buffers.memory is not None and walk.memory is not None:
            self.buffers.memory.copy_(walk.memory)

    def check(self) -> None:
        if step := int(self.buffers.failed):
            raise diverged(-step) if step < 0 else not_finite(step)


class Graph(Engine):
    """The engine runs one network's loop; a step is built once per kind of rule, shape, t* and shape of the context."""

    def __init__(self, network: nn.Module, path: Path, device: torch.device, precision: str, compiled: bool = True):
        from letgo.engines import supported

        super().__init__(network, path, device, precision)
        self.plain, self.compiled = network, compiled
        if compiled and isinstance(network, Transformer) and supported(network):
            self.network = Fused(network)
        self.steps: dict[tuple[tuple[Any, ...], int], Step] = {}
        self.latest: tuple[Any, ...] = ()
        self.pool: Any = None
        self.building = 0.0

    def denoise(self, context: Tensor | None) -> Denoise:
        return bound(self.network, context)

    def step(self, sampler: Sampler, walk: Walk, clues: Clues, context: Tensor | None) -> Step:
        """Return the step for such inputs, built where it is new."""
        kind, room = kind_of(sampler.build()), MOST_STEPS * -(-sampler.steps // MOST_STEPS)
        batch, *shape = clues.values.shape
        about = None if context is None else (context.shape[1:], context.dtype)
        about = (about, walk.memory is None, is_apart(walk))
        self.latest = (kind, room, *shape, clues.values.device, clues.soft_until, about)
        if (self.latest, batch) not in self.steps:
            started = time.perf_counter()
            buffers = Buffers.like(clues, context, walk, room)
            self.steps[self.latest, batch] = self._build(kind, buffers, clues.soft_until)
            self.building += time.perf_counter() - started
        return self.steps[self.latest, batch]

    def smaller(self, whole: int, size: int, left: int, cells: int) -> int:
        """Return only sizes that are built already: compiling takes longer than what is left."""
        return min([size, *(step for step in self.sizes() if step >= left)])

    def sizes(self) -> set[int]:
        """Return the batch sizes that the latest step has been built for."""
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

    def begin(self, clues: Clues, noise: Noise, context: Tensor | None) -> Walk:
        """Return x_T; a network with memory is called once for the memory's shape, and begins with zeros."""
        x = starting_state(noise, clues, self.path)
        if not getattr(self.plain, "remembers", False):
            return Walk(x)
        with torch.no_grad():
            answer = bound(self.plain, context)(x, torch.ones(1, 1, 1, device=x.device))
        return Walk(x, torch.zeros_like(answer[1]))

    def finish(
        self,
        sampler: Sampler,
        clues: Clues,
        noise: Noise,
        context: Tensor | None = None,
        each: Callable[[int], None] = lambda step: None,
    ) -> State:
        walk = self.begin(clues, noise, context)
        step = self.step(sampler, walk, clues, context)
        step.owner = None
        step.load(sampler, clues, noise, context)
        step.place(walk)
        with torch.no_grad():
            for _ in range(sampler.steps):
                step.work()
        step.check()
        return step.buffers.x.clone()

    def walk(
        self, sampler: Sampler, clues: Clues, noise: Noise, context: Tensor | None = None, walk: Walk | None = None
    ) -> Iterator[Snapshot]:
        slots = self.slots(sampler)
        slots.seat(clues, noise, context, self.begin(clues, noise, context) if walk is None else walk)
        first = int(slots.walk.done)
        for i, reached in enumerate(sampler.times().tolist()[first + 1 :], start=first + 1):
            x0_hat = slots.step()
            yield Snapshot(i, reached, slots.walk.x, x0_hat, slots.walk.memory)

    def slots(self, sampler: Sampler) -> GraphSlots:
        return GraphSlots(self, sampler)


class GraphSlots(Slots):
    """These slots are a step's buffers, written anew when boards change, or when another run took them."""

    engine: Graph

    def seat(self, clues: Clues, noise: Noise, context: Tensor | None, walk: Walk) -> None:
        self.captured, self.mine = self.engine.step(self.sampler, walk, clues, context), object()
        self.inputs, self.walk = (clues, noise, context), walk

    def step(self) -> State:
        captured, buffers = self.captured, self.captured.buffers
        if captured.owner is not self.mine:
            captured.load(self.sampler, *self.inputs)
            captured.place(self.walk)
            captured.owner = self.mine
        with torch.no_grad():
            captured.work()
        memory, x0_hat = None if buffers.memory is None else buffers.memory.clone(), buffers.x0_hat.clone()
        self.walk = Walk(buffers.x.clone(), memory, buffers.done.clone())
        captured.check()  # the host waits here, with the copies under way
        return x0_hat
