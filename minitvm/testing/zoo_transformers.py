"""Transformer encoders as ONNX models with random parameters, written as exporters write them.

    vit("tiny")    ViT-Ti/16 of arXiv 2010.11929 and 2012.12877: 192 wide, 12 layers, 3 heads
    minilm()       the encoder of MiniLM-L6 (arXiv 2002.10957): 384 wide, 6 layers, 12 heads

Exporters write what has no operator of its own as a chain of small ones: by default layer
normalization is nine nodes and GELU five. `layer_norm="operator"` and `gelu="operator"` give the
operators of opset 17 and 20 instead, `gelu="tanh"` the approximation of arXiv 1606.08415.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from minitvm.testing.zoo import OnnxBuilder

if TYPE_CHECKING:
    from onnx import ModelProto

LayerNorm = Literal["decomposed", "operator"]
Gelu = Literal["erf", "tanh", "operator"]

VITS = {
    # width, layers, heads
    "tiny": (192, 12, 3), "small": (384, 12, 6), "base": (768, 12, 12),
}  # fmt: skip
MASKED = float(np.finfo(np.float32).min)
"""What an attention score becomes where the mask is 0."""


@dataclass(slots=True)
class TransformerBuilder(OnnxBuilder):
    """Layers of an encoder; parameters are named by their position in the network."""

    layer_norm: LayerNorm = "decomposed"
    gelu: Gelu = "erf"
    epsilon: float = 1e-6
    drawn: int = 0

    def scalar(self, value: float) -> str:
        """A constant of no dimensions."""
        return self.constant(f"scalar_{value!r}", np.array(value, np.float32))

    def integers(self, *values: int) -> str:
        """A constant vector of int64, for shapes and axes."""
        name = "integers_" + "_".join(map(str, values))
        return self.constant(name, np.array(values, np.int64))

    def random(self, deviation: float, *shape: int, mean: float = 0) -> str:
        """A parameter drawn from a normal distribution: all forms of a network have the same."""
        random = np.random.default_rng((self.seed, self.drawn))
        self.drawn += 1
        data = mean + deviation * random.standard_normal(shape)
        return self.constant(f"parameter_{self.drawn}", data.astype(np.float32))

    def project(self, x: str, inputs: int, outputs: int) -> str:
        """A dense layer over the last axis, as MatMul by a constant and Add."""
        y = self.node("MatMul", x, self.random(inputs**-0.5, inputs, outputs))
        return self.node("Add", self.random(0.1, outputs), y)

    def norm(self, x: str, width: int) -> str:
        """Layer normalization over the last axis."""
        scale, shift = self.random(0.1, width, mean=1), self.random(0.1, width)
        if self.layer_norm == "operator":
            return self.node("LayerNormalization", x, scale, shift, axis=-1, epsilon=self.epsilon)
        centred = self.node("Sub", x, self.node("ReduceMean", x, axes=[-1]))
        squares = self.node("Pow", centred, self.scalar(2.0))
        variance = self.node("ReduceMean", squares, axes=[-1])
        root = self.node("Sqrt", self.node("Add", variance, self.scalar(self.epsilon)))
        scaled = self.node("Mul", self.node("Div", centred, root), scale)
        return self.node("Add", scaled, shift)

    def activate(self, x: str) -> str:
        """GELU."""
        if self.gelu == "operator":
            return self.node("Gelu", x)
        if self.gelu == "erf":
            inner = self.node("Erf", self.node("Div", x, self.scalar(2**0.5)))
            y = self.node("Mul", x, self.node("Add", inner, self.scalar(1.0)))
            return self.node("Mul", y, self.scalar(0.5))
        cube = self.node("Pow", x, self.scalar(3.0))
        inner = self.node("Add", x, self.node("Mul", cube, self.scalar(0.044715)))
        tanh = self.node("Tanh", self.node("Mul", inner, self.scalar((2 / np.pi) ** 0.5)))
        half = self.node("Mul", x, self.scalar(0.5))
        return self.node("Mul", half, self.node("Add", tanh, self.scalar(1.0)))

    def feed_forward(self, x: str, width: int, hidden: int) -> str:
        """Two dense layers with GELU between."""
        return self.project(self.activate(self.project(x, width, hidden)), hidden, width)

    def mix(self, query: str, key: str, value: str, scale: str, mask: str | None,
            width: int) -> str:
        """Attention, by heads [batch, heads, tokens, size]; `key` comes transposed."""
        scores = self.node("Div", self.node("MatMul", query, key), scale)
        if mask is not None:
            scores = self.node("Add", scores, mask)
        mixed = self.node("MatMul", self.node("Softmax", scores, axis=-1), value)
        joined = self.node("Transpose", mixed, perm=[0, 2, 1, 3])
        return self.node("Reshape", joined, self.integers(0, 0, width))

    def finished(self, name: str, inputs: dict[str, tuple[str, tuple[Any, ...]]],
                 output: str, shape: tuple[Any, ...]) -> ModelProto:
        """The model; inputs are dtypes and shapes by name, the output is the last node's."""
        from onnx import TensorProto, helper, numpy_helper

        self.nodes[-1].output[0] = output
        types = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64}
        graph = helper.make_graph(
            self.nodes, name,
            [helper.make_tensor_value_info(key, types[dtype], dims)
             for key, (dtype, dims) in inputs.items()],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, shape)],
            [numpy_helper.from_array(data, key) for key, data in self.initializers.items()],
        )
        opset = [helper.make_opsetid("", self.opset)]
        return helper.make_model(graph, opset_imports=opset, ir_version=8)


def vit(size: str = "tiny", seed: int = 0, image: int = 224, patch: int = 16,
        batch: int | str = 1, classes: int = 1000, layers: int | None = None,
        layer_norm: LayerNorm = "decomposed", gelu: Gelu = "erf") -> ModelProto:
    """A vision transformer: input `input` [batch, 3, image, image], output `logits`. The queries,
    keys and values of a layer come out of one dense layer."""
    width, depth, heads = VITS[size]
    net = _builder(seed, layer_norm, gelu, 1e-6)
    pixels = 3 * patch * patch
    kernel = net.random(pixels**-0.5, width, 3, patch, patch)
    x = net.node("Conv", "input", kernel, net.random(0.1, width), kernel_shape=[patch] * 2,
                 strides=[patch] * 2)
    x = net.node("Transpose", net.node("Reshape", x, net.integers(0, width, -1)), perm=[0, 2, 1])
    first = net.random(0.1, 1, 1, width)
    if batch != 1:
        count = net.node("Slice", net.node("Shape", "input"), net.integers(0), net.integers(1))
        shape = net.node("Concat", count, net.integers(1, width), axis=0)
        first = net.node("Expand", first, shape)
    x = net.node("Concat", first, x, axis=1)
    x = net.node("Add", x, net.random(0.1, 1, (image // patch) ** 2 + 1, width))
    for _ in range(depth if layers is None else layers):
        y = net.project(_joint_attention(net, net.norm(x, width), width, heads), width, width)
        x = net.node("Add", x, y)
        x = net.node("Add", x, net.feed_forward(net.norm(x, width), width, 4 * width))
    x = net.norm(x, width)
    x = net.node("Gather", x, net.constant("first_token", np.array(0, np.int64)), axis=1)
    net.node("Gemm", x, net.random(width**-0.5, classes, width), net.random(0.1, classes),
             transB=1)
    return net.finished(f"vit_{size}", {"input": ("float32", (batch, 3, image, image))},
                        "logits", (batch, classes))


def _joint_attention(net: TransformerBuilder, x: str, width: int, heads: int) -> str:
    size = width // heads
    joint = net.node("Reshape", net.project(x, width, 3 * width),
                     net.integers(0, 0, 3, heads, size))
    joint = net.node("Transpose", joint, perm=[2, 0, 3, 1, 4])
    query, key, value = (
        net.node("Gather", joint, net.constant(f"index_{index}", np.array(index, np.int64)),
                 axis=0)
        for index in range(3)
    )
    key = net.node("Transpose", key, perm=[0, 1, 3, 2])
    return net.mix(query, key, value, net.scalar(size**0.5), None, width)


def minilm(seed: int = 0, tokens: int | str = 128, batch: int | str = 1, width: int = 384,
           layers: int = 6, heads: int = 12, vocabulary: int = 30522,
           layer_norm: LayerNorm = "decomposed", gelu: Gelu = "erf",
           positions: int = 512) -> ModelProto:
    """A BERT encoder of MiniLM-L6's shape. Inputs `input_ids`, `attention_mask` and
    `token_type_ids`, int64 [batch, tokens]; output `last_hidden_state` [batch, tokens, width]."""
    net = _builder(seed, layer_norm, gelu, 1e-12)
    words = net.node("Gather", net.random(0.5, vocabulary, width), "input_ids")
    kinds = net.node("Gather", net.random(0.5, 2, width), "token_type_ids")
    if isinstance(tokens, int):
        places = net.constant("places", np.arange(tokens, dtype=np.int64)[None])
    else:
        count = net.node("Slice", net.node("Shape", "input_ids"), net.integers(1), net.integers(2))
        every = net.constant("places", np.arange(positions, dtype=np.int64)[None])
        places = net.node("Slice", every, net.integers(0), count, net.integers(1))
    places = net.node("Gather", net.random(0.5, positions, width), places)
    x = net.node("Add", net.node("Add", words, kinds), places)
    x = net.norm(x, width)
    mask = _mask(net, "attention_mask")
    for _ in range(layers):
        y = net.project(_split_attention(net, x, width, heads, mask), width, width)
        x = net.norm(net.node("Add", y, x), width)
        y = net.feed_forward(x, width, 4 * width)
        x = net.norm(net.node("Add", y, x), width)
    names = ("input_ids", "attention_mask", "token_type_ids")
    return net.finished("minilm", dict.fromkeys(names, ("int64", (batch, tokens))),
                        "last_hidden_state", (batch, tokens, width))


def _mask(net: TransformerBuilder, mask: str) -> str:
    """What is added to the scores: 0 where the mask is 1, else the least number."""
    from onnx import TensorProto

    mask = net.node("Unsqueeze", net.node("Unsqueeze", mask, net.integers(1)), net.integers(2))
    inverse = net.node("Sub", net.scalar(1.0), net.node("Cast", mask, to=TensorProto.FLOAT))
    return net.node("Mul", inverse, net.scalar(MASKED))


def _split_attention(net: TransformerBuilder, x: str, width: int, heads: int, mask: str) -> str:
    size = width // heads
    shape = net.integers(0, 0, heads, size)
    query, key, value = (net.node("Reshape", net.project(x, width, width), shape)
                         for _ in range(3))
    query = net.node("Transpose", query, perm=[0, 2, 1, 3])
    key = net.node("Transpose", key, perm=[0, 2, 3, 1])
    value = net.node("Transpose", value, perm=[0, 2, 1, 3])
    return net.mix(query, key, value, net.scalar(size**0.5), mask, width)


def _builder(seed: int, layer_norm: LayerNorm, gelu: Gelu, epsilon: float) -> TransformerBuilder:
    opset = 17
    if gelu == "operator":
        if layer_norm == "decomposed":
            raise ValueError("Gelu is of opset 20, where ReduceMean has other axes: "
                             "write layer_norm='operator' too")
        opset = 20
    return TransformerBuilder({}, seed, opset=opset, layer_norm=layer_norm, gelu=gelu,
                              epsilon=epsilon)

