"""SRM's network: names and shapes as its checkpoints have them, its parts against their formulas, and its way through
our loop."""

from __future__ import annotations

import json
import math
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
import torch
from digits import write_mnist
from refusals import fault
from torch import Tensor, nn

from letgo.cli import main
from letgo.config import Config
from letgo.data import decoder
from letgo.data.digits import DigitCodec
from letgo.data.source import source_of
from letgo.evaluation import evaluate
from letgo.models.srm import (
    PixelAttention,
    ResBlock,
    SrmDenoiser,
    TimeEmbedding,
    UNet,
    as_board,
    as_cells,
    checkpoint_weights,
    load_srm,
)
from letgo.presets import PRESETS
from letgo.samplers import Sampler
from letgo.solver import Solver

# Written from the description of SRM's checkpoint, without our module.
LAYOUT: dict[str, list[int]] = json.loads(Path(__file__).with_name("srm_layout.json").read_text())["tensors"]


def small() -> UNet:
    torch.manual_seed(0)
    return UNet(widths=(32, 32, 32, 64, 64, 64)).eval()


def test_names_and_shapes_are_those_of_the_published_checkpoint() -> None:
    with torch.device("meta"):
        unet = UNet()
    expected = {name: shape for name, shape in LAYOUT.items() if ".t_emb." not in name}
    assert {name: [*value.shape] for name, value in unet.state_dict().items()} == expected
    assert sum(p.numel() for p in unet.parameters()) == 118_996_995
    assert sum(math.prod(shape) for shape in LAYOUT.values()) == 131_612_675  # with 32 copies of the time embedding


def test_a_checkpoint_is_read_with_its_averaged_weights(tmp_path: Path) -> None:
    unet, other = small(), UNet(widths=(32, 32, 32, 64, 64, 64))
    copies = {"model.encoder.blocks.1.0.norm_with_embedding.t_emb.mlp.0.weight": torch.zeros(512, 256)}
    held = {f"denoiser.{k}": v for k, v in (other.state_dict() | copies).items()}
    held |= {f"ema_denoiser.module.{k}": v for k, v in (unet.state_dict() | copies).items()}
    held["ema_denoiser.n_averaged"] = torch.tensor(3)
    torch.save({"state_dict": held, "global_step": 250_000}, tmp_path / "last.ckpt")
    network = load_srm(tmp_path / "last.ckpt", UNet(widths=(32, 32, 32, 64, 64, 64)))
    for name, value in network.unet.state_dict().items():
        assert torch.equal(value, unet.state_dict()[name]), name
    torch.save(unet.state_dict(), tmp_path / "bare.pt")
    assert load_srm(tmp_path / "bare.pt", UNet(widths=(32, 32, 32, 64, 64, 64)))


def test_what_is_no_checkpoint_of_srm_is_refused(tmp_path: Path) -> None:
    weights = small().state_dict()
    assert "no such file" in fault(load_srm, tmp_path / "none.ckpt", small())
    (tmp_path / "a.ckpt").write_text("weights")
    assert "holds more than tensors" in fault(load_srm, tmp_path / "a.ckpt", small())
    torch.save({"state_dict": {"x": torch.zeros(1)}}, tmp_path / "b.ckpt")
    assert "no weights of SRM's network" in fault(load_srm, tmp_path / "b.ckpt", small())
    torch.save({k: v for k, v in weights.items() if k != "model.decoder.out.2.bias"}, tmp_path / "c.ckpt")
    assert "no model.decoder.out.2.bias" in fault(load_srm, tmp_path / "c.ckpt", small())
    torch.save({**weights, "model.decoder.out.2.bias": torch.zeros(4)}, tmp_path / "d.ckpt")
    assert "model.decoder.out.2.bias is [4], expected [3]" in fault(load_srm, tmp_path / "d.ckpt", small())
    assert checkpoint_weights(weights, "x").keys() == weights.keys()


def test_time_is_embedded_as_described() -> None:
    layer, t = TimeEmbedding(), torch.tensor([0.0, 0.0005, 0.25, 1.0])
    seen: list[Tensor] = []
    layer.mlp = nn.Sequential(Keep(seen))
    layer(t)
    for row, s in zip(seen[0], (0.0, 0.0, 249.0, 999.0), strict=True):
        angles = torch.tensor([s * 10_000 ** (-k / 128) for k in range(128)], dtype=torch.float64)
        torch.testing.assert_close(row.double(), torch.cat([angles.cos(), angles.sin()]), rtol=0, atol=2e-4)


class Keep(nn.Module):
    def __init__(self, seen: list[Tensor]):
        super().__init__()
        self.seen = seen

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(x)
        return x


def test_attention_splits_channels_by_head_first() -> None:
    """Head h has channels 192 h to 192 h + 191 of qkv: 64 queries, 64 keys, 64 values, each scaled by 64^-1/4."""
    torch.manual_seed(0)
    layer, x = PixelAttention(128).double(), torch.randn(2, 128, 3, 4, dtype=torch.float64)
    qkv = layer.qkv(layer.norm(x.flatten(2)))
    heads = []
    for h in range(2):
        q, k, v = (qkv[:, 192 * h + 64 * i : 192 * h + 64 * (i + 1)] for i in range(3))
        weights = torch.einsum("bct,bcs->bts", q * 64**-0.25, k * 64**-0.25).softmax(-1)
        heads.append(torch.einsum("bts,bcs->bct", weights, v))
    expected = x + layer.proj(torch.cat(heads, 1)).view_as(x)
    torch.testing.assert_close(layer(x), expected)


def test_a_block_adds_time_before_its_second_norm() -> None:
    torch.manual_seed(0)
    block, x, time = ResBlock(32, 64).eval(), torch.randn(2, 32, 5, 5), torch.randn(2, 512)
    silu, parts = nn.functional.silu, dict(block.named_modules())
    h = parts["conv_1.2"](silu(nn.functional.group_norm(x, 32, *block.conv_1[0].parameters())))
    e = parts["norm_with_embedding.embedding_layer.1"](silu(time))[:, :, None, None]
    h = nn.functional.group_norm(h + e, 32, *block.norm_with_embedding.norm.parameters())
    torch.testing.assert_close(block(x, time), parts["conv_2.2"](silu(h)) + parts["shortcut"](x))


def test_sides_that_do_not_halve_come_back() -> None:
    """252 -> 126 -> 63 -> 32 -> 16 -> 8, and back; here 36 -> 18 -> 9 -> 5 -> 3 -> 2."""
    with torch.no_grad():
        assert small()(torch.randn(1, 3, 36, 36), torch.tensor([0.5])).shape == (1, 3, 36, 36)


def test_cells_lie_side_by_side_on_a_board() -> None:
    board = torch.arange(2 * 36.0).view(2, 6, 6)
    cells = as_cells(board, 3)
    assert cells.shape == (2, 9, 4)
    assert cells[0, 5].tolist() == [16, 17, 22, 23]  # row 1, column 2: rows 2 and 3, columns 4 and 5
    assert torch.equal(as_board(cells), board)


@pytest.mark.slow
def test_the_tool_measures_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random weights of narrow layers, two boards, two steps: the command of docs/systems.md, but for its sizes."""
    place = Path(__file__).parents[1] / "tools" / "srm.py"
    spec = spec_from_file_location("srm_tool", place)
    assert spec is not None
    tool = module_from_spec(spec)
    spec.loader.exec_module(tool)
    mnist, widths = write_mnist(tmp_path / "mnist", 12, 4), "32,32,32,32,32,32"
    monkeypatch.setitem(PRESETS, "mnist-sudoku-baseline", narrow())
    digits = ["data", "digits", str(mnist), "--preset", "mnist-sudoku-baseline", "--out", str(tmp_path / "d")]
    assert main([*digits, "--decoder-steps", "3", "--quiet"]) == 0
    torch.save(
        {"state_dict": {f"denoiser.{k}": v for k, v in UNet(widths=[32] * 6).state_dict().items()}}, tmp_path / "c"
    )
    words = ["--digits", str(tmp_path / "d"), "--count", "2", "--steps", "2", "--device", "cpu", "--widths", widths]
    tool.main([str(tmp_path / "c"), "--rule", "euler", *words, "--out", str(tmp_path / "r.json")])
    report = json.loads((tmp_path / "r.json").read_text())
    assert (report["rule"], report["settings"], report["count"]) == ("euler", {"soft_until": 0.0}, 2)
    assert (report["digits"]["source"], report["digits"]["pool"]) == ("mnist", 5)


def narrow() -> Config:
    return PRESETS["mnist-sudoku-baseline"].changed(task_options={"box": 2}, codec_options={"size": 28, "pool": 5})


class Says(nn.Module):
    """A U-Net that predicts eps - x0 of a board it knows, from the noisy one; it keeps what it was shown."""

    def __init__(self, x0: Tensor):
        super().__init__()
        self.x0, self.shown = x0, torch.empty(0)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        self.shown = x
        t = t.view(-1, 1, 1)
        return ((x[:, 0] - self.x0) / t)[:, None].expand(-1, 3, -1, -1)  # (x_t - x0) / t = eps - x0


def test_its_velocity_becomes_x0_hat_and_it_sees_mask_and_clues() -> None:
    x0, x_t = torch.randn(1, 9, 4), torch.randn(1, 9, 4)
    given = torch.zeros(1, 9, 1)
    given[0, 2] = 1
    network = SrmDenoiser(Says(as_board(x0)))
    x0_hat = network(x_t, torch.full((1, 1, 1), 0.3), torch.cat([given, x0 * given], -1))
    torch.testing.assert_close(x0_hat, x0)
    noisy, mask, image = network.unet.shown[0]
    assert torch.equal(noisy, as_board(x_t)[0])
    assert mask[0:2, 4:6].tolist() == [[0, 0], [0, 0]]  # 0 is given
    assert int(mask.sum()) == 32
    assert torch.equal(image, as_board(x0 * given)[0])  # 0 where a cell is open
    assert "must be told its clues" in fault(network, x_t, torch.ones(1, 1, 1))


def test_it_solves_through_our_loop_with_soft_pinning(tmp_path: Path) -> None:
    """A network that knows the answer ends there by both rules, and its boards are read by the decoder."""
    mnist = write_mnist(tmp_path / "mnist", 12, 4)
    config = narrow()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoder, "LARGE_STEPS", 30)
        codec = config.build_codec()
        assert isinstance(codec, DigitCodec)
        named, files = codec.prepare(config.build_task(), str(mnist), tmp_path / "none", lambda text: None)
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    config = Config.from_dict({**config.as_dict(), "codec_options": named})
    problem = source_of(config.build_task()).draw("test", "hard", 2, 0)
    solver = Solver(config, nn.Identity(), folder=tmp_path, fast=False)
    known = Says(as_board(solver.clues(problem).values))
    solver = Solver(config, SrmDenoiser(known), folder=tmp_path, fast=False)
    for rule in ("euler", "tweedie"):
        report = evaluate(solver, problem, Sampler(rule, 4, soft_until=0.0), batch=2)
        assert report.validity.value == 1.0
    assert bool((known.shown[:, 0] != known.x0).any())
