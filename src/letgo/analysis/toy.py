"""The toy of App. J: data on two intervals of the line, denoisers whose sign cannot be trusted, and both samplers.

The data are uniform on [-B, -A] and [A, B]. The oracle answers M or -M by the sign of x_t; `exact` is E[x0 | x_t]. The
corrupted ones are `smooth` (M tanh(x_t), which hesitates near 0), `input-noised` (the sign of x_t plus fresh noise) and
`adversarial` (always the wrong sign).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from letgo.analysis import Report
from letgo.analysis.drawing import COLOURS, caption, panels
from letgo.analysis.study import Study
from letgo.estimates import rate
from letgo.kernels import Rule, Tempered, ddpm, tweedie
from letgo.paths import CosinePath
from letgo.pinning import Clues
from letgo.rng import DRAW, Noise
from letgo.sampling import trajectory, uniform_grid
from letgo.shapes import State, Time

if TYPE_CHECKING:
    from matplotlib.figure import Figure

A, B = 2.0, 3.0
M = (A + B) / 2
PATH, STEPS = CosinePath(), 200
RULES: dict[str, Rule] = {"tweedie": tweedie, "ddpm": ddpm}
SHOWN, POINTS = 16, 40  # trajectories in the picture, and points of each
LATE = 0.9  # the progress at which a state is looked at before its last steps
Denoise = Callable[[State, Time], State]
Real = Float[Tensor, "..."]


def oracle(x_t: State, t: Time) -> State:
    return torch.where(x_t > 0, M, -M)


def exact(x_t: State, t: Time) -> State:
    """Return E[x0 | x_t]: the mean of N(x_t / alpha, (beta / alpha)^2), cut to both intervals."""
    x, alpha, beta = x_t.double(), PATH.alpha(t).double(), PATH.beta(t).double()
    sides = []
    for low, high in ((-B, -A), (A, B)):
        a, b = (alpha * low - x) / beta, (alpha * high - x) / beta
        log_mass = log_between(a, b)
        density = [-0.5 * z**2 - 0.5 * math.log(2 * math.pi) - log_mass for z in (a, b)]
        sides.append((log_mass, x + beta * (density[0].exp() - density[1].exp())))
    (mass, left), (other, right) = sides
    share = torch.sigmoid(mass - other)
    mean = (share * left + (1 - share) * right) / alpha.clamp(min=1e-12)
    return torch.where(alpha < 1e-6, torch.zeros_like(mean), mean).clamp(-B, B).to(x_t)


def log_between(a: Real, b: Real) -> Real:
    """Return log P(a < Z < b) of a standard normal, from the side on which it is accurate."""
    flip = a > 0
    low, high = torch.where(flip, -b, a), torch.where(flip, -a, b)
    upper, lower = torch.special.log_ndtr(high), torch.special.log_ndtr(low)
    return upper + torch.log1p(-(lower - upper).exp().clamp(max=1 - 1e-15))


def smooth(x_t: State, t: Time) -> State:
    return M * x_t.tanh()


def adversarial(x_t: State, t: Time) -> State:
    return -oracle(x_t, t)


def input_noised(noise: Noise) -> Denoise:
    """Return the sign of x_t + N(0, 1), fresh at every time."""

    def denoise(x_t: State, t: Time) -> State:
        step = round(float(t) * 1_000_000)  # which keys the noise
        return oracle(x_t + noise.normal(step, DRAW, 1, 1), t)

    return denoise


def denoisers(noise: Noise) -> dict[str, Denoise]:
    return {"oracle": oracle, "exact": exact, "smooth": smooth, "input-noised": input_noised(noise),
            "adversarial": adversarial}  # fmt: skip


def log10_marginal(y: Real, t: Real) -> Real:
    """Return log10 of the forward marginal q_t(y): each uniform interval, scaled and blurred."""
    alpha, beta = PATH.alpha(t).double(), PATH.beta(t).double()
    parts = [log_between((alpha * low - y) / beta, (alpha * high - y) / beta) for low, high in ((-B, -A), (A, B))]
    inside = torch.logaddexp(*parts) - alpha.clamp(min=1e-12).log() - math.log(2 * (B - A))
    normal = -0.5 * y**2 - 0.5 * math.log(2 * math.pi)  # at t = 1
    return torch.where(alpha < 1e-6, normal, inside) / math.log(10)


def run(study: Study) -> Report:
    """Run both samplers with every denoiser, as they are and, as App. J writes them, with their centers alone."""
    steps, noise = study.wish.steps or STEPS, Noise.first(study.seed, study.count)
    show, cases = study.progress("cases"), [(kind, rule) for kind in (1.0, 0.0) for rule in RULES]
    found: Report = {}
    for done, (variance, rule) in enumerate(cases):
        for name, denoise in denoisers(noise).items():
            result = _sample(denoise, Tempered(RULES[rule], variance), steps, noise, shown=SHOWN if variance else 0)
            found.setdefault("sampled" if variance else "centers", {}).setdefault(name, {})[rule] = result
        show(done + 1, len(cases))
    return {"steps": steps, "A": A, "B": B, **found}


def _sample(denoise: Denoise, rule: Rule, steps: int, noise: Noise, shown: int) -> Report:
    """Return where trajectories end, where they are shortly before, and some of them."""
    nothing = Clues.none(torch.zeros(len(noise), 1, 1))
    walk = trajectory(denoise, PATH, rule, uniform_grid(steps), nothing, noise)
    states = torch.stack([snapshot.x[:, 0, 0] for snapshot in walk])
    late = min(round(LATE * steps), steps - 1) - 1
    t = torch.tensor([1 - (late + 1) / steps])
    lost = states[late].abs() < PATH.alpha(t) * A / 2  # six standard deviations from all data at progress .9
    final = states[-1].abs()
    valid = (final >= A - 1e-5) & (final <= B + 1e-5)
    picked = torch.linspace(0, steps - 1, min(POINTS, steps)).round().long()
    return {
        "validity": rate(int(valid.sum()), len(valid)).as_dict(),
        "between_late": rate(int(lost.sum()), len(lost)).as_dict(),
        "tau": [round((int(i) + 1) / steps, 4) for i in picked],
        "paths": [[round(x, 2) for x in path] for path in states[picked][:, :shown].T.tolist()],
    }


def tell(report: Report) -> str:
    """Tell the final validity, and the share that is far from all data shortly before the end."""
    lines = [f"{'':14}final point valid / still in no-man's-land at progress {LATE}, n = {report['n']}"]
    for kind in ("sampled", "centers"):
        for name, rules in report[kind].items():
            cells = [
                f"{rule} {one['validity']['value']:.3f} / {one['between_late']['value']:.3f}"
                for rule, one in rules.items()
            ]
            lines.append(f"{name:14}{'   '.join(cells)}{'   (centers alone, no noise)' if kind == 'centers' else ''}")
    return "\n".join(lines)


def plot(reports: list[Report]) -> Figure:
    """Draw the forward marginal (Fig. 4), and trajectories under each denoiser (Fig. 5)."""
    report = reports[0]
    names = list(report["sampled"])
    figure, axes = panels(2, 1 + len(names), size=(2.0, 2.1))
    _draw_marginal(figure, axes[0][0])
    axes[1][0].axis("off")
    for row, rule in zip(axes, RULES, strict=True):
        for axis, name in zip(row[1:], names, strict=True):
            one = report["sampled"][name][rule]
            for side in (-1, 1):
                axis.axhspan(side * A, side * B, color="#5b8c5a", alpha=0.15, lw=0)
            for path in one["paths"]:
                axis.plot(one["tau"], path, color=COLOURS[rule], lw=0.5, alpha=0.6)
            axis.set_ylim(-4.5, 4.5)
            valid, between = one["validity"]["value"], one["between_late"]["value"]
            axis.set_title(f"{name}, {rule}\nvalid {valid:.2f}, lost late {between:.2f}")
            axis.set_xlabel("progress tau")
        row[1].set_ylabel("x_t")
    caption(figure, reports)
    return figure


def _draw_marginal(figure: Figure, axis: object) -> None:
    t, y = torch.linspace(0.01, 1, 60, dtype=torch.float64), torch.linspace(-4.5, 4.5, 91, dtype=torch.float64)
    density = log10_marginal(y[:, None], t[None]).clamp(min=-6)
    picture = axis.imshow(  # pyright: ignore[reportAttributeAccessIssue]
        density.flip(1).numpy(), extent=(0, 1, -4.5, 4.5), origin="lower", aspect="auto", cmap="viridis"
    )
    axis.set_title("forward marginal")  # pyright: ignore[reportAttributeAccessIssue]
    axis.set_xlabel("progress tau")  # pyright: ignore[reportAttributeAccessIssue]
    axis.set_ylabel("y")  # pyright: ignore[reportAttributeAccessIssue]
    axis.grid(False)  # pyright: ignore[reportAttributeAccessIssue]
    figure.colorbar(picture, ax=axis, label="log10 q_t(y)")  # pyright: ignore[reportArgumentType]
