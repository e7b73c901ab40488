"""`letgo.sample`: the sampler alone, for a diffusion model of one's own and states of any shape."""

from __future__ import annotations

import inspect
import math
import operator
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from letgo.errors import LetgoError, whole_number
from letgo.kernels import Rule
from letgo.machine import pick_device, refuse_beyond_memory
from letgo.models.denoiser import Clip, Foreign, check_network, checked_clip, split_output
from letgo.paths import CosinePath, GaussianPath, Path, checked_path
from letgo.pinning import Clues
from letgo.rng import Noise
from letgo.samplers import RULES, RuleKind, rule_kind
from letgo.sampling import Denoise, band_grid, trajectory
from letgo.shapes import AnyState, State, Time

Shape = tuple[int, ...]


def sample(
    denoise: Callable[..., Any],
    shape: Sequence[int],
    path: Any = None,
    rule: str | Rule = "tweedie",
    steps: int = 200,
    known: Any = None,
    mask: Any = None,
    seed: int = 0,
    clip: Clip | None = None,
    device: str | torch.device | None = None,
    t_max: float = 1.0,
    t_min: float = 0.0,
) -> AnyState:
    """Run Algorithm 1 with your network from noise to data, and return the last state.

    `shape` is that of the states, the batch first. `denoise(x_t, t)` is your network: it is given states of that shape
    and one time for each, which broadcasts against them and is 1 at noise and 0 at data. It returns x0_hat,
    (x0_hat, memory) or an output of diffusers; what it remembers is its third argument from the second step on. A
    network that predicts eps, velocity or v is wrapped first (`letgo.models.denoiser`).

    `path` is the schedule that it was trained with: an object of `letgo.paths`, or 'cosine' or 'linear'; without it
    the wrapper's own, or the paper's `CosinePath()`. `rule` is a name, or an object of `letgo.kernels`. `known` has
    values that are kept where `mask` is True; both have the shape, or 1 along some of its axes, and a mask may leave
    out the last axis. `clip` is the range of your data, for a network that does not predict x0. A row's noise depends
    on the seed and its place in the batch. States lie on `device`; without it where `known` or the network does.
    Of the times, all but the first, 1, and the last, 0, fall evenly from t_max to t_min; Tweedie reprojection may gain
    from others than the usual (docs/times.md).
    """
    size, clip = checked_shape(shape), checked_clip(clip)
    path = path_of(check_network("denoise", denoise), path)
    chosen, kind = checked_rule(rule, path)
    place = device_of(denoise, known, device)
    if place.type == "cpu":
        refuse_beyond_memory(size[0], 4 * math.prod(size[1:]), "states of this shape")
    clues = pinned(known, mask, size, kind).to(place)
    check_known(clues, clip or (denoise.clip if isinstance(denoise, Foreign) else None))
    noise = Noise.first(whole_number("seed", seed), size[0], place)
    times = band_grid(whole_number("steps", steps), t_max, t_min)
    snapshots = trajectory(in_its_shape(denoise, size), path, chosen, times, clues, noise, clip=clip)
    return deque(snapshots, maxlen=1).pop().x.view(size)


# The network


def in_its_shape(network: Callable[..., Any], shape: Shape) -> Denoise:
    """Return the network as the loop calls it, with states (batch, cells, dim)."""

    def denoise(x_t: State, t: Time, *memory: Tensor) -> State | tuple[State, Tensor]:
        times = t.expand(len(x_t), 1, 1).reshape(-1, *(1 for _ in shape[1:]))
        try:
            out = network(x_t.view(shape), times, *memory)
        except LetgoError:
            raise
        except Exception as fault:  # whatever a network of one's own does
            what = f"{type(fault).__name__}: {' '.join(str(fault).split())[:200]}"
            given = f"x_t of shape {shape} and t of shape {tuple(times.shape)}, both {x_t.dtype} on {x_t.device}"
            raise LetgoError(f"the network failed when called with {given}: {what}") from fault
        x0_hat, remembered = split_output(out)
        if x0_hat.shape != shape or not x0_hat.is_floating_point():
            got = f"{tuple(x0_hat.shape)} of {x0_hat.dtype}"
            raise LetgoError(f"the network must return x0_hat of the states' shape {shape}, in floats; got {got}")
        x0_hat = x0_hat.to(x_t).reshape_as(x_t)
        return x0_hat if remembered is None else (x0_hat, remembered)

    return denoise


def device_of(denoise: Any, known: Any, device: Any) -> torch.device:
    """Return where the states lie."""
    if device is not None:
        return pick_device(device)
    if isinstance(known, Tensor):
        return known.device
    inner = denoise.network if isinstance(denoise, Foreign) else denoise
    parameters = inner.parameters() if isinstance(inner, nn.Module) else iter(())
    return next((weight.device for weight in parameters), torch.device("cpu"))


# The path and the rule


def path_of(denoise: Any, path: Any) -> Path:
    """Return the path that is given, or else the wrapper's; two that differ are refused."""
    own = denoise.path if isinstance(denoise, Foreign) else None
    path = (own or CosinePath()) if path is None else checked_path(path)
    if isinstance(path, GaussianPath) and own is not None:
        times = torch.linspace(0.1, 0.9, 9).view(-1, 1, 1)
        if not torch.allclose(path.alpha(times), own.alpha(times), atol=1e-4):
            raise LetgoError(
                f"the wrapper has another path, {type(own).__name__}, than the sampler, {type(path).__name__}; "
                "give both the one that the network was trained with"
            )
    return path


def checked_rule(rule: str | Rule, path: Path) -> tuple[Rule, RuleKind]:
    """Return a rule by its name, or as an object; one that fits the path."""
    named = [name for name, kind in RULES.items() if kind.family == path.family and not kind.takes]
    if isinstance(rule, str):
        kind = rule_kind(rule)
        if kind.takes:
            settings = ", ".join(f"{name}={value}" for name, value in zip(kind.takes, (0.3, 0.7), strict=False))
            raise LetgoError(f"rule '{rule}' has settings; give it as letgo.kernels.EulerMaruyama({settings})")
        if kind.family != path.family:
            others = ", ".join(named)
            raise LetgoError(f"rule '{rule}' does not fit {type(path).__name__}; choose one of {others}")
        return kind.build(), kind
    if inspect.isclass(rule):
        raise LetgoError(f"rule is the class {rule.__name__}; give an object of it, such as {rule.__name__}(...)")
    if not callable(rule):
        raise LetgoError(f"rule must be a name ({', '.join(named)}) or a rule of letgo.kernels; got {rule!r}")
    known = (kind for kind in RULES.values() if not kind.takes and kind.build() is rule)
    return rule, next(known, RuleKind(lambda: rule, family=path.family))


# Numbers and arrays


def checked_shape(shape: Any) -> Shape:
    """Return the shape, whose sizes must be from 1 on, at least two of them."""
    example = "the shape of all states together, the batch first, such as (8, 16, 4)"
    if isinstance(shape, Tensor):
        raise LetgoError(f"shape must be {example}; of a tensor give its .shape")
    try:
        sizes = tuple(operator.index(size) for size in shape)
    except TypeError:
        raise LetgoError(f"shape must be {example}; got {shape!r}") from None
    if len(sizes) < 2 or min(sizes) < 1:
        raise LetgoError(f"shape must be {example}; got {sizes}")
    return sizes


def as_tensor(name: str, values: Any) -> Tensor:
    try:
        return torch.as_tensor(values).detach()
    except (TypeError, ValueError, RuntimeError):
        raise LetgoError(f"{name} must be a tensor or an array, got {type(values).__name__}") from None


def spread(name: str, values: Tensor, shape: Shape) -> Tensor:
    """Repeat the values over the whole shape, where they have 1 along some axes."""
    fits = values.ndim == len(shape) and all(own in (1, size) for own, size in zip(values.shape, shape, strict=True))
    if not fits:
        cells = f" or {shape[:-1]}" if name == "mask" else ""
        raise LetgoError(f"{name} must have the shape {shape}{cells}, or 1 along some axes; got {tuple(values.shape)}")
    return values.expand(shape)


def pinned(known: Any, mask: Any, shape: Shape, kind: RuleKind) -> Clues:
    """Return what is known, in the loop's form. Cells are entries of the last axis together, or every number by itself.

    The noise is the same either way. Only a rule that reads a cell's numbers together needs the first.
    """
    cells = (shape[0], -1, shape[-1])
    if known is None and mask is None:
        return Clues.none(torch.zeros(shape).reshape(cells))
    if known is None or mask is None:
        given, lacks = ("known", "mask") if mask is None else ("mask", "known")
        raise LetgoError(f"{given} was given without {lacks}; known has the values, mask is True where they are kept")
    values, where = as_tensor("known", known), as_tensor("mask", mask)
    if where.dtype != torch.bool:
        raise LetgoError(f"mask must be True where values are kept and False elsewhere; got {where.dtype}: mask != 0?")
    where = spread("mask", where[..., None] if where.shape == shape[:-1] else where, shape)
    if values.is_complex():
        raise LetgoError(f"known must hold real numbers, got {values.dtype}")
    values = spread("known", values.float(), shape).to(where.device)
    whole = bool((where == where[..., :1]).all())
    if not whole and (kind.one_hot or kind.family != "gaussian"):
        raise LetgoError(f"this rule takes the last axis as one cell's symbols; give a mask of shape {shape[:-1]}")
    if whole:
        return Clues(values.reshape(cells), where[..., 0].reshape(shape[0], -1))
    return Clues(values.reshape(shape[0], -1, 1), where.reshape(shape[0], -1))


def check_known(clues: Clues, clip: Clip | None) -> None:
    kept = clues.values[clues.given]
    if not bool(kept.isfinite().all()):
        raise LetgoError("known is not finite at a place where mask is True")
    if clip is not None and kept.numel() and not clip[0] <= float(kept.min()) <= float(kept.max()) <= clip[1]:
        span = f"from {float(kept.min()):g} to {float(kept.max()):g}"
        raise LetgoError(f"known goes {span}, beyond clip {clip}; clip is the range of the data, as the network has it")
