"""Rewrite rules as data: a pattern in relay's text, what replaces it, and when that is exact.

    Rule("multiply(x, 1)", "x", "any number")
    Rule("clip(nn.relu(x))", clip_of_the_source, "a_min >= 0", when=least_is_not_negative)

A pattern is a call of an operator, with any attributes, whose arguments are calls, names that match
any atom (the same name the same atom), or numbers that match constants filled with that number. The
replacement is the name of an argument, or a function of the match. A replacement of another type
than the original is not taken, so that no rule need speak of broadcasting.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from minitvm import dtypes
from minitvm.origin import Origin
from minitvm.relay.build import BlockBuilder
from minitvm.relay.infer import value_type
from minitvm.relay.ir import Atom, Call, Constant, TensorType, Value, tensor_type
from minitvm.relay.op import Op

# --- patterns -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Apply:
    """Matches a call of the operator of that name."""

    operator: str
    arguments: tuple[Pattern, ...]


@dataclass(frozen=True, slots=True)
class Name:
    """Matches any atom."""

    name: str


@dataclass(frozen=True, slots=True)
class Number:
    """Matches a constant all of whose elements are `value`; zeros match by sign."""

    value: float


Pattern = Apply | Name | Number


def parse_pattern(text: str) -> Pattern:
    """The pattern that a text such as "add(x, -0.0)" says."""
    return _pattern(ast.parse(text, mode="eval").body)


def _pattern(node: ast.expr) -> Pattern:
    match node:
        case ast.Call(func, arguments):
            return Apply(ast.unparse(func), tuple(map(_pattern, arguments)))
        case ast.Name(name):
            return Name(name)
        case ast.Constant(int() | float() as value):
            return Number(float(value))
        case ast.UnaryOp(ast.USub(), ast.Constant(int() | float() as value)):
            return Number(-float(value))
    raise ValueError(f"not a pattern: {ast.unparse(node)}")


# --- matching -----------------------------------------------------------------------------------


@dataclass(slots=True)
class Match:
    """What a pattern matched: the atoms by name; the operators from the outermost inwards, with
    the origins of the inner ones; and the type of the whole."""

    type: TensorType
    atoms: dict[str, Atom] = field(default_factory=dict)
    operators: list[Op] = field(default_factory=list)
    origins: list[Origin] = field(default_factory=list)

    @property
    def source(self) -> Atom:
        """The atom named x."""
        return self.atoms["x"]

    @property
    def source_type(self) -> TensorType:
        """The type of the atom named x."""
        return tensor_type(self.source)

    @property
    def is_float(self) -> bool:
        """Whether x holds floats."""
        return dtypes.is_float(self.source_type.dtype)


def match_call(
    pattern: Apply, call: Call, found: TensorType, builder: BlockBuilder
) -> Match | None:
    """The match of a pattern with a call of type `found`; None if it doesn't match."""
    match = Match(found)
    return match if _match_call(pattern, call, match, builder) else None


def _match_call(pattern: Apply, call: Call, match: Match, builder: BlockBuilder) -> bool:
    op = call.callee
    if not isinstance(op, Op) or op.name != pattern.operator:
        return False
    if len(call.arguments) != len(pattern.arguments):
        return False
    match.operators.append(op)
    return all(
        _match_atom(part, atom, match, builder)
        for part, atom in zip(pattern.arguments, call.arguments, strict=True)
    )


def _match_atom(pattern: Pattern, atom: Atom, match: Match, builder: BlockBuilder) -> bool:
    match pattern:
        case Name(name):
            return match.atoms.setdefault(name, atom) is atom
        case Number(value):
            return isinstance(atom, Constant) and is_filled_with(atom.data, value)
        case Apply():
            binding = builder.binding_of(atom)
            if binding is None or not isinstance(binding.value, Call):
                return False
            match.origins.append(binding.origin)
            return _match_call(pattern, binding.value, match, builder)


def is_filled_with(data: np.ndarray, value: float) -> bool:
    """Whether every element is `value`; of floats 0.0 and -0.0 are told apart."""
    if not data.size or data.flat[0] != value or not np.all(data == value):
        return False
    return not (value == 0 and dtypes.is_float(data.dtype.name)) or bool(
        np.all(np.signbit(data) == np.signbit(value))
    )


# --- rules --------------------------------------------------------------------------------------

Replacement = Callable[[Match], Value | None]


@dataclass(frozen=True, slots=True)
class Rule:
    """`pattern` may be replaced by `result` where `when` holds; `domain` says that in words.

    A function as `result` may still decline, by giving None.
    """

    pattern: str
    result: str | Replacement
    domain: str
    when: Callable[[Match], bool] = lambda match: True
    parsed: Apply = field(init=False)

    def __post_init__(self) -> None:
        parsed = parse_pattern(self.pattern)
        assert isinstance(parsed, Apply), "a pattern is a call"
        object.__setattr__(self, "parsed", parsed)

    def apply(
        self, call: Call, found: TensorType, builder: BlockBuilder
    ) -> tuple[Value, list[Origin]] | None:
        """What replaces the call, and the origins of the inner calls that it takes the place of;
        None where the rule does not apply."""
        match = match_call(self.parsed, call, found, builder)
        if match is None or not self.when(match):
            return None
        value = match.atoms[self.result] if isinstance(self.result, str) else self.result(match)
        if value is None or value_type(value) != found:
            return None
        return value, match.origins
