"""Boards whose cells are images, as the page shows them: one small grey PNG of all cells, white ink on black."""

from __future__ import annotations

import base64
import math
import struct
import zlib
from typing import Any

import torch
from jaxtyping import Float, UInt8
from torch import Tensor
from torch.nn import functional as F

from letgo.codecs import is_varied
from letgo.solver import Solver
from letgo.tasks import Problem

MOST_PIXELS = 14  # the side of a cell's image; larger ones are averaged
SHADES = 16  # half a byte a pixel
MARGIN = 3 / 8  # of that side: room beside the image, for the cell's symbol
PAPER = -1.0  # as the codec has it


def picture_side(solver: Solver) -> int:
    """Return how many pixels high and wide a cell's image is on the page; 0 where it shows none."""
    images: Any = solver.codec
    return shrunk(images.height) if is_varied(images) and solver.task.look.kind == "grid" else 0


def shrunk(size: int) -> int:
    """Return the side of an image once groups of pixels have become one each: whole groups, where that fits."""
    return size // math.ceil(size / MOST_PIXELS)


def picture(solver: Solver, cells: Float[Tensor, "cells dim"]) -> str | None:
    """Return the images of all cells as one PNG in base64; None where the page shows none."""
    if not picture_side(solver):
        return None
    return base64.b64encode(png(board(cells, solver.task.look.columns))).decode()


def picture_of_clues(solver: Solver, problem: Problem) -> str | None:
    """Return the given images of a puzzle, on paper."""
    if not picture_side(solver):
        return None
    clues = solver.clues(problem)
    return picture(solver, clues.pin(torch.full_like(clues.values, PAPER))[0])


def board(cells: Float[Tensor, "cells dim"], columns: int) -> UInt8[Tensor, "height width"]:
    """Lay the images side by side, each with a margin on its right and below it, of which one pixel goes before it."""
    whole = math.isqrt(cells.shape[1])
    side = shrunk(whole)
    images = F.adaptive_avg_pool2d(cells.float().view(-1, 1, whole, whole), side)[:, 0].cpu()
    shades = ((images + 1) / 2 * (SHADES - 1)).nan_to_num(0.0).clamp(0, SHADES - 1).round().to(torch.uint8)
    margin = round(MARGIN * side)
    framed = F.pad(shades, (1, margin - 1) * 2).view(-1, columns, side + margin, side + margin)
    return framed.transpose(1, 2).flatten(2).flatten(0, 1)


def png(shades: UInt8[Tensor, "height width"]) -> bytes:
    """Write a grey PNG of four bits a pixel; the filter of every line is 0, none."""
    height, width = shades.shape
    even = F.pad(shades, (0, width % 2))
    lines = F.pad(even[:, ::2] * SHADES + even[:, 1::2], (1, 0))
    header = struct.pack(">2I5B", width, height, 4, 0, 0, 0, 0)
    chunks = (b"IHDR", header), (b"IDAT", zlib.compress(lines.numpy().tobytes())), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, data) for name, data in chunks)


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
