"""MNIST's IDX files: big-endian header (magic, sizes), then one byte per pixel or label; .gz or plain."""

from __future__ import annotations

import hashlib
import math
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from letgo.data.files import FilePath, open_bytes, place
from letgo.errors import LetgoError

IMAGES, LABELS = 2051, 2049  # magic: 0x08 for unsigned bytes, then the number of dimensions
FILES = {  # standard name -> md5 of the unpacked file
    "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
}


@dataclass(frozen=True)
class Mnist:
    images: UInt8[np.ndarray, "n height width"]  # 0 is background, 255 is ink
    labels: UInt8[np.ndarray, "n"]

    def __len__(self) -> int:
        return len(self.labels)


def read_images(path: FilePath) -> UInt8[np.ndarray, "n height width"]:
    return _read_idx(path, IMAGES, "images")


def read_labels(path: FilePath) -> UInt8[np.ndarray, "n"]:
    labels = _read_idx(path, LABELS, "labels")
    if (labels > 9).any():
        at = int((labels > 9).argmax())
        raise LetgoError(f"{place(path)}: label {at} is {labels[at]}; expected 0 to 9")
    return labels


def read_mnist(folder: FilePath, split: str = "train") -> Mnist:
    """Read `train` (60,000) or `test` (10,000) from a folder that holds the files under their usual names."""
    if split not in ("train", "test"):
        raise LetgoError(f"MNIST has no split {split!r}; choose train or test")
    stem = "train" if split == "train" else "t10k"
    images = read_images(_find(Path(folder), f"{stem}-images-idx3-ubyte"))
    labels = read_labels(_find(Path(folder), f"{stem}-labels-idx1-ubyte"))
    if len(images) != len(labels):
        raise LetgoError(f"{folder}: {len(images)} {split} images but {len(labels)} labels; fetch both again")
    return Mnist(images, labels)


def idx_magic(path: FilePath) -> int:
    """Return the first four bytes as a number, 0 for a file shorter than that."""
    with open_bytes(path) as file:
        return int.from_bytes(file.read(4), "big")


def is_standard(path: FilePath) -> bool:
    """Return whether the unpacked bytes are one of the four published files."""
    with open_bytes(path) as file:
        return hashlib.md5(file.read(), usedforsecurity=False).hexdigest() in FILES.values()


def _read_idx(path: FilePath, magic: int, what: str) -> np.ndarray:
    with open_bytes(path) as file:
        content = file.read()
    dimensions = magic & 0xFF
    start = 4 * (1 + dimensions)
    found = int.from_bytes(content[:4], "big")
    if len(content) < start or found != magic:
        fault = f"starts with {found}" if len(content) >= 4 else f"has {len(content)} bytes"
        raise LetgoError(f"{place(path)}: not an IDX file of {what} (expected magic {magic}; it {fault})")
    shape = struct.unpack(f">{dimensions}I", content[4:start])
    if len(content) - start != math.prod(shape):
        wanted = f"{' x '.join(map(str, shape))} bytes of {what}"
        raise LetgoError(f"{place(path)}: expected {wanted}, got {len(content) - start}; fetch it again")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape).copy()  # torch wants it writable


def _find(folder: Path, name: str) -> Path:
    """Find a file; two spellings are about: `train-images-idx3-ubyte` and `train-images.idx3-ubyte`, .gz or not."""
    dotted = name.replace("-idx", ".idx")
    for candidate in (name, f"{name}.gz", dotted, f"{dotted}.gz"):
        if (folder / candidate).is_file():
            return folder / candidate
    raise LetgoError(f"{folder}: no {name}.gz here; put it there or run `letgo data fetch mnist --out {folder}`")
