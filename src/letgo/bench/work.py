"""What a board and an optimiser step cost, counted on the plain network."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from letgo.config import Config
from letgo.objectives import simple_rows
from letgo.shapes import State
from letgo.tasks import Problem


@dataclass(frozen=True)
class Work:
    """What one board costs, counted on the plain network: matrix products and attention."""

    forward: int  # FLOPs of a forward pass
    both: int  # FLOPs of a forward and a backward pass
    kept: int  # bytes that autograd keeps between the two
    weights: int  # number of parameters
    state: int  # entries of a state

    @staticmethod
    def of(config: Config, problem: Problem, half: bool) -> Work:
        network = config.build_model().eval()  # a dropout mask is nothing that must be kept
        state = config.build_codec().encode(problem.solution[:1])
        weights = sum(p.numel() for p in network.parameters())
        forward, both = (_flops(network, state, problem, backward) for backward in (False, True))
        once, twice = (_kept(network, state.repeat(n, 1, 1), problem, half) for n in (1, 2))
        return Work(forward, both, twice - once, weights, state.numel())

    def step_flops(self, config: Config) -> int:
        """Of an optimiser step: Eq. 4, or Eq. 9 as App. C or Algorithm 2 has it."""
        if config.objective == "simple":
            return config.batch * self.both
        if config.full_gradient:
            return 2 * config.batch * self.both
        rows = config.batch + simple_rows(config.simple_weight, config.batch)
        return config.batch * self.forward + rows * self.both

    def step_bytes(self, config: Config) -> int:
        """Weights, gradients and Adam's two moments read and written (fp32), and what autograd keeps likewise."""
        rows = config.batch + (0 if config.objective == "simple" else simple_rows(config.simple_weight, config.batch))
        return 8 * 4 * self.weights + 2 * rows * self.kept

    def sample_bytes(self, batch: int, half: bool) -> int:
        """Of a reverse step, all else staying on the chip: weights read, states read and written."""
        return self.weights * (2 if half else 4) + batch * 2 * 4 * self.state


def _predict(network: nn.Module, state: State, problem: Problem) -> State:
    """x0_hat of copies of the first instance."""
    context = None if problem.context is None else problem.context[:1].float().expand(len(state), -1, -1)
    return network(state, torch.full((len(state), 1, 1), 0.5), context)


def _flops(network: nn.Module, state: State, problem: Problem, backward: bool) -> int:
    counter = FlopCounterMode(display=False)
    with counter, torch.set_grad_enabled(backward), sdpa_kernel(SDPBackend.MATH):  # as products, which it can count
        x0_hat = _predict(network, state, problem)
        if backward:
            x0_hat.square().mean().backward()
    return counter.get_total_flops()


def _kept(network: nn.Module, state: State, problem: Problem, half: bool) -> int:
    """Bytes that autograd keeps of a forward pass, weights apart."""
    weights = {p.untyped_storage().data_ptr() for p in network.parameters()}
    kept: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor  # held, so that no address is used twice
        return tensor

    cast = torch.autocast("cpu", torch.bfloat16, cache_enabled=False) if half else nullcontext()
    with cast, torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        x0_hat = _predict(network, state, problem)
    assert x0_hat.requires_grad
    return sum(tensor.untyped_storage().nbytes() for address, tensor in kept.items() if address not in weights)
