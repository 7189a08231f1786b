"""Relay -> relay in which parallel products with one stack of matrices are one wide product."""

from __future__ import annotations

from minitvm.relay.ir import Call, Module, tensor_type
from minitvm.relay.ops.nn.dense import BatchMatmul
from minitvm.relay.passes.combine_parallel import DEFAULT_BRANCHES, LEVEL, Wide, combining_pass
from minitvm.transform import PASS_NAMES, Pass

NAME = "CombineParallelBatchMatmul"
PASS_NAMES[NAME] = LEVEL  # known to `PassContext` before the pass is made


def combine_parallel_batch_matmul(min_num_branches: int = DEFAULT_BRANCHES) -> Pass[Module]:
    """Combines at least so many (here two) products of one stack of matrices with stacks of the
    same depth, and what follows all of them.

    Before:

        def main(x: Tensor((1, 1, 2), "float32")) -> Tensor((1, 1, 1), "float32"):
            v0 = nn.batch_matmul(x, const([1.0, 2.0], (1, 1, 2), "float32"))  #: "a"
            v1 = nn.batch_matmul(x, const([3.0, 4.0], (1, 1, 2), "float32"))  #: "b"
            v2 = subtract(v0, v1)  #: "c"
            return v2

    After:

        def main(x: Tensor((1, 1, 2), "float32")) -> Tensor((1, 1, 1), "float32"):
            v0 = nn.batch_matmul(x, const([1.0, 2.0, 3.0, 4.0], (1, 2, 2), "float32"))  #: "a", "b"
            v1 = strided_slice(v0, begin=(0,), end=(1,), axes=(2,))  #: "a"
            v2 = strided_slice(v0, begin=(1,), end=(2,), axes=(2,))  #: "b"
            v3 = subtract(v1, v2)  #: "c"
            return v3
    """
    return combining_pass(NAME, _wide, min_num_branches, combine_parallel_batch_matmul.__doc__)


def _wide(call: Call) -> Wide | None:
    op = call.callee
    if not isinstance(op, BatchMatmul):
        return None
    x, y = call.arguments
    columns = 1 if op.transpose_b else 2
    batch, *rest = tensor_type(y).shape
    if not isinstance(rest[columns - 1], int):
        return None
    return Wide((x, repr(op), batch, rest[2 - columns]), 2, columns)
