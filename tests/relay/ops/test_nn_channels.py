"""Channels that move among blocks: against their definition, packed against plain."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_nn_compute import computed

import minitvm.relay.ops  # noqa: F401  (registers the operators)
from minitvm.driver import compile
from minitvm.errors import TypeInferenceError
from minitvm.origin import origin
from minitvm.relay.build import BlockBuilder
from minitvm.relay.ir import Function, Module, TensorType, Var
from minitvm.relay.layout import pack, parse_layout, unpack
from minitvm.relay.op import Op
from minitvm.relay.ops.elementwise import Negative
from minitvm.relay.ops.nn import ChannelShuffle, ConcatenateChannels, SliceChannels
from minitvm.target import Target
from minitvm.testing.guarded import stray_access

FLOAT = "float32"
LANES = st.sampled_from([4, 8, 16])
TARGETS = [target for target in (Target.host(), *map(Target, (
    "llvm -mcpu=x86-64", "llvm -mcpu=x86-64-v3") if Target.host().isa == "x86_64" else ()))
    if target.is_host()]


def image(channels: int, seed: int = 0, batch: int = 2, rows: int = 2) -> np.ndarray:
    """All elements differ, and none is zero."""
    shape = (batch, channels, rows, 3)
    random = np.random.default_rng(seed).permutation(int(np.prod(shape)))
    return (random + 1).astype(FLOAT).reshape(shape)


def packed(data: np.ndarray, lanes: int) -> np.ndarray:
    """In blocks, with something in the padding lanes that no result may show."""
    found = pack(data, parse_layout(f"NCHW{lanes}c"))
    found[:, -1, :, :, lanes - -data.shape[1] % lanes :] = -7
    return found


def check(op: Op, lanes: int, wanted: np.ndarray, *arguments: np.ndarray) -> None:
    """Reference and compute give `wanted`, with zeros behind it."""
    layout = parse_layout(f"NCHW{lanes}c")
    types = tuple(TensorType(array.shape, FLOAT) for array in arguments)
    whole = unpack(pack(wanted, layout), layout)
    for result in (op.evaluate(*arguments), computed(op, *arguments)):
        assert isinstance(result, np.ndarray) and op.infer(*types).shape == result.shape
        np.testing.assert_array_equal(unpack(result, layout), whole)


@given(st.integers(1, 5), st.integers(1, 9), LANES)
def test_shuffles(groups: int, size: int, lanes: int) -> None:
    data, op = image(groups * size), ChannelShuffle(groups)
    order = [group * size + place for place in range(size) for group in range(groups)]
    wanted = data[:, order]
    np.testing.assert_array_equal(op.evaluate(data), wanted)
    np.testing.assert_array_equal(computed(op, data), wanted)
    choice = op.follow_layout((TensorType(data.shape, FLOAT),), (f"NCHW{lanes}c",))
    assert choice is not None
    check(choice.op, lanes, wanted, packed(data, lanes))


@given(st.data(), st.integers(1, 40), LANES)
def test_slices(draw: st.DataObject, channels: int, lanes: int) -> None:
    begin = draw.draw(st.integers(0, channels - 1))
    count = draw.draw(st.integers(1, channels - begin))
    data, op = image(channels), SliceChannels(begin, count, f"NCHW{lanes}c")
    check(op, lanes, data[:, begin : begin + count], packed(data, lanes))


@given(st.lists(st.integers(1, 20), min_size=1, max_size=4), LANES)
def test_concatenations(sizes: list[int], lanes: int) -> None:
    pieces = [image(size, seed) for seed, size in enumerate(sizes)]
    op = ConcatenateChannels(tuple(sizes), f"NCHW{lanes}c")
    check(op, lanes, np.concatenate(pieces, 1), *(packed(piece, lanes) for piece in pieces))


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.cpu)
@settings(max_examples=12)
@given(st.integers(1, 3), st.integers(1, 40), st.integers(2, 4), st.integers(0, 40),
       st.integers(1, 9))
def test_machine_code(
    target: Target, batch: int, size: int, groups: int, cut: int, rows: int
) -> None:
    """One kernel of all three and of what follows them, within its memory."""
    lanes = target.lanes(FLOAT)
    layout, channels = f"NCHW{lanes}c", size * groups
    data = image(channels + cut, 0, batch, rows), image(channels, 1, batch, rows)
    arrays = [packed(array, lanes) for array in data]
    params = [Var(name, TensorType(array.shape, FLOAT))
              for name, array in zip("xy", arrays, strict=True)]
    builder = BlockBuilder(origin("move"))
    piece = builder.emit(SliceChannels(cut, channels, layout), params[0])
    joined = builder.emit(ConcatenateChannels((channels, channels), layout), piece, params[1])
    shuffle = ChannelShuffle(groups, layout, 2 * channels)
    result = builder.emit(Negative(), builder.emit(shuffle, joined))
    module = Module({"main": Function(tuple(params), builder.finish(result), result.type)})
    compiled = compile(module, target=target)
    assert compiled.kernel_calls == 1 and not stray_access(compiled.kernels)
    inputs: dict[str, Any] = dict(zip("xy", arrays, strict=True))
    (got,) = compiled.run(inputs).values()
    plain = np.concatenate((data[0][:, cut:], data[1]), 1)
    np.testing.assert_array_equal(
        unpack(got, parse_layout(layout)),
        -unpack(pack(ChannelShuffle(groups).evaluate(plain), parse_layout(layout)),
                parse_layout(layout)))


def test_what_is_refused() -> None:
    data = TensorType((1, 2, 3, 3, 4), FLOAT)
    for op, given_types, fault in [
        (ChannelShuffle(3, "NCHW4c"), (data,), "8 channels are no 3 equal groups"),
        (ChannelShuffle(2, "NCHW4c", 4), (data,), "no 4 channels"),
        (ChannelShuffle(2, "NCHW4c", 9), (data,), "no 9 channels"),
        (SliceChannels(3, 6, "NCHW4c"), (data,), "no channels from 3 to 9"),
        (SliceChannels(3, 0, "NCHW4c"), (data,), "no channels from 3 to 3"),
        (ConcatenateChannels((5,), "NCHW4c"), (data, data), "1 sizes need as many"),
        (ConcatenateChannels((5, 9), "NCHW4c"), (data, data), "with 9 channels"),
        (ConcatenateChannels((), "NCHW4c"), (), "0 sizes need as many"),
    ]:
        with pytest.raises(TypeInferenceError, match=fault):
            op.infer(*given_types)
