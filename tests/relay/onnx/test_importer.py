"""Whole models: names, order, origins, folding, and one clear sentence for each bad file."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from single_node import opsets_of

from minitvm.errors import (
    MinitvmError,
    ModelError,
    TypeInferenceError,
    UnsupportedOperatorError,
)
from minitvm.relay.interpret import run
from minitvm.relay.ir import Call, Constant, Module, TensorType, Var
from minitvm.relay.onnx import from_onnx
from minitvm.relay.onnx.table import newest_opset
from minitvm.testing.zoo import mobilenet_v1, mobilenet_v2

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
    start = time.perf_counter()
    module = from_onnx(model(nodes[::-1], [value("v0")], ["v5000"]))
    assert time.perf_counter() - start < 5
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


def branch(nodes: list[Any], output: str, weights: Any = ()) -> onnx.GraphProto:
    return helper.make_graph(nodes, "branch", [], [onnx.ValueInfoProto(name=output)], list(weights))


def branching(taken: bool, opset: int, dead_operator: str = "Exp") -> onnx.ModelProto:
    """x + 1 of x, or else a dead branch whose shapes contradict."""
    live = branch([node("Abs", ["x"], ["t"], "abs"), node("Add", ["t", "one"], ["r"])], "r",
                  [weight("one", [1])])
    dead = branch([node(dead_operator, ["x"], ["t"]), node("Add", ["t", "bad"], ["r"])], "r",
                  [weight("bad", [1, 2, 3, 4, 5])])
    branches = (live, dead) if taken else (dead, live)
    both = {"then_branch": branches[0], "else_branch": branches[1]}
    nodes = [
        node("If", ["condition"], ["t"], "choice", **both),
        node("Not", ["not_condition"], ["condition"]), node("Neg", ["t"], ["y"]),
    ]
    condition = numpy_helper.from_array(np.array(not taken), "not_condition")
    return model(nodes, [value("x")], ["y"], [condition], opset=opset)


@pytest.mark.parametrize("taken", [True, False])
@pytest.mark.parametrize("opset", opsets_of("If"))
def test_a_branch_known_when_importing_is_taken(taken, opset):
    module = from_onnx(branching(taken, opset))
    x = np.float32([[-1, 2, 3], [4, -5, 6]])
    np.testing.assert_array_equal(run(module, {"x": x})[0], -(np.abs(x) + 1))
    names = [binding.origin.names[0] for binding in module.main.body.bindings]
    assert names == ["choice/abs", "choice/Add_1", "Neg_2"]


def test_a_dead_branch_may_hold_anything():
    assert callees(from_onnx(branching(True, 17, "Frobnicate"))) == ["abs", "add", "negative"]


def test_problems_inside_a_branch_are_reported():
    proto = branching(True, 17)
    taken, = (a for a in proto.graph.node[0].attribute if a.name == "then_branch")
    taken.g.node[0].op_type = "LSTM"
    with pytest.raises(UnsupportedOperatorError, match='node "choice/abs": LSTM') as error:
        from_onnx(proto)
    assert str(error.value).startswith("1 node of the model")


def test_a_condition_computed_at_run_time_is_not_supported():
    proto = branching(True, 17)
    proto.graph.initializer.pop()
    proto.graph.input.append(value("not_condition", (), TensorProto.BOOL))
    with pytest.raises(UnsupportedOperatorError, match="condition is computed at run time; fix"):
        from_onnx(proto)


@pytest.mark.parametrize("build", [mobilenet_v1, mobilenet_v2])
def test_whole_networks(build):
    proto = build(weights=7, image=32)
    name = proto.graph.input[0].name
    start = time.perf_counter()
    module = from_onnx(proto)
    assert time.perf_counter() - start < 2
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


# --- what is not supported ----------------------------------------------------------------------


def test_everything_unsupported_is_listed_at_once():
    nodes = [
        node("LSTM", ["x", "x", "x"], ["a"], "rnn"),
        node("Pad", ["x", "pads"], ["b"], "pad", mode="wrap"),
        node("Foo", ["x"], ["c"], "custom"),
        helper.make_node("FusedConv", ["x"], ["d"], name="fused", domain="com.microsoft"),
        node("Sum", ["a", "b", "c", "d"], ["y"], "sum"),
    ]
    imports = [helper.make_opsetid("", 19), helper.make_opsetid("com.microsoft", 1)]
    with pytest.raises(UnsupportedOperatorError) as error:
        from_onnx(model(nodes, [value("x")], ["y"], [integers("pads", 0, 0, 0, 0)],
                        opset_imports=imports))
    lines = str(error.value).splitlines()
    assert lines[0] == "4 nodes of the model cannot be imported:"
    assert 'node "rnn": LSTM (opset 19)' in lines[1] and "unroll" in lines[1]
    assert 'node "pad": Pad (opset 19): the attribute mode is "wrap"' in lines[2]
    assert 'node "custom": Foo' in lines[3]
    assert 'node "fused": com.microsoft.FusedConv (opset 1)' in lines[4]


def test_the_search_goes_on_behind_a_node_that_is_not_supported():
    nodes = [node("ConvTranspose", ["x", "w"], ["a"], "up"),
             node("AveragePool", ["a"], ["y"], "pool", kernel_shape=[2, 2], auto_pad="SOMETIMES")]
    proto = model(nodes, [value("x", (1, 1, 4, 4))], ["y"], [weight("w", np.ones((1, 1, 2, 2)))])
    with pytest.raises(UnsupportedOperatorError) as error:
        from_onnx(proto)
    assert '"up"' in str(error.value) and 'auto_pad is "SOMETIMES"' in str(error.value)


@pytest.mark.parametrize(("operator", "attributes", "message"), [
    ("Relu", {"slope": 0.5}, r"the attribute slope \(here 0.5\) is not known at opset 17"),
    ("Gelu", {}, "exists from opset 20 on"),
    ("Relux", {}, "did you mean .*Relu"),
    ("NonZero", {}, "depends on data"),
    ("Cast", {"to": TensorProto.STRING}, "type STRING, which is not supported"),
])
def test_unsupported_nodes_say_what_to_do(operator, attributes, message):
    proto = model([node(operator, ["x"], ["y"], **attributes)], [value("x")], ["y"])
    with pytest.raises(UnsupportedOperatorError, match=message):
        from_onnx(proto)


@pytest.mark.parametrize("operator", ["Conv", "MaxPool"])
def test_windows_along_three_axes_are_not_supported(operator):
    shape = (1, 1, 3, 3, 3)
    inputs = ["x", "w"] if operator == "Conv" else ["x"]
    proto = model([node(operator, inputs, ["y"], kernel_shape=[2, 2, 2])], [value("x", shape)],
                  ["y"], [weight("w", np.ones((1, 1, 2, 2, 2)))])
    with pytest.raises(UnsupportedOperatorError, match="windows along 3 axes; one or two"):
        from_onnx(proto)


def test_positions_of_maxima_are_not_supported():
    proto = model([node("MaxPool", ["x"], ["y", "positions"], kernel_shape=[2, 2])],
                  [value("x", (1, 1, 4, 4))], ["y", "positions"])
    with pytest.raises(UnsupportedOperatorError, match="positions of the maxima"):
        from_onnx(proto)


def test_training_is_not_supported():
    names = ["x", "w", "w", "w", "w"]
    batch_norm = node("BatchNormalization", names, ["y"], training_mode=1)
    proto = model([batch_norm], [value("x")], ["y"], [weight("w", [1, 1, 1])])
    with pytest.raises(UnsupportedOperatorError, match="for inference"):
        from_onnx(proto)


def test_shapes_computed_at_run_time_are_not_supported():
    nodes = [node("Reshape", ["x", "shape"], ["y"])]
    proto = model(nodes, [value("x"), value("shape", (2,), TensorProto.INT64)], ["y"])
    with pytest.raises(UnsupportedOperatorError, match=r"input 1 \(the shape\) is computed"):
        from_onnx(proto)


@pytest.mark.parametrize(("opset", "advice"), [(6, "version_converter"), (999, "upgrade")])
def test_opsets_outside_the_range(opset, advice):
    proto = model([node("Neg", ["x"], ["y"])], [value("x")], ["y"], opset=opset)
    message = f"opset {opset}.*7 to {newest_opset()}.*{advice}"
    with pytest.raises(UnsupportedOperatorError, match=message):
        from_onnx(proto)


# --- bad files ----------------------------------------------------------------------------------


def bad(message: str, proto: Any, **options: Any) -> None:
    with pytest.raises(ModelError, match=message):
        from_onnx(proto, **options)


def test_files_that_are_no_models(tmp_path):
    bad("cannot be read: No such file", tmp_path / "missing.onnx")
    bad("cannot be read: Is a directory", tmp_path)
    bad("not an ONNX model", b"")
    bad("not an ONNX model", b"hello world, this is no protobuf")
    bad("not an ONNX model", simple().SerializeToString()[:-9])
    bad("a path, bytes or an onnx.ModelProto, not int", 3)


def test_versions_from_the_future():
    proto = simple()
    proto.ir_version = 999
    bad("IR version 999.*upgrade onnx", proto)


def test_a_model_without_the_standard_opset():
    bad("imports no version", model([node("Neg", ["x"], ["y"])], [value("x")], ["y"],
                                    opset_imports=[helper.make_opsetid("other", 1)]))


def test_names_defined_twice():
    nodes = [node("Neg", ["x"], ["y"]), node("Abs", ["x"], ["y"])]
    bad('Abs.* computes "y", which is node "Neg_0" too', model(nodes, [value("x")], ["y"]))
    bad("also a graph input", model([node("Neg", ["x"], ["x"])], [value("x")], ["x"]))
    bad('initializers are named "w"', model([node("Add", ["x", "w"], ["y"])], [value("x")], ["y"],
                                            [weight("w", [1]), weight("w", [2])]))
    bad('graph inputs are named "x"', model([node("Neg", ["x"], ["y"])], [value("x")] * 2, ["y"]))


def test_names_that_nothing_defines():
    bad('"Neg_0" .*reads "missing"', model([node("Neg", ["missing"], ["y"])], [value("x")], ["y"]))
    negative = node("Neg", ["x"], ["y"])
    bad('output "z" is computed by no node', model([negative], [value("x")], ["z"]))


def test_cycles():
    nodes = [node("Add", ["x", "b"], ["a"], "one"), node("Neg", ["a"], ["b"], "two")]
    bad("cycle through one, two", model(nodes, [value("x")], ["b"]))


def test_required_inputs_left_out():
    bad('"Add_0" .*lacks its input 1', model([node("Add", ["x"], ["y"])], [value("x")], ["y"]))
    bad("lacks its input 0", model([node("Add", ["", "x"], ["y"])], [value("x")], ["y"]))


def test_attributes_of_the_wrong_type():
    bad("attribute axis must be an integer", model(
        [node("Concat", ["x", "x"], ["y"], axis=1.5)], [value("x")], ["y"]))
    bad("lacks its attribute axis", model([node("Concat", ["x"], ["y"])], [value("x")], ["y"]))


def test_inputs_of_other_types():
    bad("type STRING", model([node("Identity", ["x"], ["y"])],
                             [value("x", (1,), TensorProto.STRING)], ["y"]))
    sequence = helper.make_tensor_sequence_value_info("x", FLOAT, (1,))
    bad("sequence_type, not a tensor", model([node("Identity", ["x"], ["y"])], [sequence], ["y"]))


def test_ill_typed_nodes_name_the_node():
    nodes = [node("Add", ["x", "w"], ["y"], "the_sum")]
    with pytest.raises(TypeInferenceError, match=r"the_sum.*do not broadcast"):
        from_onnx(model(nodes, [value("x")], ["y"], [weight("w", [1, 2])]))


def test_tensors_of_the_wrong_size():
    proto = simple()
    proto.graph.initializer[0].raw_data = b"12345"
    bad('initializer "w" holds 5 bytes, but float32 of shape .* takes 12', proto)
    proto = simple()
    proto.graph.initializer[0].dims[0] = -3
    bad("negative dimension", proto)
    proto = simple()
    del proto.graph.initializer[0].dims[:]
    proto.graph.initializer[0].dims.extend([2**40, 2**40])
    bad("holds 12 bytes", proto)


@pytest.mark.parametrize("operator", ["ConstantOfShape", "Expand", "Tile"])
def test_constants_of_any_size_are_refused(operator):
    huge = integers("huge", 2**40, 2**20)
    inputs = ["huge"] if operator == "ConstantOfShape" else ["one", "huge"]
    proto = model([node(operator, inputs, ["y"])], [], ["y"], [huge, weight("one", [[1]])])
    bad("constant of", proto)


def external(location: str, **entries: str) -> onnx.ModelProto:
    proto = simple()
    tensor = proto.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, text in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=text)
    return proto


def test_external_data(tmp_path):
    folder = tmp_path / "inside"
    folder.mkdir()
    data = np.float32([0, 1, 2, 3]).tobytes()
    (folder / "w.bin").write_bytes(data)
    (tmp_path / "secret.bin").write_bytes(data)
    (folder / "link.bin").symlink_to(tmp_path / "secret.bin")

    def saved(proto: onnx.ModelProto) -> str:
        (folder / "m.onnx").write_bytes(proto.SerializeToString())
        return str(folder / "m.onnx")

    got = run(from_onnx(saved(external("w.bin", offset="4"))), {"x": np.zeros((2, 3), np.float32)})
    assert got[0].tolist() == [[1, 2, 3]] * 2
    absolute = [str(tmp_path / "secret.bin"), str(folder / "w.bin")]
    for location in ("../secret.bin", *absolute, "link.bin", ""):
        bad("outside of the folder", saved(external(location)))
    bad("does not exist", saved(external("other.bin")))
    bad("holds 8 bytes", saved(external("w.bin", offset="8")))
    bad("takes 12 bytes, not 4", saved(external("w.bin", length="4")))
    bad("no number", saved(external("w.bin", offset="four")))
    bad("give the model as a path", external("w.bin"))


def test_sparse_weights_are_refused():
    proto = simple()
    proto.graph.sparse_initializer.add()
    bad("densify", proto)


@given(seed=st.integers(0, 2**32 - 1), flips=st.integers(1, 4))
def test_damaged_files_give_a_minitvm_error_or_a_module(seed, flips):
    data = bytearray(simple().SerializeToString())
    random = np.random.default_rng(seed)
    for _ in range(flips):
        data[random.integers(len(data))] = random.integers(256)
    try:
        assert isinstance(from_onnx(bytes(data)), Module)
    except MinitvmError as error:
        assert str(error)


@given(length=st.integers(0, 400))
def test_truncated_files_give_a_minitvm_error_or_a_module(length):
    try:
        assert isinstance(from_onnx(simple().SerializeToString()[:length]), Module)
    except MinitvmError as error:
        assert str(error)
