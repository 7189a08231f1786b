"""The text of relay: what is printed reads back as the same module; errors have a place."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitvm import relay
from minitvm.errors import MinitvmError, ParseError
from minitvm.origin import origin
from minitvm.relay.build import BlockBuilder
from minitvm.relay.ir import (
    Block,
    Constant,
    Function,
    GlobalVar,
    If,
    Module,
    TensorType,
    Tuple,
    Var,
)
from minitvm.relay.ops.broadcast import Add
from minitvm.relay.ops.elementwise import Negative
from minitvm.relay.printer import large_constants
from minitvm.relay.structural_hash import structural_equal
from minitvm.relay.text import (
    load_text,
    parse_function,
    parse_module,
    print_function,
    print_module,
    save_text,
)
from minitvm.relay.verify import verify
from minitvm.testing.relay_strategies import relay_cases

VECTOR = TensorType((2,), "float32")
MODULE = '''\
@function(primitive=True)
def fused(p: Tensor((2, 3), "float32"), q: Tensor((3,), "float32")) -> Tensor((2, 3), "float32"):
    v0 = add(p, q)  #: "Add_1"
    v1 = clip(v0, a_min=-0.5, a_max=6.0)  #: "Add_1", "Clip \\"2\\""
    return v1

@function(output_names=("a", "b"))
def main(x: Tensor((2, 3), "float32"), flag: Tensor((), "bool")) -> RESULT:
    v0 = fused(x, const([0.1, inf, -0.0], (3,), "float32"))  #: "Add_1"
    if flag:  #: "If_3"
        v2 = negative(v0)  #: "Neg_4"
        v1 = v2
    else:
        v1 = x
    def closure(y: Tensor((2, 3), "float32")) -> Tensor((2, 3), "float32"):  #: "Loop_5"
        v3 = multiply(y, v1)  #: "Mul_6"
        return v3
    v4 = closure(v0)  #: "Loop_5"
    pair = (v4, v1)  #: "Loop_5"
    v5 = pair[1]  #: "Loop_5"
    v6 = (v4, v5)  #: "Loop_5"
    return v6
'''.replace("RESULT", 'Tuple(Tensor((2, 3), "float32"), Tensor((2, 3), "float32"))')


def assert_round_trips(module: Module) -> Module:
    text = print_module(module)
    again = parse_module(text, large_constants(module))
    assert print_module(again) == text
    assert again.functions.keys() == module.functions.keys()
    for name, function in module.functions.items():
        assert structural_equal(again.functions[name], function)
        assert [p.name for p in again.functions[name].params] == [p.name for p in function.params]
    return again


def test_a_module_reads_and_prints_the_same():
    module = parse_module(MODULE)
    verify(module)
    assert print_module(module) == MODULE
    assert module.functions["fused"].is_primitive
    assert module.main.attrs == {"output_names": ("a", "b")}
    assert module.main.body.bindings[0].origin == origin("Add_1")
    assert isinstance(module.main.body.bindings[0].value.callee, GlobalVar)
    assert module.main.body.bindings[1].origin == origin("If_3")
    assert module.main.body.bindings[2].origin == origin("Loop_5")


@given(relay_cases(branches=True))
def test_generated_modules_round_trip(case):
    again = assert_round_trips(case.module)
    for left, right in zip(relay.run(again, case.inputs), relay.run(case.module, case.inputs),
                           strict=True):
        np.testing.assert_array_equal(left, right)
    for left, right in zip(again.main.body.bindings, case.module.main.body.bindings, strict=True):
        assert left.origin == right.origin


@given(relay_cases())
def test_annotated_text_reads_too(case):
    text = print_module(case.module, types=True)
    again = parse_module(text, large_constants(case.module))
    assert print_module(again) == print_module(case.module)


def test_functions_have_names_of_their_own():
    x, y = Var("x", VECTOR), Var("x", VECTOR)
    functions = {}
    for name, param in (("main", x), ("f", y)):
        builder = BlockBuilder(origin("n"))
        body = builder.finish(builder.emit(Negative(), param))
        functions[name] = Function((param,), body, VECTOR)
    module = Module(functions)
    assert_round_trips(module)
    assert print_module(module) == "\n".join(print_function(f, n) for n, f in functions.items())
    assert "@names" not in print_module(module)


def test_a_chain_of_ten_thousand_bindings():
    builder = BlockBuilder(origin("chain"))
    x = Var("x", VECTOR)
    y = x
    for _ in range(10_000):
        y = builder.emit(Negative(), y)
    assert_round_trips(Module({"main": Function((x,), builder.finish(y), VECTOR)}))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_floats_are_exact(dtype):
    info = np.finfo(dtype)
    values = [0.0, -0.0, 0.1, 1 / 3, np.nan, -np.nan, np.inf, -np.inf, info.max, info.tiny,
              info.smallest_subnormal, -1.5]
    data = np.array(values, dtype)
    function = Function((), Block((), Constant(data)), Constant(data).type)
    again = parse_function(print_function(function)).body.result
    assert again.data.tobytes() == data.tobytes() and again.data.dtype == dtype


@pytest.mark.parametrize("data", [
    np.array(True), np.array([True, False]), np.array([], np.float32), np.zeros((0, 3), np.int8),
    np.array([-128, 127], np.int8), np.array([2**64 - 1], np.uint64), np.arange(64).reshape(8, 8),
])
def test_small_constants_are_written_out(data):
    function = Function((), Block((), Constant(data)), Constant(data).type)
    text = print_function(function)
    again = parse_function(text).body.result.data
    assert "sha256" not in text
    assert again.dtype == data.dtype and again.shape == data.shape
    np.testing.assert_array_equal(again, data)


def test_a_nan_with_a_payload_is_kept_by_digest():
    data = np.array([0x7FC00001], np.uint32).view(np.float32)
    function = Function((), Block((), Constant(data)), Constant(data).type)
    text = print_function(function)
    assert "sha256" in text
    again = parse_function(text, {Constant(data).digest(): data}).body.result
    assert again.data.tobytes() == data.tobytes()


def test_files_hold_large_constants_beside_the_text(tmp_path):
    x = relay.var("x", shape=(100,))
    data = np.arange(100, dtype=np.float32)
    module = Module.from_expr(relay.Function([x], (x + data) * data))
    path = tmp_path / "model.relay"
    save_text(module, path)
    again = load_text(path)
    assert print_module(again) == path.read_text() == print_module(module)
    np.testing.assert_array_equal(relay.run(again, {"x": data})[0], 2 * data * data)
    first, second = (binding.value.arguments[1] for binding in again.main.body.bindings)
    assert first is second, "a constant that occurs twice is loaded once"


def test_a_changed_constant_is_noticed(tmp_path):
    x = relay.var("x", shape=(100,))
    module = Module.from_expr(relay.Function([x], x + np.zeros(100, np.float32)))
    save_text(module, tmp_path / "m.relay")
    key = np.load(tmp_path / "m.npz").files[0]
    np.savez(tmp_path / "m.npz", **{key: np.ones(100, np.float32)})
    with pytest.raises(ParseError, match="has another digest"):
        load_text(tmp_path / "m.relay")
    (tmp_path / "m.npz").write_bytes(b"no archive")
    with pytest.raises(ParseError, match="constants can't be read"):
        load_text(tmp_path / "m.relay")
    (tmp_path / "m.npz").unlink()
    with pytest.raises(ParseError, match="not among those given"):
        load_text(tmp_path / "m.relay")
    with pytest.raises(ParseError, match="can't be read"):
        load_text(tmp_path / "nothing.relay")


def test_names_that_are_no_identifiers_are_kept():
    names = ("input.1", "add", "v0", "lambda", "é:0", "x", "x")
    params = tuple(Var(name, VECTOR) for name in names)
    builder = BlockBuilder(origin("node/1"))
    total = params[0]
    for param in params[1:]:
        total = builder.emit(Add(), total, param, name="add")
    inner = Function((), Block((), Constant(np.zeros(2, np.float32))), VECTOR)
    main = Function(params, builder.finish(total), VECTOR, {"a.b": 1, "c": None})
    again = assert_round_trips(Module({"main": main, "nn": inner, "1-weird": inner}))
    assert again.main.attrs == {"a.b": 1, "c": None}


def test_automatic_names_are_numbered_in_order():
    x = Var("x", VECTOR)
    builder = BlockBuilder(origin("n"))
    y = builder.emit(Negative(), builder.emit(Negative(), x, name="v7"), name="v7")
    text = print_function(Function((x,), builder.finish(y), VECTOR))
    assert "v0 = negative(x)" in text and "v1 = negative(v0)" in text


def test_symbolic_dims():
    text = ('def main(x: Tensor((N, 2*S + 1), "float32")) -> Tensor((N, 2*S + 1), "float32"):\n'
            '    v0 = negative(x)  #: "a"\n'
            '    return v0\n')
    module = parse_module(text)
    verify(module)
    assert print_module(module) == text
    assert module.main.params[0].type.shape == (relay.size("N"), 2 * relay.size("S") + 1)


def test_shared_variables_of_sibling_branches_get_names_of_their_own():
    x, flag = Var("x", VECTOR), Var("flag", TensorType((), "bool"))
    outer = BlockBuilder(origin("n"))
    inner = [BlockBuilder(origin("n"), parent=outer) for _ in range(2)]
    blocks = [builder.finish(builder.emit(Negative(), x, name="y")) for builder in inner]
    result = outer.emit(If(flag, *blocks), name="y")
    pair = outer.emit(Tuple((result, x)))
    assert_round_trips(Module({"main": Function((x, flag), outer.finish(pair), pair.type)}))


HEAD = 'def main(x: Tensor((2,), "float32"), c: Tensor((), "bool")) -> Tensor((2,), "float32"):\n'


@pytest.mark.parametrize(
    ("body", "place", "message"),
    [
        ("    return y\n", "2:12", "the name y is not bound here"),
        ("    y = negatve(x)\n    return y\n", "2:9", "did you mean negative"),
        ("    y = negative(x, x)\n    return y\n", "2:5", "takes 1 argument, not 2"),
        ("    y = negative(x, axis=1)\n    return y\n", "2:9", "has no attribute axis"),
        ("    y = cast(x)\n    return y\n", "2:9", "dtype"),
        ("    y = add(x, c)\n    return y\n", "2:5", "argument 1 must be"),
        ("    x = negative(x)\n    return x\n", "2:5", "the name x is taken"),
        ("    y = (x, c)\n    return y\n", "3:5", "the result is Tuple"),
        ('    y: Tensor((3,), "float32") = negative(x)\n    return y\n', "2:5", "as declared"),
        ("    y = x[0]\n    return y\n", "2:5", "which is no tuple"),
        ("    y = negative(negative(x))\n    return y\n", "2:18", "expected a name or a constant"),
        ("    for i in x:\n        pass\n    return x\n", "2:5", "expected `name = value`"),
        ("    y = negative(x)\n", "2:5", "ends with `return`"),
        ("    if x:\n        y = x\n    else:\n        y = x\n    return y\n", "2:5", "condition"),
        ("    if c:\n        y = x\n    else:\n        z = x\n    return y\n", "2:5", "one branch"),
        ("    if c:\n        y = x\n    return y\n", "2:5", "both branches end with"),
        ('    y = const([1.5], (1,), "int32")\n    return x\n', "2:9", "1.5 is no int32"),
        ('    y = const([1, 2], (3,), "int32")\n    return x\n', "2:9", "shape"),
        ('    y = const([300], (1,), "int8")\n    return x\n', "2:9", "int8"),
        ('    y = const(1, (), "int7")\n    return x\n', "2:22", "unknown dtype"),
        ('    y = const("sha256:0", (3,), "int8")\n    return x\n', "2:9", "not among those given"),
        ("    y = x(x)\n    return y\n", "2:5", "is called but is no function"),
        ("    y = main(x)\n    return y\n", "2:5", "takes 2 arguments"),
        ("    y = = 1\n", "2:9", "invalid syntax"),
        ('    y = expand_dims(x, axis="a")\n    return y\n', "2:5", "of a wrong kind"),
        ('    y = nn.conv2d(x, x, strides=None)\n    return y\n', "2:9", "None"),
        ('    y = const([1], (-1,), "int8")\n    return x\n', "2:20", "a shape is a tuple"),
        ("    y = negative(x, **5)\n    return x\n", "2:23", "expected a dictionary"),
    ],
)
def test_errors_have_a_place_and_a_reason(body, place, message):
    with pytest.raises(ParseError, match=f"^file:{place}: .*{message}"):
        parse_module(HEAD + body, file="file")


@pytest.mark.parametrize("text", [
    "x = 1\n",
    "def main(x):\n    return x\n",
    'def main(x: int) -> Tensor((), "int32"):\n    return x\n',
    'def main(x: Tensor((2,), "f")) -> Tensor((2,), "f"):\n    return x\n',
    'def main(x: Tensor((2,), "int8")):\n    return x\n',
    '@twice\ndef main(x: Tensor((2,), "int8")) -> Tensor((2,), "int8"):\n    return x\n',
    '@names(parameters=("a", "b"))\ndef main(x: Tensor((2,), "int8")) -> Tensor((2,), "int8"):\n'
    "    return x\n",
    'def main(x: Tensor((a.b,), "int8")) -> Tensor((2,), "int8"):\n    return x\n',
    'def main(x: Tensor((2,), "int8") = 1) -> Tensor((2,), "int8"):\n    return x\n',
    'def main(*, x: Tensor((2,), "int8")) -> Tensor((2,), "int8"):\n    return x\n',
    '@names(parameters=5)\ndef main(x: Tensor((2,), "int8")) -> Tensor((2,), "int8"):\n'
    "    return x\n",
    '@names(name=5)\ndef main(x: Tensor((2,), "int8")) -> Tensor((2,), "int8"):\n    return x\n',
    '@function(**5)\ndef main(x: Tensor((2,), "int8")) -> Tensor((2,), "int8"):\n    return x\n',
])
def test_broken_headers_are_refused(text):
    with pytest.raises(MinitvmError, match=r"^<text>:\d+:\d+: "):
        parse_module(text)


def test_a_function_is_defined_once():
    text = HEAD + "    return x\n"
    with pytest.raises(ParseError, match="defined twice"):
        parse_module(text + "\n" + text)


TOKENS = ["", "(", ")", "[0]", "v0", "x", "1", "-1", "1.5", "nan", '"float32"', "Tensor", "const",
          ",", "=", ":", "\n", "    ", "return", "if", "None", "**{}", "*x", "N", "()", "operator",
          "lambda: 0", "not x", "x.y", "(1 for x in y)", 'f"{x}"', "99999999999999999999", "#:",
          "\0", "**5", "/", "*, ", "=0", "[1]"]


@given(st.integers(0, len(MODULE)), st.integers(0, 12), st.sampled_from(TOKENS))
def test_broken_text_gives_a_parse_error_or_a_module(start, length, token):
    text = MODULE[:start] + token + MODULE[start + length :]
    try:
        module = parse_module(text)
    except ParseError as error:
        assert re.match(r"<text>:\d+:\d+: ", str(error))
        return
    assert print_module(parse_module(print_module(module))) == print_module(module)
