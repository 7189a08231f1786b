"""Register tiles: those that the recipes of convolutions choose fit the registers."""

import numpy as np
import pytest

from minitvm import te
from minitvm.codegen.jit import build_kernel
from minitvm.relay.ops.nn.conv2d import Conv2d
from minitvm.target import Target
from minitvm.te.recipes.tiles import choose_rows, choose_tile
from minitvm.tir.passes import lower

WIDE, NARROW = Target("llvm -mcpu=x86-64-v4"), Target("llvm -mcpu=x86-64-v3")


@pytest.mark.parametrize("target", [WIDE, NARROW], ids=["v4", "v3"])
def test_tiles_fit_the_registers(target):
    for extent in (1, 2, 3, 5, 7, 8):
        for blocks in (1, 2, 3, 32):
            rows, tile = choose_rows(extent, extent, blocks, 4608, target)
            assert tile.registers() <= target.vector_registers
            assert 1 <= rows <= extent and tile.points == rows * extent
            assert choose_tile(extent, blocks, 4608, target).registers() <= target.vector_registers


def test_small_images_share_weights_between_rows():
    rows, tile = choose_rows(7, 7, 32, 4608, WIDE)
    assert rows >= 2 and tile.points * tile.blocks >= 24
    assert choose_rows(1, 7, 32, 4608, WIDE)[0] == 1


@pytest.mark.parametrize(("size", "window", "stride", "blocks"),
                         [(7, 3, 1, 2), (5, 3, 1, 3), (3, 3, 2, 1), (2, 5, 1, 2), (9, 3, 2, 2)])
def test_rows_computed_together_give_the_convolution(size, window, stride, blocks):
    """Tails of rows and of blocks among them; small integers, so that sums are exact."""
    target = Target.host()
    lanes = target.lanes("float32")
    op = Conv2d(strides=stride, padding=window // 2, data_layout=f"NCHW{lanes}c",
                kernel_layout=f"OIHW{lanes}i{lanes}o")
    random = np.random.default_rng(size)
    data = random.integers(-4, 5, (1, 2, size, size, lanes)).astype(np.float32)
    weight = random.integers(-4, 5, (blocks, 2, window, window, lanes, lanes)).astype(np.float32)
    wanted = op.evaluate(data, weight) * 2
    inputs = [te.placeholder(array.shape, "float32") for array in (data, weight)]
    conv = op.compute(*inputs)
    out = te.compute(conv.extents(), lambda *i: conv[i] * 2)
    s = te.create_schedule([out])
    op.schedule(s, conv, out, target)
    got = np.zeros_like(wanted)
    build_kernel(lower(te.lower(s, [*inputs, out], name="kernel")), target)(data, weight, got)
    np.testing.assert_array_equal(got, wanted)
