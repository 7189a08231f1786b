"""The text of a module -> the module: the inverse of `relay.printer`.

Types are inferred anew and compared with the annotations: those of a function's result, and of
bindings where they are given. Everything that is refused is refused with `file:line:column`.
"""

from __future__ import annotations

import ast
from collections import ChainMap
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from minitvm import dtypes
from minitvm.errors import MinitvmError, ParseError
from minitvm.origin import Origin
from minitvm.relay.build import BlockBuilder
from minitvm.relay.dim import Dim, dim_from_syntax
from minitvm.relay.infer import value_type
from minitvm.relay.ir import (
    Atom,
    Block,
    Call,
    Constant,
    Function,
    FuncType,
    GlobalVar,
    If,
    Module,
    TensorType,
    Tuple,
    TupleGetItem,
    TupleType,
    Type,
    Value,
    Var,
)
from minitvm.relay.op import Op, lookup
from minitvm.text import Source, is_number, read_source

Scope = ChainMap[str, Atom]
ELEMENT_CLASSES: dict[str, tuple[type, ...]] = {
    "b": (bool,), "i": (int,), "u": (int,), "f": (int, float),
}
"""What the elements of a written constant may be, by the kind of its numpy dtype."""


ATTRIBUTE_ERRORS = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError)
"""What an operator may raise for attributes that are no values of their fields."""


def parse_module(
    text: str, constants: Mapping[str, np.ndarray] | None = None, file: str = "<text>"
) -> Module:
    """The module of a text; `constants` gives the large constants by their digest.

    Raises `ParseError` for text that does not read, and for ill-typed programs.
    """
    source = read_source(text, file)
    parser = _Parser(source, constants or {})
    headers: list[tuple[ast.FunctionDef, _Header]] = []
    for statement in source.tree.body:
        if not isinstance(statement, ast.FunctionDef):
            source.fail(statement, "expected a function: `def name(x: Tensor(...)) -> ...:`")
        header = parser.header(statement)
        if statement.name in parser.globals:
            source.fail(statement, f"the function {statement.name} is defined twice")
        parser.globals[statement.name] = GlobalVar(header.name, header.type)
        headers.append((statement, header))
    return Module({header.name: parser.function(node, header) for node, header in headers})


def parse_function(text: str, constants: Mapping[str, np.ndarray] | None = None) -> Function:
    """The function of a text that holds one."""
    functions = parse_module(text, constants).functions
    if len(functions) != 1:
        raise ParseError(f"<text>:1:1: expected one function, not {len(functions)}")
    return next(iter(functions.values()))


@dataclass(frozen=True, slots=True)
class _Header:
    name: str
    params: tuple[Var, ...]
    result_type: Type
    attrs: Mapping[str, Any]
    scope: Mapping[str, Var]

    @property
    def type(self) -> FuncType:
        return FuncType(tuple(param.type for param in self.params), self.result_type)


@dataclass(frozen=True, slots=True)
class _Parser:
    source: Source
    constants: Mapping[str, np.ndarray]
    globals: dict[str, Atom] = field(default_factory=dict)
    by_digest: dict[str, Constant] = field(default_factory=dict)

    # --- functions and statements

    def header(self, node: ast.FunctionDef) -> _Header:
        """A function's names, parameters, result type and attributes."""
        settings = self._decorators(node)
        names = settings["names"]
        shown = [argument.arg for argument in node.args.args]
        own = names.get("parameters", tuple(shown))
        if not isinstance(own, tuple) or len(own) != len(shown):
            self.source.fail(node, f"@names must give a tuple of {len(shown)} parameters")
        if not all(isinstance(name, str) for name in (*own, names.get("name", ""))):
            self.source.fail(node, "@names gives strings")
        given = node.args
        if (given.posonlyargs or given.kwonlyargs or given.vararg or given.kwarg
                or given.defaults):
            self.source.fail(node, "parameters are written `name: type`, separated by commas")
        if node.returns is None:
            self.source.fail(node, f"the function {node.name} needs a result type: `-> ...`")
        params = []
        for argument, own_name in zip(node.args.args, own, strict=True):
            if argument.annotation is None:
                self.source.fail(argument, f"the parameter {argument.arg} needs a type")
            params.append(Var(own_name, self.type(argument.annotation)))
        scope = dict(zip(shown, params, strict=True))
        if len(scope) != len(params):
            self.source.fail(node, "two parameters have one name")
        result_type = self.type(node.returns)
        return _Header(names.get("name", node.name), tuple(params), result_type,
                       settings["function"], scope)

    def _decorators(self, node: ast.FunctionDef) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {"function": {}, "names": {}}
        for decorator in node.decorator_list:
            match decorator:
                case ast.Call(ast.Name("function" | "names" as name), [], keywords):
                    found[name] = self._keywords(keywords)
                case _:
                    self.source.fail(decorator, "expected `@function(...)` or `@names(...)`")
        return found

    def function(self, node: ast.FunctionDef, header: _Header, outer: Scope | None = None,
                 parent: BlockBuilder | None = None) -> Function:
        """A function; `outer` is the scope around a nested one."""
        scope = (outer or ChainMap(self.globals)).new_child(dict(header.scope))
        builder = BlockBuilder(parent=parent)
        *statements, last = node.body
        if not isinstance(last, ast.Return) or last.value is None:
            self.source.fail(last, "a function ends with `return`")
        self._statements(statements, scope, builder)
        result = self.atom(last.value, scope)
        found = value_type(result)
        if found != header.result_type:
            self.source.fail(last, f"the result is {found}, not {header.result_type} as declared")
        return Function(header.params, builder.finish(result), header.result_type, header.attrs)

    def _statements(self, body: list[ast.stmt], scope: Scope, builder: BlockBuilder) -> None:
        for statement in body:
            self._statement(statement, scope, builder)

    def _statement(self, node: ast.stmt, scope: Scope, builder: BlockBuilder) -> None:
        place = self.source.origin(node)
        annotation: ast.expr | None = None
        value: Value
        match node:
            case ast.Assign([ast.Name(name)], expression):
                value = self.value(expression, scope)
            case ast.AnnAssign(ast.Name(name), annotation, expression) if expression is not None:
                value = self.value(expression, scope)
            case ast.If():
                name, value = self._if(node, scope, builder)
            case ast.FunctionDef(name):
                value = self.function(node, self.header(node), scope, builder)
            case _:
                self.source.fail(node, "expected `name = value`, `if`, or `def`")
        if name in scope:
            self.source.fail(node, f"the name {name} is taken: every name is bound once")
        var = self._emit(node, value, place, name, builder)
        if annotation is not None and (declared := self.type(annotation)) != var.type:
            self.source.fail(node, f"{name} is {var.type}, not {declared} as declared")
        scope[name] = var

    def _emit(self, node: ast.stmt, value: Value, place: Origin, name: str,
              builder: BlockBuilder) -> Var:
        try:
            return builder.emit(value, name=name, origin=place)
        except MinitvmError as error:
            self.source.fail(node, str(error))
        except ATTRIBUTE_ERRORS as error:
            self.source.fail(node, f"an attribute of the operator is of a wrong kind: {error}")

    def _if(self, node: ast.If, scope: Scope, builder: BlockBuilder) -> tuple[str, Value]:
        condition = self.atom(node.test, scope)
        then_name, then_block = self._branch(node, node.body, scope, builder)
        else_name, else_block = self._branch(node, node.orelse, scope, builder)
        if then_name != else_name:
            self.source.fail(node, f"one branch gives {then_name}, the other {else_name}")
        return then_name, If(condition, then_block, else_block)

    def _branch(self, node: ast.If, body: list[ast.stmt], scope: Scope,
                builder: BlockBuilder) -> tuple[str, Block]:
        match body:
            case [*statements, ast.Assign([ast.Name(name)], expression)]:
                inner, inner_builder = scope.new_child(), BlockBuilder(parent=builder)
                self._statements(statements, inner, inner_builder)
                return name, inner_builder.finish(self.atom(expression, inner))
        self.source.fail(node, "both branches end with `name = atom`: the value of the `if`")

    # --- values

    def value(self, node: ast.expr, scope: Scope) -> Value:
        """The right-hand side of a binding."""
        match node:
            case ast.Tuple(elements):
                return Tuple(tuple(self.atom(element, scope) for element in elements))
            case ast.Subscript(source, index):
                return TupleGetItem(self.atom(source, scope), self.source.integer(index))
            case ast.Call(ast.Name("const")):
                return self.constant(node)
            case ast.Call(function, arguments, keywords):
                return self._call(node, function, arguments, keywords, scope)
        return self.atom(node, scope)

    def _call(self, node: ast.Call, function: ast.expr, arguments: list[ast.expr],
              keywords: list[ast.keyword], scope: Scope) -> Value:
        given = tuple(self.atom(argument, scope) for argument in arguments)
        if isinstance(function, ast.Name) and function.id in scope:
            if keywords:
                self.source.fail(node, f"{function.id} is a function: it takes no attributes")
            return Call(scope[function.id], given)
        try:
            operator = lookup(self._operator_name(function))
            return Call(self._make(operator, self._keywords(keywords)), given)
        except ParseError:
            raise
        except (MinitvmError, *ATTRIBUTE_ERRORS) as error:
            self.source.fail(node, str(error))

    def _make(self, operator: type[Op], attributes: dict[str, Any]) -> Op:
        names = [item.name for item in fields(operator)]
        unknown = [name for name in attributes if name not in names]
        if unknown:
            known = ", ".join(names) or "none"
            raise ValueError(f"{operator.name} has no attribute {unknown[0]}; it has: {known}")
        return operator(**attributes)

    def _operator_name(self, node: ast.expr) -> str:
        match node:
            case ast.Name(name):
                return name
            case ast.Attribute(inner, name):
                return f"{self._operator_name(inner)}.{name}"
            case ast.Call(ast.Name("operator"), [argument], []):
                return self.source.string(argument)
        self.source.fail(node, f"expected the name of an operator, not `{ast.unparse(node)}`")

    def _keywords(self, keywords: list[ast.keyword]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for keyword in keywords:
            if keyword.arg is None:
                more = self.source.literal(keyword.value)
                if not isinstance(more, dict):
                    self.source.fail(keyword.value, "expected a dictionary of names and values")
                found |= more
            else:
                found[keyword.arg] = self.attribute(keyword.value)
        return found

    def attribute(self, node: ast.expr) -> Any:
        """A literal, in which dims may occur."""
        match node:
            case ast.Tuple(elements):
                return tuple(self.attribute(element) for element in elements)
            case ast.Name() | ast.BinOp() | ast.Call() if not is_number(node):
                return self._dim(node)
            case ast.UnaryOp(ast.USub(), operand) if not is_number(node):
                return -self.attribute(operand)
        return self.source.literal(node)

    def atom(self, node: ast.expr, scope: Scope) -> Atom:
        """A name or a constant."""
        match node:
            case ast.Name(name):
                if name not in scope:
                    self.source.fail(node, f"the name {name} is not bound here")
                return scope[name]
            case ast.Call(ast.Name("const")):
                return self.constant(node)
        self.source.fail(node, f"expected a name or a constant, not `{ast.unparse(node)}`")

    # --- constants and types

    def constant(self, node: ast.Call) -> Constant:
        """`const(values, shape, dtype)` or `const(digest, shape, dtype)`."""
        if len(node.args) != 3 or node.keywords:
            self.source.fail(node, "expected `const(values or digest, shape, dtype)`")
        shape, dtype = self.source.literal(node.args[1]), self.source.string(node.args[2])
        if dtype not in dtypes.SCALARS:
            self.source.fail(node.args[2], f"unknown dtype {dtype!r}")
        if not isinstance(shape, tuple) or not all(type(n) is int and n >= 0 for n in shape):
            self.source.fail(node.args[1], "a shape is a tuple of integers of 0 or more")
        values = self.source.literal(node.args[0])
        if isinstance(values, str):
            return self._named_constant(node, values, shape, dtype)
        for value in values if isinstance(values, list) else [values]:
            if type(value) not in ELEMENT_CLASSES[dtypes.to_numpy(dtype).kind]:
                self.source.fail(node, f"{value!r} is no {dtype}")
        try:
            with np.errstate(over="ignore"):
                return Constant(np.array(values, dtypes.to_numpy(dtype)).reshape(shape))
        except (ValueError, TypeError, OverflowError) as error:
            self.source.fail(node, f"the values are no {dtype} array of shape {shape}: {error}")

    def _named_constant(self, node: ast.Call, digest: str, shape: Any, dtype: str) -> Constant:
        if digest in self.by_digest:
            return self.by_digest[digest]
        if digest not in self.constants:
            self.source.fail(node, f"the constant {digest} is not among those given")
        constant = Constant(self.constants[digest])
        if constant.digest() != digest:
            self.source.fail(node, f"the array given for {digest} has another digest")
        if constant.data.shape != shape or constant.data.dtype.name != dtype:
            self.source.fail(node, f"the array given for {digest} is {constant.type}")
        self.by_digest[digest] = constant
        return constant

    def type(self, node: ast.expr) -> Type:
        """`Tensor(shape, dtype)`, `Tuple(types...)` or `Func((types...), type)`."""
        match node:
            case ast.Call(ast.Name("Tensor"), [ast.Tuple(dims), dtype], []):
                name = self.source.string(dtype)
                if name not in dtypes.SCALARS:
                    self.source.fail(dtype, f"unknown dtype {name!r}")
                return TensorType(tuple(self._dim(dim) for dim in dims), name)
            case ast.Call(ast.Name("Tuple"), fields, []):
                return TupleType(tuple(self.type(item) for item in fields))
            case ast.Call(ast.Name("Func"), [ast.Tuple(params), result], []):
                return FuncType(tuple(self.type(param) for param in params), self.type(result))
        self.source.fail(node, f'expected a type such as `Tensor((1, 3), "float32")`, '
                               f"not `{ast.unparse(node)}`")

    def _dim(self, node: ast.expr) -> Dim:
        try:
            return dim_from_syntax(node)
        except (ValueError, MinitvmError) as error:
            self.source.fail(node, str(error))
