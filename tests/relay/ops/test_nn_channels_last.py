"""NHWC: convolutions and pools give what they give for NCHW, with the axes in another order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from semantics import check

import minitvm
from minitvm import relay
from minitvm.relay.ops.nn import AvgPool2d, Conv2d, GlobalAvgPool2d, GlobalMaxPool2d, MaxPool2d

LAST = (0, 2, 3, 1)
KERNELS = {"OIHW": (0, 1, 2, 3), "HWIO": (2, 3, 1, 0)}


def small(seed: int, shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(seed).integers(-3, 4, shape).astype("float32")


windows = st.fixed_dictionaries({
    "strides": st.tuples(st.integers(1, 2), st.integers(1, 3)),
    "padding": st.tuples(*[st.integers(0, 2)] * 4),
    "dilation": st.tuples(st.integers(1, 2), st.integers(1, 2)),
})


@given(windows, st.integers(0, 2**32 - 1), st.sampled_from([(1, 3, 2), (2, 2, 1), (3, 1, 1)]),
       st.sampled_from(list(KERNELS)), st.sampled_from(["NCHW", "NHWC"]))
def test_convolutions(window: Any, seed: int, groups: Any, kernel: str, data_layout: str) -> None:
    count, inputs, outputs = groups
    data = small(seed, (2, count * inputs, 6, 5))
    weight = small(seed + 1, (count * outputs, inputs, 2, 3))
    plain = Conv2d(groups=count, **window)
    assume(min(plain.window(2, 3).positions(6, 5)) > 0)
    wanted = plain.evaluate(data, weight)
    op = replace(plain, data_layout=data_layout, kernel_layout=kernel)
    order = LAST if data_layout == "NHWC" else (0, 1, 2, 3)
    got = check(op, data.transpose(order), weight.transpose(KERNELS[kernel]))
    np.testing.assert_array_equal(got, wanted.transpose(order))


@given(windows, st.integers(0, 2**32 - 1), st.booleans(), st.booleans())
def test_pools(window: Any, seed: int, ceil_mode: bool, include: bool) -> None:
    data = small(seed, (2, 3, 6, 5))
    for plain in (
        MaxPool2d((2, 3), ceil_mode=ceil_mode, **window),
        AvgPool2d((2, 3), ceil_mode=ceil_mode, count_include_pad=include, **window),
    ):
        assume(min(plain.window.positions(6, 5)) > 0)
        wanted = plain.evaluate(data)
        got = check(replace(plain, layout="NHWC"), data.transpose(LAST), ulp=1)
        np.testing.assert_array_equal(got, wanted.transpose(LAST))


@pytest.mark.parametrize("kind", [GlobalAvgPool2d, GlobalMaxPool2d])
def test_global_pools(kind: Any) -> None:
    data = small(0, (2, 3, 4, 8))
    wanted = kind().evaluate(data)
    got = check(kind(layout="NHWC"), data.transpose(LAST), ulp=1)
    np.testing.assert_array_equal(got, wanted.transpose(LAST))


def test_channels_last_reaches_machine_code() -> None:
    x = relay.var("x", shape=(1, 7, 6, 5))
    weight = relay.const(small(1, (3, 3, 5, 9)))
    y = relay.nn.conv2d(x, weight, padding=(1, 1, 1, 1), data_layout="NHWC", kernel_layout="HWIO")
    z = relay.nn.max_pool2d(relay.nn.relu(y), pool_size=(2, 2), layout="NHWC")
    module = relay.Module.from_expr(relay.Function([x], z))
    data = {"x": small(2, (1, 7, 6, 5))}
    for level in (0, 3):
        (got,) = minitvm.compile(module, opt_level=level).run(data).values()
        np.testing.assert_array_equal(got, relay.run(module, data)[0])
