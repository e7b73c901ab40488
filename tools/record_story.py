"""Record what the page opens with: one run and one race of a shipped model, as the page's own API answers them.

    python tools/record_story.py [--model sudoku-baseline] [--seed 0] [--count 20] [--out FOLDER]
    python tools/record_story.py --only "Masked diffusion"     # the examples of such a title alone, all else as it is

It also writes the page's chosen examples (CHOSEN), after it has seen each of them end broken on the left and valid on
the right, or its network sure after several tries. They are chosen to show that, so each stands beside the share over
many boards, from `results/`. One whose model is not shipped yet is written without shares; the page shows it once the
model is there, and after another `--only` it has them.

On CPUs that round alike the same command gives the same boards; only the seconds in it differ. Needs the extra `test`.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient

from letgo import __version__
from letgo.app.server import create_app

ROOT = Path(__file__).parents[1]
OUT = ROOT / "src/letgo/app/static"
RULES = ({"rule": "ddpm"}, {"rule": "tweedie"})


@dataclass(frozen=True)
class Chosen:
    """An example that shows the gap, and the regime whose measured shares stand beside it."""

    title: str
    model: str
    regime: str
    seed: int = 0
    puzzle: str = "example"  # the model's own; 'nothing'; 'random', the first of seeds 0, 1, ... that fits; or a text
    sides: tuple[dict[str, str], ...] = RULES
    sure: int = 0  # tries at most until the network is sure of its board, instead of two sides


LOOPED = "sudoku-extreme-looped"
ESCARGOT = "1....7.9..3..2...8..96..5....53..9...1..8...26....4...3......1..4......7..7...3.."  # by A. Inkala
MASKED = ({"rule": "ancestral"}, {"rule": "remask"})
TRAININGS = ({"rule": "ddpm"}, {"rule": "ddpm", "model": "sudoku"})
CHOSEN = [
    Chosen("Sudoku: two samplers", "sudoku-baseline", "21"),
    Chosen("Self-correction: both sides DDPM", "sudoku-baseline", "21", sides=TRAININGS, seed=-1),
    Chosen("AI Escargot, until it is sure", LOOPED, "test", 9, ESCARGOT, sure=24),
    Chosen("Masked diffusion: two decoders", "sudoku-mini-d3pm", "4", sides=MASKED, seed=-1),
    Chosen("Latin square from nothing", "latin-baseline", "gen", puzzle="nothing"),
    Chosen("14 queens", "queens-baseline", "random", seed=3),
    Chosen("Graph connectivity", "connectivity-ired-baseline", "12"),
    Chosen("Maze", "maze-muon-baseline", "test", puzzle="random"),
]
PATIENCE = 30  # puzzles or seeds that are tried where none is named


def events(client: TestClient, route: str, body: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    response = client.post(f"/api/{route}", json=body)
    response.raise_for_status()
    blocks = [block.split("\n") for block in response.text.strip().split("\n\n") if block.startswith("event:")]
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in blocks]


def verdicts(client: TestClient, body: dict[str, Any]) -> list[bool]:
    ends = [data for name, data in events(client, "trajectory", body) if name == "verdict"]
    return [end["valid"] for end in sorted(ends, key=lambda end: end["side"])]


def shares(example: Chosen, steps: int) -> list[dict[str, Any]]:
    """Of each side the measured share with its n, as `letgo evaluate` reported it for the model's own steps."""
    found = []
    for side in example.sides:
        reports = json.loads((ROOT / "results" / f"{side.get('model', example.model)}.json").read_text())
        fits = [r for r in reports if r["rule"] == side["rule"] and r["regime"] == example.regime and not r["settings"]]
        best = max((r["validity"] for r in fits if r["steps"] == steps), key=lambda validity: validity["n"])
        found.append({"value": best["value"], "n": best["n"]})
    return found


def until_sure(client: TestClient, example: Chosen) -> dict[str, Any]:
    """Shares of `letgo evaluate --until-sure`: answers that are right, and boards that were believed and wrong."""
    reports = json.loads((ROOT / "results" / f"{example.model}.json").read_text())
    measured = [report for report in reports if "believed_wrong" in report]
    best = max(measured, key=lambda report: (report["validity"]["n"], report["validity"]["value"]))
    body = {"model": example.model, "puzzle": example.puzzle, "tries": example.sure, "seed": example.seed}
    [end] = [data for name, data in events(client, "until-sure", body) if name == "choice"]
    if not (end["sure"] and end["solved"] and end["tries"] > 2):
        raise SystemExit(f"{example.title}: it is not sure of a valid board, or too soon ({end})")
    shares = [{name: best[key][name] for name in ("value", "n")} for key in ("validity", "believed_wrong")]
    told = {"title": example.title, "model": example.model, "puzzle": example.puzzle, "sides": [{}, {}]}
    return {**told, "seed": example.seed, "sure": example.sure, "regime": example.regime, "shares": shares}


def chosen(client: TestClient, example: Chosen) -> dict[str, Any]:
    cards = {card["name"]: card for card in client.get("/api/models").json()["models"]}
    if example.model not in cards:
        sides = [dict(side) for side in example.sides]
        return {"title": example.title, "model": example.model, "puzzle": None, "sides": sides, "seed": 0}
    if example.sure:
        return until_sure(client, example)
    card, tried = cards[example.model], 0
    while True:
        query = {"model": example.model, "seed": tried}
        puzzle = "." * card["cells"] if example.puzzle == "nothing" else card["example"]["puzzle"]
        if example.puzzle == "random":
            puzzle = client.get("/api/puzzle", params=query).json()["puzzle"]
        seed = tried if example.seed < 0 else example.seed
        body = {"model": example.model, "puzzle": puzzle, "rules": list(example.sides), "seed": seed}
        if verdicts(client, body) == [False, True]:
            sides = [dict(side) for side in example.sides]
            told = {"title": example.title, "model": example.model, "puzzle": puzzle, "sides": sides, "seed": seed}
            return {**told, "regime": example.regime, "shares": shares(example, card["steps"])}
        tried += 1
        if tried == PATIENCE or (example.puzzle != "random" and example.seed >= 0):
            raise SystemExit(f"{example.title}: no run of {tried} ends broken on the left and valid on the right")


def record(client: TestClient, model: str, seed: int, count: int) -> dict[str, Any]:
    """What story.js reads: the model's card, the setting, a run's frames and verdicts, and a race's results."""
    [card] = [card for card in client.get("/api/models").json()["models"] if card["name"] == model]
    puzzle, rules = card["example"]["puzzle"], card["default_rules"]
    body = {"model": model, "puzzle": puzzle, "rules": rules, "steps": card["steps"], "seed": seed}
    run, race = events(client, "trajectory", body), events(client, "race", {**body, "count": count})
    frames = [[data for name, data in run if name == "frame" and data["side"] == side] for side in (0, 1)]
    results = sorted((data for name, data in race if name == "result"), key=lambda data: (data["side"], data["n"]))
    return {
        "command": f"python tools/record_story.py --model {model} --seed {seed} --count {count}",
        "version": __version__,
        "card": card,
        "setting": {"model": model, "puzzle": puzzle, "sides": [{"rule": rule} for rule in rules], "seed": seed},
        "start": run[0][1],
        "frames": [
            [{key: value for key, value in frame.items() if key != "side"} for frame in side] for side in frames
        ],
        "verdicts": [data for name, data in run if name == "verdict"],
        "race": {"seed": seed, "count": count, "results": results},
    }


def again(words: str, path: Path) -> None:
    """The examples whose title has these words, among the others as they are."""
    known = {example["title"]: example for example in json.loads(path.read_text())}
    with TestClient(create_app(), base_url="http://127.0.0.1") as client:
        for example in CHOSEN:
            if words in example.title:
                known[example.title] = chosen(client, example)
    path.write_text(json.dumps([known[e.title] for e in CHOSEN if e.title in known], indent=1) + "\n")
    print(f"{path}: {', '.join(title for title in known if words in title)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="sudoku-baseline")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=20, help="seeds of the race")
    parser.add_argument("--out", type=Path, default=OUT, help="folder of story.json and examples.json")
    parser.add_argument("--only", help="record the examples with this in their title, and nothing else")
    options = parser.parse_args()
    if options.only:
        return again(options.only, options.out / "examples.json")
    with TestClient(create_app(), base_url="http://127.0.0.1") as client:
        story = record(client, options.model, options.seed, options.count)
        examples = [chosen(client, example) for example in CHOSEN]
    (options.out / "story.json").write_text(json.dumps(story, separators=(",", ":")) + "\n")
    (options.out / "examples.json").write_text(json.dumps(examples, indent=1) + "\n")
    wins = [sum(r["valid"] for r in story["race"]["results"] if r["side"] == side) for side in (0, 1)]
    sides = zip(story["card"]["default_rules"], wins, strict=True)
    told = ", ".join(f"{rule} {won} of {options.count}" for rule, won in sides)
    print(f"{options.out}: {told}")


if __name__ == "__main__":
    main()
