"""What `letgo reproduce --list` says of costs."""

from __future__ import annotations

import pytest

from letgo.analysis import ANALYSES, fields, lines, work
from letgo.cli import main
from letgo.presets import PRESETS
from letgo.reproduce.cost import CPU, board_cells, cost, told, training_seconds
from letgo.reproduce.experiments import EXPERIMENTS, Experiment
from letgo.reproduce.measure import Need
from letgo.reproduce.own_runs import seconds
from letgo.reproduce.pictures import Picture
from letgo.tune import SIGMAS

pytestmark = pytest.mark.fast


def test_a_cost_is_boards_times_steps_times_cells() -> None:
    need = Need("latin", "latin", "gen", "heun", steps=10, count=7, passes=3, first=True)
    assert board_cells(Experiment("mine", "", lambda _: "", (need,))) == 7 * 3 * 10 * 2 * 49
    picture = Picture("mechanism", ("queens", "queens-baseline"))
    assert board_cells(Experiment("mine", "", lambda _: "", pictures=(picture,))) == 2 * 2000 * 2 * 200 * 14
    assert [told(s) for s in (0.1, 12.0, 200.0, 7200.0, 200_000.0)] == ["1 s", "12 s", "3 min", "2 h", "2 days"]
    assert 0.9e-3 < 81 * CPU < 1.1e-3


def test_the_walks_of_a_sweep_are_those_that_it_takes() -> None:
    assert ANALYSES["steps"].walks == 2 * sum(lines.STEPS)
    assert ANALYSES["calls"].walks == pytest.approx(7 * sum(lines.CALLS), abs=1)  # six rules, and Tweedie ahead
    assert ANALYSES["variance"].walks == 2 * len(lines.VARIANCES)
    assert ANALYSES["ahead"].walks == len(lines.AHEAD)
    assert ANALYSES["work"].walks == sum(work.PASSES) / PRESETS["sudoku-extreme"].sample_steps
    assert ANALYSES["decay"].walks == len(SIGMAS["em-decay"]) * len(fields.TAU_STARTS) + 1
    assert ANALYSES["times"].walks == sum(low < high for high in fields.T_MAXS for low in fields.T_MINS)


def test_the_list_names_everything_with_its_cost(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for line, experiment in zip(lines, EXPERIMENTS.values(), strict=False):
        assert line.startswith(experiment.name)
        assert line.endswith(f"({cost(experiment)})")
    assert "docs/ablations.md" in lines[-1]
    named = {line.split()[0] for line in lines}
    assert {f"table{i}" for i in (1, 5, *range(7, 17))} | {f"fig{i}" for i in range(1, 18)} <= named


def test_what_is_trained_first_costs_its_steps() -> None:
    assert [seconds(name) for name in ("sudoku", "baseline", "lambda-0")] == [
        (0.0, 0.0), (75_000.0, 100.0), pytest.approx((99_750.0, 133.0)),
    ]  # fmt: skip
    assert seconds("sudoku-corrupt-20")[1] == pytest.approx(3 * 200_000 * 1.33e-3)
    assert cost(EXPERIMENTS["fig9"]).endswith("; training first: CPU core 7 days, H200 13 min")
    assert training_seconds(EXPERIMENTS["fig2"]) == (0, 0)
