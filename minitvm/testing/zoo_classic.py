"""Networks of plain, residual and dense convolutions, as ONNX models with random parameters.

    resnet(18), ..., resnet(152)   arXiv 1512.03385; the stride of a bottleneck is in its 3x3
    vgg(11), ..., vgg(19)          arXiv 1409.1556
    squeezenet()                   SqueezeNet 1.1, arXiv 1602.07360
    densenet()                     DenseNet-121, arXiv 1608.06993

`width` scales the channels and `image` the picture: small ones compile and run in a moment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from minitvm.testing.zoo_layers import LayerBuilder, scaled

if TYPE_CHECKING:
    from onnx import ModelProto

RESNET_BLOCKS = {
    18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3),
}  # fmt: skip
VGG_BLOCKS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}
FIRES = ((16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256), (64, 256))
"""SqueezeNet: channels squeezed to, and expanded to, twice."""


def resnet(depth: int = 18, seed: int = 0, image: int = 224, width: float = 1.0, batch: int = 1,
           classes: int = 1000, blocks: tuple[int, ...] = ()) -> ModelProto:
    """ResNet; blocks of two 3x3 convolutions, from 50 layers on bottlenecks. `blocks`: how many in
    each of the stages, by default as published."""
    net = LayerBuilder({}, seed)
    channels = scaled(64, width)
    x = net.max_pool(net.conv_act("input", 3, channels, 7, 2), 3, 2, 1)
    growth = 4 if depth >= 50 else 1
    for stage, count in enumerate(blocks or RESNET_BLOCKS[depth]):
        inner = scaled(64 << stage, width)
        for index in range(count):
            stride = 2 if index == 0 and stage > 0 else 1
            x = _residual(net, x, channels, inner, inner * growth, stride)
            channels = inner * growth
    net.dense(net.pooled(x), channels, classes)
    return net.finish(f"resnet{depth}", batch, image, classes)


def _residual(net: LayerBuilder, x: str, inputs: int, inner: int, outputs: int,
              stride: int) -> str:
    if outputs == inner:
        y = net.conv_act(x, inputs, inner, 3, stride)
        y = net.conv_act(y, inner, outputs, 3, kind="none")
    else:
        y = net.conv_act(net.conv_act(x, inputs, inner), inner, inner, 3, stride)
        y = net.conv_act(y, inner, outputs, kind="none")
    if inputs != outputs or stride != 1:
        x = net.conv_act(x, inputs, outputs, stride=stride, kind="none")
    return net.node("Relu", net.node("Add", y, x))


def vgg(depth: int = 11, seed: int = 0, image: int = 224, width: float = 1.0, batch: int = 1,
        classes: int = 1000, hidden: int = 4096) -> ModelProto:
    """VGG without normalization: 3x3 convolutions, and three dense layers."""
    net = LayerBuilder({}, seed)
    x, channels = "input", 3
    for stage, count in enumerate(VGG_BLOCKS[depth]):
        outputs = scaled(min(64 << stage, 512), width)
        for _ in range(count):
            x = net.node("Relu", net.conv(x, channels, outputs, 3))
            channels = outputs
        x = net.max_pool(x, 2, 2)
    x = net.node("Flatten", x, axis=1)
    features = channels * (image // 32) ** 2
    for inputs in (features, hidden):
        x = net.node("Relu", net.dense(x, inputs, hidden))
    net.dense(x, hidden, classes)
    return net.finish(f"vgg{depth}", batch, image, classes)


def squeezenet(seed: int = 0, image: int = 224, width: float = 1.0, batch: int = 1,
               classes: int = 1000) -> ModelProto:
    """SqueezeNet 1.1: channels are squeezed, and expanded by 1x1 and 3x3 side by side."""
    net = LayerBuilder({}, seed)
    channels = scaled(64, width)
    x = net.node("Relu", net.conv("input", 3, channels, 3, 2, padding=0))
    x = net.max_pool(x, 3, 2, ceil=True)
    for index, (squeezed, expanded) in enumerate(FIRES):
        if index in (2, 4):
            x = net.max_pool(x, 3, 2, ceil=True)
        narrow, wide = scaled(squeezed, width), scaled(expanded, width)
        y = net.node("Relu", net.conv(x, channels, narrow))
        sides = [net.node("Relu", net.conv(y, narrow, wide, size)) for size in (1, 3)]
        x = net.node("Concat", *sides, axis=1)
        channels = 2 * wide
    x = net.node("Relu", net.conv(x, channels, classes))
    net.pooled(x)
    return net.finish("squeezenet", batch, image, classes)


def densenet(seed: int = 0, image: int = 224, growth: int = 32, batch: int = 1,
             classes: int = 1000, blocks: tuple[int, ...] = (6, 12, 24, 16)) -> ModelProto:
    """DenseNet-121: every layer reads what all before it in its block gave."""
    net = LayerBuilder({}, seed)
    channels = 2 * growth
    x = net.max_pool(net.conv_act("input", 3, channels, 7, 2), 3, 2, 1)
    for stage, count in enumerate(blocks):
        pieces = [x]
        for _ in range(count):
            joined = net.node("Concat", *pieces, axis=1) if len(pieces) > 1 else x
            y = net.node("Relu", net.norm(joined, channels))
            y = net.conv_act(y, channels, 4 * growth)
            pieces.append(net.conv(y, 4 * growth, growth, 3, bias=False))
            channels += growth
        x = net.node("Relu", net.norm(net.node("Concat", *pieces, axis=1), channels))
        if stage < len(blocks) - 1:
            x = net.average_pool(net.conv(x, channels, channels // 2, bias=False), 2, 2)
            channels //= 2
    net.dense(net.pooled(x), channels, classes)
    return net.finish("densenet121", batch, image, classes)
