"""At run time nothing asks a network: the commands work where looking up a name or opening a connection ends them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.journey

# An audit hook hears of sockets below Python's own classes, and a hook that ends the process cannot be caught.
FORBID = """
import os, sys
def hook(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto", "socket.sendmsg"):
        os.write(2, f"NETWORK {event} {arguments[-1]!r}\\n".encode())
        os._exit(77)
sys.addaudithook(hook)
"""
LETGO = FORBID + "from letgo.cli import main\nraise SystemExit(main(sys.argv[1:]))"


def run(program: str, words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path), "HOME": str(folder)}
    environ |= {"OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
    command = [sys.executable, "-c", program, *words.split()]
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True)


def test_solving_generating_training_and_measuring_ask_no_network(tmp_path: Path) -> None:
    for words in (
        "solve sudoku-mini 1...............",
        "generate sudoku-mini --count 1 --steps 5",
        "train sudoku-mini --out run --steps 2 --batch 4 --boards 16 --validate 0",
        "evaluate run --rule tweedie --regime 4 --count 2 --steps 3",
    ):
        done = run(LETGO, words, tmp_path)
        assert done.returncode == 0, f"{words}\n{done.stderr}"
        assert "NETWORK" not in done.stderr


@pytest.mark.parametrize(
    "program",
    [
        "import socket\ntry: socket.create_connection(('127.0.0.1', 9), 1)\nexcept BaseException: pass",
        "import socket\ntry: socket.socket().connect(('127.0.0.1', 9))\nexcept BaseException: pass",
        "import urllib.request\ntry: urllib.request.urlopen('http://letgo.invalid')\nexcept BaseException: pass",
    ],
)
def test_an_attempt_would_be_seen_even_where_its_fault_is_caught(program: str, tmp_path: Path) -> None:
    assert run(FORBID + program, "", tmp_path).returncode == 77
