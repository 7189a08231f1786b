"""Steps that the recipes of convolutions share."""

from __future__ import annotations

from math import prod

from minitvm.target import Target
from minitvm.te.recipes.inline import extent_of
from minitvm.te.recipes.knobs import decide
from minitvm.te.schedule import Schedule, StageHandle
from minitvm.te.tensor import Compute, IterVar, Tensor


def same_image(op: Compute, output: Tensor) -> bool:
    """Whether a tensor has the elements of a packed convolution, in its shape."""
    if output.ndim != 5:
        return False
    batch, blocks, *positions, lanes = (extent_of(axis) for axis in op.axis)
    n, c, h, w, lane = output.extents()
    return (batch, blocks, prod(positions), lanes) == (n, c, h * w, lane)


def accumulator(s: Schedule, op: Compute, output: Tensor) -> StageHandle:
    """The stage that reduces; a cached copy where the reduction itself is the output."""
    if op is not output.op:
        return s[op]
    return s[s.cache_write(output, "local")]


def split(stage: StageHandle, axis: IterVar, factor: int) -> tuple[IterVar | None, IterVar]:
    """(outer, inner), or no outer axis where one tile covers the extent."""
    if extent_of(axis) <= factor:
        return None, axis
    outer, inner = stage.split(axis, factor=factor)
    return outer, inner


def reorder(stage: StageHandle, *axes: IterVar | None) -> list[IterVar]:
    order = [axis for axis in axes if axis is not None]
    stage.reorder(*order)
    return order


def unroll(stage: StageHandle, *axes: IterVar) -> None:
    for axis in axes:
        stage.unroll(axis)


def also(axis: IterVar, name: str) -> list[IterVar]:
    """A loop of the reduction, where a tuner decides to unroll it with the tile."""
    return [axis] if extent_of(axis) > 1 and decide(name, False, (False, True)) else []


def depthwise_points(columns: int, taps: int, stride: int, target: Target) -> int:
    """How many positions of a row to compute together: as many as leave room for their inputs and
    a row of weights, a divisor of the row if there is one that is at least half of that."""
    most = (target.vector_registers - 2 * taps + stride) // (1 + stride)
    most = max(1, min(most, columns))
    divisor = max(points for points in range(1, most + 1) if columns % points == 0)
    return divisor if 2 * divisor >= most else -(-columns // -(-columns // most))


def decide_depthwise_points(op: Compute, target: Target) -> int:
    """The same for a packed depthwise convolution, as the knob `points`."""
    columns = extent_of(op.axis[3])
    taps, stride = extent_of(op.reduce_axis[1]), op.attrs["strides"][1]
    return decide("points", depthwise_points(columns, taps, stride, target),
                  lambda: range(1, min(columns, target.vector_registers) + 1))


def reorder_depthwise(conv: StageHandle) -> None:
    """Of a tile of positions, one row of the window after the other."""
    n, co, y, x, ci = conv.op.axis
    ky, kx = conv.op.reduce_axis
    conv.reorder(n, co, y, ky, x, kx, ci)
    conv.vectorize(ci)
    unroll(conv, *also(ky, "unroll_rows"), x, kx)
