"""Weights, optimiser and average of a run: one optimisation step, data resident on the device.

Runs that differ in their seed alone can share one loop: their weights are rows of one matrix, and in a batch board i
belongs to model i % models.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path as Folder
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from letgo.codecs import Codec, encoded
from letgo.config import Config
from letgo.engines import supported
from letgo.engines.cuda import captured, many_builds
from letgo.errors import LetgoError, unknown
from letgo.machine import refuse_beyond_memory
from letgo.objectives import Batch, Objective, Remembers, averaged
from letgo.paths import Path
from letgo.pinning import Clues
from letgo.shapes import CellMask, State, Symbols, Time
from letgo.training.data import TrainingData
from letgo.training.muon import Muon
from letgo.training.team import ALONE, Team

EMA_EVERY = 10  # steps between two updates of the average
WARM_STEPS = 16  # ordinary steps before one is captured: by then every kernel is compiled and chosen


@dataclass(frozen=True)
class Recipe:
    """A Recipe says how weights are optimised; the fields are those of `Config`. One model is trained for each seed."""

    batch: int = 256
    steps: int = 2_000_000
    optimizer: str = "adam"
    learning_rate: float = 1e-3
    warmup: int = 2_000
    clip_norm: float = 0.0
    decay: float = 0.0
    ema: float = 0.9999
    precision: str = "auto"
    seeds: tuple[int, ...] = (0,)

    @staticmethod
    def of(config: Config, seeds: Sequence[int] = ()) -> Recipe:
        names = [f.name for f in fields(Recipe) if f.name != "seeds"]
        return Recipe(**{name: getattr(config, name) for name in names}, seeds=tuple(seeds) or (config.seed,))

    def rate(self, step: int) -> float:
        """The learning rate warms up linearly, stays, then (if decay) falls linearly to 0 at the last step."""
        rate = self.learning_rate * min(1.0, (step + 1) / max(self.warmup, 1))
        if self.decay > 0:
            rate *= min(1.0, max(0.0, (self.steps - step) / (self.decay * self.steps)))
        return rate

    def ema_weight(self, step: int) -> float:
        """Return how far the average moves at this update: its horizon is at most a tenth of the steps so far."""
        horizon = min(1 / (1 - self.ema), max(step, 1) / 10) if self.ema < 1 else max(step, 1) / 10
        return min(1.0, EMA_EVERY / horizon)


def cpu_seed(seed: int, step: int) -> int:
    """Hash both to 32 bits: torch's generator on the CPU ignores all others."""
    return int(np.random.SeedSequence([seed, step]).generate_state(1)[0])


Shapes = dict[str, torch.Size]
FlatNetwork = Callable[..., Tensor]  # of the weights, x_t, t and the context: x0_hat, or logits of every turn


def pack(weights: dict[str, Tensor], shapes: Shapes) -> Tensor:
    """Return all weights as one row, in the order of `shapes`."""
    return torch.cat([weights[name].detach().flatten() for name in shapes])


def unpack(row: Tensor, shapes: Shapes) -> dict[str, Tensor]:
    parts = row.split([shape.numel() for shape in shapes.values()])
    return {name: part.view(shape) for part, (name, shape) in zip(parts, shapes.items(), strict=True)}


def plain_network(network: nn.Module) -> tuple[Shapes, FlatNetwork]:
    """Make any network a function of its weights, for one row of them or several."""
    shapes: Shapes = {name: p.shape for name, p in network.named_parameters()}

    def one(row: Tensor, x_t: State, t: Time, context: Tensor | None, **how: Any) -> Tensor:
        answer = functional_call(network, unpack(row, shapes), (x_t, t, context), how)
        return answer[0] if isinstance(answer, tuple) else answer  # (x0_hat, memory)

    def call(flat: Tensor, x_t: State, t: Time, context: Tensor | None, **how: Any) -> Tensor:
        models = len(flat)
        if models == 1:
            return one(flat[0], x_t, t, context, **how)
        memory = how.pop("memory", None)  # of each board, as x_t is
        axes = (0, 1, 1, *(None if x is None else 1 for x in (context, memory)))
        split: Any = [None if x is None else x.unflatten(0, (-1, models)) for x in (x_t, t, context, memory)]

        def each(row: Tensor, x_t: State, t: Time, context: Tensor | None, memory: Tensor | None) -> Tensor:
            return one(row, x_t, t, context, **how, **({} if memory is None else {"memory": memory}))

        with sdpa_kernel(SDPBackend.MATH):  # the only attention that vmap knows
            return vmap(each, axes, out_dims=1, randomness="different")(flat, *split).flatten(0, 1)

    return shapes, call


def fast_network(network: nn.Module) -> tuple[Shapes, FlatNetwork]:
    """Do the same with fused blocks; they know no context."""
    from letgo.engines.network import FastTransformer

    fast = FastTransformer(network).train()  # pyright: ignore[reportArgumentType]
    return fast.shapes, lambda flat, x_t, t, context, **how: fast(flat, x_t, t, **how)


def precision_of(name: str, device: torch.device) -> str:
    cuda = device.type == "cuda"
    precision = name if name != "auto" else ("bf16" if cuda else "fp32")
    if precision not in ("bf16", "fp32"):
        raise unknown("precision", precision, ("bf16", "fp32"))
    return precision


def uses_fused_blocks(network: nn.Module, precision: str, device: torch.device, fast: bool | None = None) -> bool:
    """Fused blocks compute in bf16. Only with them are several seeds faster together than one after another."""
    cuda = device.type == "cuda" and fast is not False
    return cuda and precision_of(precision, device) == "bf16" and supported(network)


class Trainer:
    """A Trainer has weights, optimiser and average of a run, or of several that differ in their seed. `step()` is a
    step of each.

    Weights, average and Adam's moments are matrices with one row per model, see `pack`.
    """

    def __init__(
        self,
        network: nn.Module | Sequence[nn.Module],
        objective: Objective,
        codec: Codec,
        path: Path,
        data: TrainingData,
        recipe: Recipe,
        fast: bool | None = None,
        team: Team = ALONE,
    ):
        """`network` is one for each seed; without `fast`, or in a team, it is neither compiled nor captured."""
        self.team = team
        self.objective, self.codec, self.path, self.data, self.recipe = objective, codec, path, data, recipe
        self.device, self.seeds = data.boards.device, recipe.seeds
        self.precision = precision_of(recipe.precision, self.device)
        device, cuda, models = self.device, self.device.type == "cuda", len(self.seeds)
        networks = [network] if isinstance(network, nn.Module) else network
        if len(networks) != models:
            raise LetgoError(f"{len(networks)} networks for {models} seeds; give one for each")
        if recipe.batch % self.team.size or (models > 1 and self.team.size > 1):
            raise LetgoError(
                f"{self.team.size} processes cannot share a batch of {models} x {recipe.batch}; give one seed, and a "
                "--batch that they divide"
            )
        if device.type == "cpu":  # others refuse at once by themselves; five states are the least of a step
            each = 5 * 4 * data.boards.shape[-1] * codec.dim
            refuse_beyond_memory(models * recipe.batch, each, "boards of a batch")
        fused = uses_fused_blocks(networks[-1], self.precision, device, fast)
        fast = cuda if fast is None else fast
        fast = fast and self.team.size == 1
        fast = fast and (fused or models == 1)  # compiled, attention under vmap drops out to NaN (torch 2.13)
        self.shapes, self.network = (fast_network if fused else plain_network)(networks[-1].to(device).train())
        self.network = self.team.shared(self.network)
        rows = [pack(dict(each.named_parameters()), self.shapes) for each in networks]
        self.flat = torch.stack([row.to(device) for row in rows]).requires_grad_()
        self.ema = self.flat.detach().clone()
        self.rate, self.progress = (torch.tensor(0.0, device=device) for _ in range(2))
        self.optimizer = self._make_optimizer(fast)
        self.adam = {
            "step": torch.zeros((), device=device if cuda else "cpu"),  # where Adam itself would put it
            "exp_avg": torch.zeros_like(self.ema),
            "exp_avg_sq": torch.zeros_like(self.ema),
        }
        self.optimizer.state[self.flat] = self.adam
        self.loss_sum: dict[str, Tensor] = {}  # one number per model, since its step `logged`
        self.steps_done, self.logged = 0, [0] * models
        self.graph: torch.cuda.CUDAGraph | None = None
        self.warm_steps = 0
        self.capture = cuda and fast
        self.losses: Callable[[Tensor], tuple[Tensor, dict[str, Tensor]]] = self._drawn_losses
        self.update: Callable[[], object] = self.optimizer.step
        if fast:
            self.losses = torch.compile(self._drawn_losses, dynamic=False)
        if fast and not isinstance(self.optimizer, Muon):  # which compiles its own step
            self.update = torch.compile(self.optimizer.step, dynamic=False)

    @staticmethod
    def of(
        config: Config,
        data: TrainingData,
        fast: bool | None = None,
        seeds: Sequence[int] = (),
        folder: Folder | None = None,
        team: Team = ALONE,
    ) -> Trainer:
        """Put the objects together that a configuration stands for; each network is drawn with its seed.

        Images of digits lie in the run's folder.
        """
        recipe, networks = Recipe.of(config, seeds), []
        for seed in recipe.seeds:
            torch.manual_seed(seed)
            networks.append(config.build_model())
        objective, codec, path = config.build_objective(), config.build_codec(folder, "train"), config.build_path()
        return Trainer(networks, objective, codec, path, data, recipe, fast, team)

    def _make_optimizer(self, compiled: bool) -> torch.optim.Optimizer:
        cuda = self.device.type == "cuda"
        if self.recipe.optimizer == "muon":
            return Muon(self.flat, self.rate, self.shapes, compiled)
        if self.recipe.optimizer != "adam":
            raise unknown("optimizer", self.recipe.optimizer, ("adam", "muon"))
        # Torch's fused Adam gives one tensor to few blocks; compiled, the plain one is a single kernel on all of them.
        return torch.optim.Adam([self.flat], lr=self.rate, fused=cuda and not compiled, capturable=cuda)

    def _losses(
        self, flat: Tensor, symbols: Symbols, given: CellMask, context: Tensor | None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return what is minimised, and the losses of each model."""
        many, models = (len(symbols),), len(self.seeds)
        x0 = encoded(self.codec, symbols, lambda: torch.randint(2**31, many, device=symbols.device))
        batch = Batch(symbols, x0, Clues(x0, given), context, models, self.progress)
        terms = self.objective(partial(self.network, flat), self.path, batch)
        losses = averaged(self.team.own(terms), self.objective.weights, models)
        return losses["loss"].sum(), losses

    def _drawn_losses(self, flat: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Draw a fresh batch and return its losses; compiled together, drawing is a kernel or two."""
        return self._losses(flat, *self.data.draw(len(self.seeds) * self.recipe.batch))

    def _body(self) -> None:
        """Do everything of a step that a CUDA graph can replay."""
        with torch.autocast(self.device.type, torch.bfloat16, self.precision == "bf16", cache_enabled=False):
            total, losses = self.losses(self.flat)
        total.backward()
        if self.team.size > 1:
            assert self.flat.grad is not None, "the loss was propagated back"
            losses = {name: value.detach() for name, value in losses.items()}
            self.team.add_up(self.flat.grad, *losses.values())
        if self.recipe.clip_norm:
            self._clip_gradient()
        self.update()
        for name, value in losses.items():
            self.loss_sum.setdefault(name, torch.zeros(len(self.seeds), device=self.device)).add_(value.detach())

    def _clip_gradient(self) -> None:
        """Cut each model's gradient to the norm that the recipe allows."""
        gradient = self.flat.grad
        assert gradient is not None, "the loss was propagated back"
        gradient.mul_((self.recipe.clip_norm / gradient.norm(dim=1, keepdim=True).clamp(min=1e-12)).clamp(max=1))

    def step(self) -> None:
        step = self.steps_done
        self.rate.fill_(self.recipe.rate(step))
        self.progress.fill_(step / max(self.recipe.steps, 1))
        if self.device.type != "cuda":
            # Seeding every step makes a resumed run equal to an uninterrupted one, bit for bit.
            torch.manual_seed(cpu_seed(self.seeds[0], step))
        if self.graph is not None:
            self.graph.replay()
        else:
            self.optimizer.zero_grad(set_to_none=True)
            with many_builds():
                self._body()
            self.warm_steps += 1
            if self.capture and self.warm_steps == WARM_STEPS:
                self.optimizer.zero_grad(set_to_none=True)
                self.graph = captured(self._body)
        self.steps_done = step + 1
        if self.steps_done % EMA_EVERY == 0:
            self.ema.lerp_(self.flat.detach(), self.recipe.ema_weight(step + 1))

    def mean_losses(self) -> list[dict[str, float]]:
        """Return each model's means since the last call."""
        steps, self.logged = [max(self.steps_done - n, 1) for n in self.logged], [self.steps_done] * len(self.seeds)
        sums = {name: total.tolist() for name, total in self.loss_sum.items()}
        for total in self.loss_sum.values():
            total.zero_()
        return [{name: values[i] / count for name, values in sums.items()} for i, count in enumerate(steps)]

    def finite(self) -> list[bool]:
        """Say of each model whether its weights and losses are finite."""
        numbers = torch.cat([self.flat.detach(), *(total[:, None] for total in self.loss_sum.values())], 1)
        return numbers.isfinite().all(1).tolist()

    def follow(self) -> None:
        """Take the state and the noise of the team's first process."""
        cuda = self.device.type == "cuda"
        state, noise = self.team.told((self.state(), torch.cuda.get_rng_state() if cuda else None))
        if not self.team.leads:
            self.restore(state)
            if noise is not None:
                torch.cuda.set_rng_state(noise)

    def _matrix(self, kind: str) -> Tensor:
        return {"raw": self.flat.detach(), "ema": self.ema, **self.adam}[kind]

    def weights(self, kind: str, model: int = 0) -> dict[str, Tensor]:
        """Copy weights by name to the CPU: 'raw', 'ema', or a moment of Adam, 'exp_avg' or 'exp_avg_sq'."""
        row = self._matrix(kind)[model].cpu()
        return {name: value.clone() for name, value in unpack(row, self.shapes).items()}

    def set_weights(self, kind: str, weights: dict[str, Tensor], whose: str, model: int = 0) -> None:
        if self.shapes != {name: value.shape for name, value in weights.items()}:
            raise LetgoError(f"{whose} belongs to another network than this one; name another preset or run")
        self._matrix(kind)[model].copy_(pack(weights, self.shapes))

    def state(self, model: int = 0) -> dict[str, Any]:
        """Return what one model needs to go on, alone or beside others."""
        return {
            "step": self.steps_done,
            "raw": self.weights("raw", model),
            "ema": self.weights("ema", model),
            "optimizer": {
                "step": float(self.adam["step"]),
                "exp_avg": self.weights("exp_avg", model),
                "exp_avg_sq": self.weights("exp_avg_sq", model),
            },
            "loss_sum": {name: total[model].cpu().clone() for name, total in self.loss_sum.items()},
            "logged": self.logged[model],
            **({"objective": memory.state(model, len(self.seeds))} if (memory := self._memory) is not None else {}),
        }

    @property
    def _memory(self) -> Remembers | None:
        """Return the objective if it remembers; not in a team, where each process knows its own rows alone."""
        return self.objective if self.team.size == 1 and isinstance(self.objective, Remembers) else None

    def restore(self, *states: dict[str, Any]) -> None:
        """Go on from one state per model, all of the same step."""
        if len({int(state["step"]) for state in states}) != 1 or len(states) != len(self.seeds):
            raise LetgoError("models trained together need one state each, all of the same step")
        for model, state in enumerate(states):
            if not {"step", "exp_avg", "exp_avg_sq"} <= state["optimizer"].keys():
                raise LetgoError("the saved state was written by another version; start from its weights with --init")
            rows = {"raw": state["raw"], "ema": state["ema"], **state["optimizer"]}
            for kind in ("raw", "ema", "exp_avg", "exp_avg_sq"):
                self.set_weights(kind, rows[kind], "the saved state", model)
        first = states[0]
        self.adam["step"].fill_(first["optimizer"]["step"])
        self.steps_done = int(first["step"])
        self.logged = [int(state["logged"]) for state in states]
        self.loss_sum = {
            name: torch.stack([state["loss_sum"][name] for state in states]).to(self.device)
            for name in first["loss_sum"]
        }
        if (memory := self._memory) is not None:
            boards = self.recipe.batch * len(self.seeds)
            like = torch.zeros(boards, self.data.boards.shape[1], self.codec.dim, device=self.device)
            memory.restore([state.get("objective", {}) for state in states], like)
        if self.device.type == "cuda":
            torch.cuda.manual_seed((self.seeds[0] << 32) + self.steps_done)
