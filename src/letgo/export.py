"""A trained network as one ONNX file, for runtimes that have neither torch nor letgo."""

from __future__ import annotations

import json
import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from letgo import __version__
from letgo.codecs import Codec, ColumnCodes
from letgo.config import Config
from letgo.data.files import FilePath, write_atomically
from letgo.errors import LetgoError
from letgo.solver import Solver, load

SAMPLING = {  # by the family of a path: how to sample with the network alone
    "gaussian": (
        "x_t starts as normal noise at t = 1. For each step from t to s, with t and s from 1 to 0 in equal parts: set "
        "the cells that are clues to their codewords, x0_hat = network(x_t, t), x_t = alpha(s) x0_hat + beta(s) noise "
        "(Tweedie reprojection); cosine path: alpha = cos(pi s / 2), beta = sin(pi s / 2); linear: alpha = 1 - s, "
        "beta = s. In the end a cell is the symbol whose codeword is nearest."
    ),
    "absorbing": (
        "States are one-hot, the last entry is the mask; all cells but the clues start masked at t = 1. x0_hat are "
        "probabilities of symbols. For each step from t to s, open every masked cell with probability (t - s) / t by a "
        "draw from its x0_hat (ancestral sampling)."
    ),
}


def export_onnx(model: str | os.PathLike[str], path: FilePath) -> dict[str, str]:
    """Write a model's network, x0_hat = f(x_t, t) or f(x_t, t, context), and return the metadata of the file.

    The batch may have any size; t is one time for each board, of shape (batch, 1, 1).
    """
    refuse_without_onnx()
    solver = load(model, "cpu", fast=False)
    proto = to_onnx(solver.network, example_inputs(solver))
    about = metadata(solver)
    for key, value in about.items():
        proto.metadata_props.add(key=key, value=value)
    proto.doc_string = about["sampling"]
    write_atomically(path, proto.SerializeToString())
    return about


def refuse_without_onnx() -> None:
    try:
        import_module("onnx")
        import_module("onnxscript")
    except ImportError:
        raise LetgoError("export needs the onnx extra: pip install 'letgo[onnx]'") from None


def example_inputs(solver: Solver) -> dict[str, Tensor]:
    """Return inputs of two boards, by name. They are traced, their numbers do not matter."""
    task = solver.task
    inputs = {"x_t": torch.zeros(2, task.cells, solver.codec.dim), "t": torch.full((2, 1, 1), 0.5)}
    if task.context:
        context = task.generate(2, np.random.default_rng(0)).context
        assert context is not None, "a task that has a context draws it"
        inputs["context"] = context.float()
    return inputs


def to_onnx(network: nn.Module, inputs: dict[str, Tensor]) -> Any:
    """Trace a network; what torch notes at each node, places of files among it, is left out."""
    batch = torch.export.Dim("batch")
    with _silence(), _faults_of(network):
        program = torch.onnx.export(
            network,
            tuple(inputs.values()),
            dynamo=True,
            verbose=False,
            dynamic_shapes={name: {0: batch} for name in inputs},
            input_names=list(inputs),
            output_names=["x0_hat"],
        )
    assert program is not None, "what dynamo exports is a program"
    proto = program.model_proto
    del proto.metadata_props[:], proto.graph.metadata_props[:]
    for part in (*proto.graph.node, *proto.graph.value_info, *proto.graph.input, *proto.graph.output):
        del part.metadata_props[:]
        part.doc_string = ""
    for function in proto.functions:
        del function.metadata_props[:]
        for node in function.node:
            del node.metadata_props[:]
    proto.producer_name, proto.producer_version = "letgo", __version__
    return proto


def metadata(solver: Solver) -> dict[str, str]:
    """Return what a reader of the file needs beside the network; all values are text, tables are JSON."""
    config: Config = solver.config
    about = {
        "version": __version__,
        "name": config.name,
        "task": config.task,
        "codec": config.codec,
        "path": config.path,
        "rule": solver.best_rule,
        "steps": str(solver.steps()),
        "config": json.dumps(config.as_dict()),
        "sampling": SAMPLING.get(solver.path.family, f"The path is '{config.path}', of one's own."),
    }
    words = codewords(solver.codec, solver.task.symbols)
    return about if words is None else {**about, "codewords": json.dumps(words.tolist())}


def codewords(codec: Codec, symbols: int) -> Tensor | None:
    """Return the state of each symbol, or None where it differs from cell to cell."""
    if isinstance(codec, ColumnCodes):
        return None
    twice = codec.encode(torch.arange(symbols)[:, None].expand(-1, 2))
    return twice[:, 0] if torch.equal(twice[:, 0], twice[:, 1]) else None


@contextmanager
def _faults_of(network: nn.Module) -> Iterator[None]:
    """A network of one's own may branch on its numbers, which no trace can follow."""
    try:
        yield
    except torch.onnx.OnnxExporterError as error:
        reason = str(error.__cause__ or error).strip().partition("\n")[0][:200]
        raise LetgoError(
            f"{type(network).__name__} cannot be traced ({reason}); rewrite its forward without that"
        ) from None


@contextmanager
def _silence() -> Iterator[None]:
    """The exporter warns of packages that it does not need and of its own deprecated calls."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
