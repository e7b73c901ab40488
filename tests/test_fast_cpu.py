"""The CPU's fast path against its plain twin: the same network, the same noise, the same bits in any company."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache

import pytest
import torch

from letgo import cli
from letgo.data.source import source_of
from letgo.engines import cpu
from letgo.engines.plain import Plain
from letgo.models.transformer import Transformer
from letgo.presets import PRESETS
from letgo.rng import AHEAD, KERNEL, MOST_AHEAD, PIN, Noise, NoiseAhead
from letgo.solver import Solver, load

packed = pytest.mark.skipif(not cpu.available(), reason="this torch has no oneDNN")


@packed
@pytest.mark.parametrize("name", ["sudoku", "sudoku-mini", "queens", "latin", "sudoku-bits"])
def test_the_packed_network_is_its_plain_twin(name: str) -> None:
    torch.manual_seed(0)
    config = PRESETS[name]
    network = config.build_model().eval()
    assert isinstance(network, Transformer)
    with torch.no_grad():
        for parameter in network.parameters():  # nothing left at its neutral start, biases and norms included
            parameter.add_(0.05 * torch.randn_like(parameter))
        x = torch.randn(3, config.build_task().cells, config.build_codec().dim)
        t = torch.full((1, 1, 1), 0.3)
        exact = network.double()(x.double(), t.double()).float()
        network.float()
        torch.testing.assert_close(cpu.PackedTransformer(network)(x, t), exact, rtol=1e-4, atol=1e-4)
        half = cpu.PackedTransformer(network, torch.bfloat16)(x, t)
        torch.testing.assert_close(half, exact, rtol=0.1, atol=0.1)
        assert not torch.equal(half, exact)


@pytest.mark.fast
@pytest.mark.parametrize(("boards", "seeds"), [(1, ()), (3, ()), (300, ()), (3, (7, 9, 7))])
def test_noise_drawn_ahead_is_the_same_noise(boards: int, seeds: tuple[int, ...]) -> None:
    rows = torch.arange(boards) * 2**20, torch.arange(boards) % 3
    noise = Noise(torch.tensor(seeds) if seeds else 7, *rows)
    ahead = NoiseAhead.of(noise)
    for step in (0, 1, 2, MOST_AHEAD, MOST_AHEAD + 1, 3 * MOST_AHEAD, 5):
        for purpose in (KERNEL, PIN):
            assert torch.equal(ahead.normal(torch.tensor(step), purpose, 5, 3), noise.normal(step, purpose, 5, 3))
    assert len(ahead.drawn) == 2  # one block per purpose, however many steps
    most = max(AHEAD, len(noise.instance))
    assert all(values.numel() <= most * 15 for _, values in ahead.drawn.values())


@cache
def same_bits_in_any_company(precision: str) -> bool:
    """Whether this CPU's products give a row the same bits in any batch; those that we know do."""
    kind, torch_linear = (torch.bfloat16 if precision == "bf16" else torch.float32), torch.nn.functional.linear
    torch.manual_seed(0)
    weight, rows = torch.randn(384, 128).to(kind), torch.randn(16 * 81, 128).to(kind)
    return torch.equal(torch_linear(rows, weight)[:81], torch_linear(rows[:81], weight))


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("name", ["sudoku", "sudoku-mini", "latin", "queens", "connectivity"])
def test_a_board_has_the_same_bits_in_any_company(name: str, precision: str) -> None:
    torch.manual_seed(0)
    config = PRESETS[name]
    solver = Solver(config, config.build_model(), precision=precision)
    problem, ddpm = source_of(solver.task).draw("test", None, 19, 0), solver.sampler("ddpm", 4)
    alone = solver.sample(problem, ddpm, batch=1)
    for batch in (3, 16, None):
        together = solver.sample(problem, ddpm, batch=batch)
        if same_bits_in_any_company(precision):
            assert torch.equal(together, alone)
        torch.testing.assert_close(together, alone, atol=0.1 if precision == "bf16" else 1e-3, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_an_answer_does_not_depend_on_its_neighbours_nor_on_when_they_leave(precision: str) -> None:
    if not same_bits_in_any_company(precision):
        pytest.skip("this CPU's products depend on the batch in their last bits")
    solver = load("sudoku-mini", precision=precision)
    problem = source_of(solver.task).draw("test", None, 40, 0)
    together = solver.solve(problem, "ddpm", steps=10, tries=2)
    alone = [solver.solve(problem[i : i + 1], "ddpm", steps=10, tries=2)[0] for i in range(40)]
    assert [replace(a, seconds=0.0) for a in together] == [replace(a, seconds=0.0) for a in alone]
    assert len({a.calls for a in together}) > 3


@pytest.mark.parametrize("rule", ["tweedie", "ddpm"])
def test_the_fast_and_the_plain_path_give_the_same_answers(rule: str) -> None:
    fast, plain = load("sudoku-mini", precision="fp32"), load("sudoku-mini", fast=False)
    problem = source_of(fast.task).draw("test", None, 40, 0)
    ours, theirs = (s.solve(problem, rule, steps=20, tries=2) for s in (fast, plain))
    assert [replace(a, seconds=0.0) for a in ours] == [replace(a, seconds=0.0) for a in theirs]
    assert isinstance(fast.engine, cpu.Cpu)
    assert isinstance(fast.engine.forward, cpu.PackedTransformer) == cpu.available()
    assert fast.sample_engine is fast.engine  # one precision, so packed once
    assert isinstance(plain.engine, Plain)


@packed
def test_bf16_is_for_checked_answers_and_only_where_the_cpu_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for native, quick in ((True, "bf16"), (False, "fp32")):
        monkeypatch.setattr("letgo.solver.has_bf16", lambda native=native: native)
        solver = load("sudoku-mini")
        assert (solver.precision, solver.sample_precision) == (quick, "fp32")
        for asked in ("fp32", "bf16"):
            solver = load("sudoku-mini", precision=asked)
            assert (solver.precision, solver.sample_precision) == (asked, asked)
        plain = load("sudoku-mini", fast=False)
        assert (plain.precision, plain.sample_precision) == ("fp32", "fp32")
        graphs = Solver(PRESETS["connectivity"], PRESETS["connectivity"].build_model())
        assert (graphs.precision, graphs.sample_precision) == ("fp32", "fp32")  # no packed network, no gain


def test_a_cpu_that_torch_says_nothing_of_has_no_bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"):
        monkeypatch.delattr(torch.cpu, name, raising=False)
    assert not cpu.has_bf16()


@packed
def test_each_precision_is_the_one_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("letgo.solver.has_bf16", lambda: True)
    auto, full, half = (load("sudoku-mini", precision=name) for name in ("auto", "fp32", "bf16"))
    problem, ddpm = source_of(auto.task).draw("test", None, 4, 0), auto.sampler("ddpm", 10)
    ends = {name: s.sample(problem, ddpm) for name, s in (("auto", auto), ("fp32", full), ("bf16", half))}
    assert torch.equal(ends["auto"], ends["fp32"])
    assert not torch.equal(ends["bf16"], ends["fp32"])
    steps = {s: [look.x0_hat for look in s.trajectory(problem[:1], steps=5)] for s in (auto, full, half)}
    assert all(map(torch.equal, steps[auto], steps[half]))
    assert not all(map(torch.equal, steps[auto], steps[full]))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["solve", "sudoku-mini", "--precision", "fp8"], "unknown choice 'fp8'; choose one of auto, bf16, fp32"),
        (["evaluate", "sudoku-mini", "--rule", "ddpm", "--plain", "--precision", "bf16"], "has fp32 only"),
    ],
)
def test_a_precision_that_is_not_there_is_refused_in_one_line(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*words, "--device", "cpu"]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("precision", ["auto", "fp32", "bf16"])
def test_a_report_names_its_precision(precision: str, capsys: pytest.CaptureFixture[str]) -> None:
    few = ["--device", "cpu", "--steps", "3", "--count", "4", "--precision", precision, "--json"]
    for words in (["evaluate", "sudoku-mini", "--rule", "ddpm"], ["generate", "sudoku-mini"]):
        assert cli.main([*words, *few]) == 0
        assert json.loads(capsys.readouterr().out)["precision"] == ("bf16" if precision == "bf16" else "fp32")
