"""Random programs of computes: `random_program(choices)`.

Graphs of small computes: elementwise, padding, stencils, convolution, pooling, reshapes, gathers,
argmax, recurrences; values are shared. All are small integers held as floats, so that every order
of summation gives the same bits: `te_oracle.evaluate` says what must come out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from minitvm import te
from minitvm.te.tensor import IterVar, Tensor
from minitvm.testing.choices import Choices
from minitvm.testing.te_oracle import Program
from minitvm.testing.te_recurrences import random_scan
from minitvm.tir import ir
from minitvm.tir.ir import Expr

_BOUND = 16


def random_program(draw: Choices, most_operations: int = 6) -> Program:
    """A graph of up to `most_operations` computes on two small matrices."""
    inputs = [te.placeholder((draw.integer(1, 9), draw.integer(1, 9)), name=name)
              for name in ("x", "y")]
    made: list[Tensor] = []
    for number in range(draw.integer(1, most_operations)):
        source = draw.pick([*inputs, *made, *made])
        build = draw.pick(_OPERATIONS)
        made.append(build(draw, source, [*inputs, *made], f"t{number}"))
    read = {tensor for item in made for tensor in item.op.inputs}
    outputs = [tensor for tensor in made if tensor not in read]
    extra = draw.pick([None, *made])
    if extra is not None and extra not in outputs:
        outputs.append(extra)
    needed = _needed(outputs)
    return Program(tuple(tensor for tensor in inputs if tensor in needed), tuple(outputs))


def _needed(outputs: Sequence[Tensor]) -> set[Tensor]:
    needed: set[Tensor] = set()
    stack = list(outputs)
    while stack:
        tensor = stack.pop()
        if tensor not in needed:
            needed.add(tensor)
            stack.extend(tensor.op.inputs)
    return needed


def _clip(value: Expr) -> Expr:
    return ir.minimum(ir.maximum(value, -_BOUND), _BOUND)


def _elementwise(draw: Choices, x: Tensor, others: Sequence[Tensor], name: str) -> Tensor:
    same = [other for other in others if other.extents() == x.extents()]
    y = draw.pick([x, *same])
    combine: Callable[[Expr, Expr], Expr] = draw.pick([
        lambda a, b: _clip(a + b), lambda a, b: _clip(a * b), lambda a, b: ir.maximum(a, b - 1.0),
        lambda a, b: ir.select(a < b, a + 1.0, b),
    ])
    return _tensor(te.compute(x.shape, lambda i, j: combine(x[i, j], y[i, j]), name=name))


def _broadcast(draw: Choices, x: Tensor, others: Sequence[Tensor], name: str) -> Tensor:
    rows, _ = x.extents()
    extent = draw.integer(1, 9)
    return _tensor(te.compute((extent, rows), lambda i, j: x[j, 0] + 1.0, name=name))


def _reshape(draw: Choices, x: Tensor, others: Sequence[Tensor], name: str) -> Tensor:
    rows, columns = x.extents()
    size = rows * columns
    new = draw.pick([n for n in range(1, size + 1) if size % n == 0])

    def value(i: Expr, j: Expr) -> Expr:
        at = i * (size // new) + j
        return x[at // columns, at % columns]

    return _tensor(te.compute((new, size // new), value, name=name))


def _shuffle(draw: Choices, x: Tensor, others: Sequence[Tensor], name: str) -> Tensor:
    rows, columns = x.extents()
    extent = draw.integer(1, 9)
    index: Callable[[Expr], Expr] = draw.pick([
        lambda i: rows - 1 - i % rows, lambda i: ir.minimum(i, rows - 1),
        lambda i: (i * 2) % rows, lambda i: ir.maximum(rows - 1 - i, 0), lambda i: i // 9,
    ])
    return _tensor(te.compute((extent, columns), lambda i, j: x[index(i), j], name=name))


def _stencil(draw: Choices, x: Tensor, others: Sequence[Tensor], name: str) -> Tensor:
    """Reads at two places, at a distance, forwards or backwards; each value of x several times."""
    rows, columns = x.extents()
    distance = draw.integer(0, max(0, rows - 1))
    repeat = draw.integer(1, 3)
    first, second = draw.permutation([0, distance])
    return _tensor(te.compute(
        (draw.integer(1, (rows - distance) * repeat), columns),
        lambda i, j: x[i // repeat + first, j] - x[i // repeat + second, j], name=name))


def _gather(draw: Choices, x: Tensor, others: Sequence[Tensor], name: str) -> Tensor:
    rows, columns = x.extents()

    def index(i: Expr, j: Expr) -> Expr:
        value = ir.cast(ir.maximum(x[i, j], 0.0), "int32")
        return ir.minimum(value, rows - 1)

    return _tensor(te.compute((rows, columns), lambda i, j: x[index(i, j), j], name=name))


def _transpose(draw: Choices, x: Tensor, others: Sequence[Tensor], name: str) -> Tensor:
    return _tensor(te.compute(tuple(reversed(x.shape)), lambda i, j: x[j, i] - 1.0, name=name))


def _pad(draw: Choices, x: Tensor, others: Sequence[Tensor], name: str) -> Tensor:
    rows, columns = x.extents()
    before, after = draw.integer(0, 2), draw.integer(0, 2)

    def value(i: Expr, j: Expr) -> Expr:
        inside = ir.conjunction(i >= before, i < rows + before, j >= before, j < columns + before)
        return ir.if_then_else(inside, x[i - before, j - before], 1.0)

    shape = (rows + before + after, columns + before + after)
    return _tensor(te.compute(shape, value, name=name, tag="pad"))


def _window(draw: Choices, x: Tensor) -> tuple[tuple[IterVar, ...], int, int, int]:
    rows, _ = x.extents()
    stride, dilation = draw.integer(1, 3), draw.integer(1, 2)
    height = draw.integer(1, max(1, min(3, (rows - 1) // dilation + 1)))
    axes = (te.reduce_axis((0, height), "kh"), te.reduce_axis((0, 1), "kw"))
    out_rows = (rows - (height - 1) * dilation - 1) // stride + 1
    return axes, stride, dilation, out_rows


def _pooling(draw: Choices, x: Tensor, others: Sequence[Tensor], name: str) -> Tensor:
    (kh, kw), stride, dilation, out_rows = _window(draw, x)
    reducer = draw.pick([te.max, te.min, te.sum])
    return _tensor(te.compute(
        (out_rows, x.extents()[1]),
        lambda i, j: reducer(x[i * stride + kh * dilation, j + kw], axis=[kh, kw]), name=name))


def _convolution(draw: Choices, x: Tensor, others: Sequence[Tensor], name: str) -> Tensor:
    weight = draw.pick(others)
    (kh, _), stride, dilation, out_rows = _window(draw, x)
    channel = te.reduce_axis((0, x.extents()[1]), "c")
    rows, columns = weight.extents()
    total = te.compute(
        (out_rows, columns),
        lambda i, j: te.sum(
            x[i * stride + kh * dilation, channel] * weight[(kh + channel) % rows, j],
            axis=[channel, kh]),
        name=f"{name}_sum", tag="conv")
    return _tensor(te.compute(total.shape, lambda i, j: _clip(total[i, j]), name=name))


def _row_sum(draw: Choices, x: Tensor, others: Sequence[Tensor], name: str) -> Tensor:
    rows, columns = x.extents()
    r = te.reduce_axis((draw.integer(0, columns - 1), columns), "r")
    total = te.compute((rows,), lambda i: te.sum(x[i, r], axis=r, where=x[i, r] < 3.0),
                       name=f"{name}_sum")
    return _tensor(te.compute(x.shape, lambda i, j: _clip(x[i, j] - total[i]), name=name))


def _argmax(draw: Choices, x: Tensor, others: Sequence[Tensor], name: str) -> Tensor:
    rows, columns = x.extents()
    r = te.reduce_axis((0, columns), "r")

    def first_of_greatest(a: Sequence[Expr], b: Sequence[Expr]) -> tuple[Expr, Expr]:
        earlier = te.any(a[0] > b[0], te.all(ir.equal(a[0], b[0]), a[1] < b[1]))
        return te.select(earlier, a[0], b[0]), te.select(earlier, a[1], b[1])

    argmax = te.comm_reducer(
        first_of_greatest, lambda v, i: (te.min_value(v), te.max_value(i)), name="argmax")
    value, index = te.compute(
        (rows,), lambda i: argmax((x[i, r], r.var), axis=r), name=f"{name}_argmax")
    return _tensor(te.compute(
        x.shape, lambda i, j: ir.cast(index[i], "float32") + value[i], name=name))


def _recurrence(draw: Choices, x: Tensor, others: Sequence[Tensor], name: str) -> Tensor:
    return random_scan(draw, x, name)


def _with_initial_value(
    draw: Choices, x: Tensor, others: Sequence[Tensor], name: str
) -> Tensor:
    rows, columns = x.extents()
    r = te.reduce_axis((0, columns), "r")
    start = te.compute((rows,), lambda i: x[i, 0] * 2.0, name=f"{name}_start")
    total = te.compute((rows, 2), lambda i, j: te.sum(x[i, r], axis=r, init=start[i]),
                       name=f"{name}_sum")
    return _tensor(te.compute(x.shape, lambda i, j: _clip(x[i, j] - total[i, 1]), name=name))


def _tensor(made: Any) -> Tensor:
    assert isinstance(made, Tensor)
    return made


_OPERATIONS = (_elementwise, _elementwise, _broadcast, _reshape, _shuffle, _stencil, _stencil,
               _gather, _transpose, _pad, _pad, _pooling, _convolution, _row_sum, _argmax,
               _recurrence, _with_initial_value)
