"""A sampler is a rule by its name with its settings; RULES says what each rule takes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from letgo.codecs import Codec
from letgo.discrete import Confidence, Remask, ancestral, remdm
from letgo.errors import LetgoError, unknown, whole_number
from letgo.kernels import EulerMaruyama, Rule, Tempered, ddim, ddpm, euler, heun, resample, tweedie
from letgo.paths import Path
from letgo.sampling import Grid, band_grid

BAND = ("t_max", "t_min")  # the times between which a rule that lets go of the state noises its proposals


@dataclass(frozen=True)
class RuleKind:
    """A RuleKind says what a rule takes, what it costs, and which models it fits."""

    build: Callable[..., Rule]  # from the settings in `takes`
    takes: tuple[str, ...] = ()  # of sigma and tau_start: all of them are needed
    may_take: tuple[str, ...] = ()  # of sigma_ahead, order_noise, temperature: without them it has values of its own
    calls: int = 1  # of the network, for each step
    family: str = "gaussian"  # of the path
    one_hot: bool = False  # it reads x0_hat as probabilities of symbols
    tempers: bool = True  # its variance can be multiplied
    noisy: bool = True  # it has a variance at all: where it has none, multiplying it changes nothing
    forgets: bool = False  # x_s is x0_hat, or a board drawn from it, under fresh noise: x_t is let go

    def fits(self, path: Path, codec: Codec) -> bool:
        codec_family = getattr(codec, "family", "gaussian")
        return self.family == path.family == codec_family and (not self.one_hot or codec.one_hot)

    @property
    def tuned(self) -> tuple[str, ...]:
        """Return the settings that `letgo tune` chooses; those in `takes` have no value otherwise."""
        return (*self.takes, *(BAND if self.forgets else ()))

    @property
    def settings(self) -> list[str]:
        """Return the settings of `Sampler` that change what it does."""
        tempered = ["variance"] if self.tempers and self.noisy else []
        led = ["ahead"] if self.family == "gaussian" else []
        return [*self.tuned, *self.may_take, *tempered, *led, "soft_until"]


def plain(rule: Rule, **facts: Any) -> RuleKind:
    """Return a rule without settings."""
    return RuleKind(lambda: rule, **facts)


RULES: dict[str, RuleKind] = {
    "ddpm": plain(ddpm),
    "ddim": plain(ddim, noisy=False),
    "tweedie": plain(tweedie, forgets=True),
    "resample": plain(resample, one_hot=True, forgets=True),
    "euler": plain(euler, noisy=False),
    "heun": plain(heun, calls=2, noisy=False),
    "em": RuleKind(EulerMaruyama, ("sigma",)),
    "em-decay": RuleKind(EulerMaruyama, ("sigma", "tau_start"), ("sigma_ahead",)),
    "ancestral": plain(ancestral, family="absorbing", tempers=False),
    "confidence": RuleKind(Confidence, (), ("order_noise", "temperature"), family="absorbing", tempers=False),
    "remask": RuleKind(Remask, (), ("order_noise", "temperature"), family="absorbing", tempers=False),
    "remdm": plain(remdm, family="absorbing", tempers=False),
}


# The settings of a `Sampler` beside its rule and steps, each with what it is where nobody says
USUAL = {
    "sigma": None, "tau_start": None, "sigma_ahead": None, "variance": 1.0, "ahead": 0.0, "t_max": 1.0, "t_min": 0.0,
    "soft_until": None, "order_noise": None, "temperature": None,
}  # fmt: skip
SETTINGS = tuple(USUAL)
BEST = ("tweedie", "confidence")  # of each family


def rule_kind(name: str) -> RuleKind:
    if not isinstance(name, str):
        raise LetgoError(f"a model's rule is given by its name, such as 'tweedie'; got {name!r}")
    if name not in RULES:
        raise unknown("rule", name, RULES)
    return RULES[name]


def fitting(path: Path, codec: Codec) -> list[str]:
    """Return the rules that fit a model, the one that suits it best at first."""
    names = [name for name, kind in RULES.items() if kind.fits(path, codec)]
    return sorted(names, key=lambda name: name not in BEST)


@dataclass(frozen=True)
class Sampler:
    """A Sampler is a rule by its name in commands, with its settings; `Solver.sampler` adds those that were tuned."""

    rule: str = "tweedie"
    steps: int = 200
    sigma: float | None = None
    tau_start: float | None = None  # progress tau = 1 - t at which EM decay begins
    sigma_ahead: float | None = None  # steps by which EM decay's sigma runs ahead: 1 takes that of a step's end
    variance: float = 1.0  # factor on the rule's variance (Figure 11)
    ahead: float = 0.0  # steps by which the time that the network is told runs ahead of the state's; not in the paper
    t_max: float = 1.0  # the first proposal is noised to this time, the one before the last to t_min; not in the paper
    t_min: float = 0.0
    soft_until: float | None = None  # t* of soft pinning; None is always hard
    order_noise: float | None = None  # chance in the order of cells instead of in their symbols
    temperature: float | None = None  # of the symbols that confidence and remask draw

    def __post_init__(self) -> None:
        kind = rule_kind(self.rule)
        whole_number("steps", self.steps, 1)
        for name in SETTINGS:
            if not isinstance(value := getattr(self, name), (int, float, type(None))):
                raise LetgoError(f"{name} must be a number, got {value!r}")
        names = ("sigma", "tau_start", "sigma_ahead", "order_noise", "temperature")
        values = {name: getattr(self, name) for name in names}
        for name in kind.takes:
            if values[name] is None:
                flags = " and ".join(f"--{name.replace('_', '-')}" for name in kind.takes)
                raise LetgoError(
                    f"rule '{self.rule}' needs {flags}: none given and none stored with the model; run `letgo tune`, "
                    "or try --sigma 0.3 (em), --sigma 7 --tau-start 0.7 (em-decay)"
                )
        for name, value in values.items():
            if value is not None and name not in (*kind.takes, *kind.may_take):
                takers = ", ".join(rule for rule, other in RULES.items() if name in (*other.takes, *other.may_take))
                raise LetgoError(f"rule '{self.rule}' takes no {name}; only {takers} take it")
        if not 0 <= self.variance < math.inf:
            raise LetgoError(f"variance must be >= 0, got {self.variance}")
        if self.variance != 1.0 and not kind.tempers:
            raise LetgoError(f"rule '{self.rule}' has no variance to multiply; leave variance out")
        if not 0 <= self.ahead < math.inf:
            raise LetgoError(f"ahead must be >= 0, got {self.ahead}")
        if self.ahead and "ahead" not in kind.settings:
            raise LetgoError(f"rule '{self.rule}' takes no ahead; only rules of Gaussian paths do")
        if (self.t_max, self.t_min) != (1.0, 0.0):
            if not kind.forgets:
                takers = ", ".join(rule for rule, other in RULES.items() if other.forgets)
                raise LetgoError(f"rule '{self.rule}' takes no t_max and t_min; only {takers} let go of the state")
            if self.ahead:
                raise LetgoError(
                    "ahead counts steps of the equidistant grid; leave it out, or take t_max 1 and t_min 0"
                )
            self.times()  # it refuses times that do not fall
        if self.soft_until is not None and math.isnan(self.soft_until):
            raise LetgoError("soft_until is not a number; give a time from 0 to 1, or leave it out")
        self.build()  # what a rule refuses is refused here

    def build(self) -> Rule:
        kind = RULES[self.rule]
        rule = kind.build(*(getattr(self, name) for name in (*kind.takes, *kind.may_take)))
        return rule if self.variance == 1.0 else Tempered(rule, self.variance)

    def times(self) -> Grid:
        return band_grid(self.steps, self.t_max, self.t_min)

    @property
    def lead(self) -> float:
        """Return by how much less than t the network is told: `ahead` steps of the equidistant grid."""
        return self.ahead / self.steps

    @property
    def calls_per_step(self) -> int:
        return RULES[self.rule].calls

    @property
    def calls(self) -> int:
        """Return the network calls of one board."""
        return self.steps * self.calls_per_step

    @property
    def asks_anew(self) -> bool:
        """Say whether a proposal is asked for from the last one under fresh noise, and so tells how likely that is."""
        return RULES[self.rule].forgets and self.steps > 1

    @property
    def settings(self) -> dict[str, float]:
        """Return the settings that are not the usual ones, as reports name them."""
        return {name: value for name, default in USUAL.items() if (value := getattr(self, name)) != default}

    def check(self, path: Path, codec: Codec) -> None:
        check_fit(self.rule, path, codec)


class Unfit(LetgoError):
    """A rule does not fit a model's path or codec."""


def check_fit(rule: str, path: Path, codec: Codec) -> None:
    """Refuse a rule that does not fit a model by the names of those that do."""
    if not rule_kind(rule).fits(path, codec):
        others = ", ".join(fitting(path, codec))
        raise Unfit(
            f"rule '{rule}' does not fit a model with {type(path).__name__} and {type(codec).__name__}; "
            f"choose {'one of ' + others if others else 'another codec'}"
        )
