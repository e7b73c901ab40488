"""One network, one puzzle, one noise: DDPM beside Tweedie reprojection.

    python examples/two_samplers.py --out docs/two-samplers.svg

Looks for the first 21-clue puzzle of the given seed on which the baseline's DDPM fails and its Tweedie does not, which
at the paper's rates is about two puzzles in three.
"""

import argparse
from collections import deque
from pathlib import Path

import numpy as np
from board_picture import svg

import letgo

parser = argparse.ArgumentParser()
parser.add_argument("--out", type=Path, required=True)
parser.add_argument("--model", default="sudoku-baseline")
parser.add_argument("--seed", type=int, default=7)
options = parser.parse_args()

solver = letgo.load(options.model, precision="fp32")  # the same picture on every CPU
rng = np.random.default_rng(options.seed)
while True:
    problem = solver.task.generate(1, rng, "21")
    last = {rule: deque(solver.trajectory(problem, rule=rule), maxlen=1).pop() for rule in ("ddpm", "tweedie")}
    boards = {rule: solver.codec.decode(snapshot.x) for rule, snapshot in last.items()}
    valid = {rule: bool(solver.task.validate(board, problem)) for rule, board in boards.items()}
    if valid == {"ddpm": False, "tweedie": True}:
        break
wrong = int(solver.task.violations(boards["ddpm"], problem).sum())
options.out.write_text(
    svg(
        solver.task,
        problem,
        [
            ("21 clues", "the puzzle", None),
            ("DDPM", f"{wrong} cells in conflict", boards["ddpm"]),
            ("Tweedie reprojection", "valid; same network, same noise", boards["tweedie"]),
        ],
    )
)
print(solver.task.format_clues(problem)[0])
