"""Two models with one trunk, compiled as one module: what they share is computed once.

    python examples/06_shared_trunk.py

Two classifiers of the same pictures were trained on the same frozen features, and were exported as
two ONNX files. Joined, they are one function with two results; the passes find that the trunks
compute the same, and memory is planned over both.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import minitvm
from minitvm import relay
from minitvm.relay.ir import Module
from minitvm.relay.onnx import from_onnx

IMAGE = (1, 3, 32, 32)


def classifier(name: str, classes: int, seed: int) -> onnx.ModelProto:
    """Three convolutions, the same in every model, and a dense layer of its own."""
    trunk, own = np.random.default_rng(0), np.random.default_rng(seed)
    nodes, weights, value, channels = [], [], "image", IMAGE[1]
    for index, width in enumerate((16, 32, 64)):
        data = trunk.standard_normal((width, channels, 3, 3)).astype("float32") / (3 * channels)
        weights.append(numpy_helper.from_array(data, f"trunk.{index}"))
        nodes.append(helper.make_node("Conv", [value, f"trunk.{index}"], [f"conv{index}"],
                                      name=f"conv{index}", pads=[1] * 4, strides=[2, 2]))
        nodes.append(helper.make_node("Relu", [f"conv{index}"], [f"relu{index}"],
                                      name=f"relu{index}"))
        value, channels = f"relu{index}", width
    nodes.append(helper.make_node("GlobalAveragePool", [value], ["pooled"], name="pool"))
    nodes.append(helper.make_node("Flatten", ["pooled"], ["features"], name="flatten"))
    head = own.standard_normal((classes, channels)).astype("float32")
    weights.append(numpy_helper.from_array(head, f"{name}.head"))
    inputs = ["features", f"{name}.head"]
    nodes.append(helper.make_node("Gemm", inputs, [name], name=name, transB=1))
    graph = helper.make_graph(
        nodes, name, [helper.make_tensor_value_info("image", TensorProto.FLOAT, IMAGE)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, classes))], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def joined(models: list[Module]) -> Module:
    """One module that gives the results of all models on the same inputs, in order."""
    inputs = [relay.var(param.name, param.type) for param in models[0].main.params]
    results = [relay.call(model.main, *inputs) for model in models]
    names = tuple(name for model in models for name in model.main.attrs["output_names"])
    main = relay.Function(inputs, relay.Tuple(results), {"output_names": names, "name": "joined"})
    return Module.from_expr(main)


def main() -> None:
    models = [from_onnx(classifier("cats", 10, seed=1)), from_onnx(classifier("dogs", 20, seed=2))]
    apart = [minitvm.compile(model) for model in models]
    together = minitvm.compile(joined(models))

    image = np.random.default_rng(3).standard_normal(IMAGE).astype("float32")
    results = together.run({"image": image})
    for model in apart:
        for name, expected in model.run({"image": image}).items():
            minitvm.testing.assert_allclose(results[name], expected, rtol=1e-5, atol=1e-6)
    alone = [model.kernel_calls for model in apart]
    heads = [name for name in together.relay.functions if "dense" in name]
    print(f"apart: {alone[0]} and {alone[1]} kernel calls, "
          f"{sum(model.program.weights.nbytes for model in apart):,} bytes of weights")
    print(f"together: {together.kernel_calls} kernel calls, {together.program.weights.nbytes:,} "
          f"bytes of weights; the same results")
    print(f"of these are the heads: {', '.join(heads)}\n")
    print(str(together.relay).split("\n\n")[0])
    assert together.kernel_calls < sum(alone)


if __name__ == "__main__":
    main()
