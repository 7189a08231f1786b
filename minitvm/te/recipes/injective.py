"""Elementwise, broadcast, injective and reduction kernels: vectors along the innermost axis."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from minitvm.target import Target
from minitvm.te.recipes.inline import computations, extent_of, find_tag, inline_injective
from minitvm.te.recipes.knobs import decide
from minitvm.te.recipes.reductions import reduce_along_rows
from minitvm.te.recipes.share import share, work
from minitvm.te.schedule import Schedule, StageHandle
from minitvm.te.tensor import Compute, Tensor

CHANNELS = "channels"
"""The tag of computations that move channels among blocks."""


def schedule_outputs(s: Schedule, outputs: Sequence[Tensor], target: Target) -> None:
    """Injective kernels, with any number of outputs.

    Inner axes are fused until they hold a vector; values used several times are computed once for
    each vector of the last output. Lanes that come from several places are loops for LLVM, which
    finds out where each comes from once for all points, and knows the machine's gathers.
    """
    scattered = find_tag(CHANNELS, outputs) is not None
    left = inline_injective(s, outputs)
    for output in outputs:
        if not scattered:
            vectorize_inner(s[output], target)
        share_outer(s[output])
    if len(outputs) == 1:
        place_at(left, s[outputs[0]])


def schedule_default(s: Schedule, anchor: Tensor, output: Tensor, target: Target,
                     keep: Sequence[Compute] = ()) -> None:
    """For operators without a recipe: a reduction's, or an injective kernel's. `keep` is computed
    once, whole, in front of reductions."""
    if any(op.reduce_axis for op in computations([output])):
        for op in keep:
            vectorize_inner(s[op], target)
            share_outer(s[op])
        schedule_reduce(s, output, target, keep)
    else:
        schedule_outputs(s, [output], target)


def schedule_reduce(s: Schedule, output: Tensor, target: Target,
                    keep: Sequence[Compute] = ()) -> None:
    """Reductions, each computed whole, with vectors along the innermost kept axis if it is long
    enough; what follows is vectorized by itself."""
    for stage in inline_injective(s, [output], keep):
        _vectorize_reduction(s, stage, target)
    if s[output].op.reduce_axis:
        _vectorize_reduction(s, s[output], target)
    else:
        vectorize_inner(s[output], target)
        share_outer(s[output])


def share_outer(stage: StageHandle) -> None:
    """Has threads share one of the loops outside of the innermost one and of any reduction."""
    op = stage.op
    assert isinstance(op, Compute)
    loops = stage.leaf_iter_vars
    outer = list(itertools.takewhile(lambda axis: axis.kind == "spatial", loops[:-1]))
    share(stage, outer, work(op))


def vectorize_inner(stage: StageHandle, target: Target) -> None:
    """Splits the innermost axis by the vector width, fusing inner axes first where it is short."""
    op = stage.op
    assert isinstance(op, Compute)
    lanes = target.lanes(op.bodies[0].dtype)
    axes = list(op.axis)
    if not axes or lanes == 1 or op.reduce_axis:
        return
    inner = axes.pop()
    extent = extent_of(inner)
    while axes and extent % lanes and extent < 4 * lanes and extent_of(axes[-1]):
        outer = axes.pop()
        extent *= extent_of(outer)
        inner = stage.fuse(outer, inner)
    if extent == lanes:
        stage.vectorize(inner)
    elif extent > lanes:
        vectors = decide(f"{stage.name}.vectors", 1,
                         lambda: [count for count in (1, 2, 4, 8) if count * lanes <= extent])
        _, lane = stage.split(inner, factor=vectors * lanes)
        stage.vectorize(lane)


def place_at(stages: Sequence[StageHandle], consumer: StageHandle) -> None:
    """Computes stages that aren't reductions inside all but the innermost loop of a consumer:
    the last one first, as a stage stands where all that read it do."""
    loops = consumer.leaf_iter_vars
    for stage in reversed(stages):
        if len(loops) > 1 and not stage.op.reduce_axis:
            stage.compute_at(consumer, loops[-2])


def place_epilogue(left: Sequence[StageHandle], out: StageHandle, product: Compute) -> None:
    """Computes what follows a product and is used several times where the output is: once for each
    of its vectors, where it has some. The last two loops of `out` must have their final places."""
    place, vector = out.leaf_iter_vars[-2:]
    lanes = extent_of(vector) if out.stage.annotations.get(vector) == "vectorized" else 1
    for stage in reversed(left):
        assert isinstance(stage.op, Compute)
        if all(op is not product for op in computations(stage.op.inputs)):
            continue
        stage.compute_at(out, place)
        if lanes > 1:
            lane = stage.op.axis[-1]
            if extent_of(lane) > lanes:
                _, lane = stage.split(lane, factor=lanes)
            stage.vectorize(lane)


def _vectorize_reduction(s: Schedule, stage: StageHandle, target: Target) -> None:
    """Kept axes outside, then the reduction, and one vector of kept points innermost; where rows
    are reduced that lie in a line, vectors of a row."""
    op = stage.op
    assert isinstance(op, Compute)
    lanes = target.lanes(op.bodies[0].dtype)
    if not op.reduce_axis or not op.axis:
        return
    if lanes > 1 and reduce_along_rows(s, stage, lanes):
        return
    inner = op.axis[-1]
    extent = extent_of(inner)
    if extent < lanes or lanes == 1:
        share_outer(stage)
        return
    vectors = decide(f"{stage.name}.vectors", 1,
                     lambda: [count for count in (1, 2, 4, 8) if count * lanes <= extent])
    outer, lane = stage.split(inner, factor=vectors * lanes)
    stage.reorder(*op.axis[:-1], outer, *op.reduce_axis, lane)
    stage.vectorize(lane)
    share_outer(stage)
