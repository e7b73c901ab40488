"""Turn a finished run and its measurements into a shipped model with a card.

    python tools/ship.py runs/sudoku sudoku results/sudoku.json --trained-on "one NVIDIA H200"

The measurements are `letgo evaluate --out` reports in a list (tools/measure.py). Weights are stored in fp16.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch

from letgo.checkpoints import load_state, load_weights, save_weights, write_json
from letgo.data.files import written_atomically
from letgo.presets import Config

SHIPPED = Path(__file__).parent.parent / "src" / "letgo" / "shipped"


def interval(score: dict[str, Any]) -> str:
    return f"{score['value']:.3f} [{score['low']:.3f}, {score['high']:.3f}]"


def recipe(config: Config) -> str:
    loss = "simple loss (Eq. 4)"
    if config.objective == "self-correction":
        form = "Algorithm 2" if config.full_gradient else "App. C's form"
        loss = f"self-correction (Eq. 9, {form}, lambda_simple {config.simple_weight:g})"
    rate = f"Adam {config.learning_rate:g}, {config.warmup:,} steps of warm-up"
    if config.decay:
        rate += f", linear decay to 0 over the last {config.decay * config.steps:,.0f} steps"
    return f"{loss}; {rate}; batch {config.batch}; seed {config.seed}"


def data_text(config: Config) -> str:
    size = config.build_task().symbols
    return (
        f"{config.boards:,} uniformly random complete {size}x{size} boards drawn by letgo's own generator "
        f"(seed {config.seed}), with 0 to {config.build_task().cells - 1} clues at random places"
    )


def card_text(card: dict[str, Any]) -> str:
    rows = "\n".join(
        f"| {r['regime']} | {r['rule']} {settings(r)} | {r['steps']} | {interval(r['validity'])} | "
        f"{r['validity']['n']} | {r['seed']} | {r.get('weights', 'fp32, before rounding to fp16')} |"
        for r in card["scores"]
    )
    limits = "\n".join(f"- {line}" for line in card["limits"])
    return f"""# {card["name"]}

{card["summary"]}

- **Data**: {card["data"]}. Licence: {card["licence"]}.
- **Recipe**: {card["recipe"]}.
- **Training**: {card["steps"]:,} steps in {card["seconds"]:,.0f} s on {card["trained_on"]}; {card["weights"]} weights
  (chosen on validation boards), stored in fp16; {card["parameters"]:,} parameters.

Share of valid final boards (95% interval) on freshly drawn puzzles:

| clues | rule | steps | valid | n | seed | weights |
|---|---|---|---|---|---|---|
{rows}

Limits:

{limits}
"""


def settings(report: dict[str, Any]) -> str:
    return " ".join(f"{k}={v:g}" for k, v in report["settings"].items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("name")
    parser.add_argument("reports", type=Path)
    parser.add_argument("--trained-on", required=True)
    parser.add_argument("--summary", required=True)
    parser.add_argument("--limit", action="append", default=[])
    options = parser.parse_args()

    state = load_state(options.run / "state.pt")
    config = Config.from_dict(json.loads((options.run / "config.json").read_text()))
    chosen = json.loads((options.run / "validation.json").read_text())
    weights = load_weights(options.run / "model.safetensors")
    reports = [
        {**r, "model": options.name, "command": r["command"].replace(r["model"], options.name)}
        for r in json.loads(options.reports.read_text())
    ]
    write_json(options.reports, reports)  # from now on the model is known by its name
    folder = SHIPPED / options.name
    save_weights(folder / "model.safetensors", weights, torch.float16)
    write_json(folder / "config.json", config.as_dict())
    for tuned in options.run.glob("tune-*.json"):
        write_json(folder / tuned.name, json.loads(tuned.read_text().replace(str(options.run), options.name)))
    card = {
        "name": options.name,
        "summary": options.summary,
        "data": data_text(config),
        "licence": "MIT (generated, no third-party data)",
        "recipe": recipe(config),
        "steps": int(state["step"]),
        "seconds": round(float(state["seconds"]), 1),
        "trained_on": options.trained_on,
        "weights": "EMA" if chosen["weights"] == "ema" else "raw",
        "validation": chosen,
        "parameters": sum(w.numel() for w in weights.values()),
        "scores": reports,
        "limits": options.limit,
    }
    write_json(folder / "card.json", card)
    with written_atomically(folder / "README.md") as file:
        file.write(card_text(card).encode())


if __name__ == "__main__":
    main()
