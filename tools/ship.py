"""Turn a finished run and its measurements into a shipped model with a card.

    python tools/ship.py runs/sudoku sudoku results/sudoku.json --trained-on "one NVIDIA H200" --summary "..."

The measurements are a list of `letgo evaluate --out` or `letgo reproduce` reports. They go to results/NAME.json under
the model's name, those of --beside (solve.json, coverage.json, ...) to the file of the same name there; with --command
(how the run was made), its times and losses go to results/training.json. Weights are stored in fp16. Where the
instances came from a file, --data says which, as for `letgo evaluate`. `python tools/ship.py --cards` brings the cards
of all shipped models up to date with results/.
"""

import argparse
import hashlib
import json
import shlex
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save

from letgo.cards import card_text, recipe
from letgo.config import Config
from letgo.data.digits import FACTS, LICENCES, TENSORS, read_facts
from letgo.data.files import write_atomically
from letgo.data.source import source_of
from letgo.presets import PRESETS
from letgo.reproduce.measure import KINDS
from letgo.reproduce.store import Store
from letgo.runs import Run, load_state, load_weights, locked, read_json, save_weights, write_json
from letgo.runs.files import weights_digest
from letgo.samplers import USUAL, fitting
from letgo.solver import load

ROOT = Path(__file__).parent.parent
SHIPPED, RESULTS = ROOT / "src" / "letgo" / "shipped", ROOT / "results"
ROUNDED = "fp32, before rounding to fp16"
GENERATED = "MIT (generated, no third-party data)"
LISTS = (
    "MIT for the weights, no puzzle is shipped; the public lists, collected by the Enjoy Sudoku Players' Forum, "
    "Gordon Royle and others (17 clues) and magictour, carry no licence of their own (the tdoku project, which "
    "publishes them: BSD 2-Clause)"
)
FILES = {name: kind.same for name, kind in KINDS.items() if kind.command}  # reports of other kinds


def data_text(config: Config) -> str:
    """What a model of this task was trained on; Sudoku-Extreme is the stand-in, as long as its own files are away."""
    task = config.build_task()
    side, count = getattr(task, "size", task.symbols), f"{config.boards:,}"
    drawn = f"drawn by letgo's own generator (seed {config.seed})"
    turned = ", each in its 8 turns and reflections" if config.symmetries else ""
    images = ", each under random symmetries of the board (digits, bands, stacks, lines, transposition)"
    images = images if config.symmetries else ""
    size, source = (config.codec_options.get(name) for name in ("size", "source"))
    shown = f", their cells {size}x{size} images of {source}'s training digits" if source else ""
    clues = f"with 0 to {task.cells - 1} clues at random places"
    return {
        "sudoku": f"{count} uniformly random complete {side}x{side} boards {drawn}, {clues}{shown}",
        "mnist-sudoku": f"{count} uniformly random complete {side}x{side} boards {drawn}, {clues}{shown}",
        "latin": f"{count} random {side}x{side} Latin squares {drawn}, {clues}",
        "queens": f"{count} boards of {side} queens, the training split of all that letgo's own search lists, {clues}",
        "connectivity": f"{count} random graphs of {side} nodes {drawn}",
        "maze": f"{count} mazes of {side}x{side} cells {drawn}{turned}; they are not Maze-Hard's",
        "sudoku-extreme": (
            f"{count} 9x9 puzzles, each with one solution, of a stand-in for Sudoku-Extreme with its shares of "
            "sources: about 9% from public lists (tdoku's benchmark files: forum hardest, magictour, 17 clues), the "
            f"others generated, many of them as neighbours of the hardest{images}"
        ),
    }[task.name]


def licence(config: Config) -> str:
    source = config.codec_options.get("source")
    if source in LICENCES:
        return f"MIT for the weights; the images that are shipped with them: {LICENCES[source]}"
    return {"sudoku-extreme": LISTS}.get(config.task, GENERATED)


def without_training_digits(run: Path) -> dict[str, bytes]:
    """The two files of a model's digits; a model that is shipped is not trained on."""
    facts = read_facts(run)
    tensors = load_tensors((run / TENSORS).read_bytes())
    blob = save({name: value for name, value in sorted(tensors.items()) if not name.startswith("train.")})
    words = {**facts, "sha256": hashlib.sha256(blob).hexdigest()}
    return {TENSORS: blob, FACTS: (json.dumps(words, indent=2) + "\n").encode()}


def differs(key: str, config: Config, usual: Config) -> bool:
    return getattr(config, key) != getattr(usual, key)


def again(name: str, config: Config, commands: Sequence[str] = ()) -> dict[str, Any]:
    """All lines that made a model; and the one line that was seen to reach its figures, if there is one.

    It was seen when it was run again, or as the only line that made it, or, where the run was cut and resumed, as that
    of further seeds.
    """
    runs = read_json(RESULTS / "training.json")
    made = list(commands) or runs.get(name, {}).get("commands", [f"letgo train {name} --out runs/{name}"])
    usual, drawn = PRESETS.get(name, config), licence(config) == GENERATED
    flags = [f"--{key} {getattr(config, key)}" for key in ("steps", "decay", "warmup") if differs(key, config, usual)]
    data = [] if drawn else [f"--data {config.task}"]
    line = " ".join([f"letgo train {name} --out runs/{name}", *data, *flags])
    further = {key: run for key, run in runs.items() if key.startswith(f"{name}.s")}
    same = [key for key, run in further.items() if len(run["commands"]) == 1 and run["steps"] == config.steps]
    if "again" in runs.get(name, {}):  # it was run once more, and measured
        line, seen = (runs[name]["again"][key] for key in ("command", "seen"))
    elif len(made) == 1 and "--init" not in made[0]:
        instances = "with instances drawn anew from the same seed" if drawn else "on that data (docs/assets.md)"
        seen = f"the one line that made it, {instances}"
    elif same and len(same) == len(further):
        seeds = " and ".join(key.removeprefix(f"{name}.s") for key in sorted(same))
        seen = f"its run was cut and resumed; in one line, as seeds {seeds} were trained"
    else:
        line, seen = "", ""
    note = "" if line else runs.get(name, {}).get("note", "")
    return {"commands": made, "again": line, "again_seen": seen, "made_note": note}


def figures(reports: list[dict[str, Any]], own: str | None = None) -> list[dict[str, Any]]:
    """What DDPM and Tweedie reprojection score where the model was measured first, with its command.

    A model that was measured with neither has the figures of its own rules, one whose configuration names its rule
    those of that one.
    """
    rules = ("ddpm", "tweedie") if own is None else (own,)
    plain = [r for r in reports if r["rule"] in rules and (own or not r["settings"])] or reports
    first = [r for r in plain if (r["regime"], r["steps"]) == (plain[0]["regime"], plain[0]["steps"])]
    chosen = {r["rule"]: r for r in reversed(first)}  # of several the first
    facts, scores = ("rule", "regime", "steps", "command"), ("value", "low", "high", "n")
    return [{k: r[k] for k in facts} | {k: r["validity"][k] for k in scores} for _, r in sorted(chosen.items())]


def rewrite_cards() -> None:
    """Bring every card up to date with results/: figures, and the lines that train a model."""
    for path in sorted(SHIPPED.glob("*/card.json")):
        card, config = read_json(path), Config.from_dict(read_json(path.with_name("config.json")))
        reports = Store(RESULTS).reports(card["name"])
        card |= again(card["name"], config) | {"figures": figures(reports, config.sample_rule)}
        card["generation_rule"] = best_from_nothing(path.parent, reports)
        write_json(path, card)
        write_atomically(path.with_name("README.md"), card_text(card, config, card["name"]))


def public(command: str, run: str, name: str) -> str:
    """A command as others can give it: the model by its name, data by the last part of its path, no folders of ours."""
    words, public_words = shlex.split(command), []
    for before, word in zip(["", *words], words, strict=False):
        if before == "--data":  # of `letgo reproduce` TASK=PATH
            task, equals, path = word.rpartition("=")
            public_words.append(f"{task}{equals}{Path(path).name}")
        elif not {"--out", "--models"} & {before, word}:
            public_words.append(name if word == run else word)
    return shlex.join(public_words)


def named(report: dict[str, Any], name: str, facts: dict[str, Any]) -> dict[str, Any]:
    """A report of the run as one of the shipped model; what it says of itself already, it keeps."""
    weights = report.get("weights", "fp32")
    if weights == "fp32":
        weights = ROUNDED if report["device"] == "cpu" else f"{ROUNDED}; bf16 arithmetic"
    command = public(report["command"], report["model"], name)
    scores = {key: value for key, value in report.items() if key not in ("weights", "weights_sha256", "command")}
    more = {key: value for key, value in facts.items() if key not in scores}
    return {**scores, "model": name, **more, "weights": weights, "command": command}


def best_from_nothing(folder: Path, reports: list[dict[str, Any]]) -> str:
    """The rule that draws most valid boards from nothing, measured with the model's own steps and settings."""
    solver = load(str(folder))
    where, steps = solver.generation, solver.steps(None)
    drawn = {
        r["rule"]: r["validity"]["value"]
        for r in reports
        if (r["regime"], r["steps"], r["settings"]) == (where, steps, unusual(solver.tuned(r["rule"], where)))
    }
    return max(drawn, key=drawn.__getitem__, default=fitting(solver.path, solver.codec)[0])


def unusual(settings: dict[str, float]) -> dict[str, float]:
    """What reports name of settings."""
    return {name: value for name, value in settings.items() if value != USUAL[name]}


def training_record(config: Config, state: dict[str, Any], log: list[dict[str, Any]], **said: Any) -> dict[str, Any]:
    """Times and every 10,000th step's losses, for results/training.json."""
    lines = [line for line in log if line["step"] % 10_000 == 0 or line is log[-1]]
    losses = [{k: v if k == "step" else round(v, 6) for k, v in x.items() if k != "steps_per_second"} for x in lines]
    return {
        **said,
        "precision": config.precision if config.precision != "auto" else "fp32" if "CPU" in said["device"] else "bf16",
        "seed": config.seed,
        "steps": int(state["step"]),
        "seconds": round(float(state["seconds"])),
        "rate": f"falls to 0 over the last {config.decay:.0%}" if config.decay else "constant",
        "median_ms_per_step": round(statistics.median(1000 / line["steps_per_second"] for line in log), 3),
        "loss": losses,
    }


def add_training(path: Path, name: str, record: dict[str, Any]) -> None:
    with locked(path.parent):
        runs = read_json(path)
        last = {"note": runs.pop("note")} if "note" in runs else {}
        write_atomically(path, json.dumps({**runs, name: record, **last}, indent=1))


def words() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("name")
    parser.add_argument("reports", type=Path)
    parser.add_argument("--trained-on", required=True)
    parser.add_argument("--summary", required=True)
    parser.add_argument("--limit", action="append", default=[])
    parser.add_argument("--beside", type=Path, action="append", default=[], help="reports of another kind: solve.json")
    parser.add_argument("--data", help="the file or folder that the reports' instances came from")
    parser.add_argument("--command", action="append", default=[], help="a `letgo train` command of the run")
    parser.add_argument("--torch", default=torch.__version__.partition("+")[0], help="the version that trained")
    parser.add_argument("--note", help="a remark on the training")
    parser.add_argument("--seconds", type=float, default=0.0, help="of training, where the run has no state.pt")
    return parser


def copied(run: Path, folder: Path, name: str) -> None:
    """Put what lies beside a run's weights in the shipped folder: digits, and settings without paths of a machine."""
    if (run / FACTS).is_file():
        for file, content in without_training_digits(run).items():
            (folder / file).write_bytes(content)
    for tuned in run.glob("tune-*.json"):
        grid = read_json(tuned)
        grid |= {"command": public(grid["command"], str(run), name)} if "command" in grid else {}
        write_json(folder / tuned.name, grid)


def main() -> None:
    parser = words()
    if sys.argv[1:] == ["--cards"]:
        return rewrite_cards()
    options = parser.parse_args()

    run = Run.load(options.run)
    config, chosen = run.config, run.validation or None
    log = [json.loads(line) for line in (options.run / "metrics.jsonl").read_text().splitlines()]
    if (options.run / "state.pt").is_file():
        state = load_state(options.run / "state.pt")
    else:  # of a run whose state was not kept
        state = {"step": log[-1]["step"], "seconds": options.seconds}
    picked = chosen is not None and "checkpoint" in chosen  # `letgo tune` may have gone back to an earlier step
    steps = int(chosen["step"] if chosen is not None and picked else state["step"])
    if not run.model.is_file() and picked:
        parser.error(f"{run.model} is missing, and its state is of another step than the one that was picked")
    weights = load_weights(run.model) if run.model.is_file() else run.weights(run.step, config.weights)

    facts: dict[str, Any] = {"objective": config.objective, "training_steps": steps}
    facts |= {"data": source_of(config.build_task(), options.data).identity("test")} if options.data else {}
    reports = [named(report, options.name, facts) for report in read_json(options.reports)]
    beside = {path: [r for r in read_json(path) if r["model"] == options.name] for path in options.beside}
    for path, found in beside.items():  # all is read and known before anything is written
        if path.stem not in FILES or not found:
            parser.error(f"{path}: expected reports on {options.name} in {', '.join(f'{key}.json' for key in FILES)}")

    folder, store = SHIPPED / options.name, Store(RESULTS)
    (folder / "card.json").unlink(missing_ok=True)  # of other weights
    save_weights(folder / "model.safetensors", weights, torch.float16)
    same = {"weights_sha256": weights_digest(folder)}  # the same weights, but for their rounding
    reports = [{**report, **same} for report in reports]
    for report in reports:
        store.add(options.name, report, KINDS["evaluate"].same)
    for path, found in beside.items():
        for report in found:
            store.add(path.stem, {**named(report, options.name, facts), **same}, FILES[path.stem])
    write_json(folder / "config.json", config.as_dict())
    copied(options.run, folder, options.name)
    card = {
        "name": options.name,
        "summary": options.summary,
        "data": data_text(config),
        "licence": licence(config),
        "recipe": recipe(config),
        "steps": steps,
        "run_steps": int(state["step"]),
        "seconds": round(float(state["seconds"]), 1),
        "trained_on": options.trained_on,
        "weights": "EMA" if config.weights == "ema" else "raw",
        "validation": chosen,
        "parameters": sum(w.numel() for w in weights.values()),
        "sha256": hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest(),
        "generation_rule": best_from_nothing(folder, reports),
        "limits": options.limit,
        "figures": figures(reports, config.sample_rule),
        **again(options.name, config, options.command),
    }
    write_json(folder / "card.json", card)
    write_atomically(folder / "README.md", card_text(card, config, options.name))
    if options.command:
        said = {"commands": options.command, "device": options.trained_on.removeprefix("one "), "torch": options.torch}
        record = training_record(config, state, log, **said)
        record |= {"validation": chosen} | ({"note": options.note} if options.note else {})
        add_training(RESULTS / "training.json", options.name, record)


if __name__ == "__main__":
    main()
