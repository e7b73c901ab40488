"""The first hour of three users, by README's lines as printed: the curious, the researcher, the owner of a model."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import urlopen

import pytest

if TYPE_CHECKING:
    from conftest import User

pytestmark = pytest.mark.journey

ANSWER = "534678912672195348198342567859761423426853791713924856961537284287419635345286179"
Line = Callable[[str], str]
Blocks = Callable[[str], list[str]]


def test_the_curious(user: User, line: Line, readme: Blocks) -> None:
    """Solves, draws, lists, looks at the page, and tries a word that does not exist."""
    drawn = user.pastes(line("letgo solve   ")).out
    assert len(drawn.splitlines()) > 9
    assert "Solved by 'sudoku'" in drawn
    assert user.pastes(line("letgo solve 53")).out == f"{ANSWER}\n"
    assert re.fullmatch(r".i...l.g.d.njb\n", user.pastes(line("echo '.i")).out)
    assert len(user.pastes(line("letgo generate latin")).out.splitlines()) == 5
    assert "letgo train sudoku --out runs/sudoku" in user.pastes(line("letgo models --long")).out
    assert "did you mean solve?" in user.pastes("letgo slove", code=2).text
    (user.folder / "first.py").write_text(readme("python")[0])
    assert user.pastes("python first.py", speaks=False).out.startswith(f"{ANSWER} 1 ")
    shows_the_page(user, line("letgo app").partition("#")[0] + " --port 0")


def shows_the_page(user: User, words: str) -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen(words.split(), cwd=user.folder, env=user.environ(), stdout=pipe, text=True) as server:
        try:
            assert server.stdout is not None
            found = re.search(r"http://\S+/", server.stdout.readline())
            assert found
            with urlopen(f"{found[0]}api/models") as answer:
                assert "sudoku" in {card["name"] for card in json.load(answer)["models"]}
        finally:
            server.send_signal(signal.SIGINT)
            assert server.wait(20) in (0, 130)


def test_the_researcher(user: User, line: Line, example: Callable[[str], Path]) -> None:
    """Trains, goes on, measures what was trained and what is shipped, trains a task of their own, asks for Table 1."""
    train = line("letgo train sudoku-mini").partition("#")[0] + " --steps 300"
    assert "300" in user.pastes(f"{train} --max-seconds 2").text
    assert (user.folder / "runs" / "mini" / "state.pt").is_file()
    user.pastes(train)
    report = user.pastes(line("letgo evaluate runs/mini") + " --json").out
    assert json.loads(report)["validity"]["n"] == 200
    baseline = line("letgo evaluate sudoku-baseline").replace("--count 20", "--count 2")
    assert "n=2" in user.pastes(baseline).text.replace(" ", "")
    (user.folder / "examples").mkdir()
    example("coins.py").rename(user.folder / "examples" / "coins.py")
    own = line("letgo train --task").partition("#")[0]
    assert "40 steps" in user.pastes(f"{own} --steps 40").text
    assert "sudoku" in user.pastes(line("letgo reproduce table1 --dry-run")).text
    assert "sudoku-mini" in user.pastes(line("letgo presets")).out
    assert "--steps" in user.pastes("letgo train --help").out


def test_the_owner_of_a_diffusion_model(user: User, readme: Blocks, example: Callable[[str], Path]) -> None:
    """Runs README's lines, then the example with a fifth of its training, in which DDPM's loss shows already."""
    (user.folder / "sampler.py").write_text(readme("python")[1])
    assert user.pastes("python sampler.py", speaks=False).out == "torch.Size([8, 3, 4, 4])\n"
    assert os.listdir(user.folder) == ["sampler.py"]
    script = example("eps_network.py")
    done = user.pastes(f"python {script.name} --steps 1600 --count 100")
    assert "n = 100, seed 0" in done.out
    ddpm, tweedie, unclipped = (float(row.split()[1]) for row in done.out.splitlines() if " [" in row)
    assert tweedie - ddpm > 0.2
    assert tweedie > max(0.7, unclipped)
    assert "x0_hat reaches" in done.text
    assert done.silence <= 35
