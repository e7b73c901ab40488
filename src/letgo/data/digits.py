"""Digits as images: where they come from, the decoder that reads them, and the two files that keep both with a model.

`digits.safetensors` holds images of the symbols 1 to K, a byte a pixel, and the decoder's weights; `digits.json` says
in words where they come from and how well they are read.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, NotRequired, TypedDict

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn
from torch.nn import functional as F

from letgo.codecs import DigitImages
from letgo.data.files import regular_file
from letgo.data.mnist import FILES, read_mnist
from letgo.errors import LetgoError
from letgo.models.decoder import decoder_of
from letgo.shapes import State, Symbols
from letgo.tasks.task import Task
from letgo.typed import Count, Natural, check

TENSORS, FACTS = "digits.safetensors", "digits.json"
FETCHED = Path("data") / "mnist"  # where `letgo data fetch mnist` puts it
MOST_FACTS = 1 << 20  # bytes
POOL = "pool"  # the part of the file that boards of all splits share, where there is one
WHOLE = "whole"  # training digits as they come, for their decoder alone
VALID = 5_000  # MNIST's training digits that validation boards are drawn with
PARTS = (1_257, 180)  # of optdigits' 1,797 for training and validation; 360 are left for tests
LICENCES = {
    "mnist": "MNIST, Y. LeCun, C. Cortes and C. Burges, CC BY-SA 3.0",
    "optdigits": (
        "Optical Recognition of Handwritten Digits, E. Alpaydin and C. Kaynak, UCI Machine Learning Repository, 1998, "
        "doi 10.24432/C50P49, CC BY 4.0; scaled from 0..16 to 0..255"
    ),
}

Say = Callable[[str], None]


class Facts(TypedDict):
    """Facts are what is read of `digits.json`."""

    source: str
    size: Count
    symbols: Count
    pool: Natural
    sha256: str
    accuracy: NotRequired[dict[str, Any]]
    ceiling: NotRequired[dict[str, Any]]


@dataclass(frozen=True)
class Digits:
    """Digits are images with their symbols, 0 for the digit 1."""

    images: UInt8[Tensor, "digits height width"]
    labels: Int[Tensor, "digits"]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: slice | Tensor) -> Digits:
        return Digits(self.images[index], self.labels[index])

    @staticmethod
    def cat(*parts: Digits) -> Digits:
        return Digits(torch.cat([part.images for part in parts]), torch.cat([part.labels for part in parts]))

    @property
    def pixels(self) -> Float[Tensor, "digits height width"]:
        """Return the images in [-1, 1]: background is -1."""
        return self.images.float() / 127.5 - 1


def symbols_of(images: UInt8[Tensor, "n height width"], labels: Int[Tensor, "n"], symbols: int) -> Digits:
    """Keep the digits 1 to K."""
    keep = (labels > 0) & (labels <= symbols)
    return Digits(images[keep], labels[keep].long() - 1)


def shrunk(digits: Digits, size: int) -> Digits:
    """Return the digits in fewer pixels, each an average."""
    if digits.images.shape[1:] == (size, size):
        return digits
    pixels = F.adaptive_avg_pool2d(digits.images[:, None].float(), size)[:, 0]
    return Digits(pixels.round().to(torch.uint8), digits.labels)


def mnist_digits(folder: Path, size: int, symbols: int) -> dict[str, Digits]:
    """Read MNIST's training digits, the last of them for validation; the t10k digits are for tests.

    `WHOLE` are the training digits in all their pixels.
    """
    parts = (read_mnist(folder, split) for split in ("train", "test"))
    whole, test = (
        symbols_of(torch.from_numpy(part.images), torch.from_numpy(part.labels).long(), symbols) for part in parts
    )
    held, train = min(VALID, len(whole) // 10), shrunk(whole, size)
    count = len(whole) - held
    return {"train": train[:count], "valid": train[count:], "test": shrunk(test, size), WHOLE: whole[:count]}


def optdigits(size: int, symbols: int) -> dict[str, Digits]:
    """Return scikit-learn's 1,797 digits of 8x8 pixels, cut in the order of the file."""
    if size != 8:
        raise LetgoError(f"optdigits are images of 8x8 pixels, not {size}x{size}; give --digits FOLDER with MNIST")
    try:
        datasets = import_module("sklearn.datasets")
    except ImportError:
        raise LetgoError(
            f"no digits at hand: no MNIST in {FETCHED} (`letgo data fetch mnist`, or --digits FOLDER), and "
            "scikit-learn, for optdigits, is missing: pip install 'letgo[digits]'"
        ) from None
    found = datasets.load_digits()
    images = torch.from_numpy(np.rint(found.images * (255 / 16)).astype(np.uint8))
    train, valid = PARTS
    ends = {"train": slice(train), "valid": slice(train, train + valid), "test": slice(train + valid, None)}
    labels = torch.from_numpy(found.target).long()
    sets = {split: symbols_of(images[part], labels[part], symbols) for split, part in ends.items()}
    return {**sets, WHOLE: sets["train"]}


def find_source(where: str | None) -> tuple[str, Path | None]:
    """Return the source's name and, of MNIST, its folder.

    `where` is 'mnist', 'optdigits' or a folder with MNIST's files; without it MNIST is taken where it was fetched to,
    and otherwise optdigits.
    """
    if where == "optdigits":
        return where, None
    folder = FETCHED if where in (None, "mnist") else Path(str(where))
    there = all(any((folder / f"{name}{end}").is_file() for end in ("", ".gz")) for name in FILES)
    if there:
        return "mnist", folder
    if where is None:
        return "optdigits", None
    raise LetgoError(
        f"--digits {where}: no MNIST in {folder} (its four IDX files); `letgo data fetch mnist`, or --digits optdigits"
    )


def read_digits(where: str | None, size: int, symbols: int) -> tuple[str, dict[str, Digits]]:
    """Return the source's name, and its digits for training, validation, tests and the decoder."""
    source, folder = find_source(where)
    return source, optdigits(size, symbols) if folder is None else mnist_digits(folder, size, symbols)


def packed(sets: dict[str, Digits], decoder: nn.Module, facts: dict[str, Any]) -> dict[str, bytes]:
    """Return the two files by their names."""
    tensors = {f"decoder.{name}": value.detach().cpu().contiguous() for name, value in decoder.state_dict().items()}
    for split, digits in sets.items():
        tensors |= {f"{split}.images": digits.images.contiguous(), f"{split}.labels": digits.labels.to(torch.uint8)}
    blob = save(dict(sorted(tensors.items())))
    words = {**facts, "sha256": hashlib.sha256(blob).hexdigest()}
    return {TENSORS: blob, FACTS: (json.dumps(words, indent=2) + "\n").encode()}


def read_facts(folder: Path) -> dict[str, Any]:
    path = folder / FACTS
    regular_file(path, MOST_FACTS)
    try:
        return check(json.loads(path.read_text(encoding="utf-8")), Facts, str(path))
    except (OSError, ValueError, RecursionError) as error:
        raise LetgoError(f"{path} does not describe digits ({error}); copy both digits files again") from None


@cache
def read_tensors(path: Path, sha256: str) -> dict[str, Tensor]:
    """Read the images and weights, which are those that `digits.json` was written for."""
    regular_file(path)
    blob = path.read_bytes()
    if hashlib.sha256(blob).hexdigest() != sha256:
        raise LetgoError(f"{path} is damaged, or not what {FACTS} beside it was written for; copy both again")
    try:
        return load(blob)
    except SafetensorError as error:
        raise LetgoError(f"{path} is not a safetensors file ({error}); copy it again") from None


class Reader:
    """The decoder has a copy on each device that asked for it."""

    def __init__(self, decoder: nn.Module):
        self.copies = {torch.device("cpu"): decoder.eval().requires_grad_(False)}

    def __call__(self, images: Float[Tensor, "digits 1 height width"]) -> Float[Tensor, "digits symbols"]:
        if images.device not in self.copies:
            self.copies[images.device] = copy.deepcopy(self.copies[torch.device("cpu")]).to(images.device)
        return self.copies[images.device](images)


class DigitCodec:
    """Symbols are images of `size` x `size` pixels. They and the decoder lie in a run's folder: `open` reads them.

    With `pool`, all boards show the images of each symbol that the decoder is surest of, so many, as SRM's do.
    """

    one_hot: ClassVar[bool] = False
    varied: ClassVar[bool] = True

    def __init__(self, symbols: int, size: int = 8, source: str = "", pool: int = 0, seed: int = 0):
        if symbols > 9:
            raise LetgoError(f"digits show the symbols 1 to 9, and this task has {symbols}; choose another codec")
        self.symbols, self.size, self.source, self.pool, self.seed = symbols, size, source, pool, seed
        self.dim = size * size

    @property
    def options(self) -> dict[str, Any]:
        """Return what tells these digits from others, as a configuration has it."""
        pool = {"pool": self.pool} if self.pool else {}
        return {"size": self.size, **pool, "source": self.source, **({"seed": self.seed} if self.seed else {})}

    def open(self, folder: Path, split: str = "test") -> DigitImages:
        """Return the codec with the images of a split."""
        if not (folder / FACTS).is_file() or not (folder / TENSORS).is_file():
            raise LetgoError(f"{folder} lacks {TENSORS} or {FACTS}, the model's digits; copy them from its run")
        facts = read_facts(folder)
        ours = {"source": self.source, "size": self.size, "symbols": self.symbols, "pool": self.pool}
        for name, value in ours.items():
            if facts[name] != value:
                raise LetgoError(f"{folder / FACTS} has {name} {facts[name]!r}, and the model {value!r}; copy its own")
        tensors = read_tensors(folder / TENSORS, facts["sha256"])
        try:
            weights = {k.removeprefix("decoder."): v for k, v in tensors.items() if k.startswith("decoder.")}
            decoder = decoder_of(weights, self.size, self.symbols)
            decoder.load_state_dict(weights)
            part = POOL if self.pool else split
            digits = Digits(tensors[f"{part}.images"], tensors[f"{part}.labels"].long())
        except (KeyError, RuntimeError) as error:
            reason = str(error).partition("\n")[0]
            raise LetgoError(f"{folder / TENSORS} holds other digits than {FACTS} says ({reason})") from None
        return DigitImages(digits.pixels, digits.labels, Reader(decoder), self.seed)

    def prepare(self, task: Task, where: str | None, folder: Path, say: Say) -> tuple[dict[str, Any], dict[str, bytes]]:
        """Return the options that name these digits' source, and the two files that a run keeps.

        They are the run's own where it has them, those of a folder that was made (`where`), or new ones.
        """
        from letgo.data.decoder import facts_line, make_digits

        made = Path(where) if where and (Path(where) / FACTS).is_file() else None
        own = folder if (folder / FACTS).is_file() and (folder / TENSORS).is_file() else None
        places = [place for place in (made, own) if place]
        found = {place: {name: (place / name).read_bytes() for name in (TENSORS, FACTS)} for place in places}
        if own and made and found[own] != found[made]:
            raise LetgoError(f"--digits {where}: {folder} was started with other digits; leave --digits out")
        place = own or made
        if place is None:
            files = make_digits(self, task, where, say)
            return {**self.options, "source": json.loads(files[FACTS])["source"]}, files
        facts = read_facts(place)
        if own and where in LICENCES and facts["source"] != where:
            raise LetgoError(f"--digits {where}: {folder} was started with {facts['source']}; leave --digits out")
        say(f"digits: {facts['source']}, those of {place}; {facts_line(facts)}")
        return {**self.options, "source": facts["source"]}, found[place]

    def encode(self, symbols: Symbols, instance: Int[Tensor, "batch"] | None = None) -> State:
        raise LetgoError(f"a model of digits needs {TENSORS}, which lies in its run folder")

    def decode(self, x: State) -> Symbols:
        raise LetgoError(f"a model of digits needs {TENSORS}, which lies in its run folder")
