"""What to say about an operator that is not imported."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from minitvm.relay.onnx.reader import Node
from minitvm.relay.onnx.table import LAST_OPSET

ADVICE = {
    "QuantizeLinear": "give the model before quantisation, in float32",
    "DequantizeLinear": "give the model before quantisation, in float32",
    "DynamicQuantizeLinear": "give the model before quantisation, in float32",
    "QLinearConv": "give the model before quantisation, in float32",
    "QLinearMatMul": "give the model before quantisation, in float32",
    "ConvInteger": "give the model before quantisation, in float32",
    "MatMulInteger": "give the model before quantisation, in float32",
    "NonZero": "its result's shape depends on data; replace it by a mask and Where",
    "NonMaxSuppression": "export the model without its post-processing",
    "TopK": "export the model without its post-processing, or use ArgMax",
}


def advice_for(
    node: Node, opset: int, known: Mapping[str, Mapping[int, object]]
) -> tuple[str, str]:
    """What is wrong with an operator that has no converter, and what to do."""
    if node.domain:
        return (
            f"operators of the domain {node.domain} are not supported",
            "export with standard ONNX operators only",
        )
    if node.operator in LAST_OPSET and node.operator in known:
        return (
            f"the operator ends with opset {LAST_OPSET[node.operator]}",
            "declare the opset that the node is from, or convert the model to a later one",
        )
    if node.operator in known:
        since = min(known[node.operator])
        return (
            f"the operator exists from opset {since} on",
            f"convert the model to opset {since} or later",
        )
    if node.operator in ADVICE:
        return "the operator is not supported", ADVICE[node.operator]
    close = difflib.get_close_matches(node.operator, known, n=2, cutoff=0.75)
    hint = f"did you mean {' or '.join(close)}? " if close else ""
    return (
        "the operator is not supported",
        f"{hint}express it by supported operators; see minitvm ops",
    )
