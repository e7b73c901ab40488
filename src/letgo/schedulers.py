"""Tweedie reprojection and EM decay as schedulers of diffusers, for pipelines that exist (the extra `diffusers`)."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, SupportsFloat, SupportsIndex

import numpy as np
import torch
from torch import Tensor

from letgo.errors import LetgoError, unknown, whole_number
from letgo.kernels import EulerMaruyama, Rule, Transition, tweedie
from letgo.paths import GaussianPath, LinearPath, TablePath
from letgo.shapes import AnyState, AnyTime

try:
    from diffusers.configuration_utils import ConfigMixin, register_to_config
    from diffusers.schedulers.scheduling_ddpm import DDPMScheduler, DDPMSchedulerOutput
    from diffusers.schedulers.scheduling_utils import SchedulerMixin  # a saved pipeline asks this module for it
    from diffusers.utils.torch_utils import randn_tensor
except ImportError as missing:
    raise ImportError("letgo.schedulers needs the diffusers extra: pip install 'letgo[diffusers]'") from missing

ROUNDING = 1e-5  # a shift takes the first noise level so far above 1
Generators = torch.Generator | list[torch.Generator] | None
Timestep = SupportsFloat  # a number of any kind, or a tensor
Real = float | int
Grid = Sequence[float | int] | np.ndarray | Tensor | None

COMPATIBLE = [
    "DDPMScheduler",
    "DDIMScheduler",
    "LCMScheduler",
    "PNDMScheduler",
    "EulerDiscreteScheduler",
    "EulerAncestralDiscreteScheduler",
    "HeunDiscreteScheduler",
    "DPMSolverMultistepScheduler",
    "DEISMultistepScheduler",
    "UniPCMultistepScheduler",
]
PREDICTIONS = {  # diffusers' name of what a network predicts, and the path's way from it to x0
    "epsilon": "x0_from_eps",
    "v_prediction": "x0_from_v",
    "flow_prediction": "x0_from_velocity",
}
OTHER_LEVELS = ("invert_sigmas", "use_karras_sigmas", "use_exponential_sigmas", "use_beta_sigmas")  # not known here
TIME_SHIFTS = {"exponential": math.exp, "linear": float}  # the shift that mu stands for


def shifted(sigmas: Tensor, shift: Real) -> Tensor:
    """Return the noise levels of a flow, moved towards noise where the shift is above 1."""
    return shift * sigmas / (1 + (shift - 1) * sigmas)


def stretched(sigmas: Tensor, last: Real | None) -> Tensor:
    """Return noise levels whose distances from 1 are scaled so that they end at `last`, where one is given."""
    return 1 - (1 - sigmas) * (1 - last) / (1 - sigmas[-1]).clamp(min=ROUNDING) if last else sigmas


def in_our_words(config: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the configuration of another scheduler says of a flow by having no betas, or by `flow_shift`."""
    default = config.get("_use_default_values", ())  # defaults of a class do not go on to the next one
    chosen = {**{name: value for name, value in config.items() if name not in default}, **settings}
    said: dict[str, Any] = {}
    if "shift" in config and "beta_start" not in config:  # one of diffusers' FlowMatch schedulers
        said = {"use_flow_sigmas": True, "prediction_type": "flow_prediction"}
    if chosen.get("use_flow_sigmas") and "flow_shift" in chosen:
        said["shift"] = chosen["flow_shift"]
    return {name: value for name, value in said.items() if name not in chosen}


def thresholded(x0_hat: AnyState, ratio: Real, largest: Real) -> AnyState:
    """Cut each row at a quantile of its magnitudes, from 1 to `largest`, and divide by it: dynamic thresholding."""
    bound = x0_hat.flatten(1).abs().quantile(ratio, dim=1).clamp(1, largest)
    bound = bound.view(-1, *(1 for _ in x0_hat.shape[1:]))
    return x0_hat.clamp(-bound, bound) / bound


class PathScheduler(SchedulerMixin, ConfigMixin):
    """It holds what both schedulers share. A step depends on its arguments and on `timesteps`, never on the steps
    before it.

    Training step i of a table of betas is t = (i + 1) / T; on the flow path (`use_flow_sigmas`) timestep i is
    t = sigma = i / T.
    """

    _compatibles = COMPATIBLE
    order = 1
    init_noise_sigma = 1.0

    @property
    @abstractmethod
    def rule(self) -> Rule:
        """Return the update rule of `letgo.kernels` that makes a step."""

    @classmethod
    def from_config(cls, config: Any = None, return_unused_kwargs: bool = False, **settings: Any) -> Any:
        """Build the scheduler from its own configuration or that of another one; `settings` come before both."""
        if isinstance(config, dict):
            settings = {**in_our_words(config, settings), **settings}
        return super().from_config(config, return_unused_kwargs, **settings)

    def prepare(self) -> None:
        """Build the path and the full grid from the configuration."""
        known = ["sample", *(name for name in PREDICTIONS if self.flow or name != "flow_prediction")]
        if (kind := self.config["prediction_type"]) not in known:
            raise unknown("prediction_type", kind, known)
        whole_number("num_train_timesteps", self.config["num_train_timesteps"], least=1)
        if self.config["time_shift_type"] not in TIME_SHIFTS:
            raise unknown("time_shift_type", self.config["time_shift_type"], TIME_SHIFTS)
        self.num_inference_steps: int | None = None
        self.path: GaussianPath
        ddpm = self.ddpm()
        self.betas = ddpm.betas
        if self.flow:
            self.path, last = LinearPath(), self.config["num_train_timesteps"]
            self.timesteps = (last * shifted(torch.arange(last, 0, -1) / last, self.fixed_shift)).clamp(max=last)
            return
        self.alphas_cumprod = ddpm.alphas_cumprod
        self.path, self.timesteps = TablePath(self.alphas_cumprod), torch.arange(len(self.betas) - 1, -1, -1)

    def ddpm(self) -> DDPMScheduler:
        """Return the scheduler whose betas and spacings these are, by the configuration of now: pipelines change it."""
        names = ("num_train_timesteps", "beta_start", "beta_end", "beta_schedule", "trained_betas")
        grid = ("timestep_spacing", "steps_offset", "rescale_betas_zero_snr")
        return DDPMScheduler(**{name: self.config[name] for name in (*names, *grid)})

    @property
    def flow(self) -> bool:
        return self.config["use_flow_sigmas"]

    @property
    def fixed_shift(self) -> Real:
        return 1.0 if self.config["use_dynamic_shifting"] else self.config["shift"]

    def __len__(self) -> int:
        return self.config["num_train_timesteps"]

    # The grid

    def set_timesteps(
        self,
        num_inference_steps: SupportsIndex | None = None,
        device: str | torch.device | None = None,
        timesteps: Grid = None,
        sigmas: Grid = None,
        mu: Real | None = None,
    ) -> None:
        """Choose how many steps are made, or at which timesteps, or on the flow path at which noise levels.

        `mu` is the logarithm of the shift where the configuration has `use_dynamic_shifting`, or the shift itself with
        `time_shift_type="linear"`.
        """
        if sigmas is not None and not self.flow:
            raise LetgoError("sigmas are those of the flow path (use_flow_sigmas=True); give timesteps")
        if not self.flow and timesteps is not None and num_inference_steps is not None:
            raise LetgoError("give num_inference_steps or timesteps, not both")
        given: Any = sigmas if sigmas is not None else timesteps
        count = whole_number("num_inference_steps", num_inference_steps if given is None else len(given), least=1)
        if num_inference_steps not in (None, count):
            raise LetgoError(f"num_inference_steps is {num_inference_steps}, but {count} steps are given; leave it out")
        if self.flow:
            chosen = self.flow_timesteps(count, timesteps, sigmas, mu)
        else:
            asked: dict[str, Any] = {"num_inference_steps": count} if given is None else {"timesteps": given}
            ddpm = self.ddpm()
            ddpm.set_timesteps(**asked)
            chosen = ddpm.timesteps
        self.timesteps, self.num_inference_steps = chosen.to(device), len(chosen)

    def flow_timesteps(self, count: int, timesteps: Grid, sigmas: Grid, mu: Real | None) -> Tensor:
        """Return timesteps as they are; noise levels, given or evenly spaced, with the shift."""
        config, last = self.config, self.config["num_train_timesteps"]
        for name in OTHER_LEVELS:
            if config.get(name):
                raise LetgoError(f"the configuration has {name}, which is not known here; give {name}=False")
        if timesteps is not None and sigmas is None:
            chosen = torch.as_tensor(timesteps, dtype=torch.float32)
        else:
            shift = self.fixed_shift
            if config["use_dynamic_shifting"]:
                if mu is None:
                    raise LetgoError("the configuration has use_dynamic_shifting; give mu, the logarithm of the shift")
                shift = TIME_SHIFTS[config["time_shift_type"]](mu)
            least = float(shifted(torch.tensor(1 / last), self.fixed_shift))
            levels = torch.linspace(1, least, count) if sigmas is None else torch.as_tensor(sigmas)
            chosen = last * stretched(shifted(levels.float(), shift), config["shift_terminal"])
        if not bool((chosen.diff() < 0).all() & (chosen >= 0).all() & (chosen <= last * (1 + ROUNDING)).all()):
            raise LetgoError(f"timesteps must fall, from noise to data, within {last} to 0, and sigmas within 1 to 0")
        return chosen.clamp(max=last)

    def set_begin_index(self, begin_index: int = 0) -> None:
        """Keep nothing: pipelines tell where they begin, but a step here is found by its timestep alone."""

    def previous_timestep(self, timestep: Timestep) -> Tensor:
        """Return the grid's largest timestep below this one, which need not be on the grid; data if there is none."""
        below = self.timesteps[self.timesteps < torch.as_tensor(timestep, device=self.timesteps.device)]
        return below.max() if len(below) else torch.tensor(0.0 if self.flow else -1)

    def times(self, timesteps: Timestep, like: Tensor) -> AnyTime:
        """Return t of one timestep, or of one for each row, as it broadcasts against a state."""
        steps = torch.as_tensor(timesteps, device=like.device).to(like.dtype).flatten()
        t = steps / len(self) if self.flow else (steps + 1) / len(self.betas)
        if not bool(((t >= 0) & (t <= 1)).all()):
            last = len(self) if self.flow else len(self.betas) - 1
            raise LetgoError(f"a timestep is from 0 to {last}; got {steps.min():g} to {steps.max():g}")
        return t.view(-1, *(1 for _ in like.shape[1:]))

    # Noise

    def scale_model_input(self, sample: Tensor, timestep: Timestep | None = None) -> Tensor:
        """Return the sample as it is: the network takes x_t."""
        return sample

    def add_noise(self, original_samples: Tensor, noise: Tensor, timesteps: Timestep) -> Tensor:
        """Draw x_t ~ q(x_t | x0) (Eq. 1), made of the noise given, one timestep for each row or one for all."""
        x0 = working(original_samples)
        return self.path.sample(x0, self.times(timesteps, x0), noise.to(x0)).to(original_samples.dtype)

    def scale_noise(self, sample: Tensor, timestep: Timestep, noise: Tensor) -> Tensor:
        """Noise states as `add_noise` does, under the name that flow pipelines call."""
        return self.add_noise(sample, noise, timestep)

    def get_velocity(self, sample: Tensor, noise: Tensor, timesteps: Timestep) -> Tensor:
        """Return what a network of v_prediction is trained to predict from x0 and noise; on the flow path dx/dt."""
        x0 = working(sample)
        t, eps = self.times(timesteps, x0), noise.to(x0)
        of_noise, of_data = (self.path.dbeta, self.path.dalpha) if self.flow else (self.path.alpha, self.path.beta)
        signal = of_data(t) * x0
        return (of_noise(t) * eps + (signal if self.flow else -signal)).to(sample.dtype)

    # A step

    def x0_hat(self, prediction: AnyState, x_t: AnyState, t: AnyTime) -> AnyState:
        """Return the clean estimate, within the range of the data where the configuration asks for it."""
        config = self.config
        way = PREDICTIONS.get(config["prediction_type"])
        x0_hat = prediction if way is None else getattr(self.path, way)(x_t, prediction, t)
        if self.flow:  # diffusers' flow schedulers do not clip: what they sample are latents
            return x0_hat
        if config["thresholding"]:
            return thresholded(x0_hat, config["dynamic_thresholding_ratio"], config["sample_max_value"])
        bound = config["clip_sample_range"]
        return x0_hat.clamp(-bound, bound) if config["clip_sample"] else x0_hat

    def step(
        self,
        model_output: Tensor,
        timestep: Timestep,
        sample: Tensor,
        generator: Generators = None,
        return_dict: bool = True,
    ) -> DDPMSchedulerOutput | tuple[Tensor, Tensor]:
        """Go from x_t to the next timestep of the grid below `timestep`, and return that state and x0_hat."""
        if self.config.get("variance_type") in ("learned", "learned_range"):  # of a configuration of DDPMScheduler's
            model_output = model_output[:, : sample.shape[1]]
        if model_output.shape != sample.shape:
            shapes = f"{tuple(model_output.shape)} and the sample {tuple(sample.shape)}"
            raise LetgoError(f"model_output has the shape {shapes}; cut off what is no prediction (a learned variance)")
        x_t = working(sample)
        t, s = (self.times(at, x_t) for at in (timestep, self.previous_timestep(timestep)))
        x0_hat = self.x0_hat(model_output.to(x_t), x_t, t)

        def draw(purpose: int) -> Tensor:
            noise = randn_tensor(sample.shape, generator, device=sample.device, dtype=model_output.dtype)
            return in_cells(noise.to(x_t))

        moves = (in_cells(x_t), in_cells(x0_hat), t.view(1, 1, 1), s.view(1, 1, 1))
        x_s = self.rule(Transition(self.path, no_network, *moves)).sample(draw).view_as(x_t)
        states = x_s.to(model_output.dtype), x0_hat.to(model_output.dtype)
        return DDPMSchedulerOutput(*states) if return_dict else states


def working(state: Tensor) -> Tensor:
    """Return the state in the precision to compute in: half becomes single, as alpha and beta need it."""
    return state if state.dtype == torch.float64 else state.float()


def in_cells(state: Tensor) -> Tensor:
    """Return a state of any shape as the rules take it."""
    return state.reshape(len(state), -1, 1)


def no_network(x_t: Tensor, t: Tensor) -> Tensor:
    raise LetgoError("a scheduler is given one prediction for each step; this rule asks for two")


class TweedieReprojectionScheduler(PathScheduler):
    """Eq. 8: every step draws x_s ~ N(alpha(s) x0_hat, beta(s)^2 I), so that x_t matters only through x0_hat.

    The configuration has the names of diffusers: `DDPMScheduler`'s, and for a network of rectified flow
    `use_flow_sigmas` with `prediction_type="flow_prediction"`, `shift`, `use_dynamic_shifting`, `time_shift_type` and
    `shift_terminal`.
    """

    @register_to_config
    def __init__(
        self,
        num_train_timesteps: int = 1000,
        beta_start: Real = 0.0001,
        beta_end: Real = 0.02,
        beta_schedule: str = "linear",
        trained_betas: Any = None,
        clip_sample: bool = True,
        prediction_type: str = "epsilon",
        thresholding: bool = False,
        dynamic_thresholding_ratio: Real = 0.995,
        clip_sample_range: Real = 1.0,
        sample_max_value: Real = 1.0,
        timestep_spacing: str = "leading",
        steps_offset: int = 0,
        rescale_betas_zero_snr: bool = False,
        use_flow_sigmas: bool = False,
        shift: Real = 1.0,
        use_dynamic_shifting: bool = False,
        shift_terminal: Real | None = None,
        time_shift_type: str = "exponential",
    ):
        self.prepare()

    @property
    def rule(self) -> Rule:
        return tweedie


class EMDecayScheduler(PathScheduler):
    """Eq. 28, the Euler-Maruyama step of the reverse SDE, with sigma lowered linearly to 0 from progress tau_start on.

    `sigma` and `tau_start` are best chosen for each network; the rest of the configuration is
    `TweedieReprojectionScheduler`'s.
    """

    @register_to_config
    def __init__(
        self,
        num_train_timesteps: int = 1000,
        beta_start: Real = 0.0001,
        beta_end: Real = 0.02,
        beta_schedule: str = "linear",
        trained_betas: Any = None,
        clip_sample: bool = True,
        prediction_type: str = "epsilon",
        thresholding: bool = False,
        dynamic_thresholding_ratio: Real = 0.995,
        clip_sample_range: Real = 1.0,
        sample_max_value: Real = 1.0,
        timestep_spacing: str = "leading",
        steps_offset: int = 0,
        rescale_betas_zero_snr: bool = False,
        use_flow_sigmas: bool = False,
        shift: Real = 1.0,
        use_dynamic_shifting: bool = False,
        shift_terminal: Real | None = None,
        time_shift_type: str = "exponential",
        sigma: Real = 1.0,
        tau_start: Real = 0.7,
    ):
        self.decay = EulerMaruyama(float(sigma), float(tau_start))
        self.prepare()

    @property
    def rule(self) -> Rule:
        return self.decay
