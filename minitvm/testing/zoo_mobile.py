"""Networks of inverted residuals with gates, as ONNX models with random parameters.

    mobilenet_v3("large"), mobilenet_v3("small")   arXiv 1905.02244
    efficientnet_b0()                              arXiv 1905.11946

`width` scales the channels and `image` the picture: small ones compile and run in a moment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from minitvm.testing.zoo_layers import LayerBuilder, scaled

if TYPE_CHECKING:
    from onnx import ModelProto

MOBILENET_V3_BLOCKS = {
    # window, expanded channels, result, gate, activation, stride
    "large": (
        (3, 16, 16, False, "relu", 1), (3, 64, 24, False, "relu", 2),
        (3, 72, 24, False, "relu", 1), (5, 72, 40, True, "relu", 2), (5, 120, 40, True, "relu", 1),
        (5, 120, 40, True, "relu", 1), (3, 240, 80, False, "hard_swish", 2),
        (3, 200, 80, False, "hard_swish", 1), (3, 184, 80, False, "hard_swish", 1),
        (3, 184, 80, False, "hard_swish", 1), (3, 480, 112, True, "hard_swish", 1),
        (3, 672, 112, True, "hard_swish", 1), (5, 672, 160, True, "hard_swish", 2),
        (5, 960, 160, True, "hard_swish", 1), (5, 960, 160, True, "hard_swish", 1),
    ),
    "small": (
        (3, 16, 16, True, "relu", 2), (3, 72, 24, False, "relu", 2), (3, 88, 24, False, "relu", 1),
        (5, 96, 40, True, "hard_swish", 2), (5, 240, 40, True, "hard_swish", 1),
        (5, 240, 40, True, "hard_swish", 1), (5, 120, 48, True, "hard_swish", 1),
        (5, 144, 48, True, "hard_swish", 1), (5, 288, 96, True, "hard_swish", 2),
        (5, 576, 96, True, "hard_swish", 1), (5, 576, 96, True, "hard_swish", 1),
    ),
}  # fmt: skip
MOBILENET_V3_HEADS = {"large": 1280, "small": 1024}

EFFICIENTNET_B0_BLOCKS = (
    # expansion, window, stride, channels, repeats
    (1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3), (6, 5, 1, 112, 3),
    (6, 5, 2, 192, 4), (6, 3, 1, 320, 1),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Block:
    """An inverted residual: `inputs` channels are expanded, filtered, gated and projected."""

    window: int
    inputs: int
    expanded: int
    outputs: int
    stride: int
    activation: str
    squeezed: int = 0
    gate: tuple[str, str] = ("silu", "sigmoid")

    def add(self, net: LayerBuilder, x: str) -> str:
        """Adds the block behind `x`; `squeezed` = 0 is no gate."""
        y = x
        if self.expanded != self.inputs:
            y = net.conv_act(y, self.inputs, self.expanded, kind=self.activation)
        y = net.conv_act(y, self.expanded, self.expanded, self.window, self.stride, self.expanded,
                         self.activation)
        if self.squeezed:
            y = net.gate(y, self.expanded, self.squeezed, *self.gate)
        y = net.conv_act(y, self.expanded, self.outputs, kind="none")
        kept = self.stride == 1 and self.inputs == self.outputs
        return net.node("Add", y, x) if kept else y


def mobilenet_v3(size: str = "large", seed: int = 0, image: int = 224, width: float = 1.0,
                 batch: int = 1, classes: int = 1000) -> ModelProto:
    """MobileNetV3, "large" or "small"."""
    net = LayerBuilder({}, seed)
    channels = scaled(16, width)
    x = net.conv_act("input", 3, channels, 3, 2, kind="hard_swish")
    last = 0
    for window, expanded, outputs, gated, activation, stride in MOBILENET_V3_BLOCKS[size]:
        last = scaled(expanded, width)
        squeezed = scaled(last // 4, 1) if gated else 0
        block = Block(window, channels, last, scaled(outputs, width), stride, activation,
                      squeezed, ("relu", "hard_sigmoid"))
        x, channels = block.add(net, x), block.outputs
    x = net.pooled(net.conv_act(x, channels, 6 * channels, kind="hard_swish"))
    head = scaled(MOBILENET_V3_HEADS[size], width)
    x = net.activate(net.dense(x, 6 * channels, head), "hard_swish")
    net.dense(x, head, classes)
    return net.finish(f"mobilenet_v3_{size}", batch, image, classes)


def efficientnet_b0(seed: int = 0, image: int = 224, width: float = 1.0, batch: int = 1,
                    classes: int = 1000) -> ModelProto:
    """EfficientNet-B0."""
    net = LayerBuilder({}, seed)
    channels = scaled(32, width)
    x = net.conv_act("input", 3, channels, 3, 2, kind="silu")
    for expansion, window, first_stride, outputs, repeats in EFFICIENTNET_B0_BLOCKS:
        for repeat in range(repeats):
            stride = first_stride if repeat == 0 else 1
            block = Block(window, channels, channels * expansion, scaled(outputs, width), stride,
                          "silu", max(1, channels // 4))
            x, channels = block.add(net, x), block.outputs
    head = scaled(1280, width)
    x = net.pooled(net.conv_act(x, channels, head, kind="silu"))
    net.dense(x, head, classes)
    return net.finish("efficientnet_b0", batch, image, classes)
