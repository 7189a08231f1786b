"""A module -> its text: a subset of Python's syntax, which `relay.parser` reads back.

    @function(primitive=True)
    def main(x: Tensor((1, 8), "float32")) -> Tensor((1, 8), "float32"):
        v0 = add(x, const(1.0, (), "float32"))  #: "Add_0"
        if flag:  #: "If_0"
            v1 = v0
        else:
            v2 = nn.relu(v0)  #: "Relu_0"
            v1 = v2
        return v1

Names are made identifiers, unique within a function; where a parameter's or function's own name is
another, the decorator `@names` keeps it. Variables named `v` and a number are numbered anew in
order. The last line of each branch of an `if` gives the value of the branch. Constants of up to 64
elements are written out, larger ones named by their digest; the origins of constants are not
written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minitvm import dtypes
from minitvm.relay.dim import DimExpr
from minitvm.relay.ir import (
    Atom,
    Binding,
    Block,
    Call,
    Constant,
    Function,
    GlobalVar,
    If,
    Module,
    Tuple,
    TupleGetItem,
    Value,
    Var,
    atoms,
    blocks,
    walk_bindings,
)
from minitvm.relay.op import REGISTRY, Op
from minitvm.text import PRINTERS, Names, format_float, format_literal, with_origin

INLINE_ELEMENTS = 64
"""Constants with more elements are named by their digest."""

RESERVED = ("const", "Tensor", "Tuple", "Func", "function", "names", "operator", "inf", "nan",
            "min", "max")
AUTOMATIC = re.compile(r"v\d*|")


def print_module(module: Module, types: bool = False) -> str:
    """The text of a module; with `types`, every binding is annotated with its type."""
    printer = _Printer(types)
    printer.reserve(module.functions)
    for name, function in module.functions.items():
        printer.start_function()
        printer.function(function, printer.function_names[name], name, "")
        printer.line("", "")
    return "\n".join(printer.lines[:-1]) + "\n"


def print_function(function: Function, name: str = "main", types: bool = False) -> str:
    """The text of one function."""
    printer = _Printer(types)
    printer.reserve([name])
    printer.start_function()
    printer.function(function, printer.function_names[name], name, "")
    return "\n".join(printer.lines) + "\n"


PRINTERS[Module] = print_module
PRINTERS[Function] = print_function


def large_constants(module: Module) -> dict[str, np.ndarray]:
    """The constants that the text names by digest, by digest."""
    found: dict[str, np.ndarray] = {}
    for function in module.functions.values():
        for constant in block_constants(function.body):
            if not _is_inline(constant.data):
                found[constant.digest()] = constant.data
    return found


def block_constants(block: Block) -> Iterable[Constant]:
    """Every constant a block uses, once for each use, nested blocks included."""
    if isinstance(block.result, Constant):
        yield block.result
    for binding in walk_bindings(block):
        yield from (atom for atom in atoms(binding.value) if isinstance(atom, Constant))
        for inner in blocks(binding.value):
            if isinstance(inner.result, Constant):
                yield inner.result


def format_attribute(value: Any) -> str:
    """A literal, in which dims may occur."""
    match value:
        case DimExpr():
            return str(value)
        case tuple() if any(isinstance(item, DimExpr | tuple) for item in value):
            inner = ", ".join(map(format_attribute, value))
            return f"({inner},)" if len(value) == 1 else f"({inner})"
        case _:
            return format_literal(value)


def format_constant(data: np.ndarray) -> str:
    """`const(values, shape, dtype)`, the values in row-major order."""
    dtype = dtypes.from_numpy(data.dtype)
    tail = f'{format_literal(tuple(map(int, data.shape)))}, "{dtype}")'
    values = [_element(value, dtype) for value in data.ravel()]
    text = values[0] if data.ndim == 0 else f"[{', '.join(values)}]"
    return f"const({text}, {tail}"


def _element(value: Any, dtype: str) -> str:
    if dtypes.is_float(dtype):
        return format_float(float(value), dtype)
    return str(bool(value)) if dtype == "bool" else str(int(value))


def _is_inline(data: np.ndarray) -> bool:
    """Small, and free of NaNs with a payload, which their text would lose."""
    if data.size > INLINE_ELEMENTS:
        return False
    if not np.issubdtype(data.dtype, np.floating) or not np.isnan(data).any():
        return True
    nans = np.abs(data[np.isnan(data)])
    return bool(nans.tobytes() == np.abs(np.full_like(nans, np.nan)).tobytes())


@dataclass(slots=True)
class _Printer:
    types: bool
    lines: list[str] = field(default_factory=list)
    names: Names = field(default_factory=Names)
    reserved: frozenset[str] = frozenset()
    function_names: dict[str, str] = field(default_factory=dict)
    var_names: dict[Var, str] = field(default_factory=dict)
    automatic: int = 0

    def reserve(self, functions: Iterable[str]) -> None:
        """Takes the names that mean something else, then names the module's functions."""
        self.names.reserve(RESERVED)
        self.names.reserve(name.partition(".")[0] for name in REGISTRY)
        self.function_names = {name: self.names.unique(name) for name in functions}
        self.reserved = frozenset(self.names.taken)

    def start_function(self) -> None:
        """Forgets the names of the function before: each has its own."""
        self.names = Names(set(self.reserved))
        self.automatic = 0

    def line(self, indent: str, text: str) -> None:
        self.lines.append(indent + text)

    def define(self, var: Var) -> str:
        """A name for a variable that is bound here."""
        if AUTOMATIC.fullmatch(var.name):
            while f"v{self.automatic}" in self.names.taken:
                self.automatic += 1
            name = self.names.unique(f"v{self.automatic}")
        else:
            name = self.names.unique(var.name)
        self.var_names[var] = name
        return name

    def function(self, function: Function, name: str, own_name: str, indent: str) -> None:
        for param in function.params:
            self.var_names[param] = self.names.unique(param.name)
        self._decorators(function, name, own_name, indent)
        params = ", ".join(f"{self.var_names[p]}: {p.type}" for p in function.params)
        self.line(indent, f"def {name}({params}) -> {function.result_type}:")
        self.block(function.body, indent + "    ")
        self.line(indent + "    ", f"return {self.atom(function.body.result)}")

    def _decorators(self, function: Function, name: str, own_name: str, indent: str) -> None:
        if function.attrs:
            self.line(indent, f"@function({_keywords(function.attrs)})")
        own_params = tuple(param.name for param in function.params)
        shown_params = tuple(self.var_names[param] for param in function.params)
        kept: dict[str, Any] = {}
        if own_name != name:
            kept["name"] = own_name
        if own_params != shown_params:
            kept["parameters"] = own_params
        if kept:
            self.line(indent, f"@names({_keywords(kept)})")

    def block(self, block: Block, indent: str) -> None:
        for binding in block.bindings:
            self.binding(binding, indent)

    def binding(self, binding: Binding, indent: str) -> None:
        match binding.value:
            case If(condition, then_block, else_block):
                name = self.define(binding.var)
                opening = f"if {self.atom(condition)}:"
                self.line(indent, with_origin(opening, binding.origin))
                self._branch(then_block, name, indent)
                self.line(indent, "else:")
                self._branch(else_block, name, indent)
            case Function() as function:
                name = self.define(binding.var)
                start = len(self.lines)
                self.function(function, name, name, indent)
                head = next(i for i in range(start, len(self.lines))
                            if self.lines[i].startswith(f"{indent}def "))
                self.lines[head] = with_origin(self.lines[head], binding.origin)
            case value:
                text = self.value(value)
                name = self.define(binding.var)
                annotation = f": {binding.var.type}" if self.types else ""
                self.line(indent, with_origin(f"{name}{annotation} = {text}", binding.origin))

    def _branch(self, block: Block, name: str, indent: str) -> None:
        self.block(block, indent + "    ")
        self.line(indent + "    ", f"{name} = {self.atom(block.result)}")

    def value(self, value: Value) -> str:
        match value:
            case Call(callee, arguments):
                parts = [self.atom(argument) for argument in arguments]
                if isinstance(callee, Op):
                    attributes = callee.attributes()
                    parts += [_keywords(attributes)] if attributes else []
                    return f"{_operator_name(callee)}({', '.join(parts)})"
                return f"{self.atom(callee)}({', '.join(parts)})"
            case Tuple(fields):
                inner = ", ".join(map(self.atom, fields))
                return f"({inner},)" if len(fields) == 1 else f"({inner})"
            case TupleGetItem(source, index):
                return f"{self.atom(source)}[{index}]"
            case Var() | Constant() | GlobalVar():
                return self.atom(value)
        raise TypeError(f"{value!r} is no value of a line")

    def atom(self, atom: Atom) -> str:
        match atom:
            case Constant(data):
                return format_constant(data) if _is_inline(data) else _by_digest(atom)
            case GlobalVar(name):
                return self.function_names.get(name, name)
            case Var(name):
                return self.var_names.get(atom, name)


def _by_digest(constant: Constant) -> str:
    shape = format_literal(tuple(map(int, constant.data.shape)))
    return f'const("{constant.digest()}", {shape}, "{constant.data.dtype.name}")'


def _operator_name(op: Op) -> str:
    if all(part.isidentifier() for part in op.name.split(".")):
        return op.name
    return f"operator({format_literal(op.name)})"


def _keywords(values: Mapping[str, Any]) -> str:
    """Keyword arguments; names that are no identifiers go into a `**{...}`."""
    plain = [f"{key}={format_attribute(value)}" for key, value in values.items()
             if key.isidentifier()]
    other = {key: value for key, value in values.items() if not key.isidentifier()}
    return ", ".join([*plain, f"**{format_literal(other)}"] if other else plain)
