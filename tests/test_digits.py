"""Boards shown as images of digits: where images come from, which one a cell shows, and that every verb knows them."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest
import torch
from digits import write_mnist
from refusals import fault
from safetensors.torch import load_file, save_file
from torch import Tensor

import letgo
from letgo.app.frames import Reading, View
from letgo.cli import main
from letgo.codecs import DigitImages
from letgo.data import decoder
from letgo.data.decoder import accuracy, ceiling, distorted, surest, train_decoder
from letgo.data.digits import FACTS, TENSORS, WHOLE, DigitCodec, Digits, find_source, mnist_digits, shrunk
from letgo.data.source import source_of
from letgo.hub import stage
from letgo.models.decoder import DigitDecoder
from letgo.pinning import Clues
from letgo.presets import PRESETS
from letgo.runs import load_weights, read_json
from letgo.solver import Solver
from letgo.tasks import get
from letgo.tasks.task import identities

pytestmark = pytest.mark.fast

SMALL: dict[str, Any] = {"batch": 8, "boards": 64, "warmup": 2, "validate": 4, "device": "cpu", "sample_steps": 4}
NET = {"width": 16, "depth": 1, "heads": 2, "hidden": 16}


@pytest.fixture(scope="module")
def mnist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_mnist(tmp_path_factory.mktemp("mnist"))


@pytest.fixture(scope="module")
def run(mnist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of six steps with a decoder that has learned the blobs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoder, "STEPS", {8: 40})
        return Path(train(tmp_path_factory.mktemp("run") / "a", digits=str(mnist), steps=6))


def train(out: Path, name: str = "sudoku-mini-digits", **changes: Any) -> letgo.runs.Run:
    config = PRESETS[name].changed(network_options=NET)
    return letgo.train(config, out, **{**SMALL, **changes})


def test_the_network_and_the_decoder_have_the_published_numbers_of_weights() -> None:
    """Table 11's 838,208; of SRM's classifier, ten digits of 28x28, 421,642."""
    assert sum(p.numel() for p in PRESETS["sudoku-digits"].build_model().parameters()) == 838_208
    assert sum(p.numel() for p in DigitDecoder(28, 10).parameters()) == 421_642


def test_training_validation_and_test_boards_show_different_digits(mnist: Path) -> None:
    sets = mnist_digits(mnist, 8, 4)
    whole = sets.pop(WHOLE)
    assert {split: len(digits) for split, digits in sets.items()} == {"train": 108, "valid": 12, "test": 32}
    assert torch.equal(shrunk(whole, 8).images, sets["train"].images)
    assert whole.images.shape == (108, 28, 28)
    assert all(set(digits.labels.tolist()) == {0, 1, 2, 3} for digits in sets.values())
    rows = [set(map(tuple, digits.images.flatten(1).tolist())) for digits in sets.values()]
    assert len(rows[0] | rows[1] | rows[2]) == 152  # none of them twice


def test_a_run_says_where_its_digits_come_from_and_how_well_they_are_read(run: Path) -> None:
    facts = read_json(run / FACTS)
    assert read_json(run / "config.json")["codec_options"] == {"size": 8, "source": "mnist"}
    assert (facts["source"], facts["images"]) == ("mnist", {"train": 108, "valid": 12, "test": 32})
    assert "CC BY-SA 3.0" in facts["licence"]
    assert (facts["accuracy"]["value"], facts["accuracy"]["n"]) == (1.0, 32)  # blobs are easily told apart
    assert (facts["ceiling"]["value"], facts["ceiling"]["n"], facts["ceiling"]["regime"]) == (1.0, 2000, "4")


def test_every_verb_knows_a_model_of_digits(run: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["evaluate", str(run), "--rule", "ddpm", "--count", "5", "--json", "--quiet"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["count"], report["task"], report["digits"]) == (5, "sudoku", "mnist")
    assert main(["solve", str(run), ".1..3......2..3.", "--tries", "1", "--quiet"]) in (0, 1)
    assert main(["generate", str(run), "--count", "2", "--quiet"]) == 0
    assert all(len(line) == 16 for line in capsys.readouterr().out.split()[-2:])
    assert main(["tune", str(run), "--rule", "em", "--sigmas", "0.1", "--count", "5", "--quiet", "--out",
                 str(tmp_path / "t.json")]) == 0  # fmt: skip
    assert "rule 'resample' does not fit" in fault(letgo.load(run).sampler, "resample")


def test_the_page_takes_certainty_from_the_decoder_and_clues_as_given(run: Path) -> None:
    solver = letgo.load(run)
    problem = solver.parse([".1..3......2..3."])
    x = torch.full((1, 16, 64), -1.0)
    reading = Reading(View(solver, problem, Clues.none(x), x, x, [1], [0.5]), x, torch.full((1, 1, 1), 0.5))
    assert torch.equal(reading.symbols[problem.given], problem.solution[problem.given])
    torch.testing.assert_close(reading.probabilities.sum(-1), torch.ones(1, 16))
    assert next(iter(solver.trajectory(problem, steps=2))).x.shape == (1, 16, 64)


def test_a_puzzle_shows_the_same_clue_images_everywhere(run: Path) -> None:
    """In any company, order and place of a list; another puzzle shows others."""
    solver = letgo.load(run)
    problem = source_of(solver.task).draw("test", "6", 20, 3)
    values = solver.clues(problem).values
    order = torch.randperm(20, generator=torch.Generator().manual_seed(0))
    assert torch.equal(solver.clues(problem[order]).values, values[order])
    for row in (0, 7):
        assert torch.equal(solver.clues(problem[row : row + 1]).values[0], values[row])
        text = solver.task.format_clues(problem[row : row + 1])
        given = problem.given[row]
        assert torch.equal(solver.clues(solver.parse(text)).values[0][given], values[row][given])
    pool = solver.codec.images.on(torch.device("cpu"))
    assert all((pool == image).all(-1).any() for image in values[0])  # they are the test digits
    assert len(torch.unique(values.flatten(0, 1), dim=0)) > 25  # of 32: all are drawn, but for 320 draws' bad luck


def test_the_batch_size_changes_no_final_state(run: Path) -> None:
    solver = letgo.load(run, fast=False)
    problem, sampler = source_of(solver.task).draw("test", None, 6, 0), solver.sampler("tweedie", 3)
    whole = solver.sample(problem, sampler, batch=6)
    assert torch.equal(solver.sample(problem, sampler, batch=6), whole)
    torch.testing.assert_close(solver.sample(problem, sampler, batch=2), whole, rtol=0, atol=1e-5)
    backwards = solver.sample(problem[torch.arange(5, -1, -1)], sampler, batch=6)
    torch.testing.assert_close(backwards.flip(0), whole, rtol=0, atol=1e-5)


def test_a_resumed_run_is_the_uninterrupted_one(run: Path, tmp_path: Path) -> None:
    """The run of the module took six steps at once; its digits are given as the folder that they were made in."""
    train(tmp_path / "b", digits=str(run), steps=6, max_seconds=0.0)
    assert read_json(tmp_path / "b" / FACTS) == read_json(run / FACTS)
    first = train(tmp_path / "b", steps=6, watch=stop_after(3))
    assert first.step == 3
    train(tmp_path / "b", steps=6)
    ours, theirs = (load_weights(folder / "model.safetensors") for folder in (tmp_path / "b", run))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def stop_after(steps: int) -> Any:
    import signal

    def watch(step: int, total: int, loss: Any) -> None:
        if step == steps:
            signal.raise_signal(signal.SIGINT)

    return watch


def test_training_draws_other_images_at_every_step_from_the_training_digits(run: Path) -> None:
    from letgo.training.data import TrainingData
    from letgo.training.trainer import Trainer

    config = letgo.config.Config.from_dict(read_json(run / "config.json"))
    data = TrainingData.of(source_of(config.build_task()).training(4, 0), "random", torch.device("cpu"))
    trainer, seen = Trainer.of(config, data, folder=run), []
    trainer.objective = Keeps(trainer.objective, seen)
    for _ in range(2):
        trainer.step()
    pool = config.build_codec(run, "train").images.on(torch.device("cpu"))
    assert all((pool == image).all(-1).any() for image in seen[0][0])
    assert len(torch.unique(torch.cat(seen).flatten(0, 1), dim=0)) > 60  # of 108, in 256 draws


class Keeps:
    """It looks over an objective's shoulder."""

    def __init__(self, objective: Any, seen: list[Tensor]):
        self.objective, self.seen, self.weights = objective, seen, objective.weights

    def __call__(self, network: Any, path: Any, batch: Any) -> dict[str, Tensor]:
        self.seen.append(batch.x0.clone())
        return self.objective(network, path, batch)


def test_given_cells_are_taken_as_given_and_not_read(run: Path) -> None:
    solver = letgo.load(run)
    wrong = DigitImages(
        solver.codec.images.on(torch.device("cpu")).unflatten(1, (8, 8)),
        torch.arange(4).repeat_interleave(8),
        lambda x: torch.eye(4)[3].expand(len(x), 4),  # it reads a 4 everywhere
    )
    problem = source_of(solver.task).draw("test", "10", 5, 0)
    solver.codec = wrong
    boards = solver.read(torch.zeros(5, 16, 64), problem)
    assert torch.equal(boards, torch.where(problem.given, problem.solution, 3))
    assert (ceiling(wrong, solver.task, 100)["value"], ceiling(wrong, solver.task, 100)["n"]) == (0.0, 100)


def test_the_ceiling_is_what_the_decoders_errors_leave() -> None:
    """One image in ten of each symbol is misread, always for the same symbol: a board of 12 open cells stays whole in
    .9^12 = .282 of the cases; 2,000 boards are off by more than .05 with odds of 1e-6."""
    images = torch.arange(40.0).view(40, 1, 1) / 100
    labels = torch.arange(4).repeat_interleave(10)

    def read(x: Tensor) -> Tensor:
        number = (x.flatten() * 100).round().long()
        symbol = (number // 10 + (number % 10 == 0)) % 4
        return torch.eye(4)[symbol]

    found = ceiling(DigitImages(images, labels, read), get("sudoku", box=2))
    assert found["n"] == 2000
    assert abs(found["value"] - 0.9**12) < 0.05


def test_the_pool_holds_the_images_that_the_decoder_is_surest_of(mnist: Path) -> None:
    digits = mnist_digits(mnist, 8, 4)["train"]
    network = train_decoder(digits, 8, 4, 10, 0)
    chosen = surest(network, digits, 5)
    assert torch.equal(chosen.labels.bincount(), torch.full((4,), 5))
    with torch.no_grad():
        for symbol in range(4):
            mine = network(digits[digits.labels == symbol].pixels[:, None]).softmax(1)[:, symbol]
            best = network(chosen[chosen.labels == symbol].pixels[:, None]).softmax(1)[:, symbol]
            assert best.min() >= mine.sort(descending=True).values[4] - 1e-6
    assert "there are 25 of the digit 2" in fault(surest, network, digits, 28)
    assert accuracy(network, chosen).n == 20


def test_what_has_no_digits_says_what_it_lacks(capsys: pytest.CaptureFixture[str]) -> None:
    """A preset has none before a run has: it cannot be timed."""
    assert main(["bench", "train", "sudoku-mini-digits", "--device", "cpu", "--batch", "4", "--steps", "1"]) == 2
    assert "a model of digits needs digits.safetensors" in capsys.readouterr().err


def test_a_distorted_digit_is_the_same_ink_a_little_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    images = torch.full((64, 1, 28, 28), -1.0)
    images[..., 10:18, 12:16] = 1
    ink = distorted(images) + 1
    assert ink.min() >= 0  # no edge of a picture comes in
    assert torch.allclose(ink.sum((1, 2, 3)), torch.tensor(64.0), rtol=0.3)
    rows = (ink.sum((1, 3)) * torch.arange(28)).sum(1) / ink.sum((1, 2, 3))
    assert 0.3 < rows.std() < 1.4  # a tenth of half a picture at most, and no picture as it was
    monkeypatch.setattr(decoder, "DISTORTIONS", (0.0,) * 5)
    assert torch.allclose(distorted(images), images, atol=1e-5)


def test_a_run_with_the_older_decoder_still_loads(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "old")
    facts, tensors = read_json(run / FACTS), load_file(run / TENSORS)
    older = DigitDecoder(8, 4)
    kept = {name: value for name, value in tensors.items() if not name.startswith("decoder.")}
    save_file(
        {**kept, **{f"decoder.{name}": value for name, value in older.state_dict().items()}}, tmp_path / "old" / TENSORS
    )
    sha256 = hashlib.sha256((tmp_path / "old" / TENSORS).read_bytes()).hexdigest()
    (tmp_path / "old" / FACTS).write_text(json.dumps({**facts, "sha256": sha256}))
    images = torch.rand(3, 1, 64) * 2 - 1
    read = letgo.load(str(tmp_path / "old")).codec.decode(images)
    with torch.no_grad():
        expected = older.eval()(images.view(3, 1, 8, 8)).argmax(1)
    assert torch.equal(read.flatten(), expected)


def test_a_decoder_is_decided_by_its_seed_and_disturbs_no_other_draws(mnist: Path) -> None:
    digits = mnist_digits(mnist, 8, 4)["train"]
    torch.manual_seed(5)
    one, two = (train_decoder(digits, 8, 4, 3, 0) for _ in range(2))
    drawn = torch.rand(1)
    torch.manual_seed(5)
    assert torch.equal(drawn, torch.rand(1))
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))


def test_digits_are_never_taken_from_elsewhere_in_silence(
    mnist: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_source(None) == ("optdigits", None)  # MNIST was not fetched here
    assert find_source(str(mnist)) == ("mnist", mnist)
    write_mnist(tmp_path / "data" / "mnist")
    assert find_source(None) == find_source("mnist") == ("mnist", Path("data/mnist"))
    assert "no MNIST in nowhere" in fault(find_source, "nowhere")
    assert "optdigits are images of 8x8" in fault(letgo.data.digits.optdigits, 28, 9)
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    assert "pip install 'letgo[digits]'" in fault(letgo.data.digits.optdigits, 8, 9)
    assert main(["train", "sudoku-mini", "--out", "r", "--digits", "mnist"]) == 2
    assert "--digits is for models of digit images" in capsys.readouterr().err
    assert main(["data", "digits", "--preset", "sudoku-mini-digits", "--out", "d", "--decoder-steps", "20"]) == 0
    said = capsys.readouterr()
    assert "digits: mnist, 8x8, 108 to train and 32 to test" in said.err
    assert said.out == "d: digits of mnist\n"
    assert read_json(Path("d") / FACTS)["command"].startswith("letgo data digits --preset sudoku-mini-digits")
    assert main(["data", "digits", "--preset", "sudoku-mini", "--out", "e"]) == 2
    assert main(["data", "digits", "--out", "d"]) == 2
    assert main(["data", "digits", "--out", "/dev/full"]) == 2
    assert "/dev/full cannot be written to" in capsys.readouterr().err  # at once, not after the training


def test_a_model_of_digits_is_pushed_with_them(run: Path, tmp_path: Path) -> None:
    stage(run, tmp_path, "me/mine")
    assert letgo.load(tmp_path, "cpu").solve(["1..............."], steps=2)


def test_a_run_that_was_killed_between_its_two_files_of_digits_begins_with_both(run: Path, tmp_path: Path) -> None:
    """Their decoder may have been trained by another number of threads since, to other bits."""
    files = {name: (run / name).read_bytes() for name in (TENSORS, FACTS)}
    (tmp_path / TENSORS).write_bytes(b"those of the first time")
    letgo.runs.Run(tmp_path, PRESETS["sudoku-mini-digits"]).adopt(files)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == files


def test_other_digits_than_a_models_own_are_refused(run: Path, tmp_path: Path) -> None:
    assert "was started with mnist" in fault(lambda: train(run, digits="optdigits", steps=6))
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("config.json", "model.safetensors"):
        (copy / name).write_bytes((run / name).read_bytes())
    assert f"lacks {TENSORS}" in fault(letgo.load, copy)
    blob = bytearray((run / TENSORS).read_bytes())
    blob[-1] ^= 1
    (copy / TENSORS).write_bytes(blob)
    (copy / FACTS).write_bytes((run / FACTS).read_bytes())
    assert "is damaged" in fault(letgo.load, copy)
    (copy / FACTS).write_text(json.dumps({**read_json(run / FACTS), "source": "optdigits"}))
    assert "has source 'optdigits', and the model 'mnist'" in fault(letgo.load, copy)
    (copy / FACTS).write_text("{}")
    assert "no pool, sha256" in fault(letgo.load, copy)
    assert "needs digits.safetensors" in fault(DigitCodec(9).encode, torch.zeros(1, 1, dtype=torch.long))
    assert "symbols 1 to 9" in fault(DigitCodec, 16)


def test_a_solver_shows_the_images_of_the_split_that_it_is_asked_for(run: Path) -> None:
    config = letgo.config.Config.from_dict(read_json(run / "config.json"))
    solver = Solver(config, config.build_model(), folder=run)
    sizes = {split: len(solver.on_split(split).codec.images.on(torch.device("cpu"))) for split in ("train", "valid")}
    assert (sizes, len(letgo.load(run).codec.images.on(torch.device("cpu")))) == ({"train": 108, "valid": 12}, 32)


def test_a_trajectory_is_shown_as_images(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("letgo.analysis.drawing.available", lambda: False)
    words = ["--count", "3", "--steps", "4", "--device", "cpu", "--quiet", "--out", str(tmp_path)]
    assert main(["analyze", "trajectory", str(run), *words]) == 0
    [path] = tmp_path.iterdir()
    report = read_json(path)
    assert [*report["walks"]] == ["euler", "tweedie"]
    solver = letgo.load(run).on_split("valid")
    problem = source_of(solver.task).draw("valid", None, 3, 0)[report["instance"] :][:1]
    clues, given = solver.clues(problem).values[0].view(4, 4, 8, 8), problem.given[0].view(4, 4)
    for frame in report["walks"]["tweedie"]:
        for kind in ("state", "proposal"):
            image = frame[kind]["image"]
            raw = torch.frombuffer(bytearray(zlib.decompress(base64.b85decode(image["pixels"]))), dtype=torch.uint8)
            cells = raw.view(4, 8, 4, 8).transpose(1, 2)
            shown = (clues[given] + 1) * 127.5
            torch.testing.assert_close(cells[given].float(), shown.round(), rtol=0, atol=0)


@pytest.mark.extras
def test_a_picture_of_images_is_drawn(run: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    words = ["--count", "3", "--steps", "4", "--device", "cpu", "--quiet", "--out", str(tmp_path)]
    assert main(["analyze", "trajectory", str(run), *words]) == 0
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json", ".png", ".svg"]


@pytest.mark.extras
def test_scikit_learns_digits_are_cut_in_three() -> None:
    pytest.importorskip("sklearn")
    sets = letgo.data.digits.optdigits(8, 9)
    assert torch.equal(sets.pop(WHOLE).images, sets["train"].images)  # they come as small as they are shown
    assert {split: len(digits) for split, digits in sets.items()} == {"train": 1132, "valid": 162, "test": 325}
    assert all(digits.labels.bincount().min() > 10 for digits in sets.values())
    assert isinstance(sets["train"], Digits)
    assert int(sets["train"].images.max()) == 255


def test_identities_of_puzzles_are_those_of_their_clues() -> None:
    problem = source_of(get("sudoku", box=2)).draw("test", "4", 2, 0)
    other = problem.solution.clone()
    other[~problem.given] = 0
    assert torch.equal(identities(letgo.tasks.Problem(other, problem.given)), identities(problem))
