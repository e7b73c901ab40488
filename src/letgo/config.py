"""What decides a run, as plain values; and the objects that they stand for."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from torch import nn

from letgo import tasks
from letgo.codecs import CODECS, Codec
from letgo.errors import LetgoError, unknown
from letgo.models import NETWORKS
from letgo.objectives import OBJECTIVES, Objective
from letgo.paths import PATHS, Path
from letgo.registry import choose
from letgo.tasks import Task

# A task of one's own: how the network and its training grow with the number of cells; beyond, the paper's.
SMALL = {"width": 48, "depth": 3, "heads": 3, "hidden": 96}
MIDDLE = {"width": 96, "depth": 4, "heads": 6, "hidden": 192}
SIZES: dict[int, dict[str, Any]] = {
    16: {"network_options": SMALL, "steps": 2_000, "learning_rate": 2e-3, "warmup": 100, "batch": 64, "boards": 2_000,
         "sample_steps": 50},
    49: {"network_options": MIDDLE, "steps": 20_000, "learning_rate": 2e-3, "warmup": 500, "batch": 128,
         "boards": 50_000, "sample_steps": 100},
}  # fmt: skip


@dataclass(frozen=True)
class Config:
    """All that decides a run; `config.json` holds exactly these fields."""

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
    simple_weight: float = 0.1  # lambda_simple
    full_gradient: bool = False  # Algorithm 2 to the letter instead of App. C's cheaper form
    batch: int = 256
    steps: int = 2_000_000
    optimizer: str = "adam"  # or 'muon', for the blocks' matrices
    learning_rate: float = 1e-3
    warmup: int = 2_000
    decay: float = 0.0  # share of the steps, at the end, over which the learning rate falls linearly to 0
    precision: str = "auto"  # bf16 on a GPU, fp32 elsewhere
    ema: float = 0.9999
    seed: int = 0
    init: str | None = None  # a model whose weights the run starts from
    boards: int = 1_000_000  # training instances to generate or, of a file sampled by source, to draw
    masks: str = "random"  # or 'data': the clues that come with each instance
    symmetries: bool = False  # train on every image of an instance under the task's symmetries
    sample_steps: int = 200
    weights: str = "ema"  # which of the two model.safetensors holds; 'raw' where validation preferred it

    @staticmethod
    def from_dict(values: Any) -> Config:
        """Read a configuration of JSON; fields that were not there yet when it was written have their defaults."""
        if not isinstance(values, dict):
            raise LetgoError(f"not a letgo configuration: {type(values).__name__} instead of an object")
        other = sorted(set(values) - {f.name for f in fields(Config)})
        if other or not {"name", "task"} <= set(values):
            raise LetgoError(f"not a letgo configuration: {'unknown ' + ', '.join(other) if other else 'no task'}")
        return Config(**values)

    @staticmethod
    def for_task(task: Task, **changes: Any) -> Config:
        """Defaults that suit a task of one's own: up to 16 cells are learned on a CPU in about a minute, from 50 on the
        network is the paper's."""
        size = next((size for cells, size in SIZES.items() if task.cells <= cells), {"steps": 200_000})
        masks = "random" if task.generates else "data"
        return Config(task.name, task.name, decay=0.2, masks=masks).changed(**{**size, **changes})

    def changed(self, **changes: Any) -> Config:
        """Put in the fields that are not None."""
        names = [f.name for f in fields(Config)]
        for name in sorted(set(changes).difference(names)):
            raise unknown("field of a configuration", name, names)
        return replace(self, **{name: value for name, value in changes.items() if value is not None})

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def build_task(self) -> Task:
        return tasks.get(self.task, **self.task_options)

    def build_codec(self) -> Codec:
        return choose("codec", CODECS, self.codec)(self.build_task().symbols, **self.codec_options)

    def build_path(self) -> Path:
        return choose("path", PATHS, self.path)(**self.path_options)

    def build_model(self) -> nn.Module:
        make = choose("network", NETWORKS, self.network)
        return make(self.build_codec().dim, self.build_task(), **self.network_options)

    def build_objective(self) -> Objective:
        make = choose("objective", OBJECTIVES, self.objective)
        return make(self.simple_weight, self.full_gradient, **self.objective_options)
