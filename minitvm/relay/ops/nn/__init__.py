"""The operators of neural networks: convolution, products, pooling, normalisation, activations."""

from minitvm.relay.ops.nn.activations import LeakyRelu, PRelu, Relu
from minitvm.relay.ops.nn.attention import Attention
from minitvm.relay.ops.nn.bias_add import BiasAdd
from minitvm.relay.ops.nn.channels import ChannelShuffle, ConcatenateChannels, SliceChannels
from minitvm.relay.ops.nn.conv1d import Conv1d
from minitvm.relay.ops.nn.conv2d import Conv2d
from minitvm.relay.ops.nn.dense import BatchMatmul, Dense
from minitvm.relay.ops.nn.layer_norm import LayerNorm, Standardize
from minitvm.relay.ops.nn.lrn import Lrn
from minitvm.relay.ops.nn.matmul import Matmul
from minitvm.relay.ops.nn.normalization import BatchNorm, Dropout
from minitvm.relay.ops.nn.pad import Pad
from minitvm.relay.ops.nn.pooling import AvgPool2d, GlobalAvgPool2d, GlobalMaxPool2d, MaxPool2d
from minitvm.relay.ops.nn.rotary import RotaryEmbedding
from minitvm.relay.ops.nn.softmax import LogSoftmax, Softmax
from minitvm.relay.ops.nn.winograd import WinogradInput, WinogradOutput, WinogradWeight

__all__ = [
    "Attention",
    "AvgPool2d",
    "BatchMatmul",
    "BatchNorm",
    "BiasAdd",
    "ChannelShuffle",
    "ConcatenateChannels",
    "Conv1d",
    "Conv2d",
    "Dense",
    "Dropout",
    "GlobalAvgPool2d",
    "GlobalMaxPool2d",
    "LayerNorm",
    "LeakyRelu",
    "LogSoftmax",
    "Lrn",
    "Matmul",
    "MaxPool2d",
    "PRelu",
    "Pad",
    "Relu",
    "RotaryEmbedding",
    "SliceChannels",
    "Softmax",
    "Standardize",
    "WinogradInput",
    "WinogradOutput",
    "WinogradWeight",
]
