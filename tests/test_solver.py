"""Solving, generating, measuring and tuning. Networks that know the answer test the solver, not the learning."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import letgo
from letgo.codecs import OneHot
from letgo.data.source import source_of
from letgo.errors import LetgoError
from letgo.evaluation import evaluate
from letgo.machine import pick_device
from letgo.models.denoiser import ExactDenoiser
from letgo.paths import CosinePath
from letgo.presets import PRESETS
from letgo.rng import Noise
from letgo.runs import locate, write_json
from letgo.sampling import BELIEF_TIMES
from letgo.solver import Solver, identities, load
from letgo.tasks import Problem
from letgo.tasks.connectivity import reachability
from letgo.tune import grid_of, tune

MINI = PRESETS["sudoku-mini"]
PUZZLES = ["1234341221434321", "1.3..4.2........", "..............3.", ".1.2..3.........", "4......1..2....."]
HARD = "................"
CONTRACT = ["puzzle", "solved", "board", "tries", "calls", "seconds"]


class Oracle(nn.Module):
    """E[x0 | x_t] over all 288 boards that agree with the clues, which it tells from noise by their being exact."""

    def __init__(self, boards: Tensor) -> None:
        super().__init__()
        self.states, self.boards = OneHot(4).encode(boards), boards
        self.exact = ExactDenoiser(self.states, CosinePath())
        self.calls: list[tuple[int, float]] = []
        self.seen: list[Tensor] = []

    def forward(self, x_t: Tensor, t: Tensor, context: Tensor | None = None) -> Tensor:
        self.calls.append((len(x_t), float(t.flatten()[0])))
        self.seen.append(x_t)
        weights = self.exact.log_weights(x_t, t)
        clue = (x_t == OneHot(4).encode(x_t.argmax(-1))).all(-1)
        wrong = clue[:, None] & (self.boards[None] != x_t.argmax(-1)[:, None])
        weights = weights.masked_fill(wrong.any(-1), -1e9)
        return (weights.softmax(1) @ self.states.flatten(1)).view_as(x_t)


class Deaf(Oracle):
    """The same without the clues: it often fails, and how often depends on the noise."""

    def forward(self, x_t: Tensor, t: Tensor, context: Tensor | None = None) -> Tensor:
        self.calls.append((len(x_t), float(t.flatten()[0])))
        self.seen.append(x_t)
        return self.exact(x_t, t.expand(len(x_t), 1, 1))


class Always(nn.Module):
    """One board, whatever it is asked."""

    def __init__(self, board: str) -> None:
        super().__init__()
        self.board = OneHot(4).encode(torch.tensor([[int(c) - 1 for c in board]]))

    def forward(self, x_t: Tensor, t: Tensor, context: Tensor | None = None) -> Tensor:
        return self.board.expand_as(x_t)


@pytest.fixture
def solver(mini_boards: Tensor) -> Solver:
    return Solver(MINI, Oracle(mini_boards))


@pytest.fixture
def deaf(mini_boards: Tensor) -> Solver:
    return Solver(MINI, Deaf(mini_boards))


@pytest.fixture(scope="module")
def drawn() -> Solver:
    """The real network, its weights as first drawn."""
    torch.manual_seed(0)
    return Solver(MINI, MINI.build_model())


def network(solver: Solver) -> Oracle:
    assert isinstance(solver.network, Oracle)
    return solver.network


def keeps(puzzle: str, board: str) -> bool:
    return all(clue in (".", cell) for clue, cell in zip(puzzle, board, strict=True))


def valid(board: str) -> bool:
    rows = [board[i : i + 4] for i in range(0, 16, 4)]
    columns = ["".join(row[i] for row in rows) for i in range(4)]
    boxes = [rows[r][c : c + 2] + rows[r + 1][c : c + 2] for r in (0, 2) for c in (0, 2)]
    return all(sorted(unit) == list("1234") for unit in rows + columns + boxes)


@pytest.mark.fast
def test_answers_are_records_of_the_contract(solver: Solver) -> None:
    answers = solver.solve(PUZZLES, steps=20)
    assert [answer.puzzle for answer in answers] == PUZZLES
    for puzzle, answer in zip(PUZZLES, answers, strict=True):
        record = json.loads(json.dumps(answer.as_dict()))
        assert list(record) == CONTRACT
        assert answer.solved
        assert answer.board is not None
        assert valid(answer.board)
        assert keeps(puzzle, answer.board)
        assert answer.tries == 1
        assert 1 <= answer.calls <= 20
        assert answer.seconds >= 0


def results(answers: Sequence[letgo.solver.Answer]) -> dict[str, tuple[object, ...]]:
    return {a.puzzle: (a.solved, a.board, a.tries, a.calls) for a in answers}


def test_an_answer_does_not_depend_on_its_batch_or_order(deaf: Solver) -> None:
    puzzles = PUZZLES + [f"{HARD[:i]}{1 + i % 4}{HARD[i + 1 :]}" for i in range(7)]
    together = results(deaf.solve(puzzles, steps=12, tries=2))
    assert len({calls for *_, calls in together.values()}) > 3  # they do differ among themselves
    assert results(deaf.solve(puzzles[::-1], steps=12, tries=2)) == together
    alone = [deaf.solve([puzzle], steps=12, tries=2)[0] for puzzle in puzzles]
    assert results(alone) == together


def final_states(solver: Solver, problem: Problem) -> Tensor:
    ids = identities(problem)
    ddpm = solver.sampler("ddpm", 8)
    parts = []
    for count, part, noise in solver.chunks(problem, Noise(0, ids, torch.zeros_like(ids)), None):
        *_, last = solver.walk(part, noise, ddpm)
        parts.append(last.x[:count])
    return torch.cat(parts)


@pytest.mark.parametrize("preset", ["sudoku-mini", "latin", "connectivity"])
def test_on_the_cpu_a_state_is_the_same_to_the_last_bit_in_any_company(preset: str) -> None:
    torch.manual_seed(0)
    config = PRESETS[preset]
    solver = Solver(config, config.build_model())
    problem = source_of(solver.task).draw("test", None, 11, 0)
    order = torch.randperm(11, generator=torch.Generator().manual_seed(0))
    together = final_states(solver, problem)
    assert torch.equal(final_states(solver, problem[order]), together[order])
    assert torch.equal(torch.cat([final_states(solver, problem[i : i + 1]) for i in (0, 5, 10)]), together[[0, 5, 10]])


def test_noise_follows_the_number_that_an_instance_carries(drawn: Solver) -> None:
    tweedie, problem = drawn.sampler("tweedie", 6), source_of(drawn.task).draw("test", None, 9, 0)
    numbered, problem = problem, replace(problem, number=None)
    many = drawn.sample(problem, tweedie, tries=2).unflatten(0, (2, 9))
    rows = torch.tensor([7, 2, 3])
    assert torch.equal(drawn.sample(numbered[rows], tweedie, tries=2).unflatten(0, (2, 3)), many[:, rows])
    assert not torch.equal(drawn.sample(replace(problem[rows], number=None), tweedie), many[0, rows])
    boards = drawn.codec.decode(many.flatten(0, 1)).unflatten(0, (2, 9))
    best = drawn.most_believed(boards, numbered)
    assert torch.equal(drawn.most_believed(boards[:, rows], numbered[rows]), best[rows])


def test_a_puzzle_is_known_by_its_clues_alone(drawn: Solver) -> None:
    solved, blank = drawn.task.parse("1234341221434321"), drawn.task.parse(PUZZLES[1])
    clues = Problem(solved.solution, blank.given)
    same = Problem(torch.where(blank.given, clues.solution, 0), blank.given)
    assert torch.equal(identities(clues), identities(same))
    many = Problem.cat([drawn.task.parse(p) for p in PUZZLES])
    assert len(identities(many).unique()) == len(PUZZLES)


def test_solving_stops_at_the_first_valid_proposal(solver: Solver) -> None:
    answer = solver.solve([PUZZLES[0][:15] + "."], steps=40)[0]  # one blank: the first proposal is right
    assert (answer.calls, len(network(solver).calls)) == (1, 1)


@pytest.mark.fast
def test_a_valid_board_that_breaks_the_clues_is_never_an_answer() -> None:
    liar = Solver(MINI, Always("1234341221434321"))
    right, wrong = liar.solve(["1234............", "4321............"], steps=5, tries=2)
    assert (right.solved, right.board, right.calls) == (True, "1234341221434321", 1)
    assert (wrong.solved, wrong.board, wrong.tries, wrong.calls) == (False, None, 2, 10)


def test_an_invalid_board_is_never_an_answer_even_without_verification() -> None:
    wrong = Solver(MINI, Always("1111222233334444"))
    for verify in (True, False):
        answer = wrong.solve([HARD], steps=4, verify=verify)[0]
        assert (answer.solved, answer.board) == (False, None)


def test_only_the_unsolved_are_tried_again_and_with_new_noise(deaf: Solver) -> None:
    puzzles = [f"{HARD[:i]}{1 + (i * 7) % 4}{HARD[i + 1 : 9]}{1 + i % 4}{HARD[10:]}" for i in range(6)]
    once = deaf.solve(puzzles, steps=6)
    failed = [a.puzzle for a in once if not a.solved]
    assert 0 < len(failed) < 6, "the seed must leave some, not all, for a second try"
    network(deaf).calls.clear()
    network(deaf).seen.clear()
    twice = deaf.solve(puzzles, steps=6, tries=4)
    for first, later in zip(once, twice, strict=True):
        if first.solved:
            assert (later.board, later.tries, later.calls) == (first.board, 1, first.calls)
        else:
            assert later.tries > 1
            assert later.calls > 6
    starts = [x for x, (_, t) in zip(network(deaf).seen, network(deaf).calls, strict=True) if t == 1]
    assert len(starts) == max(answer.tries for answer in twice)
    free = deaf.task.parse(failed[0]).given[0].logical_not()
    assert not torch.equal(starts[0][puzzles.index(failed[0])][free], starts[1][0][free])


def test_without_verification_every_step_is_taken_and_nothing_is_retried(solver: Solver) -> None:
    answer = solver.solve(PUZZLES, steps=9, verify=False)[1]
    assert (answer.solved, answer.calls, answer.tries) == (True, 9, 1)
    assert len(network(solver).calls) == 9


def test_without_verification_the_network_chooses_among_tries(deaf: Solver, monkeypatch: pytest.MonkeyPatch) -> None:
    puzzles = [f"{HARD[:i]}{1 + (i * 7) % 4}{HARD[i + 1 : 9]}{1 + i % 4}{HARD[10:]}" for i in range(6)]
    believed = []

    def belief(boards: Tensor, problem: Problem, noise: Noise) -> Tensor:
        believed.append(boards)
        return torch.tensor([1.0, 3.0, 2.0])[len(believed) - 1].expand(len(boards))

    monkeypatch.setattr(deaf, "belief", belief)
    answers = deaf.solve(puzzles, steps=6, tries=3, verify=False)
    shown = deaf.task.format(believed[1], deaf.parse(puzzles))
    assert [a.board for a in answers if a.solved] == [b for a, b in zip(answers, shown, strict=True) if a.solved]
    valid = deaf.task.validate(believed[1], deaf.parse(puzzles))
    assert [a.solved for a in answers] == valid.tolist()  # never an invalid board, and never another try's
    assert {(a.tries, a.calls, a.belief) for a in answers} == {(3, 3 * (6 + len(BELIEF_TIMES)), 3.0)}
    assert deaf.solve(puzzles, steps=2, verify=False)[0].belief is None


def test_every_try_meets_the_same_noise_when_boards_are_compared() -> None:
    solver = load("sudoku-mini")
    problem = source_of(solver.task).draw("test", "4", 5, 0)
    tries = solver.codec.decode(solver.sample(problem, solver.sampler("ddpm", 5), tries=3)).unflatten(0, (3, -1))
    noise = Noise(0, torch.arange(5), torch.full((5,), 7))
    sure = torch.stack([solver.belief(boards, problem, noise) for boards in tries])
    assert torch.equal(solver.most_believed(tries, problem), sure.argmax(0))
    assert torch.equal(solver.most_believed(tries, problem, batch=2), sure.argmax(0))
    assert torch.equal(solver.belief(tries[0], problem, noise), solver.belief(tries[0], problem, noise))


def test_a_trained_network_knows_broken_boards_without_the_rules(mini_boards: Tensor) -> None:
    """Of all 288 boards and as many with two cells of a row swapped, which break columns or boxes."""
    solver = load("sudoku-mini")
    swapped = mini_boards[:, [1, 0, *range(2, 16)]]
    problem = solver.empty(len(mini_boards))
    assert not solver.task.validate(swapped, problem).any()
    noise = Noise.first(0, len(mini_boards))
    right, wrong = (solver.belief(boards, problem, noise) for boards in (mini_boards, swapped))
    assert (right[:, None] > wrong).float().mean() > 0.999
    assert (solver.most_believed(torch.stack([swapped, mini_boards]), problem) == 1).all()


def test_chosen_boards_are_reported_and_drawn(mini_boards: Tensor) -> None:
    solver = load("sudoku-mini")
    problem = source_of(solver.task).draw("test", "4", 60, 1)
    ddpm = solver.sampler("ddpm", 6)
    report = evaluate(solver, problem, ddpm, passes=6, seed=3)
    boards = solver.draw(problem, ddpm, 3, 6)
    assert report.chosen_at_k.value == pytest.approx(solver.task.validate(boards, problem).float().mean().item())
    assert report.validity.value < report.chosen_at_k.value <= report.pass_at_k.value
    assert report.chosen_at_k.more["k"] == 6
    assert "chosen_at_k" not in evaluate(solver, problem, solver.sampler("ddpm", 2)).as_dict()
    assert solver.generate(3, tries=2, steps=4, soft_until=0.5) != solver.generate(3, tries=1, steps=4)


def test_only_one_hot_boards_are_believed() -> None:
    bits = Solver(replace(MINI, codec="bits"), Always("1234341221434321"))
    for ask in (lambda: bits.generate(2, tries=2), lambda: bits.solve([HARD], tries=2, verify=False)):
        with pytest.raises(LetgoError, match="needs one-hot symbols, and this model has codec bits"):
            ask()


WRONG = {
    "s.solve(None)": "puzzles must be a list of strings; wrap a single one",
    "s.solve(p for p in 'ab')": "puzzles must be a list of strings; wrap a single one",
    "s.solve([1])": "puzzles must be strings, one each",
    "s.trajectory(['.' * 16])": "puzzles must be strings, one each",
    "s.solve(['.' * 16], rule=letgo.kernels.tweedie)": "a model's rule is given by its name, such as 'tweedie';",
    "s.solve(['.' * 16], steps=2.5)": "steps must be a whole number, got 2.5",
    "s.solve(['.' * 16], tries=1.5)": "tries must be a whole number, got 1.5",
    "s.solve(['.' * 16], seed=None)": "seed must be a whole number, got None",
    "s.solve(['.' * 16], sigmaa=1.0)": "unknown setting 'sigmaa'; did you mean sigma?",
    "s.solve(['.' * 16], rule='em', sigma='a')": "sigma must be a number, got 'a'",
    "s.generate('3')": "count must be a whole number, got '3'",
    "letgo.load(None)": "a model is given by its name or its run folder, got None",
    "letgo.load('sudoku-mini', threads=0).generate(1)": "threads must be at least 1, got 0",
    "letgo.evaluate('sudoku-mini', rule='ddpm', count='5')": "count must be a whole number, got '5'",
    "letgo.evaluate('sudoku-mini', rule='ddpm', n=5)": "unknown setting 'n'; choose one of sigma, tau_start",
    "letgo.evaluate('sudoku-mini', rule='ddpm', regime=99)": "unknown regime '99'; choose 4, medium",
}


def test_wrong_types_are_refused_in_words_where_no_checker_runs() -> None:
    lines = ["import letgo", "s = letgo.load('sudoku-mini', 'cpu')"]
    for one in WRONG:
        lines += ["try:", f"    {one}", "    print('taken')", "except letgo.LetgoError as error:", "    print(error)"]
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
    told = dict(zip(WRONG, done.stdout.splitlines(), strict=True))
    assert {asked: line for asked, line in told.items() if not line.startswith(WRONG[asked])} == {}


def test_a_solver_says_what_it_is() -> None:
    assert repr(letgo.load("sudoku-mini", "cpu")).endswith(
        "sudoku, 16 cells of 4 symbols, Transformer of 63,460 weights on cpu, tweedie in 50 steps>"
    )


@pytest.mark.parametrize(
    ("name", "said"), [("cuda:7", "'cuda:7' is not available here; use --device"), ("cpu:x", "unknown")]
)
def test_a_device_that_is_not_there_is_refused(name: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LetgoError, match=said):
        pick_device(name)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert pick_device("cuda:1") == torch.device("cuda", 1)
    with pytest.raises(LetgoError, match="use --device cuda:0 or cuda:1"):
        pick_device("cuda:2")


def test_a_trajectory_shows_every_step_of_the_answer(deaf: Solver) -> None:
    puzzle = PUZZLES[3]
    answer = deaf.solve([puzzle], rule="ddpm", steps=10, tries=5)[0]
    steps_before = (answer.tries - 1) * 10
    snapshots = list(deaf.trajectory(puzzle, rule="ddpm", steps=10, attempt=answer.tries - 1))
    assert [snapshot.t for snapshot in snapshots] == pytest.approx([1 - i / 10 for i in range(1, 11)])
    clues = deaf.clues(deaf.task.parse(puzzle))
    for snapshot in snapshots:
        assert snapshot.x.shape == snapshot.x0_hat.shape == (1, 16, 4)
        assert torch.equal(snapshot.x[clues.given], clues.values[clues.given])
    assert answer.solved
    proposal = clues.pin(snapshots[answer.calls - steps_before - 1].x0_hat)
    assert deaf.task.format(deaf.codec.decode(proposal), deaf.task.parse(puzzle)) == [answer.board]


def test_soft_pinning_lets_early_clues_be_noisy(solver: Solver) -> None:
    clues = solver.clues(solver.task.parse(PUZZLES[0]))
    for snapshot in solver.trajectory(PUZZLES[0], steps=10, soft_until=0.55):
        exact = torch.equal(snapshot.x, clues.values)
        assert exact == (snapshot.t < 0.55)
    assert solver.solve([PUZZLES[1]], steps=20, soft_until=0.5, tries=10)[0].solved


def test_generation_takes_the_rule_that_the_card_names(tmp_path: Path):
    solver = letgo.load("sudoku-mini")
    solver.folder = tmp_path
    assert solver.generation_rule() == "tweedie"
    (tmp_path / "card.json").write_text('{"generation_rule": "ddpm"}')
    assert solver.generation_rule() == "ddpm"


def test_generated_boards_are_text_seeded_and_not_filtered(solver: Solver, drawn: Solver) -> None:
    boards = solver.generate(12, seed=3, steps=30)
    assert len(boards) == 12
    assert all(valid(board) for board in boards)
    assert len(set(boards)) > 6
    assert solver.generate(12, seed=3, steps=30) == boards
    assert solver.generate(12, seed=4, steps=30) != boards
    assert not any(valid(board) for board in drawn.generate(5, steps=5))


@pytest.mark.parametrize("name", ["connectivity", "maze"])
def test_a_task_that_answers_questions_generates_nothing_without_one(name: str) -> None:
    config = replace(PRESETS[name], network_options={"width": 8} if name == "connectivity" else {"depth": 1})
    with pytest.raises(LetgoError, match="nothing to generate"):
        Solver(config, config.build_model()).generate(1)


class Reachable(nn.Module):
    """Answers from the adjacency it is given as context."""

    def forward(self, x_t: Tensor, t: Tensor, context: Tensor | None = None) -> Tensor:
        assert context is not None
        return OneHot(2).encode(reachability(context).flatten(1).long())


@pytest.mark.fast
def test_graphs_of_any_size_are_solved_through_their_context() -> None:
    solver = Solver(PRESETS["connectivity"], Reachable())
    path, pair = "010/101/010", "010/100/000"
    first, second = solver.solve([path, pair], steps=3)
    assert (first.puzzle, first.board) == (path, "111/111/111")
    assert (second.puzzle, second.board) == (pair, "110/110/001")
    assert solver.solve(["01/10"], steps=3)[0].board == "11/11"
    with pytest.raises(LetgoError, match="puzzle 2: 9 cells after puzzles of 4"):
        solver.solve(["01/10", path])


def test_codes_that_are_no_symbol_are_invalid_and_still_printable() -> None:
    """Nine symbols in four bits leave seven codes that mean nothing."""

    class AllOnes(nn.Module):
        def forward(self, x_t: Tensor, t: Tensor, context: Tensor | None = None) -> Tensor:
            return torch.ones_like(x_t)

    solver = Solver(PRESETS["sudoku-bits"], AllOnes())
    assert not solver.solve(["." * 81], steps=2)[0].solved
    report = evaluate(solver, source_of(solver.task).draw("test", "21", 4, 0), solver.sampler("tweedie", 2))
    assert (report.validity.value, report.violation_rate.value) == (0.0, 1.0)
    assert len(solver.generate(1, steps=2)[0]) == 81
    with pytest.raises(LetgoError, match="rule 'resample' does not fit a model with CosinePath and AnalogBits"):
        solver.solve(["." * 81], rule="resample")


@pytest.mark.parametrize(
    ("do", "message"),
    [
        (lambda s: s.solve("1.3..4.2........"), "must be a list of strings"),
        (lambda s: s.solve([]), "no puzzles to solve"),
        (lambda s: s.solve(["123"]), "expected 16 cells, got 3"),
        (lambda s: s.solve(["11.............."]), "clues clash"),
        (lambda s: s.solve([HARD], tries=0), "tries must be at least 1, got 0"),
        (lambda s: s.solve([HARD], steps=0), "steps must be at least 1, got 0"),
        (lambda s: s.solve([HARD], batch=0), "batch must be at least 1, got 0"),
        (lambda s: s.solve([HARD], rule="guess"), "unknown rule 'guess'; choose one of ddpm"),
        (lambda s: s.solve([HARD], rule="em"), "rule 'em' needs --sigma"),
        (lambda s: s.solve([HARD], rule="em-decay", sigma=3.0), "rule 'em-decay' needs --sigma and --tau-start"),
        (lambda s: s.solve([HARD], sigma=3.0), "takes no sigma"),
        (lambda s: list(s.trajectory("12")), "expected 16 cells"),
        (lambda s: s.generate(1, rule="guess"), "unknown rule"),
        (lambda s: evaluate(s, s.task.parse(HARD), s.sampler("ddpm"), passes=0), "passes must be at least 1"),
        (lambda s: source_of(s.task).draw("test", None, 0, 0), "count must be at least 1"),
        (lambda s: source_of(s.task).draw("test", "hardest", 1, 0), "unknown regime 'hardest'; did you mean hard"),
        (lambda s: source_of(s.task, "nowhere.npz").draw("test", None, 1, 0), r"nowhere\.npz"),
    ],
)
def test_wrong_input_is_refused_in_one_line(do: Callable[[Solver], object], message: str, drawn: Solver) -> None:
    with pytest.raises(LetgoError, match=message) as error:
        do(drawn)
    assert "\n" not in str(error.value)


def test_devices_are_checked() -> None:
    assert pick_device("cpu") == pick_device(torch.device("cpu")) == torch.device("cpu")
    assert pick_device("auto").type in ("cpu", "cuda", "mps")
    with pytest.raises(LetgoError, match="unknown device 'tpu'"):
        pick_device("tpu")
    if not torch.cuda.is_available():
        with pytest.raises(LetgoError, match="'cuda' is not available here; use --device cpu"):
            pick_device("cuda")


def test_tuned_settings_come_with_the_model_and_given_ones_win(mini_boards: Tensor, tmp_path: Path) -> None:
    solver = Solver(MINI, Oracle(mini_boards), folder=tmp_path)
    write_json(tmp_path / "tune-em-decay.json", {"best": {"sigma": 3.0, "tau_start": 0.7, "validity": 1.0}})
    assert solver.sampler("em-decay").settings == {"sigma": 3.0, "tau_start": 0.7}
    assert solver.sampler("em-decay", sigma=5.0).settings == {"sigma": 5.0, "tau_start": 0.7}
    assert solver.sampler("tweedie", variance=2.0).settings == {"variance": 2.0}
    assert (solver.sampler().steps, solver.sampler(steps=7).steps) == (MINI.sample_steps, 7)
    assert solver.solve([PUZZLES[1]], rule="em-decay", steps=30)[0].solved
    with pytest.raises(LetgoError, match="rule 'em' needs --sigma"):
        solver.sampler("em")
    for text in ("{half", "[]", "{}"):
        (tmp_path / "tune-em.json").write_text(text)
        with pytest.raises(LetgoError, match=r"tune-em\.json"):
            solver.sampler("em")


def test_tuning_takes_the_best_mean_over_folds_and_the_smaller_sigma_on_a_tie(solver: Solver) -> None:
    problem = source_of(solver.task).draw("valid", "8", 10, 0)
    seen: list[tuple[float | int, int]] = []
    table = tune(solver, problem, grid_of(solver, "em", (0.2, 30.0, 0.1), steps=10), progress=lambda *p: seen.append(p))
    assert [row["sigma"] for row in table["grid"]] == [0.1, 0.2, 30.0]
    assert [row["validity"] for row in table["grid"]][:2] == [1.0, 1.0]
    assert table["grid"][2]["validity"] < 1  # a step of such noise ends far from any board
    assert table["best"] == {"sigma": 0.1, "tau_start": None, "validity": 1.0}
    assert all(len(row["folds"]) == 5 for row in table["grid"])
    assert [pair for pair in seen if isinstance(pair[0], int)] == [(1, 3), (2, 3), (3, 3)]
    assert seen == sorted(seen)  # and parts of a setting between them
    assert len(seen) > 3
    decay = tune(solver, problem, grid_of(solver, "em-decay", (1.0,), (0.6, 0.8), steps=10))
    assert [(row["sigma"], row["tau_start"]) for row in decay["grid"]] == [(1.0, 0.6), (1.0, 0.8)]
    with pytest.raises(LetgoError, match="5 folds need 5 instances or more, got 4"):
        tune(solver, problem[:4], grid_of(solver, "em", (0.1,)))


def test_a_report_has_the_keys_of_the_contract_and_counts_right(solver: Solver) -> None:
    report = evaluate(
        solver, source_of(solver.task).draw("test", "6", 20, 0), solver.sampler("ddpm", 15), passes=2, seed=3
    ).as_dict()
    for key in ("task", "rule", "settings", "steps", "count", "seed", "validity", "pass_at_k", "violation_rate",
                "codeword_distance", "uniqueness", "calls", "seconds", "device", "version"):  # fmt: skip
        assert key in report
    assert report["validity"] == {"value": 1.0, "low": pytest.approx(0.8389, abs=1e-3), "high": 1.0, "n": 20}
    assert report["pass_at_k"]["k"] == 2
    assert report["calls"] == 20 * 15 * 2
    assert report["violation_rate"]["value"] == 0
    assert report["codeword_distance"]["value"] < 1
    assert json.loads(json.dumps(report)) == report


def test_passes_are_separate_draws_and_any_of_them_may_pass(deaf: Solver) -> None:
    problem = source_of(deaf.task).draw("test", "3", 40, 0)
    one = evaluate(deaf, problem, deaf.sampler("ddpm", 10))
    four = evaluate(deaf, problem, deaf.sampler("ddpm", 10), passes=4)
    assert 0 < one.validity.value < 1
    assert four.validity == one.validity  # the first pass is the same draw
    assert four.pass_at_k.value > one.pass_at_k.value


def test_measuring_looks_at_the_rules_only_after_the_last_call_of_the_network(
    solver: Solver, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    original = type(solver.task).broken

    def noted(self: object, boards: Tensor, problem: Problem) -> Tensor:
        made.append(len(network(solver).calls))
        return original(self, boards, problem)  # type: ignore[arg-type]

    monkeypatch.setattr(type(solver.task), "broken", noted)
    evaluate(solver, source_of(solver.task).draw("test", None, 20, 0), solver.sampler(steps=5), passes=2, batch=8)
    assert set(made) == {len(network(solver).calls)}
    choice = 2 * 3 * len(BELIEF_TIMES)  # each pass in three chunks
    assert len(network(solver).calls) == 5 * 5 + choice  # two passes are five chunks of eight, to the last step


def test_a_run_folder_may_be_a_path_and_errors_have_a_name_at_the_top() -> None:
    solver = letgo.load(locate("sudoku-mini")[0], torch.device("cpu"))
    assert solver.config.name == "sudoku-mini"
    for count in (0, -1):
        with pytest.raises(letgo.LetgoError, match="count must be at least 1"):
            solver.generate(count)


def test_a_trajectory_shows_itself_in_a_notebook_and_is_not_used_up_by_it():
    import html
    import json

    import letgo

    solver = letgo.load("sudoku-mini")
    shown = solver.trajectory(".1..3......2..3.", rule="ddpm", steps=4, seed=1)
    page = html.unescape(shown._repr_html_().split('srcdoc="')[1].split('" style')[0])
    run = json.loads(page.split('class="letgo-run">')[1].split("</script>")[0])
    steps = list(shown)
    clues = solver.clues(solver.task.parse(".1..3......2..3."))
    assert [step.step for step in steps] == [1, 2, 3, 4]
    for frame, step in zip(run["frames"][0], steps, strict=True):
        assert [int(c) for c in frame["x"]] == solver.codec.decode(clues.pin(step.x0_hat))[0].tolist()
    assert run["given"][1] == 0
    assert "http" not in page.replace("http-equiv", "")
