"""Files and words of somebody who means no good: refused in one line, before they take memory or time."""

from __future__ import annotations

import gzip
import io
import os
import re
import resource
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from letgo import tasks
from letgo.cli import main
from letgo.config import Config
from letgo.data import load_problems
from letgo.errors import LetgoError
from letgo.runs import Run, load_model, load_state, read_json, write_json
from letgo.tasks.latin import Latin

HERE = Path(__file__).parent
MORE = 300 << 20  # bytes that a refusal may take


def refusal(do: Callable[[], object]) -> str:
    """The line of a refusal, which took little memory."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(LetgoError) as error:
        do()
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < MORE
    return str(error.value)


def bomb(path: Path, names: tuple[str, ...], size: int) -> Path:
    """An archive of zeros that unpacks to `size` bytes for each name; small, since made of one piece."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": (size // 16, 16)})
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            with archive.open(name, "w", force_zip64=True) as entry:
                entry.write(header.getvalue())
                for _ in range(size >> 20):
                    entry.write(bytes(1 << 20))
    return path


@pytest.mark.journey
def test_thousands_of_hostile_files_and_words_end_in_no_traceback() -> None:
    env = {**os.environ, "PYTHONPATH": str(HERE.parent / "src"), "OMP_NUM_THREADS": "1"}
    words = [sys.executable, str(HERE / "attack.py"), "40"]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search("^0 of 440 ", done.stdout, re.MULTILINE)


def test_an_archive_that_would_fill_the_memory_is_refused_by_its_figure(tmp_path: Path) -> None:
    path = bomb(tmp_path / "a.npz", ("boards.npy", "given.npy"), 64 << 20)
    assert re.search(
        r"[\d,]+ bytes that unpack to 134,2\d\d,\d\d\d or more", refusal(lambda: load_problems(path, Latin(4)))
    )
    path = bomb(tmp_path / "b.npz", ("meta.npy", "unasked.npy"), 16 << 20)  # an array that nobody reads
    assert "it has no array 'boards'" in refusal(lambda: load_problems(path, Latin(4)))
    path = bomb(tmp_path / "c.npz", ("alone.npy",), 64 << 20)  # which is taken for boards
    assert re.search(r"bytes that unpack to 67,\d\d\d,\d\d\d", refusal(lambda: load_problems(path, Latin(4))))
    state = bomb(tmp_path / "state.pt", ("archive/data.pkl",), 64 << 20)
    assert re.search(r"bytes that unpack to 67,\d\d\d,\d\d\d", refusal(lambda: load_state(state)))


@pytest.mark.journey
@pytest.mark.parametrize("content", [b"x", b"\n"])
def test_a_packed_file_without_end_is_refused_by_its_figure(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(content * (40 << 20), 1))
    assert re.search("longer than 1,048,576 characters|expected the header", refusal(
        lambda: load_problems(path, tasks.get("sudoku"))
    ))  # fmt: skip
    assert re.search("longer than 1,048,576 characters|more than 100,000 empty lines", refusal(
        lambda: load_problems(path.rename(tmp_path / "a.txt"), tasks.get("sudoku"))
    ))  # fmt: skip


@pytest.mark.parametrize("kind", ["fifo", "device"])
def test_what_is_no_regular_file_is_refused_before_it_is_read(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "a"
    if kind == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    for read in (load_state, read_json, lambda path: load_problems(path, tasks.get("sudoku"))):
        assert "not a regular file" in refusal(lambda read=read: read(path))
    folder = tmp_path / "run"
    folder.mkdir()
    write_json(folder / "config.json", Config("a", "sudoku").as_dict())
    (folder / "model.safetensors").symlink_to(path)
    assert "not a regular file" in refusal(lambda: load_model(str(folder)))


@pytest.mark.parametrize(
    "options",
    [
        {"depth": 10**9},
        {"depth": 200},
        {"width": 65_536},
        {"hidden": 10**6},
        {"heads": 7},
        {"heads": 0},
        {"heads": -3},
    ],
)
def test_a_network_that_its_weights_do_not_fit_takes_no_memory(options: dict[str, int], tmp_path: Path) -> None:
    """Before, a depth of 10^9 took 7.6 GB."""
    import shutil

    from letgo.runs import locate

    folder = shutil.copytree(locate("sudoku-mini")[0], tmp_path / "run")
    values = read_json(folder / "config.json")
    write_json(folder / "config.json", {**values, "network_options": {**values["network_options"], **options}})
    assert "config.json" in refusal(lambda: load_model(str(folder)))


@pytest.mark.parametrize("words", [["generate", "sudoku"], ["evaluate", "sudoku", "--rule", "ddpm"]])
def test_more_boards_than_memory_are_refused_with_the_figure(
    words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("letgo.machine.memory", lambda: 64e9)
    assert main([*words, "--count", "1000000000"]) == 2
    error = capsys.readouterr().err
    assert re.search(
        r"1,000,000,000 \w+( of sudoku)? take [\d,]+ GB of memory, and this machine has 64; ask for fewer", error
    )


def test_a_batch_beyond_memory_is_refused_before_it_is_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five states of 16 cells with 4 channels of 4 bytes are 1,280 bytes a board."""
    monkeypatch.setattr("letgo.machine.memory", lambda: 64e9)
    words = ["train", "sudoku-mini", "--out", str(tmp_path / "run"), "--boards", "4", "--steps", "1", "--quiet"]
    assert main([*words, "--device", "cpu", "--batch", "1000000000"]) == 2
    said = "letgo: 1,000,000,000 boards of a batch take 1,280 GB of memory, and this machine has 64; ask for fewer\n"
    assert capsys.readouterr().err == said
    assert main([*words, "--device", "cpu", "--batch", "2", "--validate", "0"]) == 0  # the folder can be used


@pytest.mark.parametrize(
    ("number", "span"),
    [("1000000001", "from 1 to 1000000000"), ("9" * 400, "from 1 to 1000000000"), ("0", "from 1"), ("-3", "from 1"),
     ("x", "from 1"), ("-" + "9" * 400, "from 1")],
)  # fmt: skip
def test_a_number_beyond_its_bound_is_told_the_bound(
    number: str, span: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "sudoku-mini", f"--batch={number}"]) == 2
    assert f"argument --batch: expected a whole number {span}, got '{number[:40]}'; " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ({"sample_steps": "many"}, "sample_steps is 'many'; expected a whole number"),
        ({"sample_steps": True}, "sample_steps is True; expected a whole number"),
        ({"path": ["cosine"]}, "path is list; expected text"),
        ({"ema": 1.5}, "ema is 1.5; expected a number from 0 to 1"),
        ({"learning_rate": float("nan")}, "learning_rate is nan; expected a number"),
        ({"network_options": {1: 2}}, "network_options is 1; expected a name"),
        ({"task_options": None}, "task_options is None; expected an object"),
        ({"flavour": 1}, "unknown flavour"),
    ],
)
def test_a_configuration_names_the_field_that_is_wrong(values: dict[str, Any], fault: str) -> None:
    assert refusal(lambda: Config.from_dict({"name": "a", "task": "sudoku", **values})).endswith(fault)
    assert "no task" in refusal(lambda: Config.from_dict({"name": "a"}))


def test_what_an_earlier_version_did_not_write_is_not_asked_for(tmp_path: Path) -> None:
    run = Run(tmp_path, Config("a", "sudoku"))
    run.save_tuning("em", None, {"best": {"sigma": 0.1}})
    assert run.tuning("em")["best"] == {"sigma": 0.1}
    run.save_tuning("em", None, {"best": {}})
    assert "no tuned settings: best: no sigma" in refusal(lambda: run.tuning("em"))


def test_a_message_is_one_printable_line_whatever_it_quotes() -> None:
    assert str(LetgoError("a\nb\x00\udc80é")) == r"a\nb\x00\udc80é"


def test_a_state_that_calls_for_more_than_plain_tensors_is_refused(tmp_path: Path) -> None:
    torch.save({"step": bytearray(3)}, tmp_path / "state.pt")
    assert "it holds more than plain tensors" in refusal(lambda: load_state(tmp_path / "state.pt"))


@pytest.mark.journey
def test_bf16_only_where_onednn_has_it() -> None:
    """Held to an older CPU, oneDNN refuses bf16 products, whatever the CPU itself can do."""
    code = "import torch; from letgo.engines.cpu import has_bf16; ok = torch.ops.mkldnn._is_mkldnn_bf16_supported()"
    env = {**os.environ, "PYTHONPATH": str(HERE.parent / "src"), "ONEDNN_MAX_CPU_ISA": "AVX2"}
    done = subprocess.run([sys.executable, "-c", f"{code}; assert not has_bf16(), ok"], env=env, check=False)
    assert done.returncode == 0
