"""Run folders of every task that may have no shipped model, small and untrained."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

SMALL = {"width": 24, "depth": 1, "heads": 2, "hidden": 24}
SIZES = {
    "latin": {"size": 4},
    "queens": {"size": 6},
    "maze": {"size": 8},
    "connectivity": {"size": 6},
    "sudoku-d3pm": {"box": 2},
}


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders by preset."""
    import torch

    from letgo.presets import PRESETS
    from letgo.runs import save_weights, write_json

    folders = {}
    for preset, options in SIZES.items():
        network = {"width": 4} if preset == "connectivity" else SMALL
        config = replace(PRESETS[preset], task_options=options, network_options=network, sample_steps=8)
        torch.manual_seed(0)
        folder = tmp_path_factory.mktemp("runs") / f"small-{preset}"
        folder.mkdir()
        write_json(folder / "config.json", config.as_dict())
        save_weights(folder / "model.safetensors", config.build_model().state_dict())
        folders[preset] = folder
    return folders
