"""Where LCM's loop needs no distillation, and where it blurs: boards of Sudoku beside patches of photographs.

    pip install letgo[diffusers,plots] scikit-image
    python examples/lcm_patches.py --out docs/assets

Tweedie reprojection is the loop of latent consistency models, predict x0 and add fresh noise, on a network that nobody
distilled. The boards are those of the shipped `sudoku-baseline`. For the patches a small convolutional network of v
learns 16x16 patches of the photographs that scikit-image brings, on diffusers' cosine schedule, from the left four
fifths of each; the right fifth is held out to be measured against. About ten minutes on one CPU core.
"""

import argparse
import math
import time
from pathlib import Path

import numpy as np
import torch
from diffusers import DDPMScheduler
from skimage import color, data, transform
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import letgo
from letgo.models.denoiser import VPredictionDenoiser
from letgo.paths import TablePath

SCHEDULER = DDPMScheduler(num_train_timesteps=1000, beta_schedule="squaredcos_cap_v2", prediction_type="v_prediction")
PHOTOGRAPHS = ("astronaut", "brick", "camera", "chelsea", "coffee", "grass", "gravel", "rocket")
SIZE = 16
STEPS = (4, 8, 20, 50, 200)
SCALES = {"coarse": (0.5, 2.5), "middle": (2.5, 5.5), "fine": (5.5, 12.0)}  # cycles per patch


def photographs() -> list[Tensor]:
    """In grey from -1 to 1, at half their size."""
    pictures = []
    for name in PHOTOGRAPHS:
        picture = getattr(data, name)()
        grey = color.rgb2gray(picture) if picture.ndim == 3 else picture / 255
        pictures.append(torch.from_numpy(transform.downscale_local_mean(grey, (2, 2))).float() * 2 - 1)
    return pictures


def patches(pictures: list[Tensor], count: int, draws: torch.Generator) -> Tensor:
    """Patches (count, 1, 16, 16) of pictures and places drawn at random, half of them mirrored."""

    def draw() -> Tensor:
        picture = pictures[int(torch.randint(len(pictures), (1,), generator=draws))]
        top, left = (int(torch.randint(length - SIZE + 1, (1,), generator=draws)) for length in picture.shape)
        patch = picture[top : top + SIZE, left : left + SIZE]
        return patch.flip(1) if int(torch.randint(2, (1,), generator=draws)) else patch

    return torch.stack([draw() for _ in range(count)])[:, None]


class Block(nn.Module):
    """Two convolutions, with the time in between."""

    def __init__(self, width: int):
        super().__init__()
        self.first, self.second = (nn.Conv2d(width, width, 3, padding=1) for _ in "ab")
        self.norms = nn.ModuleList(nn.GroupNorm(8, width) for _ in "ab")
        self.when = nn.Linear(width, 2 * width)

    def forward(self, x: Tensor, when: Tensor) -> Tensor:
        scale, shift = self.when(when)[..., None, None].chunk(2, 1)
        hidden = self.norms[1](self.first(nn.functional.silu(self.norms[0](x)))) * (1 + scale) + shift
        return x + self.second(nn.functional.silu(hidden))


class PatchNetwork(nn.Module):
    """v_hat of patches (batch, 1, 16, 16) at diffusers' timesteps (batch,); it works on 8x8 squares of four pixels."""

    def __init__(self, width: int = 64, depth: int = 6):
        super().__init__()
        self.enter, self.leave = nn.Conv2d(4, width, 3, padding=1), nn.Conv2d(width, 4, 3, padding=1)
        self.place = nn.Parameter(torch.zeros(width, SIZE // 2, SIZE // 2))
        self.time = nn.Sequential(nn.Linear(32, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.look = nn.MultiheadAttention(width, 4, batch_first=True)

    def forward(self, x: Tensor, timestep: Tensor) -> Tensor:
        angles = timestep[:, None] * torch.exp(torch.arange(16) * -math.log(10_000) / 16)
        when = self.time(torch.cat([angles.sin(), angles.cos()], 1))
        hidden = self.enter(nn.functional.pixel_unshuffle(x, 2)) + self.place
        for number, block in enumerate(self.blocks):
            hidden = block(hidden, when)
            if number == len(self.blocks) // 2:
                cells = hidden.flatten(2).transpose(1, 2)
                seen, _ = self.look(cells, cells, cells, need_weights=False)
                hidden = hidden + seen.transpose(1, 2).reshape_as(hidden)
        return nn.functional.pixel_shuffle(self.leave(hidden), 2)


def train(pool: Tensor, steps: int, seed: int, batch: int = 64, learning_rate: float = 1e-3) -> PatchNetwork:
    """The usual loss on v; the weights are averaged over the last steps (EMA)."""
    torch.manual_seed(seed)
    network, started, shown = PatchNetwork(), time.monotonic(), -math.inf
    average = AveragedModel(network, multi_avg_fn=get_ema_multi_avg_fn(0.995))
    optimizer = torch.optim.Adam(network.parameters(), learning_rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, learning_rate, steps, pct_start=0.05)
    for step in range(1, steps + 1):
        x0 = pool[torch.randint(len(pool), (batch,))]
        eps, timestep = torch.randn_like(x0), torch.randint(1000, (batch,))
        v = SCHEDULER.get_velocity(x0, eps, timestep)
        loss = (network(SCHEDULER.add_noise(x0, eps, timestep), timestep) - v).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        average.update_parameters(network)
        if time.monotonic() - shown > 20 or step == steps:
            shown = time.monotonic()
            print(f"step {step:,} of {steps:,}, loss {loss.item():.4f}, {shown - started:.0f} s", flush=True)
    return average.module.eval()


def drawn(network: PatchNetwork, rule: str, steps: int, count: int, seed: int) -> Tensor:
    """Patches from noise; the same seed gives every rule the same noise."""
    path = TablePath(SCHEDULER.alphas_cumprod)
    denoise = VPredictionDenoiser(lambda x_t, t: network(x_t, path.timestep(t)), path, clip=(-1, 1))
    return letgo.sample(denoise, (count, 1, SIZE, SIZE), path=path, rule=rule, steps=steps, seed=seed)


def power(patches: Tensor) -> dict[str, Tensor]:
    """The power of each patch by the scale of its detail, its mean taken off, in a Hann window against its edges."""
    window = torch.outer(*(torch.hann_window(SIZE, periodic=False),) * 2)
    spectrum = torch.fft.fft2((patches[:, 0] - patches.mean((1, 2, 3))[:, None, None]) * window).abs().square()
    cycles = torch.fft.fftfreq(SIZE) * SIZE
    radius = (cycles[:, None].square() + cycles[None].square()).sqrt()
    return {name: spectrum[:, (radius >= low) & (radius < high)].sum(1) for name, (low, high) in SCALES.items()}


def kept(own: Tensor, real: Tensor, draws: np.random.Generator) -> str:
    """The mean power beside that of real patches, with a 95% interval from 1,000 bootstraps of both."""

    def means(values: Tensor) -> np.ndarray:
        return values.numpy()[draws.integers(len(values), size=(1000, len(values)))].mean(1)

    low, high = np.quantile(means(own) / means(real), [0.025, 0.975])
    return f"{float(own.mean() / real.mean()):.2f} [{low:.2f}, {high:.2f}]"


def boards_table(count: int, seed: int) -> None:
    print(f"sudoku-baseline, 21 clues, share of valid boards, n = {count}, seed {seed}")
    for steps in STEPS:
        scores = []
        for rule in ("ddpm", "tweedie"):
            share = letgo.evaluate(
                "sudoku-baseline", rule=rule, regime="21", steps=steps, count=count, seed=seed
            ).validity
            low, high = share.interval95
            scores.append(f"{share.value:.3f} [{low:.3f}, {high:.3f}]")
        print(f"| {steps} | {' | '.join(scores)} |", flush=True)


def picture(rows: dict[str, Tensor], file: Path) -> None:
    """A row of patches under each other, all in the same grey scale."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, places = pyplot.subplots(len(rows), 1, figsize=(7.2, 0.62 * len(rows)))
    for place, (name, shown) in zip(places, rows.items(), strict=True):
        line = torch.cat([nn.functional.pad(patch, (1, 1, 1, 1), value=1.0) for patch in shown[:12, 0]], 1)
        place.imshow(line, cmap="gray", vmin=-1, vmax=1, interpolation="nearest")
        place.set_axis_off()
        place.text(-6, line.shape[0] / 2, name, ha="right", va="center", fontsize=8)
    figure.subplots_adjust(left=0.2, right=1, top=1, bottom=0, hspace=0.04)
    figure.savefig(file, dpi=120, metadata={"Software": None})
    pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=4000, help="of training")
    parser.add_argument("--count", type=int, default=256, help="patches")
    parser.add_argument("--boards", type=int, default=200, help="puzzles; 0 leaves them out")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path(), help="folder for lcm-patches.png")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.boards:
        boards_table(options.boards, options.seed)
    draws = torch.Generator().manual_seed(options.seed)
    pictures = photographs()
    pool = patches([p[:, : p.shape[1] * 4 // 5] for p in pictures], 20_000, draws)
    real = patches([p[:, p.shape[1] * 4 // 5 :] for p in pictures], 1_000, draws)
    network = train(pool, options.steps, options.seed)
    print(f"power beside that of {len(real)} held-out patches, n = {options.count}, seed {options.seed}")
    rows, bootstraps = {"held out": real}, np.random.default_rng(options.seed)
    for rule in ("ddpm", "ddim", "tweedie"):
        for steps in STEPS if rule == "tweedie" else (20, 200):
            rows[f"{rule}, {steps} steps"] = own = drawn(network, rule, steps, options.count, options.seed)
            theirs = power(real)
            cells = [kept(values, theirs[name], bootstraps) for name, values in power(own).items()]
            print(f"| {rule} | {steps} | {' | '.join(cells)} |", flush=True)
    picture(rows, options.out / "lcm-patches.png")


if __name__ == "__main__":
    main()
