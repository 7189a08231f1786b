"""Common computations as te programs: what a user writes, for schedules to be compared on.

Each gives the tensors that are a function's parameters, inputs first, and has no schedule.
"""

from __future__ import annotations

from minitvm import te
from minitvm.te.tensor import Tensor


def matmul(n: int, k: int, m: int) -> list[Tensor]:
    """A product of matrices of n x k and k x m elements."""
    a = te.placeholder((n, k), "float32", name="a")
    b = te.placeholder((k, m), "float32", name="b")
    r = te.reduce_axis((0, k), "r")
    return [a, b, te.compute((n, m), lambda y, x: te.sum(a[y, r] * b[r, x], axis=r), name="c")]


def convolution(channels: int, filters: int, size: int, kernel: int = 3,
                stride: int = 1) -> list[Tensor]:
    """A convolution with a window of `kernel` x `kernel` elements, padded so that each element of
    a square image may be in its middle; then a bias and relu. Images are CHW, weights OIHW."""
    width, edge = (size - 1) // stride + 1, kernel // 2
    data = te.placeholder((channels, size, size), "float32", name="data")
    weight = te.placeholder((filters, channels, kernel, kernel), "float32", name="weight")
    bias = te.placeholder((filters,), "float32", name="bias")
    pad = data if not edge else te.compute(
        (channels, size + 2 * edge, size + 2 * edge), lambda c, y, x: te.if_then_else(
            te.all(y >= edge, y < size + edge, x >= edge, x < size + edge),
            data[c, y - edge, x - edge], 0.0), name="pad")
    i, p, q = (te.reduce_axis((0, extent), name) for extent, name in (
        (channels, "i"), (kernel, "p"), (kernel, "q")))
    conv = te.compute((filters, width, width), lambda o, y, x: te.sum(
        pad[i, y * stride + p, x * stride + q] * weight[o, i, p, q], axis=[i, p, q]), name="conv")
    shifted = te.compute(conv.shape, lambda o, y, x: conv[o, y, x] + bias[o], name="shifted")
    return [data, weight, bias, te.compute(conv.shape, lambda o, y, x: te.if_then_else(
        shifted[o, y, x] > 0.0, shifted[o, y, x], 0.0), name="relu")]


def packed_convolution(lanes: int, channels: int, filters: int, size: int, kernel: int = 3,
                       stride: int = 1) -> list[Tensor]:
    """The same with channels in blocks of `lanes`."""
    width, edge, blocks = (size - 1) // stride + 1, kernel // 2, channels // lanes
    data = te.placeholder((blocks, size, size, lanes), "float32", name="data")
    weight = te.placeholder(
        (filters // lanes, blocks, kernel, kernel, lanes, lanes), "float32", name="weight")
    bias = te.placeholder((filters // lanes, lanes), "float32", name="bias")
    pad = data if not edge else te.compute(
        (blocks, size + 2 * edge, size + 2 * edge, lanes), lambda c, y, x, v: te.if_then_else(
            te.all(y >= edge, y < size + edge, x >= edge, x < size + edge),
            data[c, y - edge, x - edge, v], 0.0), name="pad")
    i, p, q, j = (te.reduce_axis((0, extent), name) for extent, name in (
        (blocks, "i"), (kernel, "p"), (kernel, "q"), (lanes, "j")))
    conv = te.compute((filters // lanes, width, width, lanes), lambda o, y, x, v: te.sum(
        pad[i, y * stride + p, x * stride + q, j] * weight[o, i, p, q, j, v],
        axis=[i, p, q, j]), name="conv")
    shifted = te.compute(
        conv.shape, lambda o, y, x, v: conv[o, y, x, v] + bias[o, v], name="shifted")
    return [data, weight, bias, te.compute(conv.shape, lambda o, y, x, v: te.if_then_else(
        shifted[o, y, x, v] > 0.0, shifted[o, y, x, v], 0.0), name="relu")]
