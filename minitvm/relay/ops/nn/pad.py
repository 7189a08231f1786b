"""`nn.pad`: a frame around a tensor, of a constant or of its own elements."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from minitvm import dtypes, te
from minitvm.relay.ir import TensorType, Type
from minitvm.relay.layout import parse_layout
from minitvm.relay.op import LayoutChoice, Op, Pattern, register
from minitvm.relay.ops.nn.windows import Pair, stage
from minitvm.tir import ir
from minitvm.tir.ir import Expr

MODES = ("constant", "edge", "reflect")


@register
@dataclass(frozen=True, slots=True)
class Pad(Op):
    """`pad_width[i]` elements before and after the elements along axis i; negative ones cut off.

    `pad_mode`: "constant" (`pad_value`), "edge" (the outermost element) or "reflect" (mirrored at
    the outermost element, which does not repeat; again and again where the frame is wider).
    """

    name = "nn.pad"
    pattern = Pattern.INJECTIVE

    pad_width: tuple[Pair, ...]
    pad_value: float = 0.0
    pad_mode: str = "constant"

    def __post_init__(self) -> None:
        widths = tuple((int(before), int(after)) for before, after in self.pad_width)
        object.__setattr__(self, "pad_width", widths)

    def infer(self, x: TensorType) -> TensorType:
        if self.pad_mode not in MODES:
            raise self.fail((x,), f"pad_mode {self.pad_mode!r} must be one of {', '.join(MODES)}")
        if len(self.pad_width) != x.rank:
            raise self.fail((x,), f"pad_width has {len(self.pad_width)} pairs for rank {x.rank}")
        shape = tuple(
            extent + (before + after)
            for extent, (before, after) in zip(x.shape, self.pad_width, strict=True)
        )
        if any(isinstance(extent, int) and extent < 0 for extent in shape):
            raise self.fail((x,), f"the result would have a negative extent: {shape}")
        if self.pad_mode != "constant" and any(
            extent == 0 and max(widths) > 0
            for extent, widths in zip(x.shape, self.pad_width, strict=True)
        ):
            raise self.fail((x,), "there is no element to repeat")
        if dtypes.is_bool(x.dtype) and self.pad_value not in (0, 1):
            raise self.fail((x,), "pad_value must be 0 or 1 for bools")
        return TensorType(shape, x.dtype)

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        for axis, (before, after) in enumerate(self.pad_width):
            if (before, after) != (0, 0):
                x = self._pad_axis(x, axis, before, after)
        return x

    def _pad_axis(self, x: np.ndarray, axis: int, before: int, after: int) -> np.ndarray:
        extent = x.shape[axis]
        index = np.arange(-before, extent + after)
        if self.pad_mode != "constant":
            source_index = self.source_index(index, extent, np)
            return np.asarray(np.take(x, source_index, axis))
        shape = list(x.shape)
        shape[axis] = len(index)
        result = np.full(shape, self.pad_value, x.dtype)
        kept = np.flatnonzero((index >= 0) & (index < extent))
        if len(kept):
            place: list[Any] = [slice(None)] * x.ndim
            place[axis] = slice(kept[0], kept[-1] + 1)
            source = list(place)
            source[axis] = slice(index[kept[0]], index[kept[-1]] + 1)
            result[tuple(place)] = x[tuple(source)]
        return result

    def source_index(self, index: Any, extent: int, math: Any) -> Any:
        """Which element lies at `index`, counted from the first one: for edge and reflect."""
        if self.pad_mode == "edge" or extent == 1:
            return math.minimum(math.maximum(index, 0), extent - 1)
        period = 2 * (extent - 1)
        place = index % period
        return math.minimum(place, period - place)

    def compute(self, x: te.Tensor) -> te.Tensor:
        extents = x.extents()

        def element(*indices: Expr) -> Expr:
            inside: list[Expr] = []
            source: list[Any] = []
            for index, extent, (before, after) in zip(
                indices, extents, self.pad_width, strict=True
            ):
                moved = index - before
                if self.pad_mode != "constant" and max(before, after) > 0:
                    moved = self.source_index(moved, extent, ir)
                elif self.pad_mode == "constant":
                    inside += [moved >= 0] if before > 0 else []
                    inside += [moved < extent] if after > 0 else []
                source.append(moved)
            value = ir.convert(self._value(x.dtype), x.dtype)
            return te.if_then_else(te.all(*inside), x[tuple(source)], value)

        shape = [e + before + after for e, (before, after) in zip(extents, self.pad_width)]
        return stage(shape, element, "pad")

    def _value(self, dtype: str) -> float | int | bool:
        if dtypes.is_float(dtype):
            return float(self.pad_value)
        return bool(self.pad_value) if dtypes.is_bool(dtype) else int(self.pad_value)

    def follow_layout(
        self, types: tuple[Type, ...], layouts: tuple[str | None, ...]
    ) -> LayoutChoice | None:
        """Packed where the blocked axes are not padded."""
        if layouts[0] is None:
            return None
        layout = parse_layout(layouts[0])
        widths = dict(zip(layout.logical, self.pad_width, strict=True))
        blocked = {axis.name for axis in layout.axes if axis.block}
        if any(widths[name] != (0, 0) for name in blocked):
            return None
        packed = tuple((0, 0) if axis.block else widths[axis.name] for axis in layout.axes)
        return LayoutChoice(replace(self, pad_width=packed), (layouts[0],), layouts[0])
