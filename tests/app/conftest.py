"""Run folders of every task that may have no shipped model, small and untrained."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

SMALL = {"width": 24, "depth": 1, "heads": 2, "hidden": 24}
TASK_OPTIONS = {"latin": {"size": 4}, "queens": {"size": 6}, "maze": {"size": 8}, "connectivity": {"size": 6}}


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders by task."""
    import torch

    from letgo.presets import PRESETS
    from letgo.runs import save_weights, write_json

    made = {}
    for task, options in TASK_OPTIONS.items():
        network = {"width": 4} if task == "connectivity" else SMALL
        config = replace(PRESETS[task], task_options=options, network_options=network, sample_steps=8)
        torch.manual_seed(0)
        folder = tmp_path_factory.mktemp("runs") / f"small-{task}"
        folder.mkdir()
        write_json(folder / "config.json", config.as_dict())
        save_weights(folder / "model.safetensors", config.build_model().state_dict())
        made[task] = folder
    return made
