"""Passes by TVM's names."""

from __future__ import annotations

import numpy as np
import pytest

import minitvm.transform
from minitvm import relay
from minitvm.relay import transform
from minitvm.relay.ir import Module
from minitvm.relay.pattern import is_constant, is_op, wildcard
from minitvm.relay.verify import verify
from minitvm.transform import Pass, PassContext, Sequential

NAMES = [
    "AlterOpLayout", "CanonicalizeCast", "CanonicalizeOps", "CombineParallelBatchMatmul",
    "CombineParallelConv2D", "CombineParallelDense", "DeadCodeElimination", "DefuseOps",
    "DynamicToStatic", "EliminateCommonSubexpr", "FastMath", "FoldConstant", "FoldScaleAxis",
    "FuseOps", "InferType", "Inline", "LambdaLift", "Legalize", "PartialEvaluate",
    "RemoveUnusedFunctions", "SimplifyExpr", "SimplifyInference", "ToANormalForm",
]
x = relay.var("x", shape=(1, 3, 6, 6))
WEIGHT = relay.const(np.ones((4, 3, 1, 1), "float32"))
MODULE = Module.from_expr(relay.Function([x], relay.nn.relu(relay.nn.conv2d(x, WEIGHT))))


@pytest.mark.parametrize("name", NAMES)
def test_each_name_gives_the_pass_of_that_name(name):
    item = getattr(transform, name)()
    assert isinstance(item, Pass) and item.name == name
    assert name in minitvm.transform.PASS_NAMES
    with PassContext(opt_level=4):
        after = Sequential([item])(MODULE)
    verify(after)
    data = {"x": np.ones((1, 3, 6, 6), "float32")}
    np.testing.assert_array_equal(relay.run(after, data)[0], relay.run(MODULE, data)[0])


def test_passes_can_be_disabled_by_name():
    with PassContext(opt_level=3, disabled_pass=["ConvertLayout"]):
        assert transform.ConvertLayout({"nn.conv2d": ["NHWC"]})(MODULE) is MODULE


def test_arguments():
    with PassContext(opt_level=0):
        assert len(transform.FuseOps()(MODULE).functions) == 3
        assert len(transform.FuseOps(fuse_opt_level=2)(MODULE).functions) == 2
        with PassContext(config={"relay.fuse_max_depth": 1}):
            assert len(transform.FuseOps(fuse_opt_level=2)(MODULE).functions) == 3
    layout = transform.ConvertLayout({"nn.conv2d": ["NHWC", "default"]})(MODULE)
    assert "NHWC" in relay.print_module(layout)
    with PassContext(config={"relay.layouts": "greedy"}):
        packed = transform.AlterOpLayout("llvm -mtriple=x86_64-linux-gnu -mcpu=haswell")(MODULE)
    assert "OIHW3i8o" in relay.print_module(packed)


def test_composites():
    layer = is_op("nn.relu")(is_op("nn.conv2d")(wildcard(), is_constant()))
    after = transform.MergeComposite([("layer", layer)])(MODULE)
    verify(after)
    assert [f.attrs.get("Composite") for f in after.functions.values()] == [None, "layer"]
