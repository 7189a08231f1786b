"""Tensor expressions: what to compute, apart from how.

    A = te.placeholder((n, k), name="A")
    B = te.placeholder((k, m), name="B")
    r = te.reduce_axis((0, k), name="r")
    C = te.compute((n, m), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="C")

    Tensor  = output `index` of an operation: shape, dtype; `T[i, j]` reads it
    Operation = Placeholder(name, shape, dtype)
              | Compute(name, axis: IterVar*, reduce_axis: IterVar*, bodies: Expr*, tag, attrs,
                        origin)
              | Scan(name, scan_axis, init: Tensor*, update: Tensor*, states: Tensor*, origin)
    IterVar = var, start, extent, kind: spatial | reduce | scan | thread

Expressions are tir's, with `Read` for elements of tensors and `Reduce` as the root of a body.
Names, argument order and meaning are those of TVM's `te`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, assert_never

from minitvm import dtypes
from minitvm.origin import NOWHERE, Origin, here
from minitvm.tir import ir, walk
from minitvm.tir.ir import Const, Expr, ExprLike, Read, Reduce, Reducer, Var


@dataclass(frozen=True, slots=True, eq=False)
class IterVar:
    """A variable that runs over [start, start + extent): an axis. Equal by identity."""

    var: Var
    start: Expr
    extent: Expr
    kind: str = "spatial"

    @property
    def name(self) -> str:
        """The name of the variable."""
        return self.var.name

    def __repr__(self) -> str:
        return self.var.name

    def _as_expr(self) -> Expr:
        return self.var

    # An axis stands for its variable in expressions.
    def __add__(self, other: Any) -> Expr:
        return self.var + as_expr(other)

    def __radd__(self, other: Any) -> Expr:
        return as_expr(other) + self.var

    def __sub__(self, other: Any) -> Expr:
        return self.var - as_expr(other)

    def __rsub__(self, other: Any) -> Expr:
        return as_expr(other) - self.var

    def __mul__(self, other: Any) -> Expr:
        return self.var * as_expr(other)

    def __rmul__(self, other: Any) -> Expr:
        return as_expr(other) * self.var

    def __floordiv__(self, other: Any) -> Expr:
        return self.var // as_expr(other)

    def __mod__(self, other: Any) -> Expr:
        return self.var % as_expr(other)

    def __lt__(self, other: Any) -> Expr:
        return self.var < as_expr(other)

    def __le__(self, other: Any) -> Expr:
        return self.var <= as_expr(other)

    def __gt__(self, other: Any) -> Expr:
        return self.var > as_expr(other)

    def __ge__(self, other: Any) -> Expr:
        return self.var >= as_expr(other)


def as_expr(value: Any, like: str = ir.INDEX) -> Expr:
    """An index, axis, number or rank-0 tensor as an expression."""
    if isinstance(value, IterVar):
        return value.var
    if isinstance(value, Tensor):
        return value[()]
    return ir.convert(value, like)


@dataclass(frozen=True, slots=True, eq=False)
class Placeholder:
    """An input."""

    name: str
    shape: tuple[Expr, ...]
    dtype: str

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """None."""
        return ()


@dataclass(frozen=True, slots=True, eq=False)
class Compute:
    """For every point of `axis`, the value of each body: one output tensor a body.

    Each body is a plain expression, or all of them are `Reduce` of the same reduction.
    """

    name: str
    axis: tuple[IterVar, ...]
    reduce_axis: tuple[IterVar, ...]
    bodies: tuple[Expr, ...]
    tag: str = ""
    attrs: Mapping[str, Any] = field(default_factory=dict)
    origin: Origin = NOWHERE

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The tensors that the bodies read, each once, in order of first use."""
        found: dict[tuple[int, int], Tensor] = {}
        for body in self.bodies:
            for node in walk.walk(body):
                if isinstance(node, Read):
                    tensor: Tensor = node.tensor
                    found.setdefault((id(tensor.op), tensor.index), tensor)
        return tuple(found.values())


@dataclass(frozen=True, slots=True, eq=False)
class Scan:
    """A recurrence along dimension 0: the first steps are `init`; then, for each step t of
    `scan_axis`, `update` gives step t from earlier ones, which it reads as `states`.

    One output tensor a state.
    """

    name: str
    scan_axis: IterVar
    init: tuple[Tensor, ...]
    update: tuple[Tensor, ...]
    states: tuple[Tensor, ...]
    origin: Origin = NOWHERE

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """What it reads: initial values and updates."""
        return tuple(dict.fromkeys((*self.init, *self.update)))


Operation = Placeholder | Compute | Scan


def output_dtypes(op: Operation) -> tuple[str, ...]:
    """The dtype of each output."""
    match op:
        case Placeholder():
            return (op.dtype,)
        case Compute():
            return tuple(body.dtype for body in op.bodies)
        case Scan():
            return tuple(state.dtype for state in op.states)
    assert_never(op)


@dataclass(frozen=True, slots=True)
class Tensor:
    """Output `index` of an operation. Equal when operation (by identity) and index are equal."""

    op: Operation
    index: int
    shape: tuple[Expr, ...]
    dtype: str

    @property
    def name(self) -> str:
        """The name of the operation, with the index where it has several outputs."""
        single = len(output_dtypes(self.op)) == 1
        return self.op.name if single else f"{self.op.name}_{self.index}"

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def axis(self) -> tuple[IterVar, ...]:
        """The spatial axes of the operation that computes it."""
        return self.op.axis if isinstance(self.op, Compute) else ()

    def extents(self) -> tuple[int, ...]:
        """The shape as integers; raises `ValueError` if it is symbolic."""
        if not all(isinstance(extent, Const) for extent in self.shape):
            raise ValueError(f"the shape of {self.name} is symbolic: {self.shape}")
        return tuple(int(extent.value) for extent in self.shape)  # type: ignore[attr-defined]

    def __getitem__(self, indices: Any) -> Expr:
        if not isinstance(indices, tuple):
            indices = (indices,)
        if len(indices) != len(self.shape):
            raise TypeError(
                f"{self.name} has {len(self.shape)} dimensions but is read with {len(indices)} "
                f"indices"
            )
        return Read(self, tuple(as_expr(index) for index in indices))

    def __call__(self, *indices: Any) -> Expr:
        return self[indices]

    def __repr__(self) -> str:
        return f"Tensor({self.name}, {tuple(self.shape)}, {self.dtype})"


def placeholder(
    shape: Sequence[ExprLike], dtype: str = "float32", name: str = "placeholder"
) -> Tensor:
    """An input tensor."""
    dtypes.split(dtype)
    extents = tuple(as_expr(extent) for extent in shape)
    return Tensor(Placeholder(name, extents, dtype), 0, extents, dtype)


def var(name: str = "n", dtype: str = ir.INDEX) -> Var:
    """A scalar that is known when the code runs: a size in shapes, or a number in bodies. It
    becomes a parameter of the lowered function."""
    return Var(name, dtype)


def size_var(name: str = "size", dtype: str = ir.INDEX) -> Var:
    """A `var` for a size: one that stands in a shape is never negative."""
    return Var(name, dtype)


def thread_axis(
    dom: tuple[ExprLike, ExprLike] | str | None = None, tag: str = "", name: str = ""
) -> IterVar:
    """An axis of GPU threads, such as `te.thread_axis("blockIdx.x")`, for `bind`."""
    if isinstance(dom, str):
        return thread_axis(None, dom, name)
    low, high = (as_expr(end) for end in dom or (0, 0))
    return IterVar(Var(name or tag, low.dtype), low, high - low, "thread")


def reduce_axis(domain: tuple[ExprLike, ExprLike], name: str = "r") -> IterVar:
    """A reduction axis over [domain[0], domain[1])."""
    low, high = as_expr(domain[0]), as_expr(domain[1])
    return IterVar(Var(name, low.dtype), low, high - low, "reduce")


def compute(
    shape: Sequence[ExprLike],
    fcompute: Callable[..., Any],
    name: str = "compute",
    tag: str = "",
    attrs: Mapping[str, Any] | None = None,
    origin: Origin = NOWHERE,
) -> Any:
    """The tensor whose element at (i, j, ...) is `fcompute(i, j, ...)`; a tuple of tensors where
    that gives a tuple (all of one shape)."""
    extents = tuple(as_expr(extent) for extent in shape)
    names = _argument_names(fcompute, len(extents))
    axes = tuple(
        IterVar(Var(axis_name, extent.dtype), Const(0, extent.dtype), extent)
        for axis_name, extent in zip(names, extents, strict=True)
    )
    value = fcompute(*(axis.var for axis in axes))
    values = value if isinstance(value, tuple) else (value,)
    bodies = tuple(as_expr(body, "float32") for body in values)
    reduces = [body for body in bodies if isinstance(body, Reduce)]
    if reduces and len(reduces) != len(bodies):
        raise TypeError(f"{name}: a compute is a reduction in all of its outputs, or in none")
    for body in bodies:
        _check_reduce_is_root(body, name)
    reduction = reduces[0].axes if reduces else ()
    op = Compute(name, axes, reduction, bodies, tag, dict(attrs or {}), origin or here(2))
    tensors = tuple(Tensor(op, index, extents, body.dtype) for index, body in enumerate(bodies))
    return tensors if isinstance(value, tuple) else tensors[0]


def _argument_names(fcompute: Callable[..., Any], count: int) -> list[str]:
    code = getattr(fcompute, "__code__", None)
    if code is None or code.co_flags & 0x04:  # not a plain function, or one that takes *indices
        return [f"i{position}" for position in range(count)]
    bound = 1 if hasattr(fcompute, "__self__") else 0
    required = code.co_argcount - len(fcompute.__defaults__ or ())
    if not required <= bound + count <= code.co_argcount:
        raise TypeError(f"the function takes {required - bound} indices; the shape has {count}")
    return list(code.co_varnames[bound : bound + count])


def _check_reduce_is_root(body: Expr, name: str) -> None:
    for node in walk.walk(body):
        if isinstance(node, Reduce) and node is not body:
            raise TypeError(
                f"{name}: a reduction must be the whole value of a compute; give the reduction a "
                f"compute of its own and read it from here"
            )


def comm_reducer(
    fcombine: Callable[..., Any], fidentity: Callable[..., Any], name: str = "reduce"
) -> Callable[..., Any]:
    """A reducer from `fcombine(x, y)` and `fidentity(dtype)`, as in TVM; with tuples for both, a
    tuple reducer such as argmax: `fcombine((i, x), (j, y))`, `fidentity(dtype_i, dtype_x)`."""

    def combine(left: tuple[Expr, ...], right: tuple[Expr, ...]) -> tuple[Expr, ...]:
        result = fcombine(left[0], right[0]) if len(left) == 1 else fcombine(left, right)
        return tuple(result) if isinstance(result, tuple) else (result,)

    def identity(element_dtypes: tuple[str, ...]) -> tuple[Expr, ...]:
        result = fidentity(*element_dtypes)
        values = result if isinstance(result, tuple) else (result,)
        return tuple(
            as_expr(value, dtype) for value, dtype in zip(values, element_dtypes, strict=True)
        )

    return _reduction(Reducer(name, combine, identity))


def _reduction(reducer: Reducer) -> Callable[..., Any]:
    def reduce(
        expr: Any, axis: IterVar | Sequence[IterVar], where: Expr | None = None, init: Any = None
    ) -> Any:
        axes = (axis,) if isinstance(axis, IterVar) else tuple(axis)
        if not axes or any(item.kind != "reduce" for item in axes):
            raise TypeError(f"{reducer.name} reduces over axes made by te.reduce_axis, not {axes}")
        given = expr if isinstance(expr, tuple) else (expr,)
        sources = tuple(
            as_expr(item, "float32" if isinstance(item, float) else ir.INDEX) for item in given
        )
        start = _initial_values(reducer.name, sources, axes, init)
        results = tuple(
            Reduce(reducer, sources, axes, index, where, start) for index in range(len(sources))
        )
        return results if isinstance(expr, tuple) else results[0]

    reduce.__name__ = reducer.name
    reduce.__doc__ = (
        f"The {reducer.name} of `expr` over reduction axes, where `where` holds, from `init` on."
    )
    return reduce


def _initial_values(
    name: str, sources: tuple[Expr, ...], axes: tuple[IterVar, ...], init: Any
) -> tuple[Expr, ...]:
    if init is None:
        return ()
    given = init if isinstance(init, tuple) else (init,)
    if len(given) != len(sources):
        raise TypeError(f"{name} takes {len(sources)} initial values, not {len(given)}")
    values = tuple(
        as_expr(value, source.dtype) for value, source in zip(given, sources, strict=True)
    )
    variables = {axis.var for axis in axes}
    for value, source in zip(values, sources, strict=True):
        if value.dtype != source.dtype:
            raise TypeError(f"an initial value of {name} is {value.dtype}, not {source.dtype}")
        if not variables.isdisjoint(node for node in walk.walk(value) if isinstance(node, Var)):
            raise TypeError(f"an initial value of {name} can't depend on the axes reduced over")
    return values


def min_value(dtype: str) -> Expr:
    """The least value of a dtype (minus infinity for floats)."""
    if dtypes.is_float(dtype):
        return ir.convert(float("-inf"), dtype)
    return ir.convert(dtypes.integer_range(dtype)[0], dtype)


def max_value(dtype: str) -> Expr:
    """The greatest value of a dtype (infinity for floats)."""
    if dtypes.is_float(dtype):
        return ir.convert(float("inf"), dtype)
    return ir.convert(dtypes.integer_range(dtype)[1], dtype)
