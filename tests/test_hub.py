"""Models on the Hub: its own library reads our cards, and its client talks to a server like it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from refusals import fault

import letgo
from letgo.cards import card_of, card_text, yaml
from letgo.cli import main
from letgo.config import Config
from letgo.hub import scheduler_config, stage
from letgo.kernels import Transition, tweedie
from letgo.models.transformer import Transformer
from letgo.paths import PATHS, LinearPath
from letgo.presets import PRESETS
from letgo.runs import Run, load_model, load_weights, locate, read_json, shipped, write_json

ROOT = Path(__file__).parent.parent
SMALL = {"width": 16, "depth": 1, "heads": 2, "hidden": 32}
MINI = PRESETS["sudoku-mini"].changed(network_options=SMALL, batch=4, boards=16, steps=3)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three steps of training, with tuned settings beside them."""
    out = tmp_path_factory.mktemp("runs") / "mini"
    letgo.train(MINI, out, keep=(2,), validate=4, device="cpu", command=f"letgo train --out {out}")
    best = {"rule": "em", "best": {"sigma": 0.5}, "steps": 50, "command": f"letgo tune {out} --rule em"}
    write_json(out / "tune-em.json", best)
    return out


@pytest.fixture
def report(run: Path, tmp_path: Path) -> Path:
    words = ["evaluate", str(run), "--rule", "tweedie", "--count", "5", "--steps", "2", "--quiet"]
    assert main([*words, "--out", str(tmp_path / "report.json")]) == 0
    return tmp_path / "report.json"


# Cards


@pytest.mark.parametrize("name", shipped())
def test_the_library_of_the_hub_reads_the_card_of_every_shipped_model(name: str) -> None:
    hub = pytest.importorskip("huggingface_hub")
    folder, _ = locate(name)
    card, data = read_json(folder / "card.json"), hub.ModelCard.load(folder / "README.md").data
    assert (data.license, data.library_name, data.metrics) == ("mit", "letgo", ["accuracy"])
    assert {"letgo", "diffusion"} <= set(data.tags)
    assert data.datasets == [read_json(folder / "config.json")["task"]]
    assert data.model_name == name
    found = [(result.metric_type, result.metric_value) for result in data.eval_results]
    assert found == [("accuracy", round(figure["value"], 4)) for figure in card["figures"]]
    for figure, result in zip(card["figures"], data.eval_results, strict=True):
        assert f"by {figure['rule']} in {figure['steps']} steps, n = {figure['n']}" in result.metric_name


def test_yaml_of_ours_is_what_others_read() -> None:
    reader = pytest.importorskip("yaml")
    values = {
        "a": "no",
        "b": ["x: y", "- z", 'say "ü"', "plain-word", "1.5", ""],
        "c": {"d": [{"e": 1, "f": [2.5, None]}]},
    }
    values |= {"g": {"h": {"i": True}}, "j": [{"k": {"l": "m"}}, {"n": "#"}], "o": "null"}
    assert reader.safe_load("\n".join(yaml(values))) == values


@pytest.mark.fast
def test_the_card_of_a_run_says_what_the_run_knows_and_names_no_folder(run: Path, report: Path) -> None:
    from letgo.report import Report

    whole = Run.load(run)
    text = card_text(card_of(whole, []), whole.config, "hub:me/mine")
    assert 'letgo.load("hub:me/mine").generate(4, seed=0)' in text
    assert "3 steps in" in text
    assert f"{sum(w.numel() for w in load_weights(run / 'model.safetensors').values()):,} parameters" in text
    validation = read_json(run / "validation.json")
    assert f"- **euler**, validation: {validation['scores'][validation['weights']]:.3f}, n = 4, 50 steps" in text
    assert "license: unknown" in text
    measured = Report.from_dict(read_json(report)).as_dict()
    text = card_text(card_of(whole, [measured]), whole.config, "hub:me/mine")
    share = measured["validity"]
    assert f"- **tweedie**, 4: {share['value']:.3f} [{share['low']:.3f}, {share['high']:.3f}], n = 5, 2 steps" in text
    assert "euler" not in text
    assert str(run) not in text


# Folders


def test_a_folder_has_the_layout_of_the_mixin_and_its_scheduler(run: Path, tmp_path: Path) -> None:
    mixin = pytest.importorskip("huggingface_hub").PyTorchModelHubMixin
    stage(run, tmp_path, "me/mine", "mit")
    names = {"README.md", "config.json", "model.safetensors", "scheduler_config.json", "tune-em.json"}
    assert {path.name for path in tmp_path.iterdir()} == names
    for path in tmp_path.iterdir():
        assert str(run).encode() not in path.read_bytes()
    assert letgo.load(tmp_path).tuned("em") == {"sigma": 0.5}

    class Hubbed(Transformer, mixin):
        def __init__(self, **config: Any):
            mine = Config.from_dict({key: value for key, value in config.items() if key != "config"})  # it gives both
            super().__init__(mine.build_codec().dim, mine.build_task().positions(), **mine.network_options)

    theirs, ours = Hubbed.from_pretrained(tmp_path), load_model(str(run))[1]
    x_t, t = torch.randn(2, 16, 4), torch.rand(2, 1, 1)
    assert torch.equal(theirs(x_t, t), ours(x_t, t))


def test_a_step_and_a_shipped_model_make_a_folder_too(run: Path, tmp_path: Path) -> None:
    stage(f"{run}@2", tmp_path / "step", "me/mine")
    kept = load_weights(run / "checkpoints" / "2.safetensors", "ema.")
    for name, value in load_weights(tmp_path / "step" / "model.safetensors").items():
        assert torch.equal(value, kept[name])
    assert not list((tmp_path / "step").glob("tune-*"))  # that is of other weights
    stage("sudoku-mini", tmp_path / "shipped", "me/mini", None)
    shown = (tmp_path / "shipped" / "README.md").read_text()
    own = (locate("sudoku-mini")[0] / "README.md").read_text()
    assert shown == own.replace('load("sudoku-mini")', 'load("hub:me/mini")')
    assert letgo.load(tmp_path / "shipped").card == letgo.load("sudoku-mini").card


ODD = [
    {"scores": None},
    {"scores": {"ema": 0.5}, "count": "x"},
    {"step": None},
    {"rule": []},
    {"scores": [1]},
    {"step": -1},
]


@pytest.mark.parametrize("values", ODD)
def test_an_odd_validation_is_none(values: dict[str, Any], run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    path = tmp_path / "run" / "validation.json"
    write_json(path, {**read_json(path), **values})
    stage(tmp_path / "run", tmp_path / "staged", "me/mine")
    assert "raw ones were not compared" in (tmp_path / "staged" / "README.md").read_text()


@pytest.mark.parametrize("name", ["cosine", "linear"])
def test_the_scheduler_of_a_folder_walks_our_path(name: str, tmp_path: Path) -> None:
    schedulers = pytest.importorskip("letgo.schedulers")
    path = PATHS[name]()
    write_json(tmp_path / "scheduler_config.json", scheduler_config(path))
    scheduler = schedulers.TweedieReprojectionScheduler.from_pretrained(tmp_path)
    scheduler.set_timesteps(50)
    shift = 0 if isinstance(path, LinearPath) else 1
    times = [(float(step) + shift) / 1000 for step in scheduler.timesteps]
    if shift:  # a flow's grid is that of diffusers, which ends before 0
        torch.testing.assert_close(torch.tensor(times), torch.linspace(1, 0, 51)[:-1])
    x_t, x0_hat = torch.randn(3, 16, 4), torch.randn(3, 16, 4)
    for i in (0, 20, 48):
        t, s = (torch.tensor(times[j]).view(1, 1, 1) for j in (i, i + 1))
        found = scheduler.step(x0_hat, scheduler.timesteps[i], x_t, torch.Generator().manual_seed(i)).prev_sample
        kernel = tweedie(Transition(path, lambda x, t: x, x_t, x0_hat, t, s))
        noise = torch.randn(x_t.shape, generator=torch.Generator().manual_seed(i))
        torch.testing.assert_close(found, kernel.center + kernel.scale * noise, atol=1e-4, rtol=1e-4)


def test_a_path_that_is_neither_a_flow_nor_a_table_has_no_scheduler() -> None:
    class Parabola(LinearPath):
        def alpha(self, t: torch.Tensor) -> torch.Tensor:
            return 1 - t**2

    assert scheduler_config(Parabola()) is None
    assert scheduler_config(PRESETS["sudoku-d3pm"].build_path()) is None


def test_a_dry_run_shows_the_card_and_needs_no_hub(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], report: Path
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    capsys.readouterr()
    assert main(["push", str(run), "me/mine", "--dry-run", "--licence", "mit", "--report", str(report)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("---\nlicense: mit\nlibrary_name: letgo\n")
    assert out.endswith("files: README.md, config.json, model.safetensors, scheduler_config.json, tune-em.json\n")
    assert main(["push", str(run), "me/mine"]) == 2
    assert capsys.readouterr().err == "letgo: push needs the hub extra: pip install 'letgo[hub]'\n"
    other = {**read_json(report), "task": "latin"}
    assert "a report on latin, but the model is for sudoku" in fault(
        stage, run, run.parent / "x", "a/b", None, (other,)
    )


# Over the wire


@dataclass
class Wire:
    """A server, and a user with a home of its own."""

    address: str
    folder: Path

    def letgo(self, *words: str, token: str | None = "hf_writer", **more: str) -> subprocess.CompletedProcess[str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
        env = {"PYTHONPATH": str(ROOT / "src"), "HF_ENDPOINT": self.address, "HF_HOME": str(self.folder / "home")}
        env |= {"HF_HUB_DISABLE_XET": "1", "NO_PROXY": "127.0.0.1", "OMP_NUM_THREADS": "1"}
        env |= {"HF_TOKEN": token} if token else {}
        command = [sys.executable, "-m", "letgo", *words]
        return subprocess.run(command, env={**kept, **env, **more}, capture_output=True, text=True, cwd=self.folder)

    def refused(self, *words: str, **more: Any) -> str:
        done = self.letgo(*words, **more)
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        assert done.stderr.count("\n") == 1, done.stderr
        return done.stderr

    def requests(self) -> list[str]:
        """All that was asked since the last call."""
        log = self.folder / "requests.txt"
        asked = log.read_text().splitlines() if log.exists() else []
        log.write_text("")
        return asked


@pytest.fixture
def wire(tmp_path: Path) -> Iterator[Wire]:
    pytest.importorskip("huggingface_hub")
    command = [sys.executable, str(ROOT / "tests" / "fake_hub.py"), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield Wire(server.stdout.readline().strip(), tmp_path)
        finally:
            server.terminate()


@pytest.mark.extras
def test_a_run_is_pushed_and_loaded_by_somebody_else(run: Path, wire: Wire) -> None:
    done = wire.letgo("push", str(run), "writer/mini", "--licence", "mit", "--quiet")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{wire.address}/writer/mini\n", "")
    asked = wire.requests()
    assert asked[:2] == ["GET /api/whoami-v2", "POST /api/repos/create"]
    assert asked[-1] == "POST /api/models/writer/mini/commit/main"
    assert not any("telemetry" in request for request in asked)
    words = ("generate", "--count", "2", "--steps", "3", "--seed", "1", "--quiet")
    theirs, ours = (
        wire.letgo(words[0], "hub:writer/mini", *words[1:], token=None),
        wire.letgo(words[0], str(run), *words[1:]),
    )
    assert theirs.returncode == 0, theirs.stderr
    assert (theirs.stdout, theirs.stderr) == (ours.stdout, "")
    assert all(request.startswith(("GET /api/models/", "HEAD /writer/", "GET /writer/")) for request in wire.requests())
    # Another model in its place: what belonged to the first goes.
    assert wire.letgo("push", "sudoku-flow", "writer/mini", "--quiet").returncode == 0
    done = wire.letgo(
        "generate", "hub:writer/mini", "--count", "1", "--steps", "2", "--rule", "tweedie", "--quiet", token=None
    )
    assert done.returncode == 0, done.stderr
    (snapshot,) = {path.parent for path in wire.folder.glob("home/hub/models--*/snapshots/*/card.json")}
    assert read_json(snapshot / "config.json")["name"] == "sudoku-flow"
    tuned = {path.name for path in locate("sudoku-flow")[0].glob("tune-*.json")}
    assert {path.name for path in snapshot.glob("tune-*.json")} == tuned


@pytest.mark.extras
def test_who_may_not_push_is_told_in_a_line_after_one_question(run: Path, wire: Wire) -> None:
    words = ("push", str(run), "writer/mini", "--quiet")
    log_in = "log in by `hf auth login`, or set HF_TOKEN\n"
    assert wire.refused(*words, token=None) == f"letgo: cannot push to writer/mini: nobody is logged in; {log_in}"
    assert wire.requests() == []
    refused = f"letgo: cannot push to writer/mini: it does not take your token; {log_in}"
    assert wire.refused(*words, token="hf_wrong") == refused
    assert wire.requests() == ["GET /api/whoami-v2"]
    refused = "letgo: cannot push to writer/mini: your token may not write there; take one that may, or another name\n"
    assert wire.refused(*words, token="hf_reader") == refused
    assert wire.requests()[:2] == ["GET /api/whoami-v2", "POST /api/repos/create"]
    assert "HF_HUB_OFFLINE is set; unset it" in wire.refused(*words, HF_HUB_OFFLINE="1")
    nowhere = wire.refused(*words, HF_ENDPOINT="http://127.0.0.1:9")
    assert nowhere.startswith("letgo: cannot push to writer/mini: ")
    assert nowhere.endswith("; are you online?\n")
    badly_named = wire.refused("push", str(run), "a/b/c", "--quiet")
    assert "cannot push to a/b/c: Repo id must be" in badly_named
    assert badly_named.endswith("; name it OWNER/MODEL\n")
    assert wire.requests() == []


@pytest.mark.extras
def test_what_cannot_be_fetched_is_told_in_a_line(run: Path, wire: Wire) -> None:
    assert wire.letgo("push", str(run), "writer/secret", "--private", "--quiet").returncode == 0
    wire.requests()
    words = ("generate", "hub:writer/secret", "--count", "1", "--steps", "2", "--quiet")
    refused = wire.refused(*words, token=None)
    assert refused.startswith("letgo: cannot fetch hub:writer/secret: there is no such repository, or it is private; ")
    assert len(wire.requests()) == 1
    assert "there is no such repository" in wire.refused(*words[:1], "hub:writer/nothing", *words[2:])
    assert wire.refused(*words, HF_ENDPOINT="http://127.0.0.1:9").endswith("; are you online?\n")
    assert wire.letgo(*words).returncode == 0
    assert wire.letgo(*words, HF_ENDPOINT="http://127.0.0.1:9").returncode == 0  # what was fetched stays at hand
