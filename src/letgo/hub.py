"""A model on the Hugging Face Hub: `push` makes the folder that `letgo.load("hub:ID")` reads, and uploads it."""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from letgo.cards import card_of, card_text
from letgo.data.files import write_atomically
from letgo.data.hub import WRITING, fault_of, import_hub
from letgo.errors import LetgoError
from letgo.paths import GaussianPath
from letgo.runs import Run, load_model, locate, read_card, read_json, save_weights, write_json
from letgo.solver import load

OURS = ("card.json", "scheduler_config.json", "tune-*.json", "digits.*")  # an earlier push may have left them
TRAIN_STEPS = 1_000  # of a table of betas; a grid of N steps is ours where N divides them


def push(
    model: str | os.PathLike[str],
    identifier: str,
    private: bool = False,
    licence: str | None = None,
    reports: tuple[dict[str, Any], ...] = (),
) -> str:
    """Upload a model, shipped or of one's own, as the repository `identifier`, made where it is missing.

    Returns its address. The licence is one of the Hub's names, such as mit; the reports are of `letgo evaluate`.
    """
    locate(os.fspath(model))  # before anybody is asked
    api = connect(identifier)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stage(model, folder, identifier, licence, reports)
        try:
            made = api.create_repo(identifier, private=private or None, exist_ok=True)
            with warnings.catch_warnings():  # what the Hub remarks on a card's metadata
                warnings.simplefilter("ignore")
                message = f"{read_json(folder / 'config.json')['name']}, by letgo"
                api.upload_folder(
                    repo_id=made.repo_id, folder_path=folder, commit_message=message, delete_patterns=list(OURS)
                )
        except Exception as error:  # its exceptions differ between its versions and its transports
            raise LetgoError(f"cannot push to {identifier}: {fault_of(error, WRITING)}") from error
    return str(made)


def connect(identifier: str) -> Any:
    """Return the Hub's client. One question first, which is not repeated: whether it answers and knows the token."""
    try:
        hub = import_hub()
    except ImportError:
        raise LetgoError("push needs the hub extra: pip install 'letgo[hub]'") from None
    try:
        utils: Any = import_module("huggingface_hub.utils")
        utils.validate_repo_id(identifier)
        utils.disable_progress_bars()  # the command speaks for itself
        utils.logging.set_verbosity_error()
        api = hub.HfApi()
        api.whoami()
        return api
    except Exception as error:
        raise LetgoError(f"cannot push to {identifier}: {fault_of(error, WRITING)}") from error


def stage(
    model: str | os.PathLike[str],
    folder: Path,
    identifier: str,
    licence: str | None = None,
    reports: tuple[dict[str, Any], ...] = (),
) -> None:
    """Write the folder of a model: config.json, model.safetensors, README.md, tuned settings, a scheduler.

    Commands of the run, which may name folders of a machine, stay away. What is written is loaded once, as others will.
    """
    config, network, source = load_model(os.fspath(model))
    folder.mkdir(parents=True, exist_ok=True)
    known, at_step = read_card(source), locate(os.fspath(model))[1] is not None
    for report in reports:
        if report["task"] != config.build_task().name:
            raise LetgoError(f"a report on {report['task']}, but the model is for {config.task}; give reports on it")
    if at_step:
        save_weights(folder / "model.safetensors", network.state_dict())
        config = config.changed(weights="ema")
    else:
        shutil.copyfile(source / "model.safetensors", folder / "model.safetensors")
        for path in source.glob("tune-*.json"):
            write_json(folder / path.name, _without_command(read_json(path)))
    for path in source.glob("digits.*"):  # a model of images is nothing without them
        shutil.copyfile(path, folder / path.name)
    write_json(folder / "config.json", config.as_dict())
    if known and not at_step:
        shutil.copyfile(source / "card.json", folder / "card.json")
        card = dict(known)
    else:
        run = Run(folder, config) if at_step else Run.load(source)
        card = card_of(run, [*reports])
    card |= {"licence": licence} if licence else {}
    write_atomically(folder / "README.md", card_text(card, config, f"hub:{identifier}"))
    scheduler = scheduler_config(config.build_path())
    if scheduler is not None:
        write_json(folder / "scheduler_config.json", scheduler)
    load(folder, "cpu")


def _without_command(values: Any) -> Any:
    return {key: value for key, value in values.items() if key != "command"} if isinstance(values, dict) else values


def scheduler_config(path: Any) -> dict[str, Any] | None:
    """Return the path as diffusers' pipelines take it (`letgo.schedulers`): a flow, or a table of betas.

    None where it is neither.
    """
    if not isinstance(path, GaussianPath):
        return None
    config: dict[str, Any] = {
        "_class_name": "TweedieReprojectionScheduler",
        "num_train_timesteps": TRAIN_STEPS,
        "prediction_type": "sample",
        "clip_sample": False,
        "timestep_spacing": "trailing",
    }
    t = torch.linspace(0, 1, TRAIN_STEPS + 1, dtype=torch.float64)[:, None, None]
    alpha, beta = path.alpha(t), path.beta(t)
    if torch.allclose(alpha, 1 - t) and torch.allclose(beta, t):
        return {**config, "use_flow_sigmas": True}
    if not torch.allclose(alpha**2 + beta**2, torch.ones_like(t)):
        return None
    squares = alpha.flatten() ** 2
    return {**config, "trained_betas": (1 - squares[1:] / squares[:-1]).tolist()}
