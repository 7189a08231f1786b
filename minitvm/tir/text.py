"""The text of tir: `print_func` writes it, `parse_func` (in `tir.read`) reads it back.

    @attrs(scratch_bytes=64)
    def scale(A: Buffer((4, 16), "float32"), n: int32, B: Buffer((4, 16), "float32")):
        for i in range(4):                              serial, from 0; range(2, 6) runs from 2
            acc = allocate((16,), "float32", scope="local")
            for j in vectorized(16):                    also parallel(...) and unrolled(...)
                acc[j] = A[i, j] * 2.0  #: "Mul_1"      a store, with its origin
            k: int32 = i // 2                           a let: until the end of the block
            if k < n:
                B[i, ramp(0, 1, 16)] = acc[ramp(0, 1, 16)]
            else:
                pass                                    Evaluate(0)
        while flag[0] != 0:                             as long as the condition holds
            invoke(step, address(flag, 0))
        invoke(kernel, address(B, 32), n)
        with scope():                                   ends a let or an allocate before its block
            ...

Expressions are Python's: `//` and `%` are floor division, `min`, `max`, `select(c, a, b)`,
intrinsics by name, `cast(x, "int8")`, `broadcast(x, 8)`. A constant is `4` (int32), `4.0`
(float32), `True`, or names its dtype, `int64(4)`, unless the other operand says it. A loop from a
start that varies is `range(i, extent=4)`. Names are made unique over the function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from minitvm import dtypes
from minitvm.text import (
    PRINTERS,
    Names,
    format_float,
    format_literal,
    format_string,
    with_origin,
)
from minitvm.tir.ir import (
    INDEX,
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
)
from minitvm.tir.read import parse_func, parse_functions

__all__ = ["parse_func", "parse_functions", "print_expr", "print_func", "print_func_with_lines",
           "print_module", "print_stmt"]

OPERATORS: dict[str, tuple[str, int]] = {
    "bitor": ("|", 5), "bitxor": ("^", 6), "bitand": ("&", 7), "shl": ("<<", 8), "shr": (">>", 8),
    "add": ("+", 9), "sub": ("-", 9), "mul": ("*", 10), "div": ("/", 10), "floordiv": ("//", 10),
    "floormod": ("%", 10),
}
"""Infix operators, and how tightly Python binds them."""

COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
KIND_NAMES = {"serial": "range", "parallel": "parallel", "vectorized": "vectorized",
              "unrolled": "unrolled"}
OR, AND, NOT, COMPARE, ATOM = 1, 2, 3, 4, 12
ZERO = Const(0)


def print_func(func: PrimFunc) -> str:
    """The text of a function; it ends with a newline."""
    return print_func_with_lines(func)[0]


PRINTERS[PrimFunc] = print_func


def print_func_with_lines(func: PrimFunc) -> tuple[str, tuple[Stmt | None, ...]]:
    """The text, and for each of its lines the statement that starts there (None for headers)."""
    printer = _Printer()
    printer.function(func)
    text = "".join(line + "\n" for line, _ in printer.lines)
    return text, tuple(statement for _, statement in printer.lines)


def print_module(functions: Iterable[PrimFunc]) -> str:
    """The text of several functions, with a blank line between them."""
    return "\n".join(print_func(func) for func in functions)


def print_stmt(statement: Stmt) -> str:
    """The text of a statement by itself."""
    printer = _Printer()
    printer.block(statement, 0)
    return "".join(line + "\n" for line, _ in printer.lines)


def print_expr(expr: Expr) -> str:
    """The text of an expression by itself."""
    return _Printer().expr(expr)


def default_dtype(value: int | float | bool) -> str:
    """The dtype of a constant that is written without one."""
    if isinstance(value, bool):
        return "bool"
    return "float32" if isinstance(value, float) else INDEX


class _Printer:
    """Writes lines; remembers the names that variables and buffers got."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, Stmt | None]] = []
        self.names = Names()
        self.names.reserve(("inf", "nan"))
        self.given: dict[Var | Buffer, str] = {}

    def name(self, item: Var | Buffer) -> str:
        found = self.given.get(item)
        if found is None:
            found = self.given[item] = self.names.unique(item.name)
        return found

    def function(self, func: PrimFunc) -> None:
        if func.attrs:
            self.lines.append((_attrs(func), None))
        for param in func.params:
            self.name(param)
        params = ", ".join(self.parameter(param) for param in func.params)
        self.lines.append((f"def {func.name}({params}):", None))
        self.block(func.body, 1)

    def parameter(self, param: Var | Buffer) -> str:
        if isinstance(param, Var):
            return f"{self.name(param)}: {param.dtype}"
        return f"{self.name(param)}: Buffer({self.memory(param)})"

    def memory(self, buffer: Buffer) -> str:
        scope = "" if buffer.scope == "global" else f", scope={format_string(buffer.scope)}"
        return f'{self.shape(buffer.shape)}, "{buffer.dtype}"{scope}'

    def shape(self, items: Sequence[Expr]) -> str:
        inner = ", ".join(self.expr(item) for item in items)
        return f"({inner},)" if len(items) == 1 else f"({inner})"

    def line(self, depth: int, text: str, statement: Stmt) -> None:
        self.lines.append((with_origin("    " * depth + text, statement.origin), statement))

    # --- statements -----------------------------------------------------------------------------

    def block(self, statement: Stmt, depth: int) -> None:
        while isinstance(statement, Let | Allocate):
            self.line(depth, self.declaration(statement), statement)
            statement = statement.body
        if isinstance(statement, Seq):
            *first, last = statement.statements
            for item in first:
                self.inner(item, depth)
            self.block(last, depth)
        else:
            self.statement(statement, depth)

    def inner(self, statement: Stmt, depth: int) -> None:
        """A statement that others follow: what it declares must end with it."""
        if isinstance(statement, Let | Allocate):
            self.lines.append(("    " * depth + "with scope():", None))
            self.block(statement, depth + 1)
        elif isinstance(statement, Seq):
            for item in statement.statements:
                self.inner(item, depth)
        else:
            self.statement(statement, depth)

    def declaration(self, statement: Let | Allocate) -> str:
        if isinstance(statement, Allocate):
            return f"{self.name(statement.buffer)} = allocate({self.memory(statement.buffer)})"
        var = statement.var
        value = self.hinted(statement.value, var.dtype)
        return f"{self.name(var)}: {var.dtype} = {value}"

    def statement(self, statement: Stmt, depth: int) -> None:
        match statement:
            case Store(buffer, indices, value):
                place = self.access(buffer, indices)
                self.line(depth, f"{place} = {self.hinted(value, buffer.dtype)}", statement)
            case For(var, _, _, _, body):
                header = f"for {self.name(var)} in {self.domain(statement)}:"
                self.line(depth, header, statement)
                self.block(body, depth + 1)
            case If():
                self.conditional(statement, depth, "if")
            case While(condition, body):
                self.line(depth, f"while {self.expr(condition)}:", statement)
                self.block(body, depth + 1)
            case Invoke(callee, arguments):
                inner = ", ".join([callee, *map(self.expr, arguments)])
                self.line(depth, f"invoke({inner})", statement)
            case Evaluate(value):
                text = "pass" if value == ZERO else f"evaluate({self.expr(value)})"
                self.line(depth, text, statement)
            case _:
                raise TypeError(f"not a statement: {statement!r}")

    def domain(self, loop: For) -> str:
        kind = KIND_NAMES.get(loop.kind, loop.kind)
        start, extent = loop.start, loop.extent
        if isinstance(start, Const) and start.value == 0 and start.dtype == extent.dtype:
            return f"{kind}({self.expr(extent)})"
        if isinstance(start, Const) and isinstance(extent, Const) and dtypes.is_int(start.dtype):
            stop = int(start.value) + int(extent.value)
            if stop <= dtypes.integer_range(start.dtype)[1] and start.dtype == extent.dtype:
                return f"{kind}({self.expr(start)}, {self.expr(Const(stop, start.dtype))})"
        return f"{kind}({self.expr(start)}, extent={self.expr(extent)})"

    def conditional(self, statement: If, depth: int, word: str) -> None:
        self.line(depth, f"{word} {self.expr(statement.condition)}:", statement)
        self.block(statement.then_body, depth + 1)
        if isinstance(statement.else_body, If):
            self.conditional(statement.else_body, depth, "elif")
        elif statement.else_body is not None:
            self.lines.append(("    " * depth + "else:", None))
            self.block(statement.else_body, depth + 1)

    # --- expressions ----------------------------------------------------------------------------

    def expr(self, expr: Expr, binding: int = 0) -> str:
        """The text, in parentheses where it binds less tightly than `binding`."""
        text, own = _WRITERS[type(expr)](self, expr)
        return f"({text})" if own < binding else text

    def hinted(self, expr: Expr, dtype: str, binding: int = 0) -> str:
        """The text where the reader expects `dtype`: constants of it need not name it."""
        if isinstance(expr, Const) and expr.dtype == dtype:
            return _number(expr)
        return self.expr(expr, binding)

    def pair(self, a: Expr, b: Expr, left: int = 0, right: int = 0) -> tuple[str, str]:
        """Two operands of one dtype; where only one is a constant, the other says its dtype."""
        hint_a = "" if isinstance(b, Const) else b.dtype
        hint_b = "" if isinstance(a, Const) else a.dtype
        return self.hinted(a, hint_a, left), self.hinted(b, hint_b, right)

    def access(self, buffer: Buffer, indices: Sequence[Expr]) -> str:
        inner = ", ".join(map(self.expr, indices)) if indices else "()"
        return f"{self.name(buffer)}[{inner}]"

    def write_var(self, expr: Var) -> tuple[str, int]:
        return self.name(expr), ATOM

    def write_const(self, expr: Const) -> tuple[str, int]:
        text = _number(expr)
        typed = isinstance(expr.value, bool) or expr.dtype == default_dtype(expr.value)
        return (text if typed else f"{expr.dtype}({text})"), ATOM

    def write_binary(self, expr: Binary) -> tuple[str, int]:
        if expr.op not in OPERATORS:  # min, max, and what the verifier will refuse
            a, b = self.pair(expr.a, expr.b)
            return f"{expr.op}({a}, {b})", ATOM
        symbol, binding = OPERATORS[expr.op]
        a, b = self.pair(expr.a, expr.b, binding, binding + 1)
        return f"{a} {symbol} {b}", binding

    def write_compare(self, expr: Compare) -> tuple[str, int]:
        a, b = self.pair(expr.a, expr.b, COMPARE + 1, COMPARE + 1)
        return f"{a} {COMPARISONS.get(expr.op, expr.op)} {b}", COMPARE

    def write_and(self, expr: And) -> tuple[str, int]:
        return f"{self.expr(expr.a, AND)} and {self.expr(expr.b, AND + 1)}", AND

    def write_or(self, expr: Or) -> tuple[str, int]:
        return f"{self.expr(expr.a, OR)} or {self.expr(expr.b, OR + 1)}", OR

    def write_not(self, expr: Not) -> tuple[str, int]:
        return f"not {self.expr(expr.a, NOT)}", NOT

    def write_select(self, expr: Select) -> tuple[str, int]:
        a, b = self.pair(expr.true_value, expr.false_value)
        return f"select({self.expr(expr.condition)}, {a}, {b})", ATOM

    def write_cast(self, expr: Cast) -> tuple[str, int]:
        return f'cast({self.expr(expr.value)}, "{expr.dtype}")', ATOM

    def write_call(self, expr: Call) -> tuple[str, int]:
        if expr.name == "if_then_else":
            condition, a, b = expr.arguments
            inner = ", ".join((self.expr(condition), *self.pair(a, b)))
        else:
            inner = ", ".join(map(self.expr, expr.arguments))
        return f"{expr.name}({inner})", ATOM

    def write_load(self, expr: Load) -> tuple[str, int]:
        return self.access(expr.buffer, expr.indices), ATOM

    def write_ramp(self, expr: Ramp) -> tuple[str, int]:
        base, stride = self.pair(expr.base, expr.stride)
        return f"ramp({base}, {stride}, {expr.lanes})", ATOM

    def write_broadcast(self, expr: Broadcast) -> tuple[str, int]:
        return f"broadcast({self.expr(expr.value)}, {expr.lanes})", ATOM

    def write_address(self, expr: Address) -> tuple[str, int]:
        return f"address({self.name(expr.buffer)}, {self.expr(expr.offset)})", ATOM

    def write_read(self, expr: Read) -> tuple[str, int]:
        return f"{expr.tensor.name}[{', '.join(map(self.expr, expr.indices))}]", ATOM

    def write_reduce(self, expr: Reduce) -> tuple[str, int]:
        sources = ", ".join(map(self.expr, expr.sources))
        axes = ", ".join(axis.name for axis in expr.axes)
        where = "" if expr.where is None else f", where={self.expr(expr.where)}"
        return f"{expr.reducer.name}(({sources}), axis=({axes}){where})[{expr.index}]", ATOM


def _number(const: Const) -> str:
    if dtypes.is_bool(const.dtype):
        return str(bool(const.value))
    if dtypes.is_float(const.dtype):
        return format_float(float(const.value))
    return str(int(const.value))


def _attrs(func: PrimFunc) -> str:
    plain = [f"{key}={format_literal(value)}" for key, value in func.attrs.items()
             if key.isidentifier()]
    others = {key: value for key, value in func.attrs.items() if not key.isidentifier()}
    if others:
        plain.append(f"**{format_literal(others)}")
    return f"@attrs({', '.join(plain)})"


_WRITERS: dict[type[Expr], Callable[..., tuple[str, int]]] = {
    Var: _Printer.write_var,
    Const: _Printer.write_const,
    Binary: _Printer.write_binary,
    Compare: _Printer.write_compare,
    And: _Printer.write_and,
    Or: _Printer.write_or,
    Not: _Printer.write_not,
    Select: _Printer.write_select,
    Cast: _Printer.write_cast,
    Call: _Printer.write_call,
    Load: _Printer.write_load,
    Ramp: _Printer.write_ramp,
    Broadcast: _Printer.write_broadcast,
    Address: _Printer.write_address,
    Read: _Printer.write_read,
    Reduce: _Printer.write_reduce,
}
