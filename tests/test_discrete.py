"""Absorbing diffusion against the exact posterior of the 288 boards: no network, so every rate has a closed form."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from scipy import stats
from torch import Tensor, nn

import letgo
from letgo.cli import main
from letgo.codecs import OneHot
from letgo.config import Config
from letgo.discrete import (
    Absorbing,
    Confidence,
    ExactUnmasker,
    Masked,
    MaskedCrossEntropy,
    masked_belief,
    remdm,
    uniform,
)
from letgo.discrete import masked_cells as masked
from letgo.engines.graph import Graph
from letgo.errors import LetgoError
from letgo.kernels import Transition
from letgo.objectives import Batch
from letgo.pinning import Clues
from letgo.presets import PRESETS
from letgo.rng import DRAW, KERNEL, Noise
from letgo.samplers import Sampler
from letgo.sampling import Snapshot, trajectory

CODEC, PATH = Masked(4), Absorbing()
DECODERS = ("ancestral", "confidence", "remask", "remdm")


def puzzles(boards: Tensor, count: int, clues: int, seed: int = 0) -> Clues:
    """So many clues of random boards."""
    rng = torch.Generator().manual_seed(seed)
    solution = boards[torch.randint(len(boards), (count,), generator=rng)]
    return Clues(CODEC.encode(solution), torch.rand(count, 16, generator=rng).argsort(1).argsort(1) < clues)


def walk(boards: Tensor, rule: str, steps: int, clues: Clues, seed: int = 0) -> list[Snapshot]:
    noise, sampler = Noise.first(seed, len(clues.values)), Sampler(rule, steps)
    return list(trajectory(ExactUnmasker(boards, 4), PATH, sampler.build(), sampler.times(), clues, noise))


def numbers(boards: Tensor, answers: Tensor) -> Tensor:
    """Each answer's place in the list of all boards, -1 where it is none of them."""
    same = (answers[:, None] == boards).all(-1)
    return torch.where(same.any(1), same.int().argmax(1), -1)


@pytest.mark.fast
def test_the_share_of_masked_cells_is_the_time(mini_boards: Tensor) -> None:
    """16 * 2880 cells at each time, five standard deviations; fixed seed. Open cells keep their symbols."""
    x0 = CODEC.encode(mini_boards.repeat(10, 1))
    noise = torch.randn(x0.shape, generator=torch.Generator().manual_seed(0))
    for time in (0.0, 0.05, 0.3, 0.8, 1.0):
        x_t = PATH.sample(x0, torch.full((1, 1, 1), time), noise)
        hidden = masked(x_t)
        assert abs(hidden.float().mean() - time) <= 5 * (time * (1 - time) / hidden.numel()) ** 0.5
        assert torch.equal(x_t[~hidden], x0[~hidden])
        assert (x_t.sum(-1) == 1).all()


@pytest.mark.fast
def test_the_exact_posterior_is_the_share_of_agreeing_boards(mini_boards: Tensor) -> None:
    clues = puzzles(mini_boards, 20, 4)
    x_t = clues.pin(PATH.start(clues.values, lambda purpose: clues.values))
    chances = ExactUnmasker(mini_boards, 4)(x_t, torch.ones(1, 1, 1))
    for board, given, chance in zip(CODEC.decode(clues.values), clues.given, chances, strict=True):
        agreeing = mini_boards[((mini_boards == board) | ~given).all(1)]
        expected = torch.stack([(agreeing == symbol).float().mean(0) for symbol in range(4)], -1)
        torch.testing.assert_close(chance[:, :4], expected)
        assert not chance[:, 4].any()


@pytest.mark.parametrize("rule", ["ancestral", "remdm"])
def test_cells_open_at_the_rate_of_the_path(mini_boards: Tensor, rule: str) -> None:
    """At every time of its own grid the share of masked cells is t again: five standard deviations each."""
    nothing = Clues.none(torch.zeros(600, 16, 5))
    for snapshot in walk(mini_boards, rule, 8, nothing):
        share, t = float(masked(snapshot.x).float().mean()), snapshot.t
        assert abs(share - t) <= 5 * (t * (1 - t) / (600 * 16)) ** 0.5


def test_ancestral_sampling_in_small_steps_is_uniform_over_all_288(mini_boards: Tensor) -> None:
    """One cell at a time the law is the data's own. In 120 steps 16 cells rarely open two at once, where symbols that
    were drawn apart may clash: some boards. The chi-square of the others fails for a new seed with odds of 1e-4."""
    nothing = Clues.none(torch.zeros(864, 16, 5))
    found = numbers(mini_boards, CODEC.decode(walk(mini_boards, "ancestral", 120, nothing)[-1].x))
    valid = found >= 0
    assert valid.float().mean() > 0.75
    assert stats.chisquare(found[valid].bincount(minlength=288).numpy()).pvalue > 1e-4


@pytest.mark.parametrize(("t", "s"), [(0.9, 0.8), (0.5, 0.45), (0.3, 0.05), (0.04, 0.0), (1.0, 0.6)])
def test_remdm_keeps_the_law_of_the_path_for_independent_cells(t: float, s: float) -> None:
    """x_t ~ q_t goes to x_s ~ q_s exactly, however long the step: the paper's theorem. 100,000 cells of three symbols,
    a chi-square test for each of five steps; one of them fails for new seeds with odds of 5e-6."""
    shares, count = torch.tensor([0.6, 0.3, 0.1]), 100_000
    rng = torch.Generator().manual_seed(int(100 * t))
    x0 = Masked(3).encode(torch.multinomial(shares, count, replacement=True, generator=rng)[:, None])
    time, noise = torch.tensor(t).view(1, 1, 1), torch.randn(4, count, 1, 4, generator=rng)
    x_t = PATH.sample(x0, time, noise[3])
    x0_hat = torch.tensor([0.6, 0.3, 0.1, 0.0]).expand_as(x_t)
    step = Transition(PATH, lambda x, t: x0_hat, x_t, x0_hat, time, torch.tensor(s).view(1, 1, 1))
    x_s = remdm(step).sample({KERNEL: noise[0], DRAW: noise[1]}.__getitem__)
    hidden_again = masked(x_s) & ~masked(x_t)
    assert hidden_again.any() == (s > 0 and t < 1)
    changed = ~masked(x_s) & ~masked(x_t) & (x_s != x_t).any(-1)
    assert not changed.any()  # an open cell is masked first
    seen = x_s.sum((0, 1))
    expected = torch.cat([shares * (1 - s), torch.tensor([s])]) * count
    there = expected > 0
    assert not seen[~there].any()
    ours, theirs = (part[there].double().numpy() for part in (seen, expected))
    assert stats.chisquare(ours, theirs, sum_check=False).pvalue > 1e-6


@pytest.mark.slow
def test_remdm_in_small_steps_is_uniform_over_all_288(mini_boards: Tensor) -> None:
    """Cells that open in the same step may clash, and more of them do than in ancestral sampling: the fewer the smaller
    the steps. The chi-square of the valid boards fails for a new seed with odds of 1e-4."""
    nothing, shares = Clues.none(torch.zeros(864, 16, 5)), []
    for steps in (60, 240):
        found = numbers(mini_boards, CODEC.decode(walk(mini_boards, "remdm", steps, nothing)[-1].x))
        valid = found >= 0
        shares.append(float(valid.float().mean()))
        assert stats.chisquare(found[valid].bincount(minlength=288).numpy()).pvalue > 1e-4
    assert 0.4 < shares[0] < 0.6 < 0.8 < shares[1]  # five standard deviations of .017 and .013 apart, or more


def test_one_ancestral_step_draws_every_cell_by_itself(mini_boards: Tensor) -> None:
    """So P(valid) is a sum over boards of products of marginals; 40 puzzles x 100 draws, five standard deviations."""
    few = puzzles(mini_boards, 40, 4)
    x_1 = few.pin(PATH.start(few.values, lambda purpose: few.values))
    chances = ExactUnmasker(mini_boards, 4)(x_1, torch.ones(1, 1, 1))
    products = torch.stack([chances[:, torch.arange(16), board].prod(1) for board in mini_boards], 1)
    exact = products.sum(1).double()  # a board that breaks a clue has probability 0
    assert 0.01 < exact.mean() < 0.9
    draws = few[torch.arange(40).repeat(100)]
    found = numbers(mini_boards, CODEC.decode(walk(mini_boards, "ancestral", 1, draws)[-1].x))
    expected, deviation = 100 * float(exact.sum()), float((100 * exact * (1 - exact)).sum()) ** 0.5
    assert abs(int((found >= 0).sum()) - expected) < 5 * deviation
    nothing = Clues.none(torch.zeros(1000, 16, 5))  # 288 / 4^16: one of 1000 is valid with odds of 7e-5
    assert (numbers(mini_boards, CODEC.decode(walk(mini_boards, "ancestral", 1, nothing)[-1].x)) == -1).all()


@pytest.mark.parametrize(("rule", "steps"), [("confidence", 64), ("remask", 100)])
@pytest.mark.parametrize("clues", [0, 6])
def test_one_cell_at_a_time_always_ends_in_a_valid_board(
    mini_boards: Tensor, rule: str, steps: int, clues: int
) -> None:
    problem = puzzles(mini_boards, 64, clues)
    snapshots = walk(mini_boards, rule, steps, problem)
    x = snapshots[-1].x
    assert (numbers(mini_boards, CODEC.decode(x)) >= 0).all()
    assert torch.equal(x, problem.pin(x))
    hidden = torch.stack([masked(snapshot.x).sum(1) for snapshot in snapshots])
    opened = -hidden.diff(dim=0)
    assert opened.max() == 1
    assert (opened.min() < 0) == (rule == "remask")  # its sweeps hide open cells again
    assert len(numbers(mini_boards, CODEC.decode(x)).unique()) > 30


def test_the_sweeps_hide_a_fifth_of_the_open_cells_four_times(mini_boards: Tensor) -> None:
    """With 40 steps the last eight are four sweeps of two: one hides 3 of 16 cells, the other opens them."""
    hidden = [masked(snapshot.x).sum(1).unique().tolist() for snapshot in walk(
        mini_boards, "remask", 40, Clues.none(torch.zeros(5, 16, 5))
    )]  # fmt: skip
    assert hidden[31:] == [[0], *[[3], [0]] * 4]
    assert all(later <= earlier for earlier, later in pairwise(hidden[:32]))


def test_confidence_leaves_the_share_of_the_time_masked_and_remask_hides_no_clue(mini_boards: Tensor) -> None:
    """With 6 clues ten cells are open: after each of 20 steps floor(10 s) are masked; a sweep hides two of them."""
    clues = puzzles(mini_boards, 8, 6)
    for snapshot in walk(mini_boards, "confidence", 20, clues):
        assert (masked(snapshot.x).sum(1) == math.floor(10 * snapshot.t + 1e-4)).all()
    hidden = [masked(snapshot.x) for snapshot in walk(mini_boards, "remask", 40, clues)]
    assert [int(cells.sum(1).unique()) for cells in hidden[31:]] == [0, *[2, 0] * 4]
    assert not any((cells & clues.given).any() for cells in hidden)


def test_chance_is_in_the_symbols_or_in_the_order(mini_boards: Tensor) -> None:
    """From nothing all four symbols of a cell are equally likely. Drawn, boards differ; taken, the likeliest are the
    same for every seed, unless the order has noise."""
    nothing = Clues.none(torch.zeros(40, 16, 5))
    boards = {}
    for noise in (None, 0.0, 0.5):
        sampler = Sampler("confidence", 32, order_noise=noise)
        exact = ExactUnmasker(mini_boards, 4)
        *_, last = trajectory(exact, PATH, sampler.build(), sampler.times(), nothing, Noise.first(0, 40))
        found = numbers(mini_boards, CODEC.decode(last.x))
        assert (found >= 0).all()
        boards[noise] = len(found.unique())
    assert boards[0.0] == 1 < boards[0.5]
    assert boards[None] > 30
    assert Sampler("confidence", order_noise=0.5).settings == {"order_noise": 0.5}
    with pytest.raises(LetgoError, match="rule 'remdm' takes no order_noise; only confidence, remask take it"):
        Sampler("remdm", order_noise=0.5)
    with pytest.raises(LetgoError, match="order_noise must be >= 0, got -1"):
        Confidence(-1.0)


@pytest.mark.fast
@pytest.mark.parametrize("rule", ["confidence", "remask"])
@pytest.mark.parametrize("temperature", [None, 1.0, 0.25, 0.0])
def test_symbols_are_drawn_at_the_rules_temperature(rule: str, temperature: float | None) -> None:
    """Every cell of 1,000 boards opens in one step from p = (.6, .3, .1): the shares are p^(1/T) by the sum of them,
    where T is .5 if nobody says, within four standard deviations; fixed seed."""
    p = torch.tensor([0.6, 0.3, 0.1])
    sharp = p ** (1 / (0.5 if temperature is None else temperature)) if temperature != 0 else torch.tensor([1.0, 0, 0])
    start = torch.tensor([0.0, 0, 0, 1]).expand(1000, 16, 4)
    x0_hat = torch.cat([p, torch.zeros(1)]).expand_as(start)
    one, zero = torch.ones(1, 1, 1), torch.zeros(1, 1, 1)
    step = Transition(PATH, lambda x, t: x0_hat, start, x0_hat, one, zero)
    noise = {
        purpose: torch.randn(start.shape, generator=torch.Generator().manual_seed(purpose)) for purpose in range(8)
    }
    x_s = Sampler(rule, temperature=temperature).build()(step).sample(noise.__getitem__)
    share = (sharp / sharp.sum()).double()
    spread = (share * (1 - share) / 16_000).sqrt()
    assert not masked(x_s).any()
    assert ((x_s[..., :3].double().mean((0, 1)) - share).abs() <= 4 * spread).all()


@pytest.mark.fast
def test_a_temperature_is_refused_where_it_means_nothing() -> None:
    with pytest.raises(LetgoError, match="rule 'ancestral' takes no temperature; only confidence, remask take it"):
        Sampler("ancestral", temperature=0.5)
    with pytest.raises(LetgoError, match="with order_noise the likeliest symbols are taken; leave temperature out"):
        Sampler("remask", order_noise=0.5, temperature=0.5)
    with pytest.raises(LetgoError, match="temperature must be >= 0, got -1"):
        Sampler("confidence", temperature=-1.0)


class Guess(nn.Module):
    """Unsure of everything, and of another opinion at every time."""

    def forward(self, x_t: Tensor, t: Tensor, context: Tensor | None = None) -> Tensor:
        logits = (3 * x_t.roll(1, 1) - 2 * t * x_t.roll(5, 1))[..., :-1]
        return nn.functional.pad(logits.softmax(-1), (0, 1))


@pytest.mark.parametrize("rule", DECODERS)
def test_no_mask_is_left_whatever_the_number_of_steps(mini_boards: Tensor, rule: str) -> None:
    clues = puzzles(mini_boards, 8, 3)
    for steps in (1, 2, 7, 20, 39, 41):
        sampler = Sampler(rule, steps)
        engine = Graph(Guess(), PATH, torch.device("cpu"), "fp32", compiled=False)
        x = engine.finish(sampler, clues, Noise.first(0, 8))
        assert not masked(x).any()
        assert (x.sum(-1) == 1).all()
        assert torch.equal(x, clues.pin(x))


class Unmasking(nn.Module):
    def __init__(self, boards: Tensor):
        super().__init__()
        self.exact = ExactUnmasker(boards, 4)

    def forward(self, x_t: Tensor, t: Tensor, context: Tensor | None = None) -> Tensor:
        return self.exact(x_t, t)


@pytest.mark.parametrize("rule", DECODERS)
def test_the_captured_loop_ends_in_the_same_boards(mini_boards: Tensor, rule: str) -> None:
    clues, noise, sampler = puzzles(mini_boards, 6, 4), Noise.first(0, 6), Sampler(rule, 25)
    loop = Graph(Unmasking(mini_boards), PATH, torch.device("cpu"), "fp32", compiled=False)
    assert torch.equal(loop.finish(sampler, clues, noise), walk(mini_boards, rule, 25, clues)[-1].x)


TRACE = """
import torch
from torch._dynamo.backends.common import aot_autograd
from letgo.data.source import source_of
from letgo.engines import graph
from letgo.presets import PRESETS
from letgo.rng import Noise
from letgo.samplers import Sampler
from letgo.solver import Solver
from letgo.training.data import TrainingData
from letgo.training.trainer import Trainer
from dataclasses import replace

torch.set_num_threads(1)
NEVER = "rand", "bernoulli", "multinomial", "normal_functional", "_local_scalar_dense", "nonzero", "masked_select"
called = set()

def watching(module, inputs):
    called.update(str(node.target) for node in module.graph.nodes if node.op == "call_function")
    return module.forward

step = torch.compile(graph.advance, dynamic=False, fullgraph=True, backend=aot_autograd(fw_compiler=watching))
graph.compiled_advance = lambda: step
small = {"width": 16, "depth": 1, "heads": 2, "hidden": 16}
machine = {"network": "nlm", "width": 4, "time_features": 4, "depth": 2}
mini = replace(PRESETS["sudoku-mini-d3pm"], network_options=small)
graphs = replace(PRESETS["connectivity-d3pm"], task_options={"size": 4}, network_options=machine)
flow = replace(PRESETS["sudoku-flow-velocity-baseline"], task_options={"box": 2}, network_options=small)
ordered, hot = {"order_noise": 0.5}, {"temperature": 1.0}
rules = ["ancestral", {}], ["confidence", {}], ["confidence", ordered], ["remask", hot], ["remdm", {}]
for config in (mini, graphs):
    torch.manual_seed(0)
    plain = Solver(config, config.build_model(), fast=False)
    problem = source_of(plain.task).draw("test", None, 3, 0)
    clues, context, noise = plain.clues(problem), plain.context(problem), Noise.first(7, 3)
    loop = graph.Graph(plain.network, plain.path, torch.device("cpu"), "fp32")
    for rule, settings in rules if config is mini else rules[-1:]:
        sampler = Sampler(rule, 40, **settings)
        ours, theirs = (engine.finish(sampler, clues, noise, context) for engine in (loop, plain.engine))
        assert torch.equal(ours, theirs), (config.name, sampler)
print([name for name in sorted(called) if any(word in name for word in NEVER)])

for config in (mini, graphs, flow):
    config = replace(config, batch=4, boards=16)
    problem = source_of(config.build_task()).training(16, 0)
    trainer = Trainer.of(config, TrainingData.of(problem, config.masks, torch.device("cpu")))
    losses, compiled = [], torch.compile(trainer._drawn_losses, dynamic=False, fullgraph=True, backend="aot_eager")
    for function in (trainer._drawn_losses, compiled):
        torch.manual_seed(1)
        total, _ = function(trainer.flat)
        [gradient] = torch.autograd.grad(total, trainer.flat)
        losses.append((float(total.detach()), float(gradient.norm())))
    assert all(abs(a / b - 1) < 1e-4 for a, b in zip(*losses)), losses
    print(config.name)
"""


@pytest.mark.slow
def test_every_decoder_and_the_training_can_be_captured() -> None:
    """One graph without a look at a number from the host, a shape that follows from data, or a draw that is not keyed
    by instance; by torch.compile without its code generator. On the networks of squares and of graphs."""
    done = subprocess.run([sys.executable, "-c", TRACE], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    names = "sudoku-mini-d3pm", "connectivity-d3pm", "sudoku-flow-velocity-baseline"
    assert done.stdout.splitlines() == ["[]", *names]


def test_rules_of_the_other_family_are_refused() -> None:
    with pytest.raises(LetgoError, match=r"Absorbing and Masked; choose one of confidence, ancestral, remask, remdm"):
        Sampler("tweedie").check(PATH, CODEC)
    with pytest.raises(LetgoError, match="rule 'confidence' does not fit"):
        Sampler("confidence").check(PATH, OneHot(4))  # whose last channel is a symbol, not the mask


@pytest.mark.fast
def test_the_objective_is_the_mean_of_minus_log_p_over_masked_cells(mini_boards: Tensor) -> None:
    """By hand: the true symbol of cell i gets probability 1 / (i + 2), at the objective's own times and masks."""
    x0, clues = CODEC.encode(mini_boards[:50]), puzzles(mini_boards, 50, 2)
    clues = Clues(x0, clues.given)
    chances = x0 / torch.arange(2, 18).view(1, 16, 1)
    batch = Batch(mini_boards[:50], x0, clues)
    torch.manual_seed(3)
    terms = MaskedCrossEntropy()(lambda x_t, t, context: chances, PATH, batch)
    torch.manual_seed(3)
    t = torch.rand(50, 1, 1)
    hidden = (uniform(torch.randn_like(x0))[..., 0] >= 1 - t[..., 0]) & ~clues.given
    for i in range(50):
        costs = [math.log(cell + 2) for cell in range(16) if hidden[i, cell]]
        assert float(terms["loss"][i]) == pytest.approx(sum(costs) / max(len(costs), 1))
    assert hidden.any()


def test_a_masked_model_is_trained_measured_and_solves_by_its_names(tmp_path: Path) -> None:
    small = {"width": 32, "depth": 2, "heads": 2, "hidden": 64}
    config = Config(
        "masked", "sudoku", {"box": 2}, "masked", path="absorbing", network="categorical", network_options=small,
        objective="masked", batch=32, boards=2000, steps=200, learning_rate=3e-3, warmup=20, decay=0.3, sample_steps=20,
    )  # fmt: skip
    run = letgo.train(config, tmp_path / "run", device="cpu", validate=0)
    losses = [json.loads(line)["loss"] for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    assert losses[-1] < 0.85 * losses[0] < math.log(4)
    solver = letgo.load(run.folder, "cpu")
    for rule in DECODERS:
        report = letgo.evaluate(solver, rule=rule, regime="14", count=10, steps=5)
        assert (report.rule, report.count, report.calls) == (rule, 10, 50)
    *_, final = solver.trajectory(".234341221434321", rule="confidence")
    assert solver.codec.decode(final.x)[0, 1:].tolist() == [int(c) - 1 for c in "234341221434321"]


@pytest.fixture(scope="module")
def masked_run(tmp_path_factory: pytest.TempPathFactory) -> str:
    config = replace(PRESETS["sudoku-mini-d3pm"], network_options={"width": 16, "depth": 1, "heads": 2, "hidden": 16})
    folder = tmp_path_factory.mktemp("masked")
    letgo.train(config, folder / "run", steps=2, batch=4, boards=16, validate=0, device="cpu")
    return str(folder / "run")


@pytest.mark.parametrize("words", ["solve RUN ................", "generate RUN", "evaluate RUN --count 2"])
def test_every_verb_refuses_a_rule_that_does_not_fit(
    words: str, masked_run: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for model, rule, others in (
        (masked_run, "tweedie", "confidence, ancestral, remask, remdm"),
        (masked_run, "em-decay", "confidence, ancestral, remask, remdm"),  # not the settings that it would need
        ("sudoku-mini", "remdm", "tweedie, ddpm, ddim, resample, euler, heun, em, em-decay"),
    ):
        assert main([*words.replace("RUN", model).split(), "--rule", rule, "--quiet"]) == 2
        told = capsys.readouterr()
        assert told.out == ""
        [line] = told.err.splitlines()
        assert line.startswith(f"letgo: rule '{rule}' does not fit a model with ")
        assert line.endswith(f"choose one of {others}")


def test_a_masked_model_has_nothing_to_tune(masked_run: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", masked_run, "--rule", "em", "--count", "5", "--quiet"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "does not fit a model with Absorbing and Masked; choose one of confidence" in line


def test_an_analysis_of_other_rules_says_so(masked_run: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", "mechanism", masked_run, "--quick", "--steps", "2", "--quiet"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(
        "letgo: mechanism: rule 'tweedie' does not fit a model with Absorbing and Masked; analyse an"
    )


def test_every_open_cell_is_asked_about_once_while_it_is_hidden(mini_boards: Tensor) -> None:
    """By the exact posterior: the log-share of the boards that agree outside the hidden cells and have this symbol."""
    clues, exact, seen = puzzles(mini_boards, 12, 4), ExactUnmasker(mini_boards, 4), []

    def denoise(x_t: Tensor, t: Tensor) -> Tensor:
        seen.append(x_t)
        return exact(x_t, t)

    found = masked_belief(denoise, PATH, clues, clues.values, Noise.first(0, 12))
    hidden = torch.stack([masked(x_t) for x_t in seen])
    assert torch.equal(hidden.sum(0), (~clues.given).long())
    assert all(torch.equal(x_t[~hide], clues.values[~hide]) for x_t, hide in zip(seen, hidden, strict=True))
    assert not found[clues.given].any()
    boards = CODEC.decode(clues.values)
    for row, cell in (~clues.given).nonzero().tolist():
        [call] = hidden[:, row, cell].nonzero()[:, 0].tolist()
        agreeing = mini_boards[((mini_boards == boards[row]) | hidden[call, row]).all(1)]
        share = (agreeing[:, cell] == boards[row, cell]).float().mean()
        torch.testing.assert_close(found[row, cell], share.log())
    swapped = boards.clone()
    swapped[:, [0, 1]] = boards[:, [1, 0]]
    wrong = clues.values.where(clues.given[..., None], CODEC.encode(swapped))
    broken = (CODEC.decode(wrong) != boards).any(1)
    assert broken.any()
    believed = masked_belief(exact, PATH, Clues(wrong, clues.given), wrong, Noise.first(0, 12)).sum(1)
    assert (believed[broken] < found.sum(1)[broken].min() - 5).all()


def test_a_masked_model_doubts_its_boards(masked_run: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["evaluate", masked_run, "--rule", "confidence", "--count", "4", "--steps", "8", "--json", "--quiet"]
    assert main([*words, "--passes", "3", "--until-sure", "--sure", "-100000"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["calls_per_instance"]["value"] == 8 + 8  # sure of the first board, after the calls that ask about it
    assert main([*words, "--passes", "3"]) == 0
    assert json.loads(capsys.readouterr().out)["chosen_at_k"]["n"] == 4
    assert main(["generate", masked_run, "--count", "2", "--tries", "2", "--quiet"]) == 0


def test_both_kinds_of_chance_are_measured_by_the_command_line(
    masked_run: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["evaluate", masked_run, "--rule", "confidence", "--count", "4", "--passes", "3", "--steps", "8", "--json"]
    found = []
    for more in ([], ["--order-noise", "0.5"], ["--temperature", "1"]):
        assert main([*words, *more, "--quiet"]) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert [report["settings"] for report in found] == [{}, {"order_noise": 0.5}, {"temperature": 1.0}]
    assert [report["pass_at_k"]["k"] for report in found] == [3, 3, 3]


@pytest.mark.parametrize("name", [name for name in PRESETS if name.endswith("-d3pm")])
def test_every_task_of_table_1_has_its_masked_twin(name: str) -> None:
    """The matching network as to size, and App. F.1's steps."""
    config, beside = PRESETS[name], PRESETS[name.removesuffix("-d3pm")]
    weights = [sum(p.numel() for p in each.build_model().parameters()) for each in (config, beside)]
    width = 128 if config.network_options.get("width") is None else config.network_options["width"]
    assert 0 < weights[0] - weights[1] <= 3 * 6 * width  # one channel more, for the mask
    steps = {"sudoku-extreme-d3pm": 1000, "connectivity-d3pm": 64, "sudoku-mini-d3pm": 50}
    assert config.sample_steps == steps.get(name, 256)
    same = ("task", "task_options", "batch", "boards", "masks", "learning_rate", "steps")
    assert all(getattr(config, field) == getattr(beside, field) for field in same)


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["ancestral", "confidence", "remask", "remdm"])
def test_a_cpu_asks_only_about_boards_that_have_changed(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    solver = letgo.load("sudoku-mini-d3pm", device="cpu")
    forward, problem, sampler, rows = solver.sample_engine.forward, solver.empty(8), solver.sampler(rule, 100), []

    def counted(x_t: Tensor, *others: Tensor | None) -> Tensor:
        rows.append(len(x_t))
        return forward(x_t, *others)

    monkeypatch.setattr(solver.sample_engine, "forward", counted)
    once, asked = solver.sample(problem, sampler), sum(rows)
    rows.clear()
    monkeypatch.setattr(type(solver.network), "timeless", False)
    assert torch.equal(solver.sample(problem, sampler), once)
    assert sum(rows) == 8 * 100
    assert asked < 0.7 * 8 * 100 if rule == "remdm" else asked <= 8 * (1 + 16 * 2)
