"""Whole models: names, order, origins, folding, shapes."""

from __future__ import annotations

import time

import numpy as np
import onnx
import onnxruntime
import pytest
from models import callees, integers, model, node, simple, value, weight
from onnx import TensorProto, helper, numpy_helper

from minitvm.errors import ModelError
from minitvm.relay.interpret import run
from minitvm.relay.ir import Constant, TensorType, Var
from minitvm.relay.onnx import from_onnx
from minitvm.testing.zoo import mobilenet_v1, mobilenet_v2

# --- what a model becomes -----------------------------------------------------------------------


def test_names_and_origins_are_kept():
    module = from_onnx(simple())
    main = module.main
    assert [(p.name, p.type) for p in main.params] == [("x", TensorType((2, 3), "float32"))]
    assert main.attrs["output_names"] == ("y",)
    assert main.attrs["name"] == "a_graph"
    assert [b.origin.names for b in main.body.bindings] == [("plus",), ("Relu_1",)]
    assert from_onnx(simple(), name="mine").main.attrs["name"] == "mine"


def test_paths_bytes_and_protos_give_the_same(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(simple().SerializeToString())
    x = np.random.default_rng(1).standard_normal((2, 3)).astype(np.float32)
    expected = np.maximum(x + np.float32([1, 2, 3]), 0)
    for source in (path, str(path), path.read_bytes(), simple()):
        np.testing.assert_array_equal(run(from_onnx(source), {"x": x})[0], expected)


def test_several_outputs_of_any_kind():
    proto = model([node("Neg", ["x"], ["n"])], [value("x")], ["n", "x", "w"], [weight("w", [5])])
    x = np.ones((2, 3), np.float32)
    negative, same, constant = run(from_onnx(proto), {"x": x})
    assert (negative == -1).all() and (same == 1).all() and constant == [5]
    alone = from_onnx(model([], [value("x")], ["x"]))
    assert isinstance(alone.main.body.result, Var)


def test_names_of_nodes_become_unique():
    nodes = [node("Neg", ["x"], ["a"], "n"), node("Neg", ["a"], ["b"], "n"),
             node("Neg", ["b"], ["c"], "Neg_3"), node("Neg", ["c"], ["y"])]
    bindings = from_onnx(model(nodes, [value("x")], ["y"])).main.body.bindings
    assert len({binding.origin.names[0] for binding in bindings}) == 4


def test_nodes_out_of_order_are_sorted():
    nodes = [node("Exp", ["b"], ["y"]), node("Neg", ["a"], ["b"]), node("Abs", ["x"], ["a"])]
    assert callees(from_onnx(model(nodes, [value("x")], ["y"]))) == ["abs", "negative", "exp"]


def test_long_chains_are_imported_in_linear_time():
    nodes = [node("Neg", [f"v{k}"], [f"v{k + 1}"]) for k in range(5000)]
    start = time.process_time()
    module = from_onnx(model(nodes[::-1], [value("v0")], ["v5000"]))
    assert time.process_time() - start < 5
    assert len(module.main.body.bindings) == 5000


def test_what_no_output_needs_is_dropped():
    nodes = [node("Neg", ["x"], ["y"]), node("Frobnicate", ["y"], ["z"])]
    assert callees(from_onnx(model(nodes, [value("x")], ["y"]))) == ["negative"]


def test_initializers_among_the_inputs_are_weights():
    proto = simple()
    proto.graph.input.append(value("w", (3,)))
    assert [p.name for p in from_onnx(proto).main.params] == ["x"]


def test_arithmetic_on_shapes_disappears():
    nodes = [
        node("Shape", ["x"], ["s"]), node("Gather", ["s", "zero"], ["n"]),
        node("Unsqueeze", ["n"], ["n1"], axes=[0]),
        node("Concat", ["n1", "minus"], ["shape"], axis=0), node("Reshape", ["x", "shape"], ["y"]),
    ]
    weights = [numpy_helper.from_array(np.array(0, np.int64), "zero"), integers("minus", -1)]
    module = from_onnx(model(nodes, [value("x", (2, 3, 4))], ["y"], weights, opset=11))
    assert callees(module) == ["reshape"]
    assert module.main.result_type == TensorType((2, 12), "float32")


def test_all_of_a_constant_graph_folds():
    module = from_onnx(model([node("Neg", ["w"], ["y"])], [], ["y"], [weight("w", [1, 2])]))
    assert not module.main.body.bindings
    assert isinstance(module.main.body.result, Constant)
    assert module.main.body.result.data.tolist() == [-1, -2]


def test_functions_of_the_model_are_inlined():
    body = [helper.make_node("Mul", ["a", "a"], ["b"])]
    function = helper.make_function("local", "Square", ["a"], ["b"], body,
                                    [helper.make_opsetid("", 17)])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    proto = model([helper.make_node("Square", ["x"], ["y"], domain="local")], [value("x")], ["y"],
                  opset_imports=imports, functions=[function])
    assert callees(from_onnx(proto)) == ["multiply"]


def test_unused_domains_do_not_matter():
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    nodes = [node("Neg", ["x"], ["y"])]
    assert callees(from_onnx(model(nodes, [value("x")], ["y"], opset_imports=imports)))


@pytest.mark.parametrize("build", [mobilenet_v1, mobilenet_v2])
def test_whole_networks(build):
    proto = build(weights=7, image=32)
    name = proto.graph.input[0].name
    start = time.process_time()
    module = from_onnx(proto)
    assert time.process_time() - start < 2
    expected_kinds = {"nn.conv2d", "nn.batch_norm", "nn.dense"}
    assert expected_kinds <= set(callees(module))
    x = np.random.default_rng(1).standard_normal((1, 3, 32, 32)).astype(np.float32)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    wanted = session.run(None, {name: x})[0]
    got = run(module, {name: x})[0]
    assert np.abs(got - wanted).max() <= 1e-4 * np.abs(wanted).max()


# --- shapes -------------------------------------------------------------------------------------


# --- inputs that are fixed ----------------------------------------------------------------------


def test_fixed_inputs_become_constants():
    proto = open_model()
    module = from_onnx(proto, {"image": (2, 3)}, fixed={"mask": np.float32([[1, 2, 3]])})
    assert [param.name for param in module.main.params] == ["image"]
    x = np.float32([[-1, 2, 3], [4, -5, 6]])
    np.testing.assert_array_equal(run(module, {"image": x})[0], x + np.float32([1, 2, 3]))


def test_a_number_is_for_all_elements():
    module = from_onnx(open_model(), {"image": (2, 3), "mask": (2, 3)}, fixed={"mask": 0.5})
    x = np.float32([[-1, 2, 3], [4, -5, 6]])
    np.testing.assert_array_equal(run(module, {"image": x})[0], x + 0.5)


@pytest.mark.parametrize(("shapes", "fixed", "said"), [
    ({"image": (2, 3)}, {"mask": 1}, 'input "mask" has the open size -1'),
    ({"image": (2, 3)}, {"mosk": 1}, 'no input "mosk"; did you mean mask'),
    ({"image": (2, 3)}, {"mask": np.ones((2, 4), np.float32)}, "does not fit the model's"),
    ({"image": (2, 3)}, {"mask": "one"}, "holds float32; it can't be fixed to 'one'"),
    ({"image": (2, 3)}, {"mask": 1e60}, "can't be fixed to 1e"),
    ({"image": (2, 3)}, {"mask": [[1], [2, 3]]}, "can't be fixed to"),
])
def test_values_that_fit_no_input_are_refused(shapes, fixed, said):
    with pytest.raises(ModelError, match=said):
        from_onnx(open_model(), shapes, fixed=fixed)


def test_integers_are_not_rounded():
    proto = model([node("Neg", ["x"], ["y"])], [value("x", (2,), TensorProto.INT64)], ["y"])
    assert from_onnx(proto, fixed={"x": [3.0, 4]}).main.body.result.data.tolist() == [-3, -4]
    with pytest.raises(ModelError, match="holds int64; it can't be fixed"):
        from_onnx(proto, fixed={"x": 0.5})


def open_model() -> onnx.ModelProto:
    nodes = [node("Add", ["image", "mask"], ["y"])]
    return model(nodes, [value("image", ("N", 3)), value("mask", (-1, 3))], ["y"])


def test_open_sizes_are_listed_together():
    with pytest.raises(ModelError) as error:
        from_onnx(open_model())
    text = str(error.value)
    assert 'input "image" has the open size N in dimension 0' in text
    assert '--shape "image=1,3"' in text
    assert 'input "mask" has the open size -1 in dimension 0' in text


def test_shapes_close_open_sizes():
    module = from_onnx(open_model(), {"image": (5, 3), "mask": (5, 3)})
    assert module.main.result_type == TensorType((5, 3), "float32")


@pytest.mark.parametrize(("shapes", "message"), [
    ({"imago": (1, 3)}, "did you mean image"),
    ({"image": (1, 3, 3)}, r"has 3 dimensions; the model's is \(N, 3\)"),
    ({"image": (1, 4)}, r"does not fit the model's \(N, 3\)"),
    ({"image": (0, 3)}, "positive integers"),
    ({"image": ("N", 3)}, "positive integers"),
])
def test_shapes_that_do_not_fit_are_refused(shapes, message):
    with pytest.raises(ModelError, match=message):
        from_onnx(open_model(), shapes)


def test_one_name_is_one_size():
    proto = model([node("Neg", ["x"], ["y"])], [value("x", ("N", "N"))], ["y"])
    assert from_onnx(proto, {"x": (2, 2)}).main.params[0].type == TensorType((2, 2), "float32")
    with pytest.raises(ModelError, match="does not fit"):
        from_onnx(proto, {"x": (2, 3)})


def test_an_input_without_a_shape_needs_one():
    proto = model([node("Neg", ["x"], ["y"])], [value("x", None)], ["y"])
    with pytest.raises(ModelError, match='input "x" has no shape: give --shape'):
        from_onnx(proto)
    assert from_onnx(proto, {"x": (4,)}).main.result_type == TensorType((4,), "float32")
