"""Boards that have steps of their own, and the loop in which a settled puzzle makes room for the next one."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from letgo.answers import Answer
from letgo.data.source import source_of
from letgo.engines.cpu import Cpu
from letgo.engines.graph import Fused, Graph
from letgo.engines.plain import Engine, Plain
from letgo.errors import LetgoError
from letgo.evaluation import Doubt, until_sure
from letgo.models.conditioned import SelfConditioned
from letgo.models.looped import LoopedTransformer
from letgo.models.nlm import NeuralLogicMachine
from letgo.models.transformer import Transformer
from letgo.paths import CosinePath
from letgo.pinning import Clues
from letgo.presets import PRESETS
from letgo.rng import KERNEL, Noise, NoiseAhead, as_int64
from letgo.samplers import Sampler
from letgo.sampling import BELIEF_TIMES, Diverged, Walk, joined
from letgo.slots import Slots
from letgo.solver import Solver, identities, load
from letgo.tasks import Problem
from letgo.tune import walked

CPU = torch.device("cpu")
INF = float("inf")
PLACES = torch.stack([torch.arange(6) // 3, torch.arange(6) % 3])


def network(kind: str) -> nn.Module:
    torch.manual_seed(0)
    if kind == "memory":
        return SelfConditioned(5, PLACES, width=16, heads=2, depth=1, hidden=32).eval()
    if kind == "looped":
        return LoopedTransformer(5, PLACES, turns=2, width=16, heads=2, depth=1, hidden=32).eval()
    return Transformer(5, PLACES, width=16, heads=2, depth=2, hidden=32).eval()


def engine(kind: str, model: nn.Module) -> Engine:
    if kind == "graph":
        return Graph(model, CosinePath(), CPU, "fp32", compiled=False)
    return {"cpu": Cpu, "plain": Plain}[kind](model, CosinePath(), CPU, "fp32")


def boards(count: int, soft_until: float = INF) -> tuple[Clues, Noise]:
    rng = torch.Generator().manual_seed(count)
    values, given = torch.randn(count, 6, 5, generator=rng), torch.rand(count, 6, generator=rng) < 0.3
    seeds = torch.tensor([3, 2**40, -1, 3, 5][:count])
    return Clues(values, given, soft_until), Noise(seeds, torch.arange(count) * 7, torch.arange(count) % 3)


EM = Sampler("em-decay", 5, sigma=3.0, tau_start=0.7, variance=2.0)


@pytest.mark.parametrize(
    ("loop", "model", "soft_until", "sampler"),
    [
        ("cpu", "plain", INF, Sampler("ddpm", 5)),
        ("cpu", "plain", 0.5, Sampler("heun", 5, ahead=0.5)),
        ("cpu", "looped", 0.5, Sampler("resample", 5)),
        ("cpu", "memory", INF, EM),
        ("plain", "plain", 0.5, Sampler("ddpm", 5)),
        ("graph", "plain", 0.5, EM),
        ("graph", "memory", INF, Sampler("heun", 5)),
    ],
)
def test_a_board_that_joins_late_ends_as_it_does_alone(
    loop: str, model: str, soft_until: float, sampler: Sampler
) -> None:
    """Five boards with seeds of their own begin one step after the other; the CPU's fast path agrees bit for bit."""
    runs, (clues, noise) = engine(loop, network(model)), boards(5, soft_until)
    alone = [list(runs.walk(sampler, clues[i : i + 1], noise[i : i + 1])) for i in range(5)]
    slots, here, ends, walk = runs.slots(sampler), 0, {}, None
    rows: list[int] = []
    while here < 5 or rows:
        if here < 5:
            fresh = runs.begin(clues[here : here + 1], noise[here : here + 1], None).apart()
            walk = fresh if walk is None else joined([walk, fresh])
            rows.append(here)
            here += 1
        index = torch.tensor(rows)
        slots.seat(clues[index], noise[index], None, walk)
        x0_hat, walk = slots.step(), slots.walk
        for place, row in enumerate(rows):
            step = int(walk.done[place])
            ours, theirs = (x0_hat[place], walk.x[place]), alone[row][step - 1]
            for mine, other in zip(ours, (theirs.x0_hat[0], theirs.x[0]), strict=True):
                if loop == "cpu":
                    assert torch.equal(mine, other)
                else:
                    torch.testing.assert_close(mine, other, atol=1e-5, rtol=1e-4)
            if step == sampler.steps:
                ends[row] = walk.x[place]
        stay = [place for place, row in enumerate(rows) if row not in ends]
        rows, walk = [rows[place] for place in stay], walk[torch.tensor(stay, dtype=torch.long)]
    assert sorted(ends) == list(range(5))


@pytest.mark.fast
def test_the_fused_network_takes_a_time_for_each_board() -> None:
    torch.manual_seed(0)
    model = Transformer(5, PLACES, depth=1, hidden=128, dropout=0.0).eval()
    runs = engine("graph", model)
    runs.network = Fused(model)  # on a CPU the twin of its kernels
    plain, (clues, noise), sampler = engine("plain", model), boards(3), Sampler("ddpm", 4)
    done = torch.tensor([0, 2, 1])
    walk = Walk(runs.begin(clues, noise, None).x, None, done)
    for loop in (fused := runs.slots(sampler), exact := plain.slots(sampler)):
        loop.seat(clues, noise, None, walk)
    assert (fused.step() - exact.step()).norm() < 2e-2 * exact.walk.x.norm()  # its residual stream is bf16
    assert torch.equal(torch.as_tensor(fused.walk.done), done + 1)


@pytest.mark.fast
def test_a_network_that_breaks_is_refused_with_the_step_of_its_board() -> None:
    class Broken(nn.Module):
        def forward(self, x_t: Tensor, t: Tensor, context: Tensor | None = None) -> Tensor:
            return x_t.masked_fill(t.expand(len(x_t), 1, 1) < 0.6, torch.nan)

    clues, noise = boards(3)
    for kind in ("cpu", "plain", "graph"):
        slots = (runs := engine(kind, Broken())).slots(Sampler("ddpm", 4))
        walk = Walk(runs.begin(clues, noise, None).x, None, torch.tensor([0, 1, 0]))
        slots.seat(clues, noise, None, walk)
        slots.step()
        with pytest.raises(LetgoError, match="the network's prediction is not finite at step 3"):
            slots.step()


@pytest.mark.fast
def test_a_board_that_a_sampler_has_led_astray_is_the_samplers_fault_on_every_engine() -> None:
    """One of three boards is beyond a million when its network overflows; the tuning of sigma counts that as none."""

    class Overflows(nn.Module):
        def forward(self, x_t: Tensor, t: Tensor, context: Tensor | None = None) -> Tensor:
            return x_t.where(x_t.abs() < 1e6, INF)

    clues, noise = boards(3)
    for kind in ("cpu", "plain", "graph"):
        slots = (runs := engine(kind, Overflows())).slots(Sampler("ddpm", 4))
        x = runs.begin(clues, noise, None).x.clone()
        x[1, ~clues.given[1]] = 2e6
        slots.seat(clues, noise, None, Walk(x, None, torch.tensor([0, 2, 0])))
        with pytest.raises(Diverged, match="diverged at step 3"):
            slots.step()


@pytest.mark.fast
def test_noise_of_many_seeds_and_steps_is_each_boards_own() -> None:
    seeds, steps = [0, -1, 2**64 - 1, 2**70 + 3], torch.tensor([4, 9, 4, 0])
    noise = Noise(torch.stack([as_int64(seed) for seed in seeds]), torch.arange(4) + 5, torch.tensor([0, 1, 2, 0]))
    ahead = NoiseAhead.of(noise)
    for later in (0, 1, 2, 30, 31):
        expected = [
            Noise(seed, noise.instance[i : i + 1], noise.attempt[i : i + 1]).normal(int(steps[i]) + later, KERNEL, 3, 2)
            for i, seed in enumerate(seeds)
        ]
        assert torch.equal(noise.normal(steps + later, KERNEL, 3, 2), torch.cat(expected))
        assert torch.equal(ahead.normal(steps + later, KERNEL, 3, 2), torch.cat(expected))
    one, two = torch.tensor([5, 5, 5, 5]), torch.tensor([5, 6, 5, 5])  # not what was drawn ahead: drawn anew
    for step in (one, two):
        assert torch.equal(ahead.normal(step, KERNEL, 3, 2), noise.normal(step, KERNEL, 3, 2))


# ---------------------------------------------------------------- puzzles


def some_puzzles(solver: Solver, count: int) -> Problem:
    """About five clues of 16: some boards are found at once, some late, some never."""
    given = torch.rand(count, 16, generator=torch.Generator().manual_seed(0)) < 0.3
    return Problem(source_of(solver.task).draw("test", None, count, 0).solution, given)


def one_by_one(solver: Solver, problem: Problem, sampler: Sampler, tries: int, verify: bool) -> list[tuple]:
    """What `solve` promises, each puzzle and try alone: its board, whether solved, tries, calls, belief."""
    answers, number = [], identities(problem)
    for i in range(len(problem)):
        one, best, calls, tried = problem[i : i + 1], (-INF, False, None), 0, 0
        while tried < tries:
            noise = Noise(1, number[i : i + 1], torch.tensor([tried]))
            tried, last, found = tried + 1, None, None
            for last in solver.walk(one, noise, sampler):
                board = torch.where(one.given, one.solution, solver.read(last.x0_hat, one))
                if verify and bool(solver.task.validate(board, one)):
                    found = board
                    break
            board = solver.read(last.x, one) if found is None else found
            calls += last.step * sampler.calls_per_step
            valid = bool(solver.task.validate(board, one))
            belief = 0.0 if verify or tries == 1 else float(solver.belief(board, one, noise))
            calls += 0 if verify or tries == 1 else len(BELIEF_TIMES)
            if verify or belief > best[0]:
                best = belief, valid, board
            if valid if verify else tries > 1 and solver.sure is not None and belief > solver.sure:
                break
        text = solver.task.format(best[2], one)[0] if best[1] else None
        told = None if verify or tries == 1 else round(best[0], 4)
        answers.append((text, best[1], tried, calls, told))
    return answers


def told(answers: list[Answer]) -> list[tuple]:
    return [(a.board, a.solved, a.tries, a.calls, a.belief) for a in answers]


@pytest.mark.slow
@pytest.mark.parametrize("verify", [True, False])
def test_answers_are_those_of_each_puzzle_alone(verify: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rule, steps = "heun", 4
    solver = load("sudoku-mini", "cpu", precision="fp32")
    monkeypatch.setattr(Solver, "sure", property(lambda self: -0.5))
    monkeypatch.setattr(Solver, "short_try", None)
    problem = some_puzzles(solver, 10)
    expected = one_by_one(solver, problem, solver.sampler(rule, steps), 3, verify)
    assert len({tries for _, _, tries, _, _ in expected}) > 1
    how = {"rule": rule, "steps": steps, "tries": 3, "seed": 1, "verify": verify}
    for batch in (3, 10):
        assert told(solver.solve(problem, batch=batch, **how)) == expected
    lists = list(solver.solve_each(problem, batch=3, **how))
    assert told([answer for some in lists for answer in some]) == expected
    assert [len(some) for some in lists] == [1, 2, 3, 3, 1]
    padded = Solver(solver.config, solver.network, "cpu", solver.folder)
    padded.engine = padded.sample_engine = Graph(solver.network, solver.path, CPU, "fp32", compiled=False)
    rounded = [(*rest, belief is None) for *rest, belief in told(padded.solve(problem, batch=6, **how))]
    assert rounded == [(*rest, belief is None) for *rest, belief in expected]


@pytest.mark.fast
def test_a_batch_is_full_while_any_puzzle_waits_and_sees_no_settled_board() -> None:
    solver = load("sudoku-mini", "cpu", fast=False)
    problem, sizes = some_puzzles(solver, 40), []
    hook = solver.network.register_forward_pre_hook(lambda _, inputs: sizes.append(len(inputs[0])))
    answers = solver.solve(problem, "ddpm", steps=6, tries=3, batch=16)
    hook.remove()
    assert {answer.tries for answer in answers} == {1, 2, 3}
    assert sum(sizes) == sum(answer.calls for answer in answers)
    full = [size == 16 for size in sizes]
    assert full == sorted(full, reverse=True)  # only at the end, when none waits, it is smaller
    assert sum(full) > 5


def test_rows_that_would_be_filled_up_take_later_tries_and_no_answer_changes() -> None:
    """Three puzzles on an engine that pads to 12: four tries of each go together."""
    solver = load("sudoku-mini", "cpu", fast=False)
    problem, starts = some_puzzles(solver, 3), []

    def count_rounds(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        starts.extend([len(inputs[0])] * bool(inputs[1].flatten()[0] == 1))

    solver.engine.smaller = lambda whole, size, left, cells: size  # as a graph that was built for 12
    hook = solver.network.register_forward_pre_hook(count_rounds)
    how = {"rule": "ddpm", "steps": 4, "tries": 8, "verify": False}
    together = solver.solve(problem, batch=12, **how)
    rounds = list(starts)
    starts.clear()
    one_by_one = solver.solve(problem, batch=3, **how)
    hook.remove()
    assert told(together) == told(one_by_one)
    assert {answer.tries for answer in together} == {8}  # the model has no mark, so all are taken
    assert (rounds, starts) == ([12] * 2, [3] * 8)


def test_until_sure_counts_every_try_as_before() -> None:
    """Against tries that are sampled all, whatever the network believes."""
    solver = load("sudoku-mini", "cpu")
    problem = replace(some_puzzles(solver, 25), number=torch.arange(25) + 100)
    sampler, tries, sure = solver.sampler("ddpm", 5), 4, -0.2
    states = solver.sample(problem, sampler, 3, tries).unflatten(0, (tries, -1))
    boards = torch.stack([solver.read(x, problem) for x in states])
    belief = torch.stack([solver.self_likelihood(each, problem, 3) for each in boards])
    columns = until_sure(solver, problem, sampler, tries, Doubt(sure), 3, batch=7)
    taken = [next((i + 1 for i in range(tries) if belief[i, j] > sure), tries) for j in range(25)]
    assert len(set(taken)) > 1
    chosen = torch.tensor([int(belief[:n, j].argmax()) for j, n in enumerate(taken)])
    valid = torch.stack([solver.task.validate(each, problem) for each in boards])
    answered = valid[chosen, torch.arange(25)]
    assert columns["validity"].values[:, 0].tolist() == answered.float().tolist()
    assert columns["first_try"].values[:, 0].tolist() == valid[0].float().tolist()
    assert columns["tries_per_instance"].values[:, 0].tolist() == taken
    assert columns["calls_per_instance"].values[:, 0].tolist() == [13 * n for n in taken]
    best = states[chosen, torch.arange(25)]
    from letgo.metrics import codeword_distances

    expected = codeword_distances(best, problem.given, solver.codec)
    assert torch.allclose(columns["codeword_distance"].values[:, 0], expected.to(columns["codeword_distance"].values))


def doubted_one_by_one(solver: Solver, problem: Problem, sampler: Sampler, tries: int, mark: float) -> list[tuple]:
    """Walk each puzzle and try alone: its tries, calls, whether it was believed, and whether its board is valid."""
    number, columns = identities(problem), []
    for i in range(len(problem)):
        one, best, calls, tried = problem[i : i + 1], (-INF, False), 0, 0
        while tried < tries and best[0] <= mark:
            noise, before, belief = Noise(3, number[i : i + 1], torch.tensor([tried])), None, -INF
            for shot in solver.sample_engine.walk(sampler, solver.clues(one), noise):
                board, calls = solver.read(shot.x0_hat, one), calls + 1
                if before is not None:
                    chance = shot.x0_hat[0].gather(1, before[0][:, None])[:, 0].clamp(1e-4, 1)
                    belief = float(chance.log()[~one.given[0]].sum())
                if belief > mark:
                    break
                before = board
            best, tried = max(best, (belief, bool(solver.task.validate(board, one)))), tried + 1
        columns.append((tried, calls, best[0] > mark, best[1]))
    return columns


def test_a_try_ends_with_the_first_board_that_the_next_proposal_believes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against each puzzle and try walked alone, whatever is in the batch; no call is made for the belief."""
    solver, mark = load("sudoku-mini", "cpu", precision="fp32"), -0.5
    problem, sampler, tries = some_puzzles(solver, 8), solver.sampler("resample", 8), 2
    columns = doubted_one_by_one(solver, problem, sampler, tries, mark)
    monkeypatch.setattr(
        Solver, "tuning", lambda self, rule, regime=None: {"best": {"sure": -9.0, "sure_early": mark}, "steps": 8}
    )
    assert len({tried for tried, *_ in columns}) > 1
    assert min(calls for _, calls, *_ in columns) < 8
    numbered = replace(problem, number=identities(problem))
    names = ("tries_per_instance", "calls_per_instance", "believed")
    for batch in (3, 8):
        found = until_sure(solver, numbered, sampler, tries, Doubt(mark, True), 3, batch)
        told = zip(*(found[name].values[:, 0].tolist() for name in (*names, "validity")), strict=True)
        assert [*told] == columns
    answers = solver.solve(problem, rule="resample", tries=tries, seed=3, verify=False)
    assert [(a.tries, a.calls, a.belief > mark, a.solved) for a in answers] == columns


def padding(kind: str) -> Solver:
    """Return a solver whose engine pads a batch to its full size."""
    solver = load("sudoku-mini", "cpu", fast=False)
    if kind == "graph":
        solver.engine = solver.sample_engine = Graph(solver.network, solver.path, CPU, "fp32", compiled=False)
    else:
        solver.engine.smaller = lambda whole, size, left, cells: size
    return solver


def run_all(slots: Slots) -> list[int]:
    """Settle all puzzles; return the size of each batch that went through the network."""
    sizes: list[int] = []
    hook = slots.solver.network.register_forward_pre_hook(lambda _, inputs: sizes.append(len(inputs[0])))
    for _ in slots.run():
        pass
    hook.remove()
    return sizes


@pytest.mark.parametrize("kind", ["graph", "plain"])
@pytest.mark.parametrize("doubting", [False, True])
def test_tries_that_run_ahead_change_no_answer(kind: str, doubting: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight puzzles, five tries each: a batch of 5 is full at first and runs ahead at its end, one of 40 at once."""
    solver, mark, tries, steps = padding(kind), -0.5, 5, 6 if doubting else 3
    table = {"best": {"sure": None, "sure_early": mark}, "steps": steps}
    monkeypatch.setattr(Solver, "tuning", lambda self, rule, regime=None: table)
    problem, rule = some_puzzles(solver, 8), "resample" if doubting else "ddpm"
    how = {"rule": rule, "steps": steps, "tries": tries, "verify": not doubting, "seed": 3 if doubting else 1}
    alone, ahead = solver.solve(problem, batch=1, **how), 0
    if doubting:
        expected = doubted_one_by_one(solver, problem, solver.sampler(rule, steps), tries, mark)
        assert [(a.tries, a.calls, a.belief > mark, a.solved) for a in alone] == expected
    else:
        assert told(alone) == one_by_one(solver, problem, solver.sampler(rule, steps), tries, True)
    assert len({answer.tries for answer in alone}) > 2
    for batch in (40, 12, 5):
        slots = solver.slots(problem, batch=batch, **how)
        sizes, answers = run_all(slots), slots.ledger.answers(solver.task)
        assert [(a.board, a.solved, a.tries, a.calls) for a in answers] == [
            (a.board, a.solved, a.tries, a.calls) for a in alone
        ]
        beliefs = torch.tensor([[a.belief or 0.0, b.belief or 0.0] for a, b in zip(answers, alone, strict=True)])
        torch.testing.assert_close(beliefs[:, 0], beliefs[:, 1], atol=2e-4, rtol=1e-3)
        assert slots.rows == sum(sizes)
        ahead += int((slots.begun - slots.ledger.tries).sum())
        if batch == 40:  # all tries of all puzzles at once
            assert len(sizes) <= steps < max(answer.calls for answer in answers)
    assert ahead > 8  # tries that were begun and do not count


@pytest.mark.parametrize("kind", ["graph", "plain"])
def test_a_puzzle_that_is_never_settled_takes_a_few_rounds(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three puzzles, eight tries of four steps: in twelve rows two rounds, in three rows eight."""
    solver = padding(kind)
    monkeypatch.setattr(Solver, "tuning", lambda self, rule, regime=None: {"best": {"sure_early": 1.0}, "steps": 4})
    problem, found = some_puzzles(solver, 3), []
    for batch, calls in ((12, 8), (3, 32)):
        slots = solver.slots(problem, "resample", tries=8, verify=False, batch=batch)
        assert run_all(slots) == [batch] * calls
        assert (slots.ledger.tries.tolist(), slots.ledger.calls.tolist()) == ([8] * 3, [32] * 3)
        found.append(told(slots.ledger.answers(solver.task)))
    assert [each[:4] for each in found[0]] == [each[:4] for each in found[1]]


@pytest.mark.fast
def test_free_rows_go_to_the_puzzles_with_the_fewest_tries() -> None:
    solver = padding("plain")
    slots = solver.slots(some_puzzles(solver, 4), "ddpm", steps=4, tries=5, batch=8)
    slots.begun[:] = slots.ledger.tries[:] = torch.tensor([4, 1, 0, 5])
    who, attempt = slots.begin(torch.tensor([], dtype=torch.long), torch.tensor([0, 1, 2]))
    assert [*zip(who.tolist(), attempt.tolist(), strict=True)] == [
        (0, 4), (1, 1), (2, 0), (2, 1), (1, 2), (2, 2), (1, 3), (2, 3)
    ]  # fmt: skip
    assert slots.begun.tolist() == [5, 4, 4, 5]
    who, attempt = slots.begin(who[1:], torch.tensor([1, 2]))  # tries of both are on their way
    assert (who.tolist(), attempt.tolist()) == ([1], [4])
    assert (
        solver.slots(some_puzzles(solver, 4), "ddpm", tries=5, batch=3)
        .begin(torch.arange(0), torch.arange(3))[1]
        .tolist()
        == [0] * 3
    )


def test_a_batch_shrinks_to_a_size_that_is_built_when_all_tries_are_begun() -> None:
    solver = padding("graph")
    problem, how = some_puzzles(solver, 12), {"rule": "ddpm", "steps": 6, "tries": 3}
    expected = told(solver.solve(problem, batch=1, **how))
    solver.solve(problem, batch=8, **how)
    slots = solver.slots(problem, batch=16, **how)
    sizes = run_all(slots)
    assert sizes == sorted(sizes, reverse=True)
    assert {*sizes} == {16, 8, 1}
    assert told(slots.ledger.answers(solver.task)) == expected


def test_only_tries_that_count_cost_time() -> None:
    solver = padding("plain")
    slots = solver.slots(some_puzzles(solver, 2), "ddpm", steps=3, tries=6, batch=12)
    started = time.perf_counter()
    sizes, elapsed = run_all(slots), time.perf_counter() - started
    assert slots.rows == 12 * len(sizes)
    assert 0.3 * elapsed < float(slots.ledger.seconds.sum()) < elapsed


def test_what_a_network_answers_where_a_clue_is_changes_no_board(monkeypatch: pytest.MonkeyPatch) -> None:
    """No loss asks for it (Algorithm 2), so any answer is right there; on the way and at the end clues count."""
    solver = load("sudoku-mini", "cpu", fast=False)
    problem, sampler = some_puzzles(solver, 12), solver.sampler("tweedie", 6)
    numbered, found = replace(problem, number=torch.arange(12)), []
    for _ in range(2):
        columns = until_sure(solver, numbered, sampler, 3, Doubt(-0.3, True), 3)
        last, asked, right = walked(solver, numbered, sampler, 3, None)
        found.append([*(column.values for column in columns.values()), last, asked, right])
        answer = solver.network.answer

        def elsewhere(x_t: Tensor, t: Tensor, raw: Tensor, answer=answer) -> Tensor:
            clue = ((x_t == 0) | (x_t == 1)).all(-1, keepdim=True)  # noise never is
            return torch.where(clue, x_t.roll(1, -1), answer(x_t, t, raw))

        monkeypatch.setattr(solver.network, "answer", elsewhere)
    assert 0 < found[0][0].sum() < 12
    assert all(torch.equal(first.nan_to_num(-1), second.nan_to_num(-1)) for first, second in zip(*found, strict=True))


@pytest.mark.fast
def test_only_rules_that_let_go_of_the_state_are_doubted_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    solver, marks = load("sudoku-mini", "cpu"), {"sure": -0.1, "sure_early": -0.01}
    assert solver.mark(solver.sampler("tweedie")) == (None, False)
    monkeypatch.setattr(Solver, "tuning", lambda self, rule, regime=None: {"best": marks})
    assert solver.mark(solver.sampler("tweedie")) == solver.mark(solver.sampler("resample")) == (-0.01, True)
    for sampler, whole in ((solver.sampler("ddpm"), False), (solver.sampler("tweedie", 1), False),
                           (solver.sampler("tweedie"), True)):  # fmt: skip
        assert solver.mark(sampler, whole) == (-0.1, False)
    marks["sure_early"] = None  # no likelihood on the way tells right from wrong
    assert solver.mark(solver.sampler("tweedie")) == (-0.1, False)


@pytest.mark.fast
def test_tries_are_short_where_the_model_has_a_mark_of_either_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    solver, table = load("sudoku-mini", "cpu"), {}
    monkeypatch.setattr(Solver, "tuning", lambda self, rule, regime=None: table)
    assert (solver.short_try, solver.steps_of_tries(None, 9)) == (None, 50)
    for marks in ({"sure": -0.1}, {"sure": None, "sure_early": -0.1}):
        table |= {"best": marks, "steps": 7}
        asked = solver.steps_of_tries(None, 2), solver.steps_of_tries(None, 1), solver.steps_of_tries(3, 2)
        assert (solver.short_try, *asked) == (7, 7, 50, 3)
    table |= {"best": {"sure": None, "sure_early": None}}
    assert solver.short_try is None
    assert solver.slots(["." * 16], tries=2).sampler.steps == 50


def test_graphs_share_a_batch_at_different_steps() -> None:
    """Their network is not packed and is told a context."""
    config = replace(PRESETS["connectivity"], network_options={"width": 8})
    torch.manual_seed(0)
    solver = Solver(config, config.build_model(), "cpu")
    assert isinstance(solver.network, NeuralLogicMachine)
    problem, sampler = source_of(solver.task).draw("test", None, 4, 0), solver.sampler("ddpm", 3)
    clues, context, noise = solver.clues(problem), solver.context(problem), Noise.first(0, 4)
    assert context is not None
    alone = [
        list(solver.engine.walk(sampler, clues[i], noise[i], context[i])) for i in (slice(j, j + 1) for j in range(4))
    ]
    steps = [0, 2, 1, 0]
    x = torch.cat([solver.engine.begin(clues, noise, context).x[i : i + 1] if n == 0 else alone[i][n - 1].x
                   for i, n in enumerate(steps)])  # fmt: skip
    slots = solver.engine.slots(sampler)
    slots.seat(clues, noise, context, Walk(x, None, torch.tensor(steps)))
    slots.step()
    assert torch.equal(slots.walk.x, torch.cat([alone[i][n].x for i, n in enumerate(steps)]))
