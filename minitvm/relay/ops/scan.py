"""Running sums: each element is that of all elements up to it along an axis.

    cumsum    y[k] = x[0] + ... + x[k]

As a recurrence in te, whose steps are positions along the axis.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from minitvm import te
from minitvm.relay.ir import TensorType
from minitvm.relay.op import Op, register
from minitvm.relay.ops.axes import one_axis
from minitvm.relay.ops.families import NUMBER, compute_name, require_kind
from minitvm.relay.ops.nn.dense import joint_index, split_index
from minitvm.target import Target
from minitvm.te.recipes import schedule_recurrence
from minitvm.tir import ir
from minitvm.tir.ir import Expr


@register
@dataclass(frozen=True, slots=True)
class CumSum(Op):
    """The sums up to each element along an axis, without that element where `exclusive`; from the
    end on where `reverse`. Integers wrap."""

    name = "cumsum"

    axis: int = 0
    exclusive: bool = False
    reverse: bool = False

    def infer(self, x: TensorType) -> TensorType:
        require_kind(self, (x,), NUMBER)
        one_axis(self, (x,), self.axis, x.rank)
        return x

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        rows = np.moveaxis(x, self.axis, 0)
        rows = rows[::-1] if self.reverse else rows
        with np.errstate(all="ignore"):
            sums = np.cumsum(rows, axis=0, dtype=x.dtype)
        if self.exclusive:
            sums = np.concatenate([np.zeros_like(sums[:1]), sums[:-1]])
        sums = sums[::-1] if self.reverse else sums
        return np.ascontiguousarray(np.moveaxis(sums, 0, self.axis))

    def compute(self, x: te.Tensor) -> te.Tensor:
        extents = x.extents()
        axis = self.axis % len(extents)
        leading, length, behind = extents[:axis], extents[axis], extents[axis + 1:]
        if not prod(extents):
            nothing: te.Tensor = te.compute(extents, lambda *i: x[i], name=compute_name(self))
            return nothing

        def step(k: Expr) -> Expr:
            """The step at which a position comes, and the position of a step."""
            return length - 1 - k if self.reverse else k

        def element(t: Expr, o: Expr, p: Expr) -> Expr:
            return x[(*split_index(o, leading), step(t), *split_index(p, behind))]

        outer, inner = prod(leading), prod(behind)
        state = te.placeholder((length, outer, inner), x.dtype, name="cumsum_state")
        first = te.compute((1, outer, inner), element, name="cumsum_first")
        update = te.compute((length, outer, inner),
                            lambda t, o, p: state[t - 1, o, p] + element(t, o, p),
                            name="cumsum_update")
        sums: te.Tensor = te.scan(first, update, state, name="cumsum_sums")

        def result(*i: Expr) -> Expr:
            t, o, p = step(i[axis]), joint_index(i[:axis], leading), joint_index(
                i[axis + 1:], behind)
            if not self.exclusive:
                return sums[t, o, p]
            zero = ir.convert(0, x.dtype)
            return ir.if_then_else(t > 0, sums[t - 1, o, p], zero)

        output: te.Tensor = te.compute(extents, result, name=compute_name(self))
        return output

    def schedule(
        self, s: te.Schedule, anchor: te.Tensor, output: te.Tensor, target: Target
    ) -> None:
        schedule_recurrence(s, anchor, output, target)
