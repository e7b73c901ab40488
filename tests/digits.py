"""Synthetic digits: what MNIST's files are to the package, in a second and without MNIST."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import torch
from torch import Tensor


def digit_images(per_digit: int = 5, seed: int = 0) -> tuple[Tensor, Tensor]:
    """28x28 'MNIST': a blob per digit at a place of its own, shaken a little, 0..255; shuffled."""
    rng = torch.Generator().manual_seed(seed)
    labels = torch.arange(10).repeat(per_digit)[torch.randperm(10 * per_digit, generator=rng)]
    images = torch.randint(0, 20, (len(labels), 28, 28), generator=rng)
    for image, label in zip(images, labels.tolist(), strict=True):
        row, column = divmod(label, 4)
        image[9 * row : 9 * row + 8, 7 * column : 7 * column + 7] += 200
    return images.to(torch.uint8), labels


def write_mnist(folder: Path, train: int = 30, test: int = 8) -> Path:
    """Four IDX files, so many images of each digit."""
    folder.mkdir(parents=True, exist_ok=True)
    for stem, per_digit, seed in (("train", train, 0), ("t10k", test, 1)):
        images, labels = digit_images(per_digit, seed)
        head = struct.pack(">4I", 2051, len(images), 28, 28)
        (folder / f"{stem}-images-idx3-ubyte").write_bytes(head + images.numpy().tobytes())
        codes = labels.numpy().astype(np.uint8).tobytes()
        (folder / f"{stem}-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 2049, len(labels)) + codes)
    return folder
