"""How fast: our paths, the plain eager ones and a `diffusers` scheduler loop, in one run on one machine.

Speed does not depend on the weights: sampling takes the shipped ones where there are any, training starts afresh.
"""

from letgo.bench.report import summary
from letgo.bench.sample import bench_sample
from letgo.bench.train import bench_train

__all__ = ["bench_sample", "bench_train", "summary"]
