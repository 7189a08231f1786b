"""What a convolution is estimated to take: by the numbers of a target, not by its name."""

import pytest

from minitvm.relay.ops.nn.conv2d_cost import Shape, cycles
from minitvm.relay.ops.nn.windows import Window
from minitvm.target import Target

V3 = "llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64-v3"


def packed(channels=64, side=28, input_block=8):
    window = Window((3, 3), padding=(1, 1, 1, 1))
    return Shape(1, channels, channels, 64, (side, side), window, input_block, 8, False, 4)


def estimate(shape, options="", cpu="x86-64-v3"):
    return cycles(shape, Target(f"{V3.replace('x86-64-v3', cpu)} {options}".strip()), 8)


@pytest.mark.parametrize("cpu", ["haswell", "znver3", "skylake"])
def test_cores_of_one_kind_are_estimated_alike(cpu):
    assert estimate(packed(), cpu=cpu) == estimate(packed())


def test_products_take_the_cycles_that_the_target_says():
    one, two, four = (estimate(packed(), f"-fma-per-cycle={count}") for count in (1, 2, 4))
    assert one - two == pytest.approx(2 * (two - four)) and two == estimate(packed())


@pytest.mark.parametrize("option", ["-l2-bytes-per-cycle=1", "-memory-bytes-per-cycle=1"])
def test_slow_memory_is_felt(option):
    assert estimate(packed(), option) > estimate(packed())
    assert estimate(packed(), option.replace("=1", "=10000")) <= estimate(packed())


def test_plain_data_is_dear_where_its_channels_are_more_pages_than_the_target_holds():
    plain = packed(side=64, input_block=1)  # each of 64 channels on 4 pages: 64 are read in turn
    few, usual, many = (estimate(plain, f"-tlb-pages={count}") for count in (8, 64, 4096))
    assert few > usual > many
    assert estimate(packed(side=64), "-tlb-pages=8") == estimate(packed(side=64))
