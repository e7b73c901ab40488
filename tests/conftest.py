"""Shared fixtures. letgo is imported inside them: the shape checker must hook it before its first import."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from itertools import permutations, product
from typing import TYPE_CHECKING

import pytest
import torch

if TYPE_CHECKING:
    from letgo.paths import GaussianPath

torch.set_num_threads(1)
# A shell in the background ignores these, and so would all that the tests start.
for interruption, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(interruption) == signal.SIG_IGN:
        signal.signal(interruption, usual)


@pytest.fixture(autouse=True)
def quick(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """No work counts as long: what a command says must not hang on how busy the machine is."""
    if request.module.__name__ != "test_progress":  # which has a clock of its own
        monkeypatch.setattr("letgo.progress.HOLD", 3600.0)


@pytest.fixture(params=["cosine", "linear"])
def path(request: pytest.FixtureRequest) -> GaussianPath:
    """Both Gaussian paths, one after the other."""
    from letgo.paths import PATHS

    return PATHS[request.param]()


@pytest.fixture
def on(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The device of a kernel's test; on a CPU the kernels are emulated, and fresh memory is full of NaN."""
    if request.param == "cpu":
        from emulator import kernel

        from letgo.engines import attention, blocks

        monkeypatch.setattr(attention, "kernel", kernel)
        monkeypatch.setattr(attention, "multiprocessors", lambda device: 1)
        monkeypatch.setattr(blocks, "kernel", kernel)
        torch.use_deterministic_algorithms(True)
    yield request.param
    torch.use_deterministic_algorithms(False)


@pytest.fixture(scope="session")
def mini_boards() -> torch.Tensor:
    """The 288 complete 4x4 Sudoku boards, found by trying every four rows: no code of the package is involved."""
    rows = list(permutations(range(4)))
    boards = [sum(board, ()) for board in product(rows, repeat=4) if _all_different(board)]
    assert len(boards) == 288
    return torch.tensor(boards)


def _all_different(board: tuple[tuple[int, ...], ...]) -> bool:
    columns = zip(*board, strict=True)
    boxes = ([board[r + i][c + j] for i in (0, 1) for j in (0, 1)] for r in (0, 2) for c in (0, 2))
    return all(len(set(unit)) == 4 for unit in (*columns, *boxes))
