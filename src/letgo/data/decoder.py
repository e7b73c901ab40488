"""The decoder of digits is trained here and measured: its accuracy, and how many true boards come back through it."""

from __future__ import annotations

import math
import time
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from letgo.codecs import DigitImages
from letgo.data.digits import LICENCES, POOL, WHOLE, DigitCodec, Digits, Reader, Say, packed, read_digits
from letgo.data.source import source_of
from letgo.errors import LetgoError
from letgo.estimates import Estimate, rate
from letgo.models.decoder import SMALL, new_decoder
from letgo.progress import doing
from letgo.tasks.task import Task, identities

STEPS, LARGE_STEPS = {8: 5_000}, 3_000  # of batches of 128, by the size of an image
DISTORTIONS = (0.2, 0.1, 0.2, 0.1, 0.1)  # at most: a turn in radians, shares of size and shear, shifts
BATCH, RATE = 128, 2e-3
Images = Float[Tensor, "digits 1 height width"]
MOST_EPOCHS = 200  # of few digits
CEILING = 2_000  # boards


def distorted(images: Images) -> Images:
    """Turn, stretch, shear and shift each image a little, by draws of torch's own generator."""
    turn, grow, shear, right, down = (torch.rand(5, len(images)) * 2 - 1) * torch.tensor(DISTORTIONS)[:, None]
    cosine, sine = turn.cos() * (1 + grow), turn.sin() * (1 + grow)
    rows = torch.stack([cosine, shear - sine, right]), torch.stack([sine, cosine, down])
    grid = F.affine_grid(torch.stack(rows).permute(2, 0, 1), list(images.shape), align_corners=False)
    return F.grid_sample(images + 1, grid, align_corners=False) - 1  # what comes in from outside is background


def train_decoder(train: Digits, size: int, symbols: int, steps: int, seed: int) -> nn.Module:
    """Train a decoder by Adam on the CPU; the rate falls along half a cosine. The seed decides every bit.

    Images that are read in few pixels are distorted while they still have all of theirs.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        decoder, pixels = new_decoder(size, symbols), train.pixels[:, None]
        adam = torch.optim.Adam(decoder.parameters(), RATE)
        order = torch.randperm(len(train))
        for step in range(steps):
            doing(f"training the decoder of digits, step {step:,} of {steps:,}")
            at = step * BATCH % len(train)
            rows = order[at : at + BATCH]
            images = F.adaptive_avg_pool2d(distorted(pixels[rows]), size) if size <= SMALL else pixels[rows]
            adam.param_groups[0]["lr"] = RATE * (1 + math.cos(math.pi * step / steps)) / 2
            adam.zero_grad(set_to_none=True)
            F.cross_entropy(decoder(images), train.labels[rows]).backward()
            adam.step()
            if at + BATCH >= len(train):
                order = torch.randperm(len(train))
    return decoder.eval()


def digit_scores(decoder: nn.Module, digits: Digits) -> Float[Tensor, "digits symbols"]:
    read = Reader(decoder)
    with torch.no_grad():
        return torch.cat([read(part[:, None]) for part in digits.pixels.split(1024)])


def accuracy(decoder: nn.Module, digits: Digits) -> Estimate:
    """Return the share of digits that are read rightly."""
    return rate(int((digit_scores(decoder, digits).argmax(1) == digits.labels).sum()), len(digits))


def surest(decoder: nn.Module, digits: Digits, pool: int) -> Digits:
    """Return the `pool` images of each symbol whose own symbol the decoder finds most likely."""
    sure, chosen = digit_scores(decoder, digits).log_softmax(1), []
    for symbol in range(int(digits.labels.max()) + 1):
        rows = (digits.labels == symbol).nonzero()[:, 0]
        if len(rows) < pool:
            raise LetgoError(f"a pool of {pool} images: there are {len(rows)} of the digit {symbol + 1}")
        chosen.append(rows[sure[rows, symbol].argsort(descending=True, stable=True)[:pool]])
    return digits[torch.cat(chosen)]


def ceiling(codec: DigitImages, task: Task, count: int = CEILING, seed: int = 0) -> dict[str, Any]:
    """Return how many true boards of the usual regime stay valid when their open cells are shown and read again."""
    problem = source_of(task).draw("test", None, count, seed)
    read = codec.decode(codec.images.on(torch.device("cpu"))[:, None])[:, 0]  # each image once
    boards = read[codec.draw(problem.solution, identities(problem))]
    valid = int(task.validate(problem.with_clues(boards), problem).sum())
    return {**rate(valid, count).as_dict(), "regime": task.regimes[0], "seed": seed}


def make_digits(
    codec: DigitCodec, task: Task, where: str | None, say: Say, steps: int | None = None, seed: int = 0
) -> dict[str, bytes]:
    """Read digits, train their decoder, measure both and return the two files; `say` tells what was taken."""
    begun = time.perf_counter()
    doing("reading digits")
    source, sets = read_digits(where, codec.size, codec.symbols)
    most = MOST_EPOCHS * len(sets["train"]) // BATCH
    steps = steps or min(STEPS.get(codec.size, LARGE_STEPS), most)
    whole = sets.pop(WHOLE)
    counts = {split: len(digits) for split, digits in sets.items()}
    shown = f"{codec.size}x{codec.size}, {counts['train']:,} to train and {counts['test']:,} to test"
    say(f"digits: {source}, {shown} ({LICENCES[source]})")
    decoder = train_decoder(whole, codec.size, codec.symbols, steps, seed)
    figures = {"accuracy": accuracy(decoder, sets["test"]), "valid_accuracy": accuracy(decoder, sets["valid"])}
    if codec.pool:
        pool = surest(decoder, Digits.cat(sets["train"], sets["valid"]), codec.pool)
        sets = {POOL: pool}
        figures["pool_accuracy"] = accuracy(decoder, pool)
    tested = sets[POOL if codec.pool else "test"]
    images = DigitImages(tested.pixels, tested.labels, Reader(decoder), codec.seed)
    facts = {
        "source": source,
        "size": codec.size,
        "symbols": codec.symbols,
        "pool": codec.pool,
        **{name: figure.as_dict() for name, figure in figures.items()},
        "ceiling": ceiling(images, task),
        "images": counts,
        "decoder": {"parameters": sum(p.numel() for p in decoder.parameters()), "steps": steps, "seed": seed},
        "licence": LICENCES[source],
        "seconds": round(time.perf_counter() - begun, 1),
        "torch": torch.__version__,
    }
    say(facts_line(facts))
    return packed(sets, decoder, facts)


def facts_line(facts: dict[str, Any]) -> str:
    """Say in a line how well digits are read."""
    right, whole = facts["accuracy"], facts["ceiling"]
    read, back = (f"{found['value']:.4f} [{found['low']:.4f}, {found['high']:.4f}]" for found in (right, whole))
    return f"decoder: {read} of {right['n']:,} held-out digits; true boards come back valid in {back}, n = {whole['n']}"
