"""Patterns over dataflow graphs, as data: what `matching` looks for.

    pattern = wildcard()                        anything: an atom, or an operator
            | is_var(name?) | is_constant(value?)
            | is_op(name)                       an operator; called, its call: is_op("add")(x, y)
            | is_tuple(fields?) | is_tuple_get_item(tuple, index?) | is_if(condition, then, else)
            | pattern(arguments)                a call; pattern(None): of any arguments
            | pattern | pattern                 either
            | pattern.optional(f)               f(pattern), or the pattern alone
            | pattern.has_attr({...}) | has_type(type) | has_shape(shape) | has_dtype(dtype)
            | dominates(parent, path, child)    all that leaves `parent` goes through `path` nodes
                                                into `child`

A pattern is itself by identity: where one occurs twice, it must match the same node twice. The
names and their meaning are those of TVM's `relay.dataflow_pattern`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from minitvm.errors import OptionError
from minitvm.relay.dim import Dim
from minitvm.relay.ir import Type
from minitvm.relay.op import REGISTRY, lookup

PATTERN_KIND = "TOpPattern"
"""The attribute under which `has_attr` finds how an operator fuses: a `relay.Pattern`."""


@dataclass(frozen=True, slots=True, eq=False)
class DFPattern:
    """What all patterns can do."""

    def __call__(self, *arguments: DFPattern | None) -> DFPattern:
        """A call of what this matches; of any arguments if the one argument is None."""
        if arguments == (None,):
            return CallPattern(self, None)
        given = tuple(argument for argument in arguments if argument is not None)
        if len(given) < len(arguments):
            raise OptionError("a pattern of a call takes patterns as arguments, or None alone")
        return CallPattern(self, given)

    def __or__(self, other: DFPattern) -> DFPattern:
        return AltPattern(self, other)

    def __add__(self, other: DFPattern) -> DFPattern:
        return is_op("add")(self, other)

    def __sub__(self, other: DFPattern) -> DFPattern:
        return is_op("subtract")(self, other)

    def __mul__(self, other: DFPattern) -> DFPattern:
        return is_op("multiply")(self, other)

    def __truediv__(self, other: DFPattern) -> DFPattern:
        return is_op("divide")(self, other)

    def optional(self, option: Callable[[DFPattern], DFPattern]) -> DFPattern:
        """This with something around it, if that is there: `conv.optional(is_op("nn.relu"))`."""
        return AltPattern(option(self), self)

    def has_attr(self, attrs: Mapping[str, Any]) -> DFPattern:
        """What this matches, where the operator (or function) has these attributes."""
        operator = self.callee if isinstance(self, CallPattern) else self
        if isinstance(operator, OpPattern):
            known = [item.name for item in fields(REGISTRY[operator.name])]
            for name in attrs:
                if name not in known and name != PATTERN_KIND:
                    listed = ", ".join(known) or "none"
                    raise OptionError(
                        f"{operator.name} has no attribute {name!r}; its attributes are: {listed}"
                    )
        return AttrPattern(self, tuple((name, frozen(value)) for name, value in attrs.items()))

    def has_type(self, wanted: Type) -> DFPattern:
        """What this matches, where it has the type."""
        return TypePattern(self, wanted)

    def has_shape(self, shape: Sequence[Dim]) -> DFPattern:
        """What this matches, where it is a tensor of the shape."""
        return ShapePattern(self, tuple(shape))

    def has_dtype(self, dtype: str) -> DFPattern:
        """What this matches, where it is a tensor of the dtype."""
        return DataTypePattern(self, dtype)

    def dominates(self, parent: DFPattern, path: DFPattern | None = None) -> DFPattern:
        """`dominates(parent, path, self)`: this as the child; without a path, any nodes will do."""
        return DominatorPattern(parent, path or wildcard(), self)


@dataclass(frozen=True, slots=True, eq=False)
class WildcardPattern(DFPattern):
    """Anything."""


@dataclass(frozen=True, slots=True, eq=False)
class VarPattern(DFPattern):
    """A parameter; of that name, unless it is empty."""

    name: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class ConstantPattern(DFPattern):
    """A constant; with all elements equal to `value`, unless that is None."""

    value: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class OpPattern(DFPattern):
    """An operator by name."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class CallPattern(DFPattern):
    """A call; of any arguments where they are None."""

    callee: DFPattern
    arguments: tuple[DFPattern, ...] | None


@dataclass(frozen=True, slots=True, eq=False)
class TuplePattern(DFPattern):
    """A tuple that is made; of any fields where they are None."""

    fields: tuple[DFPattern, ...] | None


@dataclass(frozen=True, slots=True, eq=False)
class TupleGetItemPattern(DFPattern):
    """A field taken of a tuple; of any index where it is None."""

    tuple: DFPattern
    index: int | None


@dataclass(frozen=True, slots=True, eq=False)
class IfPattern(DFPattern):
    """A branch: its condition, and the results of its blocks."""

    condition: DFPattern
    then_result: DFPattern
    else_result: DFPattern


@dataclass(frozen=True, slots=True, eq=False)
class AltPattern(DFPattern):
    """Either; the left one first."""

    left: DFPattern
    right: DFPattern


@dataclass(frozen=True, slots=True, eq=False)
class AttrPattern(DFPattern):
    """A pattern whose operator has attributes."""

    pattern: DFPattern
    attrs: tuple[tuple[str, Any], ...]


@dataclass(frozen=True, slots=True, eq=False)
class TypePattern(DFPattern):
    """A pattern of a type."""

    pattern: DFPattern
    type: Type


@dataclass(frozen=True, slots=True, eq=False)
class ShapePattern(DFPattern):
    """A pattern of a shape."""

    pattern: DFPattern
    shape: tuple[Dim, ...]


@dataclass(frozen=True, slots=True, eq=False)
class DataTypePattern(DFPattern):
    """A pattern of a dtype."""

    pattern: DFPattern
    dtype: str


@dataclass(frozen=True, slots=True, eq=False)
class DominatorPattern(DFPattern):
    """A child and a parent, such that all that leaves the parent goes through nodes of `path`, any
    number of them, into the child."""

    parent: DFPattern
    path: DFPattern
    child: DFPattern


def frozen(value: Any) -> Any:
    """Lists as tuples, inner ones too: how operators hold their attributes."""
    return tuple(map(frozen, value)) if isinstance(value, list | tuple) else value


# --- what users write ---------------------------------------------------------------------------


def wildcard() -> DFPattern:
    """Matches anything."""
    return WildcardPattern()


def is_var(name: str = "") -> DFPattern:
    """Matches a parameter."""
    return VarPattern(name)


def is_constant(value: float | None = None) -> DFPattern:
    """Matches a constant; given a value, one that is filled with it."""
    return ConstantPattern(value)


def is_op(name: str) -> DFPattern:
    """Matches an operator; called, its calls: `is_op("nn.relu")(wildcard())`. Raises `OptionError`
    for an unknown name."""
    return OpPattern(lookup(name).name)


def is_tuple(items: Sequence[DFPattern] | None = None) -> DFPattern:
    """Matches a tuple that is made of such fields, or of any."""
    return TuplePattern(None if items is None else tuple(items))


def is_tuple_get_item(source: DFPattern, index: int | None = None) -> DFPattern:
    """Matches a field of a tuple."""
    return TupleGetItemPattern(source, index)


def is_if(condition: DFPattern, then_result: DFPattern, else_result: DFPattern) -> DFPattern:
    """Matches a branch. What is inside its blocks is not in scope outside of it."""
    return IfPattern(condition, then_result, else_result)


def dominates(parent: DFPattern, path: DFPattern, child: DFPattern) -> DFPattern:
    """Matches a child, reached from a parent by nodes of `path` alone (or at once), where no value
    on the way, the parent's included, is used anywhere else."""
    return DominatorPattern(parent, path, child)
