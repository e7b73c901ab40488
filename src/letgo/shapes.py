"""The shapes that every module speaks of."""

from jaxtyping import Bool, Float, Int
from torch import Tensor

State = Float[Tensor, "batch cells dim"]  # every noisy or clean board, for every task and codec
Time = Float[Tensor, "#batch 1 1"]  # broadcasts against a State, so equations need no reshaping
AnyState = Float[Tensor, "batch *shape"]  # what paths, and the networks of others, take: a state of any shape
AnyTime = Float[Tensor, "#batch *ones"]  # broadcasts against it
Symbols = Int[Tensor, "batch cells"]  # decoded boards, symbols 0 .. K-1
CellMask = Bool[Tensor, "batch cells"]  # True on clues
PerBoard = Bool[Tensor, "batch"]
