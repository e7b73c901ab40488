"""A model's card, the README.md of its folder: YAML in front for the Hub, then what a reader asks."""

from __future__ import annotations

import json
import re
from typing import Any

from letgo.config import Config
from letgo.runs import Run, load_weights
from letgo.samplers import RULES

PLAIN = re.compile(r"[a-z][a-z0-9_.-]*")
WORDS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}  # which YAML takes for something else


def recipe(config: Config) -> str:
    """Say how weights were trained, in a line."""
    loss = "simple loss (Eq. 4)"
    if config.objective == "self-correction":
        form = "Algorithm 2" if config.full_gradient else "App. C's form"
        loss = f"self-correction (Eq. 9, {form}, lambda_simple {config.simple_weight:g})"
    if config.objective == "cross-entropy":
        loss = (
            "cross-entropy on open cells after each turn, self-correction around it (App. C's form, lambda_simple "
            f"{config.simple_weight:g}); the gradient's norm cut to {config.clip_norm:g}"
        )
    if config.objective == "masked":
        loss = "cross-entropy at masked cells, masking rates uniform (App. F.1)"
    if config.objective == "velocity":
        loss = "the squared error of the velocity"
    optimizer = "Adam" if config.optimizer == "adam" else "Muon (blocks' matrices) and Adam"
    rate = f"{optimizer} {config.learning_rate:g}, {config.warmup:,} steps of warm-up"
    falls = f"linear decay to 0 over the last {config.decay * config.steps:,.0f} steps"
    rate += f", {falls if config.decay else 'then constant'}"
    start = "from another run's weights (results/training.json); " if config.init else ""
    return f"{start}{loss}; {rate}; batch {config.batch}; seed {config.seed}"


def card_of(run: Run, reports: list[dict[str, Any]]) -> dict[str, Any]:
    """Gather the facts of a run that has no card: of its files, and of reports on it. No path of a machine is in it."""
    config, validation = run.config, run.validation
    task, scores, kind = config.build_task(), validation.get("scores", {}), config.weights
    card: dict[str, Any] = {
        "name": config.name,
        "summary": f"A diffusion model for {task.name}: {task.cells} cells of {task.symbols} symbols.",
        "recipe": recipe(config).replace("another run's weights (results/training.json)", "another run's weights"),
        "weights": "EMA" if kind == "ema" else "raw",
        "parameters": sum(weight.numel() for weight in load_weights(run.model).values()),
        "validation": {key: value for key, value in validation.items() if key != "command"} or None,
        "figures": [figure(report) for report in reports],
    }
    if run.state is not None:
        card |= {"steps": int(validation.get("step", run.step)), "run_steps": run.step, "seconds": run.seconds}
    if validation.get("rule") in RULES and isinstance(scores.get(kind), float) and not reports:
        facts = {"rule": validation["rule"], "regime": "validation", "steps": config.sample_steps}
        card["figures"] = [{**facts, "value": scores[kind], "n": int(validation["count"])}]
    return card


def figure(report: dict[str, Any]) -> dict[str, Any]:
    """Take from a report what a card says of it."""
    facts, scores = ("rule", "regime", "steps"), ("value", "low", "high", "n")
    return {k: report[k] for k in facts} | {k: report["validity"][k] for k in scores}


def card_text(card: dict[str, Any], config: Config, model: str) -> str:
    """Write the card; `model` is what `letgo.load` takes."""
    parts = [f"# {card['name']}", card["summary"], use(config, model), facts(card), figures(card), again(card)]
    limits = "\n".join(f"- {line}" for line in card.get("limits", ()))
    parts += [f"Limits:\n\n{limits}"] if limits else []
    return front(card, config) + "\n\n".join(part for part in parts if part) + "\n"


def use(config: Config, model: str) -> str:
    call = f'letgo.load("{model}").generate(4, seed=0)'
    if not config.build_task().generates:
        call = f'letgo.evaluate("{model}", rule="{config.sample_rule or "tweedie"}", count=20).validity'
    return f"```python\nimport letgo\n\nprint({call})\n```"


def facts(card: dict[str, Any]) -> str:
    """List data, recipe and training, as far as they are known."""
    lines, chosen = [], card.get("validation")
    if "data" in card:
        lines.append(f"- **Data**: {card['data']}. Licence: {card['licence']}.")
    lines.append(f"- **Recipe**: {card['recipe']}.")
    why = "chosen on validation boards" if chosen else "raw ones were not compared on validation boards"
    training = f"{card['weights']} weights\n  ({why})"
    if "steps" in card:
        steps, whole = card["steps"], card.get("run_steps", card["steps"])
        run = f"{steps:,} steps" if steps == whole else f"{steps:,} steps of a run of {whole:,}"
        on = f" on {card['trained_on']}" if "trained_on" in card else ""
        training = f"{run} in {card['seconds']:,.0f} s{on}; {training}"
    kept = ", stored in fp16" if "sha256" in card else ""
    lines.append(f"- **Training**: {training}{kept}; {card['parameters']:,} parameters.")
    return "\n".join(lines)


def figures(card: dict[str, Any]) -> str:
    """List the share of valid boards by rule, each with its interval and its command where they are known."""
    lines = []
    for f in card.get("figures", ()):
        span = f" [{f['low']:.3f}, {f['high']:.3f}]" if "low" in f else ""
        command = f": `{f['command']}`" if "command" in f else f", {f['steps']} steps"
        lines.append(f"- **{f['rule']}**, {f['regime']}: {f['value']:.3f}{span}, n = {f['n']}{command}")
    if not lines:
        return "How often its boards are valid was not measured."
    if "sha256" in card:
        name = card["name"]
        lines.append(
            f"\nWhat else it scores, with intervals and commands: `results/{name}.json` and `docs/results.md` in the "
            "repository."
        )
    return "Share of valid boards, by sampling rule:\n\n" + "\n".join(lines)


def again(card: dict[str, Any]) -> str:
    if card.get("again"):
        return f"To train it again ({card['again_seen']}):\n\n```\n{card['again']}\n```"
    if card.get("commands"):
        lines = "The lines that made it, one after the other:\n\n```\n" + "\n".join(card["commands"]) + "\n```"
        return f"{lines}\n\n{card['made_note']}" if card.get("made_note") else lines
    return ""


def front(card: dict[str, Any], config: Config) -> str:
    """Write what the Hub reads: licence, library, tags, data, metrics, results."""
    values: dict[str, Any] = {
        "license": card.get("licence", "unknown").split()[0].lower(),  # its name, then remarks
        "library_name": "letgo",
        "tags": [*dict.fromkeys(["letgo", "diffusion", config.task, config.objective, config.path, config.codec])],
        "datasets": [config.task],
    }
    if card.get("figures"):
        results = [result(f, config) for f in card["figures"]]
        values |= {"metrics": ["accuracy"], "model-index": [{"name": card["name"], "results": results}]}
    return "---\n" + "\n".join(yaml(values)) + "\n---\n\n"


def result(f: dict[str, Any], config: Config) -> dict[str, Any]:
    split = "validation" if f["regime"] == "validation" else "test"
    name = f"valid boards by {f['rule']} in {f['steps']} steps, n = {f['n']}"
    return {
        "task": {"type": "constraint-satisfaction", "name": config.task},
        "dataset": {"type": config.task, "name": f"{config.task}, {f['regime']}", "split": split},
        "metrics": [{"type": "accuracy", "name": name, "value": round(f["value"], 4)}],
    }


def yaml(value: Any, indent: str = "") -> list[str]:
    """Write mappings, lists, texts and numbers as lines of YAML."""
    lines = []
    for key, item in value.items() if isinstance(value, dict) else ((None, item) for item in value):
        head = f"{indent}- " if key is None else f"{indent}{key}:"
        if not isinstance(item, dict | list):
            lines.append(f"{head}{_scalar(item)}" if key is None else f"{head} {_scalar(item)}")
        elif key is None:  # the first line of what is nested stands beside the dash
            first, *rest = yaml(item, f"{indent}  ")
            lines += [f"{head}{first.lstrip()}", *rest]
        else:
            lines += [head, *yaml(item, f"{indent}  " if isinstance(item, dict) else indent)]
    return lines


def _scalar(value: Any) -> str:
    if isinstance(value, str) and PLAIN.fullmatch(value) and value not in WORDS:
        return value
    return json.dumps(value, ensure_ascii=False)
