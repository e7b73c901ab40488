"""Codecs: every symbol comes back, and noise below half the least distance between codewords changes nothing."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from digits import digit_images
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

from letgo.codecs import (
    AnalogBits,
    Codec,
    ColumnCodes,
    DigitImages,
    OnDevices,
    OneHot,
    RandomEmbedding,
    by_symbol,
    encoded,
    is_varied,
)
from letgo.data.digits import shrunk, symbols_of
from letgo.errors import LetgoError
from letgo.metrics import symbol_chances
from letgo.rng import philox

pytestmark = pytest.mark.fast

EXACT: dict[str, tuple[Codec, int]] = {
    "one-hot 2": (OneHot(2), 2),
    "one-hot 9": (OneHot(9), 9),
    "one-hot 14": (OneHot(14), 14),
    "analog bits 9": (AnalogBits(9), 9),
    "analog bits 16": (AnalogBits(16), 16),
    "random embedding 9": (RandomEmbedding(9), 9),
    "random embedding 14": (RandomEmbedding(14, dim=6, seed=3), 14),
}


def every_symbol(symbols: int) -> Tensor:
    """Two boards that hold every symbol, in opposite orders."""
    board = torch.arange(symbols)
    return torch.stack([board, board.flip(0)])


class NearestMean:
    """A decoder made from the images alone: the class with the nearest mean image."""

    def __init__(self, size: int) -> None:
        images, labels = digit_images()
        pixels = F.adaptive_avg_pool2d(images[:, None].float() / 127.5 - 1, size)[:, 0]
        self.means = torch.stack([pixels[labels == digit].mean(0) for digit in range(1, 10)]).flatten(1)

    def __call__(self, digits: Tensor) -> Tensor:
        return -torch.cdist(digits.flatten(1), self.means)


def make_digits(size: int, seed: int = 0) -> DigitImages:
    digits = shrunk(symbols_of(*digit_images(), 9), size)
    return DigitImages(digits.pixels, digits.labels, NearestMean(size), seed)


def test_which_image_a_cell_shows_is_drawn_without_a_range() -> None:
    """Inductor narrows a range to 32 bits and then refuses Philox's constants: training on a card did not begin."""
    codec, boards = make_digits(8), torch.zeros(2, 4, dtype=torch.int64)
    graph = make_fx(lambda boards, instance: codec.draw(boards, instance))(boards, torch.zeros(2, dtype=torch.int64))
    assert not [node.name for node in graph.graph.nodes if "arange" in str(node.target)]


@pytest.mark.parametrize(("codec", "symbols"), EXACT.values(), ids=EXACT)
def test_decoding_is_to_the_nearest_codeword(codec: Codec, symbols: int) -> None:
    """Analog bits may name a code beyond the symbols; those stay out."""
    x = torch.randn(50, 7, codec.dim, generator=torch.Generator().manual_seed(0))
    codewords = codec.encode(torch.arange(16 if isinstance(codec, AnalogBits) else symbols)[None])[0]
    nearest = (x[:, :, None] - codewords).square().sum(-1).argmin(-1)
    assert torch.equal(codec.decode(x), nearest)


def test_analog_bits_are_the_signs_of_the_binary_digits() -> None:
    codec = AnalogBits(9)
    assert codec.dim == 4  # Table 11: 822,788 parameters are for four inputs per cell
    for symbol, code in enumerate(codec.encode(torch.arange(9)[None])[0].tolist()):
        assert "".join("1" if bit > 0 else "0" for bit in reversed(code)) == f"{symbol:04b}"
        assert {abs(bit) for bit in code} == {1.0}


def test_an_analog_code_that_is_no_symbol_stays_visible() -> None:
    assert AnalogBits(9).decode(torch.ones(1, 1, 4)).item() == 15
    assert AnalogBits(9).decode(torch.zeros(1, 1, 4)).item() == 0  # what has no sign is no 1


@pytest.mark.parametrize("codec", [*(codec for codec, _ in EXACT.values()), make_digits(8)], ids=[*EXACT, "digits"])
def test_a_codec_that_says_so_has_states_that_are_probabilities(codec: Codec) -> None:
    x = codec.encode(every_symbol(2))
    assert codec.one_hot == bool(((x == 0) | (x == 1)).all() and (x.sum(-1) == 1).all())


def test_embeddings_are_those_that_runs_were_trained_with() -> None:
    """A run's folder says no more than 'embedding': the vectors are drawn again whenever it is opened."""
    drawn = torch.randn(9, 9, generator=torch.Generator().manual_seed(0))
    assert torch.equal(RandomEmbedding(9).encode(torch.arange(9)[None])[0], drawn)


def test_a_table_is_copied_to_a_device_once_and_stays_where_it_was() -> None:
    numbers, meta = torch.ones(3), torch.device("meta")
    table = OnDevices(numbers)
    assert table.on(meta).device == meta
    assert table.on(meta) is table.on(meta)
    assert table.on(numbers.device) is numbers


def test_too_many_symbols_for_the_bits_are_refused() -> None:
    with pytest.raises(LetgoError, match="17 symbols do not fit in 4 bits"):
        AnalogBits(17)


@pytest.mark.parametrize("size", [8, 28])
def test_every_digit_image_comes_back(size: int) -> None:
    codec, boards = make_digits(size), every_symbol(9).repeat(20, 1)
    x = codec.encode(boards)
    assert isinstance(codec, Codec)
    assert x.shape == (40, 9, size * size)
    assert codec.dim == size * size
    assert x.min() >= -1
    assert x.max() <= 1
    assert torch.equal(codec.decode(x), boards)


@pytest.mark.parametrize("size", [8, 28])
def test_digit_images_survive_noise_below_half_their_least_distance(size: int) -> None:
    """Measured from the class means, which is what this decoder compares with."""
    codec = make_digits(size)
    assert isinstance(codec.score, NearestMean)
    means = codec.score.means
    apart = torch.cdist(means, means) + torch.eye(9) * 1e9
    boards = torch.arange(9).expand(100, 9)
    direction = torch.randn(100, 9, codec.dim, generator=torch.Generator().manual_seed(0))
    x = means + 0.499 * apart.min() * F.normalize(direction, dim=-1)
    assert torch.equal(codec.decode(x), boards)


def test_a_symbol_is_drawn_as_any_of_its_images() -> None:
    """100 draws of one of five images miss one of them with odds of 1e-9."""
    x = make_digits(8).encode(torch.full((1, 100), 4))
    assert len(torch.unique(x[0], dim=0)) == 5
    images, labels = digit_images()
    fives = images[labels == 5].float()  # symbol 4 is digit 5
    shrunk = F.adaptive_avg_pool2d(fives[:, None], 8).flatten(1) / 127.5 - 1
    assert (x[0][:, None] - shrunk).abs().amax(-1).amin(1).max() <= 0.5 / 127.5 + 1e-6  # a byte a pixel


def test_the_same_puzzle_shows_the_same_images_everywhere_and_another_instance_others() -> None:
    codec, boards, instance = make_digits(8), every_symbol(9), torch.tensor([3, 8])
    x = codec.encode(boards, instance)
    codec.encode(boards.flip(0))  # what was drawn before does not matter
    assert torch.equal(codec.encode(boards, instance), x)
    assert torch.equal(codec.encode(boards.flip(0), instance.flip(0)), x.flip(0))
    assert torch.equal(codec.encode(boards[1:], instance[1:]), x[1:])
    assert not torch.equal(codec.encode(boards, instance + 1), x)
    assert torch.equal(codec.decode(codec.encode(boards, instance + 1)), boards)
    other = boards.clone()
    other[0, 0] += 1  # one symbol changes, and the images of the others stay
    assert torch.equal(codec.encode(other, instance)[0, 1:], x[0, 1:])


def test_digits_are_read_cell_by_cell_with_a_probability_for_each_symbol() -> None:
    codec, boards = make_digits(8), torch.tensor([[0, 0, 3, 8], [5, 5, 5, 1], [2, 7, 2, 7]])
    x = codec.encode(boards)
    probability = codec.probabilities(x)
    assert torch.equal(codec.decode(x), boards)
    assert probability.shape == (3, 4, 9)
    assert torch.equal(probability.argmax(-1), boards)
    torch.testing.assert_close(probability.sum(-1), torch.ones(3, 4))


def test_only_symbols_of_many_states_are_drawn_by_the_instances_number() -> None:
    boards, numbers = every_symbol(9), torch.tensor([3, 8])
    digits, asked = make_digits(8), []

    def instance() -> Tensor:
        asked.append(1)
        return numbers

    assert is_varied(digits)
    assert torch.equal(encoded(digits, boards, instance), digits.encode(boards, numbers))
    assert asked == [1]
    assert not is_varied(OneHot(9))
    assert torch.equal(encoded(OneHot(9), boards, instance), OneHot(9).encode(boards))
    assert asked == [1]
    drawn = shrunk(symbols_of(*digit_images(), 9), 8)
    without_seed = DigitImages(drawn.pixels, drawn.labels, NearestMean(8))
    assert torch.equal(without_seed.encode(boards), make_digits(8, seed=0).encode(boards))


@pytest.mark.parametrize("seed", [0, 1, 2**31, 2**32 - 1, 2**32, 2**33 + 5])
def test_an_image_is_drawn_by_all_64_bits_of_the_seed(seed: int) -> None:
    """Philox of (cell, symbol, instance), keyed by both halves of the seed; its first word picks one in their order."""
    codec, symbols, instance = make_digits(8, seed), every_symbol(9), torch.tensor([3, 8])
    digits = shrunk(symbols_of(*digit_images(), 9), 8)
    for board, number in enumerate(instance.tolist()):
        for cell, symbol in enumerate(symbols[board].tolist()):
            counter = [torch.tensor(word) for word in (cell, symbol, number, 0)]
            word = int(philox(counter, (seed % 2**32, seed // 2**32))[0])
            mine = digits.pixels[digits.labels == symbol]
            expected = mine[word * len(mine) // 2**32].flatten()
            assert torch.equal(codec.encode(symbols, instance)[board, cell], expected)
    assert torch.equal(codec.encode(symbols), codec.encode(symbols, torch.zeros(2, dtype=torch.int64)))


def test_a_digit_without_images_is_refused() -> None:
    digits = shrunk(symbols_of(*digit_images(), 9), 8)
    keep = (digits.labels != 2) & (digits.labels != 5)
    with pytest.raises(LetgoError, match="no digit image of symbol 2"):
        DigitImages(digits[keep].pixels, digits[keep].labels, NearestMean(8))


@pytest.mark.fast
def test_columns_share_codes_and_are_decoded_to_symbols_of_their_own():
    """Three columns with the symbols 0 1, 2 3 4 and 0 2: 0 and 2 have one code each wherever they stand."""
    codec = ColumnCodes(5, [[0, 1, -1], [3, 2, 4], [0, 2, -1]])
    boards = torch.tensor([list(row) for row in product((0, 1), (2, 3, 4), (0, 2))])
    x = codec.encode(boards)
    assert (codec.dim, x.shape) == (3, (12, 3, 3))
    assert torch.equal(codec.decode(x), boards)
    assert torch.equal(x[0, 0], x[0, 2])  # symbol 0 of the first column and of the last
    noise = torch.randn(300, 3, 3, generator=torch.Generator().manual_seed(0))
    assert [set(column.tolist()) for column in codec.decode(noise).T] == [{0, 1}, {2, 3, 4}, {0, 2}]
    chances = symbol_chances(noise, codec, 5, 1.0, 0.5)
    assert torch.equal(chances.argmax(-1), codec.decode(noise))
    torch.testing.assert_close(chances.sum(-1), torch.ones(300, 3))
    assert (chances[:, 0, 2:] == 0).all()
    with pytest.raises(LetgoError, match="columns: expected symbols from 0 to 4"):
        ColumnCodes(5, [[0, 5]])


def test_columns_of_unlike_lengths_have_codes_that_are_nobodys():
    """Five cells and three codes: the first column has one symbol, so that whatever its state is, it is that one."""
    codec = ColumnCodes(4, [[3], [0, 1, 2], [0, -1, 1], [2, 0], [1]])
    assert (codec.cells, codec.dim) == (5, 3)
    noise = torch.randn(500, 5, 3, generator=torch.Generator().manual_seed(0))
    assert [set(column.tolist()) for column in codec.decode(noise).T] == [{3}, {0, 1, 2}, {0, 1}, {0, 2}, {1}]
    board = torch.tensor([[3, 2, 1, 0, 1]])
    assert codec.encode(board).argmax(-1).tolist() == [[0, 2, 2, 1, 0]]
    found = codec.by_symbol(torch.arange(15.0).view(1, 5, 3), -7.0)
    assert found.tolist() == [[[-7, -7, -7, 0], [3, 4, 5, -7], [6, 8, -7, -7], [10, -7, 9, -7], [-7, 12, -7, -7]]]
    assert codec.encode(torch.tensor([[0, 0, 2, 1, 0]])).argmax(-1).tolist() == [[0, 0, 0, 0, 0]]  # of other columns


def test_one_column_serves_for_every_cell():
    for codec in (ColumnCodes(3), ColumnCodes(3, [[0, 1, 2]])):
        assert codec.cells is None
        board = torch.tensor([[2, 0, 1, 1]])
        assert torch.equal(codec.encode(board), OneHot(3).encode(board))
        assert torch.equal(codec.decode(codec.encode(board)), board)
    assert ColumnCodes(3, [[0], [0]]).cells == 2


@pytest.mark.parametrize("row", [[], [-1], [-2, 0], [3], [0, 3]], ids=str)
def test_a_column_without_symbols_or_with_odd_ones_is_refused(row: list[int]):
    with pytest.raises(LetgoError, match="columns: expected symbols from 0 to 2 in each, or -1"):
        ColumnCodes(3, [[0, 1], row])


def test_entries_of_other_codecs_are_cut_to_the_symbols():
    x = torch.arange(6.0).view(1, 2, 3)
    assert torch.equal(by_symbol(OneHot(3), x, 2), x[..., :2])
    assert by_symbol(ColumnCodes(3, [[0], [1]]), x, 3).tolist() == [[[0, 0, 0], [0, 3, 0]]]
