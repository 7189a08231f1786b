"""Patterns and a function -> where they match.

A function is seen as a graph of its bindings, those of nested blocks included. Matching starts at a
binding and goes backwards along arguments, with backtracking over alternatives and over the order
of the arguments of commutative operators; its time depends on the pattern, not on the graph (a
dominator looks at `LONGEST_PATH` nodes at most).

*Members* of a match are the bindings that it takes apart: those that patterns of calls, tuples,
fields and branches match, and those on the way to a dominated parent. What wildcards and the like
match are its *inputs*. A match is *closed* if no member but the root is used outside of it: then it
can become a function with one result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minitvm.relay.expr import Expr, normalise
from minitvm.relay.ir import (
    Atom,
    Binding,
    Block,
    Call,
    Constant,
    Function,
    If,
    TensorType,
    Tuple,
    TupleGetItem,
    Value,
    Var,
    atoms,
    blocks,
)
from minitvm.relay.op import Op
from minitvm.relay.pattern.language import (
    PATTERN_KIND,
    AltPattern,
    AttrPattern,
    CallPattern,
    ConstantPattern,
    DataTypePattern,
    DFPattern,
    DominatorPattern,
    IfPattern,
    OpPattern,
    ShapePattern,
    TupleGetItemPattern,
    TuplePattern,
    TypePattern,
    VarPattern,
    WildcardPattern,
    frozen,
)

COMMUTATIVE = frozenset({
    "add", "multiply", "maximum", "minimum", "equal", "not_equal", "logical_and", "logical_or",
    "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor",
})
"""Operators whose two arguments match in either order."""

LONGEST_PATH = 64
"""The most nodes that a dominator pattern looks at for one child; it does not match beyond."""

Target = Atom | Op


class Graph:
    """The bindings of a block and of the blocks nested in it, by variable, and their users."""

    def __init__(self, block: Block) -> None:
        self.bindings: dict[Var, Binding] = {}
        self.block_of: dict[Var, Block] = {}
        self.users: dict[Var, list[Var]] = {}
        self.results: set[Atom] = set()
        self.known: dict[tuple[DFPattern, Target], bool] = {}
        waiting = [block]
        while waiting:
            current = waiting.pop()
            self.results.add(current.result)
            for binding in current.bindings:
                self._add(binding, current)
                waiting.extend(blocks(binding.value))

    def _add(self, binding: Binding, block: Block) -> None:
        self.bindings[binding.var] = binding
        self.block_of[binding.var] = block
        for atom in atoms(binding.value):
            if isinstance(atom, Var):
                self.users.setdefault(atom, []).append(binding.var)

    def value_of(self, target: Target) -> Value | None:
        """What a variable is bound to; None for parameters and what is no variable."""
        binding = self.bindings.get(target) if isinstance(target, Var) else None
        return None if binding is None else binding.value

    def only_used_by(self, var: Var, users: set[Var]) -> bool:
        """Whether a variable is no result, and all that uses it is among `users`."""
        return var not in self.results and all(user in users for user in self.users.get(var, ()))


@dataclass(frozen=True, slots=True)
class Match:
    """A match at the binding of `root`: the nodes that each pattern matched (several on the path of
    a dominator), and the members, in no order."""

    root: Target
    nodes: dict[DFPattern, list[Target]]
    members: frozenset[Var]

    def is_closed(self, graph: Graph) -> bool:
        """Whether the members are of one block, and none but the root is used outside."""
        if not isinstance(self.root, Var):
            return False
        inside = set(self.members)
        home = graph.block_of.get(self.root)
        return all(
            graph.block_of[member] is home
            and (member is self.root or graph.only_used_by(member, inside))
            for member in self.members
        )


# --- one match ----------------------------------------------------------------------------------


def match_at(pattern: DFPattern, target: Target, graph: Graph) -> Match | None:
    """The first way in which a pattern matches a node; None if there is none."""
    matcher = _Matcher(graph)
    for _ in matcher.ways(pattern, target):
        nodes = {found: list(targets) for found, targets in matcher.nodes.items()}
        root = (target,) if graph.value_of(target) is not None else ()
        return Match(target, nodes, frozenset((*matcher.members, *root)))
    return None


@dataclass(slots=True)
class _Matcher:
    """A match being tried. A generator of ways takes back what it noted before it goes on."""

    graph: Graph
    nodes: dict[DFPattern, list[Target]] = field(default_factory=dict)
    members: list[Var] = field(default_factory=list)

    def ways(self, pattern: DFPattern, target: Target) -> Iterator[None]:
        """Yields once for each way in which a pattern matches a node."""
        known = self.nodes.get(pattern)
        if known is not None:
            if known[0] is target:
                yield
            return
        for _ in self.node_ways(pattern, target):
            self.nodes[pattern] = [target]
            yield
            del self.nodes[pattern]

    def node_ways(self, pattern: DFPattern, target: Target) -> Iterator[None]:
        """The same, by the kind of pattern."""
        match pattern:
            case AltPattern(left, right):
                yield from self.ways(left, target)
                yield from self.ways(right, target)
            case AttrPattern(inner, attrs):
                if self.has_attrs(target, attrs):
                    yield from self.ways(inner, target)
            case TypePattern(inner) | ShapePattern(inner) | DataTypePattern(inner):
                if _has_type(pattern, target):
                    yield from self.ways(inner, target)
            case DominatorPattern():
                yield from self.dominator(pattern, target)
            case CallPattern() | TuplePattern() | TupleGetItemPattern() | IfPattern():
                if isinstance(target, Var) and (value := self.graph.value_of(target)) is not None:
                    self.members.append(target)
                    yield from self.value_ways(pattern, value)
                    self.members.pop()
            case _:
                if self.is_leaf(pattern, target):
                    yield

    def is_leaf(self, pattern: DFPattern, target: Target) -> bool:
        """Whether a pattern without parts matches."""
        match pattern, target:
            case WildcardPattern(), _:
                return True
            case VarPattern(name), Var():
                return self.graph.value_of(target) is None and name in ("", target.name)
            case ConstantPattern(None), Constant():
                return True
            case ConstantPattern(value), Constant(data):
                return bool(data.size) and bool(np.all(data == value))
            case OpPattern(name), Op():
                return name == target.name
            case _:
                return False

    def value_ways(self, pattern: DFPattern, value: Value) -> Iterator[None]:
        """A pattern with parts against what is bound."""
        match pattern, value:
            case CallPattern(head, wanted), Call(callee, given):
                for _ in self.ways(head, callee):
                    if wanted is None:
                        yield
                        continue
                    yield from self.all_ways(wanted, given)
                    if isinstance(callee, Op) and callee.name in COMMUTATIVE:
                        yield from self.all_ways(wanted, given[::-1])
            case TuplePattern(None), Tuple():
                yield
            case TuplePattern(tuple() as items), Tuple(given):
                yield from self.all_ways(items, given)
            case TupleGetItemPattern(source, index), TupleGetItem(given_source, given_index):
                if index in (None, given_index):
                    yield from self.ways(source, given_source)
            case IfPattern(condition, first, second), If(given_condition, then_block, else_block):
                results = (given_condition, then_block.result, else_block.result)
                yield from self.all_ways((condition, first, second), results)

    def all_ways(
        self, patterns: Sequence[DFPattern], targets: Sequence[Target]
    ) -> Iterator[None]:
        """Each pattern against its node."""
        if len(patterns) != len(targets):
            return
        if not patterns:
            yield
            return
        for _ in self.ways(patterns[0], targets[0]):
            yield from self.all_ways(patterns[1:], targets[1:])

    def has_attrs(self, target: Target, attrs: tuple[tuple[str, Any], ...]) -> bool:
        """Whether an operator, the one that is called, or a function has attributes."""
        value = target if isinstance(target, Op) else self.graph.value_of(target)
        holder: Any = value.callee if isinstance(value, Call) else value
        if isinstance(holder, Function):
            return all(frozen(holder.attrs.get(name)) == wanted for name, wanted in attrs)
        return isinstance(holder, Op) and all(
            _attribute(holder, name) == wanted for name, wanted in attrs
        )

    # --- dominators -----------------------------------------------------------------------------

    def dominator(self, pattern: DominatorPattern, target: Target) -> Iterator[None]:
        """The child at the target, the parent somewhere behind it."""
        for _ in self.ways(pattern.child, target):
            child_members = set(self.members)
            for parent in self.parents(pattern, target):
                for _ in self.ways(pattern.parent, parent):
                    between = self.between(pattern, parent, target, child_members)
                    if between is None:
                        continue
                    self.members.extend(between)
                    if between:
                        self.nodes[pattern.path] = list(between)
                    yield
                    self.nodes.pop(pattern.path, None)
                    del self.members[len(self.members) - len(between):]

    def parents(self, pattern: DominatorPattern, child: Target) -> list[Var]:
        """Nodes behind the child that the parent's pattern may match, the nearest first."""
        found: list[Var] = []
        seen: set[Target] = {child}
        waiting = [child]
        while waiting and len(seen) <= LONGEST_PATH:
            following: list[Target] = []
            for target in waiting:
                value = self.graph.value_of(target)
                for atom in () if value is None else atoms(value):
                    if not isinstance(atom, Var) or atom in seen:
                        continue
                    seen.add(atom)
                    if self.matches_alone(pattern.parent, atom):
                        found.append(atom)
                    elif self.matches_alone(pattern.path, atom):
                        following.append(atom)
            waiting = following
        return found

    def matches_alone(self, pattern: DFPattern, target: Target) -> bool:
        """Whether a pattern matches by itself, whatever else was matched."""
        known = self.graph.known
        key = (pattern, target)
        if key not in known:
            known[key] = any(True for _ in _Matcher(self.graph).ways(pattern, target))
        return known[key]

    def between(
        self, pattern: DominatorPattern, parent: Var, child: Target, child_members: set[Var]
    ) -> list[Var] | None:
        """The nodes on all ways from the parent on, which end in the child or what belongs to it;
        None if a way ends elsewhere or passes a node that is not of the path."""
        ends = {child, *child_members}
        found: dict[Var, None] = {}
        waiting = [parent]
        while waiting:
            var = waiting.pop()
            if var in self.graph.results or len(found) > LONGEST_PATH:
                return None
            for user in self.graph.users.get(var, ()):
                if user in ends or user in found:
                    continue
                if not self.matches_alone(pattern.path, user):
                    return None
                found[user] = None
                waiting.append(user)
        return list(found)


def _attribute(op: Op, name: str) -> Any:
    return op.pattern if name == PATTERN_KIND else frozen(getattr(op, name, None))


def _has_type(
    pattern: TypePattern | ShapePattern | DataTypePattern, target: Target
) -> bool:
    found = None if isinstance(target, Op) else target.type
    match pattern:
        case TypePattern(_, wanted):
            return found == wanted
        case ShapePattern(_, shape):
            return isinstance(found, TensorType) and found.shape == shape
        case DataTypePattern(_, dtype):
            return isinstance(found, TensorType) and found.dtype == dtype


# --- many matches -------------------------------------------------------------------------------


def root_operators(pattern: DFPattern) -> frozenset[str] | None:
    """The operators that a match can be a call of; None: it may be anything."""
    match pattern:
        case AltPattern(left, right):
            first, second = root_operators(left), root_operators(right)
            return None if first is None or second is None else first | second
        case (AttrPattern(inner) | TypePattern(inner) | ShapePattern(inner)
              | DataTypePattern(inner) | CallPattern(inner)):
            return root_operators(inner)
        case DominatorPattern(child=child):
            return root_operators(child)
        case OpPattern(name):
            return frozenset({name})
        case _:
            return None


def may_match(operators: frozenset[str] | None, value: Value) -> bool:
    """Whether a value is a call of one of the operators; of anything where they are None."""
    return operators is None or (
        isinstance(value, Call) and isinstance(value.callee, Op) and value.callee.name in operators
    )


def closed_groups(
    patterns: Sequence[tuple[DFPattern, Callable[[Match], bool]]], block: Block, graph: Graph
) -> dict[Var, tuple[int, Match]]:
    """Closed matches of patterns in a block (not those nested in it) that have no member in common,
    by their root: the position of the pattern, and the match. From the last binding to the first,
    so that a match that goes further wins; of several patterns the first."""
    roots = [root_operators(pattern) for pattern, _ in patterns]
    taken: set[Var] = set()
    groups: dict[Var, tuple[int, Match]] = {}
    for binding in reversed(block.bindings):
        if binding.var in taken:
            continue
        for position, (pattern, check) in enumerate(patterns):
            if not may_match(roots[position], binding.value):
                continue
            found = match_at(pattern, binding.var, graph)
            if (
                found is not None
                and not (found.members & taken)
                and found.is_closed(graph)
                and check(found)
            ):
                groups[binding.var] = (position, found)
                taken |= found.members
                break
    return groups


def match(pattern: DFPattern, subject: Expr | Function) -> bool:
    """Whether a pattern matches an expression, or the result of a function."""
    block = normalise(subject) if isinstance(subject, Expr) else subject.body
    return match_at(pattern, block.result, Graph(block)) is not None


def find(pattern: DFPattern, function: Function) -> list[Match]:
    """Every match in a function, in the order of its bindings; they may overlap."""
    graph = Graph(function.body)
    roots = root_operators(pattern)
    found = (
        match_at(pattern, var, graph)
        for var, binding in graph.bindings.items() if may_match(roots, binding.value)
    )
    return [item for item in found if item is not None]
