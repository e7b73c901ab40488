"""Symbols to continuous states and back (App. D.1 and N). decode(encode(s)) == s for every symbol."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from letgo.errors import LetgoError
from letgo.registry import Entry
from letgo.rng import philox
from letgo.shapes import State, Symbols

AT_ONCE = 4096  # images that a decoder is shown at once
MOST_CELLS = 10_000  # of a board of images


@runtime_checkable
class Codec(Protocol):
    one_hot: ClassVar[bool]  # whether a state's entries are probabilities of the symbols

    @property
    def dim(self) -> int: ...

    def encode(self, symbols: Symbols) -> State: ...

    def decode(self, x: State) -> Symbols: ...


class OneHot:
    """It writes symbols as one-hot vectors and decodes by argmax (App. D.1)."""

    one_hot: ClassVar[bool] = True

    def __init__(self, symbols: int):
        self.dim = symbols

    def encode(self, symbols: Symbols) -> State:
        return F.one_hot(symbols.long(), self.dim).float()

    def decode(self, x: State) -> Symbols:
        return x.argmax(-1)


class ColumnCodes:
    """Symbols share one-hot codes: in cell c, code k is symbol `columns[c][k]`, or none where that is -1.

    Columns of words with no word in common then take as many codes as the largest has words, not one for each word of
    all. A state is decoded to a symbol of its own column.
    """

    one_hot: ClassVar[bool] = True

    def __init__(self, symbols: int, columns: list[list[int]] | None = None):
        rows = columns or [[*range(symbols)]]  # one row serves for every cell
        if any(max(row, default=-1) < 0 or not -1 <= min(row) <= max(row) < symbols for row in rows):
            raise LetgoError(f"columns: expected symbols from 0 to {symbols - 1} in each, or -1")
        self.dim, self.symbols, self.cells = max(map(len, rows)), symbols, len(rows) if len(rows) > 1 else None
        found = torch.full((len(rows), self.dim), -1)
        for c, row in enumerate(rows):
            found[c, : len(row)] = torch.tensor(row)
        legal = found >= 0
        codes = torch.full((len(rows), symbols), -1)
        where = legal.nonzero()
        codes[where[:, 0], found[legal]] = where[:, 1]
        self.found, self.codes = OnDevices(found), OnDevices(codes)

    def encode(self, symbols: Symbols) -> State:
        codes = self.codes.on(symbols.device).expand(symbols.shape[-1], -1)
        cell = torch.arange(symbols.shape[-1], device=symbols.device)
        return F.one_hot(codes[cell, symbols.long()].clamp(min=0), self.dim).float()

    def decode(self, x: State) -> Symbols:
        found = self.found.on(x.device).expand(x.shape[-2], -1)
        codes = x.masked_fill(found < 0, -torch.inf).argmax(-1)
        return found[torch.arange(x.shape[-2], device=x.device), codes]

    def by_symbol(self, x: State, none: float) -> Float[Tensor, "batch cells symbols"]:
        """Return numbers of codes as numbers of symbols, and `none` for a symbol that is not of the column."""
        codes = self.codes.on(x.device).expand(*x.shape[:-1], -1)
        return x.gather(-1, codes.clamp(min=0)).masked_fill(codes < 0, none)


class AnalogBits:
    """It writes a symbol's binary digits as -1 / +1, decoded by their signs. A code that is no symbol stays illegal."""

    one_hot: ClassVar[bool] = False

    def __init__(self, symbols: int, bits: int = 4):
        if symbols > 2**bits:
            raise LetgoError(f"{symbols} symbols do not fit in {bits} bits")
        self.dim = bits

    def encode(self, symbols: Symbols) -> State:
        bit = torch.arange(self.dim, device=symbols.device)
        return ((symbols.long()[..., None] >> bit) & 1).float() * 2 - 1

    def decode(self, x: State) -> Symbols:
        bit = torch.arange(self.dim, device=x.device)
        return ((x > 0).long() << bit).sum(-1)


class OnDevices:
    """A fixed table has a copy on each device that asked: while a CUDA graph is captured nothing may move."""

    def __init__(self, table: Tensor):
        self.copies = {table.device: table}

    def on(self, device: torch.device) -> Tensor:
        if device not in self.copies:
            self.copies[device] = next(iter(self.copies.values())).to(device)
        return self.copies[device]


class RandomEmbedding:
    """It writes symbols as fixed Gaussian vectors, decoded to the nearest (App. N)."""

    one_hot: ClassVar[bool] = False

    def __init__(self, symbols: int, dim: int = 9, seed: int = 0):
        self.dim = dim
        self.table = OnDevices(torch.randn(symbols, dim, generator=torch.Generator().manual_seed(seed)))

    def encode(self, symbols: Symbols) -> State:
        return self.table.on(symbols.device)[symbols.long()]

    def decode(self, x: State) -> Symbols:
        table = self.table.on(x.device).to(x)
        return (x @ table.T - table.square().sum(-1) / 2).argmax(-1)  # the nearest has the largest of these


class DigitImages:
    """Each symbol is an image of its digit, in [-1, 1]; what tells images apart is handed in (App. N).

    Which image is a pure function of (seed, instance, cell, symbol): the same puzzle shows the same images everywhere.
    """

    one_hot: ClassVar[bool] = False
    varied: ClassVar[bool] = True

    def __init__(
        self,
        images: Float[Tensor, "images height width"],
        labels: Int[Tensor, "images"],
        score: Callable[[Float[Tensor, "digits 1 height width"]], Float[Tensor, "digits symbols"]],
        seed: int = 0,
    ):
        self.height, self.width = images.shape[1:]
        self.dim = self.height * self.width
        self.score = score
        order = labels.argsort(stable=True)
        pixels, counts = images[order].flatten(1), labels.bincount()
        if (counts == 0).any():
            raise LetgoError(f"there is no digit image of symbol {int((counts == 0).nonzero()[0])}")
        self.images, self.counts = OnDevices(pixels), OnDevices(counts)
        self.starts = OnDevices(counts.cumsum(0) - counts)
        self.cells = OnDevices(torch.arange(MOST_CELLS))  # read, for a compiler would narrow a range to 32 bits
        self.seed = seed

    def draw(self, symbols: Symbols, instance: Int[Tensor, "batch"] | None = None) -> Symbols:
        """Return which of all images each cell shows."""
        symbols = symbols.long()
        counts, starts = self.counts.on(symbols.device), self.starts.on(symbols.device)
        board = torch.zeros_like(symbols[:, 0]) if instance is None else instance.long()
        cell = self.cells.on(symbols.device)[: symbols.shape[1]].expand_as(symbols)
        counter = [cell, symbols, board[:, None].expand_as(symbols), torch.zeros_like(symbols)]
        word = philox(counter, (self.seed & 0xFFFFFFFF, self.seed >> 32 & 0xFFFFFFFF))[0]
        return starts[symbols] + (word * counts[symbols] >> 32)

    def encode(self, symbols: Symbols, instance: Int[Tensor, "batch"] | None = None) -> State:
        return self.images.on(symbols.device)[self.draw(symbols, instance)]

    def scores(self, x: State) -> Float[Tensor, "batch cells symbols"]:
        """Return the decoder's scores, a few images at a time."""
        digits = x.float().reshape(-1, 1, self.height, self.width)
        with torch.no_grad():
            return torch.cat([self.score(part) for part in digits.split(AT_ONCE)]).unflatten(0, x.shape[:2])

    def decode(self, x: State) -> Symbols:
        return self.scores(x).argmax(-1)

    def probabilities(self, x: State) -> Float[Tensor, "batch cells symbols"]:
        """Return how likely the decoder finds each symbol."""
        return self.scores(x).softmax(-1)


def is_varied(codec: Codec) -> bool:
    """Say whether a symbol has many states, so that an instance's number draws one, and decoding them can err."""
    return getattr(codec, "varied", False)


def encoded(codec: Codec, symbols: Symbols, instance: Callable[[], Int[Tensor, "batch"]]) -> State:
    """Return the states of boards; `instance` is asked for their numbers where a symbol has many states."""
    varied: Any = codec
    return varied.encode(symbols, instance()) if is_varied(codec) else codec.encode(symbols)


def by_symbol(codec: Codec, x: State, symbols: int, none: float = 0.0) -> Float[Tensor, "batch cells symbols"]:
    """Return the entries of one-hot states in the order of the symbols."""
    return codec.by_symbol(x, none) if isinstance(codec, ColumnCodes) else x[..., :symbols]


CODECS: dict[str, Entry] = {
    "one-hot": OneHot,
    "columns": ColumnCodes,
    "bits": AnalogBits,
    "embedding": RandomEmbedding,
    "masked": "letgo.discrete:Masked",
    "digits": "letgo.data.digits:DigitCodec",
}
