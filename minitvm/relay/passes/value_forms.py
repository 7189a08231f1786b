"""A block -> the block with some values in another form, such as packed or transposed.

The walk that passes over layouts share. A pass keeps, for each block, the forms in which values
exist (`Forms`), and adds what it has a form for; every other value, and the result of the block,
gets what it reads in plain form. The types of bindings that stay don't change.
"""

from __future__ import annotations

from typing import Protocol, Self

from minitvm.origin import Origin
from minitvm.relay.build import BlockBuilder
from minitvm.relay.ir import Atom, Binding, Block, Function, If, Value, Var, atoms, map_atoms


class Forms(Protocol):
    """One block being rewritten: the forms in which each value exists."""

    builder: BlockBuilder

    def inner(self) -> Self:
        """The forms of a nested block, which knows those so far."""

    def adds(self, binding: Binding) -> bool:
        """Adds a binding in a form of its own; says whether there is one."""

    def plain_atom(self, atom: Atom, origin: Origin) -> Atom:
        """A value in plain form, converted where it does not exist in it yet."""

    def computed_at(self, atom: Atom) -> Origin | None:
        """The origin of a value that was computed in another form, None for others."""


def rewrite_block(block: Block, forms: Forms) -> Block:
    """The block rewritten; the same object where nothing changes."""
    builder = forms.builder
    for binding in block.bindings:
        if not forms.adds(binding):
            value = _with_plain_atoms(_with_blocks(binding.value, forms), forms, binding.origin)
            same = value is binding.value
            builder.append(binding if same else Binding(binding.var, value, binding.origin))
    place = forms.computed_at(block.result)
    result = forms.plain_atom(block.result, builder.origin if place is None else place)
    same = result is block.result and len(builder.bindings) == len(block.bindings)
    if same and all(a is b for a, b in zip(builder.bindings, block.bindings, strict=True)):
        return block
    return builder.finish(result)


def _with_blocks(value: Value, forms: Forms) -> Value:
    match value:
        case If(condition, then_block, else_block):
            new = [rewrite_block(block, forms.inner()) for block in (then_block, else_block)]
            same = new[0] is then_block and new[1] is else_block
            return value if same else If(condition, *new)
        case Function(_, body):
            return value.with_body(rewrite_block(body, forms.inner()))
        case _:
            return value


def _with_plain_atoms(value: Value, forms: Forms, origin: Origin) -> Value:
    """The value with each of its own variables in plain form."""
    mapping = {atom: forms.plain_atom(atom, origin)
               for atom in atoms(value) if isinstance(atom, Var)}
    changed = {old: new for old, new in mapping.items() if new is not old}
    return map_atoms(value, changed) if changed else value
