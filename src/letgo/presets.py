"""One row per published experiment."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from letgo import tasks
from letgo.config import SMALL, Config
from letgo.errors import unknown


def _pair(config: Config) -> dict[str, Config]:
    """Return X with self-correction and X-baseline without."""
    baseline = replace(config, name=f"{config.name}-baseline", objective="simple")
    return {config.name: config, baseline.name: baseline}


def _masked(config: Config, sample_steps: int) -> dict[str, Config]:
    """Return X-d3pm: the same network as the discrete reference (App. F.1)."""
    body = {} if config.network == "transformer" else {"network": config.network}
    masked = replace(
        config, name=f"{config.name}-d3pm", codec="masked", path="absorbing", network="categorical",
        network_options={**body, **config.network_options}, objective="masked", sample_steps=sample_steps,
    )  # fmt: skip
    return {masked.name: masked}


_EXTREME = Config("sudoku-extreme", "sudoku-extreme", masks="data", boards=500_000, sample_steps=1000)
_LATIN = Config("latin", "latin", boards=168_000)  # 80% of App. D's 210,000 boards
_QUEENS = Config("queens", "queens", boards=168_000)  # `queens.train_split`, all of it
_MAZES = Config("maze", "maze", masks="data", batch=64, boards=1000, simple_weight=0.5)
_NLM: dict[str, Any] = {"network": "nlm", "network_options": {"depth": 4}}
_GRAPHS = Config("connectivity", "connectivity", masks="data", batch=64, boards=500_000, **_NLM)
_MINI = Config(
    "sudoku-mini", "sudoku", {"box": 2}, network_options=SMALL, steps=4_000, learning_rate=2e-3, warmup=200,
    batch=64, decay=0.2, boards=2_000, sample_steps=50,
)  # fmt: skip
SMALL_IMAGES = {"width": 64, "depth": 3, "heads": 4, "hidden": 192}
_LOOPED: dict[str, Any] = {
    "network": "looped", "objective": "cross-entropy", "steps": 200_000, "warmup": 1_000, "decay": 0.5,
    "clip_norm": 1.0, "ema": 0.99975, "sample_rule": "resample",
}  # fmt: skip
_CONSISTENCY: dict[str, Any] = {"network": "consistency", "objective": "consistency", "sample_rule": "tweedie"}

PRESETS: dict[str, Config] = {
    # Table 1 at 21 clues: DDPM .31 -> .87, Tweedie .95 -> .98
    **_pair(Config("sudoku", "sudoku")),
    # Table 1, pass@1: DDPM .05 -> .22, Tweedie .26 -> .49
    **_pair(_EXTREME),
    # No row of the paper: 8 layers instead of 4
    **_pair(replace(_EXTREME, name="sudoku-extreme-deep", network_options={"depth": 8})),
    # No row of the paper: a looped denoiser, four turns a call, the same number of weights
    "sudoku-extreme-looped": replace(
        _EXTREME, name="sudoku-extreme-looped", boards=520_000, symmetries=True, **_LOOPED
    ),
    # App. L.4, pass@1: .03 in 5 steps, .16 in 1000
    "sudoku-extreme-consistency": replace(
        _EXTREME, name="sudoku-extreme-consistency", learning_rate=1e-4, warmup=10_000, **_CONSISTENCY
    ),
    # Table 1, random: DDPM .71 -> .98, Tweedie .99 -> 1.00
    **_pair(_LATIN),
    # Table 1, random: DDPM .53 -> .74, Tweedie .83 -> .89
    **_pair(_QUEENS),
    # No row of the paper: looped denoisers of other tasks
    **{
        f"{row.name}-looped": replace(row, name=f"{row.name}-looped", **_LOOPED)
        for row in (Config("sudoku", "sudoku", symmetries=True), _LATIN, _QUEENS)
    },
    # Graphs by 47,298 weights, in an hour of one CPU core
    "connectivity-looped": replace(
        _GRAPHS, name="connectivity-looped", batch=32, learning_rate=2e-3, boards=200_000, sample_steps=3,
        sample_turns=8,
        **{**_LOOPED, "network": "looped-nlm", "network_options": {}, "steps": 20_000, "warmup": 200},
    ),
    # Table 1, N = 12: DDPM .80 -> .88, Tweedie .97 -> .99
    **_pair(_GRAPHS),
    # IRED's network as released, 2 layers: as trained here it stays far below the paper (docs/decisions.md)
    **_pair(replace(_GRAPHS, name="connectivity-ired", network_options={})),
    # Table 7, valid, pass@1: DDPM .131 -> .071, Tweedie .408 -> .905. As the paper writes it: memorised here
    **_pair(_MAZES),
    # The same mazes, each in its 8 turns and reflections, which the paper does not mention and its sources have
    **_pair(replace(_MAZES, name="maze-symmetries", symmetries=True)),
    # No row of the paper: by Muon, and twenty times as many mazes
    **_pair(replace(_MAZES, name="maze-muon", boards=20_000, optimizer="muon", learning_rate=4e-4, decay=0.6)),
    # Table 9: rectified flow
    **_pair(Config("sudoku-flow", "sudoku", path="linear")),
    # Table 11: other representations
    **_pair(Config("sudoku-bits", "sudoku", codec="bits")),
    **_pair(Config("sudoku-embedding", "sudoku", codec="embedding")),
    # One row of ours beside Table 9: the network predicts the velocity instead of x0
    "sudoku-flow-velocity-baseline": Config(
        "sudoku-flow-velocity-baseline", "sudoku", path="linear", network="velocity", objective="velocity"
    ),
    # Table 11, mini MNIST-Sudoku: DDPM .01 -> .39, Tweedie .42 -> .78. 8x8 digits
    **_pair(Config("sudoku-digits", "sudoku", codec="digits", codec_options={"size": 8})),
    # Section 4, SRM's Hard split: Euler .008, Tweedie .657 by SRM's own network; ours takes cells as tokens of pixels
    **_pair(Config(
        "mnist-sudoku", "mnist-sudoku", codec="digits", codec_options={"size": 28, "pool": 1000}, path="linear",
        path_options={"shift": 8.0}, steps=300_000, clip_norm=1.0, decay=0.2, sample_steps=500,
    )),
    # The same with 4x4 boards, on a laptop in minutes
    **_pair(Config(
        "mnist-sudoku-mini", "mnist-sudoku", {"box": 2}, codec="digits", codec_options={"size": 28, "pool": 1000},
        path="linear", path_options={"shift": 8.0}, network_options=SMALL_IMAGES, steps=4_000, warmup=200, batch=128,
        clip_norm=1.0, decay=0.2, boards=2_000, sample_steps=100,
    )),
    # Table 1's discrete reference. At 21 clues: ancestral .57, confidence 1.00, remask .99
    **_masked(Config("sudoku", "sudoku"), 256),
    # pass@1: ancestral .03, confidence .24, remask .23
    **_masked(_EXTREME, 1000),
    # Random: ancestral .88, confidence 1.00, remask 1.00
    **_masked(_LATIN, 256),
    # Random: ancestral .85, confidence .97, remask .97
    **_masked(_QUEENS, 256),
    # N = 12: ancestral .46, confidence .99, remask .99
    **_masked(_GRAPHS, 64),
    # No row of the paper
    **_masked(replace(_MAZES, simple_weight=0.1), 256),
    # 4x4, no row of the paper: learned on a laptop in two minutes
    "sudoku-mini": _MINI,
    **_masked(_MINI, 50),
    # 4x4 as a consistency model and with 8x8 digits, on a laptop too
    "sudoku-mini-consistency": replace(_MINI, name="sudoku-mini-consistency", **_CONSISTENCY),
    **_pair(replace(_MINI, name="sudoku-mini-digits", codec="digits", codec_options={"size": 8})),
}  # fmt: skip


# App. L.2's ways of training, and Table 8's, as changes of any preset: `letgo train sudoku --ablation ddpm-step`
ABLATIONS: dict[str, dict[str, Any]] = {
    "input-perturbation": {"objective": "simple", "objective_options": {"perturbation": 0.1}},
    "ddpm-step": {"objective": "self-correction", "objective_options": {"reenter": "ddpm-step"}},
    "ddpm-mean": {"objective": "self-correction", "objective_options": {"target": "ddpm-mean"}},
    "ddpm-step-mean": {
        "objective": "self-correction", "objective_options": {"reenter": "ddpm-step", "target": "ddpm-mean"},
    },
    "random-n": {"objective": "self-correction", "objective_options": {"rollouts": 4}},
    "self-conditioning": {"network": "self-conditioned", "objective": "self-conditioning"},
    "corrupt-20": {"objective": "self-correction", "objective_options": {"reenter": "corrupt"}},
    "corrupt-40": {"objective": "self-correction", "objective_options": {"reenter": "corrupt-40"}},
    "rollouts-16": {"objective": "rollouts"},  # from a trained model: --init sudoku-baseline
}  # fmt: skip


def ablated(config: Config, name: str) -> Config:
    """Return a configuration trained in one of the ways of App. L.2, named after it."""
    if name not in ABLATIONS:
        raise unknown("ablation", name, ABLATIONS)
    return config.changed(name=f"{config.name}-{name}", **ABLATIONS[name])


def preset(name: str) -> Config:
    """Return the row of that name or, for a task from outside the package, what suits its size."""
    if name in PRESETS:
        return PRESETS[name]
    row = tasks.find(name)
    if row is None or isinstance(row.build, str):
        raise unknown("preset", name, PRESETS, "`letgo presets` lists them")
    return Config.for_task(tasks.get(name))
