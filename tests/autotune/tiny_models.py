"""Small ONNX models to tune."""

from __future__ import annotations

import onnx.parser

_TWO = """
    <ir_version: 8, opset_import: ["": 17]>
    two (float[1, 32, 12, 12] image) => (float[1, 64, 12, 12] y)
    <int64[4] size = {64, 32, 1, 1}, int64[4] next = {64, 64, 1, 1}>
    { w = ConstantOfShape <value = float[1] {0.5}> (size)
      v = ConstantOfShape <value = float[1] {0.25}> (next)
      a = Conv (image, w)
      b = Relu (a)
      c = Conv (b, v)
      y = Relu (c) }
"""


def two_convolutions() -> onnx.ModelProto:
    """Two convolutions of 1x1, each with what follows it."""
    return onnx.parser.parse_model(_TWO)
