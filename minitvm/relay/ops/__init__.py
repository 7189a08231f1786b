"""The operators: importing this registers all of them. One class an operator, one file a family."""

from minitvm.relay.ops import (
    activations,
    bits,
    broadcast,
    calculus,
    create,
    dynamic,
    elementwise,
    fast_math,
    gather,
    join,
    layout_transform,
    nn,
    reduce,
    reduce_composite,
    scan,
    transform,
)

__all__ = [
    "activations",
    "bits",
    "broadcast",
    "calculus",
    "create",
    "dynamic",
    "elementwise",
    "fast_math",
    "gather",
    "join",
    "layout_transform",
    "nn",
    "reduce",
    "reduce_composite",
    "scan",
    "transform",
]
