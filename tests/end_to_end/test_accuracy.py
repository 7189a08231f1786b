"""The result is ONNX Runtime's within 1e-4, whatever the network, target, opset and options."""

import onnx
import pytest
from networks import assert_close, check, context, image, run_onnxruntime, small_network
from networks import target_or_skip as target_for
from onnx import version_converter

import minitvm
from minitvm.driver import relay_passes
from minitvm.target import Target
from minitvm.testing import zoo
from minitvm.tir import passes as tir_passes

OPSETS = range(7, onnx.defs.onnx_opset_version() + 1)
INPUT = {"input": image(1, 3, 20, 20)}
REQUIRED = {"FuseOps", "FlattenBuffers", "VectorizeLoop"}
"""Passes without which there is nothing to run."""


@pytest.mark.parametrize("build, width, side, batch", [
    (zoo.mobilenet_v2, 0.35, 96, 1),
    (zoo.mobilenet_v2, 0.5, 33, 3),
    (zoo.mobilenet_v2, 1.0, 32, 1),
    (zoo.mobilenet_v1, 0.25, 64, 1),
    (zoo.mobilenet_v1, 0.5, 47, 2),
])
def test_mobilenets(build, width, side, batch):
    model = build(weights=1, image=side, width=width, batch=batch, classes=17)
    check(model, {"input": image(batch, 3, side, side)})


def test_an_open_batch_size_is_given_by_shapes():
    model = small_network(batch="N")
    check(model, {"input": image(2, 3, 20, 20)}, shapes={"input": (2, 3, 20, 20)})


def test_full_size(mobilenet):
    assert_close(mobilenet.compiled.run(mobilenet.input),
                 run_onnxruntime(mobilenet.model, mobilenet.input))


@pytest.mark.parametrize("name", ["host", "x86-64-v3", "x86-64-v4"])
def test_targets(name):
    target = target_for(name)
    model = zoo.mobilenet_v2(weights=2, image=32, width=0.35, classes=9)
    compiled = check(model, {"input": image(1, 3, 32, 32)}, target=target)
    assert compiled.target == target


@pytest.mark.parametrize("opset", OPSETS)
def test_opsets(opset):
    """From opset 7, where Clip has attributes, by the converter up to the newest."""
    model = small_network(opset=7)
    if opset > 7:
        model = version_converter.convert_version(model, opset)
    assert model.opset_import[0].version == opset
    compiled = minitvm.compile(model)
    assert_close(compiled.run(INPUT), run_onnxruntime(small_network(opset=7), INPUT))


@pytest.mark.parametrize("folded", [False, True])
@pytest.mark.parametrize("batch", [1, 3])
def test_batch_norm_kept_or_folded(folded, batch):
    check(small_network(folded=folded, batch=batch), {"input": image(batch, 3, 20, 20)})


@pytest.mark.parametrize("level", range(5))
def test_optimization_levels(level):
    check(small_network(), INPUT, opt_level=level)


def pass_names():
    """Every pass of the two pipelines, once each."""
    passes = [*relay_passes(Target.host()), *tir_passes.ALL]
    return list(dict.fromkeys(item.name for item in passes))


@pytest.mark.parametrize("name", pass_names())
def test_each_pass_can_be_disabled(name):
    """The result is the same; where the pass is needed, the error names it."""
    with context(disabled_pass=[name]):
        if name in REQUIRED:
            with pytest.raises(minitvm.MinitvmError, match=f"{name}|LOWERING"):
                minitvm.compile(small_network())
        else:
            check(small_network(), INPUT)
