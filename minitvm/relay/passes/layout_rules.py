"""Which operators can follow a packed layout, and what they then take and give.

An operator follows if it gives, from packed arguments, the packed form of its result. What says so:

    its own `follow_layout`        pooling, padding, convolutions, normalisation across channels,
                                   shuffles of channels, and pieces of whole blocks
    pieces of other channels       slices and concatenations become ones that move channels among
                                   blocks, where at least half of their lanes are channels
    pattern ELEMWISE, BROADCAST    all arguments packed alike; those that broadcast along channels
                                   get blocks of one (`NCHW1c`), scalars stay as they are
    pattern COMM_REDUCE            where it reduces along axes that are not blocked

The type rule then has the last word: the packed call must have the packed type. Where channels do
not fill their last block, the padding lanes of every packed tensor hold one finite number, which is
known: zero where a tensor was packed, and then what the operators make of it (a sigmoid one half,
which times zero is zero again). It is found by evaluating an operator on that number, with the
constants it is called with; one whose result is not the same finite number everywhere does not
follow. Operators that have a packed form of their own, with weights that are padded with zeros,
give zeros whatever finite numbers they see.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from minitvm.errors import TypeInferenceError
from minitvm.relay.dim import Dim
from minitvm.relay.infer import operator_type
from minitvm.relay.ir import Atom, Constant, TensorType
from minitvm.relay.layout import Axis, Layout, parse_layout
from minitvm.relay.op import LayoutChoice, Op, Pattern
from minitvm.relay.ops.join import Concatenate, StridedSlice
from minitvm.relay.ops.nn.channels import ConcatenateChannels, SliceChannels, is_in_blocks


@dataclass(frozen=True, slots=True)
class Form:
    """How an argument is wanted: with `expand` leading dimensions of 1, then in `layout`."""

    layout: Layout
    expand: int = 0


@dataclass(frozen=True, slots=True)
class Followed:
    """The call to make instead: operator, the form of each argument (None: plain), the layout of
    its result, and the number in the padding lanes of that, if it has any."""

    op: Op
    forms: tuple[Form | None, ...]
    result: Layout
    padding: float | int = 0


@dataclass(frozen=True, slots=True)
class Given:
    """How an argument exists: its layout, and the number in its padding lanes."""

    layout: Layout
    padding: float | int = 0


def follow(
    op: Op, arguments: Sequence[Atom], packed: Mapping[int, Given], result: TensorType
) -> tuple[Followed | None, str]:
    """How `op` follows, where argument i comes as `packed[i]`; else None and why not."""
    types = [given for argument in arguments if isinstance(given := argument.type, TensorType)]
    if len(types) < len(arguments):
        return None, f"{op.name} has an argument that is no tensor"
    candidate = _candidate(op, types, {i: given.layout for i, given in packed.items()}, result)
    if candidate is None:
        return None, f"{op.name} does not take packed arguments"
    if packed_type(candidate, types, result) is None:
        return None, f"{op.name} gives something else from packed arguments"
    if clears_padding(op) or not is_padded(candidate.result, result.shape):
        return candidate, ""
    padding = padding_of(candidate, arguments, packed)
    if padding is None:
        return None, f"{op.name} may fill padded channels with infinite or different numbers"
    return replace(candidate, padding=padding), ""


def clears_padding(op: Op) -> bool:
    """Whether the operator gives zeros in padding lanes, whatever its arguments have there; or it
    answers `alter_layout`: then zeros in the padding of its arguments, its weights among them, give
    zeros in that of its result by construction."""
    return op.clears_padding or type(op).alter_layout is not Op.alter_layout


def is_padded(layout: Layout, shape: Sequence[Dim]) -> bool:
    """Whether a tensor of this logical shape has padding in `layout`."""
    return any(
        extent % layout.block(name) != 0
        for name, extent in zip(layout.logical, shape, strict=True)
        if layout.block(name) > 1
    )


def from_choice(choice: LayoutChoice) -> Followed | None:
    """An operator's own answer; None where its result is plain and nothing needs following."""
    if choice.result is None:
        return None
    return Followed(choice.op, forms_of(choice), parse_layout(choice.result))


def forms_of(choice: LayoutChoice) -> tuple[Form | None, ...]:
    """The form of each argument of an operator's own answer."""
    return tuple(None if text is None else Form(parse_layout(text)) for text in choice.arguments)


def _candidate(
    op: Op, types: Sequence[Any], packed: Mapping[int, Layout], result: TensorType
) -> Followed | None:
    layouts = tuple(str(packed[i]) if i in packed else None for i in range(len(types)))
    choice = op.follow_layout(tuple(types), layouts)
    if choice is not None:
        return from_choice(choice)
    if (choice := _cut_blocks(op, types, layouts, result)) is not None:
        return from_choice(choice)
    if op.pattern in (Pattern.ELEMWISE, Pattern.BROADCAST):
        return _elementwise(op, types, packed, result)
    if op.pattern is Pattern.COMM_REDUCE and len(types) == 1:
        return _reduction(op, types[0].rank, packed[0])
    return None


# --- pieces that begin or end within blocks -----------------------------------------------------


def _cut_blocks(
    op: Op, types: Sequence[TensorType], layouts: Sequence[str | None], result: TensorType
) -> LayoutChoice | None:
    """Images in blocks of channels, cut or joined along the channels alone."""
    text = next(text for text in layouts if text is not None)
    if not isinstance(op, StridedSlice | Concatenate) or not is_in_blocks(text):
        return None
    if any(given.rank != 4 or _is_wasteful(text, given) for given in (*types, result)):
        return None
    match op:
        case StridedSlice() if (taken := _channels_taken(op, types[0])) is not None:
            return LayoutChoice(SliceChannels(taken.start, len(taken), text), (text,), text)
        case Concatenate(axis) if axis in (1, -3):
            sizes = tuple(given.extents()[1] for given in types)
            return LayoutChoice(ConcatenateChannels(sizes, text), (text,) * len(types), text)
    return None


def _is_wasteful(text: str, given: TensorType) -> bool:
    """Whether less than half of the lanes would be channels."""
    layout, channels = parse_layout(text), given.shape[1]
    block = layout.block("C")
    return not isinstance(channels, int) or 2 * channels < -(-channels // block) * block


def _channels_taken(op: StridedSlice, given: TensorType) -> range | None:
    """The channels of a slice in steps of one, if it takes all else whole."""
    ranges = op.ranges(given)
    whole = all(axis == 1 or taken == range(given.extents()[axis])
                for axis, taken in ranges.items())
    taken = ranges.get(1, range(0))
    return taken if whole and taken and taken.step == 1 else None


# --- elementwise and broadcasting ---------------------------------------------------------------


def _elementwise(
    op: Op, types: Sequence[TensorType], packed: Mapping[int, Layout], result: TensorType
) -> Followed | None:
    if any(item.name in ("axis", "axes") for item in fields(op)):
        return None
    leading = next(
        (layout for i, layout in packed.items() if _spans(layout, types[i], result)), None
    )
    if leading is None:
        return None
    forms = tuple(_argument_form(given, leading, result) for given in types)
    return Followed(op, forms, leading)


def _spans(layout: Layout, given: TensorType, result: TensorType) -> bool:
    """Whether an argument has all the channels of the result, so that its layout can be taken."""
    return given.rank == result.rank == len(layout.logical) and all(
        layout.block(name) == 1 or a == b
        for name, a, b in zip(layout.logical, given.shape, result.shape, strict=True)
    )


def _argument_form(given: TensorType, leading: Layout, result: TensorType) -> Form | None:
    """An argument aligned with the last axes of the result, and blocked as `leading` is."""
    if all(extent == 1 for extent in given.shape):
        return None
    first_blocked = min(
        position for position, name in enumerate(leading.logical) if leading.block(name) > 1
    )
    expand = max(result.rank - first_blocked - given.rank, 0)
    shape = (1,) * expand + given.shape
    start = result.rank - len(shape)
    extents = dict(zip(leading.logical[start:], shape, strict=True))
    whole = dict(zip(leading.logical, result.shape, strict=True))
    axes = tuple(
        Axis(axis.name, 1) if axis.block and extents[axis.name] != whole[axis.name] else axis
        for axis in leading.axes
        if axis.name in extents
    )
    return Form(Layout(axes), expand)


# --- reductions ---------------------------------------------------------------------------------


def _reduction(op: Any, rank: int, layout: Layout) -> Followed | None:
    names = {item.name for item in fields(op)}
    if not {"axis", "keepdims"} <= names or "exclude" in names or op.axis is None:
        return None
    given = (op.axis,) if isinstance(op.axis, int) else op.axis
    gone = "".join(layout.logical[axis % rank] for axis in given)
    if any(layout.block(name) > 1 for name in gone):
        return None
    places = tuple(layout.axes.index(Axis(name)) for name in gone)
    moved = replace(op, axis=places[0] if isinstance(op.axis, int) else places)
    return Followed(moved, (Form(layout),), layout if op.keepdims else layout.without(gone))


# --- the last word ------------------------------------------------------------------------------


def packed_type(
    followed: Followed, types: Sequence[TensorType], result: TensorType
) -> TensorType | None:
    """The type of the packed call, if that is the packed form of `result`; else None."""
    if len(followed.result.logical) != result.rank:
        return None
    wanted = TensorType(followed.result.pack_shape(result.shape), result.dtype)
    given = tuple(
        TensorType(form_shape(form, item.shape), item.dtype)
        for form, item in zip(followed.forms, types, strict=True)
    )
    try:
        found = operator_type(followed.op, given)
    except TypeInferenceError:
        return None
    return wanted if found == wanted else None


def form_shape(form: Form | None, shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """The shape that a tensor of a logical shape has in a form."""
    if form is None:
        return shape
    return form.layout.pack_shape((1,) * form.expand + shape)


def padding_of(
    followed: Followed, arguments: Sequence[Atom], packed: Mapping[int, Given]
) -> float | int | None:
    """The number that the operator gives in padding lanes, if it is one and finite."""
    values = []
    for index, (form, argument) in enumerate(zip(followed.forms, arguments, strict=True)):
        given = argument.type
        assert isinstance(given, TensorType)
        varies = form is not None and any(axis.block > 1 for axis in form.layout.axes)
        if not varies and not isinstance(argument, Constant):
            return None
        if not all(isinstance(extent, int) for extent in given.shape):
            return None
        shape: Any = form_shape(form, given.shape)
        if varies:
            before = _argument_padding(form, packed.get(index))
            values.append(np.full(_one_block(followed.op, shape), before, given.dtype))
        else:
            assert isinstance(argument, Constant)
            values.append(argument.data.reshape(shape))
    with np.errstate(all="ignore"):
        found = followed.op.evaluate(*values)
    if not isinstance(found, np.ndarray) or not found.size:
        return None
    number: float | int = found.flat[0].item()
    return number if np.isfinite(number) and np.all(found == number) else None


def _argument_padding(form: Form | None, given: Given | None) -> float | int:
    """What the padding lanes of an argument hold in a form: zeros if it is packed for that."""
    return given.padding if given is not None and form == Form(given.layout) else 0


def _one_block(op: Op, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Every lane of a tensor of one number sees the same, so for an elementwise operator one is
    enough: the others are evaluated at the full shape."""
    return (1,) * len(shape) if op.pattern in (Pattern.ELEMWISE, Pattern.BROADCAST) else shape
