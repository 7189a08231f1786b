"""Which intermediate computations to inline, and walking the computations of a kernel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from minitvm.te.schedule import Schedule, StageHandle
from minitvm.te.tensor import Compute, IterVar, Operation, Tensor
from minitvm.tir import ir, walk

INLINE_NODES = 12
"""An intermediate value used more than once is computed once if it has more nodes than this."""
CALL_NODES = 8
"""How many plain operations an intrinsic such as `exp` counts as."""


def computations(outputs: Iterable[Tensor]) -> list[Compute]:
    """The computations behind some tensors, producers first."""
    ordered: list[Compute] = []
    done: set[int] = set()
    stack: list[tuple[Operation, Iterator[Tensor]]] = []

    def push(tensor: Tensor) -> None:
        if id(tensor.op) not in done:
            done.add(id(tensor.op))
            stack.append((tensor.op, iter(tensor.op.inputs)))

    for output in outputs:
        push(output)
        while stack:
            op, inputs = stack[-1]
            following = next(inputs, None)
            if following is not None:
                push(following)
                continue
            stack.pop()
            if isinstance(op, Compute):
                ordered.append(op)
    return ordered


def _own_nodes(op: Compute) -> int:
    return sum(
        CALL_NODES if isinstance(node, ir.Call) else 1
        for body in op.bodies
        for node in walk.walk(body)
        if not isinstance(node, ir.Var | ir.Const | ir.Read)
    )


def inline_injective(s: Schedule, outputs: Iterable[Tensor],
                     keep: Iterable[Operation] = ()) -> list[StageHandle]:
    """Inlines every intermediate elementwise or injective computation that is cheap to repeat.

    Gives the stages that were not inlined (outputs and `keep` excluded): reductions, computations
    with several outputs, and values that are used more than once and cost more than
    `INLINE_NODES`. The caller places them.
    """
    outputs = list(outputs)
    kept = {id(op) for op in (*(tensor.op for tensor in outputs), *keep)}
    uses: dict[int, int] = {}
    ordered = computations(outputs)
    for op in ordered:
        for body in op.bodies:
            for node in walk.walk(body):
                if isinstance(node, ir.Read):
                    uses[id(node.tensor.op)] = uses.get(id(node.tensor.op), 0) + 1
    nodes: dict[int, int] = {}  # of an inlined computation, with what is inlined into it
    left: list[StageHandle] = []
    for op in ordered:
        size = _own_nodes(op) + sum(
            nodes.get(id(node.tensor.op), 0)
            for body in op.bodies
            for node in walk.walk(body)
            if isinstance(node, ir.Read)
        )
        if id(op) in kept:
            continue
        repeated = uses.get(id(op), 0) > 1 and size > INLINE_NODES
        if op.reduce_axis or len(op.bodies) > 1 or repeated:
            left.append(s[op])
        else:
            nodes[id(op)] = size
            s[op].compute_inline()
    return left


def _extent(axis: IterVar) -> int:
    return int(axis.extent.value) if isinstance(axis.extent, ir.Const) else 0


def find_tag(tag: str, outputs: Iterable[Tensor]) -> Compute | None:
    """The computation with a tag, if there is one behind the outputs."""
    return next((op for op in computations(outputs) if op.tag == tag), None)


def extent_of(axis: IterVar) -> int:
    """The extent of an axis; 0 if it is symbolic."""
    return int(axis.extent.value) if isinstance(axis.extent, ir.Const) else 0
