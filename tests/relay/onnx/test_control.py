"""Branches and loops, against ONNX Runtime and numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from models import callees, integers, model, node, value, weight
from onnx import TensorProto, helper, numpy_helper
from single_node import opsets_of

import minitvm
from minitvm.errors import ModelError, UnsupportedOperatorError
from minitvm.relay.interpret import run
from minitvm.relay.ir import If
from minitvm.relay.onnx import from_onnx

# --- branches known when importing --------------------------------------------------------------


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
    taken.g.node[0].op_type = "TopK"
    with pytest.raises(UnsupportedOperatorError, match='node "choice/abs": TopK') as error:
        from_onnx(proto)
    assert str(error.value).startswith("1 node of the model")


# --- branches chosen at run time ----------------------------------------------------------------


def agrees(proto: onnx.ModelProto, inputs: dict[str, np.ndarray], compiled: bool = True) -> None:
    """The interpreter, and what is compiled, give what ONNX Runtime gives."""
    session = onnxruntime.InferenceSession(proto.SerializeToString(),
                                           providers=["CPUExecutionProvider"])
    wanted = session.run(None, inputs)
    names = [output.name for output in proto.graph.output]
    results = [dict(zip(names, run(from_onnx(proto), inputs), strict=True))]
    if compiled:
        results.append(minitvm.compile(proto).run(inputs))
    for got in results:
        for name, expected in zip(names, wanted, strict=True):
            assert got[name].shape == expected.shape
            np.testing.assert_allclose(got[name], expected, rtol=1e-5, atol=1e-6)


def nested(level: int) -> onnx.GraphProto:
    """Of t: an operator, or a choice between that and one level less."""
    made = [node("Abs", ["t"], [f"c{level}"])]
    if level:
        other = branch([node("Neg", ["t"], [f"d{level}"])], f"d{level}")
        made = [node("If", ["second"], [f"c{level}"], then_branch=nested(level - 1),
                     else_branch=other)]
    return branch(made, f"c{level}")


def chosen_at_run_time(shape: tuple[int, ...] = (), depth: int = 1) -> onnx.ModelProto:
    """Two outputs of one of two branches that use outer values; nested branches in one."""
    inner = [node("Mul", ["t", "x"], ["a"]), node("Neg", ["t"], ["b"])]
    if depth > 1:
        inner = [*nested(depth - 1).node, node("Mul", ["t", f"c{depth - 1}"], ["a"]), inner[1]]
    outputs = [onnx.ValueInfoProto(name="a"), onnx.ValueInfoProto(name="b")]
    then = helper.make_graph(inner, "then", [], outputs)
    other = helper.make_graph(
        [node("Add", ["x", "w"], ["p"]), node("Identity", ["t"], ["q"])], "else", [],
        [onnx.ValueInfoProto(name="p"), onnx.ValueInfoProto(name="q")], [weight("w", [1, 2, 3])])
    nodes = [node("Exp", ["x"], ["t"]),
             node("If", ["first"], ["y", "z"], "choice", then_branch=then, else_branch=other),
             node("Relu", ["z"], ["r"])]
    inputs = [value("x"), value("first", shape, TensorProto.BOOL),
              value("second", (), TensorProto.BOOL)]
    return model(nodes, inputs, ["y", "r"])


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("second", [True, False])
def test_both_branches_are_compiled(shape, depth, first, second):
    x = np.float32([[-1, 2, 3], [4, -5, 6]])
    inputs = {"x": x, "first": np.full(shape, first), "second": np.array(second)}
    agrees(chosen_at_run_time(shape, depth), inputs, compiled=shape == ())


def test_origins_in_branches_name_their_nodes():
    module = from_onnx(chosen_at_run_time())
    choice, = (b for b in module.main.body.bindings if isinstance(b.value, If))
    assert choice.origin.names == ("choice",)
    assert [b.origin.names[0] for b in choice.value.then_block.bindings[:2]] == [
        "choice/Mul_0", "choice/Neg_1"]


def test_branches_of_different_shapes_are_refused():
    proto = branching(True, 17)
    proto.graph.initializer.pop()
    proto.graph.input.append(value("not_condition", (), TensorProto.BOOL))
    dead, = (a for a in proto.graph.node[0].attribute if a.name == "else_branch")
    dead.g.node[1].CopyFrom(node("Transpose", ["t"], ["r"]))
    with pytest.raises(UnsupportedOperatorError, match=r"branches give .*2, 3.* and .*3, 2"):
        from_onnx(proto)


@pytest.mark.parametrize(("kind", "shape"), [(TensorProto.FLOAT, ()), (TensorProto.BOOL, (2,))])
def test_a_condition_is_one_bool(kind, shape):
    proto = branching(True, 17)
    proto.graph.initializer.pop()
    proto.graph.node.remove(next(n for n in proto.graph.node if n.op_type == "Not"))
    proto.graph.input.append(value("condition", shape, kind))
    with pytest.raises(ModelError, match="the condition must be one bool, not"):
        from_onnx(proto)


def test_problems_in_branches_not_known_yet_are_all_reported():
    proto = chosen_at_run_time()
    for attribute in proto.graph.node[1].attribute:
        attribute.g.node[0].op_type = "TopK"
    with pytest.raises(UnsupportedOperatorError, match="2 nodes of the model"):
        from_onnx(proto)


# --- loops --------------------------------------------------------------------------------------


def looping(count: int | None, limit: int | None, elements: bool = True) -> onnx.ModelProto:
    """s = s * w + i, at most `count` times and while i < limit; each s is an element."""
    body = [node("Cast", ["i"], ["f"], to=TensorProto.FLOAT), node("Mul", ["s", "w"], ["m"]),
            node("Add", ["m", "f"], ["s_out"])]
    outputs = ["c_out", "s_out"]
    if limit is None:
        body.append(node("Identity", ["c"], ["c_out"]))
    else:
        body.append(node("Less", ["i", "limit"], ["c_out"]))
    if elements:
        body.append(node("Neg", ["s_out"], ["e"]))
        outputs.append("e")
    graph = helper.make_graph(
        body, "body", [value("i", (), TensorProto.INT64), value("c", (), TensorProto.BOOL),
                       value("s", (2, 3))],
        [value("c_out", (), TensorProto.BOOL), value("s_out", (2, 3)), value("e", (2, 3))][
            :len(outputs)])
    weights = [weight("w", [0.5, 2, -1]), integers("limit", limit or 0),
               numpy_helper.from_array(np.array(True), "go")]
    weights[1].dims[:] = []
    if count is not None:
        weights.append(numpy_helper.from_array(np.array(count, np.int64), "count"))
    loop = node("Loop", ["count" if count is not None else "", "go", "x"],
                ["y", "all"] if elements else ["y"], "again", body=graph)
    nodes = [loop, node("Abs", ["y"], ["z"])]
    return model(nodes, [value("x")], ["z", "all"] if elements else ["z"], weights)


@pytest.mark.parametrize(("count", "limit", "elements"), [
    (4, None, True), (1, None, True), (0, None, False), (7, 2, True), (None, 3, True),
    (3, 9, False)])
def test_loops_run_as_often_as_they_say(count, limit, elements):
    x = np.float32([[-1, 2, 3], [4, -5, 6]])
    agrees(looping(count, limit, elements), {"x": x})


def test_what_decides_a_loop_must_be_known():
    proto = looping(3, None)
    proto.graph.initializer.pop()
    proto.graph.input.append(value("count", (), TensorProto.INT64))
    with pytest.raises(UnsupportedOperatorError, match=r'"again": Loop .*the count\) is computed'):
        from_onnx(proto)
    proto = looping(None, 3)
    proto.graph.initializer[1].CopyFrom(weight("unused", [1]))
    proto.graph.input.append(value("limit", (), TensorProto.INT64))
    with pytest.raises(UnsupportedOperatorError, match="how often it runs is computed at run time"):
        from_onnx(proto)


def test_loops_without_end_or_beginning_are_refused():
    with pytest.raises(UnsupportedOperatorError, match="more than 2000 times"):
        from_onnx(looping(None, None, elements=False))
    with pytest.raises(UnsupportedOperatorError, match="it never runs"):
        from_onnx(looping(0, None))


@pytest.mark.parametrize("change", ["input", "output", "branch"])
def test_a_body_must_fit_its_node(change):
    proto = chosen_at_run_time() if change == "branch" else looping(3, None)
    graph, = (a.g for a in proto.graph.node[1 if change == "branch" else 0].attribute
              if a.name in ("body", "then_branch"))
    if change == "input":
        graph.input.append(value("more"))
    else:
        del graph.output[0 if change == "output" else 1:]
    with pytest.raises(ModelError, match=r"must have (\d|no) inputs and"):
        from_onnx(proto)


def test_weights_of_a_loop_are_kept_once():
    large = np.random.default_rng(0).standard_normal((256, 256)).astype(np.float32) / 16
    body = helper.make_graph(
        [node("MatMul", ["s", "w"], ["m"]), node("Tanh", ["m"], ["s_out"]),
         node("Identity", ["c"], ["c_out"])], "body",
        [value("i", (), TensorProto.INT64), value("c", (), TensorProto.BOOL),
         value("s", (1, 256))],
        [value("c_out", (), TensorProto.BOOL), value("s_out", (1, 256))],
        [numpy_helper.from_array(large, "w")])
    proto = model([node("Loop", ["count", "", "x"], ["y"], body=body)], [value("x", (1, 256))],
                  ["y"], [numpy_helper.from_array(np.array(9, np.int64), "count")])
    compiled = minitvm.compile(proto)
    assert compiled.program.weights.nbytes < 2 * large.nbytes
    x = large[:1]
    wanted = x
    for _ in range(9):
        wanted = np.tanh(wanted @ large)
    np.testing.assert_allclose(compiled.run({"x": x})["y"], wanted, rtol=1e-4, atol=1e-5)


def scanning(shape: tuple[int, ...], axis: int, backwards: int, output_axis: int,
             output_backwards: int, opset: int) -> onnx.ModelProto:
    """Running sums along an axis, and twice each of them."""
    element = tuple(extent for k, extent in enumerate(shape) if k != axis % len(shape))
    body = helper.make_graph(
        [node("Add", ["s", "e"], ["s_out"]), node("Add", ["s_out", "s_out"], ["twice"])], "body",
        [value("s", element), value("e", element)],
        [value("s_out", element), value("twice", element)])
    scan = node("Scan", ["start", "x"], ["last", "all"], "sums", body=body, num_scan_inputs=1,
                scan_input_axes=[axis], scan_input_directions=[backwards],
                scan_output_axes=[output_axis], scan_output_directions=[output_backwards])
    return model([scan], [value("start", element), value("x", shape)], ["last", "all"],
                 opset=opset)


@given(st.data(), st.sampled_from(opsets_of("Scan", first=9)))
def test_scans_go_along_axes_in_both_directions(data, opset):
    shape = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    rank = len(shape)
    lowest = -rank if opset >= 11 else 0
    axis = data.draw(st.integers(lowest, rank - 1))
    output_axis = data.draw(st.integers(lowest, rank - 1))
    proto = scanning(shape, axis, data.draw(st.integers(0, 1)), output_axis,
                     data.draw(st.integers(0, 1)), opset)
    rng = np.random.default_rng(0)
    element = tuple(extent for k, extent in enumerate(shape) if k != axis % rank)
    agrees(proto, {"start": rng.standard_normal(element).astype(np.float32),
                   "x": rng.standard_normal(shape).astype(np.float32)}, compiled=False)


def test_a_scan_is_compiled():
    rng = np.random.default_rng(0)
    agrees(scanning((2, 5, 3), 1, 1, 2, 0, 17),
           {"start": rng.standard_normal((2, 3)).astype(np.float32),
            "x": rng.standard_normal((2, 5, 3)).astype(np.float32)})


def test_scan_attributes_must_fit():
    proto = scanning((2, 3), 0, 0, 0, 0, 17)
    for attribute in proto.graph.node[0].attribute:
        if attribute.name == "scan_input_axes":
            attribute.ints.append(1)
    with pytest.raises(ModelError, match="scan_input_axes holds 2 integers for 1 tensors"):
        from_onnx(proto)
    with pytest.raises(ModelError, match="there is no axis 2"):
        from_onnx(scanning((2, 3), 2, 0, 0, 0, 17))


def test_the_first_scan_is_too_old():
    with pytest.raises(UnsupportedOperatorError, match="exists from opset 9 on"):
        from_onnx(scanning((2, 3), 0, 0, 0, 0, 8))
