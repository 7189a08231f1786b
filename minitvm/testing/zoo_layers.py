"""Layers that the networks of the zoo share, on top of `zoo.OnnxBuilder`.

Every parameter is random, from a seed: convolutions keep the variance of what they see, and batch
normalization follows most of them, so that activations stay finite in the deepest network.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from minitvm.testing.zoo import OnnxBuilder

if TYPE_CHECKING:
    from onnx import ModelProto


class LayerBuilder(OnnxBuilder):
    """Layers by name; parameters are named by their position in the network."""

    def conv(self, x: str, inputs: int, filters: int, size: int = 1, stride: int = 1,
             groups: int = 1, bias: bool = True, padding: int | None = None) -> str:
        """A convolution; the padding is half of the window if it isn't given."""
        name = f"conv_{len(self.nodes)}"
        weight = self.weight(f"{name}.weight", (filters, inputs // groups, size, size))
        rest = [self.weight(f"{name}.bias", (filters,), "shift")] if bias else []
        pads = [size // 2 if padding is None else padding] * 4
        return self.node("Conv", x, weight, *rest, strides=[stride] * 2, pads=pads, group=groups,
                         kernel_shape=[size, size])

    def norm(self, x: str, channels: int) -> str:
        """Batch normalization."""
        name = f"norm_{len(self.nodes)}"
        parts = (("weight", "scale"), ("bias", "shift"), ("mean", "shift"), ("var", "variance"))
        return self.node("BatchNormalization", x, *(
            self.weight(f"{name}.{part}", (channels,), kind) for part, kind in parts))

    def activate(self, x: str, kind: str) -> str:
        """relu, relu6, hard_swish, silu, or none."""
        match kind:
            case "relu":
                return self.node("Relu", x)
            case "relu6":
                low = self.constant("clip_low", np.array(0, np.float32))
                return self.node("Clip", x, low, self.constant("clip_6", np.array(6, np.float32)))
            case "hard_swish":
                return self.node("HardSwish", x)
            case "silu":
                return self.node("Mul", x, self.node("Sigmoid", x))
            case "none":
                return x
        raise ValueError(f"no activation is called {kind!r}")

    def conv_act(self, x: str, inputs: int, filters: int, size: int = 1, stride: int = 1,
                 groups: int = 1, kind: str = "relu") -> str:
        """Convolution, batch normalization, activation."""
        y = self.conv(x, inputs, filters, size, stride, groups, bias=False)
        return self.activate(self.norm(y, filters), kind)

    def max_pool(self, x: str, size: int, stride: int, padding: int = 0,
                 ceil: bool = False) -> str:
        """The greatest of each window."""
        return self.node("MaxPool", x, kernel_shape=[size, size], strides=[stride] * 2,
                         pads=[padding] * 4, ceil_mode=int(ceil))

    def average_pool(self, x: str, size: int, stride: int) -> str:
        """The mean of each window, without padding."""
        return self.node("AveragePool", x, kernel_shape=[size, size], strides=[stride] * 2)

    def dense(self, x: str, inputs: int, outputs: int) -> str:
        """A dense layer with bias."""
        name = f"dense_{len(self.nodes)}"
        return self.node("Gemm", x, self.weight(f"{name}.weight", (outputs, inputs)),
                         self.weight(f"{name}.bias", (outputs,), "shift"), transB=1)

    def gate(self, x: str, channels: int, squeezed: int, inner: str, outer: str) -> str:
        """Squeeze and excite: every channel times a number that depends on all of them."""
        y = self.node("GlobalAveragePool", x)
        y = self.activate(self.conv(y, channels, squeezed), inner)
        y = self.conv(y, squeezed, channels)
        if outer == "hard_sigmoid":
            y = self.node("HardSigmoid", y, alpha=1 / 6, beta=0.5)
        else:
            y = self.node("Sigmoid", y)
        return self.node("Mul", x, y)

    def pooled(self, x: str) -> str:
        """The mean of every channel, as rows."""
        return self.node("Flatten", self.node("GlobalAveragePool", x), axis=1)

    def finish(self, name: str, batch: int, image: int, classes: int) -> ModelProto:
        """The model, from the last node."""
        return self.model(name, (batch, 3, image, image), classes)


def scaled(channels: int, width: float, divisor: int = 8) -> int:
    """`channels` times `width`, to the nearest multiple of `divisor`, at most 10% below."""
    value = channels * width
    rounded = max(divisor, int(value + divisor / 2) // divisor * divisor)
    return rounded + divisor if rounded < 0.9 * value else rounded
