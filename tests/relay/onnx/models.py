"""Small models, built for the tests."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from minitvm.relay.ir import Call, Module

FLOAT = TensorProto.FLOAT


def value(name: str, shape: Any = (2, 3), kind: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def weight(name: str, data: Any) -> TensorProto:
    return numpy_helper.from_array(np.asarray(data, np.float32), name)


def integers(name: str, *data: int) -> TensorProto:
    return numpy_helper.from_array(np.array(data, np.int64), name)


def model(nodes: list[Any], inputs: list[Any], outputs: list[str], weights: Any = (),
          opset: int = 17, **rest: Any) -> onnx.ModelProto:
    results = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph(nodes, "a_graph", inputs, results, list(weights))
    imports = rest.pop("opset_imports", [helper.make_opsetid("", opset)])
    return helper.make_model(graph, opset_imports=imports, **({"ir_version": 8} | rest))


def node(operator: str, inputs: list[str], outputs: list[str], name: str = "",
         **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(operator, inputs, outputs, name=name, **attributes)


def simple() -> onnx.ModelProto:
    return model([node("Add", ["x", "w"], ["t"], "plus"), node("Relu", ["t"], ["y"])],
                 [value("x")], ["y"], [weight("w", [1, 2, 3])])


def callees(module: Module) -> list[str]:
    return [b.value.callee.name for b in module.main.body.bindings if isinstance(b.value, Call)]
