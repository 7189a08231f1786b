"""More ways in which a drawn relay function grows: images with the channels last, and siblings that
multiply one value by different weights."""

from __future__ import annotations

from minitvm.testing.relay_growth import Grower
from minitvm.testing.relay_moves import make, move, tensor_shape, window_attributes


@move(2, "nn.conv2d", "transpose")
def channels_last_conv2d(grower: Grower) -> None:
    """`nn.conv2d` in NHWC, with weights in either layout, of a value as it is or transposed."""
    x = grower.tensor(rank=4)
    if grower.flag():
        x = grower.call(make("transpose", axes=(0, 2, 3, 1)), x)
    channels = tensor_shape(x)[3]
    groups = grower.pick([g for g in range(1, channels + 1) if channels % g == 0])
    outputs = groups * grower.integer(1, max(1, 8 // groups))
    kernel = (grower.integer(1, 3), grower.integer(1, 3))
    kernel_layout = grower.pick(("HWIO", "OIHW"))
    shape = ((*kernel, channels // groups, outputs) if kernel_layout == "HWIO"
             else (outputs, channels // groups, *kernel))
    op = make("nn.conv2d", groups=groups, data_layout="NHWC", kernel_layout=kernel_layout,
              **window_attributes(grower))
    grower.call(op, x, grower.weight(shape))


@move(1, "nn.max_pool2d", "nn.avg_pool2d")
def channels_last_pooling(grower: Grower) -> None:
    """Pooling in NHWC."""
    name = grower.pick(("nn.max_pool2d", "nn.avg_pool2d"))
    size = (grower.integer(1, 3), grower.integer(1, 3))
    op = make(name, pool_size=size, layout="NHWC", **window_attributes(grower))
    grower.call(op, grower.tensor(rank=4))


@move(1, "nn.conv2d", "nn.dense", "nn.bias_add", "nn.relu")
def siblings(grower: Grower) -> None:
    """Three or four convolutions or dense layers of one value, most followed alike."""
    x = grower.tensor(rank=grower.pick((2, 4)))
    depth = tensor_shape(x)[1]
    follower = grower.pick(("nn.relu", "nn.bias_add", None))
    for _ in range(grower.integer(3, 4)):
        units = grower.integer(1, 5)
        if len(tensor_shape(x)) == 2:
            y = grower.call(make("nn.dense"), x, grower.weight((units, depth)))
        else:
            y = grower.call(make("nn.conv2d"), x, grower.weight((units, depth, 1, 1)))
        if follower is None or grower.integer(0, 5) == 0:
            continue
        more = (grower.weight((units,)),) if follower == "nn.bias_add" else ()
        grower.call(make(follower), y, *more)
