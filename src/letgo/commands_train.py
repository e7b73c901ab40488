"""`letgo train`: words in, a run folder out."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

import torch

from letgo.errors import LetgoError
from letgo.evaluate import device_name
from letgo.machine import pick_device
from letgo.progress import Progress
from letgo.training.loop import KEEP
from letgo.training.train import configured, train

FIELDS = ("steps", "batch", "optimizer", "learning_rate", "warmup", "decay", "precision", "boards", "seed", "init")


def changes(args: argparse.Namespace) -> dict[str, Any]:
    """The fields of the configuration that a flag was given for."""
    flags = {"full_gradient": args.full_gradient or None, "symmetries": args.symmetries or None}
    return {name: getattr(args, name) for name in (*FIELDS, "simple_weight")} | flags


def run(args: argparse.Namespace) -> int:
    config = configured(args.preset, **changes(args))
    if args.dry_run:
        print(json.dumps(config.as_dict(), indent=2))
        return 0
    if args.out is None:
        raise LetgoError("train needs --out RUN, the folder to write to")
    if args.seeds and args.seed is not None:
        raise LetgoError("give --seed or --seeds, not both")
    device = pick_device(args.device)
    torch.set_num_threads(args.threads)
    show = Progress(f"{config.name} on {device_name(device)}: step", args.progress, args.quiet)

    def say(text: str) -> None:
        show.close()
        if not args.quiet:
            print(text, file=sys.stderr)

    def progress(step: int, total: int, speed: float, losses: dict[str, float]) -> None:
        show(step, total, f"  loss {losses['loss']:.5f}  {speed:,.0f} steps/s")

    found = train(
        config,
        args.out,
        seeds=args.seeds or None,
        data=args.data,
        device=device,
        max_seconds=args.max_seconds,
        keep=KEEP if args.keep is None else args.keep,
        validate=args.validate,
        progress=progress,
        say=say,
        log_every=args.log_every,
        tensorboard=args.tensorboard,
        fast=False if args.plain else None,
        command=args.command_line,
    )
    signal = max((each.signal for each in (found if isinstance(found, list) else [found])), default=0)
    return 128 + signal if signal else 0
