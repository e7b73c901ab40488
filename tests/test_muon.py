"""Muon against its definition (the polar factor), against torch's own Muon, and inside a run."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch.testing import assert_close

from letgo.errors import LetgoError
from letgo.presets import PRESETS
from letgo.rng import data_rng
from letgo.training.data import TrainingData
from letgo.training.muon import RATE, Muon, orthogonal, pieces
from letgo.training.trainer import Trainer

SMALL = {"width": 24, "depth": 2, "heads": 2, "hidden": 48}
MINI = replace(PRESETS["sudoku-mini"], network_options=SMALL, optimizer="muon", batch=8, warmup=0)
CPU = torch.device("cpu")


def shapes_of(options: dict[str, int]) -> dict[str, torch.Size]:
    model = replace(MINI, network_options=options).build_model()
    return {name: p.shape for name, p in model.named_parameters()}


@pytest.mark.fast
@pytest.mark.parametrize("shape", [(128, 128), (128, 512), (24, 48)])
def test_the_step_is_close_to_the_polar_factor(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    matrices = torch.randn(3, *shape) * torch.tensor([1e-4, 1.0, 1e3]).view(3, 1, 1)
    found = orthogonal(matrices)
    left, singular, right = torch.linalg.svd(matrices, full_matrices=False)
    inner = left.mT @ found @ right.mT  # diagonal: the same singular vectors
    strengths = inner.diagonal(dim1=1, dim2=2)
    assert_close(inner, torch.diag_embed(strengths), atol=1e-3, rtol=0)
    seen = singular > 0.05 * singular[:, :1]
    assert float(strengths[seen].min()) > 0.6
    assert float(strengths.max()) < 1.25


def test_matrices_of_a_batch_do_not_mix() -> None:
    torch.manual_seed(0)
    matrices = torch.randn(5, 24, 48)
    for alone, together in zip(matrices, orthogonal(matrices), strict=True):
        assert_close(orthogonal(alone[None])[0], together, atol=1e-5, rtol=1e-4)


def test_pieces_cover_every_weight_once_and_queries_keys_values_are_apart() -> None:
    shapes = shapes_of(SMALL)
    found, at = pieces(shapes), 0
    for piece in found:
        assert piece.start == at
        at += piece.size
    assert at == sum(shape.numel() for shape in shapes.values())
    matrices = [piece.shape for piece in found if piece.shape]
    assert matrices == [*[(24, 24)] * 4, (48, 24), (24, 48)] * 2  # q, k, v, out, and the MLP's two


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="torch has its own since 2.9")
def test_steps_are_those_of_torchs_muon_and_adam() -> None:
    """For two stacked models, each as if it were alone; torch's multiplies in bf16."""
    torch.manual_seed(0)
    shapes = shapes_of(SMALL)
    size, rate, models = sum(shape.numel() for shape in shapes.values()), 1e-3, 2
    flat = torch.randn(models, size).requires_grad_()
    ours = Muon(flat, torch.tensor(rate), shapes)
    zero = torch.zeros_like(flat.detach())
    ours.state[flat] = {"step": torch.tensor(0.0), "exp_avg": zero.clone(), "exp_avg_sq": zero.clone()}
    start = flat.detach().clone()
    cuts = [(model, piece) for model in range(models) for piece in pieces(shapes)]
    theirs = [torch.nn.Parameter(piece.of(flat.detach())[model].clone()) for model, piece in cuts]
    matrices = [p for p, (_, piece) in zip(theirs, cuts, strict=True) if piece.shape]
    others = [p for p, (_, piece) in zip(theirs, cuts, strict=True) if not piece.shape]
    optimizers = [
        torch.optim.Muon(matrices, lr=RATE * rate, weight_decay=0.0),
        torch.optim.Adam(others, lr=rate),
    ]
    for _ in range(3):
        flat.grad = torch.randn(models, size)
        for p, (model, piece) in zip(theirs, cuts, strict=True):
            p.grad = piece.of(flat.grad)[model].clone()
        ours.step()
        for optimizer in optimizers:
            optimizer.step()
    for p, (model, piece) in zip(theirs, cuts, strict=True):
        mine, before = piece.of(flat.detach())[model], piece.of(start)[model]
        if piece.shape is None:
            assert_close(mine, p.detach(), atol=1e-6, rtol=1e-5)
        else:
            move, theirs_move = mine - before, p.detach() - before
            assert float((move - theirs_move).norm() / theirs_move.norm()) < 0.03
            assert float(move.norm()) > 0


def test_compiled_it_moves_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """By torch.compile without its code generator, which takes half a minute of a CPU."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager", fullgraph=True))
    torch.manual_seed(0)
    shapes = shapes_of({"width": 16, "depth": 1, "heads": 1, "hidden": 32})
    size = sum(shape.numel() for shape in shapes.values())
    start, gradient, ends = torch.randn(1, size), torch.randn(1, size), []
    for compiled in (False, True):
        flat = start.clone().requires_grad_()
        optimizer = Muon(flat, torch.tensor(1e-3), shapes, compiled)
        zero = torch.zeros_like(start)
        optimizer.state[flat] = {"step": torch.tensor(0.0), "exp_avg": zero.clone(), "exp_avg_sq": zero.clone()}
        for _ in range(2):
            flat.grad = gradient.clone()
            optimizer.step()
        assert float(optimizer.state[flat]["step"]) == 2
        ends.append(flat.detach())
    assert_close(ends[0], ends[1], atol=1e-5, rtol=1e-4)
    assert float((ends[0] - start).abs().max()) > 1e-3


@pytest.mark.slow
def test_it_learns_faster_than_adam() -> None:
    """150 steps on 256 boards of 4x4: over seeds 0 to 5 its loss was .68 to .74 of Adam's."""
    boards = MINI.build_task().generate(256, data_rng(0, "train"), "train")
    losses = {}
    for name in ("adam", "muon"):
        config = replace(MINI, optimizer=name, batch=64, warmup=20, objective="simple")
        trainer = Trainer.of(config, TrainingData.of(boards, config.masks, CPU))
        for step in range(150):
            if step == 100:
                trainer.mean_losses()
            trainer.step()
        losses[name] = trainer.mean_losses()[0]["loss"]
    assert losses["muon"] < 0.9 * losses["adam"]


def test_networks_without_blocks_and_unknown_optimizers_are_refused() -> None:
    graphs = replace(PRESETS["connectivity"], task_options={"size": 6}, optimizer="muon", batch=8)
    for config, message in (
        (graphs, "muon is for Transformers"),
        (replace(MINI, optimizer="sgd"), "unknown optimizer"),
    ):
        problem = config.build_task().generate(8, data_rng(0, "train"), "train")
        with pytest.raises(LetgoError, match=message):
            Trainer.of(config, TrainingData.of(problem, config.masks, CPU))
