"""ONNX products of matrices: Gemm and MatMul."""

from __future__ import annotations

from minitvm.errors import ModelError
from minitvm.relay.ir import Atom, Constant
from minitvm.relay.onnx.conversion import Conversion
from minitvm.relay.onnx.table import converter
from minitvm.relay.ops.broadcast import Add, Multiply
from minitvm.relay.ops.nn.bias_add import BiasAdd
from minitvm.relay.ops.nn.dense import Dense
from minitvm.relay.ops.nn.matmul import Matmul
from minitvm.relay.ops.transform import Transpose


@converter("Gemm", 7)
def gemm(c: Conversion) -> Atom:
    """alpha * A' * B' + beta * C."""
    a, b, bias = c.input(0), c.input(1), c.optional(2)
    if c.type(a).rank != 2 or c.type(b).rank != 2:
        raise ModelError(f"{c.node} takes matrices, not {c.type(a)} and {c.type(b)}")
    if c.flag("transA"):
        a = c.emit(Transpose(), a)
    if not c.flag("transB"):
        b = c.emit(Transpose(), b)
    alpha, beta = c.number("alpha", 1.0), c.number("beta", 1.0)
    if isinstance(b, Constant):
        b = _scaled(c, b, alpha)
        product = c.emit(Dense(), a, b)
    else:
        product = _scaled(c, c.emit(Dense(), a, b), alpha)
    return product if bias is None else _biased(c, product, _scaled(c, bias, beta))


def _scaled(c: Conversion, x: Atom, factor: float) -> Atom:
    return x if factor == 1 else c.emit(Multiply(), x, c.make(factor, c.type(x).dtype))


def _biased(c: Conversion, product: Atom, bias: Atom) -> Atom:
    if c.shape(bias) == c.shape(product)[1:]:
        return c.emit(BiasAdd(axis=1), product, bias)
    return c.emit(Add(), product, bias)


@converter("MatMul", 1)
def matmul(c: Conversion) -> Atom:
    """A product as numpy's. By a constant matrix it is a dense layer over all rows."""
    x, y = c.input(0), c.input(1)
    extents = c.shape(x)
    if not isinstance(y, Constant) or isinstance(x, Constant) or y.data.ndim != 2:
        return c.emit(Matmul(), x, y)
    if len(extents) < 2 or 0 in extents:
        return c.emit(Matmul(), x, y)
    return c.emit(Dense(), x, c.emit(Transpose(), y))
