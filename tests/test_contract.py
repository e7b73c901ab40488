"""What holds for every task, source, codec, path, rule, network and objective that is registered, and for one of each
kind that a program of one's own would register. Whatever gets a name in a registry gets these tests."""

from __future__ import annotations

import json
import subprocess
import sys
from copy import deepcopy
from functools import partial
from pathlib import Path as File

import numpy as np
import pytest
import registered
import torch
from refusals import fault
from registered import CODEC_OF, FAMILY_OF, FILES, NETWORK_OF, SMALL, TASK_OF, names
from torch import Tensor, nn
from torch.testing import assert_close

from letgo import tasks
from letgo.codecs import CODECS, Codec
from letgo.config import Config
from letgo.data import load_problems
from letgo.data.make import save
from letgo.data.source import Source, source_of
from letgo.engines.cpu import Cpu
from letgo.engines.graph import Graph
from letgo.engines.plain import Plain
from letgo.kernels import Transition
from letgo.models import NETWORKS
from letgo.objectives import OBJECTIVES, Batch, Objective, averaged
from letgo.paths import PATHS, Path
from letgo.pinning import Clues
from letgo.registry import choose
from letgo.rng import PIN, START, Noise
from letgo.samplers import RULES, Sampler, fitting
from letgo.sampling import Snapshot, Walk, trajectory
from letgo.tasks import Problem, Task
from letgo.training.trainer import plain_network

CPU = torch.device("cpu")
COUNT = 6
each_task = pytest.mark.parametrize("task_name", names(tasks.TASKS))
each_codec = pytest.mark.parametrize("codec_name", names(CODECS))
each_path = pytest.mark.parametrize("path_name", names(PATHS))
each_rule = pytest.mark.parametrize("rule_name", names(RULES))
each_network = pytest.mark.parametrize("network_name", names(NETWORKS))
each_objective = pytest.mark.parametrize("objective_name", names(OBJECTIVES))


@pytest.fixture(autouse=True)
def outside(monkeypatch: pytest.MonkeyPatch) -> None:
    registered.register_outside(monkeypatch.setitem)


# Tasks and the sources of their instances.


@pytest.fixture
def task(task_name: str) -> Task:
    return registered.small_task(task_name)


@pytest.fixture
def source(task: Task, tmp_path: File) -> Source:
    if task.name not in FILES:
        return source_of(task)
    (tmp_path / "rows.txt").write_text(FILES[task.name])
    return source_of(task, tmp_path / "rows.txt")


@pytest.fixture
def problem(source: Source) -> Problem:
    return source.draw("test", None, COUNT, 0)


@pytest.fixture
def training(source: Source) -> Problem:
    """Training instances; where a task has them, some have clues."""
    problem = source.training(40, 0)
    return problem if problem.given.any() else Problem(
        problem.solution, source.task.masks(problem.solution, "train", np.random.default_rng(0)), problem.context
    )  # fmt: skip


def sides(task: Task, problem: Problem) -> Task:
    """The task at the size of the instances: graphs may have any number of nodes."""
    return task if problem.solution.shape[1] == task.cells else task.sized(round(problem.solution.shape[1] ** 0.5))


@each_task
@pytest.mark.fast
def test_drawn_instances_are_valid_and_of_the_stated_size(task: Task, source: Source) -> None:
    for regime in (None, source.usual, *source.regimes, "train"):
        drawn = source.draw("test", regime, COUNT, 0)
        of_size = sides(task, drawn)
        assert drawn.solution.shape == drawn.given.shape == (COUNT, of_size.cells)
        assert drawn.solution.min() >= 0
        assert drawn.solution.max() < task.symbols
        assert of_size.validate(drawn.solution, drawn).tolist() == [True] * COUNT
        assert not of_size.violations(drawn.solution, drawn).any()
        assert (drawn.context is None) == (not task.context)


@each_task
@pytest.mark.fast
def test_instances_are_numbered_and_decided_by_seed_and_split(source: Source) -> None:
    def draw(split: str, seed: int) -> Problem:
        return source.draw(split, "train", 5, seed)

    first, again = draw("test", 0), draw("test", 0)
    assert first.number is not None
    assert first.number.tolist() == list(range(5))
    assert torch.equal(first.solution, again.solution)
    assert torch.equal(first.given, again.given)
    for other in (draw("test", 1), draw("valid", 0), source.training(5, 0)[:5]):
        same = first.solution.shape == other.solution.shape and torch.equal(first.solution, other.solution)
        assert not (same and torch.equal(first.given, other.given))


@each_task
@pytest.mark.fast
def test_training_draws_as_many_as_it_is_asked_for_or_all_of_a_file(source: Source) -> None:
    problem, again = source.training(30, 3), source.training(30, 3)
    assert len(problem) == (30 if source.data is None else len(source.split("train")))
    assert torch.equal(problem.solution, again.solution)
    assert source.task.validate(problem.solution, problem).all()
    chosen = source.validation(5, 0)
    assert source.task.validate(chosen.solution, chosen).all()


@each_task
@pytest.mark.fast
def test_a_source_says_what_its_instances_are_and_refuses_what_it_does_not_have(source: Source) -> None:
    assert json.loads(json.dumps(source.identity("test")))
    assert source.usual
    assert "count must be at least 1, got 0" in fault(source.draw, "test", None, 0, 0)
    refusal = fault(source.draw, "test", "nowhere", 1, 0)
    assert all(regime in refusal for regime in source.regimes)


@each_task
@pytest.mark.fast
def test_what_is_written_is_read_back(task: Task, training: Problem) -> None:
    boards, clues = task.format(training.solution, training), task.format_clues(training)
    assert len(boards) == len(clues) == len(training)
    assert all("\n" not in text for text in (*boards, *clues))
    for i, text in enumerate(clues):
        puzzle = task.parse(text + "\n" if task.context else text)
        one = training[i : i + 1]
        assert torch.equal(puzzle.given, one.given)
        assert torch.equal(puzzle.solution[one.given], one.solution[one.given])
        assert task.validate(one.solution, puzzle).all()
        if one.context is not None:
            assert puzzle.context is not None
            assert torch.equal(puzzle.context, one.context)
        if not task.context:  # a context is not part of an answer's text
            assert torch.equal(task.parse(boards[i]).solution, one.solution)


@each_task
@pytest.mark.fast
def test_text_that_is_no_instance_is_refused_in_one_line(task: Task, training: Problem) -> None:
    text = task.format_clues(training)[0]
    for wrong in ("", text + text[:3] + "!", "!" * len(text), text[:-1]):
        assert fault(task.parse, wrong)


@each_task
@pytest.mark.fast
def test_a_changed_clue_and_a_code_that_is_no_symbol_are_violations(task: Task, training: Problem) -> None:
    boards = training.solution.clone()
    cell = training.given.int().argmax(1)
    rows = torch.arange(len(boards))[training.given.any(1)]
    boards[rows, cell[rows]] = (boards[rows, cell[rows]] + 1) % task.symbols
    assert task.violations(boards, training)[rows, cell[rows]].all()
    for code in (-1, task.symbols, task.symbols + 7):
        boards = training.solution.clone()
        boards[:, -1] = code
        assert task.violations(boards, training)[:, -1].all()
        assert not task.validate(boards, training).any()


@each_task
@pytest.mark.fast
def test_a_verdict_does_not_depend_on_the_other_boards(task: Task, training: Problem) -> None:
    boards = torch.from_numpy(np.random.default_rng(0).integers(task.symbols, size=training.solution.shape))
    boards[::2] = training.solution[::2]
    together = task.violations(boards, training)
    apart = [task.violations(boards[i : i + 1], training[i : i + 1]) for i in range(len(boards))]
    assert torch.equal(together, torch.cat(apart))
    assert torch.equal(task.validate(boards, training), ~together.any(1))
    order = torch.arange(len(boards)).flip(0)
    assert torch.equal(task.violations(boards[order], training[order]), together[order])


@each_task
@pytest.mark.fast
def test_no_instances_and_parts_of_instances_are_instances_too(task: Task, training: Problem) -> None:
    assert task.violations(training.solution[:0], training[:0]).shape == (0, task.cells)
    assert task.format(training.solution[:0], training[:0]) == []
    if task.name not in FILES:
        none = source_of(task).generate("train", "train", 0, np.random.default_rng(0))
        assert none.solution.shape == (0, task.cells)
    again = Problem.cat([training[:3], training[3:]])
    assert torch.equal(again.solution, training.solution)
    assert torch.equal(again.given, training.given)


@each_task
@pytest.mark.fast
def test_the_networks_positions_and_the_pages_look_fit_the_board(task: Task, source: Source, problem: Problem) -> None:
    positions = task.positions()
    assert positions.shape[1] == task.cells
    assert (positions.min(), positions.dtype) == (0, torch.int64)
    for look in (task.look, source.look):
        assert look.title
        assert len(look.letters) == task.symbols
        assert look.rows * look.columns in (task.cells, task.cells * task.symbols)  # queens: a square for each column
        if look.example is not None:
            task.parse(look.example)
    one = problem[:1]
    of_size = sides(task, one)
    assert of_size.draw(one.solution, one)


@each_task
@pytest.mark.fast
def test_its_own_scores_have_a_row_for_each_instance(task: Task, training: Problem) -> None:
    for column in task.outcomes([training.solution, training.solution.flip(0)], training).values():
        assert len(column.values) == len(training)
        assert column.values.isfinite().all()
    assert json.dumps(task.facts(training, 2)) is not None


@each_task
@pytest.mark.fast
def test_images_under_symmetries_are_valid_and_hold_the_instance(task: Task, training: Problem) -> None:
    if type(task).images is Task.images:
        assert "leave --symmetries out" in fault(task.images, training)
        return
    images = task.images(training[:4])
    assert len(images) % 4 == 0
    assert task.validate(images.solution, images).all()
    assert (images.solution[:, None] == training.solution[:4]).all(-1).any(0).all()


@each_task
@pytest.mark.fast
def test_it_is_rebuilt_from_json_and_has_other_sizes_or_says_that_it_has_none(task: Task, task_name: str) -> None:
    config = Config("run", task_name, SMALL.get(task_name, {}))
    again = Config.from_dict(json.loads(json.dumps(config.as_dict()))).build_task()
    assert (type(again), again.name, again.cells, again.symbols) == (type(task), task.name, task.cells, task.symbols)
    if type(task).sized is not Task.sized or "size" in SMALL.get(task_name, {}):
        assert task.sized(9).cells != task.cells
    else:
        assert "one size only; leave --size out" in fault(task.sized, 9)
    assert task_name in fault(tasks.get, task_name + "x")  # the nearest name


@pytest.mark.parametrize("task_name", [name for name in names(tasks.TASKS) if name not in FILES])
@pytest.mark.parametrize("kind", ["npz", "txt"])
@pytest.mark.fast
def test_files_give_back_what_was_put_in(task: Task, training: Problem, kind: str, tmp_path: File) -> None:
    save(tmp_path / f"a.{kind}", training, task, {"task": task.name, "size": None})
    read = load_problems(tmp_path / f"a.{kind}", task)
    assert torch.equal(read.given, training.given)
    assert torch.equal(read.solution[read.given], training.solution[read.given])
    assert task.validate(training.solution, read).all()
    if kind == "npz":
        assert torch.equal(read.solution, training.solution)


# Codecs.


def every_symbol(symbols: int) -> Tensor:
    board = torch.arange(symbols)
    return torch.stack([board, board.flip(0)])


@each_codec
@pytest.mark.parametrize("symbols", [2, 9, 14])
@pytest.mark.fast
def test_every_symbol_comes_back(codec_name: str, symbols: int) -> None:
    codec, boards = registered.build_codec(codec_name, symbols), every_symbol(symbols)
    x = codec.encode(boards)
    assert isinstance(codec, Codec)
    assert (x.shape, x.dtype, x.device) == ((2, symbols, codec.dim), torch.float32, boards.device)
    assert torch.equal(codec.decode(x), boards)
    assert codec.decode(x.double()).dtype == torch.int64
    assert torch.equal(codec.encode(boards), x)  # the same state every time
    assert torch.equal(registered.build_codec(codec_name, symbols).encode(boards[1:]), x[1:])


@each_codec
@pytest.mark.parametrize("symbols", [2, 9, 14])
@pytest.mark.fast
def test_noise_below_half_the_least_distance_changes_nothing(codec_name: str, symbols: int) -> None:
    """In 200 random directions per codeword; farther than that no decoder can promise anything."""
    codec, boards = registered.build_codec(codec_name, symbols), torch.arange(symbols).expand(200, symbols)
    x = codec.encode(boards)
    apart = torch.cdist(x[0], x[0]) + torch.eye(symbols) * 1e9
    direction = torch.randn(x.shape, generator=torch.Generator().manual_seed(0))
    moved = x + 0.499 * apart.min() * nn.functional.normalize(direction, dim=-1)
    assert torch.equal(codec.decode(moved), boards)


@each_codec
@pytest.mark.fast
def test_a_codec_says_whether_its_states_are_probabilities_of_the_symbols(codec_name: str) -> None:
    codec = registered.build_codec(codec_name, 5)
    x = codec.encode(every_symbol(5))
    assert codec.one_hot == bool(codec.dim == 5 and (x >= 0).all() and (x.sum(-1) == 1).all())


@each_codec
@pytest.mark.fast
def test_any_state_is_decoded_to_a_whole_number_from_0_on(codec_name: str) -> None:
    codec = registered.build_codec(codec_name, 5)
    x = torch.randn(50, 3, codec.dim, generator=torch.Generator().manual_seed(0))
    assert codec.decode(x).shape == (50, 3)
    assert codec.decode(x).min() >= 0


TRACE = """
import registered, torch
from letgo.codecs import CODECS, encoded

torch.set_num_threads(1)
registered.register_outside(lambda table, name, entry: table.update({name: entry}))
boards, instance = torch.arange(4).repeat(3, 2), torch.arange(3)
for name in CODECS:
    codec = registered.build_codec(name, 4)
    there = lambda boards: encoded(codec, boards, lambda: instance)
    x = there(boards)  # a fixed table is on its device before anything is captured
    both = lambda boards: (there(boards), codec.decode(there(boards)))
    state, symbols = torch.compile(both, dynamic=False, fullgraph=True, backend="aot_eager")(boards)
    assert torch.equal(state, x) and torch.equal(symbols, codec.decode(x)), name
    print(name)
"""


@pytest.mark.slow
def test_every_codec_can_be_captured() -> None:
    """One graph without a look at a number from the host; apart, since checked code is not traced."""
    command, here = [sys.executable, "-c", TRACE], File(__file__).parent
    done = subprocess.run(command, cwd=here, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [*CODECS]


# Paths.


def state_on(path: Path, count: int = 5, symbols: int = 4) -> tuple[Tensor, Codec]:
    codec = registered.build_codec(CODEC_OF.get(path.family, "one-hot"), symbols)
    boards = torch.randint(symbols, (count, 7), generator=torch.Generator().manual_seed(1))
    return codec.encode(boards), codec


@each_path
@pytest.mark.fast
def test_data_is_exact_at_time_0_and_time_1_is_the_start(path_name: str) -> None:
    path = registered.build_path(path_name)
    (x0, _), noise = state_on(path), torch.randn(5, 7, 5, generator=torch.Generator().manual_seed(0))
    noise = noise[..., : x0.shape[-1]]
    zero, one = torch.zeros(5, 1, 1), torch.ones(5, 1, 1)
    assert isinstance(path, Path)
    assert torch.equal(path.sample(x0, zero, noise), x0)
    assert torch.equal(path.sample(x0, one, noise), path.start(x0, lambda purpose: noise))
    assert torch.equal(path.start(x0, lambda purpose: noise), path.start(x0.flip(0), lambda purpose: noise))


@each_path
@pytest.mark.fast
def test_states_are_finite_at_every_time_and_do_not_depend_on_the_batch(path_name: str) -> None:
    path = registered.build_path(path_name)
    x0, _ = state_on(path, 21)
    noise = torch.randn(x0.shape, generator=torch.Generator().manual_seed(0))
    t = torch.linspace(0, 1, 21).view(-1, 1, 1)
    x_t = path.sample(x0, t, noise)
    assert (x_t.shape, x_t.dtype) == (x0.shape, x0.dtype)
    assert x_t.isfinite().all()
    assert path.sample(x0.double(), t.double(), noise.double()).isfinite().all()
    assert torch.equal(path.sample(x0[4:9], t[4:9], noise[4:9]), x_t[4:9])
    distance = (x_t - x0).square().mean((1, 2))  # noisier on the whole, and not at once
    assert distance[:7].mean() < distance[14:].mean()


@each_path
@pytest.mark.fast
def test_some_rule_fits_it(path_name: str) -> None:
    path = registered.build_path(path_name)
    assert any(kind.fits(path, state_on(path)[1]) for kind in RULES.values())


# Rules.

SHAPE = (7, 5)


class Curve(nn.Module):
    """A network of correctly rounded operations only, so that it cannot depend on the batch; keeps its inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[Tensor, float]] = []

    def forward(self, x_t: Tensor, t: Tensor, context: Tensor | None = None) -> Tensor:
        self.seen.append((x_t.clone(), float(t.flatten()[0])))
        y = 3 * x_t.roll(1, 1) - 2 * t
        return y / (1 + y.abs())


class Remembering(Curve):
    remembers = True

    def forward(
        self, x_t: Tensor, t: Tensor, context: Tensor | None = None, memory: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        memory = torch.zeros_like(x_t) if memory is None else memory
        return super().forward(x_t + memory, t), memory / 2 + x_t.clamp(-1, 1)


@pytest.fixture(params=[Curve, Remembering])
def network(request: pytest.FixtureRequest) -> nn.Module:
    return request.param()


def clues_on(path: Path, count: int, soft_until: float = float("inf")) -> Clues:
    x0, _ = state_on(path, count)
    return Clues(x0, torch.rand(x0.shape[:2], generator=torch.Generator().manual_seed(0)) < 0.3, soft_until)


def walk(rule_name: str, path: Path, clues: Clues, noise: Noise, steps: int, *rest, by: nn.Module | None = None):
    setting = registered.sampler(rule_name, steps)
    denoise = Plain(by or Curve(), path, CPU, "fp32").denoise(None)
    return trajectory(denoise, path, setting.build(), setting.times(), clues, noise, *rest)


def last(snapshots) -> Tensor:
    *_, final = snapshots
    return final.x


def paths_of(rule_name: str) -> list[Path]:
    paths = registered.paths_of(RULES[rule_name].family)
    assert paths
    return paths


@each_rule
def test_a_rule_ends_in_finite_states_that_keep_the_clues(rule_name: str) -> None:
    for path in paths_of(rule_name):
        for soft_until in (float("inf"), 0.5):
            clues = clues_on(path, 4, soft_until)
            for steps in (1, 2, 7):
                snapshots = list(walk(rule_name, path, clues, Noise.first(0, 4), steps))
                assert [snapshot.step for snapshot in snapshots] == list(range(1, steps + 1))
                assert snapshots[-1].t == 0
                assert all(snapshot.x.isfinite().all() for snapshot in snapshots)
                assert torch.equal(snapshots[-1].x, clues.pin(snapshots[-1].x))


def pinned(clues: Clues, denoise: nn.Module, x: Tensor, t: Tensor) -> Tensor:
    return denoise(clues.pin(x), t)


@each_rule
@pytest.mark.parametrize("soft_until", [float("inf"), 0.5])
def test_every_turn_is_algorithm_1(rule_name: str, soft_until: float) -> None:
    """Propose, update, pin, with the noise that belongs to the step; each turn replayed by hand, bit for bit."""
    rule, times = registered.sampler(rule_name, 1).build(), torch.tensor([1.0, 0.9, 0.55, 0.5, 0.2, 0.0])
    for path in paths_of(rule_name):
        clues, noise, denoise = clues_on(path, 3, soft_until), Noise.first(4, 3), Curve()
        shape = tuple(clues.values.shape[1:])
        x_1 = path.start(clues.values, lambda purpose, n=noise, s=shape: n.normal(0, START, *s))
        x_t = clues.pin_at(x_1, torch.ones(1, 1, 1), path, noise.normal(0, PIN, *shape))
        for i, snapshot in enumerate(trajectory(denoise, path, rule, times, clues, noise), start=1):
            t, s = times[i - 1].view(1, 1, 1), times[i].view(1, 1, 1)
            assert torch.equal(snapshot.x0_hat, denoise(x_t, t))
            step = Transition(path, partial(pinned, clues, denoise), x_t, snapshot.x0_hat, t, s, clues.given)
            x_s = rule(step).sample(lambda purpose, i=i, n=noise, s=shape: n.normal(i, purpose, *s))
            x_t = clues.pin_at(x_s, s, path, noise.normal(i, PIN, *shape))
            assert torch.equal(snapshot.x, x_t)


@each_rule
@pytest.mark.fast
def test_the_network_is_called_as_often_as_the_table_says_and_sees_pinned_states_alone(rule_name: str) -> None:
    for path in paths_of(rule_name):
        clues, denoise, sampler = clues_on(path, 3), Curve(), registered.sampler(rule_name, 5)
        list(walk(rule_name, path, clues, Noise.first(0, 3), 5, by=denoise))
        assert len(denoise.seen) == sampler.calls == 5 * RULES[rule_name].calls
        assert all(torch.equal(x, clues.pin(x)) for x, _ in denoise.seen)
        assert sorted((t for _, t in denoise.seen), reverse=True) == [t for _, t in denoise.seen]


@each_rule
@pytest.mark.fast
def test_a_board_does_not_depend_on_its_company_and_a_walk_goes_on_with_fewer(
    rule_name: str, network: nn.Module
) -> None:
    path, rows = paths_of(rule_name)[0], torch.tensor([4, 1])
    clues, noise = clues_on(path, 5, soft_until=0.5), Noise.first(3, 5)
    whole = list(walk(rule_name, path, clues, noise, 5, by=network))
    alone = list(walk(rule_name, path, clues[rows], noise[rows], 5, by=network))
    rest = list(walk(rule_name, path, clues[rows], noise[rows], 5, whole[2].walk[rows], by=network))
    assert [(s.step, s.t) for s in rest] == [(s.step, s.t) for s in whole[3:]]
    for ours in (alone[3:], rest):
        for mine, theirs in zip(ours, whole[3:], strict=True):
            assert torch.equal(mine.x, theirs.x[rows])
            assert torch.equal(mine.x0_hat, theirs.x0_hat[rows])


@each_rule
@pytest.mark.fast
def test_the_same_seed_gives_the_same_bits_and_another_seed_or_try_other_states(rule_name: str) -> None:
    path, noise = paths_of(rule_name)[0], Noise.first(0, 3)

    def run(noise: Noise) -> list[Snapshot]:
        return list(walk(rule_name, path, clues_on(path, 3), noise, 4))

    first = run(noise)
    assert all(torch.equal(a.x, b.x) for a, b in zip(first, run(noise), strict=True))
    for other in (Noise(1, noise.instance, noise.attempt), Noise(0, noise.instance, noise.attempt + 1)):
        assert not torch.equal(first[1].x, run(other)[1].x)


@pytest.mark.slow
@each_rule
def test_the_captured_loop_is_the_plain_one_and_goes_on_with_fewer_boards(rule_name: str, network: nn.Module) -> None:
    path, sampler = paths_of(rule_name)[0], registered.sampler(rule_name, 4)
    loop = Graph(network, path, CPU, "fp32", compiled=False)
    for seed, soft_until in ((0, float("inf")), (1, 0.5)):
        clues, noise = clues_on(path, 3, soft_until), Noise.first(seed, 3)
        plain = list(walk(rule_name, path, clues, noise, 4, by=network))
        for ours, theirs in zip(loop.walk(sampler, clues, noise), plain, strict=True):
            assert torch.equal(ours.x, theirs.x)
            assert torch.equal(ours.x0_hat, theirs.x0_hat)
        assert torch.equal(loop.finish(sampler, clues, noise), plain[-1].x)
        rows = torch.tensor([2, 0])
        rest = loop.walk(sampler, clues[rows], noise[rows], None, plain[1].walk[rows])
        for ours, theirs in zip(rest, plain[2:], strict=True):
            assert torch.equal(ours.x, theirs.x[rows])


@each_rule
def test_boards_of_one_batch_may_be_at_different_steps(rule_name: str, network: nn.Module) -> None:
    path, sampler, done = paths_of(rule_name)[0], registered.sampler(rule_name, 4), torch.tensor([3, 1, 2])
    clues, noise = clues_on(path, 3, 0.5), Noise.first(1, 3)
    plain = list(walk(rule_name, path, clues, noise, 4, by=network))
    rows = list(enumerate(done.tolist()))
    before, after = (torch.stack([plain[n + i].x[row] for row, n in rows]) for i in (-1, 0))
    memories = [plain[n - 1].walk[row : row + 1].memory for row, n in rows]
    memory = None if memories[0] is None else torch.cat([part for part in memories if part is not None])
    for engine in (Graph(network, path, CPU, "fp32", compiled=False), Cpu(network, path, CPU, "fp32")):
        slots = engine.slots(sampler)
        slots.seat(clues, noise, None, Walk(before, memory, done))
        slots.step()
        torch.testing.assert_close(slots.walk.x, after, atol=1e-5, rtol=1e-4)


@each_rule
@pytest.mark.fast
def test_a_model_that_does_not_fit_is_refused_by_the_names_of_the_rules_that_do(rule_name: str) -> None:
    sampler, kind = registered.sampler(rule_name, 3), RULES[rule_name]
    for path in map(registered.build_path, PATHS):
        for codec in (registered.build_codec(name, 4) for name in CODECS):
            if kind.fits(path, codec):
                sampler.check(path, codec)
                continue
            others = fitting(path, codec)
            assert sorted(others) == sorted(name for name, other in RULES.items() if other.fits(path, codec))
            message = fault(sampler.check, path, codec)
            assert message.startswith(f"rule '{rule_name}' does not fit a model with {type(path).__name__} and")
            assert message.endswith(f"choose {'one of ' + ', '.join(others) if others else 'another codec'}")


@each_rule
@pytest.mark.fast
def test_settings_that_are_missing_or_not_taken_are_refused(rule_name: str) -> None:
    kind = RULES[rule_name]
    if kind.takes:
        assert f"rule '{rule_name}' needs --sigma" in fault(Sampler, rule_name)
    for name in {"sigma", "tau_start"} - set(kind.takes):
        settings = {taken: registered.SETTINGS[taken] for taken in (*kind.takes, name)}
        assert f"'{rule_name}' takes no {name}" in fault(lambda s=settings: Sampler(rule_name, **s))
    if kind.tempers:
        assert Sampler(rule_name, variance=2.0, **{taken: registered.SETTINGS[taken] for taken in kind.takes}).build()
    else:
        assert "has no variance" in fault(lambda: Sampler(rule_name, variance=2.0))


# Networks.


@pytest.fixture
def problem_of(network_name: str) -> tuple[Task, Problem]:
    task = registered.small_task(TASK_OF.get(network_name, "latin"))
    return task, source_of(task).training(4, 0)


@pytest.fixture
def built(network_name: str, problem_of: tuple[Task, Problem]) -> nn.Module:
    return registered.build_network(network_name, 5, problem_of[0])


def inputs(problem: Problem) -> tuple[Tensor, Tensor, Tensor | None]:
    rng = torch.Generator().manual_seed(0)
    boards, cells = problem.solution.shape
    x_t, t = torch.randn(boards, cells, 5, generator=rng), torch.rand(boards, 1, 1, generator=rng)
    x_t[:, 0] = torch.eye(5)[0]  # a clue, pinned
    return x_t, t, problem.context


@each_network
@pytest.mark.fast
def test_a_network_answers_each_board_by_itself(built: nn.Module, problem_of: tuple[Task, Problem]) -> None:
    x_t, t, context = inputs(problem_of[1])
    with torch.no_grad():
        x0_hat = built.eval()(x_t, t, context)
        alone = built(x_t[2:3], t[2:3], None if context is None else context[2:3])
    assert (x0_hat.shape, x0_hat.dtype) == (x_t.shape, x_t.dtype)
    assert x0_hat.isfinite().all()
    assert_close(alone, x0_hat[2:3])
    assert not torch.equal(x0_hat[0], x0_hat[1])


@each_network
@pytest.mark.fast
def test_time_state_and_context_all_matter(built: nn.Module, problem_of: tuple[Task, Problem]) -> None:
    x_t, t, context = inputs(problem_of[1])
    with torch.no_grad():
        x0_hat = built.eval()(x_t, t, context)
        assert torch.equal(built(x_t, t, context), x0_hat)
        same = torch.allclose(built(x_t, 1 - t, context), x0_hat)
        assert same == getattr(built, "timeless", False)
        moved = x_t.clone()
        moved[:, 1] += 1  # one cell is seen by the others
        assert not torch.equal(built(moved, t, context)[:, 2:], x0_hat[:, 2:])
        if context is not None:
            assert not torch.allclose(built(x_t, t, 1 - context), x0_hat)


@each_network
@pytest.mark.fast
def test_gradient_reaches_every_weight(built: nn.Module, problem_of: tuple[Task, Problem]) -> None:
    built(*inputs(problem_of[1])).square().sum().backward()
    for name, weight in built.named_parameters():
        assert weight.grad is not None, name
        assert weight.grad.isfinite().all(), name
        assert weight.grad.any(), name


@each_network
@pytest.mark.fast
def test_weights_come_back_from_a_state_dict(
    built: nn.Module, network_name: str, problem_of: tuple[Task, Problem]
) -> None:
    task, problem = problem_of
    again = registered.build_network(network_name, 5, task)
    for weight in again.parameters():
        nn.init.zeros_(weight)
    again.load_state_dict(built.state_dict())
    with torch.no_grad():
        assert torch.equal(again.eval()(*inputs(problem)), built.eval()(*inputs(problem)))


@each_network
@pytest.mark.fast
def test_several_models_in_one_call_are_each_model_alone(
    built: nn.Module, network_name: str, problem_of: tuple[Task, Problem]
) -> None:
    """Board i belongs to model i % 2, as in training."""
    x_t, t, context = inputs(problem_of[1])
    shapes, call = plain_network(built.eval())
    weights = torch.cat([weight.detach().flatten() for weight in built.parameters()])
    rows = torch.stack([weights, weights.flip(0) / 3])
    with torch.no_grad():
        together = call(rows, x_t, t, context)
        for model in (0, 1):
            part = None if context is None else context[model::2]
            assert_close(together[model::2], call(rows[model : model + 1], x_t[model::2], t[model::2], part))
    assert sum(shape.numel() for shape in shapes.values()) == rows.shape[1]


# Objectives.


@pytest.fixture
def lesson(objective_name: str) -> tuple[Objective, Path, Batch, nn.Module]:
    family = FAMILY_OF.get(objective_name, "gaussian")
    path, task = registered.paths_of(family)[0], registered.small_task("latin")
    objective = choose("objective", OBJECTIVES, objective_name)(0.5, False)
    codec = registered.build_codec(CODEC_OF.get(family, "one-hot"), task.symbols)
    problem = source_of(task).training(8, 0)
    x0 = codec.encode(problem.solution)
    batch = Batch(problem.solution, x0, Clues(x0, problem.given))
    return (
        objective,
        path,
        batch,
        registered.build_network(
            registered.NETWORK_FOR.get(objective_name) or NETWORK_OF.get(family, "transformer"), codec.dim, task
        ),
    )


@each_objective
@pytest.mark.fast
def test_an_objective_has_a_finite_loss_and_gradient_for_every_weight(lesson) -> None:
    objective, path, batch, network = lesson
    torch.manual_seed(0)
    terms = objective(network, path, batch)
    assert isinstance(objective, Objective)
    assert terms.keys() == objective.weights.keys()
    assert all(term.isfinite().all() and 0 < len(term) <= len(batch) for term in terms.values())
    averages = averaged(terms, objective.weights)
    loss = averages["loss"]
    expected = sum(objective.weights[name] * float(term.detach().mean()) for name, term in terms.items())
    assert loss.tolist() == pytest.approx([expected])
    assert expected > 0
    loss.sum().backward()
    assert all(weight.grad is not None and weight.grad.any() for weight in network.parameters())


@each_objective
@pytest.mark.fast
def test_it_is_decided_by_the_seed_and_a_perfect_network_has_no_loss(lesson) -> None:
    objective, path, batch, network = lesson

    def loss(network) -> float:
        torch.manual_seed(5)
        fresh = deepcopy(objective)  # one may keep trajectories from call to call
        with torch.no_grad():
            return float(averaged(fresh(network, path, batch), objective.weights)["loss"])

    assert loss(network.eval()) == loss(network)

    def perfect(x_t, t, context, every_turn=False, memory=None):
        x0 = torch.cat([batch.x0, batch.x0])[: len(x_t)]
        return (1e4 * x0)[:, None] if every_turn else x0

    assert loss(perfect) == pytest.approx(0)


@each_objective
@pytest.mark.fast
def test_models_that_share_a_batch_have_the_loss_that_each_has_alone(lesson) -> None:
    """With the same draws: each model's boards are every second one."""
    objective, path, batch, network = lesson
    both = Batch(batch.symbols, batch.x0, batch.clues, models=2)
    torch.manual_seed(5)
    terms = objective(network.eval(), path, both)
    means = averaged(terms, objective.weights, models=2)
    for model in (0, 1):
        part = {name: term[model::2] for name, term in terms.items()}
        assert_close(means["loss"][model], averaged(part, objective.weights)["loss"][0])
