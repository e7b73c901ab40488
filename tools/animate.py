"""One puzzle, one network, one noise, two rules, as an animation: what the README opens with.

    python tools/animate.py --out docs/assets/two-samplers.webp

Needs the extra `plots` and Pillow.
"""

from __future__ import annotations

import argparse
import io
from pathlib import Path

import torch
from matplotlib.figure import Figure
from PIL import Image

import letgo
from letgo.analysis import trajectory
from letgo.analysis.boards import draw_board
from letgo.analysis.study import Piece
from letgo.rng import Noise
from letgo.solver import identities

PUZZLE = ".6..........6.......9..43.....9...5......7.4....8.....84.1.5.......8.93469.4....."
TITLES = {"ddpm": "DDPM", "tweedie": "Tweedie reprojection"}
INCHES, DPI, PAUSE, HOLD = (6.4, 3.7), 80, 110, 3500  # milliseconds of a frame, and of the last one


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="sudoku-baseline")
    parser.add_argument("--puzzle", default=PUZZLE)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--every", type=int, default=5, help="steps from one frame to the next")
    parser.add_argument("--quality", type=int, default=45)
    parser.add_argument("--out", type=Path, required=True, help="FILE.webp or FILE.gif")
    args = parser.parse_args()
    solver = letgo.load(args.model, "cpu")
    problem = solver.parse([args.puzzle])
    noise = Noise(args.seed, identities(problem), torch.zeros(1, dtype=torch.long))
    piece = Piece(solver, problem, noise, 1, 0)
    walks = {}
    for rule in TITLES:
        sampler = solver.sampler(rule)
        steps = [*range(1, sampler.steps, args.every), sampler.steps]
        walks[rule] = trajectory.frames(piece, sampler, steps)
    scene = trajectory.scene_of(piece)
    pictures = [picture(scene, dict(zip(walks, frames, strict=True))) for frames in zip(*walks.values(), strict=True)]
    pauses = [PAUSE] * (len(pictures) - 1) + [HOLD]
    options = {"save_all": True, "append_images": pictures[1:], "duration": pauses, "loop": 0}
    pictures[0].save(
        args.out, **options, **({"quality": args.quality, "method": 6} if args.out.suffix == ".webp" else {})
    )
    print(f"wrote {args.out}: {len(pictures)} frames, {args.out.stat().st_size / 1000:.0f} kB")


def picture(scene: trajectory.Report, frames: dict[str, trajectory.Report]) -> Image.Image:
    """The proposals of one step, side by side."""
    figure = Figure(figsize=INCHES, dpi=DPI, facecolor="white")
    for i, (rule, frame) in enumerate(frames.items()):
        axis = figure.add_axes((0.02 + 0.5 * i, 0.07, 0.46, 0.46 * INCHES[0] / INCHES[1]))
        draw_board(axis, scene, frame["proposal"], 1.9)
        broken = len(frame["proposal"]["broken"])
        state = f"{broken} broken cells" if broken else "valid"
        axis.set_title(f"{TITLES[rule]}: {state}", fontsize=10, color="#b3261e" if broken else "#2e6b34")
    tau = frames["ddpm"]["tau"]
    bar = figure.add_axes((0.02, 0.025, 0.96, 0.015))
    bar.barh(0, tau, color="#1f6f8b", height=1)
    bar.set_xlim(0, 1)
    bar.set_axis_off()
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return Image.open(buffer).convert("RGB")


if __name__ == "__main__":
    main()
