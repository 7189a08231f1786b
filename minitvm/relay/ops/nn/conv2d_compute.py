"""Convolutions as te computations: the stages that schedules find by their tags.

    tag                        axes                                reduces over
    conv2d_nchw                n, f, y, x                          c, ky, kx
    conv2d_nhwc                n, y, x, f                          ky, kx, c
    conv2d_nchwc               n, fo, y, x, fi                     co, ky, kx, ci
    conv2d_nchwc_pointwise     n, fo, p, fi       (p = y * W + x)  co, ky, kx, ci
    conv2d_nchwc_unflatten     n, fo, y, x, fi    reads the one above
    depthwise_conv2d_nchwc     n, co, y, x, ci                     ky, kx
    conv2d_channels            n, fo, y, x, fi    zeros in padding lanes, where there are any
    pad                        as its input

fo and fi are a block of output channels and the lane in it, co and ci the same for inputs. A
window of one tap needs no rows: flattened, its positions split into tiles of any size.
"""

from __future__ import annotations

from typing import Any

from minitvm import te
from minitvm.relay.ops.nn.windows import Window, stage
from minitvm.tir.ir import Expr


def plain(
    data: te.Tensor, weight: te.Tensor, window: Window, groups: int, layouts: tuple[str, str]
) -> te.Tensor:
    """NCHW or NHWC with OIHW or HWIO, axes in any order by their letters."""
    image, kernel = layouts
    extents = dict(zip(image, data.extents(), strict=True))
    taps = dict(zip(kernel, weight.extents(), strict=True))
    extents["H"], extents["W"] = outputs = window.positions(extents["H"], extents["W"])
    extents["C"] = taps["O"]
    padded = window.pad_stage(data, (image.index("H"), image.index("W")), outputs)
    reduced = {name: te.reduce_axis((0, taps[letter]), name)
               for letter, name in (("I", "c"), ("H", "ky"), ("W", "kx"))}
    c, ky, kx = reduced.values()
    order = [c, ky, kx] if image == "NCHW" else [ky, kx, c]

    def element(*indices: Expr) -> Any:
        at = dict(zip(image, indices, strict=True))
        read: dict[str, Any] = {
            "N": at["N"],
            "C": _in_group(at["C"], taps["O"], groups, taps["I"], c.var),
            "H": window.position(0, at["H"], ky),
            "W": window.position(1, at["W"], kx),
        }
        tap = {"O": at["C"], "I": c.var, "H": ky.var, "W": kx.var}
        pixel = padded[tuple(read[letter] for letter in image)]
        return te.sum(pixel * weight[tuple(tap[letter] for letter in kernel)], axis=order)
    shape = tuple(extents[letter] for letter in image)
    return _stage(shape, element, f"conv2d_{image.lower()}", window, groups)


def packed(data: te.Tensor, weight: te.Tensor, window: Window, groups: int) -> te.Tensor:
    """NCHW[c]c, or NCHW with all channels in one block of the weight, with OIHW[i]i[o]o."""
    *_, height, width = data.extents()[:4]
    blocks, input_blocks, rows, columns, inner, lanes = weight.extents()
    outputs = window.positions(height, width)
    padded = window.pad_stage(data, (2, 3), outputs)
    co, ky, kx, ci = _packed_axes(input_blocks, rows, columns, inner)

    def element(n: Expr, fo: Expr, y: Expr, x: Expr, fi: Expr) -> Any:
        block = _in_group(fo, blocks, groups, input_blocks, co.var)
        row, column = window.position(0, y, ky), window.position(1, x, kx)
        if padded.ndim == 4:
            pixel = padded[n, co * inner + ci.var, row, column]
        else:
            pixel = padded[n, block, row, column, ci]
        return te.sum(pixel * weight[fo, co, ky, kx, ci, fi], axis=[co, ky, kx, ci])
    shape = (data.extents()[0], blocks, *outputs, lanes)
    return _stage(shape, element, "conv2d_nchwc", window, groups)


def pointwise_packed(data: te.Tensor, weight: te.Tensor, window: Window, groups: int) -> te.Tensor:
    """NCHW[c]c with OIHW[i]i[o]o of one tap, positions flattened, then in rows again."""
    batch, _, height, width, _ = data.extents()
    blocks, input_blocks, rows, columns, inner, lanes = weight.extents()
    co, ky, kx, ci = _packed_axes(input_blocks, rows, columns, inner)

    def element(n: Expr, fo: Expr, p: Expr, fi: Expr) -> Any:
        block = _in_group(fo, blocks, groups, input_blocks, co.var)
        pixel = data[n, block, p // width, p % width, ci]
        return te.sum(pixel * weight[fo, co, ky, kx, ci, fi], axis=[co, ky, kx, ci])
    shape = (batch, blocks, height * width, lanes)
    flat = _stage(shape, element, "conv2d_nchwc_pointwise", window, groups)

    def in_rows(n: Expr, fo: Expr, y: Expr, x: Expr, fi: Expr) -> Any:
        return flat[n, fo, y * width + x, fi]

    shape_in_rows = (batch, blocks, height, width, lanes)
    return _stage(shape_in_rows, in_rows, "conv2d_nchwc_unflatten", window, groups)


def depthwise_packed(data: te.Tensor, weight: te.Tensor, window: Window) -> te.Tensor:
    """NCHW[c]c with OIHW1i[c]o: each channel with its own window."""
    batch, blocks, height, width, lanes = data.extents()
    _, _, rows, columns, _, _ = weight.extents()
    outputs = window.positions(height, width)
    padded = window.pad_stage(data, (2, 3), outputs)
    ky, kx = te.reduce_axis((0, rows), "ky"), te.reduce_axis((0, columns), "kx")

    def element(n: Expr, co: Expr, y: Expr, x: Expr, ci: Expr) -> Any:
        pixel = padded[n, co, window.position(0, y, ky), window.position(1, x, kx), ci]
        return te.sum(pixel * weight[co, 0, ky, kx, 0, ci], axis=[ky, kx])
    shape = (batch, blocks, *outputs, lanes)
    return _stage(shape, element, "depthwise_conv2d_nchwc", window, blocks * lanes)


def with_zero_padding(result: te.Tensor, channels: int | None) -> te.Tensor:
    """A packed result with zeros behind its true channels; itself where there are no others."""
    _, blocks, _, _, lanes = result.extents()
    if channels is None or channels == blocks * lanes:
        return result

    def element(n: Expr, fo: Expr, y: Expr, x: Expr, fi: Expr) -> Any:
        return te.select(fo * lanes + fi < channels, result[n, fo, y, x, fi], 0)

    return stage(result.extents(), element, "conv2d_channels")


def _packed_axes(
    input_blocks: int, rows: int, columns: int, inner: int
) -> tuple[te.IterVar, te.IterVar, te.IterVar, te.IterVar]:
    return (
        te.reduce_axis((0, input_blocks), "co"),
        te.reduce_axis((0, rows), "ky"),
        te.reduce_axis((0, columns), "kx"),
        te.reduce_axis((0, inner), "ci"),
    )


def _in_group(output: Expr, outputs: int, groups: int, inputs: int, index: Expr) -> Expr:
    """Which input channel (or block) input `index` of the group of `output` is."""
    if groups == 1:
        return index
    return output // (outputs // groups) * inputs + index


def _stage(shape: Any, element: Any, tag: str, window: Window, groups: int) -> te.Tensor:
    attrs = {
        "kernel": window.kernel, "strides": window.strides, "padding": window.padding,
        "dilation": window.dilation, "groups": groups,
    }
    return stage(shape, element, tag, attrs)
