"""The converters: importing this fills the table. One file a family of operators."""

from minitvm.relay.onnx.converters import (
    arithmetic,
    attention,
    constants,
    control,
    einsum,
    joining,
    normalization,
    pointwise,
    products,
    recurrent,
    reductions,
    resize,
    shapes,
    transposed,
    windows,
)

__all__ = [
    "arithmetic",
    "attention",
    "constants",
    "control",
    "einsum",
    "joining",
    "normalization",
    "pointwise",
    "products",
    "recurrent",
    "reductions",
    "resize",
    "shapes",
    "transposed",
    "windows",
]
