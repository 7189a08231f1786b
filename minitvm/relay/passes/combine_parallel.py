"""Siblings that multiply one value by different weights -> one wide product, and slices of it.

What `CombineParallelConv2D`, `CombineParallelDense` and `CombineParallelBatchMatmul` have in
common. Branches are calls of one operator with equal attributes on the same value; what follows
each of them alone, with the same operator in all branches, is combined too: elementwise operators,
and those that broadcast a constant for each channel, such as a bias. Each branch is then a slice of
the whole, bound to the variable that it was, where the first branch was; so what a branch reads
besides the common value must be known there.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from minitvm.errors import OptionError
from minitvm.origin import merge_all
from minitvm.relay.build import BlockBuilder
from minitvm.relay.ir import (
    Atom,
    Binding,
    Block,
    Call,
    Constant,
    Function,
    If,
    Module,
    TensorType,
    Var,
    atoms,
    blocks,
    use_counts,
)
from minitvm.relay.op import Op, Pattern
from minitvm.relay.ops.join import Concatenate, StridedSlice
from minitvm.relay.ops.nn.bias_add import BiasAdd
from minitvm.relay.passes.eliminate_common_subexpr import atom_key
from minitvm.remarks import remark
from minitvm.transform import Pass

LEVEL = 4
"""From which optimisation level branches are combined."""

DEFAULT_BRANCHES = 3
"""The least number of branches that are combined, unless it is given."""


@dataclass(frozen=True, slots=True)
class Wide:
    """How calls of an operator can be one: calls of equal `key` have weights that are concatenated
    along `weight_axis`, which gives their results one after the other along `axis`."""

    key: Hashable
    axis: int
    weight_axis: int


Rule = Callable[[Call], Wide | None]


def combine(name: str, rule: Rule, min_num_branches: int) -> Callable[[Module], Module]:
    """The pass of that name, as a function."""

    def run(module: Module) -> Module:
        for key, function in module.functions.items():
            if not function.is_primitive:
                body = _combined(function.body, name, rule, min_num_branches)
                module = module.with_function(key, function.with_body(body))
        return module

    return run


def combining_pass(
    name: str, rule: Rule, min_num_branches: int, documentation: str | None
) -> Pass[Module]:
    """The pass of that name."""
    if min_num_branches < 2:
        raise OptionError(f"{name} combines 2 branches or more, not {min_num_branches}")
    run = combine(name, rule, min_num_branches)
    run.__doc__ = documentation
    return Pass(name, run, LEVEL)


def _combined(block: Block, name: str, rule: Rule, least: int) -> Block:
    inner = tuple(_with_inner(binding, name, rule, least) for binding in block.bindings)
    if any(new is not old for new, old in zip(inner, block.bindings, strict=True)):
        block = Block(inner, block.result)
    groups: dict[Hashable, list[tuple[Binding, Wide]]] = {}
    for binding in block.bindings:
        if isinstance(binding.value, Call) and isinstance(binding.value.callee, Op):
            wide = rule(binding.value)
            if wide is not None:
                groups.setdefault(wide.key, []).append((binding, wide))
    large = [group for group in groups.values() if len(group) >= least]
    return _Combiner(block, name, least).run(large) if large else block


def _with_inner(binding: Binding, name: str, rule: Rule, least: int) -> Binding:
    value = binding.value
    match value:
        case If(condition, then_block, else_block):
            parts = [_combined(inner, name, rule, least) for inner in (then_block, else_block)]
            if parts[0] is then_block and parts[1] is else_block:
                return binding
            return Binding(binding.var, If(condition, *parts), binding.origin)
        case Function(_, body):
            changed = value.with_body(_combined(body, name, rule, least))
            same = changed is value
            return binding if same else Binding(binding.var, changed, binding.origin)
        case _:
            return binding


class _Combiner:
    """One block: where its bindings are, what reads them, and what replaces them."""

    def __init__(self, block: Block, name: str, least: int) -> None:
        self.block, self.name, self.least = block, name, least
        self.position = {binding.var: i for i, binding in enumerate(block.bindings)}
        self.counts = use_counts(block)
        self.users: dict[Var, Binding] = {}
        for binding in block.bindings:
            if not blocks(binding.value):
                self.users.update((a, binding) for a in atoms(binding.value) if isinstance(a, Var))
        self.removed: set[Var] = set()
        self.inserted: dict[Var, tuple[Binding, ...]] = {}

    def run(self, groups: Sequence[list[tuple[Binding, Wide]]]) -> Block:
        """The block with these groups combined, as far as that is possible."""
        for group in groups:
            self.combine_group([binding for binding, _ in group], group[0][1])
        if not self.inserted:
            return self.block
        bindings: list[Binding] = []
        for binding in self.block.bindings:
            bindings.extend(self.inserted.get(binding.var, ()))
            if binding.var not in self.removed:
                bindings.append(binding)
        return Block(tuple(bindings), self.block.result)

    def is_known(self, atom: Atom, first: Var) -> bool:
        """Whether an atom is there where `first` is bound."""
        place = self.position.get(atom) if isinstance(atom, Var) else None
        return place is None or place < self.position[first]

    def combine_group(self, group: list[Binding], wide: Wide) -> None:
        """One wide call for all, what follows them, and a slice for each."""
        first = group[0].var
        kept: list[Binding] = []
        for binding in group:
            if self.is_known(_call(binding).arguments[1], first):
                kept.append(binding)
            else:
                reason = "its weight is computed behind the first branch, so it is left out"
                remark(self.name, reason, binding.origin)
        if len(kept) < self.least:
            return
        builder = BlockBuilder()
        source = merge_all(binding.origin for binding in kept)
        weights = [_call(binding).arguments[1] for binding in kept]
        extents = [_extent(binding, wide.axis) for binding in kept]
        with builder.at(source):
            weight = _joined(builder, weights, wide.weight_axis)
            whole: Var = builder.emit(_operator(kept[0]), _call(kept[0]).arguments[0], weight)
        self.removed.update(binding.var for binding in kept)
        whole, ends = self.followers(builder, whole, kept, wide, extents)
        start = 0
        for end, extent in zip(ends, extents, strict=True):
            cut = StridedSlice((start,), (start + extent,), axes=(wide.axis,))
            builder.append(Binding(end.var, Call(cut, (whole,)), end.origin))
            start += extent
        self.inserted[first] = builder.finish(whole).bindings

    # --- what follows ---------------------------------------------------------------------------

    def followers(
        self, builder: BlockBuilder, whole: Var, group: list[Binding], wide: Wide,
        extents: list[int],
    ) -> tuple[Var, list[Binding]]:
        """Combines what follows the branches, as long as they agree: the last combined value, and
        the last binding of each branch."""
        ends = group
        while (following := self.next_of(ends)) is not None:
            arguments = self.arguments(ends, following, wide, extents, group[0].var)
            if arguments is None:
                break
            given = tuple(whole if item is None else item for item in arguments)
            source = merge_all(binding.origin for binding in following)
            whole = builder.emit(Call(_operator(following[0]), given), origin=source)
            self.removed.update(binding.var for binding in following)
            ends = following
        return whole, ends

    def next_of(self, ends: list[Binding]) -> list[Binding] | None:
        """The one user of each branch; None where one has several, or they differ."""
        users = [self.users.get(end.var) for end in ends]
        found = [user for user in users if user is not None]
        if len(found) < len(ends) or any(self.counts[end.var] != 1 for end in ends):
            return None
        if len({binding.var for binding in found}) < len(found):
            return None
        operators = {
            repr(b.value.callee) for b in found
            if isinstance(b.value, Call) and isinstance(b.value.callee, Op)
        }
        same_kind = len(operators) == 1 and all(isinstance(b.value, Call) for b in found)
        return found if same_kind and _keeps_shape(found, ends) else None

    def arguments(
        self, ends: list[Binding], following: list[Binding], wide: Wide, extents: list[int],
        first: Var,
    ) -> list[Atom | None] | None:
        """The arguments of a combined follower, None standing for the combined value; None if they
        can't be combined."""
        places = {_call(b).arguments.index(e.var) for b, e in zip(following, ends, strict=True)}
        op = _operator(following[0])
        if len(places) != 1:
            return None
        place = places.pop()
        if op.arity == 1 and op.pattern == Pattern.ELEMWISE:
            return [None]
        if op.arity != 2:
            return None
        others = [_call(binding).arguments[1 - place] for binding in following]
        if not all(self.is_known(other, first) for other in others):
            return None
        rank = _rank(ends[0])
        if isinstance(op, BiasAdd):
            if place or op.axis % rank != wide.axis:
                return None
            joined: Atom | None = _joined_constants(others, 0)
        elif op.pattern in (Pattern.ELEMWISE, Pattern.BROADCAST) and not hasattr(op, "axis"):
            joined = _joined_channels(others, wide.axis, rank, extents)
        else:
            joined = None
        if joined is None:
            return None
        return [None, joined] if place == 0 else [joined, None]


def _call(binding: Binding) -> Call:
    assert isinstance(binding.value, Call)
    return binding.value


def _operator(binding: Binding) -> Op:
    callee = _call(binding).callee
    assert isinstance(callee, Op)
    return callee


def _rank(binding: Binding) -> int:
    assert isinstance(binding.var.type, TensorType)
    return binding.var.type.rank


def _extent(binding: Binding, axis: int) -> int:
    assert isinstance(binding.var.type, TensorType)
    extent = binding.var.type.shape[axis]
    assert isinstance(extent, int)
    return extent


def _keeps_shape(following: list[Binding], ends: list[Binding]) -> bool:
    """Whether what follows each branch has its shape, and one dtype in all branches."""
    return len({getattr(b.var.type, "dtype", None) for b in following}) == 1 and all(
        getattr(new.var.type, "shape", None) == getattr(old.var.type, "shape", ())
        for new, old in zip(following, ends, strict=True)
    )


# --- joining weights ----------------------------------------------------------------------------


def _joined(builder: BlockBuilder, parts: Sequence[Atom], axis: int) -> Atom:
    known = _joined_constants(parts, axis)
    return builder.emit(Concatenate(axis), *parts) if known is None else known


def _joined_constants(parts: Sequence[Atom], axis: int) -> Constant | None:
    constants = [part for part in parts if isinstance(part, Constant)]
    if len(constants) < len(parts):
        return None
    source = merge_all(constant.origin for constant in constants)
    return Constant(np.concatenate([constant.data for constant in constants], axis), source)


def _joined_channels(
    parts: Sequence[Atom], axis: int, rank: int, extents: Sequence[int]
) -> Atom | None:
    """Constants that broadcast against the branches, as one that does against the whole; None where
    there is none."""
    types: list[Any] = [part.type for part in parts]
    behind = rank - axis
    spans = [given.rank >= behind and given.shape[given.rank - behind] != 1 for given in types]
    if len({atom_key(part) for part in parts}) == 1 and not any(spans):
        return parts[0]
    aligned: list[Atom] = []
    for part, extent in zip(parts, extents, strict=True):
        if not isinstance(part, Constant):
            return None
        data = part.data.reshape((1,) * (rank - part.data.ndim) + part.data.shape)
        shape = (*data.shape[:axis], extent, *data.shape[axis + 1 :])
        aligned.append(replace(part, data=np.broadcast_to(data, shape), _digest=""))
    others = {np.delete(np.array(item.data.shape), axis).tobytes() for item in aligned
              if isinstance(item, Constant)}
    if len(others) > 1:
        return None
    joined = _joined_constants(aligned, axis)
    assert joined is not None
    leading = next((i for i, extent in enumerate(joined.data.shape) if extent != 1), axis)
    start = min(leading, axis)
    return Constant(joined.data.reshape(joined.data.shape[start:]), joined.origin)
