"""What an experiment costs: boards through the network, by the time that one takes on a CPU core and on an H200."""

from __future__ import annotations

from functools import cache

from letgo import tasks
from letgo.analysis import analysis_of
from letgo.reproduce.experiments import Experiment
from letgo.reproduce.own_runs import config_of, seconds
from letgo.samplers import RULES

# Seconds for a cell of one board in one call, of the paper's Transformer with 81 cells: .97 ms a board on one core, and
# 1.62 million boards a second on an H200 (docs/performance.md). Attention makes large boards dearer than this says.
CPU, H200 = 12e-6, 7.6e-9
LARGE = 200  # cells, from which on attention outweighs the rest
SEEDS = 3


@cache
def cells(task: str) -> int:
    """Return how much a board of the task costs in cells; a maze's attention counts twice."""
    count = tasks.get(task).cells
    return count * (2 if count > LARGE else 1)


def board_cells(experiment: Experiment) -> float:
    """Return boards times steps times cells, of all seeds and at the paper's numbers of instances."""
    total = 0.0
    for need in experiment.needs:
        boards = need.count * need.passes * max(need.steps, 0) * RULES[need.rule].calls
        total += boards * cells(need.task) * (1 if need.first else SEEDS)
    for picture in experiment.pictures:
        boards = picture.size(quick=False) * analysis_of(picture.analysis).walks
        for model in picture.models:
            config = config_of(model)
            total += boards * (picture.steps or config.sample_steps) * cells(config.task)
    return total


def training_seconds(experiment: Experiment) -> tuple[float, float]:
    """Return how long the runs take that no weights are shipped of and no preset is: on a CPU core and on an H200."""
    models = [need.model for need in experiment.needs] + [m for p in experiment.pictures for m in p.models]
    each = [seconds(model) for model in dict.fromkeys(models)]
    return sum((cpu for cpu, _ in each), 0.0), sum((h200 for _, h200 in each), 0.0)


def told(seconds: float) -> str:
    """Tell a time by one figure, `12 s`, `5 min`, `3 h` or `2 days`: more such an estimate does not have."""
    for unit, size in (("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 1):.0f} s"


def cost(experiment: Experiment) -> str:
    """Return the cost of what is measured anew, at the paper's size; what lies in the results already costs nothing."""
    work, (cpu, h200) = board_cells(experiment), training_seconds(experiment)
    sampling = f"CPU core {told(work * CPU)}, H200 {told(work * H200)}" if work else "no sampling"
    return f"{sampling}; training first: CPU core {told(cpu)}, H200 {told(h200)}" if cpu else sampling
