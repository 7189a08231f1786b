"""Relay -> relay in which parallel convolutions of one image are one wide convolution."""

from __future__ import annotations

from dataclasses import replace

from minitvm.relay.ir import Call, Module, tensor_type
from minitvm.relay.layout import Axis, parse_layout
from minitvm.relay.ops.nn.conv2d import Conv2d
from minitvm.relay.passes.combine_parallel import DEFAULT_BRANCHES, LEVEL, Wide, combining_pass
from minitvm.transform import PASS_NAMES, Pass

NAME = "CombineParallelConv2D"
PASS_NAMES[NAME] = LEVEL  # known to `PassContext` before the pass is made


def combine_parallel_conv2d(min_num_branches: int = DEFAULT_BRANCHES) -> Pass[Module]:
    """Combines at least so many (here two) convolutions of one group, with equal windows and plain
    layouts, and what follows all of them.

    Before:

        def main(x: Tensor((1, 1, 2, 2), "float32")) -> Tensor((1, 2, 2, 2), "float32"):
            v0 = nn.conv2d(x, const([2.0], (1, 1, 1, 1), "float32"))  #: "a"
            v1 = nn.conv2d(x, const([3.0], (1, 1, 1, 1), "float32"))  #: "b"
            v2 = nn.relu(v0)  #: "c"
            v3 = nn.relu(v1)  #: "d"
            v4 = concatenate(v2, v3, axis=1)  #: "e"
            return v4

    After:

        def main(x: Tensor((1, 1, 2, 2), "float32")) -> Tensor((1, 2, 2, 2), "float32"):
            v0 = nn.conv2d(x, const([2.0, 3.0], (2, 1, 1, 1), "float32"))  #: "a", "b"
            v1 = nn.relu(v0)  #: "c", "d"
            v2 = strided_slice(v1, begin=(0,), end=(1,), axes=(1,))  #: "c"
            v3 = strided_slice(v1, begin=(1,), end=(2,), axes=(1,))  #: "d"
            v4 = concatenate(v2, v3, axis=1)  #: "e"
            return v4
    """
    return combining_pass(NAME, _wide, min_num_branches, combine_parallel_conv2d.__doc__)


def _wide(call: Call) -> Wide | None:
    op = call.callee
    if not isinstance(op, Conv2d) or op.groups != 1:
        return None
    data, kernel, result = map(parse_layout, (op.data_layout, op.kernel_layout, op.out_layout))
    if data.is_packed() or kernel.is_packed():
        return None
    image, weight = call.arguments
    filters = kernel.axes.index(Axis("O"))
    shape = tensor_type(weight).shape
    if not isinstance(shape[filters], int):
        return None
    rest = (*shape[:filters], *shape[filters + 1 :])
    key = (image, repr(replace(op, channels=None)), rest)
    known = op.channels in (None, shape[filters])
    return Wide(key, result.axes.index(Axis("C")), filters) if known else None
