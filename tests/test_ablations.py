"""The ways of training of App. L.2, from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from letgo.cli import main
from letgo.config import Config
from letgo.models.conditioned import SelfConditioned
from letgo.presets import ABLATIONS, PRESETS
from letgo.training.trainer import pack, plain_network


@pytest.mark.parametrize("name", ABLATIONS)
def test_every_way_of_appendix_l2_trains_by_its_name(name: str, tmp_path: Path) -> None:
    words = ["--steps", "1", "--batch", "4", "--boards", "8", "--device", "cpu", "--validate", "0", "--quiet"]
    out = str(tmp_path / name)
    assert main(["train", "sudoku-mini", "--ablation", name, "--out", out, *words]) == 0
    config = json.loads((tmp_path / name / "config.json").read_text())
    assert config["name"] == f"sudoku-mini-{name}"
    built = Config.from_dict(config).build_objective()
    assert built != PRESETS["sudoku-mini"].build_objective()
    if config["network"] == "self-conditioned":  # the others sample as every Transformer does
        words = ["--rule", "ddpm", "--count", "2", "--steps", "3", "--device", "cpu", "--quiet"]
        assert main(["evaluate", out, *words]) == 0


def test_a_wrong_name_of_an_ablation_lists_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "sudoku-mini", "--ablation", "ddpm-steps", "--dry-run"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert all(name in error for name in ABLATIONS)


def test_models_that_are_trained_together_are_each_shown_their_own_predictions() -> None:
    networks = [SelfConditioned(3, torch.arange(6)[None], width=16, depth=1, heads=2, hidden=16) for _ in range(2)]
    shapes, call = plain_network(networks[0].eval())
    rows = torch.stack([pack(dict(network.named_parameters()), shapes) for network in networks])
    x_t, t, memory = torch.randn(4, 6, 3), torch.rand(4, 1, 1), torch.randn(4, 6, 3)
    with torch.no_grad():
        together = call(rows, x_t, t, None, memory=memory)
        for model, network in enumerate(networks):
            alone = network.eval()(x_t[model::2], t[model::2], None, memory[model::2])[0]
            assert_close(together[model::2], alone)
