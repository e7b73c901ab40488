"""Reports: the whole of a measurement from its parts, exactly, and only from its own parts."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from letgo.data.source import source_of
from letgo.errors import LetgoError
from letgo.estimates import Column
from letgo.evaluation import evaluate, part_of
from letgo.presets import PRESETS
from letgo.report import Outcomes, Report, board_digest
from letgo.rng import data_rng
from letgo.samplers import Sampler
from letgo.solver import Solver, load
from letgo.tasks import Problem

APART = ("seconds", "building_seconds", "command", "shard")  # what may differ between a whole and its parts joined
CASES = ("clues", "from nothing", "diverged", "nothing open", "bits", "graphs", "mazes")


@cache
def case(name: str) -> tuple[Solver, Problem, Sampler]:
    """Trained where equal valid boards must turn up, else as first drawn."""
    torch.manual_seed(0)
    if name == "graphs":
        config = replace(PRESETS["connectivity"], network_options={"width": 8})
        solver = Solver(config, config.build_model(), fast=False)
        return solver, solver.task.generate(11, data_rng(0, "test"), "6"), solver.sampler(steps=3)
    if name == "mazes":
        small = {"width": 16, "depth": 1, "heads": 2, "hidden": 16}
        config = replace(PRESETS["maze"], task_options={"size": 6}, network_options=small)
        solver = Solver(config, config.build_model(), fast=False)
        return solver, solver.task.generate(11, data_rng(0, "test"), "test"), solver.sampler(steps=3)
    if name == "bits":
        config = replace(PRESETS["sudoku-mini"], codec="bits")
        solver = Solver(config, config.build_model(), fast=False)
        return solver, source_of(solver.task).draw("test", None, 11, 0), solver.sampler(steps=3)
    solver = load("sudoku-mini")
    if name == "from nothing":
        return solver, solver.empty(60), solver.sampler("ddpm", 12)
    problem = source_of(solver.task).draw("test", "8", 23, 0)
    if name == "diverged":
        return solver, problem, solver.sampler("em", 9, sigma=1e30)
    if name == "nothing open":
        problem.given[::2] = True
    return solver, problem, solver.sampler("ddpm", 8, variance=0.9, soft_until=0.5)


@cache
def measured(name: str, shard: str | None = None, passes: int = 3, seed: int = 1) -> Report:
    solver, problem, sampler = case(name)
    part = problem if shard is None else part_of(problem, shard)
    report = evaluate(solver, part, sampler, passes, seed, batch=16)
    return replace(report, model="it", regime="some", command=f"letgo evaluate it --shard {shard}", shard=shard)


def parts(name: str, total: int, **options: Any) -> list[Report]:
    """As they come from their files."""
    reports = [measured(name, f"{i}/{total}", **options) for i in range(total)]
    return [Report.from_dict(json.loads(json.dumps(report.as_dict(), allow_nan=False))) for report in reports]


def facts(report: Report) -> dict[str, Any]:
    return {name: value for name, value in report.as_dict().items() if name not in APART}


@pytest.mark.slow
@pytest.mark.parametrize("total", [1, 2, 5])
@pytest.mark.parametrize("name", CASES)
def test_the_parts_of_a_measurement_make_the_whole_exactly(name: str, total: int) -> None:
    whole, joined = measured(name), Report.merge(parts(name, total)[::-1])
    assert facts(joined) == facts(whole)
    assert list(facts(joined)) == list(facts(whole))
    assert json.loads(json.dumps(joined.as_dict(), allow_nan=False)) == joined.as_dict()
    assert joined.shard is None


def test_the_cases_are_worth_merging() -> None:
    """So the test above cannot pass with scores that are all alike, or that could be averaged."""
    assert 0 < measured("clues").validity.value < measured("clues").pass_at_k.value
    assert measured("clues").chosen_at_k.more["k"] == 3
    found = [measured("from nothing", shard).uniqueness for shard in (None, *(f"{i}/5" for i in range(5)))]
    whole, *distinct = (round(each.value * each.n) for each in found)
    assert whole < sum(distinct)  # some boards were drawn in two parts
    assert measured("diverged").codeword_distance.as_dict()["value"] is None
    assert (measured("nothing open").violation_rate.n, measured("nothing open").count) == (11, 23)
    assert "chosen_at_k" not in measured("bits").as_dict()
    assert {"element_accuracy", "balanced_accuracy", "all_joined"} <= set(measured("graphs").as_dict())
    assert {"length", "length_at_k", "marked_share"} <= set(measured("mazes").as_dict())


def test_a_report_is_its_json_and_scores_are_attributes() -> None:
    whole = measured("clues")
    record = json.loads(json.dumps(whole.as_dict()))
    assert "outcomes" not in record
    assert "outcomes" in measured("clues", "0/2").as_dict()
    again = Report.from_dict(record)
    assert again.as_dict() == record
    assert again.validity.value == whole.validity.value == record["validity"]["value"]
    assert again.pass_at_k.interval95 == whole.pass_at_k.interval95
    with pytest.raises(AttributeError, match="a report has no 'lenght'; it has validity, "):
        _ = whole.lenght


def test_the_command_of_the_whole_is_that_of_a_part_without_its_own_words(tmp_path: Path) -> None:
    first, second = parts("clues", 2)
    said = "letgo evaluate it --shard=0/2 --rule ddpm --out 'part 0.json' --seed 0"
    assert Report.merge([replace(first, command=said), second]).command == "letgo evaluate it --rule ddpm --seed 0"
    with pytest.raises(LetgoError, match=r"nowhere\.json: no such file; check the path"):
        Report.read(tmp_path / "nowhere.json")


def test_times_and_calls_add_up_and_devices_are_listed() -> None:
    first, second = parts("clues", 2)
    joined = Report.merge([replace(first, seconds=1.25, device="one"), replace(second, seconds=2.5, device="two")])
    assert (joined.seconds, joined.device) == (3.75, "one, two")
    assert joined.calls == first.calls + second.calls == 23 * 3 * 8
    building = Report.merge([replace(first, building_seconds=1.5), second])
    assert building.building_seconds == 1.5


def test_a_score_that_one_part_lacks_is_left_out_of_the_whole() -> None:
    first, second = parts("graphs", 2)
    assert first.outcomes is not None
    less = {name: column for name, column in first.outcomes.columns.items() if name != "element_accuracy"}
    pair = [replace(first, outcomes=Outcomes(first.outcomes.number, less)), second]
    for ordered in (pair, pair[::-1]):
        merged = Report.merge(ordered).as_dict()
        assert "element_accuracy" not in merged
        assert merged["balanced_accuracy"] == measured("graphs").balanced_accuracy.as_dict()


def gap() -> list[Report]:
    """Two parts of a list with a third between them that is not there."""
    first, _, third, *_ = parts("clues", 5)
    return [replace(first, shard="0/2"), replace(third, shard="1/2")]


@pytest.mark.parametrize(
    ("pick", "says"),
    [
        (list, "no reports to merge"),
        (lambda: parts("clues", 5)[:4], "part 4/5 is missing; measure it with --shard 4/5"),
        (lambda: parts("clues", 5)[1:], "part 0/5 is missing"),
        (lambda: [*parts("clues", 2), parts("clues", 2)[1]], "name each part once"),
        (lambda: [parts("clues", 2)[0], parts("clues", 5)[1]], "not the parts of one whole"),
        (lambda: [measured("clues")], "without its outcomes cannot be merged"),
        (lambda: [parts("clues", 2)[0], measured("clues", "1/2", seed=2)], "the parts differ in seed: 1 and 2"),
        (lambda: [parts("clues", 2)[0], measured("clues", "1/2", passes=2)], "give all of them the same --passes"),
        (lambda: [parts("clues", 2)[0], parts("diverged", 2)[1]], "the parts differ in rule: 'ddpm' and 'em'"),
        (lambda: [replace(part, outcomes=None) for part in parts("clues", 2)], "without its outcomes cannot be merged"),
        (lambda: [replace(parts("clues", 2)[0], shard=f"{i}/2") for i in (0, 1)], "the parts share instances"),
        (gap, "leave some out"),
    ],
)
def test_what_is_not_the_parts_of_one_whole_is_refused(pick: Any, says: str) -> None:
    with pytest.raises(LetgoError, match=says) as refused:
        Report.merge(pick())
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "damage",
    [
        {"outcomes": {"number": [0], "validity": {"kind": "rate", "values": []}}},
        {"outcomes": {"number": [0], "validity": {"kind": "rate", "values": [[1], [0]]}}},
        {"outcomes": {"number": [0], "validity": {"kind": "unknown", "values": [[1]]}}},
        {"outcomes": {"number": [0, 1], "validity": {"kind": "rate", "values": [[1], [0, 1]]}}},
        {"outcomes": {"number": [0], "validity": {"kind": "rate", "values": [["half"]]}}},
        {"outcomes": {}},
        {"outcomes": 3},
        {"shard": "first"},
        {"shard": "1"},
        {"shard": 1},
    ],
)
def test_a_damaged_report_is_refused(damage: dict[str, Any]) -> None:
    with pytest.raises(LetgoError, match="not a report of `letgo evaluate`"):
        Report.from_dict({**measured("clues", "0/2").as_dict(), **damage})
    for nothing in ({}, [], None, 3):
        with pytest.raises(LetgoError, match="not a report of `letgo evaluate`"):
            Report.from_dict(nothing)


@pytest.mark.parametrize("shard", ["", "1", "2/2", "-1/2", "0/0", "0/24", "a/b", "0/2/3", "1.0/2", "0 /2"])
def test_a_part_that_there_is_not_is_refused(shard: str) -> None:
    with pytest.raises(LetgoError, match="expected I/N with I from 0 to N - 1"):
        part_of(case("clues")[1], shard)


@pytest.mark.fast
def test_rows_keep_what_was_not_measured_apart_from_what_diverged() -> None:
    column = Column.of("mean", torch.tensor([1.0, 0.1, float("nan"), float("inf")]))
    told = json.loads(json.dumps(column.as_dict(), allow_nan=False))
    assert told == {"kind": "mean", "values": [[1], [pytest.approx(0.1)], [None], ["diverged"]]}
    assert torch.equal(Column.from_dict(told).values.nan_to_num(-1), column.values.nan_to_num(-1))


@pytest.mark.fast
def test_equal_boards_have_equal_digests_that_a_double_holds() -> None:
    boards = torch.arange(16).repeat(3, 1) % 4
    boards[2, 5] = 3
    digests = [board_digest(board) for board in boards]
    assert digests[0] == digests[1] != digests[2]
    assert max(digests) < 2**48
