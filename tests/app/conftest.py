"""Run folders of every task that may have no shipped model, small and untrained."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

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


@pytest.fixture(scope="session")
def pictured(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A run folder of a model that sees images of digits, hardly trained."""
    from digits import write_mnist

    import letgo
    from letgo.data import decoder
    from letgo.presets import PRESETS

    folder = tmp_path_factory.mktemp("pictured")
    config = PRESETS["sudoku-mini-digits"].changed(network_options={"width": 16, "depth": 1, "heads": 2, "hidden": 16})
    small = {"batch": 8, "boards": 64, "warmup": 2, "validate": 4, "device": "cpu", "sample_steps": 4, "steps": 6}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoder, "STEPS", {8: 40})
        return str(Path(letgo.train(config, folder / "run", digits=str(write_mnist(folder / "mnist")), **small)))


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    from pages import FLAGS
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    assert chromium, "these tests need Chromium: apt-get install chromium"
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def address(folders: dict[str, Path]) -> Iterator[str]:
    """A server with the shipped models and the small ones of every task."""
    from servers import serving

    with serving(models=[str(folder) for folder in folders.values()]) as address:
        yield address


@pytest.fixture(scope="session")
def plain() -> Iterator[str]:
    """The page as most people meet it: the shipped models alone."""
    from servers import serving

    with serving() as address:
        yield address


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Any]:
    from pages import watched

    with watched(browser) as page:
        page.goto(address)
        yield page
