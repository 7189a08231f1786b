"""TVM's names: all that docs/coming-from-tvm.md lists exist, and programs written with them run."""

from __future__ import annotations

import importlib
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx.parser
import pytest

import minitvm
from minitvm import relay, te
from minitvm.contrib import graph_executor
from minitvm.errors import InputError, LoweringError, ModelError, OptionError, TargetError
from minitvm.runtime import BenchmarkResult, FunctionModule
from minitvm.runtime.timing import measure

PAGE = Path(__file__).parents[1] / "docs" / "coming-from-tvm.md"
ROW = re.compile(r"^\| (`.*?) \| (.*?) \| .*\|$", re.MULTILINE)
needs_linker = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler on PATH")

NUMBERS = ", ".join(str((7 * i) % 5 - 2) for i in range(32))
MODEL = f"""
    <ir_version: 8, opset_import: ["": 17]>
    small (float[2, 8] x) => (float[2, 4] y, float[2, 4] z)
    <float[4, 8] w = {{{NUMBERS}}}, float[4] b = {{0.5, -0.5, 1.0, 2.0}}>
    {{
        [product] p = Gemm <transB = 1> (x, w)
        [shifted] y = Add (p, b)
        [kept] z = Relu (y)
    }}
"""


@pytest.fixture
def model():
    return onnx.parser.parse_model(MODEL)


@pytest.fixture
def x():
    return np.random.default_rng(0).integers(-4, 5, (2, 8)).astype("float32")


@pytest.fixture
def expected(model, x):
    w, b = (onnx.numpy_helper.to_array(item) for item in model.graph.initializer)
    return x @ w.T + b


def same(got, wanted) -> bool:
    return np.array_equal(np.asarray(got), wanted)


# --- the page -----------------------------------------------------------------------------------


def listed() -> list[str]:
    names = [name for row in ROW.finditer(PAGE.read_text())
             for name in re.findall(r"`([\w.]+)`", row[2])]
    assert len(names) > 90
    return sorted(set(names))


def look_up(name: str) -> object:
    value: object = minitvm
    for part in name.removeprefix("minitvm.").split("."):
        try:
            value = getattr(value, part)
        except AttributeError:
            value = importlib.import_module(f"{value.__name__}.{part}")
    return value


@pytest.mark.parametrize("name", listed())
def test_every_name_on_the_page_exists(name):
    if name not in ("minitvm.compile", "minitvm.run"):  # the commands are `minitvm compile`
        assert look_up(name) is not None


def test_a_name_that_does_not_exist_would_be_found():
    with pytest.raises(ModuleNotFoundError):
        look_up("relay.transform.FuseEverything")


# --- models -------------------------------------------------------------------------------------


def test_frozen_weights_are_constants(model, x, expected):
    mod, params = relay.frontend.from_onnx(model, {"x": (2, 8)}, dtype="float32", opset=17)
    assert params == {} and [param.name for param in mod["main"].params] == ["x"]
    assert same(relay.run(mod, {"x": x})[0], expected)


def test_free_weights_are_inputs_until_they_are_bound(model, x, expected):
    mod, params = relay.frontend.from_onnx(model, freeze_params=False)
    assert set(params) == {"w", "b"}
    assert {param.name for param in mod["main"].params} == {"x", "w", "b"}
    relay.verify(mod)
    assert same(relay.run(mod, {"x": x, **params})[0], expected)
    changed = {**params, "b": params["b"] + 1}
    lib = relay.build(mod, "llvm", params=changed)
    assert same(lib["default"](minitvm.cpu(0)).run({"x": x})["y"], expected + 1)
    unbound = relay.build(mod)["default"]()
    assert same(unbound.run({"x": x, **params})["y"], expected)


def test_weights_that_importing_changes_stay_constants(model, x):
    model.graph.node[0].attribute[0].i = 0  # the product is with w itself: x must have 4 columns
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 4
    model.graph.initializer.pop()
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros(8, "float32"), "b"))
    for value in model.graph.output:
        value.type.tensor_type.shape.dim[1].dim_value = 8
    mod, params = relay.frontend.from_onnx(model, freeze_params=False)
    w = onnx.numpy_helper.to_array(model.graph.initializer[0])
    assert set(params) == {"b"}
    assert same(relay.run(mod, {"x": x[:, :4], **params})[0], x[:, :4] @ w)


def test_what_does_not_fit_the_model_is_refused(model):
    with pytest.raises(ModelError, match="'x' of the model is float32, not int8"):
        relay.frontend.from_onnx(model, dtype={"x": "int8"})
    with pytest.raises(ModelError, match="of opset 17, not 9"):
        relay.frontend.from_onnx(model, opset=9)
    mod, params = relay.frontend.from_onnx(model, freeze_params=False)
    with pytest.raises(InputError, match="no parameter 'ww'"):
        relay.build(mod, params={"ww": params["w"]})
    with pytest.raises(InputError, match=r"the parameter 'b' is .* and the value given"):
        relay.build(mod, params={"b": params["w"]})


def test_a_function_compiles_as_a_module_does(x):
    y = relay.nn.relu(relay.var("x", shape=(2, 8)))
    function = relay.Function(relay.analysis.free_vars(y), y)
    assert same(relay.build(function)["default"]().run({"x": x})["output0"], np.maximum(x, 0))
    optimized, params = relay.optimize(function, "llvm")
    assert params == {} and any(f.is_primitive for f in optimized.functions.values())


@pytest.mark.parametrize("kind", ["graph", "vm", "aot", "debug"])
def test_executors_agree(kind, model, x, expected):
    mod, params = relay.frontend.from_onnx(model, freeze_params=False)
    evaluate = relay.create_executor(kind, mod, minitvm.cpu(0), "llvm", params).evaluate()
    for outputs in (evaluate(minitvm.nd.array(x)), evaluate(x=x)):
        assert [same(output, value) for output, value in
                zip(outputs, (expected, np.maximum(expected, 0)), strict=True)] == [True, True]


def test_executors_that_do_not_exist_are_named(model):
    with pytest.raises(OptionError, match="no executor 'fast'"):
        relay.create_executor("fast", relay.frontend.from_onnx(model)[0])
    with pytest.raises(OptionError, match="needs a module"):
        relay.create_executor("graph")


def test_free_variables_come_in_the_order_of_their_use():
    a, b, c = (relay.var(name, shape=(3,)) for name in "abc")
    shared = b + c
    assert relay.analysis.free_vars((shared * a) + shared) == [b, c, a]
    assert relay.analysis.free_vars(relay.If(relay.var("t", dtype="bool"), c, b))[1:] == [c, b]


# --- the graph module ---------------------------------------------------------------------------


@pytest.fixture
def module(model):
    lib = relay.build(relay.frontend.from_onnx(model)[0], "llvm")
    return graph_executor.GraphModule(lib["default"](minitvm.cpu(0)))


def test_inputs_are_set_by_name_position_or_keyword(module, x, expected):
    for put in (lambda: module.set_input("x", x), lambda: module.set_input(0, minitvm.nd.array(x)),
                lambda: module.set_input(x=x), lambda: module.run(x=x)):
        module.set_input("x", np.zeros_like(x))
        put()
        module.run()
        assert same(module.get_output(0), expected)
        assert same(module.get_output(1), np.maximum(expected, 0))


def test_inputs_are_copied_and_outputs_can_be_given(module, x, expected):
    mine = x.copy()
    module.set_input("x", mine)
    mine[:] = 0
    module.run()
    out = minitvm.nd.empty((2, 4))
    assert module.get_output(0, out) is out and same(out, expected)
    plain = np.empty((2, 4), "float32")
    module.get_output(0, plain)
    assert same(plain, expected)
    assert same(module.get_input(0), x)
    module.get_input("x")[0] = 0  # what it gives is the input itself
    module.run()
    assert same(module.get_output(0)[1], expected[1]) and not same(module.get_output(0), expected)


def test_a_graph_module_knows_its_inputs(module):
    assert (module.get_num_inputs(), module.get_num_outputs()) == (1, 2)
    assert (module.get_input_index("x"), module.get_input_index("w")) == (0, -1)
    assert module.get_input_info() == ({"x": (2, 8)}, {"x": "float32"})


def test_a_graph_module_refuses_what_does_not_fit(module, x):
    for call, message in [
        (lambda: module.get_output(0), "no outputs before the first run"),
        (lambda: module.get_input("x"), "'x' was not set"),
        (lambda: module.run(), "needs another input: x: float32"),
        (lambda: module.set_input("xx", x), "no input 'xx'; did you mean 'x'?"),
        (lambda: module.set_input(3, x), "no input 3; the model has 1"),
        (lambda: module.set_input("x", x.astype("float64")), "has dtype float64"),
        (lambda: module.run(x=x[:1]), r"has shape \[1, 8\]"),
        (lambda: (module.run(x=x), module.get_output(2)), "no output 2; the model has 2"),
        (lambda: module.time_evaluator("walk"), "only 'run' is timed"),
        (lambda: graph_executor.GraphModule("x.so"), "not of a str"),
    ]:
        with pytest.raises(InputError, match=message):
            call()


@pytest.mark.parametrize("end_to_end", [False, True])
def test_a_benchmark_counts_runs(module, x, end_to_end, monkeypatch):
    runs = []
    run = module._model.run
    monkeypatch.setattr(module._model, "run", lambda inputs: runs.append(0) or run(inputs))
    result = module.benchmark(minitvm.cpu(0), repeat=3, number=4, end_to_end=end_to_end, x=x)
    assert len(result.results) == 3 and len(runs) == 1 + 3 * 4
    assert 0 < result.min <= result.median <= result.max < 1
    assert module.module.time_evaluator("run", minitvm.cpu(0), number=2)().mean > 0


def test_statistics_are_of_the_repetitions():
    result = BenchmarkResult((0.001, 0.002, 0.006))
    assert (result.median, result.min, result.max) == (0.002, 0.001, 0.006)
    assert np.isclose(result.mean, 0.003)
    assert np.isclose(result.std, np.std(result.results))
    assert str(result).splitlines()[2].split() == ["3.0000", "2.0000", "6.0000", "1.0000", "2.1602"]


def test_the_number_of_calls_grows_to_the_time_wanted():
    calls = []
    result = measure(lambda: calls.append(0), number=1, repeat=2, min_repeat_ms=5)
    assert len(result.results) == 2 and len(calls) > 100
    with pytest.raises(OptionError, match="repeat is 0"):
        measure(print, repeat=0)


@needs_linker
def test_libraries_are_exported_and_loaded(model, x, expected, tmp_path):
    lib = relay.build(relay.frontend.from_onnx(model)[0], "llvm", mod_name="chosen")
    lib.export_library(tmp_path / "model.so")
    loaded = minitvm.runtime.load_module(tmp_path / "model.so")
    for name in ("default", "chosen"):
        module = graph_executor.GraphModule(loaded[name](minitvm.cpu(0)))
        module.run(x=x)
        assert same(module.get_output(0), expected)
    assert lib.get_params() == {} and lib.target == minitvm.Target.host()
    with pytest.raises(InputError, match="no model 'other'; it has 'chosen'"):
        loaded["other"]


# --- schedules ----------------------------------------------------------------------------------


def doubled(shape=(4, 8), dtype="float32"):
    A = te.placeholder(shape, dtype, name="A")
    B = te.compute(shape, lambda *i: A[i] + A[i], name="B")
    return te.create_schedule(B.op), [A, B]


def test_a_built_function_writes_in_place():
    s, args = doubled()
    f = minitvm.build(s, args, "llvm", name="double")
    a, b = minitvm.nd.array(np.arange(32, dtype="float32").reshape(4, 8)), minitvm.nd.empty((4, 8))
    f(a, b)
    assert same(b, 2 * a.numpy())
    f["double"](b.numpy(), a)
    assert same(a, 2 * b.numpy())
    assert f.time_evaluator(f.entry_name, minitvm.cpu(), number=3, repeat=2)(a, b).mean > 0
    with pytest.raises(InputError, match="no function 'triple'; it has 'double'"):
        f["triple"]


def test_a_built_function_copies_what_it_reads_only_where_needed():
    s, args = doubled()
    f, a = minitvm.build(s, args), np.arange(64, dtype="float32").reshape(8, 8)
    b = np.empty((4, 8), "float32")
    f(a[::2], b)  # not contiguous
    assert same(b, 2 * a[::2])


def test_a_built_function_refuses_what_does_not_fit():
    s, args = doubled()
    f, a, b = minitvm.build(s, args), np.zeros((4, 8), "float32"), np.zeros((4, 8), "float32")
    frozen = b.copy()
    frozen.flags.writeable = False
    for wrong, message in [
        ((a,), "takes 2 arguments, A, B; 1 were given"),
        ((a, 3.0), "'B' is a float"),
        ((a, b.astype("float64")), r"'B' is float64\[4, 8\]; the function takes float32\[4, 8\]"),
        ((a[:2], b), r"'A' is float32\[2, 8\]"),
        ((a, np.zeros((8, 4), "float32").T), "must be a writeable C-contiguous array"),
        ((a, frozen), "must be a writeable C-contiguous array"),
        ((a, a), "'B' and 'A' share memory"),
    ]:
        with pytest.raises(InputError, match=message):
            f(*wrong)


def test_arguments_stand_in_any_order():
    """Outputs first, one between inputs, and two of them."""
    shape = (3,)
    A, B = (te.placeholder(shape, name=name) for name in "AB")
    C, D = te.compute(shape, lambda i: (A[i] - B[i], A[i] * B[i]), name="C")
    a, b = (np.array(values, "float32") for values in ([1, 2, 3], [4, 5, 7]))
    for order in ([C, A, D, B], [A, B, C, D], [D, C, B, A]):
        f = minitvm.build(te.create_schedule(C.op), order)
        arrays = {A: a, B: b, C: np.empty(3, "float32"), D: np.empty(3, "float32")}
        f(*(arrays[tensor] for tensor in order))
        assert same(arrays[C], a - b) and same(arrays[D], a * b)


def test_sizes_are_taken_from_the_arrays():
    n, m = te.var("n"), te.var("m")
    A = te.placeholder((n, m), name="A")
    k = te.reduce_axis((0, m), "k")
    B = te.compute((n,), lambda i: te.sum(A[i, k], axis=k), name="B")
    s = te.create_schedule(B.op)
    s[B].split(B.op.axis[0], factor=4)
    for args in ([A, B], [n, m, A, B]):
        f = minitvm.build(s, args, "llvm", name="row_sums")
        for shape in ((5, 3), (8, 1), (1, 17)):
            a = np.arange(np.prod(shape), dtype="float32").reshape(shape)
            b = np.empty(shape[0], "float32")
            f(a, b)
            assert same(b, a.sum(axis=1))
            f(*shape, a, b)
        with pytest.raises(InputError, match=r"'B' is float32\[4\]; the .* takes float32\[5\]"):
            f(np.zeros((5, 3), "float32"), np.zeros(4, "float32"))
    with pytest.raises(LoweringError, match="row_sums takes n, m when it is called"):
        f.export_library("never.so")


@needs_linker
def test_a_built_function_is_exported_and_loaded(tmp_path):
    s, args = doubled((100,), "int32")
    f = minitvm.build(s, args, name="double")
    f.export_library(tmp_path / "double.so")
    g = minitvm.runtime.load_module(tmp_path / "double.so")
    assert isinstance(g, FunctionModule) and g.entry_name == "double"
    a, b = np.arange(100, dtype="int32"), minitvm.nd.empty((100,), "int32")
    g(a, b)
    assert same(b, 2 * a)
    assert g.time_evaluator("double", number=2)(a, b).mean > 0
    with pytest.raises(InputError, match="share memory"):
        g(a, a)


def test_the_code_of_a_built_function_can_be_read(tmp_path):
    s, args = doubled((64,))
    f = minitvm.build(s, args, "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a76", name="double")
    assert "define" in f.get_source() and "fadd" in f.get_source("asm")
    assert f.get_source("tir") == str(minitvm.lower(s, args, "double"))
    assert minitvm.tir.parse_func(f.get_source("machine")).name == "double"
    for kind in ("o", "s", "ll", "tir"):
        f.save(tmp_path / f"double.{kind}")
    assert (tmp_path / "double.o").read_bytes()[:4] == b"\x7fELF"
    assert (tmp_path / "double.s").read_text() == f.get_source("s")
    with pytest.raises(OptionError, match="no source of the kind 'cu'"):
        f.get_source("cu")
    with pytest.raises(TargetError, match="can't run on this machine"):
        f(np.zeros(64, "float32"), np.zeros(64, "float32"))


def test_loop_nests_are_built_as_they_are():
    s, args = doubled()
    func = minitvm.lower(s, args, name="double", simple_mode=True)
    assert minitvm.lower(func) is func
    a, b = np.ones((4, 8), "float32"), np.empty((4, 8), "float32")
    minitvm.build(func)(a, b)
    assert same(b, 2 * a)


def test_what_can_not_be_built_is_refused():
    s, args = doubled()
    func = minitvm.lower(s, args)
    A = func.params[0]
    with pytest.raises(LoweringError, match="two parameters called 'A'"):
        minitvm.build(replace(func, params=(*func.params, replace(A))))
    with pytest.raises(LoweringError, match="give them as args"):
        minitvm.build(s)
    with pytest.raises(LoweringError, match="not a list"):
        minitvm.lower(args)
    with pytest.raises(OptionError, match="a CPU and its own host"):
        minitvm.build(s, args, "llvm", "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a76")


def test_scratch_memory_of_any_size_is_there():
    A = te.placeholder((100, 100), name="A")
    B = te.compute((100, 100), lambda i, j: A[i, j] * 2.0, name="B")
    C = te.compute((100, 100), lambda i, j: B[j, i] + 1.0, name="C")
    f = minitvm.build(te.create_schedule(C), [A, C])
    a, c = np.random.default_rng(0).random((100, 100), "float32"), np.empty((100, 100), "float32")
    f(a, c)
    assert same(c, 2 * a.T + 1)


def test_a_prim_func_computes_its_outputs_in_order():
    A = te.placeholder((5,), name="A")
    B = te.compute((5,), lambda i: A[i] + 1.0, name="B")
    C = te.compute((5,), lambda i: B[i] * 2.0, name="C")
    for ops in ([A, C], [A, B, C]):
        arrays = [np.arange(5, dtype="float32")] + [np.empty(5, "float32") for _ in ops[1:]]
        func = te.create_prim_func(ops, name="f")
        assert [param.name for param in func.params] == [tensor.name for tensor in ops]
        minitvm.build(func)(*arrays)
        assert same(arrays[-1], 2 * (arrays[0] + 1))


def test_a_reducer_of_pairs_is_written_with_select():
    index, value = (te.placeholder((3, 7), "int32", name=name) for name in ("index", "value"))
    k = te.reduce_axis((0, 7), "k")

    def combine(x, y):
        return tuple(minitvm.tir.Select(x[1] >= y[1], x[n], y[n]) for n in (0, 1))

    argmax = te.comm_reducer(
        combine, lambda t0, t1: (minitvm.tir.const(-1, t0), te.min_value(t1)), name="argmax")
    best = te.compute((3,), lambda i: argmax((index[i, k], value[i, k]), axis=k), name="best")
    f = minitvm.build(te.create_schedule(best[0].op), [index, value, *best])
    values = np.random.default_rng(0).permutation(21).reshape(3, 7).astype("int32")
    where, most = np.empty(3, "int32"), np.empty(3, "int32")
    f(np.tile(np.arange(7, dtype="int32"), (3, 1)), values, where, most)
    assert same(where, values.argmax(1)) and same(most, values.max(1))


# --- networks written by hand -------------------------------------------------------------------


def compiled_result(expr, **inputs):
    variables = relay.analysis.free_vars(expr)
    module = minitvm.IRModule.from_expr(relay.Function(variables, expr))
    return relay.build(module)["default"]().run(inputs)["output0"]


def test_a_network_is_written_as_for_tvm():
    random = np.random.default_rng(0)
    shapes = {"data": (1, 3, 8, 8), "weight": (4, 3, 3, 3), "gamma": (4,), "beta": (4,),
              "mean": (4,), "var": (4,), "dense": (10, 64)}
    inputs = {name: random.random(shape, "float32") for name, shape in shapes.items()}
    v = {name: relay.var(name, shape=shape) for name, shape in shapes.items()}
    y = relay.nn.conv2d(data=v["data"], weight=v["weight"], kernel_size=(3, 3), channels=4,
                        padding=(1, 1), strides=(2, 2))
    y = relay.nn.batch_norm(y, v["gamma"], v["beta"], moving_mean=v["mean"], moving_var=v["var"])[0]
    y = relay.nn.batch_flatten(relay.nn.relu(y))
    y = relay.nn.softmax(relay.nn.dense(data=y, weight=v["dense"], units=10)).astype("float64")
    got = compiled_result(y, **inputs)
    assert got.dtype == np.float64 and got.shape == (1, 10) and np.isclose(got.sum(), 1)
    function = relay.Function(relay.analysis.free_vars(y), y)
    expected = relay.run(minitvm.IRModule.from_expr(function), inputs)[0]
    minitvm.testing.assert_allclose(got, expected, rtol=1e-4)


def test_shorthands_mean_what_their_operators_do():
    x = relay.var("x", shape=(2, 3, 4))
    data = np.random.default_rng(0).integers(-9, 9, (2, 3, 4)).astype("float32")
    slope = np.array([0.5, 2, 4], "float32")
    expected = np.where(data < 0, data * slope[:, None], data)
    assert same(compiled_result(relay.nn.prelu(x, relay.const(slope)), x=data), expected)
    assert relay.expand_dims(x, axis=1, num_newaxis=2).type.shape == (2, 1, 1, 3, 4)
    assert relay.expand_dims(x, axis=-1, num_newaxis=2).type.shape == (2, 3, 4, 1, 1)
    pair = relay.Tuple([x, x])
    joined = relay.concatenate(pair, axis=0)
    assert same(compiled_result(joined, x=data), np.concatenate([data, data]))
    a, b = (relay.var(name, shape=shape) for name, shape in (("a", (5, 2)), ("b", (4, 5))))
    left, right = np.ones((5, 2), "float32"), np.arange(20, dtype="float32").reshape(4, 5)
    product = relay.nn.matmul(a, b, units=4, transpose_a=True, transpose_b=True)
    assert same(compiled_result(product, a=left, b=right), left.T @ right.T)


def test_shorthands_refuse_what_is_not_so():
    x, w, c = (relay.var(name, shape=shape) for name, shape in
               (("x", (1, 3, 8, 8)), ("w", (4, 3, 3, 3)), ("c", (3,))))
    for call, message in [
        (lambda: relay.nn.conv2d(x, w, kernel_size=(5, 5)), r"kernel_size is \(5, 5\)"),
        (lambda: relay.nn.conv2d(x, w, out_layout="NHWC"), "not 'NHWC'"),
        (lambda: relay.nn.batch_norm(x, c, c, c, c, scale=False), "give ones for gamma"),
        (lambda: relay.nn.batch_norm(x, c, c, c, c)[1], "only field 0"),
        (lambda: relay.nn.matmul(c, c, units=7), "units is 7, and the product is Tensor"),
        (lambda: relay.nn.dense(x, data=x), "takes the operands x, weight, each once"),
        (lambda: relay.nn.relu(x, weight=w), "takes not the attribute weight"),
    ]:
        with pytest.raises(minitvm.MinitvmError, match=message):
            call()


# --- arrays, devices, printing ------------------------------------------------------------------


def test_arrays_are_shells_around_numpys():
    a = minitvm.nd.array([[1.0, 2.0], [3.0, 4.0]], minitvm.cpu(0))
    assert (a.shape, a.dtype, str(a.device)) == ((2, 2), "float64", "cpu(0)")
    copy = a.numpy()
    copy[:] = 0
    assert same(a, [[1, 2], [3, 4]]) and same(np.from_dlpack(a), a.asnumpy())
    b = minitvm.nd.empty((2, 2), "float64")
    assert a.copyto(b) is b and same(b, a)
    assert same(a.copyto(minitvm.cpu()), a)
    b[0] = minitvm.nd.array(np.zeros(2))
    assert same(b, [[0, 0], [3, 4]]) and same(b[1], [3, 4]) and len(b) == 2
    assert same(np.asarray(b, "float32"), b) and "shape=(2, 2), cpu(0)" in repr(b)
    with pytest.raises(InputError, match=r"of shape \[3\] can't be copied into one of"):
        b.copyfrom(np.zeros(3))


def test_there_is_one_device():
    assert minitvm.cpu() == minitvm.device("llvm") == minitvm.device(str(minitvm.Target()), 0)
    assert minitvm.device(minitvm.target.Target("llvm").kind.name, 0).exist
    minitvm.cpu().sync()
    for kind, index in (("cuda", 0), ("cpu", 1), ("", 0)):
        with pytest.raises(OptionError, match="there is no"):
            minitvm.device(kind, index)


def test_results_are_compared_with_their_shapes():
    minitvm.testing.assert_allclose(minitvm.nd.array(np.ones(2)), [1, 1 + 1e-8])
    for wrong in ([1, 1.1], [1, 1, 1], 1.0):
        with pytest.raises(AssertionError):
            minitvm.testing.assert_allclose(np.ones(2), wrong)


def test_programs_print_as_their_text(model):
    mod = relay.frontend.from_onnx(model)[0]
    assert str(mod) == relay.print_module(mod) and "def main(" in str(mod["main"])
    func = minitvm.lower(*doubled())
    assert str(func) == minitvm.tir.print_func(func)


def test_index_arithmetic_by_name():
    tir = minitvm.tir
    i = te.var("i")
    assert str(tir.indexmod(i, 32)) == str(i % 32) and str(tir.floordiv(i, 4)) == str(i // 4)
    assert tir.const(2.5, "float32").dtype == "float32" and tir.const(3).value == 3


# --- passes -------------------------------------------------------------------------------------


def two_functions():
    x = relay.var("x", shape=(3,))
    functions = {"main": relay.Function([x], relay.nn.relu(x)), "other": relay.Function([x], x + x)}
    return minitvm.IRModule(functions)


def test_functions_and_classes_are_passes_over_modules():
    contexts = []

    @minitvm.transform.module_pass(opt_level=2)
    def first(mod, ctx):
        contexts.append(ctx)
        return minitvm.IRModule({"main": mod["main"]})

    @minitvm.transform.module_pass(opt_level=1, name="Chosen")
    class Second:
        def __init__(self, name):
            self.name = name

        def transform_module(self, mod, ctx):
            return minitvm.IRModule({"main": mod[self.name]})

    module = two_functions()
    with minitvm.transform.PassContext(opt_level=2) as context:
        assert list(first(module).functions) == ["main"] and contexts == [context]
        assert Second("other")(module)["main"] is module["other"]
    with minitvm.transform.PassContext(opt_level=1, disabled_pass=["Chosen"]):
        assert minitvm.transform.Sequential([first, Second("other")])(module) is module


def test_functions_and_classes_are_passes_over_functions():
    seen = []

    @relay.transform.function_pass(opt_level=1)
    class Marked:
        def __init__(self, mark):
            self.mark = mark

        def transform_function(self, func, mod, ctx):
            seen.append((mod is not None, ctx.opt_level))
            return replace(func, attrs={"mark": self.mark})

    marked = Marked(7)(two_functions())
    assert [function.attrs["mark"] for function in marked.functions.values()] == [7, 7]
    assert seen == [(True, 3)] * 2
    unchanged = relay.transform.function_pass(lambda func, mod, ctx: func)
    assert unchanged(marked) is marked
