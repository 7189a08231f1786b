"""One clear sentence for what is not supported, and for each way that a file can be bad."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from models import FLOAT, integers, model, node, simple, value, weight
from onnx import TensorProto, helper

from minitvm.errors import (
    MinitvmError,
    ModelError,
    TypeInferenceError,
    UnsupportedOperatorError,
)
from minitvm.relay.interpret import run
from minitvm.relay.ir import Module
from minitvm.relay.onnx import from_onnx
from minitvm.relay.onnx.table import newest_opset

# --- what is not supported ----------------------------------------------------------------------


def test_everything_unsupported_is_listed_at_once():
    nodes = [
        node("TopK", ["x", "pads"], ["a"], "best"),
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
    assert 'node "best": TopK (opset 19)' in lines[1] and "ArgMax" in lines[1]
    assert 'node "pad": Pad (opset 19): the attribute mode is "wrap"' in lines[2]
    assert 'node "custom": Foo' in lines[3]
    assert 'node "fused": com.microsoft.FusedConv (opset 1)' in lines[4]


def test_the_search_goes_on_behind_a_node_that_is_not_supported():
    nodes = [node("LpPool", ["x"], ["a"], "up", kernel_shape=[1, 1]),
             node("AveragePool", ["a"], ["y"], "pool", kernel_shape=[2, 2], auto_pad="SOMETIMES")]
    proto = model(nodes, [value("x", (1, 1, 4, 4))], ["y"])
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


@pytest.mark.parametrize(("operator", "attributes", "message"), [
    ("Einsum", {"equation": "...ij->...ji"}, "has an ellipsis"),
    ("Einsum", {"equation": "iijk->jk"}, "a letter twice"),
    ("Attention", {"softcap": 2.0}, "softcap is not 0"),
])
def test_formulas_that_are_not_supported(operator, attributes, message):
    count = 1 if operator == "Einsum" else 3
    proto = model([node(operator, ["x"] * count, ["y"], **attributes)],
                  [value("x", (2, 2, 2, 2))], ["y"],
                  opset_imports=[helper.make_opsetid("", 23)])
    with pytest.raises(UnsupportedOperatorError, match=message):
        from_onnx(proto)


@pytest.mark.parametrize(("equation", "message"), [
    ("ij,jk->ik", "names 2 factors of 1"), ("ijk->i", "does not name the axes"),
    ("hijk->m", "a letter that no factor has"),
])
def test_formulas_that_do_not_fit(equation, message):
    proto = model([node("Einsum", ["x"], ["y"], equation=equation)],
                  [value("x", (1, 1, 2, 2))], ["y"])
    with pytest.raises(ModelError, match=message):
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
