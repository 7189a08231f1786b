"""Relay -> relay in which parallel dense layers on one matrix are one wide layer."""

from __future__ import annotations

from minitvm.relay.ir import Call, Module, tensor_type
from minitvm.relay.ops.nn.dense import Dense
from minitvm.relay.passes.combine_parallel import DEFAULT_BRANCHES, LEVEL, Wide, combining_pass
from minitvm.transform import PASS_NAMES, Pass

NAME = "CombineParallelDense"
PASS_NAMES[NAME] = LEVEL  # known to `PassContext` before the pass is made


def combine_parallel_dense(min_num_branches: int = DEFAULT_BRANCHES) -> Pass[Module]:
    """Combines at least so many (here two) dense layers, and what follows all of them.

    Before:

        def main(x: Tensor((1, 2), "float32")) -> Tensor((1, 1), "float32"):
            v0 = nn.dense(x, const([1.0, 2.0], (1, 2), "float32"))  #: "a"
            v1 = nn.dense(x, const([3.0, 4.0], (1, 2), "float32"))  #: "b"
            v2 = subtract(v0, v1)  #: "c"
            return v2

    After:

        def main(x: Tensor((1, 2), "float32")) -> Tensor((1, 1), "float32"):
            v0 = nn.dense(x, const([1.0, 2.0, 3.0, 4.0], (2, 2), "float32"))  #: "a", "b"
            v1 = strided_slice(v0, begin=(0,), end=(1,), axes=(1,))  #: "a"
            v2 = strided_slice(v0, begin=(1,), end=(2,), axes=(1,))  #: "b"
            v3 = subtract(v1, v2)  #: "c"
            return v3
    """
    return combining_pass(NAME, _wide, min_num_branches, combine_parallel_dense.__doc__)


def _wide(call: Call) -> Wide | None:
    if not isinstance(call.callee, Dense) or call.callee != Dense():
        return None
    rows, weight = call.arguments
    units, depth = tensor_type(weight).shape
    return Wide((rows, depth), tensor_type(rows).rank - 1, 0) if isinstance(units, int) else None
