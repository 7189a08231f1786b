"""A function and callbacks -> the function with what their patterns match replaced.

    class Twice(DFPatternCallback):
        def __init__(self):
            super().__init__()
            self.x = wildcard()
            self.pattern = is_op("add")(self.x, self.x)

        def callback(self, pre, post, node_map):
            return node_map[self.x][0] * 2.0

    module = rewrite([Twice()], module)

In a round each callback in turn goes through all bindings from front to back, and replaces each
match of which it has replaced no member on the way; rounds follow until nothing changes. A
callback writes with relay's expressions, on what was matched; what it writes carries the merged
origin of the members.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from minitvm.errors import MinitvmError
from minitvm.origin import NOWHERE, Origin, merge_all, origin_scope
from minitvm.relay.build import BlockBuilder, rebuild_function
from minitvm.relay.expr import Expr, ExprLike, as_expr, normalise
from minitvm.relay.infer import atom_type
from minitvm.relay.ir import (
    Atom,
    Binding,
    Block,
    Call,
    Function,
    GlobalVar,
    Module,
    Value,
    Var,
    atoms,
    blocks,
    walk_bindings,
)
from minitvm.relay.op import Op
from minitvm.relay.passes.dead_code_elimination import without_dead_code
from minitvm.relay.pattern.language import DFPattern, wildcard
from minitvm.relay.pattern.matching import Graph, Match, match_at, may_match, root_operators
from minitvm.relay.structural_hash import structural_equal

MOST_ROUNDS = 100
"""Rounds after which a rewriting that still changes something is taken to be endless."""


class RewriteError(MinitvmError):
    """A callback gave something that can't replace what was matched, or never comes to an end."""


class Found(Expr):
    """A matched node: an expression to write with, which also shows what it was."""

    __slots__ = ("bound",)

    def __init__(self, atom: Atom, bound: Value | None, origin: Origin) -> None:
        super().__init__(atom, origin=origin)
        self.bound = bound

    @property
    def op(self) -> Op | Atom | None:
        """The operator (or function) that is called; None for what is no call."""
        return self.bound.callee if isinstance(self.bound, Call) else None

    @property
    def attrs(self) -> Op | Mapping[str, Any] | None:
        """Where attributes are: the operator, or those of a function."""
        return self.bound.attrs if isinstance(self.bound, Function) else (
            self.op if isinstance(self.op, Op) else None
        )


NodeMap = dict[DFPattern, list[Any]]
"""For each pattern what it matched: `Found` expressions, or the operator itself."""


class DFPatternCallback:
    """A rewriting: a `pattern`, and what replaces its matches. Subclasses set `self.pattern`.

    `rewrite_once`: one round, even if what was written matches again. `require_type` is there for
    those who know it; types are always known here.
    """

    pattern: DFPattern

    def __init__(self, require_type: bool = False, rewrite_once: bool = False) -> None:
        self.pattern = wildcard()
        self.require_type = require_type
        self.rewrite_once = rewrite_once

    def callback(self, pre: Found, post: Found, node_map: NodeMap) -> ExprLike:
        """What replaces a match; `post` itself to leave it. `pre` is the same as `post`."""
        raise NotImplementedError(f"{type(self).__name__} has no callback")

    def rewrite(self, subject: Subject) -> Subject:
        """`rewrite` with this callback alone."""
        return rewrite([self], subject)


Subject = TypeVar("Subject", Function, Module)


def rewrite(callbacks: Sequence[DFPatternCallback], subject: Subject) -> Subject:
    """Replaces matches until there are none, or the callbacks leave what there are; the first
    callback everywhere before the next one.

    Raises `RewriteError` where a replacement is of another type or uses what is not in scope, and
    where `MOST_ROUNDS` were not enough.
    """
    if isinstance(subject, Module):
        for name, function in subject.functions.items():
            subject = subject.with_function(name, _rewrite_function(callbacks, function))
        return subject
    return _rewrite_function(callbacks, subject)


def _rewrite_function(callbacks: Sequence[DFPatternCallback], function: Function) -> Function:
    active = list(callbacks)
    changed: list[_Way] = []
    for _ in range(MOST_ROUNDS):
        after, changed = _one_round(active, function)
        if not changed or structural_equal(after, function):
            return function
        function = after
        active = [item for item in active if not item.rewrite_once]
    names = ", ".join(sorted({type(way.callback).__name__ for way in changed}))
    raise RewriteError(
        f"{names} still changed something in round {MOST_ROUNDS}, of "
        f"{changed[-1].origin or 'no origin'}; let the pattern not match what the callback writes, "
        f"or set rewrite_once"
    )


def _one_round(
    callbacks: Sequence[DFPatternCallback], function: Function
) -> tuple[Function, list[_Way]]:
    """Each callback in turn on all bindings: the function, and the ways that changed something."""
    changed = []
    for item in callbacks:
        way = _Way(item, function)
        after = rebuild_function(function, way.replace)
        if way.replaced:
            function = without_dead_code(after)
            changed.append(way)
    return function, changed


class _Way:
    """One callback's way through a function as it was, with what has been replaced so far."""

    def __init__(self, callback: DFPatternCallback, function: Function) -> None:
        self.callback = callback
        self.roots = root_operators(callback.pattern)
        self.graph = Graph(function.body)
        self.params = {*function.params, *_inner_params(function.body)}
        self.replaced: dict[Var, Atom] = {}
        self.origin = NOWHERE

    def replace(self, builder: BlockBuilder, binding: Binding) -> Value | None:
        """The rule of `rebuild`: the atom that replaces the value of a binding."""
        if not may_match(self.roots, binding.value):
            return None
        found = match_at(self.callback.pattern, binding.var, self.graph)
        if found is None or any(member in self.replaced for member in found.members):
            return None
        result = self.call(found, builder, binding)
        if result is not None:
            self.replaced[binding.var] = result
        return result

    def call(self, found: Match, builder: BlockBuilder, binding: Binding) -> Atom | None:
        """What the callback replaces a match by, its bindings added; None where it leaves it."""
        source = merge_all(self.graph.bindings[member].origin for member in found.members)
        post = Found(binding.var, binding.value, binding.origin)
        node_map: NodeMap = {
            pattern: [target if isinstance(target, Op) else self.found(target, post)
                      for target in targets]
            for pattern, targets in found.nodes.items()
        }
        with origin_scope(source or NOWHERE):
            written = self.callback.callback(post, post, node_map)
            expression = as_expr(written, binding.var.type)
        if expression.atom is binding.var:
            return None
        block = normalise(expression)
        self.check(block, builder, binding)
        for new in block.bindings:
            builder.append(Binding(new.var, new.value, new.origin or source))
        builder.add_origin(block.result, source)
        self.origin = source
        return block.result

    def found(self, target: Atom, post: Found) -> Found:
        """A matched node as it is now."""
        if target is post.atom:
            return post
        binding = self.graph.bindings.get(target) if isinstance(target, Var) else None
        atom = self.replaced.get(target, target) if isinstance(target, Var) else target
        if binding is None:
            return Found(atom, None, NOWHERE)
        return Found(atom, binding.value, binding.origin)

    def check(self, block: Block, builder: BlockBuilder, binding: Binding) -> None:
        """Raises `RewriteError` for a replacement of another type, or of what is not in scope."""
        name, place = type(self.callback).__name__, binding.origin or binding.var.name
        found = atom_type(block.result)
        if found != binding.var.type:
            raise RewriteError(
                f"{name} replaces {binding.var.type}, of {place}, by {found}; add a cast or a "
                f"reshape to what the callback gives"
            )
        bound = {new.var for new in walk_bindings(block)} | self.params
        for used in _used(block):
            if isinstance(used, Var) and used not in bound and builder.binding_of(used) is None:
                raise RewriteError(
                    f"{name} uses {used.name} for what replaces {place}, where it is not in scope: "
                    f"it is computed later, or inside a branch"
                )


def _used(block: Block) -> list[Atom]:
    found: list[Atom] = [block.result]
    for binding in walk_bindings(block):
        found.extend(atoms(binding.value))
        found.extend(inner.result for inner in blocks(binding.value))
    return [atom for atom in found if not isinstance(atom, GlobalVar)]


def _inner_params(block: Block) -> set[Var]:
    return {
        param for binding in walk_bindings(block) if isinstance(binding.value, Function)
        for param in binding.value.params
    }
