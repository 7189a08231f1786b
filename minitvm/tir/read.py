"""Reads the text of tir into functions; `tir.text` describes the format and writes it.

Nodes are built as they are written: nothing is folded, so that reading gives back the program
that was printed. A number takes the dtype of the other operand, or of the buffer or let that it
is stored to; by itself it is int32 or float32.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from minitvm import dtypes
from minitvm.origin import Origin
from minitvm.text import Source, is_number, number, read_source
from minitvm.tir import instructions, intrinsics
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
    LoopKind,
    Not,
    Or,
    PrimFunc,
    Ramp,
    Select,
    Seq,
    Stmt,
    Store,
    Var,
    While,
    convert,
)

Scope = dict[str, "Var | Buffer"]

_BINARY: dict[type[ast.operator], str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.FloorDiv: "floordiv",
    ast.Mod: "floormod", ast.BitAnd: "bitand", ast.BitOr: "bitor", ast.BitXor: "bitxor",
    ast.LShift: "shl", ast.RShift: "shr",
}
_COMPARE: dict[type[ast.cmpop], str] = {
    ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge",
}
_KINDS: dict[str, LoopKind] = {
    "range": "serial", "parallel": "parallel", "vectorized": "vectorized", "unrolled": "unrolled",
}


def parse_functions(text: str, file: str = "<tir>") -> dict[str, PrimFunc]:
    """The functions of a text, by name and in order; raises `ParseError`."""
    source = read_source(text, file)
    found: dict[str, PrimFunc] = {}
    for node in source.tree.body:
        if not isinstance(node, ast.FunctionDef):
            source.fail(node, "expected a function, `def name(A: Buffer((4,), \"float32\")):`")
        if node.name in found:
            source.fail(node, f"the function {node.name} is defined twice")
        found[node.name] = _Reader(source).function(node)
    return found


def parse_func(text: str, file: str = "<tir>") -> PrimFunc:
    """The one function of a text; raises `ParseError`."""
    functions = parse_functions(text, file)
    if len(functions) != 1:
        read_source("", file).fail(None, f"expected one function, found {len(functions)}")
    return next(iter(functions.values()))


@dataclass(slots=True)
class _Frame:
    """Statements since a declaration (or the start of the block), and what declares."""

    wrap: Callable[[Stmt], Stmt] | None = None
    statements: list[Stmt] = field(default_factory=list)


class _Reader:
    """Reads one function. Scopes map names to variables and buffers; inner ones are copies."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def fail(self, node: ast.AST, message: str) -> NoReturn:
        self.source.fail(node, message)

    def function(self, node: ast.FunctionDef) -> PrimFunc:
        scope: Scope = {}
        arguments = node.args
        if arguments.posonlyargs or arguments.kwonlyargs or arguments.vararg or arguments.kwarg:
            self.fail(node, "a function takes plain parameters only")
        for argument in arguments.args:  # sizes first: shapes may use any of them
            if isinstance(argument.annotation, ast.Name):
                scope[argument.arg] = Var(argument.arg, self.dtype(argument.annotation))
        for argument in arguments.args:
            if argument.arg not in scope:
                scope[argument.arg] = self.buffer_parameter(argument, scope)
        params = tuple(scope[argument.arg] for argument in arguments.args)
        return PrimFunc(node.name, params, self.block(node.body, scope), self.attrs(node))

    def buffer_parameter(self, argument: ast.arg, scope: Scope) -> Buffer:
        match argument.annotation:
            case ast.Call(ast.Name("Buffer")) as call:
                return self.memory(argument.arg, call, scope)
        hint = 'write `A: Buffer((4, 16), "float32")` or `n: int32`'
        self.fail(argument, f"the parameter {argument.arg} has no type; {hint}")

    def memory(self, name: str, call: ast.Call, scope: Scope) -> Buffer:
        match call.args:
            case [ast.Tuple(extents), ast.Constant(str(dtype)) as node]:
                keywords = {item.arg: item.value for item in call.keywords}
                memory_scope = keywords.pop("scope", None)
                if keywords:
                    self.fail(call, f"there is no option {next(iter(keywords))}; there is scope")
                shape = tuple(self.expr(extent, scope) for extent in extents)
                self.check_dtype(node, dtype)
                where = "global" if memory_scope is None else self.source.string(memory_scope)
                return Buffer(name, shape, dtype, where)
        self.fail(call, 'memory is written `((4, 16), "float32", scope="local")`')

    def attrs(self, node: ast.FunctionDef) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for decorator in node.decorator_list:
            match decorator:
                case ast.Call(ast.Name("attrs"), [], keywords):
                    for item in keywords:
                        value = self.source.literal(item.value)
                        found.update(value if item.arg is None else {item.arg: value})
                case _:
                    self.fail(decorator, "the only decorator is `@attrs(key=value)`")
        return found

    def dtype(self, node: ast.expr) -> str:
        name = self.source.name(node)
        self.check_dtype(node, name)
        return name

    def check_dtype(self, node: ast.AST, name: str) -> None:
        try:
            dtypes.split(name)
        except ValueError as error:
            self.fail(node, str(error))

    # --- statements -----------------------------------------------------------------------------

    def block(self, nodes: Sequence[ast.stmt], scope: Scope) -> Stmt:
        frames = [_Frame()]
        for node in nodes:
            declared = self.declaration(node, scope)
            if declared is not None:
                item, wrap = declared
                scope = {**scope, item.name: item}
                frames.append(_Frame(wrap))
            elif isinstance(node, ast.With):
                frames[-1].statements.append(self.inner_scope(node, scope))
            else:
                frames[-1].statements.append(self.statement(node, scope))
        result: Stmt | None = None
        for frame in reversed(frames):
            statements = frame.statements if result is None else [*frame.statements, result]
            result = _sequence(statements)
            if frame.wrap is not None:
                result = frame.wrap(result)
        assert result is not None
        return result

    def inner_scope(self, node: ast.With, scope: Scope) -> Stmt:
        match node.items:
            case [ast.withitem(ast.Call(ast.Name("scope"), [], []), None)]:
                return self.block(node.body, scope)
        self.fail(node, "the only `with` is `with scope():`")

    def declaration(
        self, node: ast.stmt, scope: Scope
    ) -> tuple[Var | Buffer, Callable[[Stmt], Stmt]] | None:
        origin = self.source.origin(node)
        match node:
            case ast.AnnAssign(ast.Name(name), annotation, value) if value is not None:
                var = Var(name, self.dtype(annotation))
                bound = self.hinted(value, scope, var.dtype)
                return var, lambda body: Let(var, bound, body, origin)
            case ast.Assign([ast.Name(name)], ast.Call(ast.Name("allocate")) as call):
                buffer = self.memory(name, call, scope)
                return buffer, lambda body: Allocate(buffer, body, origin)
        return None

    def statement(self, node: ast.stmt, scope: Scope) -> Stmt:
        origin = self.source.origin(node)
        match node:
            case ast.Assign([ast.Subscript(target, index)], value):
                buffer = self.buffer(target, scope)
                indices = self.indices(index, scope)
                return Store(buffer, indices, self.hinted(value, scope, buffer.dtype), origin)
            case ast.For(ast.Name(name), ast.Call() as call, body, []):
                return self.loop(name, call, body, scope, origin)
            case ast.If(test, body, orelse):
                else_body = self.block(orelse, scope) if orelse else None
                return If(self.expr(test, scope), self.block(body, scope), else_body, origin)
            case ast.While(test, body, []):
                return While(self.expr(test, scope), self.block(body, scope), origin)
            case ast.Pass():
                return Evaluate(Const(0), origin)
            case ast.Expr(ast.Call(ast.Name("evaluate"), [value], [])):
                return Evaluate(self.expr(value, scope), origin)
            case ast.Expr(ast.Call(ast.Name("invoke"), [ast.Name(callee), *arguments], [])):
                return Invoke(callee, tuple(self.expr(a, scope) for a in arguments), origin)
        self.fail(node, f"not a statement of tir: `{ast.unparse(node).splitlines()[0]}`")

    def loop(
        self, name: str, call: ast.Call, body: list[ast.stmt], scope: Scope, origin: Origin
    ) -> For:
        kind = _KINDS.get(self.source.name(call.func))
        if kind is None:
            self.fail(call, f"a loop runs over {', '.join(_KINDS)}")
        values = [self.expr(argument, scope) for argument in call.args]
        match values, call.keywords:
            case [extent], []:
                start: Expr = Const(0, extent.dtype)
            case [Const() as start, Const() as stop], []:
                extent = Const(int(stop.value) - int(start.value), start.dtype)
            case [start], [ast.keyword("extent", length)]:
                extent = self.expr(length, scope)
            case _:
                self.fail(call, "write range(extent), range(0, 4) of constants, or "
                                "range(start, extent=4)")
        if not dtypes.is_int(extent.dtype) or extent.dtype != start.dtype:
            self.fail(call, f"a loop from {start.dtype} with extent of {extent.dtype}; "
                            "both are integers of one dtype")
        var = Var(name, extent.dtype)
        inner = self.block(body, {**scope, name: var})
        return For(var, start, extent, kind, inner, origin)

    # --- expressions ----------------------------------------------------------------------------

    def expr(self, node: ast.expr, scope: Scope) -> Expr:
        if is_number(node):
            value = number(node)
            return Const(value, "float32" if isinstance(value, float) else INDEX)
        match node:
            case ast.Name():
                return self.variable(node, scope)
            case ast.Constant(bool(value)):
                return Const(value, "bool")
            case ast.BinOp(left, op, right) if type(op) in _BINARY:
                return self.binary(_BINARY[type(op)], left, right, scope)
            case ast.Compare(left, [op], [right]) if type(op) in _COMPARE:
                return Compare(_COMPARE[type(op)], *self.pair(left, right, scope))
            case ast.BoolOp(op, operands):
                return self.connective(And if isinstance(op, ast.And) else Or, operands, scope)
            case ast.UnaryOp(ast.Not(), operand):
                return Not(self.condition(operand, scope))
            case ast.UnaryOp(ast.USub(), operand):
                return -self.expr(operand, scope)
            case ast.Subscript(target, index):
                return Load(self.buffer(target, scope), self.indices(index, scope))
            case ast.Call(ast.Name(name), arguments, []):
                return self.call(name, arguments, node, scope)
        self.fail(node, f"not an expression of tir: `{ast.unparse(node)}`")

    def variable(self, node: ast.Name, scope: Scope) -> Var:
        found = scope.get(node.id)
        if isinstance(found, Var):
            return found
        what = "is a buffer, not a value" if found is not None else "is not defined here"
        self.fail(node, f"{node.id} {what}")

    def buffer(self, node: ast.expr, scope: Scope) -> Buffer:
        found = scope.get(self.source.name(node))
        if isinstance(found, Buffer):
            return found
        what = "is a value, not a buffer" if found is not None else "is not defined here"
        self.fail(node, f"{ast.unparse(node)} {what}")

    def indices(self, node: ast.expr, scope: Scope) -> tuple[Expr, ...]:
        elements = node.elts if isinstance(node, ast.Tuple) else [node]
        return tuple(self.expr(element, scope) for element in elements)

    def condition(self, node: ast.expr, scope: Scope) -> Expr:
        value = self.expr(node, scope)
        if not dtypes.is_bool(value.dtype):
            self.fail(node, f"expected a condition, not a {value.dtype}")
        return value

    def connective(self, make: type[And | Or], nodes: list[ast.expr], scope: Scope) -> Expr:
        result = self.condition(nodes[0], scope)
        for node in nodes[1:]:
            result = make(result, self.condition(node, scope))
        return result

    def binary(self, op: str, left: ast.expr, right: ast.expr, scope: Scope) -> Expr:
        a, b = self.pair(left, right, scope)
        if op == "div" and not dtypes.is_float(a.dtype):
            self.fail(left, f"`/` is for floats; use `//` for {a.dtype}")
        return Binary(op, a, b)

    def hinted(self, node: ast.expr, scope: Scope, dtype: str) -> Expr:
        """An expression where `dtype` is expected: numbers take it."""
        if not is_number(node):
            return self.expr(node, scope)
        try:
            return convert(number(node), dtype)
        except (TypeError, ValueError) as error:
            self.fail(node, str(error))

    def pair(self, left: ast.expr, right: ast.expr, scope: Scope) -> tuple[Expr, Expr]:
        """Two operands of one dtype; a number takes the dtype of the other operand."""
        if is_number(left) and not is_number(right):
            b = self.expr(right, scope)
            a = self.hinted(left, scope, b.dtype)
        else:
            a = self.expr(left, scope)
            b = self.expr(right, scope) if is_number(left) else self.hinted(right, scope, a.dtype)
        if a.dtype != b.dtype:
            self.fail(left, f"the operands are of two dtypes, {a.dtype} and {b.dtype}; cast one")
        return a, b

    def call(self, name: str, nodes: list[ast.expr], node: ast.expr, scope: Scope) -> Expr:
        match name, nodes:
            case ("min" | "max"), [left, right]:
                return Binary(name, *self.pair(left, right, scope))
            case "select", [condition, left, right]:
                return Select(self.condition(condition, scope), *self.pair(left, right, scope))
            case "if_then_else", [condition, left, right]:
                test = self.condition(condition, scope)
                a, b = self.pair(left, right, scope)
                return Call(name, (test, a, b), a.dtype)
            case "cast", [value, dtype]:
                text = self.source.string(dtype)
                self.check_dtype(dtype, text)
                return Cast(text, self.expr(value, scope))
            case "broadcast", [value, lanes]:
                return Broadcast(self.expr(value, scope), self.source.integer(lanes))
            case "ramp", [base, stride, lanes]:
                return Ramp(*self.pair(base, stride, scope), self.source.integer(lanes))
            case "address", [target, offset]:
                return Address(self.buffer(target, scope), self.expr(offset, scope))
            case _, [value] if name in dtypes.SCALARS and is_number(value):
                return self.hinted(value, scope, name)
        return self.intrinsic(name, nodes, node, scope)

    def intrinsic(self, name: str, nodes: list[ast.expr], node: ast.expr, scope: Scope) -> Expr:
        row = instructions.TABLE.get(name) or intrinsics.TABLE.get(name)
        if row is None:
            self.fail(node, f"there is no intrinsic {name}; known: {', '.join(intrinsics.TABLE)}, "
                            f"{', '.join(instructions.TABLE)}")
        if len(nodes) != row.arity:
            self.fail(node, f"{name} takes {row.arity} arguments, not {len(nodes)}")
        arguments = tuple(self.expr(argument, scope) for argument in nodes)
        first = arguments[0].dtype
        if isinstance(row, instructions.Instruction):
            return Call(name, arguments, dtypes.vector(row.result, row.lanes(first)))
        if row.kind == "replicate":
            count = self.source.integer(nodes[1]) * dtypes.lanes(first)
            return Call(name, arguments, dtypes.vector(first, count))
        dtype = dtypes.vector("bool", dtypes.lanes(first)) if row.kind == "bool" else first
        if row.kind == "hint":
            dtype = "int32"
        return Call(name, arguments, dtype)


def _sequence(statements: list[Stmt]) -> Stmt:
    """As `seq`, but keeps statements that do nothing: the text said them."""
    flat: list[Stmt] = []
    for statement in statements:
        flat.extend(statement.statements if isinstance(statement, Seq) else (statement,))
    if not flat:
        return Evaluate(Const(0))
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))
