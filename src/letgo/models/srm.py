"""SRM's U-Net (Wewer et al. 2025), written anew under the names of its published checkpoints, so that they load.

It sees the noisy board, which pixels are open and the given ones, and predicts eps - x0 on the linear path; two more
output channels are of its own samplers and are left alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from letgo.errors import LetgoError
from letgo.shapes import State, Time

WIDTHS = (128, 128, 256, 256, 512, 512)  # channels at 252, 126, 63, 32, 16 and 8 pixels
ATTENDS = 2  # of the levels, the last ones
TIME, FEATURES, HEAD, GROUPS = 512, 256, 64, 32
PREFIXES = ("ema_denoiser.module.", "denoiser.", "")  # averaged weights before raw ones
SHARED = "norm_with_embedding.t_emb."  # every block's copy of the one time embedding

Pixels = Float[Tensor, "batch _ _ _"]  # channels, rows and columns, which a layer may change
Moment = Float[Tensor, "batch _"]


class TimeEmbedding(nn.Module):
    """It puts [cos(w_k s), sin(w_k s)] of s = max(1000 t - 1, 0), w_k = 10000^(-k / 128), through a two-layer MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(FEATURES, TIME), nn.SiLU(), nn.Linear(TIME, TIME))

    def forward(self, t: Float[Tensor, "batch"]) -> Moment:
        half = FEATURES // 2
        frequencies = torch.exp(-math.log(10_000) / half * torch.arange(half, device=t.device))
        angle = (1000 * t - 1).clamp(min=0)[:, None] * frequencies
        return self.mlp(torch.cat([angle.cos(), angle.sin()], 1))


class TimedNorm(nn.Module):
    """It normalises features and time, added up, in groups."""

    def __init__(self, channels: int):
        super().__init__()
        self.norm = nn.GroupNorm(GROUPS, channels)
        self.embedding_layer = nn.Sequential(nn.SiLU(), nn.Linear(TIME, channels))

    def forward(self, x: Pixels, time: Moment) -> Pixels:
        return self.norm(x + self.embedding_layer(time)[:, :, None, None])


class ResBlock(nn.Module):
    def __init__(self, before: int, after: int):
        super().__init__()
        self.conv_1 = nn.Sequential(nn.GroupNorm(GROUPS, before), nn.SiLU(), nn.Conv2d(before, after, 3, padding=1))
        self.norm_with_embedding = TimedNorm(after)
        self.conv_2 = nn.Sequential(nn.SiLU(), nn.Dropout(0.1), nn.Conv2d(after, after, 3, padding=1))
        self.shortcut = nn.Identity() if before == after else nn.Conv2d(before, after, 1)

    def forward(self, x: Pixels, time: Moment) -> Pixels:
        return self.shortcut(x) + self.conv_2(self.norm_with_embedding(self.conv_1(x), time))


class PixelAttention(nn.Module):
    """All pixels attend to each other by heads of 64 channels; a head's queries, keys and values are neighbours."""

    def __init__(self, channels: int):
        super().__init__()
        self.norm = nn.GroupNorm(GROUPS, channels)
        self.qkv, self.proj = nn.Conv1d(channels, 3 * channels, 1), nn.Conv1d(channels, channels, 1)
        self.heads = max(1, channels // HEAD)

    def forward(self, x: Pixels) -> Pixels:
        flat = x.flatten(2)
        q, k, v = self.qkv(self.norm(flat)).unflatten(1, (self.heads, -1)).chunk(3, 2)
        mixed = F.scaled_dot_product_attention(q.mT, k.mT, v.mT).mT  # scaled by 64^-1/2 in all, as SRM's
        return x + self.proj(mixed.flatten(1, 2)).view_as(x)


class Down(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.downsample = nn.Conv2d(channels, channels, 3, stride=2, padding=1)

    def forward(self, x: Pixels) -> Pixels:
        return self.downsample(x)


class Up(nn.Module):
    """It resizes to the side of the next skip by repeating pixels, then convolves."""

    def __init__(self, channels: int):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Pixels, size: Sequence[int]) -> Pixels:
        return self.conv(F.interpolate(x, tuple(size), mode="nearest"))


def listed(blocks: list[list[nn.Module]]) -> nn.ModuleList:
    return nn.ModuleList(nn.ModuleList(block) for block in blocks)


class UNet(nn.Module):
    """It is what a checkpoint calls `model` and `time_embedding`."""

    def __init__(self, channels: int = 3, widths: Sequence[int] = WIDTHS):
        super().__init__()
        first, last, deep = widths[0], widths[-1], len(widths) - ATTENDS
        self.time_embedding = TimeEmbedding()
        encoder: list[list[nn.Module]] = [[nn.Conv2d(channels, first, 3, padding=1)]]
        skips, width = [first], first
        for level, wide in enumerate(widths):
            for _ in range(2):
                encoder.append([ResBlock(width, wide), *([PixelAttention(wide)] if level >= deep else [])])
                width = wide
                skips.append(wide)
            if level < len(widths) - 1:
                encoder.append([Down(wide)])
                skips.append(wide)
        decoder: list[list[nn.Module]] = []
        for level, wide in reversed([*enumerate(widths)]):
            for turn in range(3):
                block: list[nn.Module] = [ResBlock(width + skips.pop(), wide)]
                width = wide
                block += [PixelAttention(wide)] if level >= deep else []
                decoder.append([*block, *([Up(wide)] if turn == 2 and level else [])])
        out = nn.Sequential(nn.GroupNorm(GROUPS, first), nn.SiLU(), nn.Conv2d(first, channels, 3, padding=1))
        bottom = nn.ModuleList([ResBlock(last, last), PixelAttention(last), ResBlock(last, last)])
        up = nn.ModuleDict({"blocks": listed(decoder), "out": out})
        self.model = nn.ModuleDict(
            {
                "encoder": nn.ModuleDict({"blocks": listed(encoder)}),
                "bottleneck": nn.ModuleDict({"blocks": bottom}),
                "decoder": up,
            }
        )

    def forward(self, x: Pixels, t: Float[Tensor, "batch"]) -> Pixels:
        time, skips = self.time_embedding(t), []
        parts: Any = self.model  # lists by name

        def apply(module: Any, x: Pixels) -> Pixels:
            if isinstance(module, Up):
                return module(x, skips[-1].shape[-2:])
            return module(x, time) if isinstance(module, ResBlock) else module(x)

        blocks = {name: parts[name]["blocks"] for name in ("encoder", "bottleneck", "decoder")}
        for block in blocks["encoder"]:
            for module in block:
                x = apply(module, x)
            skips.append(x)
        for module in blocks["bottleneck"]:
            x = apply(module, x)
        for block in blocks["decoder"]:
            x = torch.cat([x, skips.pop()], 1)
            for module in block:
                x = apply(module, x)
        return parts["decoder"]["out"](x)


def as_board(cells: Float[Tensor, "batch cells pixels"]) -> Float[Tensor, "batch height width"]:
    """Lay square cells of square images side by side: cell (r, c) of 9x9 has rows 28 r to 28 r + 27."""
    side, size = math.isqrt(cells.shape[1]), math.isqrt(cells.shape[2])
    return cells.view(-1, side, side, size, size).transpose(2, 3).reshape(-1, side * size, side * size)


def as_cells(board: Float[Tensor, "batch height width"], side: int) -> Float[Tensor, "batch cells pixels"]:
    size = board.shape[1] // side
    return board.view(-1, side, size, side, size).transpose(2, 3).reshape(-1, side * side, size * size)


class SrmDenoiser(nn.Module):
    """It calls the U-Net as f(x_t, t) = x0_hat on boards of cells; `context` holds what is given, and the given images.

    It was trained on boards that are noisy all over: sample from it with soft pinning at all times (`soft_until=0`).
    """

    sees_clues = True  # so that `Solver.context` is (batch, cells, 1 + pixels)

    def __init__(self, unet: nn.Module):
        super().__init__()
        self.unet = unet

    def forward(self, x_t: State, t: Time, context: Tensor | None = None) -> State:
        if context is None:
            raise LetgoError("SRM's network must be told its clues; sample from it with a Solver")
        given, images = context[..., :1], context[..., 1:]
        open_cells = as_board((1 - given).expand_as(images))
        x = torch.stack([as_board(x_t), open_cells, (1 - open_cells) * as_board(images)], 1)
        u = self.unet(x, t.flatten().expand(len(x_t)))[:, 0]
        return x_t - t * as_cells(u, math.isqrt(x_t.shape[1]))


def checkpoint_weights(tensors: dict[str, Tensor], where: str) -> dict[str, Tensor]:
    """Return the weights of the U-Net, the averaged ones where there are both; copies of the time embedding go."""
    for prefix in PREFIXES:
        found = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(f"{prefix}time_embedding.mlp.")}
        if found:
            mine = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(f"{prefix}model.")}
            return found | {k: v for k, v in mine.items() if SHARED not in k}
    raise LetgoError(f"{where} holds no weights of SRM's network (time_embedding.mlp..., model.encoder...)")


def load_srm(path: Path, unet: UNet | None = None) -> SrmDenoiser:
    """Read a checkpoint of SRM's rectified-flow baseline: a Lightning file, or its state dict. No code in it is run."""
    unet = UNet() if unet is None else unet
    try:
        held = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise LetgoError(f"{path}: no such file; it is `outputs/ms1000_base/.../last.ckpt` of SRM's release") from None
    except Exception as error:  # torch raises many kinds for a foreign or damaged file
        raise LetgoError(
            f"{path} holds more than tensors, or is damaged ({str(error).splitlines()[0][:80]}); if you trust it, save "
            "its state_dict alone with torch and name that file"
        ) from None
    tensors = held.get("state_dict", held) if isinstance(held, dict) else {}
    weights = checkpoint_weights({k: v for k, v in tensors.items() if isinstance(v, Tensor)}, str(path))
    wanted = {name: value.shape for name, value in unet.state_dict().items()}
    for name in sorted(wanted.keys() ^ weights.keys()):
        raise LetgoError(f"{path}: {'no' if name in wanted else 'unknown'} {name}; it is another network than SRM's")
    for name, shape in wanted.items():
        if weights[name].shape != shape:
            raise LetgoError(f"{path}: {name} is {[*weights[name].shape]}, expected {[*shape]}")
    unet.load_state_dict({name: value.float() for name, value in weights.items()})
    return SrmDenoiser(unet).eval()
