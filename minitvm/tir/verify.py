"""Refuses tir that breaks an invariant: `verify(func, spec)`.

Names
  1. A function's name is an identifier; a variable, and a buffer, is declared once.
  2. A variable is used only inside of the parameter list, loop or let that declares it.
  3. A buffer is used only where it is a parameter, or inside of its Allocate.
Types
  4. Operands of Binary have one dtype, which the operator takes (div: floats; bits: integers).
  5. Operands of Compare have one dtype.
  6. Operands of And, Or and Not are bools of equal lanes.
  7. Select chooses between values of one dtype, by a bool that is scalar or has their lanes.
  8. A Call names an intrinsic or an instruction, with its number and dtypes of arguments;
     conditions of if_then_else are scalar, or have lanes where a load of neighbours is chosen; an
     instruction has a form of such lanes.
  9. An access has an integer index for each dimension; only the last may be a vector.
 10. A Store's value has the buffer's element dtype, and the lanes of the index.
 11. Ramp and Broadcast have scalar operands, a Ramp integers of one dtype, and two lanes or more.
 12. A constant is of a scalar dtype, and within its range.
 13. A loop's variable, start and extent are integer scalars of one dtype; its kind is known.
 14. A Let's variable has the dtype of its value; the condition of an If, and of a While, is a
     scalar bool.
 15. Loop variables, indices and offsets have one dtype throughout a function.
Structure
 16. A Seq holds at least two statements, and no Seq.
 17. Arguments of Invoke are addresses or scalars, that of `prefetch` is an address; an Address is
     nowhere else; buffers that Invoke takes have rank 1.
 18. There is no Read and no Reduce: these are te's.
 19. An Allocate's scope is global or local, and its extents are positive constants.
 20. A vectorized loop has a constant extent, and holds neither vectors nor a vectorized loop.
 25. A function with the attribute `bound_checks` takes `report`, four int64, and `call`, an int64,
     before its scratch memory; each of its rows is a name, a dimension, an extent and origins.
Specs
 21. flat, machine: buffers, also those of addresses, have rank 1.
 22. machine: there is no vectorized loop.
 24. flat, machine: a buffer that int32 indices access has at most 2**31 - 1 elements.
Origins, with `require_origins=True`
 23. Each Store, Invoke and Evaluate has an origin (but for the Evaluate that does nothing).
"""

from __future__ import annotations

from typing import Literal, NoReturn, get_args

from minitvm import dtypes
from minitvm.errors import VerifyError
from minitvm.tir import instructions, intrinsics
from minitvm.tir.instructions import Instruction
from minitvm.tir.ir import (
    BINARY_OPS,
    COMPARE_OPS,
    Address,
    Allocate,
    And,
    Binary,
    Broadcast,
    Buffer,
    Call,
    Cast,
    Compare,
    Const,
    Evaluate,
    Expr,
    For,
    If,
    Invoke,
    Let,
    Load,
    LoopKind,
    Not,
    Or,
    PrimFunc,
    Ramp,
    Read,
    Reduce,
    Select,
    Seq,
    Stmt,
    Store,
    Var,
    While,
    is_masked_load,
)
from minitvm.tir.text import print_stmt
from minitvm.tir.walk import bodies, children, expressions, walk_statements

Spec = Literal["nested", "flat", "machine"]
SCOPES = ("global", "local")


def verify(func: PrimFunc, spec: Spec = "nested", *, require_origins: bool = False) -> None:
    """Raises `VerifyError` with the number of the first broken invariant, and where."""
    if spec not in get_args(Spec):
        raise ValueError(f"there is no spec {spec!r}; there are {', '.join(get_args(Spec))}")
    _Verifier(func, spec, require_origins).run()


def check_origins_kept(before: PrimFunc, after: PrimFunc) -> None:
    """Raises `VerifyError` if a name in the origins of `before` is in none of those of `after`.

    A pass that removes code must give its origins to what it leaves.
    """
    lost = _origin_names(before) - _origin_names(after)
    if lost:
        raise VerifyError(f"{before.name} lost the origins {', '.join(sorted(lost))}")


def _origin_names(func: PrimFunc) -> set[str]:
    return {name for statement in walk_statements(func.body) for name in statement.origin.names}


class _Verifier:
    """One walk over a function, with what is in scope."""

    def __init__(self, func: PrimFunc, spec: Spec, require_origins: bool) -> None:
        self.func = func
        self.spec = spec
        self.require_origins = require_origins
        self.scope: set[Var | Buffer] = set()
        self.declared: set[Var | Buffer] = set()
        self.large: set[Buffer] = set()
        self.index_dtype = ""
        self.vectorized = False
        self.where: Stmt | None = None

    def run(self) -> None:
        if not self.func.name.isidentifier():
            self.fail(1, f"{self.func.name!r} is no name for a function")
        for param in self.func.params:
            self.declare(param)
        for param in self.func.params:
            if isinstance(param, Buffer):
                self.buffer(param)
        if "bound_checks" in self.func.attrs:
            self.bound_checks()
        self.statement(self.func.body)

    def bound_checks(self) -> None:
        end = len(self.func.params) - int(self.func.attrs.get("scratch_params", 0))
        match self.func.params[max(end - 2, 0):end]:
            case (Buffer(_, (Const(4),), "int64"), Var(_, "int64")):
                pass
            case _:
                self.fail(25, "bounds are checked, but there is no parameter for the report")
        for row in self.func.attrs["bound_checks"]:
            match row:
                case (str(), int(), int(), tuple()):
                    pass
                case _:
                    self.fail(25, f"{row!r} does not say what is checked")

    def fail(self, number: int, message: str) -> NoReturn:
        place = ""
        if self.where is not None:
            line = print_stmt(self.where).splitlines()[0]
            place = f", at `{line}`"
        raise VerifyError(f"invariant {number}: {message}, in {self.func.name}{place}")

    def require(self, condition: bool, number: int, message: str) -> None:
        if not condition:
            self.fail(number, message)

    def declare(self, item: Var | Buffer) -> None:
        self.require(item not in self.declared, 1, f"{item.name} is declared twice")
        self.declared.add(item)
        self.scope.add(item)

    def buffer(self, buffer: Buffer) -> None:
        for extent in buffer.shape:
            self.expr(extent)
        if self.spec != "nested":
            self.require(len(buffer.shape) == 1, 21, f"{buffer.name} is not flat")
            extent = buffer.shape[0]
            if isinstance(extent, Const) and extent.value >= 2**31:
                self.large.add(buffer)

    # --- statements -----------------------------------------------------------------------------

    def statement(self, statement: Stmt) -> None:
        self.where = statement
        for expr in expressions(statement):
            self.expr(expr, isinstance(statement, Invoke))
        self.check_statement(statement)
        if self.require_origins and isinstance(statement, Store | Invoke | Evaluate):
            nothing = isinstance(statement, Evaluate) and isinstance(statement.value, Const)
            self.require(bool(statement.origin) or nothing, 23, "a statement has no origin")
        declared = _declares(statement)
        if declared is not None:
            self.declare(declared)
        outer = self.vectorized
        if isinstance(statement, For) and statement.kind == "vectorized":
            self.vectorized = True
        for body in bodies(statement):
            self.statement(body)
        self.vectorized = outer
        if declared is not None:
            self.scope.discard(declared)

    def check_statement(self, statement: Stmt) -> None:
        match statement:
            case Store(buffer, indices, value):
                self.access(buffer, indices)
                expected = dtypes.vector(buffer.dtype, _lanes(indices))
                message = f"a value of {value.dtype} is stored where {expected} belongs"
                self.require(value.dtype == expected, 10, message)
            case For():
                self.loop(statement)
            case Let(var, value, _):
                message = f"{var.name} is {var.dtype}, its value {value.dtype}"
                self.require(var.dtype == value.dtype, 14, message)
            case If(condition, _, _) | While(condition, _):
                message = f"the condition is {condition.dtype}"
                self.require(condition.dtype == "bool", 14, message)
            case Allocate(buffer, _):
                self.allocation(buffer)
            case Seq(statements):
                nested = any(isinstance(item, Seq) for item in statements)
                self.require(len(statements) > 1 and not nested, 16, "a Seq that `seq` won't build")
            case Invoke(_, arguments):
                for argument in arguments:
                    self.require(dtypes.lanes(argument.dtype) == 1, 17, "a vector is passed")
                    if isinstance(argument, Address):
                        flat = len(argument.buffer.shape) == 1
                        self.require(flat, 17, f"{argument.buffer.name} is not flat")

    def loop(self, loop: For) -> None:
        var, start, extent = loop.var, loop.start, loop.extent
        self.require(loop.kind in get_args(LoopKind), 13, f"there is no loop kind {loop.kind}")
        same = var.dtype == start.dtype == extent.dtype and dtypes.lanes(var.dtype) == 1
        self.require(same and dtypes.is_int(var.dtype), 13,
                     f"{var.name} is {var.dtype}, from {start.dtype}, extent of {extent.dtype}")
        self.index(var.dtype)
        if loop.kind != "vectorized":
            return
        self.require(isinstance(extent, Const), 20, "a vectorized loop has no constant extent")
        self.require(not self.vectorized, 20, "a vectorized loop is inside of another")
        self.require(self.spec != "machine", 22, "a vectorized loop")

    def allocation(self, buffer: Buffer) -> None:
        self.require(buffer.scope in SCOPES, 19, f"there is no scope {buffer.scope!r}")
        positive = all(isinstance(extent, Const) and extent.value > 0 for extent in buffer.shape)
        self.require(positive, 19, f"{buffer.name} has extents that are not positive constants")
        self.buffer(buffer)

    def index(self, dtype: str) -> None:
        element = dtypes.element(dtype)
        self.index_dtype = self.index_dtype or element
        message = f"an index of {element} in a function that indexes by {self.index_dtype}"
        self.require(element == self.index_dtype, 15, message)

    def access(self, buffer: Buffer, indices: tuple[Expr, ...]) -> None:
        self.require(buffer in self.scope, 3, f"{buffer.name} is out of scope")
        rank = len(buffer.shape)
        self.require(len(indices) == rank, 9,
                     f"{buffer.name} has {rank} dimensions and {len(indices)} indices")
        for index in indices:
            self.require(dtypes.is_int(index.dtype), 9, f"an index is {index.dtype}")
            self.index(index.dtype)
            self.require(buffer not in self.large or dtypes.element(index.dtype) != "int32", 24,
                         f"int32 indices don't reach all of {buffer.name}")
        for index in indices[:-1]:
            self.require(dtypes.lanes(index.dtype) == 1, 9, "a vector index is not the last")

    # --- expressions ----------------------------------------------------------------------------

    def expr(self, expr: Expr, address: bool = False) -> None:
        is_hint = isinstance(expr, Call) and _is_hint(expr)
        for operand in children(expr):
            self.expr(operand, address=is_hint)
        if isinstance(expr, Address):
            self.require(address, 17, "an address is not an argument of Invoke or prefetch")
        self.check_expr(expr)
        if self.vectorized:
            self.require(dtypes.lanes(expr.dtype) == 1, 20, "a vector is in a vectorized loop")

    def check_expr(self, expr: Expr) -> None:
        match expr:
            case Var():
                self.require(expr in self.scope, 2, f"{expr.name} is out of scope")
            case Const():
                self.const(expr)
            case Binary():
                self.binary(expr)
            case Compare(op, a, b):
                self.require(op in COMPARE_OPS, 5, f"there is no comparison {op}")
                self.same(5, a, b)
            case And(a, b) | Or(a, b):
                self.same(6, a, b)
                self.require(dtypes.is_bool(a.dtype), 6, f"a condition is {a.dtype}")
            case Not(a):
                self.require(dtypes.is_bool(a.dtype), 6, f"a condition is {a.dtype}")
            case Select(condition, a, b):
                self.same(7, a, b)
                allowed = ("bool", dtypes.vector("bool", dtypes.lanes(a.dtype)))
                message = f"a condition of {condition.dtype} selects {a.dtype}"
                self.require(condition.dtype in allowed, 7, message)
            case Call():
                self.call(expr)
            case Load(buffer, indices):
                self.access(buffer, indices)
            case _:
                self.check_vector(expr)

    def check_vector(self, expr: Expr) -> None:
        match expr:
            case Cast(dtype, value):
                same = dtypes.lanes(dtype) == dtypes.lanes(value.dtype)
                self.require(same, 4, f"a cast of {value.dtype} to {dtype}")
            case Ramp(base, stride, lanes):
                self.same(11, base, stride)
                scalar = dtypes.lanes(base.dtype) == 1 and dtypes.is_int(base.dtype)
                self.require(scalar and lanes > 1, 11, f"a ramp from {base.dtype}")
            case Broadcast(value, lanes):
                message = f"a broadcast of {value.dtype}"
                self.require(dtypes.lanes(value.dtype) == 1 and lanes > 1, 11, message)
            case Address(buffer, offset):
                self.require(buffer in self.scope, 3, f"{buffer.name} is out of scope")
                if self.spec != "nested":
                    self.require(len(buffer.shape) == 1, 21, f"{buffer.name} is not flat")
                self.index(offset.dtype)
            case Read() | Reduce():
                self.fail(18, f"there is a {type(expr).__name__}")
            case _:
                self.fail(18, f"{type(expr).__name__} is no expression of tir")

    def same(self, number: int, a: Expr, b: Expr) -> None:
        self.require(a.dtype == b.dtype, number, f"operands are {a.dtype} and {b.dtype}")

    def const(self, const: Const) -> None:
        value, dtype = const.value, const.dtype
        self.require(dtype in dtypes.SCALARS, 12, f"a constant is {dtype}")
        if dtypes.is_float(dtype):
            self.require(isinstance(value, float), 12, f"the {dtype} constant {value!r}")
        else:
            low, high = dtypes.integer_range(dtype)
            fits = isinstance(value, int) and low <= value <= high
            self.require(fits, 12, f"the {dtype} constant {value!r}")

    def binary(self, expr: Binary) -> None:
        self.require(expr.op in BINARY_OPS, 4, f"there is no operator {expr.op}")
        self.same(4, expr.a, expr.b)
        is_float = dtypes.is_float(expr.dtype)
        integers_only = expr.op in ("bitand", "bitor", "bitxor", "shl", "shr")
        allowed = is_float if expr.op == "div" else not (is_float and integers_only)
        message = f"{expr.op} of {expr.dtype}"
        self.require(allowed and (is_float or dtypes.is_int(expr.dtype)), 4, message)

    def call(self, call: Call) -> None:
        if call.name in instructions.TABLE:
            self.instruction(call, instructions.TABLE[call.name])
            return
        row = intrinsics.TABLE.get(call.name)
        if row is None:
            self.fail(8, f"there is no intrinsic {call.name}")
        values = call.arguments
        self.require(len(values) == row.arity, 8, f"{call.name} has {len(values)} arguments")
        if row.kind == "replicate":
            self.replicate(call, *values)
            return
        if row.kind == "hint":
            self.require(isinstance(values[0], Address), 17, f"{call.name} takes an address")
            self.require(call.dtype == "int32", 8, f"{call.name} gives int32, not {call.dtype}")
            return
        if row.kind == "lazy":
            message = f"the condition of {call.name} is {values[0].dtype}"
            expected = dtypes.vector("bool", dtypes.lanes(call.dtype)) if is_masked_load(
                call) else "bool"
            self.require(values[0].dtype == expected, 8, message)
            values = values[1:]
        for value in values:
            self.same(8, values[0], value)
        expected = values[0].dtype
        if row.floats_only:
            self.require(dtypes.is_float(expected), 8, f"{call.name} of {expected}")
        if row.kind == "bool":
            expected = dtypes.vector("bool", dtypes.lanes(expected))
        self.require(call.dtype == expected, 8, f"{call.name} gives {expected}, not {call.dtype}")

    def replicate(self, call: Call, vector: Expr, count: Expr) -> None:
        times = count.value if isinstance(count, Const) else 0
        self.require(times > 1, 8, f"replicate takes a constant of two or more, not {count!r}")
        lanes = dtypes.lanes(vector.dtype) * int(times)
        expected = dtypes.vector(vector.dtype, lanes)
        self.require(call.dtype == expected, 8, f"replicate gives {expected}, not {call.dtype}")

    def instruction(self, call: Call, row: Instruction) -> None:
        given = tuple(value.dtype for value in call.arguments)
        lanes = dtypes.lanes(call.dtype)
        self.require(dtypes.element(call.dtype) == row.result and row.form(lanes) is not None, 8,
                     f"{call.name} has no form that gives {call.dtype}")
        self.require(given == row.takes(lanes), 8, f"{call.name} with {lanes} lanes takes "
                     f"{', '.join(row.takes(lanes))}, not {', '.join(given)}")


def _is_hint(call: Call) -> bool:
    row = intrinsics.TABLE.get(call.name)
    return row is not None and row.kind == "hint"


def _declares(statement: Stmt) -> Var | Buffer | None:
    match statement:
        case For(var) | Let(var):
            return var
        case Allocate(buffer):
            return buffer
    return None


def _lanes(indices: tuple[Expr, ...]) -> int:
    return dtypes.lanes(indices[-1].dtype) if indices else 1
