"""The learned decoders of digit images (App. N)."""

from __future__ import annotations

from collections.abc import Iterable

from jaxtyping import Float
from torch import Tensor, nn

from letgo.errors import LetgoError

LEAST, SMALL = 4, 8  # pixels


class SmallDigitDecoder(nn.Module):
    """It scores the symbols of images of few pixels in [-1, 1], which are halved once."""

    def __init__(self, size: int, symbols: int):
        super().__init__()
        first = [*block(1, 32), *block(32, 64), *block(64, 64), nn.MaxPool2d(2)]
        self.features = nn.Sequential(*first, *block(64, 128), *block(128, 128), nn.Flatten(), nn.Dropout(0.4))
        self.head = nn.Linear(128 * (size // 2) ** 2, symbols)

    def forward(self, images: Float[Tensor, "digits 1 height width"]) -> Float[Tensor, "digits symbols"]:
        return self.head(self.features(images))


class DigitDecoder(nn.Module):
    """It scores the symbols of images in [-1, 1]; layers and dropout are those of SRM's classifier.

    Images of up to 8x8 pixels are halved once instead of twice, and drop out less: older runs have such decoders.
    """

    def __init__(self, size: int, symbols: int):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        small = size <= SMALL
        self.fc1 = nn.Linear(64 * (size // (2 if small else 4)) ** 2, 128)
        self.fc2 = nn.Linear(128, symbols)
        self.first, self.pool = nn.Identity() if small else nn.MaxPool2d(2), nn.MaxPool2d(2)
        self.few, self.many = nn.Dropout2d(0.1 if small else 0.25), nn.Dropout(0.3) if small else nn.Dropout2d(0.5)

    def forward(self, images: Float[Tensor, "digits 1 height width"]) -> Float[Tensor, "digits symbols"]:
        x = self.few(self.first(self.conv1(images).relu()))
        x = self.many(self.pool(self.conv2(x).relu()))
        return self.fc2(self.fc1(x.flatten(1)).relu())


def block(ins: int, outs: int) -> list[nn.Module]:
    return [nn.Conv2d(ins, outs, 3, padding=1, bias=False), nn.BatchNorm2d(outs), nn.ReLU()]


def new_decoder(size: int, symbols: int) -> nn.Module:
    """Return a decoder that is to be trained."""
    if size < LEAST:
        raise LetgoError(f"digits of {size}x{size} pixels cannot be told apart; give a size from {LEAST} on")
    return (SmallDigitDecoder if size <= SMALL else DigitDecoder)(size, symbols)


def decoder_of(names: Iterable[str], size: int, symbols: int) -> nn.Module:
    """Return the kind of decoder whose weights have these names."""
    kind = SmallDigitDecoder if "head.weight" in names else DigitDecoder
    return kind(size, symbols)
