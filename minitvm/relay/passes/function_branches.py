"""Functions known in the branches of an `if` -> one value known behind it, and the code for that.

    either(...)      an `if` whose branches end in such values: they are joined, and the `if` gives
                     the data of what they are joined to
    dispatch(...)    what holds for each option of a choice: branches over its tag
    packed(...)      the data of a value as one tuple, which a function or a branch can give

A slot that a branch has no use for is filled with what the other branch puts there, if that is
known outside of the branches, and with zeros otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from minitvm.origin import Origin
from minitvm.relay.build import BlockBuilder
from minitvm.relay.ir import (
    Binding,
    Block,
    Call,
    Constant,
    If,
    TensorType,
    Tuple,
    TupleGetItem,
    TupleType,
    Type,
    Var,
)
from minitvm.relay.ops.broadcast import Less
from minitvm.relay.ops.create import Zeros
from minitvm.relay.passes.known_functions import (
    TAG_TYPE,
    Choice,
    Closure,
    Data,
    Known,
    Named,
    Nothing,
    Option,
    Parts,
    children,
    data,
    joined,
    positions,
    shape,
    with_data,
)

Branch = Callable[[BlockBuilder], Known]
"""Writes a branch, and gives what it ends in."""


def either(binding: Binding, condition: Data, then: Branch, other: Branch, builder: BlockBuilder,
           wanted: Known | None = None) -> Known:
    """The value of an `if` in place of `binding`, of the shape of `wanted`."""
    inners = [BlockBuilder(binding.origin, parent=builder) for _ in range(2)]
    results = [branch(inner) for branch, inner in zip((then, other), inners, strict=True)]
    ends = [result for result in results if isinstance(result, Var | Constant)]
    if len(ends) == 2:
        blocks = [inner.finish(end) for inner, end in zip(inners, ends, strict=True)]
        return _emit(If(condition, *blocks), binding, builder)
    wanted = joined(*results) if wanted is None else wanted
    rows = [fitted(result, wanted, binding, inner)
            for result, inner in zip(results, inners, strict=True)]
    columns = list(zip(*rows, strict=True))
    kinds = [atom.type for atom in data(wanted)]
    around = [_around(column, inners) for column in columns]
    passed = [position for position, atom in enumerate(around) if atom is None]
    chosen = _emit(If(condition, *(
        _end(inner, [row[i] for i in passed], [kinds[i] for i in passed], binding.origin)
        for inner, row in zip(inners, rows, strict=True)
    )), binding, builder)
    items = iter([chosen] if len(passed) == 1 else unpacked(chosen, binding, builder))
    return with_data(wanted, iter([next(items) if atom is None else atom for atom in around]))


def _emit(value: If | Call | TupleGetItem | Tuple, binding: Binding, builder: BlockBuilder) -> Var:
    return builder.emit(value, origin=binding.origin, name=binding.var.name)


def _around(column: tuple[Data | None, ...], inners: Sequence[BlockBuilder]) -> Data | None:
    """The atom that data are whichever branch is taken, if it is known outside of them."""
    given = [(atom, inner) for atom, inner in zip(column, inners, strict=True) if atom is not None]
    if not given or any(inner.binds(atom) for atom, inner in given):
        return None
    first, last = given[0][0], given[-1][0]
    return first if first is last or _equal(first, last) else None


def _equal(left: Data, right: Data) -> bool:
    return (isinstance(left, Constant) and isinstance(right, Constant)
            and left.digest() == right.digest())


def _end(inner: BlockBuilder, row: Sequence[Data | None], kinds: Sequence[Type],
         origin: Origin) -> Block:
    if len(row) == 1:
        only = row[0]
        return inner.finish(_zeros(kinds[0], origin, inner) if only is None else only)
    return inner.finish(packed(row, kinds, origin, inner))


# --- tuples -------------------------------------------------------------------------------------


def packed(atoms: Sequence[Data | None], kinds: Sequence[Type], origin: Origin,
           builder: BlockBuilder) -> Var:
    """A tuple of atoms, with zeros for those that don't matter; a tuple that these are the fields
    of stays that tuple, which keeps tail calls."""
    whole = _same_tuple(atoms, builder)
    if whole is not None:
        return whole
    fields = [_zeros(kind, origin, builder) if atom is None else atom
              for atom, kind in zip(atoms, kinds, strict=True)]
    return builder.emit(Tuple(tuple(fields)), origin=origin)


def _same_tuple(atoms: Sequence[Data | None], builder: BlockBuilder) -> Var | None:
    """The tuple whose fields these atoms are, all of them and in order."""
    values = [None if atom is None else builder.value_of(atom) for atom in atoms]
    whole = values[0].tuple if values and isinstance(values[0], TupleGetItem) else None
    if not isinstance(whole, Var) or not isinstance(whole.type, TupleType):
        return None
    fields = [TupleGetItem(whole, index) for index in range(len(whole.type.fields))]
    return whole if values == fields else None


def unpacked(source: Var, binding: Binding, builder: BlockBuilder) -> list[Data]:
    """The fields of a tuple."""
    assert isinstance(source.type, TupleType)
    return [builder.emit(TupleGetItem(source, index), origin=binding.origin)
            for index in range(len(source.type.fields))]


def _zeros(kind: Type, origin: Origin, builder: BlockBuilder) -> Data:
    match kind:
        case TensorType(shape=extents, dtype=dtype):
            return builder.emit(Call(Zeros(extents, dtype), ()), origin=origin)
        case TupleType(fields):
            items = tuple(_zeros(item, origin, builder) for item in fields)
            return builder.emit(Tuple(items), origin=origin)
    raise AssertionError(f"{kind} is no data")


# --- choices ------------------------------------------------------------------------------------


def dispatch(choice: Choice, binding: Binding, builder: BlockBuilder,
             branch: Callable[[Option, BlockBuilder], Known], wanted: Known | None = None) -> Known:
    """The value, in place of `binding`, of what `branch` makes of the function that `choice` is."""

    def among(options: Sequence[Option], inner: BlockBuilder) -> Known:
        if len(options) == 1:
            return branch(options[0], inner)
        half = len(options) // 2
        bound = Constant(np.array(options[half].number, TAG_TYPE.dtype), binding.origin)
        test = inner.emit(Less(), choice.tag, bound, origin=binding.origin)
        return either(binding, test, lambda below: among(options[:half], below),
                      lambda above: among(options[half:], above), inner, wanted)

    return among(choice.resolved(), builder)


def fitted(known: Known, wanted: Known, binding: Binding,
           builder: BlockBuilder) -> list[Data | None]:
    """The data of `wanted` where it is `known`, which fits into it; None where they don't
    matter."""
    match known, wanted:
        case (Choice(), Choice()) if _same_layout(known, wanted):
            kinds = (slot.type for slot in known.slots)
            return [known.tag, *_placed(known.slots, positions(kinds, wanted.slots), wanted)]
        case Choice(), Choice():
            new = dispatch(known, binding, builder, lambda option, _: option, wanted)
            return [*data(new)]
        case (Named() | Closure(), Choice()):
            option = next(o for o in wanted.options if o.number == known.number)
            places = positions((atom.type for atom in data(option)), wanted.slots)
            atoms = fitted(known, option, binding, builder)
            tag = Constant(np.array(known.number, TAG_TYPE.dtype), binding.origin)
            return [tag, *_placed(atoms, places, wanted)]
        case (Closure(), Closure()) | (Parts(), Parts()):
            pairs = zip(children(known), children(wanted), strict=True)
            return [atom for part, whole in pairs
                    for atom in fitted(part, whole, binding, builder)]
        case (Var() | Constant(), _):
            return [known]
        case Nothing(), _:
            return [None for _ in data(wanted)]
    return []


def _same_layout(known: Choice, wanted: Choice) -> bool:
    """Whether the options of a choice lie in its slots as they do in those of the other."""
    shapes = {option.number: shape(option) for option in wanted.options}
    return all(shapes[option.number] == shape(option) for option in known.options)


def _placed(atoms: Sequence[Data | None], places: Sequence[int],
            wanted: Choice) -> list[Data | None]:
    slots: list[Data | None] = [None for _ in wanted.slots]
    for atom, place in zip(atoms, places, strict=True):
        slots[place] = atom
    return slots
