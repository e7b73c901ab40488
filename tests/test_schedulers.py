"""Our schedulers of diffusers: against our kernels, against the two of diffusers that equal them, and in a pipeline."""

from __future__ import annotations

import contextlib
import copy
import importlib
import inspect
import io
import json
import pickle
import re
import sys
from itertools import pairwise
from pathlib import Path

import diffusers
import numpy as np
import pytest
import torch
from diffusers.configuration_utils import FrozenDict
from torch import Tensor
from torch.testing import assert_close

from letgo.errors import LetgoError
from letgo.kernels import EulerMaruyama, Transition, tweedie
from letgo.models.denoiser import ExactDenoiser
from letgo.paths import LinearPath, TablePath
from letgo.rng import KERNEL
from letgo.schedulers import EMDecayScheduler, TweedieReprojectionScheduler

SHAPE = (2, 3, 4, 4)
BOTH = pytest.mark.parametrize("kind", [TweedieReprojectionScheduler, EMDecayScheduler])
FLOW = {"use_flow_sigmas": True, "prediction_type": "flow_prediction"}
DYNAMIC = {"use_dynamic_shifting": True, "time_shift_type": "linear"}
RULES = {TweedieReprojectionScheduler: tweedie, EMDecayScheduler: EulerMaruyama(0.8, 0.6)}
SETTINGS = {TweedieReprojectionScheduler: {}, EMDecayScheduler: {"sigma": 0.8, "tau_start": 0.6}}


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape or SHAPE, generator=seeded(seed))


def network(x: Tensor, timestep: Tensor | float) -> Tensor:
    """Any smooth function of state and timestep."""
    return torch.tanh(x.roll(1, -1) + float(timestep) / 1000) / 2 + x / 3


def configured(scheduler) -> dict:
    """Its configuration, without what diffusers notes for itself."""
    return {name: value for name, value in scheduler.config.items() if not name.startswith("_")}


def run(scheduler, x: Tensor | None = None, seed: int = 7) -> list[Tensor]:
    """The states from noise to data."""
    states, generator = [normal(2) if x is None else x], seeded(seed)
    for timestep in scheduler.timesteps:
        output = network(states[-1], timestep)
        states.append(scheduler.step(output, timestep, states[-1], generator=generator).prev_sample)
    return states


# Against our kernels and theirs


@BOTH
@pytest.mark.parametrize("prediction", ["epsilon", "sample", "v_prediction"])
def test_a_step_is_that_of_our_kernel_on_the_same_noise(kind, prediction: str) -> None:
    scheduler = kind(prediction_type=prediction, clip_sample=False, **SETTINGS[kind])
    scheduler.set_timesteps(20)
    products = diffusers.DDPMScheduler().alphas_cumprod
    path, generator, x = TablePath(products), seeded(7), normal(2).view(2, -1, 1)
    states = run(scheduler)
    for timestep, lower, state in zip(scheduler.timesteps, [*scheduler.timesteps[1:], -1], states[1:], strict=True):
        t, s = ((torch.as_tensor(at).view(1, 1, 1) + 1) / 1000 for at in (timestep, lower))
        output = network(x.view(SHAPE), timestep).view(2, -1, 1)
        signal, noise = products[timestep] ** 0.5, (1 - products[timestep]) ** 0.5  # the field's formulas
        x0_hat = {
            "epsilon": (x - noise * output) / signal,
            "sample": output,
            "v_prediction": signal * x - noise * output,
        }
        rule = RULES[kind](Transition(path, lambda x, t: x, x, x0_hat[prediction], t, s))
        draw = torch.randn(SHAPE, generator=generator).view(2, -1, 1)
        assert_close(state.view(2, -1, 1), rule.sample({KERNEL: draw}.__getitem__), rtol=1e-4, atol=1e-5)
        x = state.view(2, -1, 1)


@pytest.mark.fast
@pytest.mark.parametrize("schedule", ["linear", "scaled_linear", "squaredcos_cap_v2"])
@pytest.mark.parametrize("prediction", ["epsilon", "sample", "v_prediction"])
def test_tweedie_is_the_lcm_scheduler_but_for_its_last_step(prediction: str, schedule: str) -> None:
    """A huge timestep_scaling switches off LCM's skip connection."""
    settings = {"prediction_type": prediction, "clip_sample": False, "beta_schedule": schedule, "beta_end": 0.02}
    theirs = diffusers.LCMScheduler(**settings, beta_start=1e-4, timestep_scaling=1e9)
    ours = TweedieReprojectionScheduler.from_config(theirs.config, **settings, beta_start=1e-4)
    for scheduler in (theirs, ours):
        scheduler.set_timesteps(timesteps=list(range(950, 0, -50)))
    assert_close(ours.alphas_cumprod, theirs.alphas_cumprod)
    for own, other in zip(run(ours)[:-1], run(theirs)[:-1], strict=True):
        assert_close(own, other, rtol=1e-5, atol=5e-6)


@pytest.mark.fast
@pytest.mark.parametrize(
    "settings",
    [{}, {"shift": 3.0}, {"use_dynamic_shifting": True}, {**DYNAMIC, "shift_terminal": 0.1}],
)
@pytest.mark.parametrize("given", ["count", "sigmas"])
def test_tweedie_on_the_flow_path_is_stochastic_sampling_of_diffusers(settings: dict, given: str) -> None:
    theirs = diffusers.FlowMatchEulerDiscreteScheduler(stochastic_sampling=True, **settings)
    ours = TweedieReprojectionScheduler.from_config(theirs.config)  # that it is of a flow is seen
    shift = {"mu": 0.7} if settings.get("use_dynamic_shifting") else {}
    for scheduler in (theirs, ours):
        scheduler.set_timesteps(
            **({"sigmas": [1.0, 0.7, 0.2]} if given == "sigmas" else {"num_inference_steps": 12}), **shift
        )
    assert_close(ours.timesteps, theirs.timesteps)
    assert_close(run(ours), run(theirs), rtol=1e-5, atol=2e-6)
    noisy = ours.scale_noise(normal(3), ours.timesteps[1:2], normal(4))
    theirs.set_begin_index(1)
    theirs._step_index = None
    assert_close(noisy, theirs.scale_noise(normal(3), theirs.timesteps[1:2], normal(4)))


@BOTH
def test_a_flow_is_the_same_flow_in_other_classes_and_in_a_file(kind, tmp_path: Path) -> None:
    flow = {"use_flow_sigmas": True, "prediction_type": "flow_prediction", "flow_shift": 5.0}
    theirs = diffusers.UniPCMultistepScheduler(**flow)
    euler = diffusers.FlowMatchEulerDiscreteScheduler(shift=5.0)
    euler.save_pretrained(tmp_path)
    for ours in (
        kind.from_config(theirs.config),
        kind.from_config(diffusers.UniPCMultistepScheduler().config, **flow),
        kind.from_config(euler.config),
        kind.from_pretrained(tmp_path),
    ):
        assert (ours.config.prediction_type, ours.config.shift, ours.flow) == ("flow_prediction", 5.0, True)
        assert_close(ours.timesteps, euler.timesteps)
        assert kind.from_config(type(euler).from_config(ours.config).config).timesteps.equal(ours.timesteps)
        again = kind.from_config(type(theirs).from_config(ours.config).config)
        assert configured(again).items() >= {**configured(ours), **flow}.items() - {("flow_shift", 5.0)}
    assert not kind.from_config(diffusers.DDPMScheduler().config).flow
    plain = kind.from_config(euler.config, use_flow_sigmas=False, prediction_type="sample")
    assert (plain.flow, plain.config.prediction_type) == (False, "sample")


def test_em_decay_on_the_flow_path_is_our_kernel_and_euler_without_noise() -> None:
    ours, theirs = EMDecayScheduler(**FLOW, sigma=0.0), diffusers.FlowMatchEulerDiscreteScheduler()
    for scheduler in (ours, theirs):
        scheduler.set_timesteps(12)
    assert_close(run(ours), run(theirs), rtol=1e-4, atol=1e-5)
    ours = EMDecayScheduler(**FLOW, sigma=0.8, tau_start=0.6)
    ours.set_timesteps(5)
    generator, path, states = seeded(7), LinearPath(), run(ours)
    for (t, s), (x, after) in zip(pairwise([*ours.timesteps / 1000, torch.zeros(())]), pairwise(states), strict=True):
        x0_hat = x - t * network(x, 1000 * t)
        cells = (x.view(2, -1, 1), x0_hat.view(2, -1, 1), t.view(1, 1, 1), s.view(1, 1, 1))
        noise = torch.randn(SHAPE, generator=generator).view(2, -1, 1)
        kernel = EulerMaruyama(0.8, 0.6)(Transition(path, lambda x, t: x, *cells))
        assert_close(after.view(2, -1, 1), kernel.sample({KERNEL: noise}.__getitem__), rtol=1e-4, atol=1e-5)


@BOTH
@pytest.mark.parametrize("flow", [False, True])
def test_an_exact_denoiser_ends_on_the_data(kind, flow: bool) -> None:
    """EM leaves noise of the size of beta at the last timestep but zero, .01 with these betas."""
    data = 2 * torch.eye(4)[torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2], [3, 2, 1, 0]])] - 1
    scheduler = kind(prediction_type="sample", clip_sample=False, use_flow_sigmas=flow)
    scheduler.set_timesteps(50)
    denoise, x, generator = ExactDenoiser(data, scheduler.path), normal(2, 32, 4, 4), seeded(3)
    for timestep in scheduler.timesteps:
        t = (timestep + (not flow)).view(1, 1, 1) / 1000
        x = scheduler.step(denoise(x, t), timestep, x, generator=generator).prev_sample
    nearest = (x[:, None] - data).abs().amax((2, 3)).min(1)
    assert nearest.values.max() < (1e-6 if kind is TweedieReprojectionScheduler else 0.05)
    assert nearest.indices.unique().tolist() == [0, 1, 2]  # none of three is missed by 32: 3 (2/3)^32 = 7e-6


# What every scheduler of diffusers does


@BOTH
@pytest.mark.parametrize(
    "settings",
    [{"thresholding": True, "sample_max_value": 1.5}, {"clip_sample_range": 0.7}, {"rescale_betas_zero_snr": True}],
)
def test_estimates_grids_and_noise_are_those_of_ddpm(kind, settings: dict) -> None:
    settings = {**settings, "prediction_type": "v_prediction", "timestep_spacing": "trailing"}
    ours, theirs = kind(**settings), diffusers.DDPMScheduler(**settings)
    x0, noise, timesteps = normal(1), normal(2), torch.tensor([3, 700])
    assert_close(ours.betas, theirs.betas)
    assert_close(ours.add_noise(x0, noise, timesteps), theirs.add_noise(x0, noise, timesteps))
    assert_close(ours.get_velocity(x0, noise, timesteps), theirs.get_velocity(x0, noise, timesteps))
    for spacing in ("leading", "linspace", "trailing"):
        own, other = (s.from_config(s.config, timestep_spacing=spacing, steps_offset=1) for s in (ours, theirs))
        for count in (1, 7, 50, 999):
            own.set_timesteps(count)
            other.set_timesteps(count)
            assert own.timesteps.tolist() == other.timesteps.tolist()
            assert own.num_inference_steps == count
    theirs.set_timesteps(20)
    ours.set_timesteps(20)
    for timestep in theirs.timesteps[::6]:
        estimates = [s.step(3 * noise, timestep, x0).pred_original_sample for s in (ours, theirs)]
        assert_close(*estimates, rtol=1e-4, atol=1e-5)


@BOTH
def test_a_configuration_survives_being_saved_and_other_classes(kind, tmp_path: Path) -> None:
    scheduler = kind(num_train_timesteps=100, beta_schedule="squaredcos_cap_v2", clip_sample=False, steps_offset=1)
    scheduler.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "scheduler_config.json").read_text())["_class_name"] == kind.__name__
    loaded = kind.from_pretrained(tmp_path)
    assert configured(loaded) == configured(scheduler)
    for one in (scheduler, loaded):
        one.set_timesteps(10)
    assert_close(run(loaded), run(scheduler), rtol=0, atol=0)
    assert {other.__name__ for other in scheduler.compatibles} == set(kind._compatibles)
    for other in scheduler.compatibles:
        back = kind.from_config(other.from_config(scheduler.config).config)
        assert configured(back).items() >= configured(scheduler).items(), other


@BOTH
def test_attributes_of_its_own_and_of_the_configuration_are_told_apart(kind) -> None:
    scheduler = kind()
    scheduler.own = 5
    scheduler.register_to_config(noted=6)
    assert scheduler.own == 5  # without a warning, which would be an error
    with pytest.warns(FutureWarning, match="noted"):
        assert scheduler.noted == 6
    with pytest.raises(AttributeError, match=f"'{kind.__name__}' object has no attribute 'absent'"):
        _ = scheduler.absent
    assert "kwargs" not in inspect.signature(kind.__init__).parameters


@BOTH
def test_a_saved_file_may_say_more_or_less_than_the_class_takes(kind, tmp_path: Path) -> None:
    scheduler = kind(beta_schedule="scaled_linear", **SETTINGS[kind])
    scheduler.save_config(tmp_path)
    file = tmp_path / "scheduler_config.json"
    said = json.loads(file.read_text())
    assert said.pop("timestep_spacing") == "leading"
    file.write_text(json.dumps({**said, "of_tomorrow": True}))
    loaded = kind.from_pretrained(tmp_path)  # what it does not know, diffusers hands on to the next class
    assert configured(loaded) == {**configured(scheduler), "of_tomorrow": True}
    # A default is the class's own; what somebody chose goes with the configuration from class to class.
    theirs = diffusers.EulerDiscreteScheduler.from_config(scheduler.config)
    assert theirs.config.timestep_spacing == diffusers.EulerDiscreteScheduler().config.timestep_spacing == "linspace"
    chosen = diffusers.EulerDiscreteScheduler.from_config(scheduler.config, timestep_spacing="trailing")
    assert kind.from_config(chosen.config).config.timestep_spacing == "trailing"
    assert not kind._deprecated_kwargs


@BOTH
@pytest.mark.parametrize("flow", [{}, FLOW])
def test_it_can_be_pickled_and_copied_on_its_way(kind, flow: dict) -> None:
    scheduler = kind(**flow, **SETTINGS[kind])
    scheduler.set_timesteps(5)
    states = run(scheduler)
    for other in (pickle.loads(pickle.dumps(scheduler)), copy.deepcopy(scheduler)):
        assert configured(other) == configured(scheduler)
        assert_close(run(other), states, rtol=0, atol=0)
    scheduler.set_timesteps(3, device="meta")
    assert scheduler.timesteps.device.type == "meta"


@BOTH
def test_trained_betas_may_be_of_any_length(kind, tmp_path: Path) -> None:
    scheduler = kind(trained_betas=np.array([0.1, 0.3]))
    scheduler.save_pretrained(tmp_path)
    assert_close(scheduler.betas, torch.tensor([0.1, 0.3]))
    assert_close(kind.from_pretrained(tmp_path).alphas_cumprod, torch.tensor([0.9, 0.63]))
    assert scheduler.timesteps.tolist() == [1, 0]
    assert len(scheduler) == 1000
    assert_close(kind(**FLOW, trained_betas=[0.1, 0.3]).betas, torch.tensor([0.1, 0.3]))  # not heeded there


@BOTH
@pytest.mark.parametrize("flow", [{}, FLOW])
def test_a_step_keeps_shape_and_dtype_and_repeats(kind, flow: dict) -> None:
    scheduler = kind(**flow)
    scheduler.set_timesteps(10)
    assert (scheduler.order, scheduler.init_noise_sigma) == (1, 1.0)
    timestep = scheduler.timesteps[3]
    for shape in ((2, 5), SHAPE, (1, 2, 3, 4, 5)):
        for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
            x, output = normal(1, *shape).to(dtype), normal(2, *shape).to(dtype)
            out = scheduler.step(output, timestep, x, generator=seeded(0))
            assert {(s.shape, s.dtype) for s in (out.prev_sample, out.pred_original_sample)} == {(x.shape, dtype)}
            pair = scheduler.step(output, timestep, x, generator=seeded(0), return_dict=False)
            assert_close(pair, (out.prev_sample, out.pred_original_sample), rtol=0, atol=0)
            assert not torch.equal(out.prev_sample, scheduler.step(output, timestep, x, generator=seeded(1))[0])
            noisy = scheduler.add_noise(x, output, timestep.expand(shape[0]))
            assert (noisy.shape, noisy.dtype) == (x.shape, dtype)
            assert scheduler.scale_model_input(x, timestep) is x
    rows = scheduler.step(normal(2), timestep, normal(1), generator=[seeded(5), seeded(6)]).prev_sample
    alone = scheduler.step(normal(2)[1:], timestep, normal(1)[1:], generator=seeded(6)).prev_sample
    assert_close(rows[1:], alone)


@BOTH
def test_steps_may_come_in_any_order_and_from_outside_the_grid(kind) -> None:
    scheduler = kind(**SETTINGS[kind])
    assert scheduler.previous_timestep(5) == 4
    scheduler.set_timesteps(timesteps=[900, 400, 30])
    lower = {950: 900, 900: 400, 899: 400, 31: 30, 30: -1, 0: -1}
    assert {at: scheduler.previous_timestep(at) for at in lower} == lower

    def step(timestep: int) -> Tensor:
        return scheduler.step(normal(2), timestep, normal(1), generator=seeded(0)).prev_sample

    assert scheduler.previous_timestep(scheduler.timesteps[0]).item() == 400  # a tensor, as diffusers' own
    first = {at: step(at) for at in lower}
    assert_close({at: step(at) for at in reversed(lower)}, first, rtol=0, atol=0)
    assert_close(first[900], step(torch.tensor(900)), rtol=0, atol=0)
    if kind is TweedieReprojectionScheduler:
        assert_close(first[30], scheduler.step(normal(2), 30, normal(1)).pred_original_sample, rtol=0, atol=0)
    for timestep in (1000, -2):
        with pytest.raises(LetgoError, match="from 0 to 999"):
            step(timestep)


@pytest.mark.parametrize(
    ("settings", "asked", "error"),
    [
        ({"prediction_type": "flow_prediction"}, {}, "unknown prediction_type"),
        ({"prediction_type": "eps"}, {}, "choose one of sample, epsilon, v_prediction"),
        ({}, {}, "num_inference_steps must be a whole number"),
        ({}, {"num_inference_steps": 0}, "at least 1"),
        ({}, {"sigmas": [1.0]}, "use_flow_sigmas=True"),
        ({"num_train_timesteps": -1}, {}, "num_train_timesteps must be at least 1"),
        ({}, {"num_inference_steps": 2, "timesteps": [9, 1]}, "not both"),
        (FLOW, {"num_inference_steps": 3, "timesteps": [9, 1]}, "2 steps are given"),
        ({}, {"timesteps": [1, 9]}, "descending"),
        (FLOW, {"timesteps": [1, 9]}, "must fall"),
        (FLOW, {"timesteps": [1001, 9]}, "within 1000 to 0"),
        (FLOW, {"sigmas": [1.0, -0.5]}, "within 1 to 0"),
        (FLOW, {"sigmas": [float("nan")]}, "within 1 to 0"),
        ({**FLOW, "use_dynamic_shifting": True}, {"num_inference_steps": 3}, "give mu"),
        ({**FLOW, "time_shift_type": "cubic"}, {}, "choose one of exponential, linear"),
    ],
)
def test_what_cannot_be_is_said(settings: dict, asked: dict, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        TweedieReprojectionScheduler(**settings).set_timesteps(**asked)


@BOTH
@pytest.mark.parametrize("most", [0.002, 0.02, 0.2, 2])
def test_betas_may_be_so_large_that_nothing_of_the_data_is_left(kind, most: float) -> None:
    scheduler = kind(beta_start=most / 20, beta_end=most)
    for timestep in (0, np.int64(500), 999.0):  # numbers of any kind
        assert scheduler.step(0.1 * normal(1), timestep, normal(1)).prev_sample.isfinite().all()


@pytest.mark.parametrize("shift", [0.03, 1.59, 2.9, 2.91, 3, 4.03])
def test_no_shift_leads_beyond_noise(shift: float) -> None:
    """Single precision takes some of them a little above sigma = 1."""
    for settings, mu in (({"shift": shift}, None), ({"use_dynamic_shifting": True}, shift / 4)):
        scheduler = TweedieReprojectionScheduler(**FLOW, **settings)
        for grid in ({"num_inference_steps": 4}, {"sigmas": np.array([1.0, 0.5])}):
            scheduler.set_timesteps(**grid, mu=mu)
            assert scheduler.step(normal(1), scheduler.timesteps[0], normal(2)).prev_sample.isfinite().all()


def test_a_learned_variance_is_not_taken_for_a_prediction() -> None:
    with pytest.raises(LetgoError, match="learned variance"):
        TweedieReprojectionScheduler().step(normal(1, 2, 6, 4, 4), 9, normal(1))
    theirs = diffusers.DDPMScheduler(variance_type="learned_range")
    ours = TweedieReprojectionScheduler.from_config(theirs.config)  # which says that there is one
    estimates = [s.step(normal(1, 2, 6, 4, 4), 9, normal(1)).pred_original_sample for s in (ours, theirs)]
    assert_close(*estimates)


@pytest.mark.parametrize("name", ["invert_sigmas", "use_karras_sigmas"])
def test_noise_levels_that_are_not_known_are_refused(name: str) -> None:
    theirs = diffusers.FlowMatchEulerDiscreteScheduler(**{name: True})
    with pytest.raises(LetgoError, match=f"{name}=False"):
        TweedieReprojectionScheduler.from_config(theirs.config).set_timesteps(4)


# In a pipeline


@BOTH
def test_what_a_pipeline_changes_in_the_configuration_counts(kind) -> None:
    """Those of Stable Diffusion set steps_offset to 1 and clip_sample to False, in this way."""
    scheduler = kind()
    scheduler._internal_dict = FrozenDict({**scheduler.config, "steps_offset": 1, "clip_sample": False})
    scheduler.set_timesteps(4)
    assert scheduler.timesteps.tolist() == [751, 501, 251, 1]
    assert scheduler.step(torch.zeros(SHAPE), 1, torch.full(SHAPE, 5.0)).pred_original_sample.min() > 4


@BOTH
def test_a_pipeline_takes_it_and_is_saved_and_loaded_with_it(kind, tmp_path: Path) -> None:
    blocks = {"down_block_types": ("DownBlock2D",), "up_block_types": ("UpBlock2D",), "block_out_channels": (8,)}
    torch.manual_seed(0)
    unet = diffusers.UNet2DModel(8, 1, 1, layers_per_block=1, norm_num_groups=2, attention_head_dim=8, **blocks)
    pipeline = diffusers.DDPMPipeline(unet, diffusers.DDPMScheduler(beta_schedule="squaredcos_cap_v2"))
    pipeline.scheduler = kind.from_config(pipeline.scheduler.config, **SETTINGS[kind])
    pipeline.save_pretrained(tmp_path)
    loaded = diffusers.DDPMPipeline.from_pretrained(tmp_path)
    assert type(loaded.scheduler) is kind
    assert configured(loaded.scheduler) == configured(pipeline.scheduler)
    images = []
    for one in (pipeline, loaded):
        one.set_progress_bar_config(disable=True)
        images.append(one(2, generator=seeded(3), num_inference_steps=6, output_type="np").images)
    np.testing.assert_allclose(*images, atol=1e-5)
    scheduler, generator = pipeline.scheduler, seeded(3)
    x = torch.randn(2, 1, 8, 8, generator=generator)
    with torch.no_grad():
        for timestep in scheduler.timesteps:
            x = scheduler.step(unet(x, timestep).sample, timestep, x, generator=generator).prev_sample
    np.testing.assert_allclose(images[0], (x / 2 + 0.5).clamp(0, 1).permute(0, 2, 3, 1).numpy(), atol=1e-6)


def test_the_examples_of_the_page_run() -> None:
    page = (Path(__file__).parent.parent / "docs" / "schedulers.md").read_text()
    for code in re.findall(r"^```python\n(.*?)^```$", page, re.S | re.M):
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown):
            exec(code, {})
        assert shown.getvalue().strip() == code.rstrip().rpartition("  # ")[2]


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "letgo.schedulers")
    monkeypatch.setitem(sys.modules, "diffusers.configuration_utils", None)  # an import of it fails
    with pytest.raises(ImportError, match=re.escape("pip install 'letgo[diffusers]'")):
        importlib.import_module("letgo.schedulers")
