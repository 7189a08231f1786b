"""Winograd's minimal filtering: the operators that stand for a packed 3x3 convolution of stride 1.

    v = nn.winograd_input(data)        each tile's m + 2 rows and columns of pixels, transformed
    u = nn.winograd_weight(weight)     the same of each filter; weights are constants, so this folds
    p = nn.conv2d(v, u, groups=(m + 2)^2)    a product of matrices for each transformed element
    y = nn.winograd_output(p)          back to m rows and columns of results for each tile

For tiles of 2 that takes 16 products for 4 results, where a direct convolution takes 36; for tiles
of 4, 36 for 16 instead of 144. What it costs is precision (differences of pixels are multiplied,
with factors up to 8 for tiles of 4) and memory for what lies between. Infinity becomes NaN.

The transformed tensors are packed tensors of (m + 2)^2 times the channels, element by element:
element (a, b) of channel block c is block (a * (m + 2) + b) * blocks + c.

From "Fast Algorithms for Convolutional Neural Networks" (Lavin and Gray, CVPR 2016).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from minitvm import te
from minitvm.relay.ir import TensorType
from minitvm.relay.op import Op, Pattern, register
from minitvm.relay.ops.nn.windows import Pads, pad_stage, pads, stage
from minitvm.te.recipes import schedule_winograd_input, schedule_winograd_output
from minitvm.tir.ir import Expr

if TYPE_CHECKING:
    from minitvm.target import Target

TAPS = 3


@dataclass(frozen=True, slots=True)
class Matrices:
    """The transforms for tiles of one size: y = output (weight g . input d), elementwise."""

    input: tuple[tuple[float, ...], ...]
    weight: tuple[tuple[float, ...], ...]
    output: tuple[tuple[float, ...], ...]


MATRICES = {
    2: Matrices(
        input=((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1)),
        weight=((1, 0, 0), (1 / 2, 1 / 2, 1 / 2), (1 / 2, -1 / 2, 1 / 2), (0, 0, 1)),
        output=((1, 1, 1, 0), (0, 1, -1, -1)),
    ),
    4: Matrices(
        input=((4, 0, -5, 0, 1, 0), (0, -4, -4, 1, 1, 0), (0, 4, -4, -1, 1, 0),
               (0, -2, -1, 2, 1, 0), (0, 2, -1, -2, 1, 0), (0, 4, 0, -5, 0, 1)),
        weight=((1 / 4, 0, 0), (-1 / 6, -1 / 6, -1 / 6), (-1 / 6, 1 / 6, -1 / 6),
                (1 / 24, 1 / 12, 1 / 6), (1 / 24, -1 / 12, 1 / 6), (0, 0, 1)),
        output=((1, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 0), (0, 1, 1, 4, 4, 0),
                (0, 1, -1, 8, -8, 1)),
    ),
}
"""By the size of a tile of results. Those of 4 interpolate at 0, 1, -1, 2, -2 and infinity."""


def tiles_of(extent: int, tile: int) -> int:
    """How many tiles cover so many results."""
    return -(-extent // tile)


def _is_packed(data: TensorType) -> bool:
    return data.rank == 5 and all(isinstance(extent, int) for extent in data.shape)


@register
@dataclass(frozen=True, slots=True)
class WinogradInput(Op):
    """NCHW[c]c -> the transformed pixels of each tile of `tile` x `tile` results."""

    name = "nn.winograd_input"
    pattern = Pattern.OPAQUE

    tile: int = 2
    padding: Pads = (0, 0, 0, 0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "padding", pads(self.padding))

    def infer(self, data: TensorType) -> TensorType:
        if self.tile not in MATRICES or not _is_packed(data):
            raise self.fail((data,), "data must be NCHW[c]c of known shape, and tile 2 or 4")
        batch, blocks, height, width, lanes = _known(data)
        rows, columns = self.results(height, width)
        if rows < 1 or columns < 1:
            raise self.fail((data,), f"a window of {TAPS} exceeds the padded image")
        shape = (batch, (self.tile + 2) ** 2 * blocks, tiles_of(rows, self.tile),
                 tiles_of(columns, self.tile), lanes)
        return TensorType(shape, data.dtype)

    def results(self, height: int, width: int) -> tuple[int, int]:
        """Rows and columns of the convolution's result."""
        top, left, bottom, right = self.padding
        return height + top + bottom - TAPS + 1, width + left + right - TAPS + 1

    def _reach(self, shape: Sequence[int]) -> list[int]:
        """The extents of the image that the tiles cover, padding included."""
        batch, blocks, height, width, lanes = shape
        rows, columns = (tiles_of(extent, self.tile) * self.tile + TAPS - 1
                         for extent in self.results(height, width))
        return [batch, blocks, rows, columns, lanes]

    def evaluate(self, data: np.ndarray) -> np.ndarray:
        size, tile = self.tile + 2, self.tile
        batch, blocks, rows, columns, lanes = self._reach(data.shape)
        padded = np.zeros((batch, blocks, rows, columns, lanes), data.dtype)
        top, left = self.padding[:2]
        seen = data[:, :, : rows - top, : columns - left]
        padded[:, :, top : top + seen.shape[2], left : left + seen.shape[3]] = seen
        down, across = (rows - 2) // tile, (columns - 2) // tile
        pixels = np.stack([
            np.stack([padded[:, :, i : i + tile * down : tile, j : j + tile * across : tile]
                      for j in range(size)]) for i in range(size)])
        matrix = np.array(MATRICES[tile].input, data.dtype)
        with np.errstate(all="ignore"):
            found = np.einsum("ai,bj,ijncyxl->nabcyxl", matrix, matrix, pixels, optimize=True)
        shape = (batch, size * size * blocks, down, across, lanes)
        return np.ascontiguousarray(found.reshape(shape), data.dtype)

    def compute(self, data: te.Tensor) -> te.Tensor:
        size, tile = self.tile + 2, self.tile
        matrix = MATRICES[tile].input
        batch, blocks, *_, lanes = data.extents()
        shape = self._reach(data.extents())
        padded = data
        if shape != list(data.extents()):
            padded = pad_stage(data, {2: self.padding[0], 3: self.padding[1]}, shape, 0)
        down, across = (shape[2] - 2) // tile, (shape[3] - 2) // tile

        def row(n: Expr, a: Expr, c: Expr, y: Expr, x: Expr, j: Expr, lane: Expr) -> Any:
            return _combine(matrix, a,
                            lambda i: padded[n, c, y * tile + i, x * tile + j, lane])
        rows = stage((batch, size, blocks, down, across, size, lanes), row, "winograd_rows")

        def element(n: Expr, k: Expr, y: Expr, x: Expr, lane: Expr) -> Any:
            a, b, c = k // (size * blocks), k // blocks % size, k % blocks
            return _combine(matrix, b, lambda j: rows[n, a, c, y, x, j, lane])
        return stage((batch, size * size * blocks, down, across, lanes), element,
                     "winograd_input", {"size": size})

    def schedule(
        self, s: te.Schedule, anchor: te.Tensor, output: te.Tensor, target: Target
    ) -> None:
        schedule_winograd_input(s, anchor, output, target)


@register
@dataclass(frozen=True, slots=True)
class WinogradWeight(Op):
    """OIHW[i]i[o]o of 3x3 -> the same of 1x1, with (tile + 2)^2 times the filters."""

    name = "nn.winograd_weight"
    pattern = Pattern.OPAQUE

    tile: int = 2

    def infer(self, weight: TensorType) -> TensorType:
        known = weight.rank == 6 and all(isinstance(extent, int) for extent in weight.shape)
        if self.tile not in MATRICES or not known or weight.shape[2:4] != (TAPS, TAPS):
            raise self.fail((weight,), "weight must be OIHW[i]i[o]o of 3x3, and tile 2 or 4")
        filters, *_ = shape = _known(weight)
        blocks = (self.tile + 2) ** 2 * filters
        return TensorType((blocks, shape[1], 1, 1, *shape[4:]), weight.dtype)

    def evaluate(self, weight: np.ndarray) -> np.ndarray:
        matrix = np.array(MATRICES[self.tile].weight)
        filters, inputs, _, _, *lanes = weight.shape
        with np.errstate(all="ignore"):
            found = np.einsum("ai,bj,fcijkl->abfckl", matrix, matrix, weight.astype(np.float64),
                              optimize=True)
        shape = (len(matrix) ** 2 * filters, inputs, 1, 1, *lanes)
        return np.ascontiguousarray(found.reshape(shape), weight.dtype)

    def compute(self, weight: te.Tensor) -> te.Tensor:
        matrix = MATRICES[self.tile].weight
        size = len(matrix)
        filters, inputs, _, _, *lanes = weight.extents()

        def element(k: Expr, c: Expr, y: Expr, x: Expr, i: Expr, o: Expr) -> Any:
            a, b, f = k // (size * filters), k // filters % size, k % filters
            return _combine(matrix, a, lambda row: _combine(
                matrix, b, lambda column: weight[f, c, row, column, i, o]))
        return stage((size * size * filters, inputs, 1, 1, *lanes), element, "winograd_weight")


@register
@dataclass(frozen=True, slots=True)
class WinogradOutput(Op):
    """Products of transformed elements -> NCHW[c]c of `rows` x `columns` results."""

    name = "nn.winograd_output"
    pattern = Pattern.OUT_ELEMWISE_FUSABLE

    rows: int
    columns: int
    tile: int = 2

    def infer(self, products: TensorType) -> TensorType:
        if self.tile not in MATRICES or not _is_packed(products):
            raise self.fail((products,), "products must be packed, of known shape, and tile 2 or 4")
        batch, blocks, down, across, lanes = _known(products)
        filters, rest = divmod(blocks, (self.tile + 2) ** 2)
        tiles = (tiles_of(self.rows, self.tile), tiles_of(self.columns, self.tile))
        if rest or (down, across) != tiles or min(self.rows, self.columns) < 1:
            raise self.fail((products,), f"the products are not those of {self.rows} rows of "
                                         f"{self.columns} results")
        return TensorType((batch, filters, self.rows, self.columns, lanes), products.dtype)

    def evaluate(self, products: np.ndarray) -> np.ndarray:
        matrix = np.array(MATRICES[self.tile].output, products.dtype)
        size = self.tile + 2
        batch, blocks, down, across, lanes = products.shape
        filters = blocks // size**2
        elements = products.reshape(batch, size, size, filters, down, across, lanes)
        with np.errstate(all="ignore"):
            found = np.einsum("ra,sb,nabfyxl->nfyrxsl", matrix, matrix, elements, optimize=True)
        image = found.reshape(batch, filters, down * self.tile, across * self.tile, lanes)
        return np.ascontiguousarray(image[:, :, : self.rows, : self.columns], products.dtype)

    def compute(self, products: te.Tensor) -> te.Tensor:
        matrix, tile, size = MATRICES[self.tile].output, self.tile, self.tile + 2
        batch, blocks, down, across, lanes = products.extents()
        filters = blocks // size**2

        def column(n: Expr, r: Expr, b: Expr, f: Expr, y: Expr, x: Expr, lane: Expr) -> Any:
            return _combine(matrix, r,
                            lambda a: products[n, (a * size + b) * filters + f, y, x, lane])
        columns = stage((batch, tile, size, filters, down, across, lanes), column,
                        "winograd_columns")

        def element(n: Expr, f: Expr, y: Expr, x: Expr, lane: Expr) -> Any:
            return _combine(matrix, x % tile,
                            lambda b: columns[n, y % tile, b, f, y // tile, x // tile, lane])
        return stage((batch, filters, self.rows, self.columns, lanes), element,
                     "winograd_output", {"tile": tile})

    def schedule(
        self, s: te.Schedule, anchor: te.Tensor, output: te.Tensor, target: Target
    ) -> None:
        schedule_winograd_output(s, anchor, output, target)


def _known(given: TensorType) -> tuple[int, ...]:
    """A shape that is known to be of integers."""
    return tuple(int(extent) for extent in given.shape if isinstance(extent, int))


def _combine(matrix: Sequence[Sequence[float]], index: Expr,
             element: Callable[[int], Any]) -> Any:
    """Row `index` of a constant matrix times a vector. The row is known once the loop over it is
    unrolled, and then this is that row's few additions."""
    result = _row(matrix[-1], element)
    for number in reversed(range(len(matrix) - 1)):
        result = te.select(index < number + 1, _row(matrix[number], element), result)
    return result


def _row(factors: Sequence[float], element: Callable[[int], Any]) -> Any:
    """The sum of elements times their factors, in order, without those of factor zero."""
    total: Any = None
    for index, factor in enumerate(factors):
        if factor == 0:
            continue
        value = element(index)
        if abs(factor) != 1:
            value = value * abs(factor)
        if total is None:
            total = value if factor > 0 else -value
        else:
            total = total + value if factor > 0 else total - value
    return total
