"""Reads the rules of `rules`, and applies them to expressions.

A rule is parsed once, on first use, into a pattern for each order of its commutative operands. The
patterns worth trying on a node are found by its operation and those of its operands.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import CodeType
from typing import Any, Protocol

from minitvm import dtypes
from minitvm.errors import ParseError
from minitvm.tir import ir, rules, walk
from minitvm.tir.bounds import Interval
from minitvm.tir.canonical import INDEX_DTYPES, is_index
from minitvm.tir.ir import And, Binary, Broadcast, Call, Compare, Const, Expr, Not, Or, Select


class Facts(Protocol):
    """What conditions of rules ask: an Analyzer."""

    def interval(self, expr: Expr) -> Interval:
        """Bounds of an integer expression."""

    def prove(self, condition: Expr) -> bool:
        """Whether a condition certainly holds."""


@dataclass(frozen=True, slots=True)
class Name:
    """Matches any expression; a constant where `constant`."""

    name: str
    constant: bool


@dataclass(frozen=True, slots=True)
class Number:
    """Matches the constant."""

    value: int | bool


@dataclass(frozen=True, slots=True)
class Node:
    """Matches an operation, by the name that `shape` gives it."""

    shape: str
    operands: tuple[Pattern, ...]


Pattern = Name | Number | Node


@dataclass(frozen=True, slots=True)
class Rule:
    """A line of text, parsed; `patterns` are those that differ by the order of operands."""

    text: str
    domain: str
    patterns: tuple[Node, ...]
    result: Pattern
    condition: CodeType | None


_PYTHON_OPS: dict[type[ast.AST], str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.FloorDiv: "floordiv", ast.Mod: "floormod",
    ast.BitAnd: "bitand", ast.BitOr: "bitor", ast.BitXor: "bitxor", ast.LShift: "shl",
    ast.RShift: "shr", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq",
    ast.NotEq: "ne", ast.And: "and", ast.Or: "or",
}
_COMMUTATIVE = ("add", "mul", "min", "max", "bitand", "bitor", "bitxor", "eq", "ne")
_HEAVY = ("shl", "shr")


@lru_cache(maxsize=1)
def all_rules() -> tuple[Rule, ...]:
    """Every rule, parsed on the first call."""
    lines = ((domain, line) for domain, text in rules.DOMAINS.items() for line in text.split("\n"))
    return tuple(parse_rule(line, domain) for domain, line in lines if line)


def parse_rule(text: str, domain: str) -> Rule:
    """A rule from its line; raises `ParseError`."""
    pattern_text, _, rest = text.partition(" -> ")
    result_text, _, condition_text = rest.partition("  if ")
    try:
        pattern = _parse(ast.parse(pattern_text, mode="eval").body)
        result = _parse(ast.parse(result_text, mode="eval").body)
        condition = compile(condition_text, "<rule>", "eval") if condition_text else None
    except SyntaxError as error:
        raise ParseError(f"the rule {text!r} is not a Python expression: {error.msg}") from error
    if not isinstance(pattern, Node):
        raise ParseError(f"the rule {text!r} has no operation to match")
    patterns = [p for p in _orders(pattern) if isinstance(p, Node)]
    return Rule(text, domain, tuple(dict.fromkeys(patterns)), result, condition)


def _parse(node: ast.expr) -> Pattern:
    match node:
        case ast.Name(name):
            return Name(name, name[0] == "c")
        case ast.Constant(int(value)):
            return Number(value)
        case ast.BinOp(left, op, right):
            return Node(_PYTHON_OPS[type(op)], (_parse(left), _parse(right)))
        case ast.Compare(left, [op], [right]):
            return Node(_PYTHON_OPS[type(op)], (_parse(left), _parse(right)))
        case ast.BoolOp(op, [left, right]):
            return Node(_PYTHON_OPS[type(op)], (_parse(left), _parse(right)))
        case ast.UnaryOp(ast.Not(), operand):
            return Node("not", (_parse(operand),))
        case ast.Call(ast.Name(name), arguments):
            return Node(name, tuple(_parse(argument) for argument in arguments))
    raise ParseError(f"{ast.unparse(node)!r} has no meaning in a rule")


def _orders(pattern: Pattern) -> Iterator[Pattern]:
    """The pattern with the operands of commutative operations in every order."""
    if not isinstance(pattern, Node):
        yield pattern
        return
    for operands in itertools.product(*(list(_orders(child)) for child in pattern.operands)):
        yield Node(pattern.shape, operands)
        if pattern.shape in _COMMUTATIVE:
            yield Node(pattern.shape, operands[::-1])


def weight(pattern: Pattern) -> int:
    """The number of nodes, shifts counted twice, what folds once: what every rule makes less."""
    match pattern:
        case Node(shape, operands) if not _folds(pattern):
            return 1 + (shape in _HEAVY) + sum(weight(operand) for operand in operands)
        case _:
            return 1


def _folds(pattern: Pattern) -> bool:
    """Whether a pattern is a constant once matched."""
    match pattern:
        case Name(_, constant):
            return constant
        case Node(shape, operands):
            return shape in _FOLDS and all(_folds(operand) for operand in operands)
    return True


# --- matching -----------------------------------------------------------------------------------


@dataclass(slots=True)
class _Match:
    values: dict[str, Expr] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    dtype: str = ""


def apply(expr: Expr, facts: Facts) -> Expr | None:
    """What the first rule that fits makes of an expression with simplified operands."""
    shape = shape_of(expr)
    if shape is None:
        return None
    operands = walk.children(expr)
    for pattern, rule in _candidates((shape, *map(shape_of, operands))):
        match = _Match()
        if _matches(pattern, expr, match) and _applies(rule, expr, match, facts):
            result = _build(rule.result, match, expr.dtype)
            if result is not None:
                return result
    return None


def shape_of(expr: Expr) -> str | None:
    """The name of an operation in patterns; `const` for a constant, None for what has none."""
    kind = type(expr)
    if kind is Binary or kind is Compare:
        return expr.op  # type: ignore[attr-defined,no-any-return]
    if kind is Call:
        name: str = expr.name  # type: ignore[attr-defined]
        return name if name == "if_then_else" else None
    if kind is Broadcast:
        return "const" if isinstance(expr.value, Const) else None  # type: ignore[attr-defined]
    return _SHAPES.get(kind)


_SHAPES: dict[type, str] = {And: "and", Or: "or", Not: "not", Select: "select", Const: "const"}


@lru_cache(maxsize=4096)
def _candidates(shapes: tuple[str | None, ...]) -> tuple[tuple[Node, Rule], ...]:
    """The patterns that may match a node of this shape with operands of these shapes."""
    return tuple(
        (pattern, rule)
        for rule in all_rules()
        for pattern in rule.patterns
        if pattern.shape == shapes[0]
        and all(_may_be(child, shape) for child, shape in zip(pattern.operands, shapes[1:]))
    )


def _may_be(pattern: Pattern, shape: str | None) -> bool:
    match pattern:
        case Name(_, constant):
            return shape == "const" or not constant
        case Number():
            return shape == "const"
        case Node(name, _):
            return shape == name


def _matches(pattern: Pattern, expr: Expr, match: _Match) -> bool:
    if isinstance(pattern, Node):
        if shape_of(expr) != pattern.shape:
            return False
        kind = type(expr)
        if kind is Binary or kind is Compare:
            match.dtype = expr.a.dtype  # type: ignore[attr-defined]
        for child, operand in zip(pattern.operands, walk.children(expr), strict=True):
            if not _matches(child, operand, match):
                return False
        return True
    if isinstance(pattern, Number):
        return _number(expr) == pattern.value
    known = match.values.get(pattern.name)
    if known is not None:
        return known is expr or known == expr
    if pattern.constant:
        value = _number(expr)
        if value is None:
            return False
        match.numbers[pattern.name] = value
    match.values[pattern.name] = expr
    return True


def _number(expr: Expr) -> int | None:
    if isinstance(expr, Broadcast):
        expr = expr.value
    if isinstance(expr, Const) and not isinstance(expr.value, float):
        return int(expr.value)
    return None


def _applies(rule: Rule, expr: Expr, match: _Match, facts: Facts) -> bool:
    if rule.domain != "every":
        if not dtypes.is_int(match.dtype):
            return False
        if rule.domain == "index" and not (
            dtypes.element(match.dtype) in INDEX_DTYPES and is_index(expr)
        ):
            return False
    if rule.condition is None:
        return True
    return bool(eval(rule.condition, {  # the text is `rules`' own
        **match.values, **match.numbers,
        "low": lambda value: facts.interval(value).low,
        "high": lambda value: facts.interval(value).high,
        "less": lambda a, b: facts.prove(Compare("lt", a, b)),
    }))


def _build(pattern: Pattern, match: _Match, dtype: str) -> Expr | None:
    """The result of a rule; None where a constant leaves its dtype."""
    if isinstance(pattern, Name) and not pattern.constant:
        return match.values[pattern.name]
    value = evaluate_constant(pattern, match.numbers)
    if value is not None:
        return _constant(value, dtype if isinstance(value, bool) else match.dtype)
    if not isinstance(pattern, Node):
        raise ParseError(f"{pattern} has no value in the result of a rule")
    operands: list[Expr] = []
    for child in pattern.operands:
        operand = _build(child, match, dtype)
        if operand is None:
            return None
        operands.append(operand)
    return _BUILDERS[pattern.shape](*operands)


def _constant(value: int | bool, dtype: str) -> Expr | None:
    element, count = dtypes.split(dtype)
    low, high = dtypes.integer_range(element)
    if not low <= value <= high:
        return None
    scalar = Const(value, element)
    return scalar if count == 1 else Broadcast(scalar, count)


def evaluate_constant(pattern: Pattern, numbers: Mapping[str, int]) -> int | bool | None:
    """The value of a pattern of constants alone."""
    match pattern:
        case Number(value):
            return value
        case Name(name, _):
            return numbers.get(name)
        case Node(shape, operands) if shape in _FOLDS:
            values = [evaluate_constant(operand, numbers) for operand in operands]
            if any(value is None for value in values):
                return None
            folded: int | bool = _FOLDS[shape](*values)
            return folded
    return None


_FOLDS: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "bitand": lambda a, b: a & b,
    "bitor": lambda a, b: a | b,
    "bitxor": lambda a, b: a ^ b,
    "shl": lambda a, b: a << b,
    "min": min,
    "max": max,
}


def _binary_builder(op: str) -> Callable[..., Expr]:
    return lambda a, b: ir.binary(op, a, b)


def _compare_builder(op: str) -> Callable[..., Expr]:
    return lambda a, b: ir.compare(op, a, b)


_BUILDERS: dict[str, Callable[..., Expr]] = {
    **{op: _binary_builder(op) for op in ir.BINARY_OPS},
    **{op: _compare_builder(op) for op in ir.COMPARE_OPS},
    "and": And,
    "or": Or,
    "not": Not,
    "select": Select,
    "if_then_else": ir.if_then_else,
}
