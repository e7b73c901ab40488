"""The looped denoiser, its loss, and trying again while in doubt."""

import json
import math
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.sparse.csgraph import connected_components, shortest_path
from torch import nn
from torch.nn import functional as F

import letgo
from letgo import tasks
from letgo.answers import Ledger
from letgo.cli import main
from letgo.config import Config
from letgo.engines.cpu import PackedTransformer, packs
from letgo.engines.network import FastTransformer
from letgo.errors import LetgoError
from letgo.evaluation import Doubt, evaluate
from letgo.models.looped import LoopedNLM, LoopedTransformer, clue_cells
from letgo.models.nlm import ORDERS, NeuralLogicMachine
from letgo.models.transformer import Transformer
from letgo.objectives import Batch, CrossEntropy
from letgo.paths import CosinePath
from letgo.pinning import Clues
from letgo.presets import PRESETS
from letgo.samplers import Sampler
from letgo.solver import Solver
from letgo.tasks import Problem
from letgo.tasks.connectivity import random_graphs
from letgo.training.train import configured
from letgo.tune import find_sure

TASK = tasks.get("latin", size=4)


def network(turns: int = 3, **options) -> LoopedTransformer:
    torch.manual_seed(0)
    return LoopedTransformer(4, TASK.positions(), turns=turns, depth=2, **options).eval()


def pinned_states(count: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    x, given = torch.randn(count, 16, 4), torch.rand(count, 16) < 0.3
    return torch.where(given[..., None], F.one_hot(torch.randint(4, (count, 16)), 4).float(), x), given


def test_one_turn_without_marks_is_the_papers_network_behind_a_softmax():
    looped, (x, _) = network(turns=1), pinned_states()
    nn.init.zeros_(looped.mark)
    plain = Transformer(4, TASK.positions(), depth=2, dropout=0.0).eval()
    plain.load_state_dict({k: v for k, v in looped.state_dict().items() if k != "mark" and not k.startswith("again")})
    t = torch.rand(5, 1, 1)
    torch.testing.assert_close(looped(x, t), plain(x, t).softmax(-1))


def test_one_that_starts_from_a_plain_network_answers_alike_at_every_turn() -> None:
    looped, (x, _), t = network(), pinned_states(), torch.rand(5, 1, 1)
    plain = Transformer(4, looped.positions, depth=2).eval()
    weights = looped.grown_from(plain)
    looped.load_state_dict({**looped.state_dict(), **weights})
    logits = looped(x, t, None, every_turn=True)
    torch.testing.assert_close(logits, (10 * plain(x, t))[:, None].expand_as(logits))
    torch.testing.assert_close(weights["head.weight"], 10 * plain.head.weight)  # and the plain one is as it was
    own = looped.grown_from(looped)
    assert all(own[name] is value for name, value in looped.named_parameters())


def test_clues_are_read_from_the_state_and_change_the_answer():
    looped, (x, given) = network(), pinned_states()
    assert torch.equal(clue_cells(x)[..., 0], given)
    before = looped(x, torch.full((5, 1, 1), 0.5))
    nn.init.zeros_(looped.mark)
    assert not torch.allclose(before, looped(x, torch.full((5, 1, 1), 0.5)))


def test_the_last_turns_logits_are_the_answer():
    looped, (x, _), t = network(), pinned_states(), torch.rand(5, 1, 1)
    logits = looped(x, t, None, every_turn=True)
    assert logits.shape == (5, 3, 16, 4)
    torch.testing.assert_close(looped(x, t), logits[:, -1].softmax(-1))
    assert not torch.allclose(logits[:, 0], logits[:, 1])


def test_fused_and_packed_paths_answer_alike_and_have_the_same_gradient():
    """The fused operation's twin on a CPU runs the code around the kernels: layout, norm between turns, stacking."""
    looped, (x, _), t = network(), pinned_states(4), torch.rand(4, 1, 1)
    fast, weights = FastTransformer(looped).train(), dict(looped.named_parameters())
    row = torch.cat([weights[name].detach().flatten() for name in fast.names])
    flat = torch.stack([row, row]).requires_grad_()  # two models; board i belongs to model i % 2
    mine, theirs = fast(flat, x, t, every_turn=True), looped(x, t, None, every_turn=True)
    torch.testing.assert_close(mine, theirs, atol=2e-5, rtol=1e-4)
    mine.log_softmax(-1)[..., 0].sum().backward()
    theirs.log_softmax(-1)[..., 0].sum().backward()
    whole = torch.cat([weights[name].grad.flatten() for name in fast.names])
    torch.testing.assert_close(flat.grad.sum(0), whole, atol=2e-4, rtol=1e-3)
    if packs(looped):
        with torch.no_grad():
            torch.testing.assert_close(PackedTransformer(looped)(x, t[:1]), looped(x, t[:1].expand(4, 1, 1)))


# Graphs.


def graphs(count: int, n: int, p: float = 0.2) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(n)
    adjacency = random_graphs(count, n, p, np.random.default_rng(n))
    return torch.randn(count, n * n, 2), torch.rand(count, 1, 1), adjacency


@torch.no_grad()
@pytest.mark.fast
def test_weights_exist_whose_turns_join_what_twice_as_many_edges_join_each_time():
    """Found by scipy: after turn r the nodes that at most 2^r edges join. 20 is crisp.

    J(i, j) = P(i, j) or some k has P(i, k) and P(k, j), with P = edge or h; h is J without edges, so that both weigh
    alike.
    """
    width, turns = 4, 4
    looped = LoopedNLM(2, width, time_features=8, turns=turns)
    for parameter in looped.parameters():
        parameter.zero_()
    edge, h = 0, 1 + 2 + width  # among the channels of a pair: edge (+1 or -1), state, time, h
    looped.pairs.weight[0, [edge, h]] = looped.pairs.weight.new_tensor([20, 40])  # P
    looped.pairs.weight[1, edge] = 20
    ik, kj = ORDERS.index("ikj"), ORDERS.index("kji")
    for order in (ik, kj):
        looped.triples.weight.view(width, 6, -1)[0, order, [edge, h]] = looped.triples.weight.new_tensor([20, 40])
    looped.triples.bias[0] = -20
    looped.pairs2.weight[:2, [width, 2 * width]] = 20  # after the nodes: P, exists
    looped.pairs2.weight[0, width + 1] = -60  # no edge
    looped.pairs2.bias[:2] = -10
    looped.head.weight[0, 1] = 1
    x, t, adjacency = graphs(20, 24, 0.1)
    apart = torch.from_numpy(np.stack([shortest_path(graph, unweighted=True) for graph in adjacency.numpy()]))
    assert 9 < apart[apart.isfinite()].max() < 32  # turns differ, and the last one is not needed for all
    joined = looped(x, t, adjacency, every_turn=True)[..., 0].unflatten(2, (24, 24))
    for turn in range(turns):
        wanted = ((apart > 0) & (apart <= 2 ** (turn + 1))).float()
        torch.testing.assert_close(joined[:, turn], wanted, atol=1e-3, rtol=0)


@torch.no_grad()
@pytest.mark.fast
@pytest.mark.parametrize("depth", [2, 4])
def test_a_looped_machine_that_starts_from_a_plain_one_answers_alike_at_every_turn(depth: int):
    torch.manual_seed(0)
    plain, looped = NeuralLogicMachine(2, 8, 16, depth), LoopedNLM(2, 8, time_features=16, depth=depth, turns=3)
    for parameter in plain.parameters():
        parameter.mul_(4)
    first = looped.logits(*graphs(3, 6))
    looped.load_state_dict(looped.grown_from(plain))
    x, t, adjacency = graphs(3, 6)
    logits = looped(x, t, adjacency, every_turn=True)
    torch.testing.assert_close(logits, (10 * plain(x, t, adjacency))[:, None].expand_as(logits))
    assert not torch.allclose(first[:, 0], first[:, 1])  # one that starts from nothing hears its last turn


SMALL_GRAPHS = replace(
    PRESETS["connectivity-looped"], task_options={"size": 6}, batch=16, boards=2_000, steps=400, warmup=20,
    learning_rate=1e-2, ema=0.9, network_options={"width": 16, "time_features": 16, "turns": 3}, sample_steps=10,
    sample_turns=None,
)  # fmt: skip


@pytest.fixture(scope="module")
def joiner(tmp_path_factory: pytest.TempPathFactory) -> Solver:
    run = letgo.train(SMALL_GRAPHS, tmp_path_factory.mktemp("graphs") / "run", device="cpu", validate=8)
    return letgo.load(run.folder, device="cpu")


def test_a_few_seconds_of_training_join_small_graphs(joiner: Solver):
    """Judged by scipy. Whoever answers "all joined" is right on a fifth of them."""
    adjacency = random_graphs(200, 6, 0.2, np.random.default_rng(99))
    problem = Problem(torch.zeros(200, 36, dtype=torch.long), torch.zeros(200, 36, dtype=torch.bool), adjacency)
    groups = [connected_components(graph, directed=False)[1] for graph in adjacency.numpy()]
    wanted = torch.from_numpy(np.stack([labels[:, None] == labels for labels in groups])).flatten(1)
    right = (joiner.draw(problem, joiner.sampler()) == wanted).all(1)
    assert wanted.all(1).float().mean() < 0.3
    assert right.float().mean() > 0.9
    [answer] = joiner.solve(["010000/101000/010000/000010/000101/000010"])
    assert answer.board == "111000/111000/111000/000111/000111/000111"


def test_other_turns_than_those_of_training_are_asked_for_and_told(joiner: Solver):
    report = letgo.evaluate(joiner, count=20, turns=5)
    assert report.settings == {"turns": 5}
    assert letgo.evaluate(joiner, count=20).settings == {}
    assert joiner.network.turns == 3  # the model itself is as it was
    x, t, adjacency = graphs(4, 6)
    more = joiner.with_turns(5).network
    with torch.no_grad():
        states = more(x, t, adjacency, every_turn=True)
        torch.testing.assert_close(states[:, :3], joiner.network(x, t, adjacency, every_turn=True))
        torch.testing.assert_close(more(x, t, adjacency), states[:, 4].softmax(-1))
    with pytest.raises(LetgoError, match="turns are a looped network's, and sudoku-mini has another"):
        letgo.evaluate("sudoku-mini", count=2, turns=2, device="cpu")
    words = ["evaluate", str(joiner.folder), "--rule", "tweedie", "--count", "4", "--turns", "2", "--device", "cpu"]
    assert main([*words, "--json"]) == 0


TRACE = """
from dataclasses import replace
from functools import partial
from unittest.mock import patch
import torch
from letgo.data.source import source_of
from letgo.engines import graph
from letgo.presets import PRESETS
from letgo.rng import Noise
from letgo.samplers import Sampler
from letgo.solver import Solver
from letgo.training.data import TrainingData
from letgo.training.trainer import Trainer

torch.set_num_threads(1)
step = torch.compile(graph.advance, dynamic=False, fullgraph=True, backend="aot_eager")
graph.compiled_advance = lambda: step
latin = {"width": 16, "depth": 1, "heads": 2, "hidden": 16, "turns": 2}
nodes = {"width": 4, "time_features": 4, "turns": 2}
for name, task, options in (("latin-looped", {"size": 4}, latin), ("connectivity-looped", {"size": 5}, nodes)):
    config = replace(PRESETS[name], task_options=task, network_options=options, batch=4, boards=16)
    torch.manual_seed(0)
    plain = Solver(config, config.build_model(), fast=False)
    problem = source_of(plain.task).training(16, 0)
    clues, context, noise = plain.clues(problem[:3]), plain.context(problem[:3]), Noise.first(7, 3)
    loop = graph.Graph(plain.network, plain.path, torch.device("cpu"), "fp32")
    ends = [engine.finish(Sampler("resample", 5), clues, noise, context) for engine in (loop, plain.engine)]
    torch.testing.assert_close(*ends, atol=1e-5, rtol=1e-4)
    trainer = Trainer.of(config, TrainingData.of(problem, config.masks, torch.device("cpu")))
    traced = partial(torch.compile, dynamic=False, fullgraph=True, backend="aot_eager")
    traced(trainer._drawn_losses)(trainer.flat)
    drawn, time, noise = trainer.data.draw(4), torch.rand(4, 1, 1), torch.randn(4, plain.task.cells, plain.codec.dim)
    losses = []
    for function in (trainer._losses, traced(trainer._losses)):
        with patch("letgo.objectives.uniform_times", lambda x: time), patch("torch.randn_like", lambda x: noise):
            total, _ = function(trainer.flat, *drawn)  # what is drawn is given: a trace draws in an order of its own
        [gradient] = torch.autograd.grad(total, trainer.flat)
        losses.append((float(total.detach()), float(gradient.norm())))
    assert all(abs(a / b - 1) < 1e-4 for a, b in zip(*losses)), losses
    print(name)
"""


@pytest.mark.slow
def test_sampling_and_training_of_looped_networks_can_be_captured():
    """By torch.compile without its code generator, which needs a compiler; apart, since checked code is not traced."""
    done = subprocess.run([sys.executable, "-c", TRACE], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["latin-looped", "connectivity-looped"]


class Oracle(nn.Module):
    """Logits that are log p of given probabilities, the same at every turn."""

    def __init__(self, probabilities: torch.Tensor, turns: int = 2):
        super().__init__()
        self.p, self.turns = probabilities, turns

    def forward(self, x_t, t, context=None, every_turn=False):
        p = self.p.expand(len(x_t), -1, -1)
        return p.log()[:, None].expand(-1, self.turns, -1, -1) if every_turn else p


def test_cross_entropy_counts_open_cells_only_and_is_least_at_the_truth():
    """Cells are independent draws from q, so that the expected loss of answers p is H(q) + KL(q, p) per open cell."""
    torch.manual_seed(0)
    q = torch.tensor([0.7, 0.2, 0.1])
    symbols = torch.multinomial(q, 4000 * 4, True).view(4000, 4)
    x0, given = F.one_hot(symbols, 3).float(), torch.zeros(4000, 4, dtype=torch.bool)
    given[:, 0] = True
    batch = Batch(symbols, x0, Clues(x0, given))
    for p in (q, torch.tensor([0.5, 0.3, 0.2])):
        terms = CrossEntropy(0.5)(Oracle(p.expand(4, 3)), CosinePath(), batch)
        assert terms["recovery"].shape == (4000, 2, 4)
        assert len(terms["simple"]) == 2000
        assert not terms["recovery"][:, :, 0].any()
        expected = float(-(q * p.log()).sum()) * 3 / 4
        assert math.isclose(float(terms["recovery"].mean()), expected, rel_tol=0.03)


def test_wrong_combinations_are_refused():
    with pytest.raises(LetgoError, match="one-hot"):
        Config("x", "sudoku", codec="bits", network="looped").build_model()
    with pytest.raises(LetgoError, match="looped"):
        configured("sudoku", objective="cross-entropy")


def test_clipping_cuts_the_gradient_and_nothing_else(tmp_path):
    """One Adam step is blind to the gradient's length, two are not."""
    words = {"steps": 3, "batch": 8, "boards": 32, "validate": 0, "device": "cpu", "warmup": 1}
    runs = {
        norm: letgo.train("sudoku-mini", tmp_path / str(norm), clip_norm=norm, **words) for norm in (0.0, 1e9, 1e-3)
    }
    weights = {norm: run.state["raw"] for norm, run in runs.items()}
    assert all(torch.equal(weights[0.0][name], weights[1e9][name]) for name in weights[0.0])
    assert any(not torch.equal(weights[0.0][name], weights[1e-3][name]) for name in weights[0.0])


def test_a_puzzle_stays_open_until_its_board_is_believed():
    problem = Problem(torch.zeros(3, 16, dtype=torch.long), torch.zeros(3, 16, dtype=torch.bool))
    ledger, rows = Ledger(problem, True, -1.0), torch.arange(3)
    valid, calls = torch.tensor([True, False, True]), torch.full((3,), 10)
    ledger.enter(
        rows, torch.ones_like(problem.solution), valid, calls, torch.zeros(3), torch.tensor([-0.1, -0.2, -5.0])
    )
    assert ledger.open().tolist() == [2]  # whether a board is valid plays no part
    ledger.enter(
        torch.tensor([2]),
        torch.zeros(1, 16, dtype=torch.long),
        valid[:1],
        calls[:1],
        torch.zeros(1),
        torch.tensor([-9.0]),
    )
    assert ledger.open().tolist() == [2]
    assert ledger.boards[2].tolist() == [1] * 16  # the more believed of the two
    assert ledger.calls.tolist() == [10, 10, 20]


@pytest.fixture(scope="module")
def mini() -> Solver:
    return letgo.load("sudoku-mini", device="cpu")


def drawn(mini: Solver, count: int = 60) -> Problem:
    return letgo.data.source.source_of(mini.task).draw("valid", "4", count, 0)


def test_trying_again_until_sure_ends_in_believed_boards(mini: Solver):
    """With few steps many first tries fail; belief alone, no rule, tells which to try again."""
    problem, sampler = drawn(mini), Sampler("tweedie", 5)
    report = evaluate(mini, problem, sampler, passes=12, doubt=Doubt(-0.1))
    once = evaluate(mini, problem, sampler)
    assert report.first_try.value == once.validity.value < 0.9
    assert report.validity.value > 0.95
    assert report.believed_wrong.value <= 0.05
    assert report.calls == int(report.outcomes.columns["calls_per_instance"].values.sum()) < 12 * 13 * 60
    assert report.settings["sure"] == -0.1
    never = evaluate(mini, problem, sampler, passes=2, doubt=Doubt(0.0))  # a self-likelihood is 0 at most
    assert never.believed.value == 0
    assert never.calls == 2 * 60 * (5 + 8)
    part = problem[20:40]
    alone = evaluate(
        mini, Problem(part.solution, part.given, None, torch.arange(20, 40)), sampler, passes=12, doubt=Doubt(-0.1)
    )
    assert torch.equal(alone.outcomes.columns["calls_per_instance"].values[:, 0],
                       report.outcomes.columns["calls_per_instance"].values[20:40, 0])  # fmt: skip


def test_the_mark_lies_between_right_and_wrong_boards(mini: Solver):
    table = find_sure(mini, drawn(mini, 120), Sampler("tweedie", 5))
    assert table["wrong"]["most"] < table["best"]["sure"] < table["right"]["tenth"] <= 0
    assert table["best"]["sure_early"] is None  # on the way its right boards are as doubtful as the wrong ones
    assert "sure_early" not in find_sure(mini, drawn(mini, 120), Sampler("euler", 9))["best"]
    with pytest.raises(LetgoError, match="too few"):
        find_sure(mini, drawn(mini, 20), Sampler("tweedie", 50))


def test_a_model_without_a_mark_says_so(mini: Solver):
    assert mini.sure is None
    with pytest.raises(LetgoError, match="--belief"):
        letgo.evaluate("sudoku-mini", count=4, passes=2, until_sure=True, device="cpu")


HARDEST = "8..........36......7..9.2...5...7.......457.....1...3...1....68..85...1..9....4.."  # Arto Inkala, 2012


@pytest.mark.slow
def test_what_the_first_model_leaves_unsolved_goes_on_to_the_looped_one(capsys: pytest.CaptureFixture[str]):
    """This puzzle is known to have one solution; `sudoku` does not find it at its first try."""
    solution = "812753649943682175675491283154237896369845721287169534521974368438526917796318452"
    assert main(["solve", HARDEST, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["board"], answer["model"]) == (solution, "sudoku-extreme-looped")
    assert answer["calls"] > 200
    assert main(["solve", HARDEST, "--model", "sudoku", "--tries", "1"]) == 1
    assert capsys.readouterr().out.split() == ["unsolved"]
    assert main(["solve", "sudoku-extreme-looped", HARDEST, "--no-verify", "--tries", "24", "--json"]) == 0
    alone = json.loads(capsys.readouterr().out)
    assert alone["board"] == solution
    assert alone["belief"] > letgo.load("sudoku-extreme-looped").sure_early > -1
    assert alone["calls"] < 25 * alone["tries"]  # it stopped in the middle of a try, and asked nothing more


def test_a_model_takes_the_turns_of_its_configuration_and_learns_with_its_own() -> None:
    solver = letgo.load("connectivity-looped")
    assert (solver.config.build_model().turns, solver.network.turns) == (4, 8)
    assert solver.with_turns(5).network.turns == 5
    with pytest.raises(LetgoError, match="sample_turns are of looped networks"):
        letgo.train("sudoku-mini", out="nowhere", sample_turns=8)
