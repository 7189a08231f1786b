"""The rules of `SimplifyExpr`, by the kind of operator.

Every rule is exact: it gives the same bits for every input, NaN (whatever its payload), infinities,
signed zeros and subnormals included, integers that wrap too. The one freedom taken is that of
`maximum`, `minimum` and `clip`, which may give either zero where they compare 0.0 with -0.0. So
x + 0.0 stays (it makes 0.0 of -0.0), x * 0.0 stays (NaN), and floats are never re-associated.
"""

from __future__ import annotations

import math

from minitvm import dtypes
from minitvm.relay.ir import Call, Value
from minitvm.relay.ops.elementwise import Cast, Clip
from minitvm.relay.ops.join import StridedSlice
from minitvm.relay.ops.layout_transform import LayoutTransform
from minitvm.relay.ops.nn.channels import ChannelShuffle
from minitvm.relay.ops.transform import Reshape, Transpose
from minitvm.relay.passes.patterns import Match, Rule

# --- arithmetic ---------------------------------------------------------------------------------


def _integers(match: Match) -> bool:
    return not match.is_float


def _floats(match: Match) -> bool:
    return match.is_float


ARITHMETIC = (
    Rule("add(x, 0)", "x", "integers; 0.0 would turn -0.0 into 0.0", _integers),
    Rule("add(0, x)", "x", "integers", _integers),
    Rule("add(x, -0.0)", "x", "floats", _floats),
    Rule("add(-0.0, x)", "x", "floats", _floats),
    Rule("subtract(x, 0)", "x", "any number; not -0.0"),
    Rule("multiply(x, 1)", "x", "any number"),
    Rule("multiply(1, x)", "x", "any number"),
    Rule("divide(x, 1)", "x", "any number"),
    Rule("power(x, 1)", "x", "any number"),
    Rule("negative(negative(x))", "x", "any number; the least integer is its own negative"),
    Rule("maximum(x, x)", "x", "any"),
    Rule("minimum(x, x)", "x", "any"),
    Rule("logical_not(logical_not(x))", "x", "bool"),
    Rule("logical_and(x, x)", "x", "bool"),
    Rule("logical_or(x, x)", "x", "bool"),
    Rule("bitwise_not(bitwise_not(x))", "x", "integers"),
    Rule("where(c, x, x)", "x", "any"),
    Rule("copy(x)", "x", "any"),
)


def _inner(match: Match) -> Value:
    """The inner call alone: the outer one changes nothing more."""
    return Call(match.operators[1], (match.source,))


IDEMPOTENT = tuple(
    Rule(f"{name}({name}(x))", _inner, "any")
    for name in ("abs", "sign", "floor", "ceil", "round", "trunc", "nn.relu")
)


# --- clip ---------------------------------------------------------------------------------------


def _clip(match: Match, position: int) -> Clip:
    found = match.operators[position]
    assert isinstance(found, Clip)
    return found


def _bounds(clip: Clip) -> tuple[float, float]:
    low = -math.inf if clip.a_min is None else clip.a_min
    return low, math.inf if clip.a_max is None else clip.a_max


def _no_bound_is_nan(match: Match) -> bool:
    clips = [op for op in match.operators if isinstance(op, Clip)]
    return not any(math.isnan(bound) for clip in clips for bound in _bounds(clip))


def _one_clip(match: Match) -> Value:
    """max distributes over min: min(max(min(max(x, a), b), c), d) is
    min(max(x, max(a, c)), min(max(b, c), d)), for any bounds, crossed ones too."""
    (c, d), (a, b) = _bounds(_clip(match, 0)), _bounds(_clip(match, 1))
    low, high = max(a, c), min(max(b, c), d)
    return Call(
        Clip(None if low == -math.inf else low, None if high == math.inf else high), (match.source,)
    )


def _outer_holds_negatives_back(match: Match) -> bool:
    low = _clip(match, 0).a_min
    return low is not None and low >= 0


def _inner_gives_no_negatives(match: Match) -> bool:
    low, high = _bounds(_clip(match, 1))
    return low >= 0 and high >= 0


def _outer_on_source(match: Match) -> Value:
    return Call(match.operators[0], (match.source,))


CLIP = (
    Rule("clip(clip(x))", _one_clip, "bounds that are no NaN", _no_bound_is_nan),
    Rule("clip(nn.relu(x))", _outer_on_source, "a_min >= 0", _outer_holds_negatives_back),
    Rule("nn.relu(clip(x))", _inner, "a_min >= 0 and a_max >= 0", _inner_gives_no_negatives),
)


# --- casts --------------------------------------------------------------------------------------

_MANTISSA_BITS = {"float16": 11, "float32": 24, "float64": 53}


def is_lossless(source: str, target: str) -> bool:
    """Whether every value of one dtype is a value of the other."""
    if source == target or dtypes.is_bool(source):
        return True
    if dtypes.is_bool(target):
        return False
    if dtypes.is_float(source):
        return dtypes.is_float(target) and dtypes.bits(source) <= dtypes.bits(target)
    low, high = dtypes.integer_range(source)
    if dtypes.is_float(target):
        return high < 1 << _MANTISSA_BITS[target]
    target_low, target_high = dtypes.integer_range(target)
    return target_low <= low and high <= target_high


def _inner_cast_is_lossless(match: Match) -> bool:
    """And floats are not turned into integers that may not hold them: what that gives is not
    defined, and may depend on the dtype of the float."""
    outer, inner = match.operators
    assert isinstance(outer, Cast) and isinstance(inner, Cast)
    source = match.source_type.dtype
    risky = dtypes.is_float(inner.dtype) and dtypes.is_int(outer.dtype)
    return is_lossless(source, inner.dtype) and (not risky or is_lossless(source, outer.dtype))


CASTS = (
    Rule("cast(x)", "x", "to the same dtype"),
    Rule(
        "cast(cast(x))", _outer_on_source, "the inner one loses nothing", _inner_cast_is_lossless
    ),
)


# --- shapes -------------------------------------------------------------------------------------


def _one_reshape(match: Match) -> Value:
    if match.source_type == match.type:
        return match.source
    return Call(Reshape(match.type.shape), (match.source,))


_VIEWS = ("reshape", "expand_dims", "squeeze")

VIEWS = (
    *(Rule(f"{name}(x)", "x", "to the same shape") for name in _VIEWS),
    *(
        Rule(f"{outer}({inner}(x))", _one_reshape, "any")
        for outer in _VIEWS
        for inner in _VIEWS
    ),
)


def _order(match: Match, position: int) -> tuple[int, ...]:
    found = match.operators[position]
    assert isinstance(found, Transpose)
    return found.order(match.type.rank)


def _one_transpose(match: Match) -> Value:
    outer, inner = _order(match, 0), _order(match, 1)
    return Call(Transpose(tuple(inner[axis] for axis in outer)), (match.source,))


def _moves_units_only(match: Match) -> bool:
    long = [axis for axis in _order(match, 0) if match.source_type.shape[axis] != 1]
    return long == sorted(long)


def _groups(match: Match) -> int:
    """In how many groups of channels of an image the outer axes of a reshape are transposed and put
    together again; 0 if something else is done."""
    transpose, inner = match.operators[1:]
    assert isinstance(transpose, Transpose) and isinstance(inner, Reshape)
    image = match.source_type
    split = inner.shape(image)
    if image.rank != 4 or match.type.shape != image.shape or len(split) < 3:
        return 0
    groups, size = split[1:3]
    if split[0] != image.shape[0] or groups * size != image.shape[1]:
        return 0
    swapped = (0, 2, 1, *range(3, len(split)))
    return groups if isinstance(groups, int) and transpose.order(len(split)) == swapped else 0


def _channel_shuffle(match: Match) -> Value:
    return Call(ChannelShuffle(_groups(match)), (match.source,))


TRANSPOSES = (
    Rule(
        "reshape(transpose(reshape(x)))",
        _channel_shuffle,
        "channels of an image are shuffled",
        lambda match: _groups(match) > 1,
    ),
    Rule("transpose(transpose(x))", _one_transpose, "any"),
    Rule("transpose(x)", _one_reshape, "only axes of extent 1 move", _moves_units_only),
)


def _takes_all(match: Match) -> bool:
    found = match.operators[0]
    assert isinstance(found, StridedSlice)
    cuts = found.ranges(match.source_type)
    return all(positions == range(len(positions)) for positions in cuts.values())



PIECES = (
    Rule("concatenate(x)", "x", "any"),
    Rule("strided_slice(x)", "x", "all positions in order", _takes_all),
    Rule("broadcast_to(x)", "x", "to the same shape"),
    Rule("tile(x)", "x", "once"),
    Rule("repeat(x)", "x", "once"),
)


# --- layouts ------------------------------------------------------------------------------------


def _one_layout_transform(match: Match) -> Value | None:
    """Padding that the inner one adds and the outer one drops cancels. Padding that the inner one
    drops comes back as zeros, which the source's may not be: then the combined one stays."""
    outer, inner = match.operators
    assert isinstance(outer, LayoutTransform) and isinstance(inner, LayoutTransform)
    between = inner.infer(match.source_type)
    if outer.logical_shape(between.shape) != inner.logical_shape(match.source_type.shape):
        return None
    extents = inner.logical_shape(match.source_type.shape).values()
    drops_padding = math.prod(extents) != math.prod(match.source_type.shape)
    if inner.src_layout == outer.dst_layout and not drops_padding:
        return match.source
    return Call(
        LayoutTransform(inner.src_layout, outer.dst_layout, inner.shape), (match.source,)
    )


def _layout_of_transposed(match: Match) -> Value | None:
    """A transform of transposed axes reads the axes as they were."""
    outer, order = match.operators[0], _order(match, 1)
    assert isinstance(outer, LayoutTransform)
    if outer.source.is_packed():
        return None
    places = [order.index(axis) for axis in range(len(order))]
    letters = "".join(outer.src_layout[place] for place in places)
    shape = tuple(outer.shape[place] for place in places) if outer.shape else ()
    return _layout_transform(match, letters, outer.dst_layout, shape)


def _transposed_layout(match: Match) -> Value | None:
    """A transpose of a transform to whole axes is a transform to other ones."""
    inner, order = match.operators[1], _order(match, 0)
    assert isinstance(inner, LayoutTransform)
    if inner.target.is_packed():
        return None
    letters = "".join(inner.dst_layout[axis] for axis in order)
    return _layout_transform(match, inner.src_layout, letters, inner.shape)


def _layout_transform(
    match: Match, source: str, target: str, shape: tuple[int, ...]
) -> Value:
    if source == target and not shape:
        return match.source
    return Call(LayoutTransform(source, target, shape), (match.source,))


LAYOUTS = (
    Rule("layout_transform(transpose(x))", _layout_of_transposed, "the source is not packed"),
    Rule("transpose(layout_transform(x))", _transposed_layout, "the result is not packed"),
    Rule(
        "layout_transform(layout_transform(x))",
        _one_layout_transform,
        "both mean the same logical shape",
    ),
)

RULES: tuple[Rule, ...] = (
    *ARITHMETIC, *IDEMPOTENT, *CLIP, *CASTS, *VIEWS, *TRANSPOSES, *PIECES, *LAYOUTS
)
