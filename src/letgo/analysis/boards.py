"""One board on one axis, as its task looks: letters, queens, a maze or a matrix; broken cells are red."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable
from typing import Any

INK, CLUE, BROKEN, GRID, PATH, WALL = "#1f3d6b", "#111111", "#f0a590", "#b9b4a8", "#3a9ad0", "#3b3b3b"
WASH = "#ece9e2"  # behind a clue
MOST_SIDE = 10_000  # cells or pixels
ENDS = {2: "#5b8c5a", 3: "#b3541e"}  # a maze's start and goal

Board = dict[str, Any]  # symbols, certainty and broken: a value for each cell
Scene = dict[str, Any]  # what all boards of a picture share: kind, rows, columns, box, letters, given


def draw_board(axis: Any, scene: Scene, board: Board, size: float = 1.0) -> None:
    """Draw a board; the network, or the state, is less sure of fainter symbols; `size` 1 suits an axis of an inch."""
    refuse_odd_sides(scene["rows"], scene["columns"])
    axis.set_xticks([])
    axis.set_yticks([])
    axis.grid(visible=False)
    axis.set_aspect("equal")
    axis.set_xlim(0, scene["columns"])
    axis.set_ylim(scene["rows"], 0)
    for spine in axis.spines.values():
        spine.set_visible(True)
        spine.set_linewidth(0.6)
    (_pixels if "image" in board else KINDS.get(scene["kind"], _letters))(axis, scene, board, size)


def refuse_odd_sides(*sides: int) -> None:
    """Refuse what a damaged report may say; it would be drawn without end."""
    for side in sides:
        if not 1 <= side <= MOST_SIDE:
            raise ValueError(f"a side of {side}; expected 1 to {MOST_SIDE:,}")


def _pixels(axis: Any, scene: Scene, board: Board, size: float) -> None:
    """Draw the images of the cells."""
    import numpy as np

    side = board["image"]["side"]
    refuse_odd_sides(side)
    raw = zlib.decompressobj().decompress(base64.b85decode(board["image"]["pixels"]), side * side)
    pixels, span = np.frombuffer(raw, np.uint8).reshape(side, side), (0, scene["columns"], scene["rows"], 0)
    axis.imshow(pixels, cmap="gray", vmin=0, vmax=255, extent=span, interpolation="nearest")


def _letters(axis: Any, scene: Scene, board: Board, size: float) -> None:
    columns, points = scene["columns"], size * 62 / max(scene["rows"], scene["columns"])
    for cell, symbol in enumerate(board["symbols"]):
        y, x = divmod(cell, columns)
        _wash(axis, x, y, scene["given"][cell], cell in board["broken"])
        letter = scene["letters"][symbol] if 0 <= symbol < len(scene["letters"]) else ""
        _text(axis, x, y, letter, scene["given"][cell], board["certainty"][cell], points)
    _lines(axis, scene)


def _queens(axis: Any, scene: Scene, board: Board, size: float) -> None:
    """Draw a queen in each row, at the column that is the row's symbol."""
    for y, column in enumerate(board["symbols"]):
        for x in range(scene["columns"]):
            if (x + y) % 2:
                _square(axis, x, y, WASH)
        _wash(axis, column, y, scene["given"][y], y in board["broken"])
        colour = CLUE if scene["given"][y] else INK
        axis.plot(
            column + 0.5, y + 0.5, "o", ms=54 * size / scene["rows"], color=colour, alpha=_alpha(board["certainty"][y])
        )


def _maze(axis: Any, scene: Scene, board: Board, size: float) -> None:
    """Draw walls dark and the path blue; start and goal have colours of their own."""
    from matplotlib.colors import to_rgba

    rows, columns, colours = scene["rows"], scene["columns"], {0: WALL, 1: "#ffffff", 4: PATH, **ENDS}
    image = []
    for cell, symbol in enumerate(board["symbols"]):
        faint = 1.0 if scene["given"][cell] else _alpha(board["certainty"][cell])
        colour = BROKEN if cell in board["broken"] and symbol == 4 else colours.get(symbol, "#ffffff")
        image.append([part * faint + 1 - faint for part in to_rgba(colour)[:3]])
    lines = [image[y * columns : (y + 1) * columns] for y in range(rows)]
    axis.imshow(lines, extent=(0, columns, rows, 0), interpolation="nearest")


def _matrix(axis: Any, scene: Scene, board: Board, size: float) -> None:
    """Draw which columns are reachable from each row; a dot is an edge of the graph, which the network is told."""
    for cell, symbol in enumerate(board["symbols"]):
        y, x = divmod(cell, scene["columns"])
        _square(axis, x, y, INK, _alpha(board["certainty"][cell]) if symbol == 1 else 0.0)
        if cell in board["broken"]:
            _square(axis, x, y, "none", 1.0, edge="#c0392b")
        if scene["edges"] and scene["edges"][cell]:
            axis.plot(x + 0.5, y + 0.5, ".", ms=24 * size / scene["rows"], color="white" if symbol == 1 else INK)


KINDS: dict[str, Callable[[Any, Scene, Board, float], None]] = {"queens": _queens, "maze": _maze, "graph": _matrix}


def _alpha(certainty: float) -> float:
    return min(1.0, 0.12 + 0.88 * max(0.0, certainty))


def _square(axis: Any, x: int, y: int, colour: str, alpha: float = 1.0, edge: str = "none") -> None:
    from matplotlib.patches import Rectangle

    inner = 0.0 if edge == "none" else 0.08
    place, side = (x + inner, y + inner), 1 - 2 * inner
    axis.add_patch(Rectangle(place, side, side, facecolor=colour, edgecolor=edge, alpha=alpha, lw=0.9))


def _wash(axis: Any, x: int, y: int, given: bool, broken: bool) -> None:
    if broken or given:
        _square(axis, x, y, BROKEN if broken else WASH)


def _text(axis: Any, x: int, y: int, letter: str, given: bool, certainty: float, points: float) -> None:
    weight, colour = ("bold", CLUE) if given else ("normal", INK)
    where = {"ha": "center", "va": "center", "fontsize": points, "color": colour, "weight": weight}
    axis.text(x + 0.5, y + 0.52, letter, alpha=1.0 if given else _alpha(certainty), **where)


def _lines(axis: Any, scene: Scene) -> None:
    for count, place in ((scene["columns"], axis.axvline), (scene["rows"], axis.axhline)):
        for i in range(1, count):
            bold = scene["box"] and i % scene["box"] == 0
            place(i, color="#555555" if bold else GRID, lw=0.8 if bold else 0.3)
