"""`nn.rotary_embedding`: pairs of elements of each row turned by an angle that its position has.

From "RoFormer: Enhanced Transformer with Rotary Position Embedding" (arXiv 2104.09864).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minitvm import dtypes, te
from minitvm.relay.ir import TensorType
from minitvm.relay.op import Op, Pattern, register
from minitvm.relay.ops.families import elementwise
from minitvm.tir import ir
from minitvm.tir.ir import Expr


@register
@dataclass(frozen=True, slots=True)
class RotaryEmbedding(Op):
    """x[B, T, H, D], or [B, H, T, D] where `heads_first`, by cosines and sines [B, T, R / 2].

    The pair (a, b) number j of a row becomes (cos * a - sin * b, sin * a + cos * b). Pairs are the
    elements j and j + R / 2 of the first R, or neighbours where `interleaved`; elements behind R
    stay.
    """

    name = "nn.rotary_embedding"
    pattern = Pattern.INJECTIVE
    arity = 3

    interleaved: bool = False
    heads_first: bool = False

    def infer(self, x: TensorType, cosines: TensorType, sines: TensorType) -> TensorType:
        types = (x, cosines, sines)
        if any(given.dtype != x.dtype for given in types) or not dtypes.is_float(x.dtype):
            raise self.fail(types, "all arguments must have one dtype of floats; cast them")
        if (x.rank, cosines.rank) != (4, 3) or cosines.shape != sines.shape:
            raise self.fail(types, "data of rank 4 takes cosines and sines of rank 3 and one shape")
        rows = x.shape[2 if self.heads_first else 1]
        if cosines.shape[:2] != (x.shape[0], rows):
            raise self.fail(types, f"cosines must be there for {x.shape[0]} times {rows} rows")
        half, size = cosines.shape[2], x.shape[3]
        if isinstance(half, int) and isinstance(size, int) and 2 * half > size:
            raise self.fail(types, f"{half} pairs are more than rows of {size} elements have")
        return x

    def evaluate(self, x: np.ndarray, cosines: np.ndarray, sines: np.ndarray) -> np.ndarray:
        heads = 1 if self.heads_first else 2
        cos, sin = np.expand_dims(cosines, heads), np.expand_dims(sines, heads)
        half = cosines.shape[2]
        first, second = (
            (slice(0, 2 * half, 2), slice(1, 2 * half, 2)) if self.interleaved
            else (slice(half), slice(half, 2 * half)))
        a, b = x[..., first], x[..., second]
        result = x.copy()
        with np.errstate(all="ignore"):
            result[..., first] = cos * a - sin * b
            result[..., second] = sin * a + cos * b
        return result

    def compute(self, x: te.Tensor, cosines: te.Tensor, sines: te.Tensor) -> te.Tensor:
        size, half = x.shape[3], cosines.shape[2]

        def element(*i: Expr) -> Expr:
            *row, d = i
            at = (i[0], i[2 if self.heads_first else 1])
            pair = d // 2 if self.interleaved else d % half
            cos, sin = cosines[(*at, pair)], sines[(*at, pair)]
            distance = 1 if self.interleaved else half
            is_first = ir.equal(d % 2, 0) if self.interleaved else d < half
            turned = te.if_then_else(
                is_first,
                cos * x[i] - sin * x[(*row, d + distance)],
                sin * x[(*row, d - distance)] + cos * x[i])
            return te.if_then_else(d < 2 * half, turned, x[i])

        return elementwise(self, (*x.shape[:3], size), element)
