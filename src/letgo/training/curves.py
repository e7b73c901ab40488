"""The losses of a run for other programs and for the eye: .csv, TensorBoard, a picture."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from letgo.data.files import write_atomically
from letgo.errors import LetgoError
from letgo.runs import Run, read_log

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 640, 320, 56, 36, 24, 16
COLOURS = ("#1f5fa8", "#c2571a", "#2e7d4f", "#7a4fa3")


def write_csv(folder: Path) -> Path:
    """Write the whole log as metrics.csv, a column for each loss."""
    rows, text = read_log(folder), io.StringIO()
    writer = csv.DictWriter(
        text, rows[0].keys() if rows else ["step", "loss"], lineterminator="\n", extrasaction="ignore"
    )
    writer.writeheader()
    writer.writerows(rows)
    write_atomically(folder / "metrics.csv", text.getvalue())
    return folder / "metrics.csv"


def tensorboard_log() -> Callable[[Run, int, dict[str, float]], None]:
    """Return a hook for `letgo.train(on_log=...)` that writes RUN/tensorboard."""
    try:
        from torch.utils.tensorboard import SummaryWriter  # pyright: ignore[reportPrivateImportUsage]
    except ImportError:
        raise LetgoError("--log tensorboard needs the package tensorboard: pip install tensorboard") from None
    writers: dict[Path, Any] = {}

    def log(run: Run, step: int, metrics: dict[str, float]) -> None:
        if run.folder not in writers:  # each writer has a file of its own
            writers[run.folder] = SummaryWriter(str(run.folder / "tensorboard"))
        writer = writers[run.folder]
        for name, value in metrics.items():
            writer.add_scalar(name, value, step)
        writer.flush()

    return log


def draw_losses(folder: Path) -> Path | None:
    """Draw the losses by step, on a log scale, as loss.svg; nothing where fewer than two lines were logged."""
    rows = read_log(folder)
    names = [name for name in (rows[0] if rows else ()) if name not in ("step", "steps_per_second")]
    points = {name: [(row["step"], row[name]) for row in rows if 0 < row.get(name, 0) < math.inf] for name in names}
    points = {name: line for name, line in points.items() if len(line) > 1}
    if not points:
        return None
    write_atomically(folder / "loss.svg", _svg(points))
    return folder / "loss.svg"


def _svg(lines: dict[str, list[tuple[Any, float]]]) -> str:
    values = [math.log10(value) for line in lines.values() for _, value in line]
    steps = [step for line in lines.values() for step, _ in line]
    low, high, first, last = min(values), max(values), min(steps), max(steps)

    def x(step: Any) -> float:
        return LEFT + (step - first) / max(last - first, 1) * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        return TOP + (high - value) / max(high - low, 1e-9) * (HEIGHT - TOP - BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" '
        f'font-size="12"><rect width="100%" height="100%" fill="white"/>'
    ]
    for value in (low, (low + high) / 2, high):
        parts.append(f'<path d="M{LEFT} {y(value):.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{10**value:.2g}</text>')
    for step, anchor in ((first, "start"), (last, "end")):
        parts.append(f'<text x="{x(step):.1f}" y="{HEIGHT - 12}" text-anchor="{anchor}">step {step:,.0f}</text>')
    for i, (name, line) in enumerate(lines.items()):
        colour = COLOURS[i % len(COLOURS)]
        path = " ".join(f"{x(step):.1f},{y(math.log10(value)):.1f}" for step, value in line)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        parts.append(f'<text x="{LEFT + 8 + 110 * i}" y="{TOP - 8}" fill="{colour}">{name}</text>')
    return "".join(parts) + "</svg>\n"
