"""Layouts: parsing, shapes, packing and unpacking, against index arithmetic done by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitvm.errors import OptionError, TypeInferenceError
from minitvm.relay.infer import operator_type
from minitvm.relay.ir import TensorType
from minitvm.relay.layout import Layout, keeps_order, pack, parse_layout, transform, unpack
from minitvm.relay.ops.layout_transform import LayoutTransform

LAYOUTS = ("NCHW", "NCHW4c", "NCHW8c", "NCHW16c", "NHWC", "CHWN", "NHWC8c", "NCHW2c3h")


@st.composite
def tensors(draw: st.DrawFn) -> np.ndarray:
    shape = draw(st.tuples(st.integers(1, 2), st.sampled_from([1, 3, 5, 8, 24]),
                           st.integers(1, 4), st.integers(1, 3)))
    return np.arange(1, np.prod(shape) + 1, dtype="float32").reshape(shape)


def in_order(array: np.ndarray, layout: Layout) -> np.ndarray:
    """An NCHW array with its axes in the logical order of `layout`."""
    return array.transpose(["NCHW".index(name) for name in layout.logical])


@given(tensors(), st.sampled_from(LAYOUTS))
def test_each_element_lies_where_split_says_and_the_rest_is_zero(
    array: np.ndarray, text: str
) -> None:
    layout = parse_layout(text)
    packed = pack(in_order(array, layout), layout)
    shape = dict(zip("NCHW", array.shape, strict=True))
    assert packed.shape == layout.pack_shape([shape[name] for name in layout.logical])
    for index in np.ndindex(array.shape):
        place = layout.split(dict(zip("NCHW", index, strict=True)))
        assert packed[place] == array[index]
        assert layout.join(place) == dict(zip("NCHW", index, strict=True))
    assert np.count_nonzero(packed) == array.size


@given(tensors(), st.sampled_from(LAYOUTS), st.sampled_from(LAYOUTS))
def test_transforms_there_and_back_and_through_a_third_layout_agree(
    array: np.ndarray, first: str, second: str
) -> None:
    source, target, plain = (parse_layout(text) for text in (first, second, "NCHW"))
    packed = pack(in_order(array, source), source)
    shape = in_order(array, source).shape
    direct = transform(packed, source, target, shape)
    np.testing.assert_array_equal(direct, pack(in_order(array, target), target))
    back_shape = in_order(array, target).shape
    np.testing.assert_array_equal(transform(direct, target, plain, back_shape), array)


@pytest.mark.parametrize(
    "text", ["", "N16c", "NCHW0c", "NNHW", "NCHW8c8c", "NC-HW", "nchw", "NCHW8"]
)
def test_what_is_no_layout_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="is no layout"):
        parse_layout(text)


def test_a_layout_prints_as_it_was_written() -> None:
    for text in (*LAYOUTS, "OIHW16i16o", "OIHW1i16o", "NK16n"):
        assert str(parse_layout(text)) == text


def test_blocks_of_one_add_an_axis_and_nothing_else() -> None:
    array = np.arange(6.0).reshape(1, 1, 2, 3)
    packed = pack(array, parse_layout("NCHW1c"))
    assert packed.shape == (1, 1, 2, 3, 1)
    np.testing.assert_array_equal(unpack(packed, parse_layout("NCHW1c")), array)


def test_weights_in_two_blocks_lie_inputs_before_outputs() -> None:
    weight = np.arange(5 * 6.0).reshape(5, 6, 1, 1)
    packed = pack(weight, parse_layout("OIHW4i4o"))
    assert packed.shape == (2, 2, 1, 1, 4, 4)
    assert packed[1, 1, 0, 0, 1, 0] == weight[4, 5, 0, 0]
    assert packed[1, 0, 0, 0, 0, 1] == 0


@pytest.mark.parametrize(
    ("op", "shape", "message"),
    [
        (LayoutTransform("NCHW", "NHW"), (1, 2, 3, 4), "must have the same axes"),
        (LayoutTransform("NCHW4c", "NCHW"), (1, 2, 3, 4, 8), "does not fit the layout NCHW4c"),
        (LayoutTransform("NCHW4c", "NCHW", (1, 9, 3, 4)), (1, 2, 3, 4, 4), "is no NCHW4c of it"),
        (LayoutTransform("NCHW4", "NCHW"), (1, 2, 3, 4), "is no layout"),
    ],
)
def test_ill_typed_transforms(op: LayoutTransform, shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(TypeInferenceError, match=message):
        operator_type(op, (TensorType(shape, "float32"),))


@given(tensors(), st.sampled_from(LAYOUTS), st.sampled_from(LAYOUTS))
def test_the_operator_has_the_type_it_says(array: np.ndarray, first: str, second: str) -> None:
    source = parse_layout(first)
    logical = in_order(array, source)
    op = LayoutTransform(first, second, logical.shape if source.is_packed() else ())
    packed = pack(logical, source)
    result = op.evaluate(packed)
    found = operator_type(op, (TensorType(packed.shape, "float32"),))
    assert found == TensorType(result.shape, "float32")


@given(
    tensors(), st.sampled_from(LAYOUTS), st.sampled_from(LAYOUTS), st.booleans(), st.booleans()
)
def test_what_keeps_the_order_is_a_reshape(
    array: np.ndarray, first: str, second: str, one_row: bool, one_column: bool
) -> None:
    array = array[:, :, : 1 if one_row else None, : 1 if one_column else None]
    source, target = parse_layout(first), parse_layout(second)
    packed, wanted = pack(in_order(array, source), source), pack(in_order(array, target), target)
    same = packed.size == wanted.size == array.size and bool(
        np.array_equal(packed.ravel(), wanted.ravel())
    )
    assert keeps_order(source, target, dict(zip("NCHW", array.shape, strict=True))) <= same


def test_channels_of_single_pixels_keep_their_order() -> None:
    plain, packed = parse_layout("NCHW"), parse_layout("NCHW8c")
    extents = {"N": 2, "C": 16, "H": 1, "W": 1}
    assert keeps_order(plain, packed, extents) and keeps_order(packed, plain, extents)
    assert not keeps_order(packed, plain, {**extents, "W": 2})
    assert not keeps_order(packed, plain, {**extents, "C": 15})
    assert keeps_order(plain, parse_layout("NCHW1c"), {"N": 2, "C": 3, "H": 4, "W": 5})
