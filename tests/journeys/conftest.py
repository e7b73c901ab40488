"""What a new user has: an environment made from the wheel, an empty folder, and README."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FIRST, SILENCE = 2.0, 35.0  # seconds until a command's first line, and between two lines


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the environment's programs: $LETGO_USER's, which .ci/run makes, or one that is made here.

    The latter has the wheel alone, and finds torch and the rest where the tests have them.
    """
    if "LETGO_USER" in os.environ:
        return Path(os.environ["LETGO_USER"]) / "bin"
    folder = tmp_path_factory.mktemp("environment")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    subprocess.run([*pip, "wheel", "--no-deps", "-w", str(folder), str(ROOT)], check=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "user")], check=True)
    (wheel,) = folder.glob("letgo-*.whl")
    there = folder / "user" / "bin" / "python"
    subprocess.run([*pip, "--python", str(there), "install", "--no-deps", str(wheel)], check=True)
    ask = [str(there), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    site = subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip()
    (Path(site) / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return there.parent


@dataclass
class Done:
    """What a command said on both streams, and when."""

    code: int
    out: str
    text: str
    first: float  # seconds until its first line, or those of work where that is less
    silence: float


@dataclass
class User:
    """Somebody in a folder, who pastes lines into a shell."""

    folder: Path
    programs: Path

    def environ(self) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "LETGO"))}
        path = f"{self.programs}{os.pathsep}{os.environ['PATH']}"
        return {**kept, "PATH": path, "OMP_NUM_THREADS": "1", "NO_COLOR": "1", "HOME": str(self.folder)}

    def pastes(self, line: str, code: int = 0, speaks: bool = True) -> Done:
        """Run a line; it must end as told, and speak in time where `speaks`."""
        done = watch(line, self.folder, self.environ())
        assert done.code == code, f"{line}\n{done.text}"
        assert "Traceback" not in done.text, f"{line}\n{done.text}"
        if speaks:
            assert done.first <= FIRST, f"{line}: the first line came after {done.first:.1f} s"
            assert done.silence <= SILENCE, f"{line}: silent for {done.silence:.1f} s"
        return done


def worked(process: int) -> float:
    """The seconds of work of a process until now; on a busy machine it waits for many more."""
    stat = Path(f"/proc/{process}/stat")
    fields = stat.read_text().rpartition(")")[2].split() if stat.exists() else []
    return sum(int(ticks) for ticks in fields[11:13]) / os.sysconf("SC_CLK_TCK") if fields else float("inf")


def watch(line: str, folder: Path, environ: dict[str, str]) -> Done:
    """Run a line in bash, which becomes the command, and note when each piece of its output comes."""
    started = time.monotonic()
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(["bash", "-c", line], cwd=folder, env=environ, text=True, **pipes) as process:
        said: list[tuple[float, float, str, str]] = []

        def read(name: str) -> None:
            for text in getattr(process, name):
                said.append((time.monotonic() - started, worked(process.pid), name, text))

        readers = [threading.Thread(target=read, args=(name,)) for name in ("stdout", "stderr")]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        code = process.wait()
    times = [0.0, *(when for when, *_ in said), time.monotonic() - started]
    silence = max(later - sooner for sooner, later in pairwise(times))
    out = "".join(text for *_, name, text in said if name == "stdout")
    first = min(said[0][:2]) if said else times[-1]
    return Done(code, out, "".join(text for *_, text in said), first, silence)


@pytest.fixture
def user(environment: Path, tmp_path: Path) -> User:
    """In an empty folder."""
    return User(tmp_path, environment)


@pytest.fixture
def readme() -> Callable[[str], list[str]]:
    """The blocks of README in a language, as printed; '' is the shell."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", (ROOT / "README.md").read_text(), re.S | re.M)
    return lambda language: [text for own, text in found if own == language]


@pytest.fixture
def line(readme: Callable[[str], list[str]]) -> Callable[[str], str]:
    """The one line of README's commands that begins so."""

    def find(start: str) -> str:
        (found,) = [one for block in readme("") for one in block.splitlines() if one.startswith(start)]
        return found

    return find


@pytest.fixture
def example(tmp_path: Path) -> Callable[[str], Path]:
    """A file of examples/, as somebody who read README copies it into the folder."""
    return lambda name: Path(shutil.copy(ROOT / "examples" / name, tmp_path))
