"""A diffusion model that knows nothing of this package: a noise network on diffusers' cosine schedule.

    pip install diffusers
    python examples/eps_network.py

It is a small Transformer in plain PyTorch that learns the 288 Sudoku boards of 4x4, as entries -1 and 1, with the
scheduler and the usual loss of diffusers. Two minutes on one CPU core. Then `letgo.sample` takes it through the same
puzzles from the same noise by DDPM and by Tweedie reprojection, and once without a clip, to show why it is there.
"""

import argparse
import math
import time

if __name__ == "__main__":
    print("loading PyTorch and diffusers", flush=True)

import torch
from diffusers import DDPMScheduler
from torch import Tensor, nn

import letgo
from letgo.estimates import Estimate, rate
from letgo.models.denoiser import NoiseDenoiser
from letgo.paths import TablePath
from letgo.tasks.sudoku_search import all_boards

SCHEDULER = DDPMScheduler(num_train_timesteps=1000, beta_schedule="squaredcos_cap_v2")
BOARDS = all_boards(2)  # (288, 16), symbols 0 to 3
STATES = nn.functional.one_hot(BOARDS, 4) * 2.0 - 1  # (288, 16, 4)


class EpsNetwork(nn.Module):
    """eps_hat of boards (batch, 16, 4) at diffusers' timesteps (batch,)."""

    def __init__(self, width: int = 64, depth: int = 3):
        super().__init__()
        self.embed, self.head = nn.Linear(4, width), nn.Linear(width, 4)
        self.place = nn.Parameter(torch.randn(16, width))
        self.time = nn.Sequential(nn.Linear(32, width), nn.SiLU(), nn.Linear(width, width))
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, 0.0, "gelu", batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, depth, nn.LayerNorm(width), enable_nested_tensor=False)

    def forward(self, x: Tensor, timestep: Tensor) -> Tensor:
        angles = timestep[:, None] * torch.exp(torch.arange(16) * -math.log(10_000) / 16)
        when = self.time(torch.cat([angles.sin(), angles.cos()], 1))[:, None]
        return self.head(self.layers(self.embed(x) + self.place + when))


def train(steps: int, seed: int, batch: int = 64, learning_rate: float = 2e-3) -> EpsNetwork:
    """The loss of DDPM on open cells; some cells are clues, which are clean at every noise level (inpainting)."""
    torch.manual_seed(seed)
    network, started, shown = EpsNetwork(), time.monotonic(), -math.inf
    optimizer = torch.optim.Adam(network.parameters(), learning_rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, learning_rate, steps, pct_start=0.05)
    for step in range(1, steps + 1):
        x0 = STATES[torch.randint(len(STATES), (batch,))]
        eps, timestep = torch.randn_like(x0), torch.randint(1000, (batch,))
        clue = (torch.rand(batch, 16) < torch.rand(batch, 1))[..., None]
        x_t = torch.where(clue, x0, SCHEDULER.add_noise(x0, eps, timestep))
        loss = ((network(x_t, timestep) - eps).square() * ~clue).sum() / (4 * ~clue).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if time.monotonic() - shown > 10 or step == steps:
            shown = time.monotonic()
            print(f"step {step:,} of {steps:,}, loss {loss.item():.3f}, {shown - started:.0f} s", flush=True)
    return network.eval()


def valid(network: EpsNetwork, rule: str, clip: tuple[int, int] | None, count: int, clues: int, seed: int) -> Estimate:
    """How many of the puzzles end in one of the 288 boards; the clues are kept, so it solves the puzzle."""
    draws = torch.Generator().manual_seed(seed)
    known = STATES[torch.randint(len(STATES), (count,), generator=draws)]
    mask = torch.rand(count, 16, generator=draws).argsort(1) < clues
    path, calls, told = TablePath(SCHEDULER.alphas_cumprod), 0, time.monotonic()

    def eps(x_t: Tensor, t: Tensor) -> Tensor:
        nonlocal calls, told
        calls += 1
        if time.monotonic() - told > 10:
            told = time.monotonic()
            print(f"{rule}, sampling step {calls} of 200", flush=True)
        return network(x_t, path.timestep(t))

    denoise = NoiseDenoiser(eps, path, clip=clip)
    x = letgo.sample(denoise, known.shape, path=path, rule=rule, steps=200, known=known, mask=mask, seed=seed)
    return rate(int((x.argmax(-1)[:, None] == BOARDS).all(-1).any(1).sum()), count)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=8000, help="of training")
    parser.add_argument("--count", type=int, default=1000, help="puzzles")
    parser.add_argument("--clues", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    network = train(options.steps, options.seed)
    print(f"valid 4x4 boards with {options.clues} clues, n = {options.count}, seed {options.seed}, 200 sampling steps:")
    for rule, clip in (("ddpm", (-1, 1)), ("tweedie", (-1, 1)), ("tweedie", None)):
        share = valid(network, rule, clip, options.count, options.clues, options.seed)
        low, high = share.interval95
        print(f"{rule:8} {share.value:.3f} [{low:.3f}, {high:.3f}]{'' if clip else '  without a clip'}", flush=True)


if __name__ == "__main__":
    main()
