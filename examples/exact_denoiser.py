"""DDPM's failure and Tweedie's success without any network, on the 288 Sudoku boards of 4x4.

    python examples/exact_denoiser.py

The denoiser is exact, E[x0 | x_t] over the 288 boards, so whatever fails here is the sampler's doing and not a weak
network's. It comes in two forms. The first is not told the clues: it meets them only where they are pinned in x_t, as
a trained network does. The second averages only the boards that agree with the clues.
"""

import argparse

import torch

from letgo.codecs import OneHot
from letgo.estimates import Estimate, rate
from letgo.kernels import Rule
from letgo.models.denoiser import ExactDenoiser
from letgo.paths import CosinePath
from letgo.pinning import Clues
from letgo.rng import Noise, data_rng
from letgo.samplers import RULES, Sampler
from letgo.sampling import Snapshot, trajectory, uniform_grid
from letgo.tasks.sudoku import Sudoku
from letgo.tasks.sudoku_search import all_boards
from letgo.tasks.task import Problem, random_masks

TASK, PATH = Sudoku(box=2), CosinePath()
CODEC, BOARDS = OneHot(TASK.symbols), all_boards(2)
CLUES = (0, 2, 4, 6, 8)
SETTINGS = {"em": {"sigma": 0.3}, "em-decay": {"sigma": 7.0, "tau_start": 0.7}}


def puzzles(count: int, clues: int, seed: int) -> Problem:
    """Random boards with randomly placed clues; several boards may agree with them, and any of these is a solution."""
    rng = data_rng(seed, "test")
    boards = BOARDS[torch.from_numpy(rng.integers(len(BOARDS), size=count))]
    return Problem(boards, random_masks(count, TASK.cells, clues, clues, rng))


def last_step(problem: Problem, rule: Rule, steps: int, seed: int, conditioned: bool) -> Snapshot:
    """Algorithm 1 with hard pinning."""
    clues = Clues(CODEC.encode(problem.solution), problem.given)
    exact = ExactDenoiser(CODEC.encode(BOARDS), PATH, clues if conditioned else None)
    *_, last = trajectory(exact, PATH, rule, uniform_grid(steps), clues, Noise.first(seed, len(problem)))
    return last


def show(share: Estimate) -> str:
    low, high = share.interval95
    return f"{share.value:.3f} [{low:.3f}, {high:.3f}]"


def print_table(count: int, steps: int, seed: int, conditioned: bool) -> None:
    print("| rule | " + " | ".join(f"{clues} clues" for clues in CLUES) + " |")
    print("|---" * (1 + len(CLUES)) + "|")
    for name in (name for name, kind in RULES.items() if kind.fits(PATH, CODEC)):
        row = []
        for clues in CLUES:
            problem = puzzles(count, clues, seed)
            last = last_step(problem, Sampler(name, **SETTINGS.get(name, {})).build(), steps, seed, conditioned)
            valid = TASK.validate(CODEC.decode(last.x), problem)
            row.append(show(rate(int(valid.sum()), count)))
        print(f"| {name} | " + " | ".join(row) + " |", flush=True)


def print_failures(count: int, steps: int, seed: int) -> None:
    """What the last proposal was where the sampler failed."""
    problem = puzzles(count, 4, seed)
    no_clues = Problem(problem.solution, torch.zeros_like(problem.given))
    for name in ("ddpm", "tweedie"):
        last = last_step(problem, Sampler(name).build(), steps, seed, conditioned=False)
        failed = ~TASK.validate(CODEC.decode(last.x), problem)
        proposal = CODEC.decode(last.x0_hat)
        other = TASK.validate(proposal, no_clues) & ~TASK.validate(proposal, problem)
        print(f"{name}: {int(failed.sum())} failures; in {int((failed & other).sum())} of them ", end="")
        print("the last proposal is a valid board that contradicts a clue")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2000, help="puzzles per number of clues")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    run = options.count, options.steps, options.seed
    print(f"Share solved [95% interval], n = {run[0]} each, {run[1]} steps, seed {run[2]}; {SETTINGS}")
    print("\nThe denoiser meets the clues only in x_t:\n")
    print_table(*run, conditioned=False)
    print("\nThe denoiser is conditioned on the clues:\n")
    print_table(*run, conditioned=True)
    print("\n4 clues, met only in x_t:")
    print_failures(*run)


if __name__ == "__main__":
    main()
