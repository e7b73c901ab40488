"""The loop in fixed buffers against the plain one: bit for bit, whatever ran in the same buffers before."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from letgo.evaluate import instances
from torch import Tensor, nn

from letgo.errors import LetgoError
from letgo.fast import loop as fast_loop
from letgo.fast.loop import Loop
from letgo.kernels import PLAIN_RULES, EulerMaruyama, Rule, Tempered, ddpm, tweedie
from letgo.models.nlm import NeuralLogicMachine
from letgo.paths import CosinePath, GaussianPath
from letgo.pinning import Clues
from letgo.presets import PRESETS
from letgo.rng import KERNEL, Noise, as_int64
from letgo.sampling import Grid, Snapshot, trajectory, uniform_grid
from letgo.solver import Solver

SETTINGS: dict[str, Rule] = {
    **PLAIN_RULES,
    "em": EulerMaruyama(0.3),
    "em-decay": EulerMaruyama(7.0, 0.7),
    "em-decay, late": EulerMaruyama(3.0, 0.9),
    "tempered": Tempered(ddpm, 2.0),
    "tempered em": Tempered(EulerMaruyama(0.2), 0.5),
}
SHAPE = (6, 5)
INF = float("inf")


class Curve(nn.Module):
    """Stands in for a network; the time and the place in the batch matter."""

    def forward(self, x_t: Tensor, t: Tensor, context: Tensor | None = None) -> Tensor:
        assert t.shape == (len(x_t), 1, 1)
        y = 3 * x_t.roll(1, 1) - 2 * t
        return y / (1 + y.abs())


def some_clues(count: int = 3, soft_until: float = INF, seed: int = 0) -> Clues:
    rng = torch.Generator().manual_seed(seed)
    values, given = torch.randn(count, *SHAPE, generator=rng), torch.rand(count, SHAPE[0], generator=rng) < 0.3
    return Clues(values, given, soft_until)


def plain(
    path: GaussianPath,
    rule: Rule,
    times: Grid,
    clues: Clues,
    noise: Noise,
    network: nn.Module | None = None,
    context: Tensor | None = None,
) -> list[Snapshot]:
    network = network or Curve()
    with torch.no_grad():
        return list(
            trajectory(lambda x, t: network(x, t.expand(len(x), 1, 1), context), path, rule, times, clues, noise)
        )


def same(ours: list[Snapshot], theirs: list[Snapshot]) -> bool:
    pairs = list(zip(ours, theirs, strict=True))
    numbers = all((a.step, a.t) == (b.step, b.t) for a, b in pairs)
    return numbers and all(torch.equal(a.x, b.x) and torch.equal(a.x0_hat, b.x0_hat) for a, b in pairs)


@pytest.mark.parametrize("soft_until", [INF, 0.5])
def test_every_setting_gives_the_plain_states_and_shares_its_kinds_step(path: GaussianPath, soft_until: float) -> None:
    """One loop through all settings, step counts, seeds and clues: nothing of an earlier run is left behind."""
    loop = Loop(Curve(), path, compiled=False)
    for i, rule in enumerate(SETTINGS.values()):
        clues, noise = some_clues(3, soft_until, seed=i), Noise.first(i, 3)
        for steps in (7, 4):
            times = uniform_grid(steps)
            expected = plain(path, rule, times, clues, noise)
            assert same(list(loop.run(rule, times, clues, noise)), expected)
            assert torch.equal(loop.final(rule, times, clues, noise), expected[-1].x)
    assert len(loop.steps) == len(PLAIN_RULES) + 1  # one for em and em-decay with any numbers


def test_the_settings_matter() -> None:
    """So the test above cannot pass with settings that are ignored."""
    clues, noise, times = some_clues(), Noise.first(0, 3), uniform_grid(7)
    finals = [plain(CosinePath(), rule, times, clues, noise)[-1].x for rule in SETTINGS.values()]
    assert not any(torch.equal(a, b) for i, a in enumerate(finals) for b in finals[:i])


def test_shapes_contexts_and_soft_times_get_steps_of_their_own() -> None:
    loop, times = Loop(Curve(), CosinePath(), compiled=False), uniform_grid(3)
    for clues in (some_clues(3), some_clues(2), some_clues(3, 0.5), some_clues(3, 0.25), some_clues(3)):
        noise = Noise.first(0, len(clues.values))
        assert torch.equal(loop.final(ddpm, times, clues, noise), plain(CosinePath(), ddpm, times, clues, noise)[-1].x)
    assert len(loop.steps) == 4


def test_graphs_reach_the_network_through_the_buffers() -> None:
    torch.manual_seed(0)
    network = NeuralLogicMachine(width=8, time_features=16).eval()
    loop, times, noise = Loop(network, CosinePath(), compiled=False), uniform_grid(5), Noise.first(1, 2)
    clues = Clues(torch.zeros(2, 16, 2), torch.zeros(2, 16, dtype=torch.bool))
    finals = []
    for seed in (0, 1):
        context = (torch.rand(2, 4, 4, generator=torch.Generator().manual_seed(seed)) < 0.5).float()
        expected = plain(CosinePath(), tweedie, times, clues, noise, network, context)
        assert same(list(loop.run(tweedie, times, clues, noise, context)), expected)
        finals.append(loop.final(tweedie, times, clues, noise, context))
        assert torch.equal(finals[-1], expected[-1].x)
    assert not torch.equal(*finals)
    assert len(loop.steps) == 1


def test_runs_that_take_turns_do_not_disturb_each_other() -> None:
    loop, times = Loop(Curve(), CosinePath(), compiled=False), uniform_grid(6)
    inputs = [(some_clues(seed=seed), Noise.first(seed, 3)) for seed in (0, 1)]
    first, second = (loop.run(ddpm, times, *each) for each in inputs)
    taken: list[list[Snapshot]] = [[], []]
    for turn in (0, 0, 1, 0, 1, 1, 0, 1, 0, 0, 1, 1):
        taken[turn].append(next((first, second)[turn]))
        if turn:
            loop.final(ddpm, times, *inputs[0])
    assert all(same(taken[i], plain(CosinePath(), ddpm, times, *inputs[i])) for i in (0, 1))


def test_a_run_can_go_on_from_the_middle_with_fewer_boards() -> None:
    loop, times, clues, noise = (
        Loop(Curve(), CosinePath(), compiled=False),
        uniform_grid(6),
        some_clues(),
        Noise.first(0, 3),
    )
    expected, kept = plain(CosinePath(), ddpm, times, clues, noise), torch.tensor([2, 0])
    rest = list(loop.run(ddpm, times, clues[kept], noise[kept], None, expected[3].x[kept], 4))
    assert [(s.step, s.t) for s in rest] == [(s.step, s.t) for s in expected[4:]]
    assert all(torch.equal(s.x, e.x[kept]) for s, e in zip(rest, expected[4:], strict=True))


def test_longer_runs_get_more_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_loop, "MOST_STEPS", 4)
    loop, clues, noise, rule = (
        Loop(Curve(), CosinePath(), compiled=False),
        some_clues(),
        Noise.first(0, 3),
        EulerMaruyama(0.1),
    )
    for steps in (4, 5, 8):
        times = uniform_grid(steps)
        assert torch.equal(loop.final(rule, times, clues, noise), plain(CosinePath(), rule, times, clues, noise)[-1].x)
    assert len(loop.steps) == 2


def test_a_wrong_grid_is_refused() -> None:
    with pytest.raises(LetgoError, match="fall strictly from 1"):
        Loop(Curve(), CosinePath(), compiled=False).final(
            ddpm, torch.tensor([0.0, 1.0]), some_clues(), Noise.first(0, 3)
        )


@pytest.mark.parametrize("seed", [0, 1, -1, 2**31, 2**32 + 5, 2**63 - 1, 2**63, 2**64 - 1, 2**70 + 3, -(2**40)])
def test_a_seed_in_a_tensor_draws_the_same_noise(seed: int) -> None:
    noise = Noise.first(seed, 3)
    held = Noise(as_int64(seed), noise.instance, noise.attempt)
    assert torch.equal(held.normal(torch.tensor(4), KERNEL, *SHAPE), noise.normal(4, KERNEL, *SHAPE))


def test_a_step_that_cannot_be_built_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Never a silent return to the slow path."""

    def broken(*_: object) -> None:
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(fast_loop, "compiled_advance", lambda: broken)
    loop = Loop(Curve(), CosinePath())
    with pytest.raises(LetgoError, match=r"states \(3, 6, 5\) on cpu: RuntimeError: no such kernel; use --plain"):
        loop.final(ddpm, uniform_grid(3), some_clues(), Noise.first(0, 3))
    assert not loop.steps


@pytest.mark.parametrize("name", ["sudoku-mini", "connectivity"])
def test_the_solver_gives_the_same_answers_through_the_loop(name: str) -> None:
    config = PRESETS[name]
    if name == "connectivity":
        config = replace(config, network_options={"width": 8})
    torch.manual_seed(0)
    network = config.build_model()
    ours, theirs = (Solver(config, network, fast=False) for _ in range(2))
    assert ours.loop is None  # on the CPU
    ours.loop = Loop(ours.network, ours.path, compiled=False)
    problem = instances(ours.task, None, 11, 0)
    for rule in (ddpm, EulerMaruyama(3.0, 0.7), EulerMaruyama(5.0, 0.8)):
        for soft_until in (None, 0.5):
            options = {"steps": 5, "seed": 3, "attempt": 1, "batch": 4, "soft_until": soft_until}
            assert torch.equal(ours.sample(problem, rule, **options), theirs.sample(problem, rule, **options))
    answers = [
        [(a.solved, a.board, a.tries, a.calls) for a in s.solve(problem, steps=6, tries=2, batch=8)]
        for s in (ours, theirs)
    ]
    assert answers[0] == answers[1]
    assert same(list(ours.trajectory(problem[:1], steps=4)), list(theirs.trajectory(problem[:1], steps=4)))


def test_sizes_are_those_of_the_latest_step_alone() -> None:
    ours = Loop(PRESETS["sudoku-mini"].build_model().eval(), CosinePath(), compiled=False)
    for rule, sizes in ((ddpm, (3, 5)), (EulerMaruyama(3.0), (4,)), (ddpm, (3,))):
        for size in sizes:
            clues = Clues(torch.zeros(size, 16, 4), torch.zeros(size, 16, dtype=torch.bool))
            ours.final(rule, uniform_grid(2), clues, Noise.first(0, size))
        assert ours.sizes() == ({4} if isinstance(rule, EulerMaruyama) else {3, 5})
    assert len(ours.steps) == 3


TRACE = """
import torch
from torch._dynamo.utils import counters
from letgo.fast import loop
from letgo.kernels import EulerMaruyama, Tempered, ddpm, heun
from letgo.paths import CosinePath
from letgo.pinning import Clues
from letgo.presets import PRESETS
from letgo.rng import Noise
from letgo.sampling import trajectory, uniform_grid

torch.set_num_threads(1)
step = torch.compile(loop.advance, dynamic=False, fullgraph=True, backend="aot_eager")
loop.compiled_advance = lambda: step
clues, path = Clues(torch.randn(3, 16, 4), torch.rand(3, 16) < 0.3), CosinePath()
for network in [PRESETS["sudoku-mini"].build_model().eval() for _ in range(2)]:
    ours = loop.Loop(network, path)
    for rule in (EulerMaruyama(0.3), EulerMaruyama(7.0, 0.7), ddpm, Tempered(ddpm, 2.0), heun):
        for seed, steps in enumerate((3, 5)):
            noise, times = Noise.first(seed, 3), uniform_grid(steps)
            x = ours.final(rule, times, clues, noise)
            denoise = lambda x, t: network(x, t.expand(len(x), 1, 1))
            *_, last = trajectory(denoise, path, rule, times, clues, noise)
            assert torch.equal(x, last.x), rule
print(counters["stats"]["unique_graphs"])
"""


def test_the_whole_step_is_traced_once_per_kind_of_rule_for_all_networks_alike() -> None:
    """By torch.compile without its code generator, which needs a compiler; apart, since checked code is not traced."""
    done = subprocess.run([sys.executable, "-c", TRACE], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == 3
