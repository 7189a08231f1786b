"""Knobs of recipes: by default they change nothing; every value of them gives the same values."""

import numpy as np
import pytest

from minitvm import te
from minitvm.codegen.jit import build_kernel
from minitvm.errors import ScheduleError
from minitvm.relay.ops.nn.conv2d import Conv2d
from minitvm.target import Target
from minitvm.te.recipes.knobs import decide, deciding
from minitvm.tir.passes import lower

HOST = Target.host()
LANES = HOST.lanes("float32")


def test_a_knob_is_the_default_unless_it_is_decided():
    assert decide("tile", 3, [1, 2, 3]) == 3
    with deciding() as met:
        assert decide("tile", 3, [1, 2, 3]) == 3
    assert met.knobs["tile"].alternatives == (3, 1, 2)
    with deciding({"tile": 2}):
        assert decide("tile", 3, lambda: [1, 2, 3]) == 2
    assert decide("tile", 3, [1, 2]) == 3


def test_alternatives_are_not_computed_unless_they_are_asked_for():
    assert decide("tile", 3, lambda: 1 / 0) == 3


def test_a_value_that_is_not_legal_is_refused():
    with deciding({"tile": 9}), pytest.raises(ScheduleError, match=r"'tile' can't be 9 here.*3, 1"):
        decide("tile", 3, [1])


def test_two_knobs_of_a_name_are_refused():
    with deciding(), pytest.raises(ScheduleError, match="two knobs called 'tile'"):
        decide("tile", 3, [1])
        decide("tile", 3, [2])


def convolution(window, groups=1):
    """A convolution of small integers, its wanted result and how to schedule and run it."""
    op = Conv2d(padding=window // 2, groups=groups, data_layout=f"NCHW{LANES}c",
                kernel_layout=f"OIHW{LANES}i{LANES}o" if groups == 1 else f"OIHW1i{LANES}o")
    random = np.random.default_rng(window)
    blocks = 7 if groups == 1 else 2
    filters = (blocks, 2, window, window, LANES, LANES) if groups == 1 else (
        blocks, 1, window, window, 1, LANES)
    data = random.integers(-4, 5, (1, 2, 6, 6, LANES)).astype(np.float32)
    weight = random.integers(-4, 5, filters).astype(np.float32)
    inputs = [te.placeholder(array.shape, "float32") for array in (data, weight)]
    conv = op.compute(*inputs)
    out = te.compute(conv.extents(), lambda *i: conv[i] * 2)

    def run(values):
        with deciding(values) as met:
            s = te.create_schedule([out])
            op.schedule(s, conv, out, HOST)
        got = np.zeros(out.extents(), np.float32)
        build_kernel(lower(te.lower(s, [*inputs, out], name="kernel")), HOST)(data, weight, got)
        return got, met.knobs, s.steps

    return run, op.evaluate(data, weight) * 2


@pytest.mark.parametrize(("window", "groups", "names"), [
    (1, 1, {"tile", "outer", "unroll_channels", "prefetch"}),
    (3, 1, {"padding", "tile", "rows", "unroll_kernel", "unroll_channels", "prefetch"}),
    (3, 2 * LANES, {"points", "unroll_rows"})])
def test_every_value_of_a_knob_computes_the_same(window, groups, names):
    run, wanted = convolution(window, groups)
    got, knobs, default = run({})
    np.testing.assert_array_equal(got, wanted)
    assert set(knobs) == names
    for knob in knobs.values():
        for value in (*knob.alternatives[1:4], knob.alternatives[-1]):
            got, _, steps = run({knob.name: value})
            np.testing.assert_array_equal(got, wanted, err_msg=f"{knob.name} {value}")
            assert steps != default or value == knob.default
