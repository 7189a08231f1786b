"""FuseDepthwise: which pairs become one kernel, and that results stay what they were."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minitvm
from minitvm import relay
from minitvm.autotune.task import kernel_tasks
from minitvm.driver import optimize
from minitvm.errors import OptionError
from minitvm.origin import origin
from minitvm.relay.ir import Call, Function, GlobalVar, Module
from minitvm.relay.op import Op
from minitvm.relay.origins import check_origins_kept
from minitvm.relay.passes import defuse_ops, fuse_depthwise
from minitvm.relay.text import parse_module, print_module
from minitvm.relay.verify import verify
from minitvm.target import Target
from minitvm.te.recipes.convolution_pair import choose_piece
from minitvm.testing.compiled import compiled_difference
from minitvm.transform import PassContext

AVX2 = Target("llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64-v3")
ALWAYS = {"relay.fuse_depthwise": "always"}


def weights(*shape: int, seed: int = 0) -> Any:
    return relay.const(np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float32))


def clip(x: Any) -> Any:
    return relay.clip(x, a_min=0.0, a_max=60.0)


def hard_swish(x: Any) -> Any:
    return x * relay.clip(x + 3.0, a_min=0.0, a_max=6.0)


EPILOGUES = {"none": lambda x: x, "clip": clip, "hard_swish": hard_swish,
             "sigmoid": lambda x: x * relay.sigmoid(x * 0.01)}


def module_of(shape: tuple[int, ...], filters: int, expand: dict[str, Any], taps: tuple[int, int],
              depthwise: dict[str, Any], before: str = "clip", after: str = "clip",
              bias: bool = True, read_twice: bool = False, kernel: int = 1) -> Module:
    """A convolution, and the depthwise one that reads it."""
    x = relay.var("x", shape=shape)
    y = relay.nn.conv2d(x, weights(filters, shape[1], kernel, kernel), **expand)
    if bias:
        y = y + weights(filters, 1, 1, seed=1)
    y = EPILOGUES[before](y)
    z = relay.nn.conv2d(y, weights(filters, 1, *taps, seed=2), groups=filters, **depthwise)
    if bias:
        z = z + weights(filters, 1, 1, seed=3)
    result = EPILOGUES[after](z)
    return Module.from_expr(relay.Function([x], relay.Tuple([result, y]) if read_twice else result))


def convolutions(function: Function) -> int:
    return sum(isinstance(b.value, Call) and isinstance(b.value.callee, Op)
               and b.value.callee.name == "nn.conv2d" for b in function.body.bindings)


def pairs(module: Module) -> int:
    """How many kernels have two convolutions."""
    return sum(f.is_primitive and convolutions(f) == 2 for f in module.functions.values())


def large(**changed: Any) -> Module:
    """A pair between whose parts there is more than fits a cache."""
    return module_of(**{"shape": (1, 16, 64, 64), "filters": 96, "expand": {}, "taps": (3, 3),
                        "depthwise": {"padding": (1, 1)}, **changed})


def test_the_example_of_the_docstring():
    text = fuse_depthwise.__doc__
    assert text is not None
    before, after = (
        "\n".join(line[8:] for line in part.splitlines()).strip() + "\n"
        for part in text.split("Before:")[1].split("After:"))
    module = parse_module(before)
    fused = fuse_depthwise(AVX2)(module)
    verify(fused)
    assert not check_origins_kept(module, fused)
    assert print_module(fused).strip() == after.strip()
    assert print_module(parse_module(print_module(fused))) == print_module(fused)
    assert [b.value.callee.name for b in defuse_ops(fused).main.body.bindings] == [
        "nn.conv2d", "nn.relu", "nn.conv2d"]


def test_what_should_gain_becomes_one_kernel():
    assert pairs(optimize(large(), AVX2)) == 1
    assert pairs(optimize(large(shape=(1, 16, 16, 16)), AVX2)) == 0, "what is between fits a cache"
    assert pairs(optimize(large(before="hard_swish", after="hard_swish"), AVX2)) == 1
    assert pairs(optimize(large(after="sigmoid"), AVX2)) == 0, "arithmetic hides the memory"
    with PassContext(config=ALWAYS):
        assert pairs(optimize(large(shape=(1, 16, 16, 16)), AVX2)) == 1
        assert pairs(optimize(large(after="sigmoid"), AVX2)) == 1
    with PassContext(disabled_pass=["FuseDepthwise"]):
        assert pairs(optimize(large(), AVX2)) == 0
    with PassContext(opt_level=2):
        assert pairs(optimize(large(), AVX2)) == 0


def test_pieces_of_rows_weigh_even_threads_against_rows_computed_twice():
    two, eight = (Target(f"{AVX2} -num-cores={cores}") for cores in (2, 8))
    for rows, shared, stride in [(56, 1, 2), (56, 2, 1), (112, 4, 1), (7, 1, 2), (53, 2, 1)]:
        piece, of_eight = (choose_piece(rows, shared, stride, 1, t) for t in (two, eight))
        assert rows % piece.rows == 0 and rows % of_eight.rows == 0
        assert of_eight.rows <= piece.rows and of_eight.uneven >= 1
        assert piece.again == pytest.approx(shared * (rows // piece.rows - 1) / (rows * stride))
    assert choose_piece(56, 1, 2, 3, two).rows == 7
    assert choose_piece(56, 12, 1, 1, two).rows > choose_piece(56, 1, 1, 1, two).rows
    assert choose_piece(56, -1, 4, 1, two).again == 0
    assert choose_piece(53, 2, 1, 64, two).rows == 53, "tiles of channels keep threads busy"


def test_what_others_read_too_stays_in_memory():
    with PassContext(config=ALWAYS):
        assert pairs(optimize(large(), AVX2)) == 1
        assert pairs(optimize(large(read_twice=True), AVX2)) == 0


def test_integers_stay_two():
    x = relay.var("x", shape=(1, 16, 64, 64), dtype="int32")
    expand = relay.const(np.ones((96, 16, 1, 1), np.int32))
    y = relay.nn.conv2d(relay.nn.conv2d(x, expand), relay.const(np.ones((96, 1, 3, 3), np.int32)),
                        groups=96)
    with PassContext(config=ALWAYS):
        assert pairs(optimize(Module.from_expr(relay.Function([x], y)), AVX2)) == 0


def test_an_option_that_is_none_is_refused():
    with PassContext(config={"relay.fuse_depthwise": "never"}), \
            pytest.raises(OptionError, match="'gaining' or 'always'"):
        optimize(large(), AVX2)


def test_equal_pairs_share_a_kernel_with_the_origins_of_both():
    x = relay.var("x", shape=(1, 96, 32, 32))
    y: Any = x
    for _ in range(3):
        y = relay.nn.conv2d(y, weights(96, 96, 1, 1))
        y = relay.nn.conv2d(clip(y), weights(96, 1, 3, 3), groups=96, padding=(1, 1))
    module = Module.from_expr(relay.Function([x], y))
    names = [f"{kind}{index}" for index in range(3) for kind in ("expand", "clip", "depthwise")]
    named = iter(names)
    body = module.main.body
    bindings = tuple(replace(b, origin=origin(next(named))) for b in body.bindings)
    module = Module({"main": module.main.with_body(replace(body, bindings=bindings))})
    with PassContext(config=ALWAYS):
        fused = optimize(module, AVX2)
    calls = [b for b in fused.main.body.bindings
             if isinstance(b.value, Call) and isinstance(b.value.callee, GlobalVar)
             and convolutions(fused[b.value.callee.name]) > 1]
    shared = [call for call in calls if call.value.callee == calls[-1].value.callee]
    assert len(calls) == 3 and len(shared) >= 2
    assert {*calls[2].origin.names} == {"expand2", "clip2", "depthwise2"}
    kinds = [{name[:-1] for name in b.origin.names}
             for b in fused[shared[0].value.callee.name].body.bindings]
    assert kinds == [{"expand"}, {"clip"}, {"depthwise"}]
    first = fused[shared[0].value.callee.name].body.bindings[0]
    assert len(first.origin.names) == len(shared)


def test_a_tuner_finds_its_choices_and_a_plan_needs_less_memory():
    target = Target.host()
    with PassContext(config=ALWAYS):
        (task,) = [task for task in kernel_tasks(optimize(large(), target), target)
                   if task.name.count("conv2d") == 2]
        compiled = minitvm.compile(large(), target=target)
    assert {knob.name for knob in task.space.knobs} >= {"tile", "points", "rows"}
    for number in range(0, len(task.space), max(1, len(task.space) // 5)):
        task.candidate(number)
    with PassContext(disabled_pass=["FuseDepthwise"]):
        two = minitvm.compile(large(), target=target)
    assert compiled.program.workspace_bytes < 0.6 * two.program.workspace_bytes


@st.composite
def cases(draw: st.DrawFn) -> tuple[Module, tuple[int, ...]]:
    """Small pairs of all kinds."""
    rows, columns = draw(st.integers(3, 18)), draw(st.integers(3, 18))
    shape = (draw(st.integers(1, 3)), draw(st.sampled_from([3, 8, 16, 24, 35])), rows, columns)
    kernel = draw(st.sampled_from([1, 1, 3]))
    pads = st.tuples(*[st.integers(0, 2)] * 4)
    expand: dict[str, Any] = {}
    if kernel > 1:
        expand = {"padding": draw(pads), "strides": draw(st.sampled_from([(1, 1), (2, 2), (1, 2)]))}
    height, width = (
        (extent + sum(expand.get("padding", (0,) * 4)[axis::2]) - kernel)
        // expand.get("strides", (1, 1))[axis] + 1
        for axis, extent in enumerate((rows, columns)))
    taps = draw(st.sampled_from([(1, 1), (2, 3), (3, 3), (3, 1), (5, 5)]))
    depthwise = {"padding": draw(pads), "dilation": draw(st.sampled_from([(1, 1), (2, 1), (2, 2)])),
                 "strides": draw(st.sampled_from([(1, 1), (2, 2), (2, 1), (3, 4)]))}
    for axis, extent in enumerate((height, width)):
        span = (taps[axis] - 1) * depthwise["dilation"][axis] + 1
        if extent + sum(depthwise["padding"][axis::2]) < span:
            depthwise["padding"] = tuple(
                pad + span * (position % 2 == axis)
                for position, pad in enumerate(depthwise["padding"]))
    module = module_of(
        shape, draw(st.sampled_from([8, 16, 20, 48, 80])), expand, taps, depthwise,
        draw(st.sampled_from(list(EPILOGUES))), draw(st.sampled_from(list(EPILOGUES))),
        draw(st.booleans()), kernel=kernel)
    return module, shape


TARGETS = [Target.host(), Target("llvm -mcpu=x86-64-v3")]


@given(cases(), st.sampled_from(TARGETS))
def test_a_pair_computes_what_its_parts_do(case, target):
    module, shape = case
    x = np.random.default_rng(0).integers(-3, 4, shape).astype(np.float32)
    with PassContext(config=ALWAYS):
        exact = "sigmoid" not in print_module(module)
        assert not compiled_difference(module, {"x": x}, exact=exact, target=target)


def test_threads_share_rows():
    module = large(shape=(1, 16, 20, 20))
    x = np.random.default_rng(0).integers(-3, 4, (1, 16, 20, 20)).astype(np.float32)
    with PassContext(config=ALWAYS):
        compiled = minitvm.compile(module)
    (kernel,) = [kernel for kernel in compiled.kernels if kernel.name.count("conv2d") == 2]
    assert "parallel(" in kernel.text
    (alone,) = compiled.run({"x": x}).values()
    compiled.runtime.threads = 3
    (together,) = compiled.run({"x": x}).values()
    np.testing.assert_array_equal(alone, together)
