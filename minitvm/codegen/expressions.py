"""A tir expression -> the LLVM value that holds it.

Values are computed in their own dtype, where integers wrap. Indices are computed in 64 bits, where
they can't overflow (`nsw`), which is what lets LLVM turn them into pointer increments; a loop
variable therefore exists in 64 bits, and is cut down where it is used as data.

What may be read only under a condition (`if_then_else`, `and`, `or`) becomes a branch, or a select
where it reads no memory; a load of neighbours under a condition with lanes becomes a masked one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from minitvm import dtypes
from minitvm.codegen import arithmetic
from minitvm.codegen.arithmetic import is_literal
from minitvm.codegen.instructions import instruction
from minitvm.codegen.math import intrinsic
from minitvm.codegen.text import FunctionText, constant, llvm_type, memory_type, splat, suffix
from minitvm.errors import CodegenError
from minitvm.tir import instructions, ir, walk

_INDEX_OPS = {"add": "add nsw", "sub": "sub nsw", "mul": "mul nsw"}
_PLAIN_OPS = ("add", "sub", "mul", "floordiv", "floormod", "min", "max")


@dataclass(slots=True)
class Scope:
    """Where an expression stands: the function being written, and what names mean there."""

    f: FunctionText
    values: dict[ir.Var, str] = field(default_factory=dict)
    """Scalars in their own dtype."""
    wide: dict[ir.Var, str] = field(default_factory=dict)
    """Scalars in 64 bits."""
    pointers: dict[ir.Buffer, str] = field(default_factory=dict)


def value(scope: Scope, expr: ir.Expr) -> str:
    """The value of an expression, in its own dtype."""
    f = scope.f
    match expr:
        case ir.Const(number, dtype):
            return constant(number, dtype)
        case ir.Var():
            return _variable(scope, expr)
        case ir.Binary(op, a, b):
            return arithmetic.binary(f, op, expr.dtype, value(scope, a), value(scope, b),
                                     _constants(a, b))
        case ir.Load(buffer, (index,)):
            return _load(scope, buffer, index)
        case ir.Broadcast(inner, _):
            return splat(f, expr.dtype, value(scope, inner))
        case ir.Cast(dtype, inner):
            return arithmetic.cast(f, inner.dtype, dtype, value(scope, inner))
        case ir.Compare(op, a, b):
            return _compare(scope, op, a, b)
        case ir.Select(condition, yes, no):
            return _select(scope, expr.dtype, condition, value(scope, condition),
                           value(scope, yes), value(scope, no))
        case ir.Call("if_then_else", (condition, ir.Load() as load, no), _) if (
                ir.is_masked_load(expr)):
            return _load_masked(scope, condition, load, no)
        case ir.Call("if_then_else", (condition, yes, no), _):
            return _lazy(scope, expr.dtype, condition, yes, no)
        case ir.Call("replicate", (vector, _), dtype):
            return _replicate(f, vector.dtype, value(scope, vector), dtypes.lanes(dtype))
        case ir.Call("prefetch", (ir.Address(buffer, offset),), _):
            return _prefetch(scope, buffer, index_value(scope, offset))
        case ir.Call("pow", (base, exponent), dtype) if (times := _small_power(exponent)):
            factor = result = value(scope, base)
            for _ in range(times - 1):
                result = arithmetic.binary(f, "mul", dtype, result, factor)
            return result
        case ir.Call(name, arguments, dtype):
            given = [value(scope, argument) for argument in arguments]
            if name in instructions.TABLE:
                return instruction(f, instructions.TABLE[name], dtype, given)
            return intrinsic(f, name, dtype, given, arguments[0].dtype)
        case ir.And(a, b) | ir.Or(a, b):
            return _connective(scope, expr, a, b)
        case ir.Not(a):
            kind = llvm_type(expr.dtype)
            return f.pure(f"xor {kind} {value(scope, a)}, {constant(True, expr.dtype)}")
        case ir.Ramp(base, stride, lanes):
            return _ramp(scope, expr.dtype, base, stride, lanes)
        case ir.Address(buffer, offset):
            return element_address(scope, buffer, index_value(scope, offset))
    raise CodegenError(
        f"the expression {type(expr).__name__} of dtype {getattr(expr, 'dtype', '?')} is not in "
        "the machine form of tir; run tir.passes.LOWERING before code generation"
    )


def _small_power(exponent: ir.Expr) -> int:
    """An exponent of 2 or 3, of which products come as near as a function of libm; else 0."""
    match exponent:
        case ir.Broadcast(ir.Const(number, _), _) | ir.Const(number, _) if number in (2, 3):
            return int(number)
    return 0


def _connective(scope: Scope, expr: ir.And | ir.Or, a: ir.Expr, b: ir.Expr) -> str:
    """Of scalars the right side is lazy; of vectors both are evaluated, which tir makes sure of."""
    is_and = isinstance(expr, ir.And)
    if dtypes.lanes(expr.dtype) > 1:
        left, right = value(scope, a), value(scope, b)
        word = "and" if is_and else "or"
        return scope.f.pure(f"{word} {llvm_type(expr.dtype)} {left}, {right}")
    known = ir.Const(not is_and, "bool")
    return _lazy(scope, "bool", a, b, known) if is_and else _lazy(scope, "bool", a, known, b)


def _constants(a: ir.Expr, b: ir.Expr) -> str:
    return ("a" if _is_constant(a) else "") + ("b" if _is_constant(b) else "")


def _is_constant(expr: ir.Expr) -> bool:
    """Whether it is a constant that is a sound divisor and no NaN."""
    if isinstance(expr, ir.Broadcast):
        expr = expr.value
    if not isinstance(expr, ir.Const):
        return False
    if dtypes.is_float(expr.dtype):
        return not math.isnan(expr.value)
    return expr.value not in (0, -1)


def _variable(scope: Scope, var: ir.Var) -> str:
    if var not in scope.values:
        if var not in scope.wide:
            raise CodegenError(f"the variable {var.name!r} is used outside the loop or let that "
                               "binds it")
        wide = scope.wide[var]
        if var.dtype in ("int64", "uint64") or is_literal(wide):
            return wide
        return scope.f.pure(f"trunc i64 {wide} to {llvm_type(var.dtype)}")
    return scope.values[var]


def _ramp(scope: Scope, dtype: str, base: ir.Expr, stride: ir.Expr, lanes: int) -> str:
    kind, scalar = llvm_type(dtype), llvm_type(dtypes.element(dtype))
    start = splat(scope.f, dtype, value(scope, base))
    steps = "<" + ", ".join(f"{scalar} {lane}" for lane in range(lanes)) + ">"
    if not (isinstance(stride, ir.Const) and stride.value == 1):
        step = splat(scope.f, dtype, value(scope, stride))
        steps = scope.f.pure(f"mul {kind} {step}, {steps}")
    return scope.f.pure(f"add {kind} {start}, {steps}")


def _replicate(f: FunctionText, dtype: str, vector: str, lanes: int) -> str:
    """The lanes of a vector over and over."""
    kind, own = llvm_type(dtype), dtypes.lanes(dtype)
    order = ", ".join(f"i32 {lane % own}" for lane in range(lanes))
    return f.pure(f"shufflevector {kind} {vector}, {kind} poison, <{lanes} x i32> <{order}>")


def _compare(scope: Scope, op: str, a: ir.Expr, b: ir.Expr) -> str:
    if is_index(a) and is_index(b):
        return arithmetic.compare(scope.f, op, "int64", index_value(scope, a),
                                  index_value(scope, b))
    return arithmetic.compare(scope.f, op, a.dtype, value(scope, a), value(scope, b))


# --- conditions ---------------------------------------------------------------------------------


def _select(scope: Scope, dtype: str, condition: ir.Expr, flag: str, yes: str, no: str) -> str:
    if yes == no:
        return yes
    kind = llvm_type(dtype)
    return scope.f.pure(f"select {llvm_type(condition.dtype)} {flag}, {kind} {yes}, {kind} {no}")


def _lazy(scope: Scope, dtype: str, condition: ir.Expr, yes: ir.Expr, no: ir.Expr) -> str:
    flag = value(scope, condition)
    if _reads_nothing(yes) and _reads_nothing(no):
        return _select(scope, dtype, condition, flag, value(scope, yes), value(scope, no))
    if dtypes.lanes(condition.dtype) == 1:
        return _branch(scope, dtype, flag, yes, no)
    raise CodegenError(
        f"a value that reads memory stands under a condition of dtype {condition.dtype}; machine "
        "tir has scalar conditions there"
    )


def _reads_nothing(expr: ir.Expr) -> bool:
    return not any(isinstance(node, ir.Load) for node in walk.walk(expr))


def _branch(scope: Scope, dtype: str, flag: str, yes: ir.Expr, no: ir.Expr) -> str:
    """One side or the other, by a branch."""
    f = scope.f
    sides = [(f.name("then"), yes), (f.name("else"), no)]
    join = f.name("join")
    f.effect(f"br i1 {flag}, label %{sides[0][0]}, label %{sides[1][0]}")
    results = []
    for label, side in sides:
        f.start(label)
        result = value(scope, side)
        results.append(f"[ {result}, %{f.block} ]")
        f.branch(join)
    f.start(join)
    return f.emit(f"phi {llvm_type(dtype)} {', '.join(results)}")


# --- indices ------------------------------------------------------------------------------------


def is_index(expr: ir.Expr) -> bool:
    """Whether it is plain arithmetic of signed scalars, which may be done in 64 bits."""
    match expr:
        case ir.Var(_, dtype) | ir.Const(_, dtype):
            return dtype in ("int32", "int64")
        case ir.Binary(op, a, b):
            return op in _PLAIN_OPS and is_index(a) and is_index(b)
    return False


def index_value(scope: Scope, expr: ir.Expr) -> str:
    """The value of a scalar integer in 64 bits."""
    f = scope.f
    match expr:
        case ir.Const(number, _):
            return str(int(number))
        case ir.Var() if expr in scope.wide:
            return scope.wide[expr]
        case ir.Binary(op, a, b) if op in _PLAIN_OPS and expr.dtype in ("int32", "int64"):
            left, right = index_value(scope, a), index_value(scope, b)
            if is_literal(left) and is_literal(right):
                folded = ir.fold_integers(op, int(left), int(right), "int64")
                if folded is not None:
                    return str(folded)
            if op in _INDEX_OPS:
                return _index_operation(f, op, left, right)
            return arithmetic.binary(f, op, "int64", left, right, _constants(a, b))
    return arithmetic.cast(f, expr.dtype, "int64", value(scope, expr))


def _index_operation(f: FunctionText, op: str, a: str, b: str) -> str:
    if b == "0" and op in ("add", "sub"):
        return a
    if a == "0" and op == "add":
        return b
    return f.pure(f"{_INDEX_OPS[op]} i64 {a}, {b}")


def as_ramp(index: ir.Expr) -> tuple[ir.Expr, ir.Expr] | None:
    """The base and stride of an arithmetic progression of lanes; None if it is not known as one."""
    match index:
        case ir.Ramp(base, stride, _):
            return base, stride
        case ir.Broadcast(inner, _):
            return inner, ir.Const(0, inner.dtype)
        case ir.Binary("add" | "sub" as op, a, b):
            left, right = as_ramp(a), as_ramp(b)
            if left is not None and right is not None:
                return ir.binary(op, left[0], right[0]), ir.binary(op, left[1], right[1])
        case ir.Binary("mul", a, ir.Broadcast(factor, _)):
            left = as_ramp(a)
            if left is not None:
                return left[0] * factor, left[1] * factor
    return None


# --- memory -------------------------------------------------------------------------------------


def element_address(scope: Scope, buffer: ir.Buffer, index: str) -> str:
    """The address of an element."""
    if buffer not in scope.pointers:
        raise CodegenError(f"the buffer {buffer.name!r} is neither a parameter nor allocated")
    pointer = scope.pointers[buffer]
    if index == "0":
        return pointer
    kind = memory_type(buffer.dtype)
    return scope.f.pure(f"getelementptr inbounds {kind}, ptr {pointer}, i64 {index}")


def _prefetch(scope: Scope, buffer: ir.Buffer, index: str) -> str:
    """Asks for memory that is read soon, into the second cache: the address may be out of bounds,
    where `inbounds` would leave it undefined."""
    f, kind = scope.f, memory_type(buffer.dtype)
    place = f.pure(f"getelementptr {kind}, ptr {scope.pointers[buffer]}, i64 {index}")
    callee = f.module.declare("llvm.prefetch.p0", "void", ("ptr", "i32", "i32", "i32"))
    f.effect(f"call void {callee}(ptr {place}, i32 0, i32 2, i32 1)")
    return "0"


def lane_addresses(scope: Scope, buffer: ir.Buffer, index: ir.Expr) -> list[str]:
    """The address of each lane of a vector access."""
    f, count = scope.f, dtypes.lanes(index.dtype)
    ramp = as_ramp(index)
    if ramp is None:
        vector, kind = value(scope, index), llvm_type(index.dtype)
        scalar = dtypes.element(index.dtype)
        parts = [f.pure(f"extractelement {kind} {vector}, i64 {lane}") for lane in range(count)]
        return [element_address(scope, buffer, arithmetic.cast(f, scalar, "int64", part))
                for part in parts]
    base, stride = index_value(scope, ramp[0]), index_value(scope, ramp[1])
    first = element_address(scope, buffer, base)
    addresses = [first]
    for lane in range(1, count):
        if is_literal(stride):
            offset = str(int(stride) * lane)
        else:
            offset = _index_operation(f, "mul", stride, str(lane))
        addresses.append(f.pure(
            f"getelementptr inbounds {memory_type(buffer.dtype)}, ptr {first}, i64 {offset}"))
    return addresses


def alignment(dtype: str) -> int:
    """The alignment that any buffer has: that of its elements."""
    return dtypes.bits(dtype) // 8


def is_contiguous(ramp: tuple[ir.Expr, ir.Expr] | None) -> bool:
    """Whether lanes lie side by side."""
    return ramp is not None and isinstance(ramp[1], ir.Const) and ramp[1].value == 1


def _load(scope: Scope, buffer: ir.Buffer, index: ir.Expr) -> str:
    count = dtypes.lanes(index.dtype)
    dtype = dtypes.vector(buffer.dtype, count)
    if count == 1:
        return _load_scalar(scope, buffer, element_address(scope, buffer,
                                                           index_value(scope, index)))
    ramp = as_ramp(index)
    if is_contiguous(ramp) and ramp is not None:
        address = element_address(scope, buffer, index_value(scope, ramp[0]))
        return _load_contiguous(scope, dtype, address)
    if ramp is not None and isinstance(ramp[1], ir.Const) and ramp[1].value == 0:
        address = element_address(scope, buffer, index_value(scope, ramp[0]))
        return splat(scope.f, dtype, _load_scalar(scope, buffer, address))
    if ramp is not None and ramp[1] == ir.Const(2, ramp[1].dtype) and count % 2 == 0:
        return _load_alternate(scope, buffer, index_value(scope, ramp[0]), dtype)
    return _gather(scope, buffer, index, dtype)


def _load_scalar(scope: Scope, buffer: ir.Buffer, address: str) -> str:
    f = scope.f
    loaded = f.emit(f"load {memory_type(buffer.dtype)}, ptr {address}, "
                    f"align {alignment(buffer.dtype)}")
    return _from_memory(f, buffer.dtype, loaded)


def _from_memory(f: FunctionText, dtype: str, loaded: str) -> str:
    if not dtypes.is_bool(dtype):
        return loaded
    byte = dtypes.vector("uint8", dtypes.lanes(dtype))
    return f.pure(f"icmp ne {memory_type(dtype)} {loaded}, {constant(0, byte)}")


def _load_contiguous(scope: Scope, dtype: str, address: str) -> str:
    f, kind, align = scope.f, memory_type(dtype), alignment(dtype)
    return _from_memory(f, dtype, f.emit(f"load {kind}, ptr {address}, align {align}"))


def _load_alternate(scope: Scope, buffer: ir.Buffer, base: str, dtype: str) -> str:
    """Every second element: of two vectors, which overlap so that they end with the last one."""
    f, count, kind = scope.f, dtypes.lanes(dtype), memory_type(dtype)
    places = base, _index_operation(f, "add", base, str(count - 1))
    first, second = (f.emit(f"load {kind}, ptr {element_address(scope, buffer, place)}, "
                            f"align {alignment(buffer.dtype)}") for place in places)
    order = ", ".join(f"i32 {lane * 2 + (lane * 2 >= count)}" for lane in range(count))
    taken = f.pure(f"shufflevector {kind} {first}, {kind} {second}, <{count} x i32> <{order}>")
    return _from_memory(f, dtype, taken)


def _load_masked(scope: Scope, condition: ir.Expr, load: ir.Load, other: ir.Expr) -> str:
    """Neighbours where the lanes of a condition say so, elsewhere the lanes of another vector."""
    f, dtype, ramp = scope.f, load.dtype, load.indices[-1]
    assert isinstance(ramp, ir.Ramp)
    mask, kept = value(scope, condition), value(scope, other)
    kind, flags = memory_type(dtype), llvm_type(condition.dtype)
    if dtypes.is_bool(dtype):
        kept = f.pure(f"zext {llvm_type(dtype)} {kept} to {kind}")
    address = element_address(scope, load.buffer, index_value(scope, ramp.base))
    held = dtypes.vector("uint8", ramp.lanes) if dtypes.is_bool(dtype) else dtype
    callee = f.module.declare(f"llvm.masked.load.{suffix(held)}.p0", kind,
                              ("ptr", "i32", flags, kind))
    align = alignment(load.buffer.dtype)
    return _from_memory(f, dtype, f.emit(
        f"call {kind} {callee}(ptr {address}, i32 {align}, {flags} {mask}, {kind} {kept})"))


def _gather(scope: Scope, buffer: ir.Buffer, index: ir.Expr, dtype: str) -> str:
    f = scope.f
    kind, scalar = memory_type(dtype), memory_type(buffer.dtype)
    result = "poison"
    for lane, address in enumerate(lane_addresses(scope, buffer, index)):
        loaded = f.emit(f"load {scalar}, ptr {address}, align {alignment(buffer.dtype)}")
        result = f.emit(f"insertelement {kind} {result}, {scalar} {loaded}, i64 {lane}")
    return _from_memory(f, dtype, result)


def store(scope: Scope, buffer: ir.Buffer, index: ir.Expr, stored: ir.Expr) -> None:
    """Writes one element, or a vector of them."""
    f = scope.f
    kept, align = value(scope, stored), alignment(buffer.dtype)
    if dtypes.is_bool(stored.dtype):
        byte = dtypes.vector("uint8", dtypes.lanes(stored.dtype))
        kept = f.pure(f"zext {llvm_type(stored.dtype)} {kept} to {llvm_type(byte)}")
    kind = memory_type(stored.dtype)
    if dtypes.lanes(index.dtype) == 1:
        address = element_address(scope, buffer, index_value(scope, index))
        f.effect(f"store {kind} {kept}, ptr {address}, align {align}")
        return
    ramp = as_ramp(index)
    if is_contiguous(ramp) and ramp is not None:
        address = element_address(scope, buffer, index_value(scope, ramp[0]))
        f.effect(f"store {kind} {kept}, ptr {address}, align {align}")
        return
    for lane, address in enumerate(lane_addresses(scope, buffer, index)):
        part = f.pure(f"extractelement {kind} {kept}, i64 {lane}")
        f.effect(f"store {memory_type(buffer.dtype)} {part}, ptr {address}, align {align}")
