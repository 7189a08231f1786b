"""Networks whose channels are split, shuffled, grouped and joined, as ONNX models with random
parameters.

    resnext50()         arXiv 1611.05431    3x3 convolutions in 32 groups of 4 and more channels
    shufflenet_v1()     arXiv 1707.01083    1x1 convolutions in groups, channels shuffled between
    shufflenet_v2()     arXiv 1807.11164    one half of the channels is kept, and shuffled in
    googlenet()         arXiv 1409.4842     four branches side by side, normalised across channels

`image` sizes the picture, and `blocks` says how many there are in each stage: small ones compile
and run in a moment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from minitvm.testing.zoo_layers import LayerBuilder

if TYPE_CHECKING:
    from onnx import ModelProto

INCEPTIONS = (
    # 1x1; 1x1, then 3x3; 1x1, then 5x5; behind the pooling; whether the picture is halved before
    (64, 96, 128, 16, 32, 32, True), (128, 128, 192, 32, 96, 64, False),
    (192, 96, 208, 16, 48, 64, True), (160, 112, 224, 24, 64, 64, False),
    (128, 128, 256, 24, 64, 64, False), (112, 144, 288, 32, 64, 64, False),
    (256, 160, 320, 32, 128, 128, False), (256, 160, 320, 32, 128, 128, True),
    (384, 192, 384, 48, 128, 128, False),
)  # fmt: skip


def resnext50(seed: int = 0, image: int = 224, batch: int = 1, classes: int = 1000,
              groups: int = 32, blocks: tuple[int, ...] = (3, 4, 6, 3)) -> ModelProto:
    """ResNeXt-50: groups of 4 channels in the first stage, twice as many in each that follows."""
    net, channels = LayerBuilder({}, seed), 64
    x = net.max_pool(net.conv_act("input", 3, channels, 7, 2), 3, 2, 1)
    for stage, count in enumerate(blocks):
        inner, outputs = groups * 4 << stage, groups * 8 << stage
        for index in range(count):
            stride = 2 if index == 0 and stage > 0 else 1
            y = net.conv_act(x, channels, inner)
            y = net.conv_act(y, inner, inner, 3, stride, groups)
            y = net.conv_act(y, inner, outputs, kind="none")
            if channels != outputs or stride != 1:
                x = net.conv_act(x, channels, outputs, stride=stride, kind="none")
            x, channels = net.node("Relu", net.node("Add", y, x)), outputs
    net.dense(net.pooled(x), channels, classes)
    return net.finish("resnext50", batch, image, classes)


def shufflenet_v1(seed: int = 0, image: int = 224, batch: int = 1, classes: int = 1000,
                  groups: int = 3, stages: tuple[int, ...] = (240, 480, 960),
                  blocks: tuple[int, ...] = (4, 8, 4)) -> ModelProto:
    """ShuffleNet: `stages` are the channels of each stage, `groups` divides a quarter of them."""
    net, channels, side = LayerBuilder({}, seed), 24, -(-image // 4)
    x = net.max_pool(net.conv_act("input", 3, channels, 3, 2), 3, 2, 1)
    for stage, (outputs, count) in enumerate(zip(stages, blocks, strict=True)):
        before, side = side, -(-side // 2)
        for index in range(count):
            stride, inner = 2 if index == 0 else 1, outputs // 4
            added = outputs - channels if stride == 2 else outputs
            y = net.conv_act(x, channels, inner, groups=1 if stage + index == 0 else groups)
            y = shuffle(net, y, inner, groups, side if index else before)
            y = net.conv_act(y, inner, inner, 3, stride, inner, kind="none")
            y = net.conv_act(y, inner, added, groups=groups, kind="none")
            if stride == 2:
                pool = net.node("AveragePool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
                x = net.node("Relu", net.node("Concat", pool, y, axis=1))
            else:
                x = net.node("Relu", net.node("Add", x, y))
            channels = outputs
    net.dense(net.pooled(x), channels, classes)
    return net.finish("shufflenet_v1", batch, image, classes)


def shufflenet_v2(seed: int = 0, image: int = 224, batch: int = 1, classes: int = 1000,
                  stages: tuple[int, ...] = (116, 232, 464), last: int = 1024,
                  blocks: tuple[int, ...] = (4, 8, 4)) -> ModelProto:
    """ShuffleNet V2: `stages` are the channels of each, `last` those before the classifier."""
    net, channels, side = LayerBuilder({}, seed), 24, -(-image // 4)
    x = net.max_pool(net.conv_act("input", 3, channels, 3, 2), 3, 2, 1)
    for outputs, count in zip(stages, blocks, strict=True):
        half, side = outputs // 2, -(-side // 2)
        for index in range(count):
            if index == 0:
                kept = net.conv_act(x, channels, channels, 3, 2, channels, kind="none")
                kept = net.conv_act(kept, channels, half)
                y, inputs, stride = x, channels, 2
            else:
                kept, y = split(net, x, 0, half), split(net, x, half, outputs)
                inputs, stride = half, 1
            y = net.conv_act(y, inputs, half)
            y = net.conv_act(y, half, half, 3, stride, half, kind="none")
            joined = net.node("Concat", kept, net.conv_act(y, half, half), axis=1)
            x, channels = shuffle(net, joined, outputs, 2, side), outputs
    net.dense(net.pooled(net.conv_act(x, channels, last)), last, classes)
    return net.finish("shufflenet_v2", batch, image, classes)


def split(net: LayerBuilder, x: str, start: int, end: int) -> str:
    """Some of the channels."""
    bounds = (net.constant(f"{kind}_{value}", np.array([value], np.int64))
              for kind, value in (("start", start), ("end", end), ("axis", 1)))
    return net.node("Slice", x, *bounds)


def shuffle(net: LayerBuilder, x: str, channels: int, groups: int, side: int) -> str:
    """Channels of `groups` groups in turn: the first of each, then the second of each."""
    wide = net.constant(f"wide_{groups}_{channels}_{side}",
                        np.array([0, groups, channels // groups, side, side], np.int64))
    flat = net.constant(f"flat_{channels}_{side}", np.array([0, channels, side, side], np.int64))
    y = net.node("Transpose", net.node("Reshape", x, wide), perm=[0, 2, 1, 3, 4])
    return net.node("Reshape", y, flat)


def googlenet(seed: int = 0, image: int = 224, batch: int = 1, classes: int = 1000,
              blocks: int = len(INCEPTIONS)) -> ModelProto:
    """GoogLeNet, Inception v1: the first of its `blocks`."""
    net = LayerBuilder({}, seed)

    def conv(x: str, inputs: int, filters: int, size: int = 1, stride: int = 1) -> str:
        return net.node("Relu", net.conv(x, inputs, filters, size, stride))

    def normalized(x: str) -> str:
        return net.node("LRN", x, size=5, alpha=1e-4, beta=0.75, bias=1.0)

    x = normalized(net.max_pool(conv("input", 3, 64, 7, 2), 3, 2, 1))
    x, channels = normalized(conv(conv(x, 64, 64), 64, 192, 3)), 192
    for one, narrow3, wide3, narrow5, wide5, pooled, halved in INCEPTIONS[:blocks]:
        x = net.max_pool(x, 3, 2, 1) if halved else x
        branches = (
            conv(x, channels, one), conv(conv(x, channels, narrow3), narrow3, wide3, 3),
            conv(conv(x, channels, narrow5), narrow5, wide5, 5),
            conv(net.max_pool(x, 3, 1, 1), channels, pooled),
        )
        x, channels = net.node("Concat", *branches, axis=1), one + wide3 + wide5 + pooled
    net.dense(net.pooled(x), channels, classes)
    return net.finish("googlenet", batch, image, classes)
