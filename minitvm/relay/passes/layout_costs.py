"""Layouts, target -> what a model says that operators and transforms of layouts cost, in seconds.

An operator that says itself what it takes (`Op.seconds`) is believed; a convolution that Winograd's
tiles will compute takes their share of that. For others it is the vectors that they compute. A
transform costs the vectors it assembles, the bytes it moves through the cache that they fit, and a
kernel of its own; nothing where a reshape does the same. Only how costs compare matters.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any

from minitvm import dtypes
from minitvm.relay.ir import TensorType
from minitvm.relay.layout import Layout, extent_or_assumed, keeps_order
from minitvm.relay.op import Op, Pattern
from minitvm.relay.ops.nn.conv2d import Conv2d
from minitvm.relay.ops.nn.conv2d_cost import KERNEL_CYCLES
from minitvm.relay.passes import winograd
from minitvm.relay.passes.layout_rules import Form
from minitvm.target import Target
from minitvm.transform import PassContext

ASSEMBLED_CYCLES = 13.0
"""For each vector that a transform writes: its elements lie apart, or their places are computed."""
TAKEN_CYCLES = 18.0
"""The same where the result is plain."""
CAUTION = 1.3
"""What transforms are made dearer by, so that there are none for gains that the model can't be sure
of."""
TAP_CYCLES, PLAIN_TAP_CYCLES = 2.4, 11.0
"""For each vector that a reduction or a window reads: packed, and plain."""
MOVED = (Pattern.ELEMWISE, Pattern.BROADCAST, Pattern.INJECTIVE)


class Costs:
    """The model for one target; what was asked once is remembered."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.disabled = PassContext.current().disabled_pass
        self.lanes: dict[str, int] = {}
        self.conversions: dict[Any, float] = {}

    def operator(self, op: Op, types: tuple[TensorType, ...], result: TensorType,
                 layout: Layout | None) -> float:
        """Seconds of a call; types are those in memory, `layout` that of the result if packed."""
        found = op.seconds(types, self.target)
        if found is not None:
            return found * self.tiled_share(op, types) if isinstance(op, Conv2d) else found
        return self.counted(op, types, result, layout) * self.target.cycle_seconds

    def counted(self, op: Op, types: tuple[TensorType, ...], result: TensorType,
                layout: Layout | None) -> float:
        """Cycles by the vectors that are computed."""
        elements = _elements(result)
        vector = self.vector(result.dtype, layout)
        if op.pattern in MOVED:
            return elements / vector
        reads = [_elements(given) for given in types]
        reads.append(elements * prod(getattr(op, "pool_size", ()) or (1,)))
        each = PLAIN_TAP_CYCLES if layout is None else TAP_CYCLES
        return max(reads) / vector * each + KERNEL_CYCLES

    def unfused(self, result: TensorType) -> float:
        """Seconds that an elementwise operator takes more where it is a kernel of its own: its
        argument and its result go through memory."""
        size = _elements(result) * dtypes.size_bytes(result.dtype)
        cycles = KERNEL_CYCLES + 2 * size / self.target.bytes_per_cycle(size)
        return CAUTION * cycles * self.target.cycle_seconds

    def vector(self, dtype: str, layout: Layout | None) -> int:
        """How many elements are computed together: a block, where it is less than a vector."""
        if dtype not in self.lanes:
            self.lanes[dtype] = self.target.lanes(dtype)
        lanes = self.lanes[dtype]
        blocks = [] if layout is None else [count for count in layout.blocks.values() if count > 1]
        return min([lanes, *blocks])

    def tiled_share(self, op: Conv2d, types: tuple[TensorType, ...]) -> float:
        """Which share of a direct convolution's time it takes in Winograd's tiles, if it will be
        computed in them; else 1."""
        image, filters = (tuple(map(extent_or_assumed, given.shape)) for given in types)
        tile = winograd.tile_side() if winograd.NAME not in self.disabled else 0
        if not tile or types[0].dtype != "float32":
            return 1.0
        if not winograd.is_candidate(op, image, filters):
            return 1.0
        rows, columns = op.window(3, 3).positions(image[2], image[3])
        return winograd.tiled_share(image[0], (rows, columns), filters, self.target, tile)

    # --- conversions ----------------------------------------------------------------------------

    def conversion(
        self, given: TensorType, home: Layout | None, forms: frozenset[Form | None]
    ) -> float:
        """Seconds to have a value, computed in the layout `home` (None: plain), in all of `forms`,
        each of which is made once."""
        key = (given, home, forms)
        if key not in self.conversions:
            self.conversions[key] = self.converted(given, home, forms)
        return self.conversions[key]

    def converted(
        self, given: TensorType, home: Layout | None, forms: Iterable[Form | None]
    ) -> float:
        """`conversion`, anew."""
        total, from_plain = 0.0, False
        for form in forms:
            if form is None:
                from_plain = True
            elif home is None:
                total += self.transform(given, plain_layout(form.layout), form.layout, form.expand)
            elif form != Form(home):
                if not form.expand and home.logical == form.layout.logical:
                    total += self.transform(given, home, form.layout)
                else:
                    source = plain_layout(form.layout)
                    total += self.transform(given, source, form.layout, form.expand)
                    from_plain = True
        if from_plain and home is not None:
            total += self.transform(given, home, plain_layout(home))
        return total

    def transform(
        self, given: TensorType, source: Layout, target: Layout, expand: int = 0
    ) -> float:
        """Seconds of one transform of a tensor of this plain type."""
        shape = (1,) * expand + tuple(map(extent_or_assumed, given.shape))
        if keeps_order(source, target, dict(zip(target.logical, shape, strict=True))):
            return 0.0
        read, written = (prod(map(extent_or_assumed, layout.pack_shape(shape)))
                         for layout in (source, target))
        packed = target.is_packed()
        vector = self.vector(given.dtype, target)
        cycles = written / vector * (ASSEMBLED_CYCLES if packed else TAKEN_CYCLES)
        for elements in (read, written):
            size = elements * dtypes.size_bytes(given.dtype)
            cycles += size / self.target.bytes_per_cycle(size) / 2
        return CAUTION * (cycles + KERNEL_CYCLES) * self.target.cycle_seconds


def plain_layout(layout: Layout) -> Layout:
    """The layout with the same logical axes and no blocks."""
    return Layout(tuple(axis for axis in layout.axes if not axis.block))


def _elements(given: TensorType) -> int:
    return prod(map(extent_or_assumed, given.shape))
