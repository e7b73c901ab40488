"""The losses: their values by hand, what carries gradient, and that both forms of self-correction mean the same."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace

import pytest
import torch
from scipy import stats
from torch import Tensor, nn
from torch.testing import assert_close

from letgo.codecs import OneHot
from letgo.config import Config
from letgo.errors import LetgoError
from letgo.kernels import ddpm
from letgo.models.conditioned import SelfConditioned
from letgo.objectives import (
    OBJECTIVES,
    REENTER,
    Batch,
    CrossEntropy,
    Objective,
    Remembers,
    Rollouts,
    SelfConditioning,
    SelfCorrection,
    Simple,
    VelocityLoss,
    averaged,
    clean,
    corrupt,
    ddpm_mean,
    ddpm_step,
    renoise,
)
from letgo.paths import CosinePath, GaussianPath
from letgo.pinning import Clues
from letgo.rng import Noise
from letgo.sampling import trajectory, uniform_grid

pytestmark = pytest.mark.fast

PATH = CosinePath()


class Recorded(nn.Module):
    """A pointwise network that remembers each call, and uses its first factor only in the first one."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.later = nn.Parameter(torch.tensor(0.6)), nn.Parameter(torch.tensor(0.9))
        self.seen: list[tuple[Tensor, Tensor, Tensor | None]] = []
        self.gradient: list[bool] = []
        self.out: list[Tensor] = []

    def forward(self, x_t: Tensor, t: Tensor, context: Tensor | None = None) -> Tensor:
        factor = self.later if self.seen else self.first
        self.seen.append((x_t.detach().clone(), t, context))
        self.gradient.append(torch.is_grad_enabled())
        self.out.append(factor * torch.tanh(x_t + 0.1) + 0.2 * t)
        return self.out[-1]

    @property
    def rows(self) -> list[int]:
        return [len(x_t) for x_t, _, _ in self.seen]


def boards(batch: int, cells: int = 6, dim: int = 3) -> tuple[Tensor, Clues]:
    rng = torch.Generator().manual_seed(5)
    x0 = OneHot(dim).encode(torch.randint(dim, (batch, cells), generator=rng))
    return x0, Clues(x0, torch.rand(batch, cells, generator=rng) < 0.4)


def loss(
    objective: Objective,
    network: Callable[..., Tensor],
    x0: Tensor,
    clues: Clues,
    context: Tensor | None = None,
    models: int = 1,
    path: GaussianPath = PATH,
) -> dict[str, Tensor]:
    """As the trainer has it: means per model."""
    batch = Batch(x0.argmax(-1), x0, clues, context, models)
    means = averaged(objective(network, path, batch), objective.weights, models)
    return {name: mean.squeeze(0) for name, mean in means.items()}


def noised(x: Tensor, t: Tensor, noise: Tensor) -> Tensor:
    """Eq. 1 on the cosine path."""
    return torch.cos(math.pi / 2 * t) * x + torch.sin(math.pi / 2 * t) * noise


def held(x: Tensor, clues: Clues) -> Tensor:
    result = x.clone()
    result[clues.given] = clues.values[clues.given]
    return result


def test_the_simple_loss_by_hand() -> None:
    network, (x0, clues) = Recorded(), boards(4)
    torch.manual_seed(3)
    losses = loss(Simple(), network, x0, clues)
    torch.manual_seed(3)
    t, noise = torch.rand(4, 1, 1), torch.randn(4, 6, 3)
    x_t = held(noised(x0, t, noise), clues)
    assert_close(network.seen[0][0], x_t)
    x0_hat = held(network.first * torch.tanh(x_t + 0.1) + 0.2 * t, clues)
    total = sum((x0_hat[b, c, d] - x0[b, c, d]) ** 2 for b in range(4) for c in range(6) for d in range(3))
    assert list(losses) == ["loss"]
    assert_close(losses["loss"], total / (4 * 6 * 3))
    assert network.gradient == [True]


@pytest.mark.parametrize("full", [True, False])
def test_self_correction_by_hand(full: bool) -> None:
    """Algorithm 2 with the same random numbers: propose at t1, pin, renoise to t2, pin, propose again."""
    network, (x0, clues) = Recorded(), boards(10)
    torch.manual_seed(3)
    losses = loss(SelfCorrection(0.3, full), network, x0, clues)
    torch.manual_seed(3)
    t1 = torch.rand(10, 1, 1)
    t2 = t1 * torch.rand(10, 1, 1)
    x_t1 = held(noised(x0, t1, torch.randn(10, 6, 3)), clues)
    proposal = held(network.first * torch.tanh(x_t1 + 0.1) + 0.2 * t1, clues)
    x_t2 = held(noised(proposal, t2, torch.randn(10, 6, 3)), clues)
    again = held(network.later * torch.tanh(x_t2 + 0.1) + 0.2 * t2, clues)
    recovery = (again - x0).square().mean()
    if full:
        simple = (proposal - x0).square().mean()
    else:  # three of ten rows, seen once more together with the recovery rows
        simple = (held(network.later * torch.tanh(x_t1 + 0.1) + 0.2 * t1, clues) - x0)[:3].square().mean()
    assert_close(losses["recovery"], recovery)
    assert_close(losses["simple"], simple)
    assert_close(losses["loss"], recovery + 0.3 * simple)


def test_in_the_full_form_the_proposal_learns_through_the_simple_loss_alone() -> None:
    """The first call has a factor of its own, so its gradient is exactly what flows through the proposal."""
    for weight in (0.0, 0.3):
        network, (x0, clues) = Recorded(), boards(10)
        torch.manual_seed(3)
        losses = loss(SelfCorrection(weight, full=True), network, x0, clues)
        through_simple = torch.autograd.grad(losses["simple"], network.first, retain_graph=True)[0]
        through_recovery = torch.autograd.grad(losses["recovery"], network.first, retain_graph=True, allow_unused=True)
        assert through_recovery == (None,)
        losses["loss"].backward()
        assert network.first.grad is not None
        assert_close(network.first.grad, weight * through_simple)
        assert network.gradient == [True, True]


def test_in_the_cheap_form_the_proposal_has_no_graph() -> None:
    network, (x0, clues) = Recorded(), boards(10)
    losses = loss(SelfCorrection(0.3), network, x0, clues)
    losses["loss"].backward()
    assert network.gradient == [False, True]
    assert network.out[0].grad_fn is None
    assert network.first.grad is None
    assert network.later.grad is not None
    through_both = network.later.grad.clone()
    assert float(through_both.abs()) > 0


@pytest.mark.parametrize(
    ("batch", "weight", "extra"),
    [(256, 0.1, 25), (7, 0.5, 3), (100, 0.29, 29), (100, 0.57, 57), (8, 0.1, 1), (8, 0.0, 0)],
)
def test_rows_per_call(batch: int, weight: float, extra: int) -> None:
    """App. C: B rows without gradient, then B + floor(lambda B), at least one more, with; Algorithm 2: B and B."""
    x0, clues = boards(batch)
    cheap, full = Recorded(), Recorded()
    loss(SelfCorrection(weight), cheap, x0, clues)["loss"].backward()
    loss(SelfCorrection(weight, full=True), full, x0, clues)["loss"].backward()
    assert cheap.rows == [batch, batch + extra]
    assert full.rows == [batch, batch]


def test_the_first_rows_come_again_with_their_own_times_clues_and_context() -> None:
    x0, clues = boards(10)
    network, context = Recorded(), torch.arange(10.0)
    loss(SelfCorrection(0.4), network, x0, clues, context)
    (x_t1, t1, first_context), (x, t, later_context) = network.seen
    assert torch.equal(x[10:], x_t1[:4])
    assert torch.equal(t[10:], t1[:4])
    assert first_context is not None
    assert later_context is not None
    assert torch.equal(first_context, context)
    assert later_context.tolist() == [*range(10), *range(4)]


@pytest.mark.parametrize("full", [True, False])
def test_the_second_time_is_uniform_below_the_first(full: bool) -> None:
    """Fixed seed; a new one fails with odds of 3e-4 (three tests at 1e-4)."""
    network, (x0, clues) = Recorded(), boards(4000)
    torch.manual_seed(0)
    loss(SelfCorrection(0.1, full), network, x0, clues)
    t1, t2 = network.seen[0][1].flatten(), network.seen[1][1][:4000].flatten()
    assert bool((t2 <= t1).all())
    assert bool((t1 < 1).all())
    assert bool((t2 >= 0).all())
    assert stats.kstest(t1.numpy(), "uniform").pvalue > 1e-4
    assert stats.kstest((t2 / t1).numpy(), "uniform").pvalue > 1e-4
    assert stats.pearsonr(t1.numpy(), (t2 / t1).numpy()).pvalue > 1e-4


@pytest.mark.parametrize("objective", [Simple(), SelfCorrection(0.4), SelfCorrection(0.4, full=True)])
def test_clues_reach_the_network_exact_and_count_as_exact(objective: Objective, path: GaussianPath) -> None:
    x0, clues = boards(10)
    seen: list[Tensor] = []

    def right_but_for_the_clues(x_t: Tensor, t: Tensor, context: Tensor | None = None) -> Tensor:
        seen.append(x_t)
        answer = torch.cat([x0, x0[: len(x_t) - 10]]).clone()
        answer[torch.cat([clues.given, clues.given[: len(x_t) - 10]])] = 1e6
        return answer

    losses = loss(objective, right_but_for_the_clues, x0, clues, path=path)
    assert float(losses["loss"]) == 0
    for x_t in seen:
        twice = clues[torch.arange(len(x_t)) % 10]
        assert torch.equal(x_t[twice.given], twice.values[twice.given])
        assert not torch.equal(x_t[~twice.given], twice.values[~twice.given])


class Fixed(nn.Module):
    def forward(self, x_t: Tensor, t: Tensor, context: Tensor | None = None) -> Tensor:
        return torch.tanh(x_t) * (1 - 0.5 * t)


def test_both_forms_have_the_same_expected_value() -> None:
    """40 batches each; the means differ by more than 5 standard errors with odds below 1e-6 (fixed seed)."""
    x0, clues = boards(500)
    torch.manual_seed(0)
    values = [
        torch.stack([loss(SelfCorrection(0.5, full), Fixed(), x0, clues)["loss"] for _ in range(40)])
        for full in (True, False)
    ]
    error = (values[0].var() / 40 + values[1].var() / 40).sqrt()
    assert abs(float(values[0].mean() - values[1].mean())) < 5 * float(error)
    assert float(error) < 0.01 * float(values[0].mean())  # else the bound would say nothing


def test_measuring_the_full_loss_without_gradient_builds_no_graph() -> None:
    network, (x0, clues) = Recorded(), boards(10)
    with torch.no_grad():
        losses = loss(SelfCorrection(0.3, full=True), network, x0, clues)
    assert network.gradient == [False, False]
    assert not losses["loss"].requires_grad


def test_in_a_batch_too_small_for_its_share_the_simple_loss_does_not_vanish() -> None:
    losses = loss(SelfCorrection(0.1), Recorded(), *boards(8))
    assert losses["simple"].item() > 0
    assert_close(losses["loss"], losses["recovery"] + 0.1 * losses["simple"])


@pytest.mark.parametrize("full", [True, False])
def test_with_several_models_each_has_the_mean_of_its_own_boards(full: bool) -> None:
    """Board i is model i % 3's: four boards each, of which one (a fourth) is seen again."""
    network, (x0, clues) = Recorded(), boards(12)
    torch.manual_seed(3)
    losses = loss(SelfCorrection(0.3, full), network, x0, clues, models=3)
    assert network.rows == [12, 12 if full else 15]
    again = held(network.out[1][:12], clues)
    for model in range(3):
        errors = (again - x0).square()[model::3]
        assert_close(losses["recovery"][model], errors.mean())
        first = held(network.out[0], clues)[model::3] if full else held(network.out[1][12:], clues[:3])[model::3]
        assert_close(losses["simple"][model], (first - x0[model::3][: len(first)]).square().mean())
    assert_close(losses["loss"], losses["recovery"] + 0.3 * losses["simple"])


def test_the_ddpm_step_input_is_a_ddpm_step_by_hand() -> None:
    """x_t2 ~ q(x_t2 | x_t1, x0_hat): Eq. 15 in its textbook form, for a variance-preserving path."""
    network, (x0, clues) = Recorded(), boards(8)
    torch.manual_seed(3)
    loss(SelfCorrection(0.0, reenter=ddpm_step), network, x0, clues)
    torch.manual_seed(3)
    t1 = torch.rand(8, 1, 1)
    t2 = t1 * torch.rand(8, 1, 1)
    x_t1 = held(noised(x0, t1, torch.randn(8, 6, 3)), clues)
    proposal = held(network.first * torch.tanh(x_t1 + 0.1) + 0.2 * t1, clues)
    bar_t, bar_s = torch.cos(math.pi / 2 * t1) ** 2, torch.cos(math.pi / 2 * t2) ** 2
    ratio = bar_t / bar_s
    mean = (bar_s.sqrt() * (1 - ratio) * proposal + ratio.sqrt() * (1 - bar_s) * x_t1) / (1 - bar_t)
    deviation = ((1 - bar_s) / (1 - bar_t) * (1 - ratio)).sqrt()
    assert_close(network.seen[1][0], held(mean + deviation * torch.randn(8, 6, 3), clues), rtol=1e-3, atol=1e-4)


def test_corrupted_boards_are_clean_but_for_a_share_of_their_cells() -> None:
    """Seen at t2 = 0. A fifth of 24,000 cells is replaced, a third of them by the same symbol: within 5 deviations."""
    x0, _ = boards(4000)
    network, nothing = Recorded(), Clues.none(x0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("letgo.objectives.uniform_times", lambda x: torch.zeros(len(x), 1, 1))
        torch.manual_seed(0)
        loss(SelfCorrection(0.0, reenter=corrupt), network, x0, nothing)
    seen = network.seen[1][0]
    assert torch.equal(seen.sum(-1), torch.ones(4000, 6))
    changed = float((seen.argmax(-1) != x0.argmax(-1)).float().mean())
    assert abs(changed - 0.2 * 2 / 3) < 5 * math.sqrt(0.2 / 24_000)


@pytest.mark.parametrize(("name", "share"), [("corrupt", 0.2), ("corrupt-40", 0.4)])
def test_corrupted_cells_take_symbols_of_the_whole_batch(name: str, share: float) -> None:
    """Half of the boards know only one symbol, the other half another: in both, a half of all that is replaced changes
    (within 5 deviations). App. L.2 has 20% and 40%."""
    x0 = OneHot(3).encode(torch.tensor([[0], [2]]).repeat_interleave(1000, 0).expand(2000, 6))
    network = Recorded()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("letgo.objectives.uniform_times", lambda x: torch.zeros(len(x), 1, 1))
        torch.manual_seed(0)
        loss(SelfCorrection(0.0, reenter=REENTER[name]), network, x0, Clues.none(x0))
    changed = (network.seen[1][0].argmax(-1) != x0.argmax(-1)).double()
    for half in (changed[:1000], changed[1000:]):
        assert abs(float(half.mean()) - share / 2) < 5 * math.sqrt(share / 2 / 6000)


def test_the_ddpm_mean_target_leaves_of_a_right_answer_the_noise_that_the_anchor_keeps() -> None:
    """mu(x_t2, x0; t2 -> t3) - alpha(t3) x0 is what is left of the noise in x_t2, by the anchor's share of it."""
    x0, _ = boards(6)
    batch = Batch(x0.argmax(-1), x0, Clues.none(x0))
    torch.manual_seed(3)
    terms = SelfCorrection(0.0, target=ddpm_mean)(lambda *_: x0, PATH, batch)
    torch.manual_seed(3)
    t1 = torch.rand(6, 1, 1)
    t2 = t1 * torch.rand(6, 1, 1)
    torch.randn(6, 6, 3)
    noise = torch.randn(6, 6, 3)
    bar_t, bar_s = torch.cos(math.pi / 2 * t2) ** 2, torch.cos(math.pi / 2 * t2 * torch.rand(6, 1, 1)) ** 2
    anchor = (bar_t / bar_s).sqrt() * (1 - bar_s) / (1 - bar_t).sqrt()
    assert_close(terms["recovery"], (anchor * noise).square(), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("most", [2, 3])
def test_boards_are_rolled_out_a_random_number_of_times(most: int) -> None:
    """Of up to three rollouts, a third of the boards makes one, two and three: each changes its time. Odds of 1e-4."""
    network, (x0, clues) = Recorded(), boards(3000)
    torch.manual_seed(0)
    loss(SelfCorrection(0.0, rollouts=most), network, x0, clues)
    assert network.gradient == [False] * most + [True]
    times = torch.stack([t.flatten() for _, t, _ in network.seen])
    assert bool((times.diff(dim=0) <= 0).all())
    made = (times.diff(dim=0) != 0).sum(0)
    assert stats.chisquare(made.bincount(minlength=most + 1)[1:].numpy()).pvalue > 1e-4
    assert made.min() == 1


def test_a_board_that_has_made_its_rollouts_keeps_its_state_and_the_others_are_noised_again() -> None:
    """What the network answered, taken away from its next state, leaves standard normal noise. Odds of 2e-4."""
    network, x0 = Recorded(), boards(3000)[0]
    torch.manual_seed(0)
    loss(SelfCorrection(0.0, rollouts=3), network, x0, Clues.none(x0))
    for i in (1, 2):
        (before, t, _), (after, s, _) = network.seen[i : i + 2]
        stays = (s == t).flatten()
        assert 0 < int(stays.sum()) < 3000
        assert torch.equal(after[stays], before[stays])
        alpha, beta = torch.cos(math.pi / 2 * s), torch.sin(math.pi / 2 * s)
        noise = ((after - alpha * network.out[i]) / beta)[~stays & (s > 0.01).flatten()].detach()
        assert stats.kstest(noise.flatten().numpy(), "norm").pvalue > 1e-4


def test_input_perturbation_adds_noise_of_its_own() -> None:
    x0, _ = boards(2000)
    states = []
    for gamma in (0.0, 0.1):
        network = Recorded()
        torch.manual_seed(0)
        loss(Simple(gamma), network, x0, Clues.none(x0))
        states.append(network.seen[0][0])
    assert float((states[1] - states[0]).std()) == pytest.approx(0.1, rel=0.02)
    torch.manual_seed(0)
    _, _, own = torch.rand(2000, 1, 1), torch.randn_like(x0), torch.randn_like(x0)
    assert_close(states[1] - states[0], 0.1 * own, rtol=1e-3, atol=1e-5)


class Remembered(Recorded):
    """Its answer depends on what it is shown of its previous one; it keeps that too."""

    def __init__(self) -> None:
        super().__init__()
        self.shown: list[Tensor | None] = []

    def forward(self, x_t: Tensor, t: Tensor, context: Tensor | None = None, memory: Tensor | None = None) -> Tensor:
        self.shown.append(memory)
        return super().forward(x_t, t, context) + (0 if memory is None else 0.3 * memory)


def test_self_conditioning_shows_every_second_board_its_prediction_without_gradient() -> None:
    """Of 4,000 boards a half, within 5 deviations; the loss is of the second answer alone."""
    network, (x0, clues) = Remembered(), boards(4000)
    torch.manual_seed(3)
    losses = loss(SelfConditioning(), network, x0, clues)
    assert network.gradient == [False, True]
    assert torch.equal(network.seen[0][0], network.seen[1][0])
    assert network.shown[0] is None
    memory = network.shown[1]
    assert memory is not None
    shown = (memory != 0).any(-1).any(-1)
    assert abs(float(shown.float().mean()) - 0.5) < 5 * 0.5 / math.sqrt(4000)
    assert torch.equal(memory[shown], network.out[0][shown])
    x_t, t, _ = network.seen[1]
    x0_hat = held(network.later * torch.tanh(x_t + 0.1) + 0.2 * t + 0.3 * memory, clues)
    assert_close(losses["loss"], (x0_hat - x0).square().mean())


def test_a_self_conditioned_network_remembers_its_last_prediction_while_sampling() -> None:
    torch.manual_seed(0)
    network = SelfConditioned(3, torch.arange(6)[None], width=16, depth=1, heads=2, hidden=16).eval()
    seen: list[Tensor | None] = []

    def denoise(x: Tensor, t: Tensor, *memory: Tensor) -> tuple[Tensor, Tensor]:
        seen.append(memory[0] if memory else None)
        return network(x, t.expand(len(x), 1, 1), None, *memory)

    clues, noise = Clues.none(boards(2)[0]), Noise.first(0, 2)
    snapshots = list(trajectory(denoise, PATH, ddpm, uniform_grid(4), clues, noise))
    assert seen[0] is None
    for memory, before in zip(seen[1:], snapshots, strict=False):
        assert memory is not None
        assert torch.equal(memory, before.x0_hat)
    x, t = torch.randn(2, 6, 3), torch.full((2, 1, 1), 0.5)
    assert torch.equal(network(x, t)[0], network(x, t, None, torch.zeros_like(x))[0])
    assert not torch.allclose(network(x, t)[0], network(x, t, None, torch.ones_like(x))[0])


def ddpm_by_hand(x_t: Tensor, x0_hat: Tensor, t: Tensor, s: Tensor, noise: Tensor) -> Tensor:
    """Eq. 15 in its textbook form."""
    bar_t, bar_s = torch.cos(math.pi / 2 * t) ** 2, torch.cos(math.pi / 2 * s) ** 2
    ratio = bar_t / bar_s
    mean = (bar_s.sqrt() * (1 - ratio) * x0_hat + ratio.sqrt() * (1 - bar_s) * x_t) / (1 - bar_t)
    return mean + ((1 - bar_s) / (1 - bar_t) * (1 - ratio)).clamp(min=0).sqrt() * noise


def test_rollouts_go_two_ddpm_steps_an_update_with_gradient_through_these_alone() -> None:
    network, (x0, clues), objective = Recorded(), boards(40), Rollouts(16, 2)
    torch.manual_seed(3)
    losses = loss(objective, network, x0, clues)
    torch.manual_seed(3)
    done = 2 * torch.randint(8, (40, 1, 1)).float()
    t, middle, s = (1 - (done + i) / 16 for i in range(3))
    x_t = held(noised(x0, t, torch.randn(40, 6, 3)), clues)
    torch.randn(40, 6, 3)  # for trajectories that begin anew: none has ended
    assert_close(network.seen[0][0], x_t)
    assert_close(network.seen[1][1], middle)
    first = held(network.first * torch.tanh(x_t + 0.1) + 0.2 * t, clues)
    x_m = held(ddpm_by_hand(x_t, first, t, middle, torch.randn(40, 6, 3)), clues)
    assert_close(network.seen[1][0], x_m, rtol=1e-3, atol=1e-4)
    second = held(network.later * torch.tanh(x_m + 0.1) + 0.2 * middle, clues)
    assert_close(losses["loss"], ((first - x0).square().mean() + (second - x0).square().mean()) / 2, rtol=1e-3, atol=0)
    by_hand = torch.autograd.grad(((second - x0).square().mean() + (first - x0).square().mean()) / 2, network.first)[0]
    losses["loss"].backward()  # the first factor acts in the first step alone, and through it on the second
    assert network.first.grad is not None
    assert_close(network.first.grad, by_hand, rtol=1e-3, atol=1e-6)
    assert objective.pool is not None
    assert not objective.pool.x.requires_grad
    x_s = held(ddpm_by_hand(x_m, second, middle, s, torch.randn(40, 6, 3)), clues)
    assert_close(objective.pool.x, x_s.detach(), rtol=1e-3, atol=1e-4)


def test_a_finished_rollout_begins_anew_with_a_board_of_the_batch() -> None:
    (x0, clues), other, objective = boards(40), OneHot(3).encode(torch.zeros(40, 6, dtype=torch.long)), Rollouts(4, 2)
    torch.manual_seed(0)
    loss(objective, Recorded(), x0, clues)
    assert objective.pool is not None
    ended = (objective.pool.done == 4).flatten()
    assert 0 < int(ended.sum()) < 40  # each is at a random step at first
    place, network = objective.pool.x.data_ptr(), Recorded()
    loss(objective, network, other, Clues.none(other))
    x_t, t, _ = network.seen[0]
    assert objective.pool.x.data_ptr() == place  # a captured step goes on with the same memory
    assert torch.equal(t.flatten() == 1, ended)
    assert torch.equal(objective.pool.x0[ended], other[ended])
    assert torch.equal(objective.pool.x0[~ended], x0[~ended])
    assert not bool(objective.pool.given[ended].any())
    assert abs(float(x_t[ended].mean())) < 0.3
    assert abs(float(x_t[ended].std()) - 1) < 0.2


@pytest.mark.parametrize(("steps", "advance"), [(16, 3), (4, 0), (4, -2), (0, 2), (2, 4)])
def test_rollouts_advance_by_a_part_of_their_steps(steps: int, advance: int) -> None:
    with pytest.raises(LetgoError, match=f"of {steps} steps cannot advance by {advance}; it must divide them"):
        Rollouts(steps, advance)
    assert (Rollouts(16, 1).advance, Rollouts(1, 1).steps, Rollouts(4, 4).advance) == (1, 1, 4)


def test_rollouts_have_a_term_for_every_board_and_step() -> None:
    network, (x0, clues) = Recorded(), boards(10)
    terms = Rollouts(16, 2)(network, PATH, Batch(x0.argmax(-1), x0, clues))["loss"]
    assert terms.shape == (10, 2, 6, 3)
    for step in (0, 1):
        assert_close(terms[:, step], (held(network.out[step], clues) - x0).square())


def pools(models: int, context: bool) -> tuple[Rollouts, list[dict[str, Tensor]], State]:
    """A step of several models' rollouts on ten boards each, and what each of them saves."""
    (x0, clues), objective = boards(10 * models), Rollouts(4, 2)
    told = torch.arange(10.0 * models).view(-1, 1, 1).expand(-1, 2, 3) if context else None
    loss(objective, Recorded(), x0, clues, told)
    return objective, [objective.state(model, models) for model in range(models)], x0


@pytest.mark.parametrize("context", [False, True])
@pytest.mark.parametrize("models", [1, 2])
def test_rollouts_of_several_models_are_saved_apart_and_go_on_together(models: int, context: bool) -> None:
    objective, states, x0 = pools(models, context)
    assert isinstance(objective, Remembers)
    assert not isinstance(Simple(), Remembers)
    assert objective.pool is not None
    again = Rollouts(4, 2)
    assert again.state(0, 1) == {}  # no step was taken
    again.restore([{} for _ in states], x0)
    assert again.pool is None
    pool = {name: part.clone() for name, part in vars(objective.pool).items() if part is not None}
    objective.pool.x.add_(1)  # what is saved is no longer moved by training
    for model, state in enumerate(states):
        assert state.keys() == pool.keys()
        assert all(torch.equal(part, pool[name][model::models].float()) for name, part in state.items())
    again.restore(states, x0)
    assert again.pool is not None
    assert (again.pool.context is not None) == context
    assert all(torch.equal(getattr(again.pool, name), part) for name, part in pool.items())


@pytest.mark.parametrize("model", [0, 1])
@pytest.mark.parametrize("name", ["x", "x0", "given", "done", "context", "other"])
@pytest.mark.parametrize("fault", ["missing", "fewer", "flat"])
def test_rollouts_that_do_not_fit_each_other_or_the_boards_are_refused(name: str, model: int, fault: str) -> None:
    _, states, x0 = pools(2, context=True)
    part = states[model].pop(name, torch.zeros(10))
    if fault != "missing" or name == "other":
        states[model][name] = part[:9] if fault == "fewer" else part.flatten()
    for count in (2, 1):
        given = states if count == 2 else [states[model]]
        with pytest.raises(LetgoError, match="pool of rollouts belongs to other boards"):
            Rollouts(4, 2).restore(given, x0)


def test_a_rollout_keeps_the_context_of_its_board_until_it_begins_anew() -> None:
    """Mazes and graphs: the context of board i is i at first, and 100 + i in the next batch."""
    (x0, clues), objective = boards(40), Rollouts(4, 2)
    first = torch.arange(40.0).view(40, 1, 1).expand(40, 2, 3)
    torch.manual_seed(0)
    loss(objective, Recorded(), x0, clues, first)
    assert objective.pool is not None
    ended = (objective.pool.done == 4).flatten()
    network = Recorded()
    loss(objective, network, x0, clues, first + 100)
    for _, _, context in network.seen:
        assert context is not None
        assert torch.equal(context, torch.where(ended[:, None, None], first + 100, first))


# Cross-entropy


class Turning(nn.Module):
    """A looped network of two turns, whose logits are a multiple of its input; it remembers all calls."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[Tensor, Tensor, Tensor | None, bool, bool]] = []

    def forward(self, x_t: Tensor, t: Tensor, context: Tensor | None = None, every_turn: bool = False) -> Tensor:
        self.seen.append((x_t, t, context, every_turn, torch.is_grad_enabled()))
        if not every_turn:
            return x_t.tanh() + 0.2 * t
        return torch.stack([x_t, 2 * x_t + t], 1)


@pytest.mark.parametrize("models", [1, 2])
def test_cross_entropy_by_hand(models: int) -> None:
    """Algorithm 2 with the same random numbers; torch's own cross-entropy for each cell after each turn."""
    network, (x0, clues), context = Turning(), boards(10), torch.arange(10.0)
    batch = Batch(x0.argmax(-1), x0, clues, context, models)
    torch.manual_seed(3)
    terms = CrossEntropy(0.3)(network, PATH, batch)
    torch.manual_seed(3)
    t1 = torch.rand(10, 1, 1)
    t2 = t1 * torch.rand(10, 1, 1)
    x_t1 = held(noised(x0, t1, torch.randn(10, 6, 3)), clues)
    x_t2 = held(noised(held(x_t1.tanh() + 0.2 * t1, clues), t2, torch.randn(10, 6, 3)), clues)
    rows = {1: 3, 2: 2}[models]  # floor(.3 * 10), and floor(.3 * 5) for each of two
    (_, _, first, *calls), (x, t, later, *again) = network.seen
    assert (calls, again) == ([False, False], [True, True])
    assert_close(x, torch.cat([x_t2, x_t1[:rows]]))
    assert_close(t, torch.cat([t2, t1[:rows]]))
    assert first is not None
    assert later is not None
    assert torch.equal(first, context)
    assert later.tolist() == [*range(10), *range(rows)]
    for name, start, count in (("recovery", 0, 10), ("simple", 10, rows)):
        assert terms[name].shape == (count, 2, 6)
        for board in range(count):
            state, time = x[start + board], t[start + board]
            for turn, logits in enumerate((state, 2 * state + time)):
                right = nn.functional.cross_entropy(logits, x0[board].argmax(-1), reduction="none")
                assert_close(terms[name][board, turn], right.masked_fill(clues.given[board], 0))


def test_cross_entropy_without_the_simple_loss_has_none_for_every_model() -> None:
    losses = loss(CrossEntropy(0.0), Turning(), *boards(12), models=3)
    assert losses["simple"].tolist() == [0, 0, 0]
    assert_close(losses["loss"], losses["recovery"])
    assert float(losses["recovery"].min()) > 0


# What terms count


def test_every_objective_weighs_its_terms_as_the_paper_does() -> None:
    for objective in (Simple(), VelocityLoss(), SelfConditioning(), Rollouts()):
        assert objective.weights == {"loss": 1.0}
    for objective in (SelfCorrection(), CrossEntropy()):
        assert objective.weights == {"recovery": 1.0, "simple": 0.1}  # Table 4
    assert SelfCorrection() == SelfCorrection(0.1, False, renoise, clean, 1)
    assert OBJECTIVES["rollouts"](0.1, False) == Rollouts() == Rollouts(16, 2)


def test_terms_of_any_name_count_by_their_weights() -> None:
    """A term may be called `loss` itself: what is minimised is the sum."""
    terms = {"loss": torch.tensor([[1.0, 3.0], [5.0, 7.0]]), "more": torch.tensor([10.0, 30.0])}
    alone = averaged(terms, {"loss": 0.5, "more": 0.25})
    assert {name: mean.tolist() for name, mean in alone.items()} == {"loss": [7.0], "more": [20.0]}
    apart = averaged(terms, {"loss": 0.5, "more": 0.25}, models=2)
    assert {name: mean.tolist() for name, mean in apart.items()} == {"loss": [3.5, 10.5], "more": [10.0, 30.0]}


def test_a_batch_is_of_one_model_unless_it_says_otherwise() -> None:
    network, (x0, clues) = Recorded(), boards(7)
    SelfCorrection(0.5)(network, PATH, Batch(x0.argmax(-1), x0, clues))
    assert network.rows == [7, 7 + 3]


def test_batches_and_objectives_cannot_be_changed_under_ones_hands() -> None:
    x0, clues = boards(2)
    batch, rolled = Batch(x0.argmax(-1), x0, clues), Rollouts(4, 2)
    loss(rolled, Recorded(), x0, clues)
    fixed = (Simple(), VelocityLoss(), SelfCorrection(), CrossEntropy(), SelfConditioning(), batch, rolled.pool)
    for value in fixed:
        with pytest.raises(FrozenInstanceError):
            value.x0 = x0  # pyright: ignore
    assert repr(rolled) == "Rollouts(steps=4, advance=2)"  # without the boards on their way


def test_a_configuration_names_the_ablations() -> None:
    config = Config("mine", "sudoku", objective_options={"reenter": "ddpm-step", "target": "ddpm-mean", "rollouts": 2})
    assert config.build_objective() == SelfCorrection(0.1, False, ddpm_step, ddpm_mean, 2)
    for option in ("reenter", "target"):
        with pytest.raises(LetgoError, match=f"unknown {option} of self-correction 'jump'; choose one of"):
            replace(config, objective_options={option: "jump"}).build_objective()
