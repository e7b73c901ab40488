"""How all pictures of analyses look. matplotlib is imported when a picture is drawn (`pip install 'letgo[plots]'`)."""

from __future__ import annotations

import importlib.util
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from letgo.analysis import Report, analysis_of
from letgo.data.files import write_atomically
from letgo.errors import LetgoError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = {
    "both": "#5b8c5a", "plus": "#1f6f8b", "minus": "#b3541e",
    "proposal": "#555555", "tweedie": "#1f6f8b", "ddpm": "#b3541e",
    "simple": "#b3541e", "self-correction": "#1f6f8b",
    "valid": "#5b8c5a", "invalid": "#b3541e",
}  # fmt: skip
STYLE: dict[Any, Any] = {
    "font.size": 8, "axes.titlesize": 8, "legend.fontsize": 7, "lines.linewidth": 1.3, "svg.fonttype": "none",
    "svg.hashsalt": "letgo", "axes.grid": True, "grid.linewidth": 0.3, "axes.spines.top": False,
    "axes.spines.right": False,
}  # fmt: skip
DPI, COLOURS_OF_PNG = 120, 64


def available() -> bool:
    return importlib.util.find_spec("matplotlib") is not None


def panels(down: int, across: int, size: tuple[float, float] = (3.0, 2.3), **words: Any) -> tuple[Figure, Any]:
    """Return an empty figure and its axes as rows; `size` is that of one panel, in inches."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(size[0] * across, size[1] * down + 0.25), layout="constrained")
    return figure, figure.subplots(down, across, squeeze=False, **words)


def caption(figure: Figure, reports: list[Report]) -> None:
    """Say in a last line what was measured: n, steps, seed, regime."""
    first = reports[0]
    facts = [f"n = {' and '.join(dict.fromkeys(str(report['n']) for report in reports))}"]
    facts += [f"{first['steps']} steps"] if "steps" in first else []
    facts += [f"{name} {first[name]}" for name in ("regime", "seed") if name in first]
    figure.supxlabel(", ".join(facts), fontsize=7, color="#555555", x=0.995, ha="right")


def draw(reports: list[Report], stem: Path, kinds: tuple[str, ...] = ("png", "svg")) -> list[Path]:
    """Write STEM.png and STEM.svg."""
    if not available():
        raise LetgoError("pictures need matplotlib: pip install 'letgo[plots]'")
    import matplotlib

    names = dict.fromkeys(report["analysis"] for report in reports)
    if len(names) > 1:
        raise LetgoError(f"one picture shows reports of one analysis, not of {', '.join(names)}; draw them apart")
    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in kinds]
    with matplotlib.rc_context(STYLE):
        figure = analysis_of(next(iter(names))).plot(reports)
        for path in paths:
            write_atomically(path, svg_of(figure) if path.suffix == ".svg" else png_of(figure))
    return paths


def svg_of(figure: Figure) -> bytes:
    """Return the picture as SVG without a date, so that the same report gives the same bytes."""
    picture = io.BytesIO()
    figure.savefig(picture, format="svg", metadata={"Date": None})
    return picture.getvalue()


def png_of(figure: Figure) -> bytes:
    """Return a PNG with a palette of 64 colours, which is a third of the bytes. matplotlib brings Pillow along."""
    from PIL import Image

    picture, small = io.BytesIO(), io.BytesIO()
    figure.savefig(picture, format="png", dpi=DPI)
    Image.open(picture).convert("RGB").quantize(COLOURS_OF_PNG).save(small, format="png", optimize=True)
    return small.getvalue()
