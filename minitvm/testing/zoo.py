"""Networks as ONNX models, built here: the test models, and what the examples compile.

    mobilenet_v2(weights="pretrained")   torchvision's trained parameters (fetched, see `weights`)
    mobilenet_v2(weights=7)              the same architecture, random parameters from seed 7

MobileNetV1 is from arXiv 1704.04861, MobileNetV2 from arXiv 1801.04381.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from minitvm.testing.weights import fetch_mobilenet_v2

if TYPE_CHECKING:
    from onnx import ModelProto

IMAGENET_MEAN = np.array([0.485, 0.456, 0.406], np.float32)
IMAGENET_DEVIATION = np.array([0.229, 0.224, 0.225], np.float32)

MOBILENET_V2_BLOCKS = (
    # expansion, channels, repeats, first stride
    (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2),
    (6, 320, 1, 1),
)  # fmt: skip
MOBILENET_V1_BLOCKS = (
    # channels, stride
    (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1), (512, 1), (512, 1),
    (512, 1), (512, 1), (1024, 2), (1024, 1),
)  # fmt: skip


@dataclass(slots=True)
class OnnxBuilder:
    """Collects nodes and weights; parameters come by name from `parameters`, else from the seed."""

    parameters: Mapping[str, np.ndarray]
    seed: int = 0
    nodes: list[Any] = field(default_factory=list)
    initializers: dict[str, np.ndarray] = field(default_factory=dict)
    opset: int = 17

    def weight(self, name: str, shape: tuple[int, ...], kind: str = "weight") -> str:
        """An initializer, by name; a random one depends on the seed and its position alone."""
        if name in self.parameters:
            data = self.parameters[name]
            assert data.shape == shape, f"{name} has shape {data.shape}, expected {shape}"
        else:
            random = np.random.default_rng((self.seed, len(self.initializers)))
            data = random.standard_normal(shape)
            if kind == "weight":
                data *= np.sqrt(2 / max(1, int(np.prod(shape[1:]))))
            elif kind == "scale":
                data = 1 + 0.1 * data
            elif kind == "variance":
                data = 1 + 0.2 * np.abs(data)
            else:
                data *= 0.1
        self.initializers[name] = np.ascontiguousarray(data, np.float32)
        return name

    def constant(self, name: str, value: np.ndarray) -> str:
        """An initializer with the given value."""
        self.initializers[name] = value
        return name

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Adds a node with one output and gives the output's name."""
        from onnx import helper

        name = f"{kind}_{len(self.nodes) + 1}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=name, **attributes))
        return name

    def conv_norm(self, x: str, conv: str, norm: str, shape: tuple[int, ...], stride: int = 1,
                  groups: int = 1, activation: bool = True) -> str:
        """Convolution without bias, batch normalization, and relu6."""
        weight = self.weight(f"{conv}.weight", shape)
        padding = shape[2] // 2
        y = self.node("Conv", x, weight, strides=[stride] * 2, pads=[padding] * 4, group=groups,
                      kernel_shape=list(shape[2:]))
        channels = (shape[0],)
        parts = (("weight", "scale"), ("bias", "shift"), ("running_mean", "shift"),
                 ("running_var", "variance"))
        y = self.node("BatchNormalization", y,
                      *(self.weight(f"{norm}.{part}", channels, kind) for part, kind in parts))
        if not activation:
            return y
        low = self.constant("clip_low", np.array(0, np.float32))
        return self.node("Clip", y, low, self.constant("clip_high", np.array(6, np.float32)))

    def classifier(self, x: str, channels: int, classes: int) -> None:
        """Global average pooling and a dense layer."""
        y = self.node("Flatten", self.node("GlobalAveragePool", x), axis=1)
        self.node("Gemm", y, self.weight("classifier.1.weight", (classes, channels)),
                  self.weight("classifier.1.bias", (classes,), "shift"), transB=1)

    def model(self, name: str, input_shape: tuple[Any, ...], classes: int) -> ModelProto:
        """The finished model, with input `input` and output `logits`."""
        from onnx import TensorProto, helper, numpy_helper

        self.nodes[-1].output[0] = "logits"
        graph = helper.make_graph(
            self.nodes, name,
            [helper.make_tensor_value_info("input", TensorProto.FLOAT, input_shape)],
            [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [input_shape[0], classes])],
            [numpy_helper.from_array(data, key) for key, data in self.initializers.items()],
        )
        opset = [helper.make_opsetid("", self.opset)]
        return helper.make_model(graph, opset_imports=opset, ir_version=8)


def mobilenet_v2(weights: str | int = "pretrained", image: int = 224, width: float = 1.0,
                 batch: int | str = 1, classes: int = 1000) -> ModelProto:
    """MobileNetV2: input `input` [batch, 3, image, image] float32, output `logits`.

    `weights` is "pretrained" (width 1.0 and 1,000 classes alone) or a seed.
    """
    parameters = fetch_mobilenet_v2() if weights == "pretrained" else {}
    seed = weights if isinstance(weights, int) else 0
    net = OnnxBuilder(parameters, seed)
    channels = _round_channels(32 * width)
    x = net.conv_norm("input", "features.0.0", "features.0.1", (channels, 3, 3, 3), stride=2)
    index = 1
    for expansion, base, repeats, first_stride in MOBILENET_V2_BLOCKS:
        for repeat in range(repeats):
            stride = first_stride if repeat == 0 else 1
            x, channels = _inverted_residual(net, x, f"features.{index}.conv", channels,
                                             _round_channels(base * width), expansion, stride)
            index += 1
    last = _round_channels(1280 * max(1.0, width))
    x = net.conv_norm(x, f"features.{index}.0", f"features.{index}.1", (last, channels, 1, 1))
    net.classifier(x, last, classes)
    return net.model("mobilenet_v2", (batch, 3, image, image), classes)


def _inverted_residual(net: OnnxBuilder, x: str, name: str, channels: int, result: int,
                       expansion: int, stride: int) -> tuple[str, int]:
    hidden, y, part = channels * expansion, x, 0
    if expansion != 1:
        y = net.conv_norm(y, f"{name}.0.0", f"{name}.0.1", (hidden, channels, 1, 1))
        part = 1
    y = net.conv_norm(y, f"{name}.{part}.0", f"{name}.{part}.1", (hidden, 1, 3, 3), stride, hidden)
    y = net.conv_norm(y, f"{name}.{part + 1}", f"{name}.{part + 2}", (result, hidden, 1, 1),
                      activation=False)
    return (net.node("Add", x, y) if stride == 1 and channels == result else y), result


def mobilenet_v1(weights: int = 0, image: int = 224, width: float = 1.0, batch: int | str = 1,
                 classes: int = 1000) -> ModelProto:
    """MobileNetV1 with random parameters from a seed; the same interface as `mobilenet_v2`."""
    net = OnnxBuilder({}, weights)
    channels = _round_channels(32 * width)
    x = net.conv_norm("input", "stem.0", "stem.1", (channels, 3, 3, 3), stride=2)
    for index, (base, stride) in enumerate(MOBILENET_V1_BLOCKS):
        result = _round_channels(base * width)
        x = net.conv_norm(x, f"{index}.0.0", f"{index}.0.1", (channels, 1, 3, 3), stride, channels)
        x = net.conv_norm(x, f"{index}.1.0", f"{index}.1.1", (result, channels, 1, 1))
        channels = result
    net.classifier(x, channels, classes)
    return net.model("mobilenet_v1", (batch, 3, image, image), classes)


def _round_channels(value: float) -> int:
    """The nearest multiple of 8, at most 10% below `value` (as published for MobileNetV2)."""
    rounded = max(8, int(value + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * value else rounded
