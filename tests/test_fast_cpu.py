"""The CPU's fast path against its plain twin: the same network, the same noise, the same bits in any company."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from letgo.evaluate import instances
from letgo.fast import cpu
from letgo.models.transformer import Transformer
from letgo.presets import PRESETS
from letgo.rng import AHEAD, KERNEL, PIN, Noise, NoiseAhead
from letgo.solver import Solver, load

packed = pytest.mark.skipif(not cpu.available(), reason="this torch has no oneDNN")


@packed
@pytest.mark.parametrize("name", ["sudoku", "sudoku-mini", "queens", "latin", "sudoku-bits"])
def test_the_packed_network_is_its_plain_twin(name: str) -> None:
    torch.manual_seed(0)
    config = PRESETS[name]
    network = config.build_model().eval()
    assert isinstance(network, Transformer)
    with torch.no_grad():
        for parameter in network.parameters():  # nothing left at its neutral start, biases and norms included
            parameter.add_(0.05 * torch.randn_like(parameter))
        x = torch.randn(3, config.build_task().cells, config.build_codec().dim)
        t = torch.full((1, 1, 1), 0.3)
        exact = network.double()(x.double(), t.double()).float()
        network.float()
        torch.testing.assert_close(cpu.PackedTransformer(network)(x, t), exact, rtol=1e-4, atol=1e-4)
        half = cpu.PackedTransformer(network, torch.bfloat16)(x, t)
        torch.testing.assert_close(half, exact, rtol=0.1, atol=0.1)
        assert not torch.equal(half, exact)


def test_noise_drawn_ahead_is_the_same_noise() -> None:
    noise = Noise(7, torch.tensor([3, 2**31, 5]), torch.tensor([0, 1, 2]))
    ahead = NoiseAhead.of(noise)
    for step in (0, 1, 2, AHEAD, AHEAD + 1, 3 * AHEAD, 5):
        for purpose in (KERNEL, PIN):
            assert torch.equal(ahead.normal(torch.tensor(step), purpose, 5, 3), noise.normal(step, purpose, 5, 3))
    assert len(ahead.drawn) == 2  # one block per purpose, however many steps


@pytest.mark.parametrize("name", ["sudoku-mini", "latin", "queens", "connectivity"])
def test_a_board_has_the_same_bits_in_any_company(name: str) -> None:
    torch.manual_seed(0)
    config = PRESETS[name]
    solver = Solver(config, config.build_model())
    problem, (rule, _) = instances(solver.task, None, 19, 0), solver.rule("ddpm")
    alone = solver.sample(problem, rule, 6, batch=1)
    for batch in (2, 5, 16, None):
        assert torch.equal(solver.sample(problem, rule, 6, batch=batch), alone)


@pytest.mark.parametrize("rule", ["tweedie", "ddpm"])
def test_the_fast_and_the_plain_path_give_the_same_answers(rule: str) -> None:
    fast, plain = (load("sudoku-mini", fast=choice) for choice in (True, False))
    problem = instances(fast.task, None, 40, 0)
    ours, theirs = (s.solve(problem, rule, steps=20, tries=2) for s in (fast, plain))
    assert [replace(a, seconds=0.0) for a in ours] == [replace(a, seconds=0.0) for a in theirs]
    assert isinstance(plain.forward, nn.Module)
