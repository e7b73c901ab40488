"""Update rules. Each says where the next state is centred and how far it spreads; only the loop draws noise."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from letgo.errors import LetgoError, unknown
from letgo.paths import GaussianPath
from letgo.shapes import State, Time

LEAST = 1e-6  # the probability that `resample` leaves to every symbol


@dataclass(frozen=True)
class Kernel:
    """x_s ~ N(center, scale^2 I)."""

    center: State
    scale: Time

    def sample(self, noise: State) -> State:
        return self.center + self.scale * noise


def nothing_to_draw() -> State:
    raise LetgoError("this rule draws symbols: give its Transition `draw`, which returns a standard normal state")


@dataclass(frozen=True)
class Transition:
    """All that a rule may look at on the way from t to s < t."""

    path: GaussianPath
    denoise: Callable[[State, Time], State]
    x_t: State
    x0_hat: State
    t: Time
    s: Time
    draw: Callable[[], State] = nothing_to_draw  # noise of its own, for a rule that draws symbols

    @property
    def h(self) -> Time:
        return self.t - self.s

    @property
    def alpha_t(self) -> Time:
        return self.path.alpha(self.t)

    @property
    def beta_t(self) -> Time:
        return self.path.beta(self.t)

    @property
    def alpha_s(self) -> Time:
        return self.path.alpha(self.s)

    @property
    def beta_s(self) -> Time:
        return self.path.beta(self.s)

    @property
    def eps_hat(self) -> State:
        return self.path.eps(self.x_t, self.x0_hat, self.t)

    @property
    def score_hat(self) -> State:
        return self.path.score(self.x_t, self.x0_hat, self.t)

    @property
    def velocity_hat(self) -> State:
        return self.path.velocity(self.x_t, self.x0_hat, self.t)


Rule = Callable[[Transition], Kernel]


def generalized_ddim(step: Transition, kappa: Time) -> Kernel:
    """Eq. 25: kappa = 0 is DDIM, the posterior scale is DDPM, beta(s) is Tweedie reprojection."""
    anchor = (step.beta_s**2 - kappa**2).clamp(min=0).sqrt()  # rounding can go below zero
    return Kernel(step.alpha_s * step.x0_hat + anchor * step.eps_hat, kappa)


def ddpm(step: Transition) -> Kernel:
    """kappa^2 is the posterior variance (Eq. 15)."""
    delta = (step.alpha_t / step.alpha_s) ** 2
    return generalized_ddim(step, step.beta_s * (1 - delta * step.beta_s**2 / step.beta_t**2).clamp(min=0).sqrt())


def ddim(step: Transition) -> Kernel:
    """kappa = 0: no fresh noise (App. B.1)."""
    return generalized_ddim(step, torch.zeros_like(step.s))


def tweedie(step: Transition) -> Kernel:
    """Eq. 8: x_t matters only through x0_hat."""
    return Kernel(step.alpha_s * step.x0_hat, step.beta_s)


def resample(step: Transition) -> Kernel:
    """Not in the paper: Eq. 8 around symbols drawn from x0_hat, read as probabilities, instead of their mean.

    For one-hot states. Where cells are independent and x0_hat is exact, x_s is distributed as training's x_s.
    """
    gumbel = -(-torch.special.log_ndtr(step.draw())).log()
    drawn = (step.x0_hat.clamp(min=LEAST).log() + gumbel).argmax(-1)
    board = F.one_hot(drawn, step.x0_hat.shape[-1]).to(step.x0_hat.dtype)
    return Kernel(step.alpha_s * torch.where(step.s > 0, board, step.x0_hat), step.beta_s)


def euler(step: Transition) -> Kernel:
    """Eq. 26."""
    return Kernel(step.x_t - step.h * step.velocity_hat, torch.zeros_like(step.s))


def heun(step: Transition) -> Kernel:
    """Second order: Euler's velocity averaged with the one at its end point. At s = 0 there is none: Euler."""
    velocity_t = step.velocity_hat
    x_s = step.x_t - step.h * velocity_t
    velocity_s = step.path.velocity(x_s, step.denoise(x_s, step.s), step.s)
    velocity = torch.where(step.s > 0, (velocity_t + velocity_s) / 2, velocity_t)
    return Kernel(step.x_t - step.h * velocity, torch.zeros_like(step.s))


def euler_maruyama(step: Transition, sigma: Time) -> Kernel:
    """Eq. 28."""
    drift = -step.velocity_hat + sigma**2 / 2 * step.score_hat
    return Kernel(step.x_t + step.h * drift, sigma * step.h.sqrt())


@dataclass(frozen=True)
class EulerMaruyama:
    """Eq. 28 with sigma constant; EM decay lowers sigma linearly to 0 from progress tau_start = 1 - t on."""

    sigma: float
    tau_start: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.sigma < math.inf or (self.tau_start is not None and not 0 <= self.tau_start <= 1):
            raise LetgoError(f"sigma must be >= 0 and tau_start in [0, 1], got {self.sigma} and {self.tau_start}")

    def sigma_at(self, t: Time) -> Time:
        if self.tau_start is None or self.tau_start >= 1:
            return torch.full_like(t, self.sigma)
        return self.sigma * (t / (1 - self.tau_start)).clamp(max=1)

    def __call__(self, step: Transition) -> Kernel:
        return euler_maruyama(step, self.sigma_at(step.t))


@dataclass(frozen=True)
class Tempered:
    """Any rule with its per-step variance multiplied (Figure 11)."""

    rule: Rule
    variance: float

    def __call__(self, step: Transition) -> Kernel:
        kernel = self.rule(step)
        return Kernel(kernel.center, kernel.scale * self.variance**0.5)


PLAIN_RULES: dict[str, Rule] = {
    "ddpm": ddpm,
    "ddim": ddim,
    "tweedie": tweedie,
    "resample": resample,
    "euler": euler,
    "heun": heun,
}
RULES = (*PLAIN_RULES, "em", "em-decay")


def make_rule(name: str, sigma: float | None = None, tau_start: float | None = None, variance: float = 1.0) -> Rule:
    """A rule by its name on the command line, with its settings."""
    if name in PLAIN_RULES:
        if sigma is not None or tau_start is not None:
            raise LetgoError(f"rule '{name}' takes no sigma or tau_start; only em and em-decay do")
        rule = PLAIN_RULES[name]
    elif name == "em" or name == "em-decay":
        if sigma is None or (name == "em-decay" and tau_start is None):
            needs = "--sigma" if name == "em" else "--sigma and --tau-start"
            raise LetgoError(
                f"rule '{name}' needs {needs}: none given and none stored with the model; run `letgo tune`, "
                "or try --sigma 0.3 (em), --sigma 7 --tau-start 0.7 (em-decay)"
            )
        if name == "em" and tau_start is not None:
            raise LetgoError("rule 'em' keeps sigma constant and takes no tau_start; use em-decay")
        rule = EulerMaruyama(sigma, tau_start)
    else:
        raise unknown("rule", name, RULES)
    if not 0 <= variance < math.inf:
        raise LetgoError(f"variance must be >= 0, got {variance}")
    return rule if variance == 1.0 else Tempered(rule, variance)
