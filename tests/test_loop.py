"""The loop in fixed buffers against the plain one: bit for bit, whatever ran in the same buffers before."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from letgo.data.source import source_of
from letgo.engines import graph as fast_loop
from letgo.engines.cpu import Cpu
from letgo.engines.graph import Graph
from letgo.engines.plain import Plain
from letgo.errors import LetgoError
from letgo.models.nlm import NeuralLogicMachine
from letgo.paths import CosinePath, GaussianPath
from letgo.pinning import Clues
from letgo.presets import PRESETS
from letgo.rng import KERNEL, Noise, as_int64
from letgo.samplers import RULES, Sampler
from letgo.sampling import Snapshot, trajectory
from letgo.solver import Solver

SETTINGS = {
    **{name: Sampler(name) for name, kind in RULES.items() if kind.family == "gaussian" and not kind.takes},
    "em": Sampler("em", sigma=0.3),
    "em-decay": Sampler("em-decay", sigma=7.0, tau_start=0.7),
    "em-decay, late": Sampler("em-decay", sigma=3.0, tau_start=0.9, sigma_ahead=1.0),
    "tempered": Sampler("ddpm", variance=2.0),
    "tempered em": Sampler("em", sigma=0.2, variance=0.5),
    "ahead": Sampler("tweedie", ahead=1.0),
    "ahead, twice a step": Sampler("heun", ahead=1.7),
}
CPU = torch.device("cpu")
SHAPE = (6, 5)
INF = float("inf")


class Curve(nn.Module):
    """Stands in for a network; the time and the place in the batch matter."""

    def forward(self, x_t: Tensor, t: Tensor, context: Tensor | None = None) -> Tensor:
        assert t.shape == (len(x_t), 1, 1)
        y = 3 * x_t.roll(1, 1) - 2 * t
        return y / (1 + y.abs())


class Remembering(Curve):
    """What it was shown so far matters too; without a memory it begins with zeros."""

    remembers = True

    def forward(
        self, x_t: Tensor, t: Tensor, context: Tensor | None = None, memory: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        memory = torch.zeros_like(x_t[:, 0]) if memory is None else memory
        return super().forward(x_t + memory[:, None], t), memory / 2 + x_t.clamp(-1, 1).sum(1)


def graph(network: nn.Module | None = None, path: GaussianPath | None = None) -> Graph:
    return Graph(network or Curve(), path or CosinePath(), CPU, "fp32", compiled=False)


def some_clues(count: int = 3, soft_until: float = INF, seed: int = 0) -> Clues:
    rng = torch.Generator().manual_seed(seed)
    values, given = torch.randn(count, *SHAPE, generator=rng), torch.rand(count, SHAPE[0], generator=rng) < 0.3
    return Clues(values, given, soft_until)


def plain(
    path: GaussianPath,
    sampler: Sampler,
    clues: Clues,
    noise: Noise,
    network: nn.Module | None = None,
    context: Tensor | None = None,
) -> list[Snapshot]:
    network = network or Curve()

    def denoise(x: Tensor, t: Tensor, *memory: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        told = (t - sampler.ahead / sampler.steps).clamp(min=0)
        return network(x, told.expand(len(x), 1, 1), context, *memory)

    return list(trajectory(denoise, path, sampler.build(), sampler.times(), clues, noise))


def same(ours: list[Snapshot], theirs: list[Snapshot]) -> bool:
    pairs = list(zip(ours, theirs, strict=True))
    numbers = all((a.step, a.t) == (b.step, b.t) for a, b in pairs)
    remembered = all(
        a.memory is None if b.memory is None else a.memory is not None and torch.equal(a.memory, b.memory)
        for a, b in pairs
    )
    states = all(torch.equal(a.x, b.x) and torch.equal(a.x0_hat, b.x0_hat) for a, b in pairs)
    return numbers and remembered and states


@pytest.mark.slow
@pytest.mark.parametrize(("network", "soft_until"), [(Curve, INF), (Remembering, 0.5)])
def test_every_setting_gives_the_plain_states_and_shares_its_kinds_step(
    network: type[Curve], soft_until: float
) -> None:
    """One loop through all settings, step counts, seeds and clues: nothing of an earlier run is left behind."""
    path, loop = CosinePath(), graph(network())
    for i, setting in enumerate(SETTINGS.values()):
        clues, noise = some_clues(3, soft_until, seed=i), Noise.first(i, 3)
        for steps in (7, 4):
            sampler = replace(setting, steps=steps)
            expected = plain(path, sampler, clues, noise, network())
            assert (expected[0].memory is not None) == (network is Remembering)
            assert same(list(loop.walk(sampler, clues, noise)), expected)
            assert torch.equal(loop.finish(sampler, clues, noise), expected[-1].x)
    assert len(loop.steps) == 7  # em and em-decay with any numbers share one


@pytest.mark.fast
def test_a_step_ahead_the_network_is_told_the_next_states_time_and_nothing_else_changes() -> None:
    class Listening(Curve):
        def forward(self, x_t: Tensor, t: Tensor, context: Tensor | None = None) -> Tensor:
            told.append(float(t[0, 0, 0]))
            return super().forward(x_t, torch.ones_like(t))  # deaf: the states must not change

    told: list[float] = []
    clues, noise, network = some_clues(), Noise.first(0, 3), Listening()
    for engine in (Plain(network, CosinePath(), CPU, "fp32"), graph(network)):
        states = {}
        for ahead, expected in ((0.0, [1, 0.75, 0.5, 0.25]), (1.0, [0.75, 0.5, 0.25, 0]), (2.0, [0.5, 0.25, 0, 0])):
            told.clear()
            states[ahead] = engine.finish(Sampler("tweedie", 4, ahead=ahead), clues, noise)
            assert told == pytest.approx(expected, abs=1e-7)
        assert torch.equal(states[0], states[1])
        assert torch.equal(states[0], states[2])


def test_shapes_contexts_and_soft_times_get_steps_of_their_own() -> None:
    loop, ddpm = graph(), Sampler("ddpm", 3)
    for clues in (some_clues(3), some_clues(2), some_clues(3, 0.5), some_clues(3, 0.25), some_clues(3)):
        noise = Noise.first(0, len(clues.values))
        assert torch.equal(loop.finish(ddpm, clues, noise), plain(CosinePath(), ddpm, clues, noise)[-1].x)
    assert len(loop.steps) == 4


@pytest.mark.fast
def test_graphs_reach_the_network_through_the_buffers() -> None:
    torch.manual_seed(0)
    network = NeuralLogicMachine(width=8, time_features=16).eval()
    loop, tweedie, noise = graph(network), Sampler("tweedie", 5), Noise.first(1, 2)
    clues = Clues(torch.zeros(2, 16, 2), torch.zeros(2, 16, dtype=torch.bool))
    finals = []
    for seed in (0, 1):
        context = (torch.rand(2, 4, 4, generator=torch.Generator().manual_seed(seed)) < 0.5).float()
        expected = plain(CosinePath(), tweedie, clues, noise, network, context)
        assert same(list(loop.walk(tweedie, clues, noise, context)), expected)
        finals.append(loop.finish(tweedie, clues, noise, context))
        assert torch.equal(finals[-1], expected[-1].x)
    assert not torch.equal(*finals)
    assert len(loop.steps) == 1


@pytest.mark.parametrize("network", [Curve, Remembering])
def test_runs_that_take_turns_do_not_disturb_each_other(network: type[Curve]) -> None:
    loop, ddpm = graph(network()), Sampler("ddpm", 6)
    inputs = [(some_clues(seed=seed), Noise.first(seed, 3)) for seed in (0, 1)]
    first, second = (loop.walk(ddpm, *each) for each in inputs)
    taken: list[list[Snapshot]] = [[], []]
    for turn in (0, 0, 1, 0, 1, 1, 0, 1, 0, 0, 1, 1):
        taken[turn].append(next((first, second)[turn]))
        if turn:
            loop.finish(ddpm, *inputs[0])
    assert all(same(taken[i], plain(CosinePath(), ddpm, *inputs[i], network())) for i in (0, 1))


def test_what_the_plain_loop_refuses_is_refused_here_too() -> None:
    class Broken(Curve):
        def forward(self, x_t: Tensor, t: Tensor, context: Tensor | None = None) -> Tensor:
            return super().forward(x_t, t.expand(len(x_t), 1, 1)).masked_fill(t < 0.6, torch.nan)

    clues, sampler = some_clues(), Sampler("ddpm", 4)
    for engine in (
        graph(Broken()),
        Plain(Broken(), CosinePath(), CPU, "fp32"),
        Cpu(Broken(), CosinePath(), CPU, "fp32"),
    ):
        for ask in (engine.finish, lambda *inputs, engine=engine: list(engine.walk(*inputs))):
            with pytest.raises(LetgoError, match="noise for 2 boards cannot serve 3"):
                ask(sampler, clues, Noise.first(0, 2))
            with pytest.raises(LetgoError, match="the network's prediction is not finite at step 3"):
                ask(sampler, clues, Noise.first(0, 3))
    diverging = Sampler("em", 9, sigma=1e30)
    assert not graph().finish(diverging, clues, Noise.first(0, 3)).isfinite().all()  # no fault of the network


def test_longer_runs_get_more_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_loop, "MOST_STEPS", 4)
    loop, clues, noise = graph(), some_clues(), Noise.first(0, 3)
    for steps in (4, 5, 8):
        em = Sampler("em", steps, sigma=0.1)
        assert torch.equal(loop.finish(em, clues, noise), plain(CosinePath(), em, clues, noise)[-1].x)
    assert len(loop.steps) == 2


@pytest.mark.parametrize("seed", [0, 1, -1, 2**31, 2**32 + 5, 2**63 - 1, 2**63, 2**64 - 1, 2**70 + 3, -(2**40)])
def test_a_seed_in_a_tensor_draws_the_same_noise(seed: int) -> None:
    noise = Noise.first(seed, 3)
    held = Noise(as_int64(seed), noise.instance, noise.attempt)
    assert torch.equal(held.normal(torch.tensor(4), KERNEL, *SHAPE), noise.normal(4, KERNEL, *SHAPE))


@pytest.mark.fast
def test_a_step_that_cannot_be_built_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Never a silent return to the slow path."""

    def broken(*_: object) -> None:
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(fast_loop, "compiled_advance", lambda: broken)
    loop = Graph(Curve(), CosinePath(), CPU, "fp32")
    with pytest.raises(LetgoError, match=r"states \(3, 6, 5\) on cpu: RuntimeError: no such kernel; use --plain"):
        loop.finish(Sampler("ddpm", 3), some_clues(), Noise.first(0, 3))
    assert not loop.steps


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sudoku-mini", "connectivity"])
def test_the_solver_gives_the_same_answers_through_the_loop(name: str) -> None:
    config = PRESETS[name]
    if name == "connectivity":
        config = replace(config, network_options={"width": 8})
    torch.manual_seed(0)
    network = config.build_model()
    ours, theirs = (Solver(config, network, fast=False) for _ in range(2))
    assert isinstance(ours.engine, Plain)  # on the CPU
    assert isinstance(ours.sample_engine, Plain)
    ours.engine = ours.sample_engine = graph(ours.network, ours.path)
    problem = source_of(ours.task).draw("test", None, 11, 0)
    for rule, sigma, tau_start in (("ddpm", None, None), ("em-decay", 3.0, 0.7), ("em-decay", 5.0, 0.8)):
        for soft_until in (None, 0.5):
            sampler = Sampler(rule, 5, sigma, tau_start, soft_until=soft_until)
            options = {"seed": 3, "attempt": 1, "batch": 4}
            assert torch.equal(ours.sample(problem, sampler, **options), theirs.sample(problem, sampler, **options))
    answers = [
        [(a.solved, a.board, a.tries, a.calls) for a in s.solve(problem, steps=6, tries=2, batch=8)]
        for s in (ours, theirs)
    ]
    assert answers[0] == answers[1]
    assert same(list(ours.trajectory(problem[:1], steps=4)), list(theirs.trajectory(problem[:1], steps=4)))


def test_sizes_are_those_of_the_latest_step_alone() -> None:
    ours = graph(PRESETS["sudoku-mini"].build_model().eval())
    ddpm, em = Sampler("ddpm", 2), Sampler("em", 2, sigma=3.0)
    for sampler, sizes in ((ddpm, (3, 5)), (em, (4,)), (ddpm, (3,))):
        for size in sizes:
            clues = Clues(torch.zeros(size, 16, 4), torch.zeros(size, 16, dtype=torch.bool))
            ours.finish(sampler, clues, Noise.first(0, size))
        assert ours.sizes() == ({4} if sampler is em else {3, 5})
    assert len(ours.steps) == 3


TRACE = """
import torch
from torch._dynamo.utils import counters
from letgo.engines import graph
from letgo.paths import CosinePath
from letgo.pinning import Clues
from letgo.presets import PRESETS
from letgo.rng import Noise
from letgo.samplers import Sampler
from letgo.sampling import Walk, starting_state, trajectory

torch.set_num_threads(1)
step = torch.compile(graph.advance, dynamic=False, fullgraph=True, backend="aot_eager")
graph.compiled_advance = lambda: step
clues, path = Clues(torch.randn(3, 16, 4), torch.rand(3, 16) < 0.3), CosinePath()
for network in [PRESETS["sudoku-mini"].build_model().eval() for _ in range(2)]:
    ours = graph.Graph(network, path, torch.device("cpu"), "fp32")
    rules = ["em", {"sigma": 0.3}], ["em-decay", {"sigma": 7.0, "tau_start": 0.7}]
    for rule, settings in (*rules, ["ddpm", {}], ["ddpm", {"variance": 2.0, "ahead": 1.0}], ["heun", {}]):
        for seed, steps in enumerate((3, 5)):
            noise, sampler = Noise.first(seed, 3), Sampler(rule, steps, **settings)
            x = ours.finish(sampler, clues, noise)
            denoise = lambda x, t: network(x, (t - sampler.lead).clamp(min=0).expand(len(x), 1, 1))
            *_, last = trajectory(denoise, path, sampler.build(), sampler.times(), clues, noise)
            assert torch.equal(x, last.x), sampler
    slots = ours.slots(sampler := Sampler("ddpm", 5))
    states = [starting_state(noise, clues, path), *(snapshot.x for snapshot in ours.walk(sampler, clues, noise))]
    for steps in ([0, 3, 1], [4, 2, 0]):
        x = torch.stack([states[step][row] for row, step in enumerate(steps)])
        slots.seat(clues, noise, None, Walk(x, None, torch.tensor(steps)))
        slots.step()
        expected = torch.stack([states[step + 1][row] for row, step in enumerate(steps)])
        torch.testing.assert_close(slots.walk.x, expected, atol=1e-5, rtol=1e-4)
print(counters["stats"]["unique_graphs"])
"""


@pytest.mark.slow
def test_the_whole_step_is_traced_once_per_kind_of_rule_for_all_networks_alike() -> None:
    """By torch.compile without its code generator, which needs a compiler; apart, since checked code is not traced."""
    done = subprocess.run([sys.executable, "-c", TRACE], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == 4  # one more for boards that have steps of their own
