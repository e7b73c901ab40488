"""The learned decoder of digit images (App. N)."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from letgo.errors import LetgoError

SMALL = 8  # pixels


class DigitDecoder(nn.Module):
    """It scores the symbols of images in [-1, 1]; layers and dropout are those of SRM's classifier.

    Images of up to 8x8 pixels are halved once instead of twice, and drop out less.
    """

    def __init__(self, size: int, symbols: int):
        super().__init__()
        if size < 4:
            raise LetgoError(f"digits of {size}x{size} pixels cannot be told apart; give a size from 4 on")
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
