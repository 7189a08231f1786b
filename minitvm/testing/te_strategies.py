"""Hypothesis strategies for computes and schedules.

    programs()                      random graphs of small computes: elementwise, padding, stencils,
                                    convolution, pooling, reshapes, gathers, argmax; shared values
    random_schedule(draw, program)  random legal steps on one

Values are small integers held as floats, so that every order of summation gives the same bits:
`te_oracle.random_inputs` and `te_oracle.evaluate` say what must come out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st

from minitvm import te
from minitvm.errors import ScheduleError
from minitvm.te.schedule import Schedule, StageHandle
from minitvm.te.tensor import IterVar, Tensor
from minitvm.testing.te_oracle import Program
from minitvm.tir import ir
from minitvm.tir.ir import Expr

Draw = Callable[[Any], Any]
_BOUND = 16


# --- computes -----------------------------------------------------------------------------------


@st.composite
def programs(draw: Draw, most_operations: int = 5) -> Program:
    """A graph of up to `most_operations` computes on two small matrices."""
    extents = st.integers(1, 9)
    inputs = [te.placeholder((draw(extents), draw(extents)), name=name) for name in ("x", "y")]
    made: list[Tensor] = []
    for number in range(draw(st.integers(1, most_operations))):
        source = draw(st.sampled_from([*inputs, *made, *made]))
        build = draw(st.sampled_from(_OPERATIONS))
        made.append(build(draw, source, [*inputs, *made], f"t{number}"))
    read = {tensor for item in made for tensor in item.op.inputs}
    outputs = [tensor for tensor in made if tensor not in read]
    extra = draw(st.sampled_from([None, *made]))
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


def _elementwise(draw: Draw, x: Tensor, others: Sequence[Tensor], name: str) -> Tensor:
    same = [other for other in others if other.extents() == x.extents()]
    y = draw(st.sampled_from([x, *same]))
    combine = draw(st.sampled_from([
        lambda a, b: _clip(a + b), lambda a, b: _clip(a * b), lambda a, b: ir.maximum(a, b - 1.0),
        lambda a, b: ir.select(a < b, a + 1.0, b),
    ]))
    return _tensor(te.compute(x.shape, lambda i, j: combine(x[i, j], y[i, j]), name=name))


def _broadcast(draw: Draw, x: Tensor, others: Sequence[Tensor], name: str) -> Tensor:
    rows, _ = x.extents()
    extent = draw(st.integers(1, 9))
    return _tensor(te.compute((extent, rows), lambda i, j: x[j, 0] + 1.0, name=name))


def _reshape(draw: Draw, x: Tensor, others: Sequence[Tensor], name: str) -> Tensor:
    rows, columns = x.extents()
    size = rows * columns
    new = draw(st.sampled_from([n for n in range(1, size + 1) if size % n == 0]))

    def value(i: Expr, j: Expr) -> Expr:
        at = i * (size // new) + j
        return x[at // columns, at % columns]

    return _tensor(te.compute((new, size // new), value, name=name))


def _shuffle(draw: Draw, x: Tensor, others: Sequence[Tensor], name: str) -> Tensor:
    rows, columns = x.extents()
    extent = draw(st.integers(1, 9))
    index = draw(st.sampled_from([
        lambda i: rows - 1 - i % rows, lambda i: ir.minimum(i, rows - 1),
        lambda i: (i * 2) % rows, lambda i: ir.maximum(rows - 1 - i, 0), lambda i: i // 9,
    ]))
    return _tensor(te.compute((extent, columns), lambda i, j: x[index(i), j], name=name))


def _stencil(draw: Draw, x: Tensor, others: Sequence[Tensor], name: str) -> Tensor:
    """Reads at two places, at a distance, forwards or backwards; each value of x several times."""
    rows, columns = x.extents()
    distance = draw(st.integers(0, max(0, rows - 1)))
    repeat = draw(st.integers(1, 3))
    first, second = draw(st.permutations([0, distance]))
    return _tensor(te.compute(
        (draw(st.integers(1, (rows - distance) * repeat)), columns),
        lambda i, j: x[i // repeat + first, j] - x[i // repeat + second, j], name=name))


def _gather(draw: Draw, x: Tensor, others: Sequence[Tensor], name: str) -> Tensor:
    rows, columns = x.extents()

    def index(i: Expr, j: Expr) -> Expr:
        value = ir.cast(ir.maximum(x[i, j], 0.0), "int32")
        return ir.minimum(value, rows - 1)

    return _tensor(te.compute((rows, columns), lambda i, j: x[index(i, j), j], name=name))


def _transpose(draw: Draw, x: Tensor, others: Sequence[Tensor], name: str) -> Tensor:
    return _tensor(te.compute(tuple(reversed(x.shape)), lambda i, j: x[j, i] - 1.0, name=name))


def _pad(draw: Draw, x: Tensor, others: Sequence[Tensor], name: str) -> Tensor:
    rows, columns = x.extents()
    before, after = draw(st.integers(0, 2)), draw(st.integers(0, 2))

    def value(i: Expr, j: Expr) -> Expr:
        inside = ir.conjunction(i >= before, i < rows + before, j >= before, j < columns + before)
        return ir.if_then_else(inside, x[i - before, j - before], 1.0)

    shape = (rows + before + after, columns + before + after)
    return _tensor(te.compute(shape, value, name=name, tag="pad"))


def _window(draw: Draw, x: Tensor) -> tuple[tuple[IterVar, ...], int, int, int]:
    rows, _ = x.extents()
    stride, dilation = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    height = draw(st.integers(1, max(1, min(3, (rows - 1) // dilation + 1))))
    axes = (te.reduce_axis((0, height), "kh"), te.reduce_axis((0, 1), "kw"))
    out_rows = (rows - (height - 1) * dilation - 1) // stride + 1
    return axes, stride, dilation, out_rows


def _pooling(draw: Draw, x: Tensor, others: Sequence[Tensor], name: str) -> Tensor:
    (kh, kw), stride, dilation, out_rows = _window(draw, x)
    reducer = draw(st.sampled_from([te.max, te.min, te.sum]))
    return _tensor(te.compute(
        (out_rows, x.extents()[1]),
        lambda i, j: reducer(x[i * stride + kh * dilation, j + kw], axis=[kh, kw]), name=name))


def _convolution(draw: Draw, x: Tensor, others: Sequence[Tensor], name: str) -> Tensor:
    weight = draw(st.sampled_from(others))
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


def _row_sum(draw: Draw, x: Tensor, others: Sequence[Tensor], name: str) -> Tensor:
    rows, columns = x.extents()
    r = te.reduce_axis((draw(st.integers(0, columns - 1)), columns), "r")
    total = te.compute((rows,), lambda i: te.sum(x[i, r], axis=r, where=x[i, r] < 3.0),
                       name=f"{name}_sum")
    return _tensor(te.compute(x.shape, lambda i, j: _clip(x[i, j] - total[i]), name=name))


def _argmax(draw: Draw, x: Tensor, others: Sequence[Tensor], name: str) -> Tensor:
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


def _tensor(made: Any) -> Tensor:
    assert isinstance(made, Tensor)
    return made


_OPERATIONS = (_elementwise, _elementwise, _broadcast, _reshape, _shuffle, _stencil, _stencil,
               _gather, _transpose, _pad, _pad, _pooling, _convolution, _row_sum, _argmax)


# --- schedules ----------------------------------------------------------------------------------


def random_schedule(draw: Draw, program: Program, most_steps: int = 12) -> Schedule:
    """A schedule made of random steps; those that are refused are left out."""
    schedule = te.create_schedule(program.outputs)
    for _ in range(draw(st.integers(0, most_steps))):
        stages = [stage for stage in schedule.stages if not stage.is_input]
        stage = draw(st.sampled_from(stages))
        primitive = draw(st.sampled_from(_PRIMITIVES))
        try:
            primitive(draw, schedule, stage)
        except ScheduleError as error:
            assert "Legal choices" in str(error), "a refusal must name the legal choices"
    return schedule


def _axis(draw: Draw, stage: StageHandle) -> IterVar:
    return draw(st.sampled_from(stage.leaf_iter_vars))  # type: ignore[no-any-return]


def _split(draw: Draw, schedule: Schedule, stage: StageHandle) -> None:
    size = draw(st.integers(1, 7))
    if draw(st.booleans()):
        stage.split(_axis(draw, stage), factor=size)
    else:
        stage.split(_axis(draw, stage), nparts=size)


def _fuse(draw: Draw, schedule: Schedule, stage: StageHandle) -> None:
    leaves = stage.leaf_iter_vars
    first = draw(st.integers(0, len(leaves) - 1))
    stage.fuse(*leaves[first : first + draw(st.integers(2, 3))])


def _reorder(draw: Draw, schedule: Schedule, stage: StageHandle) -> None:
    stage.reorder(*draw(st.permutations(stage.leaf_iter_vars)))


def _annotate(draw: Draw, schedule: Schedule, stage: StageHandle) -> None:
    match draw(st.sampled_from(["vectorize", "unroll", "parallel"])):
        case "vectorize":
            stage.vectorize(stage.leaf_iter_vars[-1])
        case "unroll":
            stage.unroll(_axis(draw, stage))
        case _:
            stage.parallel(_axis(draw, stage))


def _compute_at(draw: Draw, schedule: Schedule, stage: StageHandle) -> None:
    parent = draw(st.sampled_from([
        other for other in schedule.stages if not other.is_input]))
    stage.compute_at(parent, _axis(draw, parent))


def _compute_at_reader(draw: Draw, schedule: Schedule, stage: StageHandle) -> None:
    readers = schedule.graph.readers(stage.stage)
    if readers:
        parent = schedule[draw(st.sampled_from(readers)).name]
        stage.compute_at(parent, _axis(draw, parent))


def _tile_reader(draw: Draw, schedule: Schedule, stage: StageHandle) -> None:
    """The typical pattern: a reader in tiles, and the stage computed for each of them."""
    readers = schedule.graph.readers(stage.stage)
    if readers:
        parent = schedule[draw(st.sampled_from(readers)).name]
        outer, _ = parent.split(_axis(draw, parent), factor=draw(st.integers(2, 5)))
        parent.reorder(outer, *(leaf for leaf in parent.leaf_iter_vars if leaf is not outer))
        stage.compute_at(parent, outer)


def _place(draw: Draw, schedule: Schedule, stage: StageHandle) -> None:
    if draw(st.booleans()):
        stage.compute_inline()
    else:
        stage.compute_root()


def _cache(draw: Draw, schedule: Schedule, stage: StageHandle) -> None:
    scope = draw(st.sampled_from(["local", "global"]))
    op = stage.op
    if draw(st.booleans()):
        tensor = Tensor(op, 0, tuple(axis.extent for axis in op.axis), op.bodies[0].dtype)
        schedule.cache_write(tensor, scope)
    else:
        schedule.cache_read(draw(st.sampled_from(op.inputs)), scope, [op])


_PRIMITIVES = (_split, _split, _fuse, _reorder, _annotate, _compute_at, _compute_at_reader,
               _tile_reader, _tile_reader, _tile_reader, _place, _cache)
