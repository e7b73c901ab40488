"""What decides a run, as plain values; and the objects that they stand for."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from pathlib import Path as Folder
from typing import Annotated, Any, Literal

import numpy as np
from torch import nn

from letgo import tasks
from letgo.codecs import CODECS, Codec
from letgo.errors import LetgoError, unknown
from letgo.models import NETWORKS
from letgo.objectives import OBJECTIVES, Objective
from letgo.paths import PATHS, Path
from letgo.registry import choose
from letgo.shapes import CellMask, Symbols
from letgo.tasks import Task
from letgo.typed import Between, Count, Natural, Positive, Share, check, check_options

# A task of one's own: how the network and its training grow with the number of cells; beyond, the paper's.
SMALL = {"width": 48, "depth": 3, "heads": 3, "hidden": 96}
MIDDLE = {"width": 96, "depth": 4, "heads": 6, "hidden": 192}
SampleSteps = Annotated[int, Between(1, 1_000_000)]
SIZES: dict[int, dict[str, Any]] = {
    16: {"network_options": SMALL, "steps": 2_000, "learning_rate": 2e-3, "warmup": 100, "batch": 64, "boards": 2_000,
         "sample_steps": 50},
    49: {"network_options": MIDDLE, "steps": 20_000, "learning_rate": 2e-3, "warmup": 500, "batch": 128,
         "boards": 50_000, "sample_steps": 100},
}  # fmt: skip


def _of_pairs(task: Task) -> bool:
    """Return whether a cell stands for two nodes of a graph, and the graph is told beside the clues."""
    try:
        context = task.solved(1, np.random.default_rng(0))[1]
    except LetgoError:  # its instances come from files
        return False
    return context is not None and context.dim() == 3 and context[0].numel() == task.cells == context.shape[1] ** 2


@dataclass(frozen=True)
class Config:
    """A Config is all that decides a run; `config.json` holds exactly these fields."""

    name: str
    task: str
    task_options: dict[str, Any] = field(default_factory=dict)
    codec: str = "one-hot"
    codec_options: dict[str, Any] = field(default_factory=dict)
    path: str = "cosine"
    path_options: dict[str, Any] = field(default_factory=dict)
    network: str = "transformer"
    network_options: dict[str, Any] = field(default_factory=dict)
    objective: str = "self-correction"
    objective_options: dict[str, Any] = field(default_factory=dict)
    simple_weight: Positive = 0.1  # lambda_simple
    full_gradient: bool = False  # Algorithm 2 to the letter instead of App. C's cheaper form
    batch: Count = 256
    steps: Natural = 2_000_000
    optimizer: str = "adam"  # or 'muon', for the blocks' matrices
    learning_rate: Positive = 1e-3
    warmup: Natural = 2_000
    clip_norm: Positive = 0.0  # the gradient's norm is cut to this; 0: never
    decay: Share = 0.0  # share of the steps, at the end, over which the learning rate falls linearly to 0
    precision: str = "auto"  # bf16 on a GPU, fp32 elsewhere
    ema: Share = 0.9999
    seed: Annotated[int, Between(0, 2**32 - 1)] = 0
    init: str | None = None  # a model whose weights the run starts from
    boards: Count = 1_000_000  # training instances to generate or, of a file sampled by source, to draw
    masks: Literal["random", "data"] = "random"  # or 'data': the clues that come with each instance
    symmetries: bool = False  # train on images of an instance under the task's symmetries: all of them, or drawn ones
    sample_steps: SampleSteps = 200
    sample_rule: str | None = None  # the rule that suits the model best; None: its path's
    sample_turns: Count | None = None  # of a looped network, a call; None: as many as in training
    weights: Literal["ema", "raw"] = "ema"  # which of them model.safetensors holds; 'raw' where validation preferred it

    @staticmethod
    def from_dict(values: Any) -> Config:
        """Read a configuration of JSON; fields that were not there yet when it was written have their defaults."""
        values = check(values, Config, "not a letgo configuration")
        usual = {f.name: f.default for f in fields(Config)}
        plain: dict[str, Any] = {k: float(v) if isinstance(usual[k], float) else v for k, v in values.items()}
        return Config(**plain)  # JSON may say 1 for 1.0

    @staticmethod
    def for_task(task: Task, **changes: Any) -> Config:
        """Return defaults that suit a task of one's own: up to 16 cells are learned on a CPU in about a minute, from 50
        on the network is the paper's."""
        size = next((size for cells, size in SIZES.items() if task.cells <= cells), {"steps": 200_000})
        if _of_pairs(task):
            small = {"width": 16, "time_features": 64} if task.cells <= 16 else {}
            size = {**size, "network": "nlm", "network_options": {"depth": 4, **small}, "batch": 64}
        masks = "random" if task.generates else "data"
        return Config(task.name, task.name, decay=0.2, masks=masks).changed(**{**size, **changes})

    def changed(self, **changes: Any) -> Config:
        """Put in the fields that are not None; each must be what its type says."""
        names = [f.name for f in fields(Config)]
        for name in sorted(set(changes).difference(names)):
            raise unknown("field of a configuration", name, names)
        given = {name: value for name, value in changes.items() if value is not None}
        check({**self.as_dict(), **given}, Config, self.name)
        return replace(self, **given)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def build_task(self) -> Task:
        row = tasks.find(self.task)
        get = partial(tasks.get, self.task)
        return get() if row is None else self._make("task", tasks.resolve(row.build), get)

    def _make(self, kind: str, made: Callable[..., Any], make: Callable[..., Any]) -> Any:
        """Build a part with its options; one that it does not take is refused by the nearest that it does."""
        options = check_options(getattr(self, f"{kind}_options"), made, f"{kind}_options")
        try:
            return make(**options)
        except TypeError as error:
            said = str(error)
            odd = next((name for name in options if f"argument '{name}'" in said or "takes no arguments" in said), None)
            if odd is None:
                raise
            known = [name for name in inspect.signature(made).parameters if name != odd]
            hint = f"{kind} '{getattr(self, kind)}' has none such; leave it out of {kind}_options"
            raise unknown("option", odd, known, hint) from None

    def build_image(self) -> Callable[[Symbols, CellMask], tuple[Symbols, CellMask]] | None:
        """Return what draws a board's image under a symmetry, where training wants that and it is drawn."""
        task = self.build_task()
        return task.random_images if self.symmetries and task.draws_images else None

    def build_codec(self, folder: Folder | None = None, split: str = "test") -> Codec:
        """Return the codec; one that keeps images in a run's folder is opened there, with those of a split."""
        make = choose("codec", CODECS, self.codec)
        task = self.build_task()
        codec = self._make("codec", make, partial(make, task.symbols))
        if getattr(codec, "cells", None) not in (None, task.cells):
            raise LetgoError(f"codec_options: {codec.cells} columns, for boards of {task.cells} cells")
        return codec.open(folder, split) if folder is not None and hasattr(codec, "open") else codec

    def build_path(self) -> Path:
        make = choose("path", PATHS, self.path)
        return self._make("path", make, make)

    def build_model(self) -> nn.Module:
        make, codec = choose("network", NETWORKS, self.network), self.build_codec()
        network = self._make("network", make, partial(make, codec.dim, self.build_task()))
        if getattr(network, "one_hot", False) and not codec.one_hot:
            raise LetgoError(f"network '{self.network}' answers with probabilities; it needs codec one-hot")
        if getattr(network, "path_name", self.path) != self.path:
            raise LetgoError(f"network '{self.network}' needs path {network.path_name}, and this one is {self.path}")
        if hasattr(network, "path_name") and self.path_options:
            raise LetgoError(f"network '{self.network}' is for path {self.path} as it is; leave path_options out")
        return network

    def for_sampling(self) -> Config:
        """Return the configuration of the same weights in use, which may take more turns than in training."""
        turns = {} if self.sample_turns is None else {"turns": self.sample_turns}
        return self.changed(network_options={**self.network_options, **turns})

    def build_objective(self) -> Objective:
        make = choose("objective", OBJECTIVES, self.objective)
        return self._make("objective", make, partial(make, self.simple_weight, self.full_gradient))
