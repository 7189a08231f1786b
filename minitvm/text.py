"""The text of every IR: a subset of Python's syntax, read with `ast`.

This module holds what the formats share: reading text into a syntax tree with positions for
errors, origins as comments, literals that round-trip, and unique names.

    source = read_source(text, file="model.relay")
    for statement in source.tree.body:
        ... source.origin(statement) ... source.fail(statement, "expected a function")

An origin is a comment that ends a line: `x = f(y)  #: "Conv_0", "Clip_1"`. A syntax tree has no
comments, so they are collected by line number before parsing.
"""

from __future__ import annotations

import ast
import json
import keyword
import math
import re
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from minitvm.errors import ParseError
from minitvm.origin import NOWHERE, Origin, parse_origin

_STRING = r'"(?:[^"\\]|\\.)*"' + r"|'(?:[^'\\]|\\.)*'"
_ORIGIN_LINE = re.compile(rf"""(?:[^"'#]|{_STRING})*(#:\s*(.*))$""")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_NUMBER = re.compile(r"(?<=.)_[0-9]+$")
_NOT_WORD = re.compile(r"[^A-Za-z0-9_]")


PRINTERS: dict[type, Callable[[Any], str]] = {}
"""How functions and modules print: filled by the printers, which know the nodes."""


def printed(node: Any) -> str:
    """The text of a function or module; its `repr` where no printer is loaded."""
    printer = PRINTERS.get(type(node), repr)
    return printer(node)


# --- reading ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Source:
    """Text that was read: its syntax tree, and the origins by line (the first line is 1)."""

    file: str
    tree: ast.Module
    origins: dict[int, Origin]

    def fail(self, node: ast.AST | None, message: str) -> NoReturn:
        """Raises `ParseError` at the place of a syntax node."""
        line = getattr(node, "lineno", 1)
        column = getattr(node, "col_offset", 0) + 1
        raise ParseError(f"{self.file}:{line}:{column}: {message}")

    def origin(self, node: ast.stmt) -> Origin:
        """The origin written at the end of a statement's first line (or last, if it is simple)."""
        found = self.origins.get(node.lineno)
        if found is None and node.end_lineno is not None and not hasattr(node, "body"):
            found = self.origins.get(node.end_lineno)
        return found or NOWHERE

    def literal(self, node: ast.expr) -> Any:
        """The Python value of a literal: number, inf, nan, string, None, tuple, list or dict."""
        if is_number(node):
            return number(node)
        match node:
            case ast.Constant(value) if value is None or isinstance(value, str | bool):
                return value
            case ast.Tuple(elements):
                return tuple(self.literal(element) for element in elements)
            case ast.List(elements):
                return [self.literal(element) for element in elements]
            case ast.Dict(keys, values):
                return {
                    self.literal(key): self.literal(value)
                    for key, value in zip(keys, values, strict=True)
                    if key is not None or self.fail(value, "expected `key: value`")
                }
        self.fail(node, f"expected a literal, not `{ast.unparse(node)}`")

    def name(self, node: ast.expr) -> str:
        """The identifier that a node is."""
        if isinstance(node, ast.Name):
            return node.id
        self.fail(node, f"expected a name, not `{ast.unparse(node)}`")

    def string(self, node: ast.expr) -> str:
        """The string that a node is."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return node.value
        self.fail(node, f"expected a string in quotes, not `{ast.unparse(node)}`")

    def integer(self, node: ast.expr) -> int:
        """The integer that a node is."""
        value = number(node) if is_number(node) else None
        if isinstance(value, int):
            return value
        self.fail(node, f"expected an integer, not `{ast.unparse(node)}`")


def read_source(text: str, file: str = "<text>") -> Source:
    """Parses text; raises `ParseError` with `file:line:column` where it isn't Python's syntax."""
    origins = _read_origins(text, file)
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        place = f"{file}:{error.lineno or 1}:{error.offset or 1}"
        raise ParseError(f"{place}: {error.msg}") from None
    except (RecursionError, MemoryError):
        raise ParseError(
            f"{file}:1:1: an expression is nested too deeply to be read; split it into lets"
        ) from None
    except ValueError as error:
        raise ParseError(f"{file}:1:1: {error}") from None
    return Source(file, tree, origins)


def _read_origins(text: str, file: str) -> dict[int, Origin]:
    found: dict[int, Origin] = {}
    seen: dict[str, Origin] = {}
    for line_number, line in enumerate(text.split("\n"), 1):
        if "#:" not in line or (match := _ORIGIN_LINE.match(line)) is None:
            continue
        names = match.group(2).strip()
        if names not in seen:
            try:
                seen[names] = parse_origin(names)
            except ValueError as error:
                column = match.start(1) + 1
                raise ParseError(
                    f"{file}:{line_number}:{column}: an origin is written `#: \"name\", ...` "
                    f"({error})"
                ) from None
        found[line_number] = seen[names]
    return found


def is_number(node: ast.expr) -> bool:
    """Whether a node is a number: 1, -1, 1.5, inf, -inf, nan, -nan (a bool is not)."""
    match node:
        case ast.UnaryOp(ast.USub(), operand):
            return not isinstance(operand, ast.UnaryOp) and is_number(operand)
        case ast.Constant(value):
            return isinstance(value, int | float) and not isinstance(value, bool)
        case ast.Name("inf" | "nan"):
            return True
    return False


def number(node: ast.expr) -> int | float:
    """The value of a node for which `is_number` holds."""
    match node:
        case ast.UnaryOp(_, operand):
            value = number(operand)
            return math.copysign(math.nan, -1) if math.isnan(value) else -value
        case ast.Constant(value) if isinstance(value, int | float):
            return value
        case ast.Name(name):
            return math.inf if name == "inf" else math.nan
    raise TypeError(f"not a number: {ast.dump(node)}")


# --- writing ------------------------------------------------------------------------------------


def format_float(value: float, dtype: str = "float64") -> str:
    """The shortest text that reads back as the same value of `dtype`: `0.1`, `-0.0`, `inf`, `-nan`.

    For float32 and float16 the reader must round what it reads to the dtype. The payload of a NaN
    is not kept, its sign is.
    """
    value = float(value)
    if math.isnan(value):
        return "-nan" if math.copysign(1.0, value) < 0 else "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if dtype in ("float32", "float16"):
        shortest = str(np.dtype(dtype).type(value))
        return shortest if "." in shortest or "e" in shortest else shortest + ".0"
    return repr(value)


def format_literal(value: Any) -> str:
    """A literal that `Source.literal` reads back: numbers, strings, None, tuples, lists, dicts."""
    match value:
        case None | bool():
            return str(value)
        case str():
            return format_string(value)
        case int() | np.integer():
            return str(int(value))
        case float() | np.floating():
            return format_float(float(value))
        case tuple():
            inner = ", ".join(map(format_literal, value))
            return f"({inner},)" if len(value) == 1 else f"({inner})"
        case list():
            return f"[{', '.join(map(format_literal, value))}]"
        case dict():
            pairs = [f"{format_literal(key)}: {format_literal(value[key])}" for key in value]
            return f"{{{', '.join(pairs)}}}"
    raise TypeError(f"{value!r} can't be written as a literal")


def format_string(value: str) -> str:
    """A string in double quotes, on one line."""
    quoted = json.dumps(value, ensure_ascii=False)
    return _SURROGATE.sub(lambda match: f"\\u{ord(match.group()):04x}", quoted)


def with_origin(line: str, origin: Origin) -> str:
    """The line with its origin as a trailing comment."""
    return f"{line}  #: {origin}" if origin.names else line


@dataclass(slots=True)
class Names:
    """Gives unique identifiers: the wanted name, or that name with a number."""

    taken: set[str] = field(default_factory=set)
    counts: dict[str, int] = field(default_factory=dict)

    def reserve(self, names: Iterable[str]) -> None:
        """Never gives these."""
        self.taken.update(names)

    def unique(self, wanted: str) -> str:
        """`wanted` made an identifier (`i.outer` becomes `i_outer`), numbered if it is taken.

        A taken name that ends in a number gets another number: `i_1` becomes `i_2`.
        """
        name = identifier(wanted)
        if name in self.taken:
            base = _NUMBER.sub("", name)
            count = self.counts.get(base, 0)
            while name in self.taken:
                count += 1
                name = f"{base}_{count}"
            self.counts[base] = count
        self.taken.add(name)
        return name


def identifier(name: str) -> str:
    """The nearest Python identifier: other characters become `_`; keywords get one appended."""
    result = _NOT_WORD.sub("_", name) or "_"
    if result[0].isdigit():
        result = "_" + result
    return result + "_" if keyword.iskeyword(result) else result


def columns(rows: Sequence[Sequence[str]], numbers: Container[int] = ()) -> str:
    """A table as plain lines, each column as wide as its widest cell; `numbers` are the columns
    aligned to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [cell.rjust(width) if index in numbers else cell.ljust(width)
                 for index, (cell, width) in enumerate(zip(row, widths, strict=True))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
