"""A Transformer that predicts the velocity of rectified flow instead of x0."""

from __future__ import annotations

from typing import ClassVar

from letgo.models.transformer import Transformer
from letgo.paths import LinearPath
from letgo.shapes import State, Time


class VelocityTransformer(Transformer):
    """Its head gives dx/dt on the linear path; to a sampler it answers x0_hat = x_t - t v like every other network."""

    path_name: ClassVar[str] = "linear"  # the only path that it fits

    def answer(self, x_t: State, t: Time, raw: State) -> State:
        return LinearPath().x0_from_velocity(x_t, raw.to(x_t.dtype), t)
