"""An exported network computes what PyTorch does, in a runtime that is not ours."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from refusals import fault

from letgo import __version__, tasks
from letgo.cli import main
from letgo.config import Config
from letgo.data.source import source_of
from letgo.export import codewords, export_onnx, metadata
from letgo.models import NETWORKS
from letgo.presets import PRESETS
from letgo.runs import save_weights, shipped, write_json
from letgo.solver import Solver, load
from letgo.tasks import Problem

ROOT = Path(__file__).parent.parent


def session_of(path: Path) -> Any:
    runtime = pytest.importorskip("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    return runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def problems(solver: Solver, count: int) -> Problem:
    """Instances of the task's own generator, or boards of any symbols where files alone have instances."""
    task, rng = solver.task, np.random.default_rng(count)
    try:
        return source_of(task).draw("test", None, count, seed=1)
    except ValueError:
        shape = (count, task.cells)
        return Problem(
            torch.from_numpy(rng.integers(task.symbols, size=shape)), torch.from_numpy(rng.random(shape) < 0.3)
        )


def largest_difference(solver: Solver, session: Any) -> float:
    """Over batches of several sizes, each with times of its own, both ends included, and with pinned clues."""
    worst = 0.0
    for size, seed in ((1, 0), (2, 1), (5, 2)):
        problem, generator = problems(solver, size), torch.Generator().manual_seed(seed)
        clues = solver.clues(problem)
        t = torch.rand(size, 1, 1, generator=generator)
        t[0], t[-1] = float(seed == 1), seed / 2
        noise = torch.randn(clues.values.shape, generator=generator)
        x_t = clues.pin(solver.path.sample(clues.values, t, noise))
        inputs = {"x_t": x_t, "t": t} | ({} if problem.context is None else {"context": problem.context})
        with torch.no_grad():
            expected = solver.network(*inputs.values())
        (found,) = session.run(None, {name: value.numpy() for name, value in inputs.items()})
        assert found.shape == expected.shape
        worst = max(worst, float(np.abs(found - expected.numpy()).max()))
    return worst


@pytest.mark.extras
@pytest.mark.parametrize("name", shipped())
def test_onnxruntime_agrees_with_pytorch_on_every_shipped_model(name: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    onnx = pytest.importorskip("onnx")
    solver, path = load(name, "cpu", fast=False), tmp_path / "model.onnx"
    about = export_onnx(name, path)
    assert [p.name for p in tmp_path.iterdir()] == ["model.onnx"]  # the weights are in it
    onnx.checker.check_model(onnx.load(path), full_check=True)
    session = session_of(path)
    shapes = {one.name: one.shape for one in session.get_inputs()}
    assert shapes["x_t"] == ["batch", solver.task.cells, solver.codec.dim]
    assert shapes["t"] == ["batch", 1, 1]
    assert ("context" in shapes) == bool(solver.task.context)
    assert session.get_modelmeta().custom_metadata_map == about
    assert str(ROOT).encode() not in path.read_bytes()  # torch notes the files of its nodes
    assert largest_difference(solver, session) < 1e-4


def untrained(config: Config, folder: Path) -> str:
    torch.manual_seed(0)
    network = config.build_model()
    write_json(folder / "config.json", config.as_dict())
    save_weights(folder / "model.safetensors", network.state_dict())
    return str(folder)


SMALL = {"width": 16, "depth": 2, "heads": 2, "hidden": 32}
OTHERS = {  # what no shipped model has
    "masked": Config("masked", "latin", {"size": 4}, codec="masked", path="absorbing", network="categorical",
                     network_options=SMALL, objective="masked", masks="random"),
    "embedding": Config("embedding", "sudoku", {"box": 2}, codec="embedding", network_options=SMALL),
    "looped": Config("looped", "queens", network="looped", network_options={**SMALL, "turns": 2}),
    "looped-nlm": Config("looped-nlm", "connectivity", network="looped-nlm", network_options={"width": 8, "turns": 2}),
}  # fmt: skip


@pytest.mark.extras
@pytest.mark.parametrize("name", OTHERS)
def test_codecs_paths_and_networks_that_are_not_shipped_are_exported_too(name: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    run = untrained(OTHERS[name], tmp_path / "run")
    about = export_onnx(run, tmp_path / "model.onnx")
    assert (about["codec"], about["path"]) == (OTHERS[name].codec, OTHERS[name].path)
    assert ("mask" in about["sampling"]) == (name == "masked")
    solver = load(run, "cpu", fast=False)
    assert largest_difference(solver, session_of(tmp_path / "model.onnx")) < 1e-4


class Hesitant(torch.nn.Module):
    """It looks at its numbers, which no trace can."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(1))

    def forward(self, x_t: torch.Tensor, t: torch.Tensor, context: torch.Tensor | None = None) -> torch.Tensor:
        return x_t * self.scale if float(x_t.sum()) > 0 else x_t


@pytest.mark.extras
def test_what_cannot_be_traced_is_refused_and_an_older_file_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxscript")
    monkeypatch.setitem(NETWORKS, "hesitant", lambda dim, task: Hesitant())
    run = untrained(Config("own", "latin", {"size": 4}, network="hesitant"), tmp_path / "run")
    (tmp_path / "model.onnx").write_text("an older one")
    assert "Hesitant cannot be traced (" in fault(export_onnx, run, tmp_path / "model.onnx")
    assert (tmp_path / "model.onnx").read_text() == "an older one"


LOOP = """
import sys
sys.modules["torch"] = sys.modules["letgo"] = None  # an import of them fails
"""


@pytest.mark.extras
def test_the_loop_of_the_documents_solves_a_puzzle_with_numpy_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnxruntime")
    assert main(["export", "sudoku-mini", "--onnx", str(tmp_path / "mini.onnx")]) == 0
    assert capsys.readouterr().out == f"{tmp_path}/mini.onnx: sudoku-mini, sudoku, one-hot on the cosine path\n"
    page = (ROOT / "docs" / "ecosystem.md").read_text()
    (code,) = [text for text in re.findall(r"^```python\n(.*?)^```$", page, re.S | re.M) if "onnxruntime" in text]
    done = subprocess.run([sys.executable, "-c", LOOP + code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    task, boards = tasks.get("sudoku", box=2), done.stdout.split()
    puzzle = re.search('puzzle = "(.*)"', code)[1]
    valid = [bool(task.validate(task.parse(board).solution, task.parse(puzzle))[0]) for board in boards]
    # .98 of such boards are valid by `letgo evaluate sudoku-mini --rule tweedie --regime 4`: five of eight are safe.
    assert len(boards) == 8
    assert sum(valid) >= 5


@pytest.mark.fast
def test_without_the_extra_a_line_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    assert main(["export", "sudoku-mini", "--onnx", str(tmp_path / "x.onnx")]) == 2
    assert capsys.readouterr().err == "letgo: export needs the onnx extra: pip install 'letgo[onnx]'\n"
    assert not list(tmp_path.iterdir())


def test_codewords_decode_to_their_symbols() -> None:
    for config in (PRESETS["sudoku"], PRESETS["sudoku-bits"], PRESETS["sudoku-embedding"]):
        codec, symbols = config.build_codec(), config.build_task().symbols
        words = codewords(codec, symbols)
        assert words is not None
        assert codec.decode(words[None]).tolist() == [list(range(symbols))]


def test_the_metadata_is_text_and_holds_the_configuration() -> None:
    about = metadata(load("sudoku-mini", "cpu", fast=False))
    assert all(isinstance(value, str) for value in about.values())
    assert (about["version"], about["task"], about["codec"], about["path"]) == (
        __version__,
        "sudoku",
        "one-hot",
        "cosine",
    )
    assert Config.from_dict(json.loads(about["config"])).network_options["width"] == 48
