"""What a sweep is made of: a small file of settings, and a cell for each combination of its lists."""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, TypedDict

from letgo import tasks
from letgo.config import Config
from letgo.data.files import regular_file
from letgo.errors import LetgoError, unknown
from letgo.presets import preset as preset_named
from letgo.report import shard_of
from letgo.runs import locate, read_json
from letgo.runs.files import MOST_JSON
from letgo.samplers import rule_kind
from letgo.training.train import configured
from letgo.typed import Count, Natural, Positive, Share, check

Words = dict[str, Any]
TABLES = ("train", "evaluate", "slurm", "ray")
BESIDE = ("preset", "data", "validate")  # words of [train] that are no fields of a configuration
MOST_CELLS = 100_000


class Evaluate(TypedDict, total=False):
    """These are the words of [evaluate], those of `letgo evaluate`."""

    model: str
    rule: str
    regime: str | int
    steps: Count
    count: Count
    passes: Count
    seed: Natural
    data: str
    shard: str
    batch: Count
    sigma: Positive
    tau_start: Share
    sigma_ahead: Positive
    variance: Positive
    ahead: Positive
    t_max: Share
    t_min: Share
    soft_until: Share
    order_noise: Positive
    temperature: Positive
    until_sure: bool
    sure: float
    whole_tries: bool
    turns: Count


@dataclass(frozen=True)
class Cell:
    """A Cell is one measurement; with `train`, of a model that is trained first."""

    evaluate: Words
    train: Words | None = None
    title: str = ""  # the values in which it differs from others

    @property
    def words(self) -> Words:
        """Return all that decides it."""
        return {"train": self.train, "evaluate": self.evaluate} if self.train else {"evaluate": self.evaluate}

    @property
    def name(self) -> str:
        """Return its file's name: the title, and a digest of all its words, so that other settings are another file."""
        return _named(self.title, self.words)

    @property
    def run(self) -> str | None:
        """Return the folder's name of its training, which cells of other rules share."""
        return None if self.train is None else _named(_title(self.train, [*self.train]), self.train)


@dataclass(frozen=True)
class Spec:
    """A Spec has a sweep's cells, and the words for those who run it."""

    cells: list[Cell]
    slurm: Words = field(default_factory=dict)
    ray: Words = field(default_factory=dict)


def read_spec(path: Path, own_task: str | None = None) -> Spec:
    """Read a .toml or .json; whatever no training or measurement would take is refused now."""
    values = _read(path)
    for name in values:
        if name not in TABLES:
            raise unknown("table", name, TABLES, f"a sweep has {', '.join(TABLES)}: docs/formats.md")
    given = {name: values.get(name, {}) for name in TABLES}
    tables: dict[str, Words] = check(given, dict[str, dict[str, Any]], str(path))
    train, evaluate = tables["train"], tables["evaluate"]
    if own_task is not None and "model" not in evaluate:
        train = {"preset": own_task, **train}
    if ("model" in evaluate) == bool(train):
        raise LetgoError(f"{path}: give [evaluate] a model, or a table [train] with a preset; one of the two")
    try:
        cells = _cells(train, evaluate)
    except LetgoError as error:
        raise LetgoError(f"{path}: {error}") from None
    return Spec(cells, tables["slurm"], tables["ray"])


def _read(path: Path) -> Words:
    regular_file(path, MOST_JSON)
    if path.suffix != ".toml":
        values = read_json(path)
        if not isinstance(values, dict):
            raise LetgoError(f"{path}: expected an object with {', '.join(TABLES)}: docs/formats.md")
        return values
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # no TOML, no UTF-8, thousands of digits, nested without end
        raise LetgoError(f"{path} is not readable TOML ({error})") from None


def _cells(train: Words, evaluate: Words) -> list[Cell]:
    for words in (train, evaluate):
        for name, value in words.items():
            if value == []:
                raise LetgoError(f"{name} is an empty list; give it a value, or leave it out")
    trainings = [_check_training(words) for words in _grid(train)] if train else [None]
    measurements = [_check_measurement(words, bool(train)) for words in _grid(evaluate)]
    if len(trainings) * len(measurements) > MOST_CELLS:
        raise LetgoError(f"{len(trainings) * len(measurements):,} cells are more than {MOST_CELLS:,}")
    axes = [[name for name, value in words.items() if isinstance(value, list)] for words in (train, evaluate)]
    cells = []
    for training, measurement in product(trainings, measurements):
        parts = (_title(training or {}, axes[0]), _title(measurement, axes[1]))
        cells.append(Cell(measurement, training, "_".join(part for part in parts if part) or "cell"))
    return list({cell.name: cell for cell in cells}.values())  # a value twice is one cell


def _grid(words: Words) -> list[Words]:
    """Return one combination after the other; every list is an axis."""
    axes = [value if isinstance(value, list) else [value] for value in words.values()]
    count = 1
    for axis in axes:
        count *= len(axis)
    if count > MOST_CELLS:
        raise LetgoError(f"{count:,} cells are more than {MOST_CELLS:,}")
    return [dict(zip(words, values, strict=True)) for values in product(*axes)]


def configuration(words: Words) -> Config:
    """Return the configuration that the words of a training stand for."""
    preset, changes = words["preset"], {name: value for name, value in words.items() if name not in BESIDE}
    own = tasks.TASKS.get(preset)
    start = Config.for_task(tasks.get(preset)) if own is not None and own.file else preset_named(preset)
    Config.from_dict({**start.as_dict(), **changes})  # what is in a file may have any type
    return Config.from_dict(configured(start, **changes).as_dict())


def _check_training(words: Words) -> Words:
    check({name: words[name] for name in BESIDE if name in words}, dict[str, str | int], "[train]")
    if not isinstance(words.get("preset"), str):
        raise LetgoError("[train] needs a preset; `letgo presets` lists them")
    configuration(words).build_objective()
    return words


def _check_measurement(words: Words, trained: bool) -> Words:
    for name in words:
        if name not in Evaluate.__annotations__:
            raise unknown("word of [evaluate]", name, Evaluate.__annotations__)
    check(words, Evaluate, "[evaluate]")
    if "rule" not in words:
        raise LetgoError("[evaluate] needs a rule, or a list of them")
    rule_kind(words["rule"])
    if "shard" in words:
        shard_of(words["shard"])
    if not trained:
        locate(words["model"])
    return words


def _title(words: Words, names: list[str]) -> str:
    """Return the values of these names: words as they are, numbers after their name."""
    parts = []
    for name in names:
        value = words.get(name)
        text = value if isinstance(value, str) else f"{name}{json.dumps(value)}"
        parts.append(re.sub(r"[^A-Za-z0-9.=-]+", "-", text).strip("-"))
    return "_".join(part for part in parts if part)[:100]


def _named(title: str, words: Words) -> str:
    digest = hashlib.sha256(json.dumps(words, sort_keys=True).encode()).hexdigest()[:8]
    return f"{title}_{digest}"
