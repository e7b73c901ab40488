"""Training minimises the simple loss (Eq. 4), self-correction (Eq. 9, Algorithm 2) or one of its ablations (App. L.2).

An objective returns unreduced terms, whose first axis is the boards of the batch; the trainer averages each per model
and adds them up by the objective's `weights`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from letgo.errors import LetgoError
from letgo.kernels import Transition, ddpm
from letgo.paths import GaussianPath, Path
from letgo.pinning import Clues
from letgo.registry import Entry, choose
from letgo.rng import uniform_times
from letgo.shapes import CellMask, State, Symbols, Time

Network = Callable[..., State]  # of x_t, t and the context; a looped one can be asked for the logits of `every_turn`


@dataclass(frozen=True)
class Batch:
    """A Batch holds boards to learn from. With several models, board i is model i % models's."""

    symbols: Symbols
    x0: State
    clues: Clues
    context: Tensor | None = None
    models: int = 1
    progress: Tensor | None = None  # the share of the run's steps that are behind it; None at its beginning

    def __len__(self) -> int:
        return len(self.x0)


@runtime_checkable
class Objective(Protocol):
    @property
    def weights(self) -> Mapping[str, float]:
        """Return what each term counts in the loss."""
        ...

    def __call__(self, network: Network, path: Path, batch: Batch) -> dict[str, Tensor]: ...


@runtime_checkable
class Remembers(Protocol):
    """It is an objective whose next step hangs on its last ones; what it remembers is saved with a run."""

    def state(self, model: int, models: int) -> dict[str, Tensor]:
        """Return what belongs to one of so many models."""
        ...

    def restore(self, states: Sequence[Mapping[str, Tensor]], like: State) -> None:
        """Go on with the states of all models; `like` is a state of the whole batch."""
        ...


def averaged(terms: Mapping[str, Tensor], weights: Mapping[str, float], models: int = 1) -> dict[str, Tensor]:
    """Average every term per model, and add the means up to the `loss`, whatever the terms are called. Minimising the
    sum of all models' losses gives each model the gradient that it would have alone."""
    means = {}
    for name, term in terms.items():
        means[name] = term.unflatten(0, (-1, models)).mean((0, *range(2, term.ndim + 1)))
    total = {"loss": reduce(torch.add, [weights[name] * mean for name, mean in means.items()])}
    return total | means | total


def squares(x0_hat: State, x0: State) -> State:
    return (x0_hat - x0).square()


def simple_rows(weight: float, batch: int) -> int:
    """L_simple sees floor(lambda B) rows (App. C), and at least one unless lambda is 0."""
    rows = math.floor(weight * batch + 1e-9)  # .29 * 100 is a little less than 29
    return max(rows, 1) if weight > 0 else 0


@dataclass(frozen=True)
class Simple:
    """The loss is L_simple (Eq. 4); pinned cells count as exact. `perturbation` is DDPM-IP's gamma (App. L.2)."""

    perturbation: float = 0.0

    @property
    def weights(self) -> Mapping[str, float]:
        return {"loss": 1.0}

    def __call__(self, network: Network, path: Path, batch: Batch) -> dict[str, Tensor]:
        x0, clues = batch.x0, batch.clues
        t = uniform_times(x0)
        x_t = path.sample(x0, t, torch.randn_like(x0))
        if self.perturbation:
            x_t = x_t + self.perturbation * torch.randn_like(x0)
        return {"loss": squares(clues.pin(network(clues.pin(x_t), t, batch.context)), x0)}


@dataclass(frozen=True)
class VelocityLoss:
    """The loss is the squared error of the velocity dx/dt, as rectified flow is usually trained: Eq. 4 with the weight
    (alpha' beta - alpha beta')^2 / beta^2, which is 1 / t^2 on the linear path."""

    @property
    def weights(self) -> Mapping[str, float]:
        return {"loss": 1.0}

    def __call__(self, network: Network, path: GaussianPath, batch: Batch) -> dict[str, Tensor]:
        x0, clues = batch.x0, batch.clues
        t = uniform_times(x0)
        x_t = clues.pin(path.sample(x0, t, torch.randn_like(x0)))
        x0_hat = clues.pin(network(x_t, t, batch.context))
        return {"loss": squares(path.velocity(x_t, x0_hat, t), path.velocity(x_t, x0, t))}


def renoise(step: Transition, batch: Batch) -> State:
    """Noise the proposal to time s (Algorithm 2)."""
    return step.path.sample(step.x0_hat, step.s, torch.randn_like(step.x0_hat))


def ddpm_step(step: Transition, batch: Batch) -> State:
    """Take a DDPM step from x_t (App. L.2, DDPM-step input)."""
    kernel = ddpm(step)
    return kernel.center + kernel.scale * torch.randn_like(step.x0_hat)


def corrupt(step: Transition, batch: Batch, share: float = 0.2) -> State:
    """Noise not the proposal but the clean board with a share of its cells replaced to time s (App. L.2).

    A random symbol is that of a random cell of the batch, so that no codec is needed.
    """
    x0 = batch.x0
    replaced = torch.rand(x0.shape[:2], device=x0.device) < share
    random = x0.flatten(0, 1)[torch.randint(x0.shape[0] * x0.shape[1], x0.shape[:2], device=x0.device)]
    return step.path.sample(torch.where(replaced[..., None], random, x0), step.s, torch.randn_like(x0))


def clean(step: Transition, x0: State) -> State:
    """Return the squared error of x0_hat."""
    return squares(step.x0_hat, x0)


def ddpm_mean(step: Transition, x0: State) -> State:
    """Return the squared error of the mean of a DDPM step to a time below (App. L.2, DDPM-mean target)."""
    onwards = Transition(step.path, step.denoise, step.x_t, step.x0_hat, step.t, step.t * uniform_times(x0))
    return squares(ddpm(onwards).center, onwards.alpha_s * x0)


@dataclass(frozen=True)
class SelfCorrection:
    """The loss is L_rec + lambda_simple L_simple (Eq. 9).

    `full` is Algorithm 2 to the letter: the proposal carries gradient through L_simple. Otherwise the proposal is
    gradient-free and L_simple sees `simple_rows`, all in one gradient pass: App. C's 1.43x form. The other fields are
    App. L.2's: what the network sees again, what its second answer is held against, and the most rollouts before it.
    """

    simple_weight: float = 0.1
    full: bool = False
    reenter: Callable[[Transition, Batch], State] = renoise
    target: Callable[[Transition, State], State] = clean
    rollouts: int = 1

    @property
    def weights(self) -> Mapping[str, float]:
        return {"recovery": 1.0, "simple": self.simple_weight}

    def __call__(self, network: Network, path: Path, batch: Batch) -> dict[str, Tensor]:
        x0, clues = batch.x0, batch.clues

        def predict(x_t: State, t: Time) -> State:
            return clues.pin(network(x_t, t, batch.context))

        def again(x_t: State, x0_hat: State, t: Time, s: Time) -> State:
            return clues.pin(self.reenter(Transition(path, predict, x_t, x0_hat, t, s), batch))

        t1 = uniform_times(x0)
        t2 = t1 * uniform_times(x0)
        x_t1 = clues.pin(path.sample(x0, t1, torch.randn_like(x0)))
        with torch.set_grad_enabled(self.full and torch.is_grad_enabled()):
            proposal = predict(x_t1, t1)
        x_t2 = again(x_t1, proposal.detach(), t1, t2)
        if self.rollouts > 1:
            rollouts = torch.randint(1, self.rollouts + 1, t2.shape, device=t2.device)
            with torch.no_grad():
                for done in range(1, self.rollouts):
                    s = torch.where(done < rollouts, t2 * uniform_times(x0), t2)
                    x_t2, t2 = torch.where(s < t2, again(x_t2, predict(x_t2, t2), t2, s), x_t2), s
        rows = 0 if self.full else simple_rows(self.simple_weight, len(x0) // batch.models) * batch.models
        context = None if batch.context is None else torch.cat([batch.context, batch.context[:rows]])
        x0_hat = network(torch.cat([x_t2, x_t1[:rows]]), torch.cat([t2, t1[:rows]]), context)
        recovery = self.target(Transition(path, predict, x_t2, clues.pin(x0_hat[: len(x0)]), t2, t2), x0)
        simple = squares(proposal, x0) if self.full else torch.zeros_like(recovery)
        if rows:
            simple = squares(clues[:rows].pin(x0_hat[len(x0) :]), x0[:rows])
        return {"recovery": recovery, "simple": simple}


@dataclass(frozen=True)
class CrossEntropy:
    """It is self-correction in App. C's form for a looped network: cross-entropy on open cells after every turn.

    At its optimum the softmax is E[x0 | x_t], as with the squared error. Not in the paper.
    """

    simple_weight: float = 0.1

    @property
    def weights(self) -> Mapping[str, float]:
        return {"recovery": 1.0, "simple": self.simple_weight}

    def __call__(self, network: Network, path: Path, batch: Batch) -> dict[str, Tensor]:
        x0, clues = batch.x0, batch.clues
        t1 = uniform_times(x0)
        t2 = t1 * uniform_times(x0)
        x_t1 = clues.pin(path.sample(x0, t1, torch.randn_like(x0)))
        with torch.no_grad():
            proposal = clues.pin(network(x_t1, t1, batch.context))
        x_t2 = clues.pin(path.sample(proposal, t2, torch.randn_like(x0)))
        rows = simple_rows(self.simple_weight, len(x0) // batch.models) * batch.models
        inputs = [torch.cat(pair) for pair in ((x_t2, x_t1[:rows]), (t2, t1[:rows]))]
        context = None if batch.context is None else torch.cat([batch.context, batch.context[:rows]])
        logits = network(*inputs, context, every_turn=True).float()  # (batch, turns, cells, symbols)
        wanted, given = (torch.cat([part, part[:rows]])[:, None] for part in (batch.symbols, clues.given))
        likely = logits.log_softmax(-1).gather(-1, wanted[..., None].expand(*logits.shape[:-1], 1))[..., 0]
        terms = torch.where(given, 0.0, -likely)
        return {"recovery": terms[: len(x0)], "simple": terms[len(x0) :] if rows else torch.zeros_like(terms)}


@dataclass(frozen=True)
class SelfConditioning:
    """It is L_simple of a network that is shown its own prediction for every second board, at random, else zeros (App.
    L.2).

    The prediction carries no gradient, as in Analog Bits; there is no recovery loss.
    """

    @property
    def weights(self) -> Mapping[str, float]:
        return {"loss": 1.0}

    def __call__(self, network: Network, path: Path, batch: Batch) -> dict[str, Tensor]:
        x0, clues = batch.x0, batch.clues
        t = uniform_times(x0)
        x_t = clues.pin(path.sample(x0, t, torch.randn_like(x0)))
        with torch.no_grad():
            previous = network(x_t, t, batch.context)
        shown = torch.rand(len(x0), 1, 1, device=x0.device) < 0.5
        x0_hat = network(x_t, t, batch.context, memory=torch.where(shown, previous, 0.0))
        return {"loss": squares(clues.pin(x0_hat), x0)}


@dataclass
class Rollouts:
    """Train along the model's own DDPM trajectories (App. L.2): every board of a pool goes `advance` of its `steps`
    steps at each update, with gradient through them alone, and begins anew with a board of the batch when it is done.

    The pool begins with noised boards at random steps. It is saved with a run, so that a resumed one goes on with it.
    """

    steps: int = 16
    advance: int = 2
    pool: Pool | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.advance < 1 or self.steps < 1 or self.steps % self.advance:
            raise LetgoError(f"rollouts of {self.steps} steps cannot advance by {self.advance}; it must divide them")

    def state(self, model: int, models: int) -> dict[str, Tensor]:
        """Return one model's part of the pool, as numbers; nothing before the first step."""
        if self.pool is None:
            return {}
        parts = {name: part[model::models] for name, part in vars(self.pool).items() if part is not None}
        return {name: part.to("cpu", torch.float32, copy=True).contiguous() for name, part in parts.items()}

    def restore(self, states: Sequence[Mapping[str, Tensor]], like: State) -> None:
        """Go on with a pool of these parts."""
        if not all(states):  # no step was taken, or by a version that did not save it
            return
        own = like[: len(like) // len(states)]
        first, *others = ({name: part.shape for name, part in state.items()} for state in states)
        shapes = {"x": own.shape, "x0": own.shape, "given": own.shape[:2], "done": own[:, :1, :1].shape}
        context = {"context": first["context"]} if first.get("context", ())[:1] == own.shape[:1] else {}
        if first != {**shapes, **context} or any(other != first for other in others):
            raise LetgoError("the saved pool of rollouts belongs to other boards; restore state.pt, or start again")
        parts = {name: torch.stack([state[name] for state in states], 1).flatten(0, 1) for name in first}
        parts = {name: part.to(like.device) for name, part in parts.items()}
        context = parts.get("context")
        self.pool = Pool(parts["x"], parts["done"], parts["x0"], parts["given"] > 0, context)

    @property
    def weights(self) -> Mapping[str, float]:
        return {"loss": 1.0}

    def __call__(self, network: Network, path: Path, batch: Batch) -> dict[str, Tensor]:
        if self.pool is None:
            self.pool = Pool.begin(batch, path, self.steps, self.advance)
        pool = self.pool
        pool.renew(batch, self.steps)
        x0, clues, errors, x_t = pool.x0, Clues(pool.x0, pool.given), [], pool.x.clone()

        def predict(x: State, t: Time) -> State:
            return clues.pin(network(x, t, pool.context))

        for i in range(self.advance):
            t, s = (1 - (pool.done + j) / self.steps for j in (i, i + 1))
            x0_hat = predict(x_t, t)
            errors.append(squares(x0_hat, x0))
            kernel = ddpm(Transition(path, predict, x_t, x0_hat, t, s))
            x_t = clues.pin(kernel.center + kernel.scale * torch.randn_like(x0))
        pool.x.copy_(x_t.detach())
        pool.done.add_(self.advance)
        return {"loss": torch.stack(errors, 1)}


@dataclass(frozen=True)
class Pool:
    """A Pool has trajectories on their way: where each is, how many steps it has done, and the board that it should end
    in.

    Its tensors stay in their places, so that a captured step can go on with them.
    """

    x: State
    done: Time
    x0: State
    given: CellMask
    context: Tensor | None

    @staticmethod
    def begin(batch: Batch, path: Path, steps: int, advance: int) -> Pool:
        x0 = batch.x0
        done = advance * torch.randint(steps // advance, (len(x0), 1, 1), device=x0.device).to(x0.dtype)
        x = batch.clues.pin(path.sample(x0, 1 - done / steps, torch.randn_like(x0)))
        context = None if batch.context is None else batch.context.clone()
        return Pool(x, done, x0.clone(), batch.clues.given.clone(), context)

    def renew(self, batch: Batch, steps: int) -> None:
        """Put a new board and fresh noise in the place of every finished trajectory."""
        over = self.done >= steps
        fresh = batch.clues.pin(torch.randn_like(self.x))
        self.x.copy_(torch.where(over, fresh, self.x))
        self.x0.copy_(torch.where(over, batch.x0, self.x0))
        self.given.copy_(torch.where(over[:, :, 0], batch.clues.given, self.given))
        if self.context is not None and batch.context is not None:
            rows = over.view(-1, *[1] * (self.context.ndim - 1))
            self.context.copy_(torch.where(rows, batch.context, self.context))
        self.done.copy_(torch.where(over, 0.0, self.done))


CORRUPT_40 = partial(corrupt, share=0.4)
REENTER = {"renoise": renoise, "ddpm-step": ddpm_step, "corrupt": corrupt, "corrupt-40": CORRUPT_40}
TARGETS = {"clean": clean, "ddpm-mean": ddpm_mean}


def self_correction(
    simple_weight: float, full: bool, reenter: str = "renoise", target: str = "clean", **options: int
) -> SelfCorrection:
    """Build the objective that a configuration's words stand for."""
    again, against = (
        choose("reenter of self-correction", REENTER, reenter),
        choose("target of self-correction", TARGETS, target),
    )
    return SelfCorrection(simple_weight, full, again, against, **options)


def rollouts(simple_weight: float, full: bool, steps: int = 16, advance: int = 2) -> Rollouts:
    return Rollouts(steps, advance)


# Each is given simple_weight, full_gradient and the configuration's objective_options.
OBJECTIVES: dict[str, Entry] = {
    "simple": lambda simple_weight, full, **options: Simple(**options),
    "self-correction": self_correction,
    "self-conditioning": lambda simple_weight, full: SelfConditioning(),
    "rollouts": rollouts,
    "cross-entropy": lambda simple_weight, full: CrossEntropy(simple_weight),
    "velocity": lambda simple_weight, full: VelocityLoss(),
    "masked": "letgo.discrete:masked_cross_entropy",
    "consistency": "letgo.consistency:consistency_training",
}
