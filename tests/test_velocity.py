"""Velocity prediction on the linear path, through the same kernels; every number here has a closed form."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from refusals import fault
from torch import Tensor

from letgo.codecs import OneHot
from letgo.engines.cpu import PackedTransformer, available
from letgo.engines.network import FastTransformer
from letgo.engines.plain import Plain
from letgo.models.transformer import Transformer
from letgo.models.velocity import VelocityTransformer
from letgo.objectives import Batch, VelocityLoss
from letgo.paths import CosinePath, LinearPath
from letgo.pinning import Clues
from letgo.presets import PRESETS
from letgo.rng import Noise
from letgo.samplers import Sampler
from letgo.sampling import starting_state

PATH = LinearPath()
SMALL = {"width": 16, "depth": 1, "heads": 1, "hidden": 16}
CONFIG = replace(PRESETS["sudoku-flow-velocity-baseline"], task_options={"box": 2}, network_options=SMALL)


def constant(velocity: Tensor) -> VelocityTransformer:
    """A network whose head gives the same velocity to every cell."""
    network = CONFIG.build_model().eval()
    assert isinstance(network, VelocityTransformer)
    with torch.no_grad():
        network.head.weight.zero_()
        network.head.bias.copy_(velocity)
    return network


def test_a_constant_velocity_is_a_straight_way_whatever_the_steps() -> None:
    """x_0 = x_1 - v by Euler; and Heun, whose second look is at the same velocity."""
    v = torch.tensor([1.0, -0.5, 0.25, 0.0])
    engine = Plain(constant(v), PATH, torch.device("cpu"), "fp32")
    nothing, noise = Clues.none(torch.zeros(3, 16, 4)), Noise.first(0, 3)
    x_1 = starting_state(noise, nothing, PATH)
    for rule in ("euler", "heun"):
        for steps in (1, 7, 40):
            x_0 = engine.finish(Sampler(rule, steps), nothing, noise)
            torch.testing.assert_close(x_0, x_1 - v, rtol=1e-4, atol=1e-4)


@pytest.mark.fast
def test_the_loss_is_the_squared_error_of_eps_minus_x0(mini_boards: Tensor) -> None:
    """By hand at the objective's own times and noise; clues count as exact, for their velocity is 0 on both sides."""
    boards, v = mini_boards[:20], torch.tensor([0.3, 0.1, -0.2, 0.6])
    x0 = OneHot(4).encode(boards)
    given = torch.rand(20, 16, generator=torch.Generator().manual_seed(0)) < 0.3
    network = constant(v)
    torch.manual_seed(3)
    term = VelocityLoss()(network, PATH, Batch(boards, x0, Clues(x0, given)))["loss"]
    torch.manual_seed(3)
    torch.rand(20, 1, 1)
    eps = torch.randn_like(x0)
    expected = torch.where(given[..., None], 0.0, (v - (eps - x0)).square())
    torch.testing.assert_close(term, expected, rtol=1e-3, atol=1e-3)


def test_on_any_path_it_is_the_error_of_x0_with_the_weight_of_its_docstring(mini_boards: Tensor) -> None:
    x0 = OneHot(4).encode(mini_boards[:30])
    batch, shift = Batch(mini_boards[:30], x0, Clues.none(x0)), torch.full((4,), 0.1)
    half_pi = torch.pi / 2
    for path, weight in ((PATH, lambda t: t**-2), (CosinePath(), lambda t: (half_pi / torch.sin(half_pi * t)) ** 2)):
        torch.manual_seed(5)
        term = VelocityLoss()(lambda x_t, t, context: x0 + shift, path, batch)["loss"]
        torch.manual_seed(5)
        t = torch.rand(30, 1, 1)
        torch.testing.assert_close(term, (0.01 * weight(t)).expand_as(x0), rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("name", ["sudoku-flow-velocity-baseline", "sudoku-d3pm"])
def test_fused_and_packed_twins_answer_alike(name: str) -> None:
    """What the network's outputs are converted to belongs to the network, not to an engine."""
    config = replace(PRESETS[name], task_options={"box": 2}, network_options={"depth": 2, "dropout": 0.0})
    torch.manual_seed(0)
    network = config.build_model().eval()
    assert isinstance(network, Transformer)
    x, t = torch.rand(3, 16, config.build_codec().dim), torch.rand(1, 1, 1)
    with torch.no_grad():
        expected = network(x, t.expand(3, 1, 1))
        fast = FastTransformer(network).eval()
        flat = torch.cat([dict(network.named_parameters())[key].flatten() for key in fast.names])[None]
        torch.testing.assert_close(fast(flat, x, t), expected, rtol=2e-2, atol=2e-2)  # its residual stream is bf16
        if available():
            torch.testing.assert_close(PackedTransformer(network)(x, t), expected, rtol=1e-4, atol=1e-4)
        same = network(x, 1 - t.expand(3, 1, 1))
        assert torch.equal(same, expected) == (name == "sudoku-d3pm")  # to which the time says nothing


def test_a_network_of_velocities_needs_its_path() -> None:
    cosine = replace(CONFIG, path="cosine")
    assert fault(cosine.build_model) == "network 'velocity' needs path linear, and this one is cosine"
