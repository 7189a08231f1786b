"""A tile of a float32 matrix product, of fused multiply-adds."""

from __future__ import annotations

from minitvm import dtypes
from minitvm.te.functions import sum
from minitvm.te.tensor import compute, placeholder, reduce_axis
from minitvm.te.tensor_intrin import Parts, TensorIntrin, Views, decl_tensor_intrin
from minitvm.tir import ir
from minitvm.tir.ir import Broadcast, Call, Const, Expr


def fma_tile(rows: int = 4, lanes: int = 8) -> TensorIntrin:
    """c[i, j] += a[i, 0] * b[0, j]: a vector of `lanes` for each of `rows`, all in registers where
    the loop around it is the reduction and c is `cache_write`'s."""
    a = placeholder((rows, 1), name="a")
    b = placeholder((1, lanes), name="b")
    k = reduce_axis((0, 1), name="k")
    c = compute((rows, lanes), lambda i, j: sum(a[i, k] * b[k, j], axis=k), name="c")
    vector = dtypes.vector("float32", lanes)

    def parts(inputs: Views, outputs: Views, fused: bool = True) -> Parts:
        (a, b), (c,) = inputs, outputs
        zeros = Broadcast(Const(0.0, "float32"), lanes) if lanes > 1 else Const(0.0, "float32")
        column = b.vload((0, 0), vector)
        reset, update = [], []
        for row in range(rows):
            scale: Expr = Broadcast(a[row, 0], lanes) if lanes > 1 else a[row, 0]
            sums = c.vload((row, 0), vector)
            value = Call("fma", (scale, column, sums), vector) if fused else sums + scale * column
            reset.append(c.vstore((row, 0), zeros))
            update.append(c.vstore((row, 0), value))
        return None, ir.seq(*reset), ir.seq(*update)

    return decl_tensor_intrin(c.op, parts, f"fma_tile_{rows}x{lanes}", ("fma", "neon"),
                              [((), lambda ins, outs: parts(ins, outs, fused=False))])
