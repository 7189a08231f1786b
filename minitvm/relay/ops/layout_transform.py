"""The operator between layouts: `layout_transform(x, src_layout="NCHW", dst_layout="NCHW16c")`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from minitvm import te
from minitvm.errors import OptionError
from minitvm.relay.dim import Dim
from minitvm.relay.ir import TensorType
from minitvm.relay.layout import Layout, parse_layout, transform
from minitvm.relay.op import Op, Pattern, register
from minitvm.tir.ir import Expr


@register
@dataclass(frozen=True, slots=True)
class LayoutTransform(Op):
    """The same tensor in another layout; padding of blocked axes is zeros.

    `shape` is the logical shape, in the order of the source's axes: what remains of a source that
    holds padding. Without it the source's padding counts as data.
    """

    name = "layout_transform"
    pattern = Pattern.INJECTIVE

    src_layout: str
    dst_layout: str
    shape: tuple[int, ...] = ()

    @property
    def source(self) -> Layout:
        """The layout of the argument."""
        return parse_layout(self.src_layout)

    @property
    def target(self) -> Layout:
        """The layout of the result."""
        return parse_layout(self.dst_layout)

    def infer(self, x: TensorType) -> TensorType:
        try:
            source, target = self.source, self.target
        except OptionError as error:
            raise self.fail((x,), str(error)) from error
        if sorted(source.logical) != sorted(target.logical):
            raise self.fail((x,), f"{source} and {target} must have the same axes")
        if not source.accepts(x.shape):
            raise self.fail((x,), f"the argument's shape does not fit the layout {source}")
        if self.shape and (
            len(self.shape) != len(source.logical) or source.pack_shape(self.shape) != x.shape
        ):
            raise self.fail((x,), f"a tensor of logical shape {self.shape} is no {source} of it")
        shape = self.logical_shape(x.shape)
        return TensorType(target.pack_shape([shape[name] for name in target.logical]), x.dtype)

    def logical_shape(self, shape: tuple[Dim, ...]) -> dict[str, Dim]:
        """The extent of each logical axis, for an argument of this shape."""
        extents: tuple[Dim, ...] = self.shape or self.source.unpack_shape(shape)
        return dict(zip(self.source.logical, extents, strict=True))

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return transform(x, self.source, self.target, self.shape or None)

    def compute(self, x: te.Tensor) -> te.Tensor:
        source, target = self.source, self.target
        extents: dict[str, Any] = self.logical_shape(x.extents())
        padded_names = [name for name in target.logical if extents[name] % target.block(name)]

        def element(*indices: Expr) -> Expr:
            logical = target.join(indices)
            value = x[source.split(logical)]
            inside = [logical[name] < extents[name] for name in padded_names]
            return te.if_then_else(te.all(*inside), value, 0)

        shape: Any = target.pack_shape([extents[name] for name in target.logical])
        result: te.Tensor = te.compute(shape, element, name="layout_transform", tag="injective")
        return result
