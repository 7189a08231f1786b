"""TIR: loop nests over buffers.

    PrimFunc = name, params: (Buffer | Var)*, body: Stmt, attrs: str -> int | str | tuple
    Stmt     = For(var, start, extent, kind, body)       kind: serial parallel vectorized unrolled
             | Let(var, value, body)
             | If(condition, then_body, else_body | None)
             | While(condition, body)                    in `main` and functions of relay only
             | Store(buffer, indices, value)
             | Allocate(buffer, body)                    scratch memory, live in `body`
             | Seq(statements)                           at least two, never nested
             | Invoke(callee, arguments)                 call a kernel by name (in `main` only)
             | Evaluate(value)                           for an effect; Evaluate(0) does nothing
    Expr     = Var | Const(value, dtype) | Cast(dtype, value)
             | Binary(op, a, b)                          op: BINARY_OPS
             | Compare(op, a, b)                         op: COMPARE_OPS; gives bool
             | And(a, b) | Or(a, b) | Not(a)             short-circuit
             | Select(condition, true_value, false_value)    strict: evaluates all three
             | Call(name, arguments, dtype)              an intrinsic of `intrinsics.TABLE`
             | Load(buffer, indices)
             | Ramp(base, stride, lanes) | Broadcast(value, lanes)
             | Address(buffer, offset)                   a handle, for Invoke and prefetch
    te only  | Read(tensor, indices) | Reduce(reducer, sources, axes, index, where, init)

One IR in three specs. *Nested*: buffers have any rank; what te lowering gives. *Flat*: buffers
have rank 1. *Machine*: flat, without vectorized loops: vectors are Ramp and Broadcast.

Expressions are equal by structure; `Var` and `Buffer` by identity. A rewrite that changes nothing
returns the same object. Statements carry an `Origin`, which equality ignores.

Semantics. Integers wrap. `div` is for floats alone; `floordiv` and `floormod` round towards minus
infinity and have no meaning for a zero divisor. `min` and `max` propagate NaN as numpy's `minimum`
and `maximum`. `Call("if_then_else", (c, a, b))` is lazy: the branch not taken is not evaluated,
so that it may hold an access out of bounds. Where c has lanes, a is a load of as many neighbours,
under a mask: of the other lanes, which are those of b, no memory is read. `Call("likely", (c,))` is
`c`; it marks a guard that loop partition should remove. `Evaluate(Call("prefetch", (a,)))` asks for
the memory at an address, which may be out of bounds, and has no other effect. A For runs `var` over
[start, start + extent); an extent of zero or less runs nothing. The memory of an Allocate starts
undefined.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from minitvm import dtypes
from minitvm.origin import NOWHERE, Origin
from minitvm.text import printed

if TYPE_CHECKING:
    from typing import Any

BINARY_OPS = ("add", "sub", "mul", "div", "floordiv", "floormod", "min", "max", "bitand", "bitor",
              "bitxor", "shl", "shr")
COMPARE_OPS = ("eq", "ne", "lt", "le", "gt", "ge")
LoopKind = Literal["serial", "parallel", "vectorized", "unrolled"]
INDEX = "int32"
"""The default dtype of indices; `int64` where a buffer has 2**31 elements or more."""


class Expr:
    """The base of expressions: `dtype`, and arithmetic that builds nodes and folds integers."""

    __slots__ = ()
    dtype: str

    def __add__(self, other: ExprLike) -> Expr:
        return binary("add", self, other)

    def __radd__(self, other: ExprLike) -> Expr:
        return binary("add", other, self)

    def __sub__(self, other: ExprLike) -> Expr:
        return binary("sub", self, other)

    def __rsub__(self, other: ExprLike) -> Expr:
        return binary("sub", other, self)

    def __mul__(self, other: ExprLike) -> Expr:
        return binary("mul", self, other)

    def __rmul__(self, other: ExprLike) -> Expr:
        return binary("mul", other, self)

    def __truediv__(self, other: ExprLike) -> Expr:
        return binary("div", self, other)

    def __rtruediv__(self, other: ExprLike) -> Expr:
        return binary("div", other, self)

    def __floordiv__(self, other: ExprLike) -> Expr:
        return binary("floordiv", self, other)

    def __rfloordiv__(self, other: ExprLike) -> Expr:
        return binary("floordiv", other, self)

    def __mod__(self, other: ExprLike) -> Expr:
        return binary("floormod", self, other)

    def __rmod__(self, other: ExprLike) -> Expr:
        return binary("floormod", other, self)

    def __neg__(self) -> Expr:
        if dtypes.is_float(self.dtype):  # 0 - x would turn -0.0 into 0.0
            return binary("mul", self, -1)
        return binary("sub", 0, self)

    def __lt__(self, other: ExprLike) -> Expr:
        return compare("lt", self, other)

    def __le__(self, other: ExprLike) -> Expr:
        return compare("le", self, other)

    def __gt__(self, other: ExprLike) -> Expr:
        return compare("gt", self, other)

    def __ge__(self, other: ExprLike) -> Expr:
        return compare("ge", self, other)

    def __bool__(self) -> bool:
        raise TypeError(
            "a tir expression has no truth value: build a condition with tir.all, tir.any, "
            "tir.equal or te.if_then_else"
        )


ExprLike = Expr | int | float | bool


def _set(node: Expr, dtype: str) -> None:
    object.__setattr__(node, "dtype", dtype)


@dataclass(frozen=True, slots=True, eq=False)
class Var(Expr):
    """A scalar variable: of a loop, a let, a size or a parameter. Equal by identity."""

    name: str
    dtype: str = INDEX

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True, eq=False)
class Const(Expr):
    """A scalar constant. Floats are equal by their bits (so -0.0 is not 0.0, and NaN is NaN)."""

    value: int | float | bool
    dtype: str = INDEX

    def _key(self) -> tuple[object, ...]:
        if isinstance(self.value, float):
            return (self.dtype, struct.pack("<d", self.value))
        return (self.dtype, int(self.value))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Const) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())


@dataclass(frozen=True, slots=True)
class Cast(Expr):
    """Conversion as `numpy.astype`: float to int truncates towards zero, integers wrap."""

    dtype: str
    value: Expr


@dataclass(frozen=True, slots=True)
class Binary(Expr):
    """`op` of two values of one dtype (lanes included)."""

    op: str
    a: Expr
    b: Expr
    dtype: str = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        _set(self, self.a.dtype)


@dataclass(frozen=True, slots=True)
class Compare(Expr):
    """A comparison of two values of one dtype; for NaN only `ne` holds."""

    op: str
    a: Expr
    b: Expr
    dtype: str = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        _set(self, dtypes.vector("bool", dtypes.lanes(self.a.dtype)))


@dataclass(frozen=True, slots=True)
class And(Expr):
    """Both; `b` is not evaluated when `a` is false."""

    a: Expr
    b: Expr
    dtype: str = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        _set(self, self.a.dtype)


@dataclass(frozen=True, slots=True)
class Or(Expr):
    """Either; `b` is not evaluated when `a` is true."""

    a: Expr
    b: Expr
    dtype: str = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        _set(self, self.a.dtype)


@dataclass(frozen=True, slots=True)
class Not(Expr):
    """The negation of a bool."""

    a: Expr
    dtype: str = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        _set(self, self.a.dtype)


@dataclass(frozen=True, slots=True)
class Select(Expr):
    """One of two values; both are evaluated. The condition has as many lanes, or one."""

    condition: Expr
    true_value: Expr
    false_value: Expr
    dtype: str = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        _set(self, self.true_value.dtype)


@dataclass(frozen=True, slots=True)
class Call(Expr):
    """An intrinsic of `intrinsics.TABLE`, or an instruction of `instructions.TABLE`."""

    name: str
    arguments: tuple[Expr, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class Load(Expr):
    """An element of a buffer, or a vector of them where the last index is a vector."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    dtype: str = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        count = dtypes.lanes(self.indices[-1].dtype) if self.indices else 1
        _set(self, dtypes.vector(self.buffer.dtype, count))


@dataclass(frozen=True, slots=True)
class Ramp(Expr):
    """The vector base, base + stride, ..., of `lanes` integers; base and stride are scalars."""

    base: Expr
    stride: Expr
    lanes: int
    dtype: str = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        _set(self, dtypes.vector(self.base.dtype, self.lanes))


@dataclass(frozen=True, slots=True)
class Broadcast(Expr):
    """A vector of `lanes` copies of a scalar."""

    value: Expr
    lanes: int
    dtype: str = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        _set(self, dtypes.vector(self.value.dtype, self.lanes))


@dataclass(frozen=True, slots=True)
class Address(Expr):
    """The address of element `offset` of a buffer, row-major; an argument of Invoke or prefetch."""

    buffer: Buffer
    offset: Expr
    dtype: str = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        _set(self, "handle")


@dataclass(frozen=True, slots=True)
class Read(Expr):
    """te only: an element of a `te.Tensor`."""

    tensor: Any
    indices: tuple[Expr, ...]
    dtype: str = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        _set(self, self.tensor.dtype)


@dataclass(frozen=True, slots=True)
class Reducer:
    """How a reduction combines: of two accumulators, elementwise over a tuple, and the identity.

    `combine(left, right)` takes and gives one expression for each element of the tuple.
    """

    name: str
    combine: Callable[[tuple[Expr, ...], tuple[Expr, ...]], tuple[Expr, ...]]
    identity: Callable[[tuple[str, ...]], tuple[Expr, ...]]


@dataclass(frozen=True, slots=True)
class Reduce(Expr):
    """te only: element `index` of the reduction of `sources` over `axes`, where `where` holds.

    It starts from `init`, which does not depend on the axes; from the identity if that is empty.
    """

    reducer: Reducer
    sources: tuple[Expr, ...]
    axes: tuple[Any, ...]
    index: int
    where: Expr | None
    init: tuple[Expr, ...] = ()
    dtype: str = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        _set(self, self.sources[self.index].dtype)


@dataclass(frozen=True, slots=True, eq=False)
class Buffer:
    """Memory for `shape` elements, row-major. `scope`: global, or local. Equal by identity."""

    name: str
    shape: tuple[Expr, ...]
    dtype: str = "float32"
    scope: str = "global"

    def __repr__(self) -> str:
        return self.name

    def extents(self) -> tuple[int, ...]:
        """The shape as integers; raises `ValueError` if it is symbolic."""
        if not all(isinstance(extent, Const) for extent in self.shape):
            raise ValueError(f"the shape of buffer {self.name} is symbolic: {self.shape}")
        return tuple(int(extent.value) for extent in self.shape)  # type: ignore[attr-defined]


def buffer(name: str, shape: tuple[ExprLike, ...], dtype: str = "float32",
           scope: str = "global") -> Buffer:
    """A buffer with integer extents turned into constants."""
    return Buffer(name, tuple(convert(extent) for extent in shape), dtype, scope)


class Stmt:
    """The base of statements."""

    __slots__ = ()
    origin: Origin


@dataclass(frozen=True, slots=True)
class For(Stmt):
    """A loop of `var` over [start, start + extent); every kind means what serial means."""

    var: Var
    start: Expr
    extent: Expr
    kind: LoopKind
    body: Stmt
    origin: Origin = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Let(Stmt):
    """`var` is `value` in `body`."""

    var: Var
    value: Expr
    body: Stmt
    origin: Origin = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class If(Stmt):
    """One branch or the other (or nothing)."""

    condition: Expr
    then_body: Stmt
    else_body: Stmt | None = None
    origin: Origin = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class While(Stmt):
    """Runs the body as long as the condition holds, which may be never."""

    condition: Expr
    body: Stmt
    origin: Origin = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Store(Stmt):
    """Writes one element, or a vector of them where the last index is a vector."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    value: Expr
    origin: Origin = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Allocate(Stmt):
    """Scratch memory that lives in `body`."""

    buffer: Buffer
    body: Stmt
    origin: Origin = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Seq(Stmt):
    """Statements one after the other; build it with `seq`, which flattens."""

    statements: tuple[Stmt, ...]
    origin: Origin = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Invoke(Stmt):
    """Calls the kernel `callee`; each argument is an Address or a scalar."""

    callee: str
    arguments: tuple[Expr, ...]
    origin: Origin = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Evaluate(Stmt):
    """Computes a value for its effect."""

    value: Expr
    origin: Origin = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class PrimFunc:
    """A kernel. Parameters are distinct and don't overlap in memory unless `attrs` say so."""

    name: str
    params: tuple[Buffer | Var, ...]
    body: Stmt
    attrs: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return printed(self)


# --- building -----------------------------------------------------------------------------------


def convert(value: ExprLike, like: str = INDEX) -> Expr:
    """A Python number as a constant of dtype `like` (broadcast to its lanes); an Expr as it is."""
    if isinstance(value, Expr):
        return value
    if hasattr(value, "_as_expr"):  # an axis of te stands for its variable
        variable: Expr = value._as_expr()
        return variable
    element, count = dtypes.split(like)
    if isinstance(value, bool) and not count > 1 and like == INDEX:
        element = "bool"
    if dtypes.is_float(element):
        scalar = Const(float(value), element)
    elif isinstance(value, float):
        if not value.is_integer():
            raise TypeError(f"{value} is not a value of dtype {like}; cast the other side to float")
        scalar = Const(int(value), element)
    else:
        scalar = Const(bool(value) if element == "bool" else int(value), element)
    return scalar if count == 1 else Broadcast(scalar, count)


def _pair(a: ExprLike, b: ExprLike, what: str) -> tuple[Expr, Expr]:
    if not isinstance(a, Expr):
        a = convert(a, b.dtype if isinstance(b, Expr) else INDEX)
    if not isinstance(b, Expr):
        b = convert(b, a.dtype)
    if a.dtype != b.dtype:
        count_a, count_b = dtypes.lanes(a.dtype), dtypes.lanes(b.dtype)
        if count_a == 1 and dtypes.element(b.dtype) == a.dtype:
            a = Broadcast(a, count_b)
        elif count_b == 1 and dtypes.element(a.dtype) == b.dtype:
            b = Broadcast(b, count_a)
        else:
            raise TypeError(f"{what} needs operands of one dtype, not {a.dtype} and {b.dtype}")
    return a, b


def wrap_integer(value: int, dtype: str) -> int:
    """`value` as it is after wrapping to the width of `dtype`."""
    low, high = dtypes.integer_range(dtype)
    return (value - low) % (high - low + 1) + low


def fold_integers(op: str, a: int, b: int, dtype: str) -> int | None:
    """The value of an integer operation, wrapped; None for a division by zero or a bad shift."""
    if op in ("floordiv", "floormod") and b == 0:
        return None
    if op in ("shl", "shr") and not 0 <= b < dtypes.bits(dtype):
        return None
    return wrap_integer(_INTEGER_OPS[op](a, b), dtype)


_INTEGER_OPS: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b,
    "floormod": lambda a, b: a % b,
    "min": min,
    "max": max,
    "bitand": lambda a, b: a & b,
    "bitor": lambda a, b: a | b,
    "bitxor": lambda a, b: a ^ b,
    "shl": lambda a, b: a << b,
    "shr": lambda a, b: a >> b,
}


def binary(op: str, a: ExprLike, b: ExprLike) -> Expr:
    """`op` of two values; integer constants and the neutral elements of add and mul fold."""
    a, b = _pair(a, b, op)
    if op == "div" and not dtypes.is_float(a.dtype):
        raise TypeError("div is for floats; use // (floordiv) for integers")
    if dtypes.is_int(a.dtype):
        folded = _fold_binary(op, a, b)
        if folded is not None:
            return folded
    return Binary(op, a, b)


def _fold_binary(op: str, a: Expr, b: Expr) -> Expr | None:
    if isinstance(b, Const):
        if isinstance(a, Const):
            value = fold_integers(op, int(a.value), int(b.value), a.dtype)
            return None if value is None else Const(value, a.dtype)
        if b.value == 0 and op in ("add", "sub"):
            return a
        if b.value == 1 and op in ("mul", "floordiv"):
            return a
    elif isinstance(a, Const):
        if a.value == 0 and op == "add":
            return b
        if a.value == 1 and op == "mul":
            return b
    return None


_COMPARES: dict[str, Callable[[Any, Any], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


def compare(op: str, a: ExprLike, b: ExprLike) -> Expr:
    """A comparison; constants fold."""
    a, b = _pair(a, b, op)
    if isinstance(a, Const) and isinstance(b, Const):
        return Const(bool(_COMPARES[op](a.value, b.value)), "bool")
    return Compare(op, a, b)


def equal(a: ExprLike, b: ExprLike) -> Expr:
    """`a == b` as an expression (Python's `==` on expressions compares structure)."""
    return compare("eq", a, b)


def not_equal(a: ExprLike, b: ExprLike) -> Expr:
    """`a != b` as an expression."""
    return compare("ne", a, b)


def minimum(a: ExprLike, b: ExprLike) -> Expr:
    """The lesser of two values; NaN if either is NaN."""
    return binary("min", a, b)


def maximum(a: ExprLike, b: ExprLike) -> Expr:
    """The greater of two values; NaN if either is NaN."""
    return binary("max", a, b)


def conjunction(*conditions: ExprLike) -> Expr:
    """All conditions, from left to right; true if there are none."""
    result: Expr | None = None
    for condition in conditions:
        condition = convert(condition, "bool")
        if isinstance(condition, Const):
            if not condition.value:
                return condition
            continue
        result = condition if result is None else And(result, condition)
    return Const(True, "bool") if result is None else result


def disjunction(*conditions: ExprLike) -> Expr:
    """Any condition, from left to right; false if there are none."""
    result: Expr | None = None
    for condition in conditions:
        condition = convert(condition, "bool")
        if isinstance(condition, Const):
            if condition.value:
                return condition
            continue
        result = condition if result is None else Or(result, condition)
    return Const(False, "bool") if result is None else result


def select(condition: Expr, true_value: ExprLike, false_value: ExprLike) -> Expr:
    """Strict choice: both values are evaluated."""
    a, b = _pair(true_value, false_value, "select")
    if isinstance(condition, Const):
        return a if condition.value else b
    return Select(condition, a, b)


def if_then_else(condition: Expr, true_value: ExprLike, false_value: ExprLike) -> Expr:
    """Lazy choice: the value not chosen is not evaluated, and may read out of bounds."""
    a, b = _pair(true_value, false_value, "if_then_else")
    if isinstance(condition, Const):
        return a if condition.value else b
    return Call("if_then_else", (condition, a, b), a.dtype)


def is_masked_load(call: Call) -> bool:
    """Whether a choice is one by lanes, of which the first value is a load of neighbours."""
    match call:
        case Call("if_then_else", (condition, Load(_, (*_, Ramp(_, Const(1), _))), _)):
            return dtypes.lanes(condition.dtype) > 1
    return False


def cast(value: ExprLike, dtype: str) -> Expr:
    """`value` converted; the same object where it has that dtype. Integer constants fold."""
    value = convert(value)
    if value.dtype == dtype:
        return value
    if isinstance(value, Const) and not isinstance(value.value, float) and dtypes.is_int(dtype):
        return Const(wrap_integer(int(value.value), dtype), dtype)
    return Cast(dtype, value)


def seq(*statements: Stmt) -> Stmt:
    """Statements in order, flat, without `Evaluate(Const)`; a lone statement as it is."""
    flat: list[Stmt] = []
    for statement in statements:
        if isinstance(statement, Seq):
            flat.extend(statement.statements)
        elif not (isinstance(statement, Evaluate) and isinstance(statement.value, Const)):
            flat.append(statement)
    if len(flat) == 1:
        return flat[0]
    return Seq(tuple(flat)) if flat else Evaluate(Const(0))
