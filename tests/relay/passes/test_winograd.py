"""Winograd: which convolutions take tiles, and that results stay what they were."""

from __future__ import annotations

import numpy as np
import pytest

import minitvm
from minitvm.driver import optimize
from minitvm.errors import OptionError
from minitvm.relay.interpret import run
from minitvm.relay.ir import Call, Module, walk_bindings
from minitvm.relay.onnx import from_onnx
from minitvm.relay.op import Op
from minitvm.relay.origins import check_origins_kept
from minitvm.relay.passes import winograd
from minitvm.relay.passes.winograd import tiled_share
from minitvm.relay.text import parse_module, print_module
from minitvm.relay.verify import verify
from minitvm.target import Target
from minitvm.testing.zoo_layers import LayerBuilder
from minitvm.transform import PassContext

AVX2 = Target("llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64-v3")


def module_of(image: str = "(1, 32, 14, 14, 8)", weight: str = "(32, 32, 3, 3, 8, 8)",
              attributes: str = "padding=(1, 1, 1, 1)", dtype: str = "float32",
              made: str = "full_like") -> Module:
    """A packed convolution of constant weights, or of those of an input."""
    rows = image.split(", ")[2]
    out = f"(1, {weight[1:].split(', ')[0]}, {rows}, {rows}, 8)"
    given = f', p: Tensor({weight}, "{dtype}")' if made == "input" else ""
    first = "" if made == "input" else (
        f'    p = zeros(shape={weight}, dtype="{dtype}")  #: "w"\n')
    return parse_module(
        f'def main(x: Tensor({image}, "{dtype}"){given}) -> Tensor({out}, "{dtype}"):\n{first}'
        f'    v = nn.conv2d(x, p, {attributes}, data_layout="NCHW8c", kernel_layout="OIHW8i8o")'
        '  #: "conv"\n    return v\n')


def names(module: Module) -> list[str]:
    return [b.value.callee.name for b in walk_bindings(module.main.body)
            if isinstance(b.value, Call) and isinstance(b.value.callee, Op)]


def test_the_example_of_the_docstring():
    text = winograd.__doc__
    assert text is not None
    before, after = (
        "\n".join(line[8:] for line in part.splitlines()).strip() + "\n"
        for part in text.split("Before:")[1].split("After:"))
    module = parse_module(before)
    tiled = winograd(AVX2)(module)
    verify(tiled)
    assert not check_origins_kept(module, tiled)
    assert print_module(tiled).strip() == after.strip()


SHAPES = [(side, filters, channels) for side in (7, 14, 28, 56) for filters in (4, 8, 32)
          for channels in (2, 8, 32)]


def shares(target: str) -> list[float]:
    machine = Target(f"llvm -mtriple={target}")
    return [tiled_share(1, (side, side), (filters, channels, 3, 3, 8, 8), machine, 2)
            for side, filters, channels in SHAPES]


def test_decisions_follow_the_numbers_of_a_target_and_not_its_name():
    common = shares("x86_64-linux-gnu -mcpu=x86-64-v3")
    assert 0 < common.count(1.0) < len(SHAPES)
    for cpu in ("haswell", "znver3", "x86-64-v4"):
        assert shares(f"x86_64-linux-gnu -mcpu={cpu}") == common
    assert shares("aarch64-linux-gnu -mcpu=cortex-a76") == common
    plain = shares("x86_64-linux-gnu -mcpu=x86-64")
    assert plain == shares("x86_64-linux-gnu -mcpu=x86-64-v3 -fma-per-cycle=1")
    assert plain.count(1.0) < common.count(1.0), "dearer products, more tiles"
    for option in ("-l2-bytes-per-cycle=1 -l2-bytes=100000000", "-memory-bytes-per-cycle=1",
                   "-fma-per-cycle=64"):
        assert shares(f"x86_64-linux-gnu -mcpu=x86-64-v3 {option}").count(1.0) > common.count(1.0)


def test_the_pass_asks_its_target():
    slow = Target(f"{AVX2} -l2-bytes-per-cycle=1 -memory-bytes-per-cycle=1")
    assert names(winograd(slow)(module_of())) == names(module_of())


def test_many_channels_take_tiles():
    assert "nn.winograd_input" in names(winograd(AVX2)(module_of()))


@pytest.mark.parametrize("module", [
    module_of("(1, 2, 14, 14, 8)", "(2, 2, 3, 3, 8, 8)"),
    module_of("(1, 32, 2, 2, 8)"),
    module_of(made="input"),
    module_of(dtype="float64"),
    module_of(weight="(32, 32, 1, 1, 8, 8)", attributes="strides=(1, 1)"),
    module_of(attributes="padding=(2, 2, 2, 2), dilation=(2, 2)"),
    module_of(weight="(32, 16, 3, 3, 8, 8)", attributes="padding=(1, 1, 1, 1), groups=2"),
    module_of(attributes="padding=(1, 1, 1, 1), channels=250"),
], ids=["few channels", "small", "variable", "float64", "pointwise", "dilated", "grouped",
        "padding lanes"])
def test_what_stays(module):
    assert winograd(AVX2)(module) is module


def test_strides_stay():
    module = parse_module(print_module(module_of()).replace(
        "padding=(1, 1, 1, 1)", "strides=(2, 2), padding=(1, 1, 1, 1)").replace(
        '-> Tensor((1, 32, 14, 14, 8)', '-> Tensor((1, 32, 7, 7, 8)'))
    assert winograd(AVX2)(module) is module


def test_the_option_says_how_large_tiles_are():
    with PassContext(config={"relay.winograd_tile": 0}):
        assert "nn.winograd_input" not in names(winograd(AVX2)(module_of()))
    with PassContext(config={"relay.winograd_tile": 4}):
        assert "groups=36" in print_module(winograd(AVX2)(module_of()))
    with (PassContext(config={"relay.winograd_tile": 3}),
          pytest.raises(OptionError, match="it may be 2, 4, or 0")):
        winograd(AVX2)(module_of())


@pytest.mark.parametrize(("tile", "error"), [(2, 3e-6), (4, 3e-5)])
def test_results_stay_close(tile, error):
    """A residual block, compiled with tiles and without."""
    net = LayerBuilder({}, 3)
    first = net.activate(net.conv("input", 3, 128, 1), "relu")
    x = net.activate(net.conv(first, 128, 128, 3), "relu")
    net.pooled(net.activate(net.conv(x, 128, 128, 3), "relu"))
    model = net.finish("block", 1, 15, 128).SerializeToString()
    image = np.random.default_rng(0).standard_normal((1, 3, 15, 15)).astype("float32")
    found = []
    for size in (0, tile):
        with PassContext(config={"relay.winograd_tile": size}):
            tiled = "winograd" in print_module(optimize(from_onnx(model, {}), Target.host()))
            assert tiled == (size > 0)
            found.append(minitvm.compile(model).run({"input": image})["logits"])
    (wanted,) = run(from_onnx(model, {}), {"input": image})
    for got in found:
        assert np.abs(got - wanted).max() <= error * np.abs(wanted).max()
