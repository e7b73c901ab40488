"""Boards of images as the API tells them: PNGs that anything reads, of few bytes, with the library's own pixels."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import pytest
import torch
from fastapi.testclient import TestClient
from torch import Tensor

SHADE = 1 / 15 / 2 + 1e-3  # how far a pixel may be from one of sixteen shades


def pixels(png: str) -> Tensor:
    """The shades of a grey PNG of four bits a pixel, 0 to 1, read by the standard and not by our writer."""
    data, chunks, at = base64.b64decode(png, validate=True), {}, 8
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    while at < len(data):
        length = int.from_bytes(data[at : at + 4], "big")
        name, body, crc = (
            data[at + 4 : at + 8],
            data[at + 8 : at + 8 + length],
            data[at + 8 + length : at + 12 + length],
        )
        assert int.from_bytes(crc, "big") == zlib.crc32(name + body)
        chunks[name] = body
        at += 12 + length
    assert list(chunks) == [b"IHDR", b"IDAT", b"IEND"]
    width, height = (int.from_bytes(chunks[b"IHDR"][i : i + 4], "big") for i in (0, 4))
    assert tuple(chunks[b"IHDR"][8:]) == (4, 0, 0, 0, 0)
    lines = torch.frombuffer(bytearray(zlib.decompress(chunks[b"IDAT"])), dtype=torch.uint8).view(height, -1)
    assert not lines[:, 0].any()
    assert lines.shape[1] == 1 + -(-width // 2)
    return torch.stack([lines[:, 1:] >> 4, lines[:, 1:] & 15], 2).flatten(1)[:, :width] / 15


def text(png: bytes) -> str:
    return base64.b64encode(png).decode()


def images(png: str, columns: int, side: int) -> Tensor:
    """The image of every cell; whatever is beside them is paper."""
    board = pixels(png)
    step = board.shape[1] // columns
    framed = board.view(-1, step, columns, step).transpose(1, 2)
    inside = slice(1, side + 1)
    found = framed[:, :, inside, inside]
    assert float(framed.sum()) == pytest.approx(float(found.sum()))
    return found.flatten(0, 1)


def grey(cells: Tensor, side: int) -> Tensor:
    return (cells.view(-1, side, side) + 1).clamp(0, 2) / 2


@pytest.fixture(scope="module")
def client(pictured):
    from letgo.app.server import create_app

    with TestClient(create_app([pictured]), base_url="http://127.0.0.1") as client:
        yield client


def frames(client: TestClient, **body: Any) -> list[dict]:
    answer = client.post("/api/trajectory", json=body)
    assert answer.status_code == 200, answer.text
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: ")]
    return [data for data in map(json.loads, lines) if "xc" in data]


PUZZLE = ".1..3......2..3."


def test_frames_have_the_states_and_proposals_of_the_library(client, pictured):
    import letgo
    from letgo.app.schemas import Frame

    solver = letgo.load(pictured)
    puzzle = solver.task.parse(PUZZLE)
    told = frames(client, model=pictured, puzzle=PUZZLE, rules=["tweedie"], steps=4, seed=3)
    for frame, step in zip(told, solver.trajectory(puzzle, "tweedie", 4, 3), strict=True):
        Frame.model_validate(frame)
        for name, cells in (("xi", step.x), ("pi", solver.clues(puzzle).pin(step.x0_hat))):
            torch.testing.assert_close(images(frame[name], 4, 8), grey(cells[0], 8), atol=SHADE, rtol=0)


def test_a_puzzle_comes_with_the_images_of_its_clues(client, pictured):
    """They are those that the run begins with; where nothing is given, there is paper."""
    card = next(m for m in client.get("/api/models").json()["models"] if m["name"] == pictured)
    assert card["image"] == 8
    parsed = client.post("/api/check", json={"model": pictured, "puzzle": PUZZLE}).json()
    shown = images(parsed["picture"], 4, 8)
    given = torch.tensor([c != "." for c in PUZZLE])
    assert shown[~given].eq(0).all()
    assert shown[given].amax((1, 2)).gt(0.5).all()
    [first] = frames(client, model=pictured, puzzle=PUZZLE, rules=["ddpm"], steps=1)
    assert images(first["pi"], 4, 8)[given].equal(shown[given])
    drawn = client.get("/api/puzzle", params={"model": pictured, "seed": 1}).json()
    again = client.post("/api/check", json={"model": pictured, "puzzle": drawn["puzzle"]}).json()
    assert drawn["picture"] == again["picture"]


def test_other_models_send_no_pictures(client):
    assert client.post("/api/check", json={"model": "sudoku-mini", "puzzle": PUZZLE}).json()["picture"] is None
    [frame] = frames(client, model="sudoku-mini", puzzle=PUZZLE, rules=["ddpm"], steps=1)
    assert frame.keys().isdisjoint({"xi", "pi"})
    cards = {m["name"]: m["image"] for m in client.get("/api/models").json()["models"]}
    assert cards["sudoku-mini"] == 0


@pytest.mark.parametrize(("size", "side"), [(8, 8), (14, 14), (16, 8), (28, 14), (30, 10)])
def test_large_images_are_averaged(size, side):
    from letgo.app.pictures import board, png, shrunk

    cells = torch.rand(81, size * size, generator=torch.Generator().manual_seed(0)) * 2 - 1
    assert shrunk(size) == side
    part = size // side
    mean = grey(cells, size).unflatten(1, (side, part)).unflatten(3, (side, part)).mean((2, 4))
    torch.testing.assert_close(images(text(png(board(cells, 9))), 9, side), mean, atol=SHADE, rtol=0)


def test_a_board_of_noise_takes_less_than_a_byte_a_pixel():
    """Nine by nine images of 28x28 pixels in full would be 64 kB a picture."""
    from letgo.app.pictures import board, png

    noise = torch.randn(81, 28 * 28, generator=torch.Generator().manual_seed(0))
    assert len(text(png(board(noise, 9)))) < 81 * 14 * 14


def test_what_lies_beyond_ink_and_paper_is_cut_off():
    from letgo.app.pictures import board, png

    cells = torch.full((16, 64), -9.0)
    cells[0], cells[1], cells[2] = 9.0, torch.inf, torch.nan
    shown = images(text(png(board(cells, 4))), 4, 8)
    assert [float(image.amax()) for image in shown[:4]] == [1.0, 1.0, 0.0, 0.0]


def test_only_boards_of_cells_are_drawn_as_images(folders, pictured):
    """The page draws graphs, mazes and queens in ways of their own."""
    import letgo
    from letgo.app.pictures import picture, picture_of_clues, picture_side

    solver = letgo.load(folders["connectivity"])
    solver.codec = letgo.load(pictured).codec
    assert picture_side(solver) == 0
    assert picture(solver, torch.zeros(16, 64)) is None
    assert picture_of_clues(solver, solver.task.parse("0100/1000/0001/0010")) is None
