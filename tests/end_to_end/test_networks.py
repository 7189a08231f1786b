"""The networks of the zoo, small: all their operators compiled together agree with ONNX Runtime,
and their tensors stay packed from the first convolution to the last."""

from collections import Counter
from pathlib import Path

import networks
import numpy as np
import onnx
import pytest
from networks import HOST, check, image
from onnx import TensorProto, helper, numpy_helper

from minitvm.relay.ir import Call
from minitvm.relay.op import Op
from minitvm.testing import zoo_branches, zoo_classic, zoo_mobile
from minitvm.transform import PassContext

SMALL = {
    # the model, and the side of its pictures
    "resnet18": (lambda: zoo_classic.resnet(18, 1, 37, 0.25, classes=10, blocks=(1, 1, 1, 1)), 37),
    "resnet50": (lambda: zoo_classic.resnet(50, 2, 32, 0.25, classes=10, blocks=(1, 1, 1)), 32),
    "vgg11": (lambda: zoo_classic.vgg(11, 3, 32, 0.15, classes=10, hidden=50), 32),
    "squeezenet": (lambda: zoo_classic.squeezenet(4, 47, 0.5, classes=16), 47),
    "densenet": (lambda: zoo_classic.densenet(5, 32, 16, classes=10, blocks=(2, 2, 1)), 32),
    "mobilenet_v3": (lambda: zoo_mobile.mobilenet_v3("small", 6, 45, 0.35, classes=10), 45),
    "resnext": (lambda: zoo_branches.resnext50(9, 32, classes=10, groups=4, blocks=(1, 1, 1)), 32),
    "shufflenet_v1": (lambda: zoo_branches.shufflenet_v1(
        10, 64, classes=10, stages=(60, 144), blocks=(2, 2)), 64),
    "shufflenet_v2": (lambda: zoo_branches.shufflenet_v2(
        11, 64, classes=10, stages=(58, 116), last=96, blocks=(3, 2)), 64),
    "googlenet": (lambda: zoo_branches.googlenet(12, 32, classes=10, blocks=2), 32),
    "efficientnet": (lambda: zoo_mobile.efficientnet_b0(7, 33, 0.3, classes=10), 33),
}
LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


def operators(compiled):
    """How often each operator occurs in the kernels of a compiled model."""
    return Counter(
        binding.value.callee.name
        for function in compiled.relay.functions.values()
        for binding in function.body.bindings
        if isinstance(binding.value, Call) and isinstance(binding.value.callee, Op)
    )


@pytest.mark.parametrize("name", SMALL)
def test_small_networks_agree_and_stay_packed(name):
    """Small layers may be cheaper with transforms between them; packed wherever they can be, they
    need none."""
    build, side = SMALL[name]
    inputs = {"input": image(1, 3, side, side)}
    compiled = check(build(), inputs)
    assert operators(compiled)["nn.conv2d"] >= 7
    if HOST.lanes("float32") in (8, 16):
        config = {**PassContext.current().config, "relay.layouts": "greedy"}
        with networks.context(config=config):
            compiled = check(build(), inputs)
        assert operators(compiled)["layout_transform"] == 0
        assert not [r for r in compiled.remarks if "unpacked" in str(r) and "reshape" not in str(r)]


def test_pieces_that_fill_no_whole_blocks_are_joined_packed():
    """Pieces of 12 channels, which move among blocks of 8 or 16."""
    model = zoo_classic.densenet(8, 32, 12, classes=10, blocks=(2, 1))
    compiled = check(model, {"input": image(1, 3, 32, 32)})
    if HOST.lanes("float32") in (8, 16):
        assert operators(compiled)["nn.concatenate_channels"] == 3
        assert operators(compiled)["layout_transform"] == 1  # what the classifier sees


def test_another_vector_width():
    target = networks.target_or_skip("x86-64-v3")
    model = zoo_mobile.mobilenet_v3("large", 9, 32, 0.25, classes=10)
    check(model, {"input": image(1, 3, 32, 32)}, target=target)


def light_model(name, seed=0):
    """An architecture that comes with the `onnx` package, up to what its softmax sees. Its weights
    are made by `ConstantOfShape`, all alike: here they become random ones, of the same shapes."""
    model = onnx.load(LIGHT / f"light_{name}.onnx")
    shapes = {item.name: numpy_helper.to_array(item) for item in model.graph.initializer}
    kept = []
    for node in model.graph.node:
        shape = shapes.get(node.input[0]) if node.op_type == "ConstantOfShape" else None
        if shape is None:
            kept.append(node)
            continue
        random = np.random.default_rng((seed, len(kept), len(model.graph.initializer)))
        data = random.standard_normal(shape) * np.sqrt(2 / max(1, np.prod(shape[1:])))
        if len(shape) == 1:
            data = 1 + 0.05 * random.standard_normal(shape)
        model.graph.initializer.append(
            numpy_helper.from_array(data.astype(np.float32), node.output[0]))
    last = next(node for node in kept if node.op_type == "Softmax")
    kept.remove(last)
    del model.graph.output[:], model.graph.node[:]
    model.graph.node.extend(kept)
    model.graph.output.append(helper.make_tensor_value_info(last.input[0], TensorProto.FLOAT, None))
    return model


@pytest.mark.parametrize("name", ["shufflenet", "squeezenet"])
def test_architectures_of_the_onnx_package(name):
    """Grouped convolutions and shuffled channels; at full size, as the file says."""
    model = light_model(name)
    shapes = {item.name: [dim.dim_value for dim in item.type.tensor_type.shape.dim]
              for item in model.graph.input}
    names = {item.name for item in model.graph.initializer}
    inputs = {key: image(*shape) for key, shape in shapes.items() if key not in names}
    check(model, inputs)


def test_rebuilding_a_network_gives_the_same_model():
    models = [zoo_classic.squeezenet(seed, 47, 0.25).SerializeToString() for seed in (1, 1, 2)]
    assert models[0] == models[1] != models[2]
