"""`letgo.sample` for networks that know nothing of this package: states of any shape, eps and v, those of diffusers."""

from __future__ import annotations

import subprocess
import sys
from itertools import permutations

import diffusers
import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import letgo
from letgo.kernels import EulerMaruyama, ddim, tweedie
from letgo.models.denoiser import ExactDenoiser, NoiseDenoiser, VelocityDenoiser, VPredictionDenoiser
from letgo.paths import CosinePath, LinearPath, TablePath
from letgo.pinning import Clues
from letgo.rng import Noise
from letgo.sampling import trajectory, uniform_grid

IMAGES = (5, 3, 4, 6)


def pull(x_t: Tensor, t: Tensor) -> Tensor:
    """A denoiser for every shape."""
    return torch.tanh(x_t + t) / 2


def some(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.fast
def test_a_state_of_any_shape_takes_the_loops_way() -> None:
    known, mask = some(5, 12, 6), some(5, 12, seed=1) > 0
    for name, rule in (("tweedie", tweedie), ("ddim", ddim)):
        steps = trajectory(pull, CosinePath(), rule, uniform_grid(7), Clues(known, mask), Noise.first(3, 5))
        expected = list(steps)[-1].x
        given = {"rule": name, "steps": 7, "known": known.view(IMAGES), "mask": mask.view(IMAGES[:-1]), "seed": 3}
        assert_close(letgo.sample(pull, IMAGES, **given), expected.view(IMAGES), rtol=0, atol=0)
        assert_close(letgo.sample(pull, IMAGES, path="cosine", **{**given, "rule": rule}), expected.view(IMAGES))
        flat = given | {"known": known.view(5, -1).numpy(), "mask": mask[..., None].expand(5, 12, 6).reshape(5, -1)}
        assert_close(letgo.sample(pull, (5, 72), **flat), expected.view(5, 72))


def test_pixels_of_all_channels_are_kept_by_a_mask_of_one() -> None:
    known, mask = some(1, 3, 4, 6), some(5, 1, 4, 6, seed=1) > 0
    seen = []

    def watched(x_t: Tensor, t: Tensor) -> Tensor:
        seen.append((x_t, t))
        return pull(x_t, t)

    x = letgo.sample(watched, IMAGES, path=LinearPath(), rule="heun", steps=6, known=known, mask=mask)
    kept, values = mask.expand(IMAGES), known.expand(IMAGES)
    for state in (x, *(x_t for x_t, _ in seen)):
        assert torch.equal(state[kept], values[kept])
    assert not torch.isclose(x[~kept], values[~kept]).any()
    assert {tuple(t.shape) for _, t in seen} == {(5, 1, 1, 1)}
    assert float(seen[0][1][0]) == 1


def test_rows_depend_on_their_seed_and_place_alone() -> None:
    whole = letgo.sample(pull, (6, 4, 3), steps=5, seed=2)
    assert torch.equal(letgo.sample(pull, (2, 4, 3), steps=5, seed=2), whole[:2])
    assert not torch.isclose(letgo.sample(pull, (6, 4, 3), steps=5, seed=3), whole).any()


def test_the_times_between_noise_and_data_may_be_others() -> None:
    seen: list[float] = []

    def denoise(x_t: Tensor, t: Tensor) -> Tensor:
        seen.append(round(float(t[0].mean()), 4))
        return pull(x_t, t)

    letgo.sample(denoise, (2, 4, 3), steps=4, t_max=0.6, t_min=0.2)
    assert seen == [1, 0.6, 0.4, 0.2]


def test_rules_with_settings_come_as_objects() -> None:
    states = some(3, 4, 2)
    exact = ExactDenoiser(states, CosinePath())
    x = letgo.sample(exact, (8, 4, 2), rule=EulerMaruyama(0.3), steps=100)
    assert float((x[:, None] - states).flatten(2).norm(dim=2).amin(1).max()) < 0.5  # each ends at one of the three


def test_what_a_network_remembers_comes_back() -> None:
    seen = []

    def network(x_t: Tensor, t: Tensor, memory: Tensor | None = None) -> tuple[Tensor, Tensor]:
        seen.append(memory)
        return pull(x_t, t), torch.full((len(x_t), 2), float(len(seen)))

    x = letgo.sample(network, (2, 3, 4, 5), steps=3, clip=(-0.1, 0.1))
    assert seen[0] is None
    assert [float(memory[0, 0]) for memory in seen[1:]] == [1, 2]
    assert float(x.abs().max()) == pytest.approx(0.1)


def test_the_timestep_is_the_one_that_diffusers_gives_its_networks() -> None:
    scheduler = diffusers.DDIMScheduler(beta_schedule="squaredcos_cap_v2", timestep_spacing="trailing")
    scheduler.set_timesteps(200)
    path, times = TablePath(scheduler.alphas_cumprod.numpy()), uniform_grid(200)[:-1].view(-1, 1, 1, 1)
    assert torch.equal(path.timestep(times), scheduler.timesteps)
    assert_close(path.alpha(times).flatten() ** 2, scheduler.alphas_cumprod[scheduler.timesteps])
    assert path.timestep(torch.zeros(1, 1, 1)).tolist() == [0]
    assert CosinePath().timestep(times).equal(scheduler.timesteps)
    assert [path.timestep(1.0).tolist(), LinearPath().timestep(0.25).tolist()] == [[999], [250]]
    flow = diffusers.FlowMatchEulerDiscreteScheduler()
    flow.set_timesteps(sigmas=times.flatten().tolist())
    assert_close(LinearPath().timestep(times), flow.timesteps)


def test_predictions_of_v_are_those_of_diffusers() -> None:
    scheduler = diffusers.DDPMScheduler()
    path, timestep = TablePath(scheduler.alphas_cumprod), torch.tensor([0, 499, 999])
    x0, eps = some(3, 4, 2), some(3, 4, 2, seed=1)
    x_t, v = scheduler.add_noise(x0, eps, timestep), scheduler.get_velocity(x0, eps, timestep)
    t = (timestep + 1).view(3, 1, 1) / 1000
    assert_close(VPredictionDenoiser(lambda *_: v, path)(x_t, t), x0)
    assert_close(VelocityDenoiser(lambda *_: eps - x0, LinearPath(), clip=(-9, 9))((1 - t) * x0 + t * eps, t), x0)


def test_a_network_of_diffusers_is_taken_as_it_is() -> None:
    torch.manual_seed(0)
    blocks = {"down_block_types": ("DownBlock2D",), "up_block_types": ("UpBlock2D",), "block_out_channels": (8,)}
    unet = diffusers.UNet2DModel(8, 1, 1, layers_per_block=1, norm_num_groups=4, add_attention=False, **blocks).eval()
    path = TablePath(diffusers.DDPMScheduler(num_train_timesteps=100).alphas_cumprod)

    def state(**how: bool) -> Tensor:
        denoise = NoiseDenoiser(lambda x_t, t: unet(x_t, path.timestep(t), **how), path, clip=(-1, 1))
        return letgo.sample(denoise, (2, 1, 8, 8), steps=4)

    assert torch.equal(state(return_dict=True), state(return_dict=False))
    predicts_x0 = letgo.sample(lambda x_t, t: unet(x_t, path.timestep(t)), (2, 1, 8, 8), path=path, steps=4)
    assert predicts_x0.isfinite().all()


def test_a_network_with_a_context_goes_the_way_of_ddim_in_diffusers() -> None:
    """Words by cross-attention and a class each, bound where the network is called; ten steps from the same noise."""
    torch.manual_seed(0)
    unet = diffusers.UNet2DConditionModel(
        sample_size=8,
        in_channels=1,
        out_channels=1,
        block_out_channels=(8,),
        layers_per_block=1,
        norm_num_groups=4,
        down_block_types=("CrossAttnDownBlock2D",),
        up_block_types=("CrossAttnUpBlock2D",),
        cross_attention_dim=4,
        attention_head_dim=4,
        num_class_embeds=3,
    ).eval()
    scheduler = diffusers.DDIMScheduler(beta_schedule="squaredcos_cap_v2", timestep_spacing="trailing")
    scheduler.set_timesteps(10)
    path, started = TablePath(scheduler.alphas_cumprod), []

    def ours(words: Tensor, labels: Tensor) -> Tensor:
        def network(x_t: Tensor, t: Tensor):
            started.append(x_t)
            return unet(x_t, path.timestep(t), encoder_hidden_states=words, class_labels=labels)

        return letgo.sample(NoiseDenoiser(network, path, clip=(-1, 1)), (2, 1, 8, 8), rule="ddim", steps=10)

    words, labels = some(2, 3, 4), torch.tensor([0, 2])
    x = ours(words, labels)
    state = started[0]
    with torch.no_grad():
        for timestep in scheduler.timesteps:
            eps = unet(state, timestep, encoder_hidden_states=words, class_labels=labels).sample
            state = scheduler.step(eps, timestep, state, use_clipped_model_output=True).prev_sample
    assert_close(x, state, rtol=1e-4, atol=1e-5)
    for other in (ours(some(2, 3, 4, seed=1), labels), ours(words, torch.tensor([1, 2]))):
        assert not torch.allclose(other[0], x[0], atol=1e-3)
    assert_close(ours(words, torch.tensor([1, 2]))[1], x[1], rtol=1e-4, atol=1e-5)  # each row has its own


@pytest.fixture(scope="module")
def eps_network() -> nn.Module:
    """A noise network on diffusers' cosine schedule that has learned the six orders of three symbols."""
    torch.manual_seed(0)
    scheduler = diffusers.DDPMScheduler(beta_schedule="squaredcos_cap_v2")
    orders = nn.functional.one_hot(torch.tensor(list(permutations(range(3)))), 3) * 2.0 - 1
    network = nn.Sequential(nn.Linear(10, 96), nn.Tanh(), nn.Linear(96, 96), nn.Tanh(), nn.Linear(96, 9))
    optimizer = torch.optim.Adam(network.parameters(), 3e-3)
    for step in range(1500):
        x0, timestep = orders[torch.randint(6, (128,))], torch.randint(1000, (128,))
        eps = torch.randn_like(x0)
        x_t = scheduler.add_noise(x0, eps, timestep).flatten(1)
        loss = (network(torch.cat([x_t, timestep[:, None] / 1000], 1)) - eps.flatten(1)).square().mean()
        optimizer.param_groups[0]["lr"] = 3e-3 * (1 - step / 1500)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return network


@pytest.mark.slow
def test_a_trained_noise_network_needs_its_clip_on_the_cosine_schedule(eps_network: nn.Module) -> None:
    """alpha(1) is 5e-5: x0_hat is eps's error times 20,000. n = 200, seed 0: .98 with the clip."""
    path = TablePath(diffusers.DDPMScheduler(beta_schedule="squaredcos_cap_v2").alphas_cumprod)

    def denoise(x_t: Tensor, t: Tensor) -> Tensor:
        when = path.timestep(t)[:, None] / 1000
        return eps_network(torch.cat([x_t.flatten(1), when], 1)).view_as(x_t)

    def share(clip: tuple[int, int] | None, inside: bool) -> float:
        wrapped = NoiseDenoiser(denoise, path, clip=clip if inside else None)
        x = letgo.sample(wrapped, (200, 3, 3), path=path, clip=None if inside else clip)
        orders = x.argmax(-1).sort(1).values == torch.arange(3)
        return float((orders.all(1) & ((x - x.sign()).abs() < 0.5).flatten(1).all(1)).float().mean())

    with pytest.warns(UserWarning, match=r"x0_hat reaches \d+,\d{3} at step 1, where alpha is 4.9e-05.*clip="):
        assert share(None, inside=True) == 0
    assert share((-1, 1), inside=True) == share((-1, 1), inside=False) > 0.9


WRONG = {
    "letgo.sample(f, (2, 3, 4), rule='twedie')": "unknown rule 'twedie'; did you mean tweedie?",
    "letgo.sample(f, (2, 3, 4), rule=kernels.EulerMaruyama)": "rule is the class EulerMaruyama; give an object",
    "letgo.sample(f, (2, 3, 4), rule='em')": "give it as letgo.kernels.EulerMaruyama(sigma=0.3)",
    "letgo.sample(f, (2, 3, 4), rule='remask')": "rule 'remask' does not fit CosinePath; choose one of ddpm, ddim,",
    "letgo.sample(f, (2, 3, 4), t_max='x')": "t_max must be more than t_min, both from 0 to 1; got t_max 'x'",
    "letgo.sample(f, (2, 3, 4), rule=3)": "rule must be a name (ddpm, ddim, tweedie,",
    "letgo.sample(f, (2, 3, 4), path=paths.CosinePath)": "path is the class CosinePath; give an object",
    "letgo.sample(f, (2, 3, 4), path='cosin')": "unknown path 'cosin'; did you mean cosine?",
    "letgo.sample(f, (2, 3, 4), path=np.linspace(.9, .1, 5))": "ndarray is no path of letgo.paths; give TablePath(",
    "letgo.sample(f, (2, 3, 4), path=scheduler)": "give TablePath(scheduler.alphas_cumprod)",
    "paths.TablePath(scheduler)": "is no row of numbers; of a scheduler give its .alphas_cumprod",
    "letgo.sample(nn.Linear, (2, 3, 4))": "denoise is the class Linear; give an object of it",
    "NoiseDenoiser(nn.Linear, paths.CosinePath())": "network is the class Linear; give an object of it",
    "NoiseDenoiser(None, paths.CosinePath())": "network must be called as network(x_t, t); got NoneType",
    "letgo.sample(f, (10**6, 3, 512, 512))": "1,000,000 states of this shape take 3,146 GB of memory",
    "letgo.sample(wrapped, (2, 3, 4), known=x + 9, mask=x == 0)": "from 9 to 9, beyond clip (0.0, 1.0)",
    "letgo.sample('sudoku', (2, 3, 4))": "denoise must be called as denoise(x_t, t); got str",
    "letgo.sample(nn.Linear(4, 4), (2, 3, 4))": "when called with x_t of shape (2, 3, 4) and t of shape (2,",
    "letgo.sample(lambda x, t: x[0], (2, 3, 4))": "states' shape (2, 3, 4), in floats; got (3, 4)",
    "letgo.sample(lambda x, t: None, (2, 3, 4))": "the network returned NoneType; expected a tensor",
    "letgo.sample(lambda x, t: x / 0, (2, 3, 4))": "the network's prediction is not finite at step 1",
    "letgo.sample(f, 8)": "shape must be the shape of all states together, the batch first",
    "letgo.sample(f, (8,))": "such as (8, 16, 4); got (8,)",
    "letgo.sample(f, torch.zeros(2, 3))": "of a tensor give its .shape",
    "letgo.sample(f, (2, 3, 4), steps=0)": "steps must be at least 1, got 0",
    "letgo.sample(f, (2, 3, 4), steps=2.5)": "steps must be a whole number, got 2.5",
    "letgo.sample(f, (2, 3, 4), seed=None)": "seed must be a whole number, got None",
    "letgo.sample(f, (2, 3, 4), clip=1)": "such as (-1, 1); got 1",
    "letgo.sample(f, (2, 3, 4), clip=(1, -1))": "clip must be the least and the largest value of your data",
    "letgo.sample(f, (2, 3, 4), known=x)": "known was given without mask",
    "letgo.sample(f, (2, 3, 4), mask=x > 0)": "mask was given without known",
    "letgo.sample(f, (2, 3, 4), known=x, mask=x)": "mask must be True where values are kept",
    "letgo.sample(f, (2, 3, 4), known=x, mask=x[:, :2] > 0)": "the shape (2, 3, 4) or (2, 3), or 1 along",
    "letgo.sample(f, (2, 3, 4), known=x[0], mask=x > 0)": "shape (2, 3, 4), or 1 along some axes; got",
    "letgo.sample(f, (2, 3, 4), known='ab', mask=x > 0)": "known must be a tensor or an array, got str",
    "letgo.sample(f, (2, 3, 4), known=x / 0, mask=x == 0)": "known is not finite at a place where mask is True",
    "letgo.sample(f, (2, 3, 4), known=x + 9, mask=x == 0, clip=(0, 1))": "goes from 9 to 9, beyond clip (0.0, 1.0)",
    "letgo.sample(f, (2, 3, 4), rule='resample', known=x, mask=e)": "takes the last axis as one cell's symbols",
    "letgo.sample(f, (2, 3, 4), device='gpu')": "unknown device 'gpu'",
    "letgo.sample(NoiseDenoiser(f, paths.LinearPath()), (2, 3, 4), paths.CosinePath())": "the wrapper has another path",
    "NoiseDenoiser(f, paths.LinearPath)": "path is the class LinearPath",
}


def test_wrong_arguments_are_refused_in_a_line_each() -> None:
    lines = [
        "import letgo, numpy as np, torch; from torch import nn; from types import SimpleNamespace",
        "from letgo import kernels, paths; from letgo.models.denoiser import NoiseDenoiser",
        "f = lambda x_t, t: x_t / 2; wrapped = NoiseDenoiser(f, paths.CosinePath(), (0, 1))",
        "x, e = torch.zeros(2, 3, 4), torch.eye(4)[:3].bool().expand(2, 3, 4)",
        "scheduler = SimpleNamespace(alphas_cumprod=torch.tensor([0.9, 0.5]))",
    ]
    for asked in WRONG:
        lines += ["try:", f"    {asked}", "    print('taken')"]
        lines += ["except letgo.LetgoError as error:", "    print(str(error).replace('\\n', '<newline>'))"]
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
    told = dict(zip(WRONG, done.stdout.splitlines(), strict=True))
    assert {asked: line for asked, line in told.items() if WRONG[asked] not in line or "<newline>" in line} == {}


def test_what_there_is_can_be_listed() -> None:
    assert {"sample", "load", "train", "evaluate", "paths", "kernels"} <= set(dir(letgo))
    assert all(hasattr(letgo, name) for name in dir(letgo))
