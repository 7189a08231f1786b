"""What is measured: networks, and single operators, each an ONNX model.

    NETWORKS["resnet18"]()      a model; operators() gives the others by name
    arrays(model)               its inputs, from a fixed seed
    work(model)                 floating-point operations of its products, and bytes that it touches
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, shape_inference

from minitvm.testing import zoo, zoo_classic, zoo_mobile, zoo_transformers
from minitvm.testing.weights import FetchError

Build = Callable[[], onnx.ModelProto]


def mobilenet_v2() -> onnx.ModelProto:
    """With its trained weights; with random ones, which take as long, where there is no network."""
    try:
        return zoo.mobilenet_v2("pretrained")
    except FetchError as error:
        print(f"{error}\nmobilenet_v2 has random weights", file=sys.stderr)
        return zoo.mobilenet_v2(weights=0)


NETWORKS: dict[str, Build] = {
    "mobilenet_v2": mobilenet_v2,
    "resnet18": lambda: zoo_classic.resnet(18),
    "resnet50": lambda: zoo_classic.resnet(50),
    "vit_tiny": lambda: zoo_transformers.vit("tiny"),
    "minilm": zoo_transformers.minilm,
    "mobilenet_v3_small": lambda: zoo_mobile.mobilenet_v3("small"),
    "mobilenet_v3_large": lambda: zoo_mobile.mobilenet_v3("large"),
    "efficientnet_b0": zoo_mobile.efficientnet_b0,
    "squeezenet": zoo_classic.squeezenet,
    "densenet121": zoo_classic.densenet,
    "vgg11": lambda: zoo_classic.vgg(11),
    "vgg19": lambda: zoo_classic.vgg(19),
}
"""Of the zoo, but for MobileNetV2 with random weights."""
USUAL_NETWORKS = ("mobilenet_v2", "resnet18", "resnet50", "vit_tiny", "minilm")
QUICK_NETWORKS = ("mobilenet_v2", "resnet18")
QUICK_OPERATORS = ("conv 1x1 96->24 56x56", "conv 3x3 64->64 56x56", "gemm 256", "softmax")


@dataclass(frozen=True, slots=True)
class Conv:
    """A convolution by its shapes."""

    size: int
    inputs: int
    outputs: int
    side: int
    stride: int = 1
    groups: int = 1

    def __str__(self) -> str:
        kind = "depthwise" if self.groups > 1 else "conv"
        stride = f" /{self.stride}" if self.stride > 1 else ""
        return (f"{kind} {self.size}x{self.size} {self.inputs}->{self.outputs} "
                f"{self.side}x{self.side}{stride}")

    def build(self) -> onnx.ModelProto:
        """The model: with bias, as after batch normalization was folded."""
        kernel = (self.outputs, self.inputs // self.groups, self.size, self.size)
        return one_node("Conv", [(1, self.inputs, self.side, self.side)],
                        [kernel, (self.outputs,)], strides=[self.stride] * 2, group=self.groups,
                        pads=[self.size // 2] * 4, kernel_shape=[self.size] * 2)


RESNET_CONVS = (
    Conv(7, 3, 64, 224, 2), Conv(3, 64, 64, 56), Conv(3, 64, 128, 56, 2), Conv(3, 128, 128, 28),
    Conv(3, 128, 256, 28, 2), Conv(3, 256, 256, 14), Conv(3, 256, 512, 14, 2), Conv(3, 512, 512, 7),
)  # fmt: skip


def operators() -> dict[str, Build]:
    """Single operators: the distinct convolutions of MobileNetV2, those of 3x3 and 7x7 of ResNet,
    products of matrices, and what networks have between."""
    convs = [*mobilenet_convs(), *RESNET_CONVS]
    found: dict[str, Build] = {str(conv): conv.build for conv in convs}
    for size in (64, 128, 256, 512, 1024):
        found[f"gemm {size}"] = lambda n=size: one_node("MatMul", [(n, n)], [(n, n)])
    found["gemv 1x1024x1024"] = lambda: one_node("MatMul", [(1, 1024)], [(1024, 1024)])
    found["batched matmul 12 x 128x32x128"] = lambda: one_node(
        "MatMul", [(12, 128, 32), (12, 32, 128)], [])
    found["softmax"] = lambda: one_node("Softmax", [(12, 128, 128)], [], axis=-1)
    found["layer norm"] = lambda: one_node("LayerNormalization", [(1, 128, 384)],
                                           [(384,), (384,)], axis=-1)
    found["gelu"] = lambda: one_node("Gelu", [(1, 128, 1536)], [], opset=20)
    found["max pool 3x3 64 112x112 /2"] = lambda: one_node(
        "MaxPool", [(1, 64, 112, 112)], [], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    found["average pool 7x7 1280"] = lambda: one_node("GlobalAveragePool", [(1, 1280, 7, 7)], [])
    return found


def mobilenet_convs() -> list[Conv]:
    """The convolutions of MobileNetV2 that differ, in order."""
    model = zoo.mobilenet_v2(weights=0)
    shapes = shapes_of(model)
    found = {}
    for node in model.graph.node:
        if node.op_type == "Conv":
            options = {item.name: helper.get_attribute_value(item) for item in node.attribute}
            outputs, _, size, _ = shapes[node.input[1]]
            _, inputs, side, _ = shapes[node.input[0]]
            conv = Conv(size, inputs, outputs, side, options["strides"][0], options["group"])
            found[conv] = None
    return list(found)


def one_node(kind: str, inputs: Sequence[tuple[int, ...]], weights: Sequence[tuple[int, ...]],
             opset: int = 17, **attributes: Any) -> onnx.ModelProto:
    """A model of one operator: its inputs are data at run time, then come weights."""
    random = np.random.default_rng(0)
    names = [f"input{index}" for index in range(len(inputs))]
    constants = [
        numpy_helper.from_array((random.standard_normal(shape) / prod(shape[1:]) ** 0.5)
                                .astype(np.float32), f"weight{index}")
        for index, shape in enumerate(weights)
    ]
    node = helper.make_node(kind, [*names, *(item.name for item in constants)], ["output"],
                            name=kind.lower(), **attributes)
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
              for name, shape in zip(names, inputs)]
    output = helper.make_tensor_value_info("output", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "operator", values, [output], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return shape_inference.infer_shapes(model)


def arrays(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Inputs: normal floats; ids of tokens, all of them visible, of one kind."""
    random = np.random.default_rng(0)
    found = {}
    for value in model.graph.input:
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            found[value.name] = random.standard_normal(shape).astype(np.float32)
        elif value.name == "attention_mask":
            found[value.name] = np.ones(shape, np.int64)
        else:
            most = 2 if value.name == "token_type_ids" else 1000
            found[value.name] = random.integers(0, most, shape)
    return found


def shapes_of(model: onnx.ModelProto) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor that shape inference knows."""
    graph = shape_inference.infer_shapes(model, data_prop=True).graph
    found = {item.name: tuple(item.dims) for item in graph.initializer}
    for value in (*graph.input, *graph.value_info, *graph.output):
        dims = value.type.tensor_type.shape.dim
        found[value.name] = tuple(dim.dim_value for dim in dims)
    return found


def work(model: onnx.ModelProto) -> tuple[float, float]:
    """(operations of convolutions and products, two for each multiply and add; bytes of inputs,
    weights and outputs)."""
    shapes = shapes_of(model)
    flops = sum(_products(node, shapes) for node in model.graph.node)
    ends = (*model.graph.input, *model.graph.output, *model.graph.initializer)
    return 2.0 * flops, 4.0 * sum(prod(shapes[item.name]) for item in ends)


def _products(node: onnx.NodeProto, shapes: dict[str, tuple[int, ...]]) -> int:
    """How many multiply-adds a node needs."""
    match node.op_type:
        case "Conv":
            return prod(shapes[node.output[0]]) * prod(shapes[node.input[1]][1:])
        case "MatMul":
            return prod(shapes[node.output[0]]) * shapes[node.input[0]][-1]
        case "Gemm":
            return prod(shapes[node.output[0]]) * prod(shapes[node.input[1]]) // shapes[
                node.output[0]][-1]
    return 0


def chosen(words: Sequence[str], quick: bool) -> Iterator[tuple[str, str, Build]]:
    """(group, name, build) of what is asked for: names, parts of operators' names, or a group.

    Raises `LookupError` for a word that names nothing.
    """
    known = operators()
    if not words:
        words = (*QUICK_NETWORKS, *QUICK_OPERATORS) if quick else (*USUAL_NETWORKS, "operators")
    for word in words:
        if word == "networks":
            yield from (("networks", name, NETWORKS[name]) for name in USUAL_NETWORKS)
        elif word == "operators":
            yield from (("operators", name, build) for name, build in known.items())
        elif word in NETWORKS:
            yield "networks", word, NETWORKS[word]
        else:
            names = [word] if word in known else [name for name in known if word in name]
            if not names:
                raise LookupError(f"nothing is called {word!r}; there are networks, operators, "
                                  f"{', '.join((*NETWORKS, *known))}")
            yield from (("operators", name, known[name]) for name in names)
