"""The presets against the paper's own table of hyperparameters."""

from __future__ import annotations

import pytest

from letgo.presets import PRESETS

pytestmark = pytest.mark.fast

# Table 4, the task's own batch (graphs) and App. G's lambda and batch of mazes; what a preset does otherwise on purpose
# stands beside it, and is said so in `presets.py`.
TABLE_4 = {"steps": 2_000_000, "optimizer": "adam", "learning_rate": 1e-3, "batch": 256, "simple_weight": 0.1,
           "path": "cosine", "sample_steps": 200}  # fmt: skip
OTHERWISE = {
    "sudoku-extreme": {"sample_steps": 1000},
    **{f"{name}-looped": {"steps": 200_000} for name in ("sudoku", "latin", "queens")},
    "connectivity-looped": {"batch": 32, "steps": 20_000, "learning_rate": 2e-3, "sample_steps": 3},
    "sudoku-extreme-looped": {"steps": 200_000},
    "sudoku-extreme-consistency": {"learning_rate": 1e-4},
    "connectivity": {"batch": 64},
    "maze": {"batch": 64, "simple_weight": 0.5},
    "maze-muon": {"optimizer": "muon", "learning_rate": 4e-4},
    "sudoku-flow": {"path": "linear"},
    "mnist-sudoku": {"path": "linear", "path_options": {"shift": 8.0}, "steps": 300_000, "sample_steps": 500},
    "mnist-sudoku-mini": {"steps": 4_000, "batch": 128, "sample_steps": 100},
    **{f"{task}-d3pm": {"path": "absorbing", "sample_steps": 256} for task in ("sudoku", "latin", "queens")},
    "sudoku-extreme-d3pm": {"path": "absorbing"},
    "connectivity-d3pm": {"path": "absorbing", "sample_steps": 64},
    "maze-d3pm": {"path": "absorbing", "sample_steps": 256, "simple_weight": 0.1},
    "sudoku-mini-d3pm": {"path": "absorbing"},
    "sudoku-mini": {"steps": 4_000, "learning_rate": 2e-3, "batch": 64, "sample_steps": 50},
}


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_has_the_papers_numbers(name: str) -> None:
    parts = name.removesuffix("-baseline").split("-")
    wanted = dict(TABLE_4)
    for length in range(1, len(parts) + 1):  # maze, then maze-muon
        wanted |= OTHERWISE.get("-".join(parts[:length]), {})
    assert {field: getattr(PRESETS[name], field) for field in wanted} == wanted


def test_a_baseline_differs_from_its_pair_in_the_loss_alone() -> None:
    for name, config in PRESETS.items():
        if f"{name}-baseline" in PRESETS:
            other = PRESETS[f"{name}-baseline"].as_dict()
            changed = {field for field, value in config.as_dict().items() if other[field] != value}
            assert changed == {"name", "objective"}
            assert (config.objective, other["objective"]) == ("self-correction", "simple")
