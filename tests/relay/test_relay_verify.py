"""Every invariant of the relay verifier is broken once; what passes may lose origins is held."""

import numpy as np
import pytest
from hypothesis import given

from minitvm import relay
from minitvm.errors import VerifyError
from minitvm.origin import NOWHERE, origin
from minitvm.relay.build import BlockBuilder
from minitvm.relay.ir import (
    Binding,
    Block,
    Call,
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
from minitvm.relay.ops.elementwise import Cast, Negative
from minitvm.relay.passes import (
    dead_code_elimination,
    fold_constant,
    inline,
    lambda_lift,
    remove_unused_functions,
    simplify_expr,
)
from minitvm.relay.text import parse_module
from minitvm.relay.verify import check_origins_kept, verify
from minitvm.testing.relay_strategies import relay_cases

VECTOR = TensorType((2,), "float32")
FLAG = TensorType((), "bool")
HERE = origin("node")


def module(params, bindings, result, result_type=VECTOR, **functions):
    block = Block(tuple(bindings), result)
    return Module({"main": Function(tuple(params), block, result_type), **functions})


def negative(source, name="y", place=HERE, found=VECTOR):
    return Binding(Var(name, found), Call(Negative(), (source,)), place)


def refused(broken, number, message=""):
    with pytest.raises(VerifyError, match=rf"^{number}: .*{message}"):
        verify(broken)


@given(relay_cases(branches=True))
def test_generated_modules_are_sound(case):
    verify(case.module)


def test_r1_a_variable_that_nothing_binds():
    refused(module([], [negative(Var("x", VECTOR))], Var("x", VECTOR)), "R1", "x is not bound")


def test_r1_a_use_before_the_binding():
    x = Var("x", VECTOR)
    first = negative(x, "first")
    second = negative(first.var, "second")
    refused(module([x], [second, first], second.var), "R1", "first is not bound before")


def test_r1_a_use_outside_the_branch_that_binds():
    x, flag = Var("x", VECTOR), Var("flag", FLAG)
    inner = negative(x, "inner")
    choice = Binding(Var("y", VECTOR), If(flag, Block((inner,), inner.var), Block((), x)), HERE)
    verify(module([x, flag], [choice], choice.var))
    refused(module([x, flag], [choice], inner.var), "R1", "inner is not in scope")


def test_r2_a_variable_bound_twice():
    x = Var("x", VECTOR)
    y = negative(x)
    refused(module([x], [y, y], y.var), "R2", "bound a second time")
    refused(module([x, x], [y], y.var), "R2", "bound a second time")


def test_r3_a_variable_of_another_type_than_its_value():
    x = Var("x", VECTOR)
    y = negative(x, found=TensorType((3,), "float32"))
    refused(module([x], [y], y.var, y.var.type), "R3", "the value is Tensor")


def test_r3_an_ill_typed_call():
    x, flag = Var("x", VECTOR), Var("flag", FLAG)
    y = Binding(Var("y", VECTOR), Call(Add(), (x, flag)), HERE)
    refused(module([x, flag], [y], y.var), "R3", "add")
    z = Binding(Var("z", VECTOR), Call(Add(), (x,)), HERE)
    refused(module([x, flag], [z], z.var), "R3", "takes 2 arguments")


def test_r4_a_function_of_another_type_than_its_result():
    x = Var("x", VECTOR)
    refused(module([x], [], x, FLAG), "R4", "declared as")


@pytest.mark.parametrize("shape, dtype", [
    ((-1,), "float32"), ((2.0,), "float32"), ((True,), "float32"), ((np.int64(2),), "float32"),
    ((-relay.size("N"),), "float32"), ((2,), "float31"),
])
def test_r5_types_that_are_none(shape, dtype):
    found = TensorType(shape, dtype)
    x = Var("x", found)
    refused(module([x], [], x, found), "R5")


def test_r6_functions():
    x = Var("x", VECTOR)
    refused(Module({"other": Function((x,), Block((), x), VECTOR)}), "R6", "no function @main")
    y = Binding(Var("y", VECTOR), Call(GlobalVar("missing", None), (x,)), HERE)
    refused(module([x], [y], y.var), "R6", "no function @missing")
    p = Var("p", VECTOR)
    callee = Function((p,), Block((), p), VECTOR)
    z = Binding(Var("z", VECTOR), Call(GlobalVar("f", callee.type), (x,)), HERE)
    verify(module([x], [z], z.var, f=callee))
    q = Var("q", FLAG)
    changed = Function((q,), Block((), q), FLAG)
    refused(module([x], [z], z.var, f=changed), "R6", "@f is")


def test_r7_a_binding_without_origin():
    x = Var("x", VECTOR)
    y = negative(x, place=NOWHERE)
    refused(module([x], [y], y.var), "R7", "no origin")
    verify(module([x], [y], y.var), require_origins=False)


def primitive(params, bindings, result, result_type=VECTOR):
    return Function(tuple(params), Block(tuple(bindings), result), result_type, {"primitive": True})


def test_r8_primitive_functions():
    x, p = Var("x", VECTOR), Var("p", VECTOR)
    y = negative(p)
    verify(module([x], [], x, f=primitive([p], [y], y.var)))
    refused(Module({"main": primitive([p], [y], y.var)}), "R8", "main cannot be primitive")
    call = Binding(Var("z", VECTOR), Call(GlobalVar("main", None), (p,)), HERE)
    refused(module([x], [], x, f=primitive([p], [call], call.var)), "R8", "only calls operators")
    zero = Constant(np.zeros(2, np.float32))
    refused(module([x], [], x, f=primitive([p], [y], zero)), "R8", "result")
    pair = Var("pair", relay.TupleType((VECTOR,)))
    refused(module([x], [], x, f=primitive([pair, p], [y], y.var)), "R8", "pair is no tensor")
    local = Binding(Var("f", primitive([p], [y], y.var).type), primitive([p], [y], y.var), HERE)
    refused(module([x], [local], x), "R8", "module level")


def test_r9_constants():
    writable = Constant(np.zeros(2, np.float32))
    object.__setattr__(writable, "data", np.zeros(2, np.float32))
    refused(module([], [], writable), "R9", "can be written to")
    complexes = Constant(np.zeros(2, np.complex64))
    refused(module([], [], complexes), "R9", "complex64")


def test_ten_thousand_bindings():
    builder = BlockBuilder(HERE)
    x = Var("x", VECTOR)
    y = x
    for _ in range(10_000):
        y = builder.emit(Negative(), y)
    chain = Module({"main": Function((x,), builder.finish(y), VECTOR)})
    verify(chain)
    check_origins_kept(chain, chain)


# --- origins across a pass ----------------------------------------------------------------------


def origins_module(*steps, params=("x",)):
    """A module from (name, operator, argument names) steps; each step's origin is its name."""
    known = {name: Var(name, VECTOR) for name in params}
    inputs = tuple(known.values())
    builder = BlockBuilder()
    for name, value, *arguments in steps:
        atoms = [known[item] if isinstance(item, str) else item for item in arguments]
        known[name] = builder.emit(value, *atoms, origin=origin(*name.split("+")), name=name)
    result = list(known.values())[-1]
    return Module({"main": Function(inputs, builder.finish(result), result.type)})


def test_a_lost_node_is_noticed():
    before = origins_module(("a", Negative(), "x"), ("b", Cast("float64"), "a"))
    after = origins_module(("b", Cast("float64"), "x"))
    with pytest.raises(VerifyError, match="the node 'b'"):
        check_origins_kept(before, origins_module(("a", Cast("float64"), "x")))
    with pytest.raises(VerifyError, match="'b' was computed by b = cast"):
        check_origins_kept(before, origins_module(("c", Cast("float64"), "x")))
    check_origins_kept(before, after)  # negative(x) may have been x, as far as types tell


def test_merged_origins_keep_nodes():
    before = origins_module(("a", Cast("float64"), "x"), ("b", Cast("float16"), "a"))
    check_origins_kept(before, origins_module(("a+b", Cast("float16"), "x")))
    with pytest.raises(VerifyError, match="'a'"):
        check_origins_kept(before, origins_module(("b", Cast("float16"), "x")))


def test_an_identity_on_a_binding_hands_its_origin_on():
    before = origins_module(("a", Cast("float16"), "x"), ("b", Negative(), "a"))
    check_origins_kept(before, origins_module(("a+b", Cast("float16"), "x")))
    with pytest.raises(VerifyError, match="'b'"):
        check_origins_kept(before, origins_module(("a", Cast("float16"), "x")))


def test_dead_nodes_may_go():
    before = origins_module(("dead", Cast("int8"), "x"), ("a", Cast("float16"), "x"))
    check_origins_kept(before, origins_module(("a", Cast("float16"), "x")))


def test_constants_may_be_folded():
    data = Constant(np.ones(2, np.float32))
    before = origins_module(("k", Negative(), data), ("l", Cast("float16"), "k"))
    result = Constant(np.ones(2, np.float16))
    after = Module({"main": Function(before.main.params, Block((), result), result.type)})
    check_origins_kept(before, after)


def test_the_origin_of_a_constant_counts():
    data = Constant(np.ones(2, np.float32), origin("a"))
    before = origins_module(("a", Cast("float32"), "x"), ("b", Add(), "a", "x"), ("c", Cast("int8"),
                                                                                 "b"))
    after = origins_module(("b+c", Cast("int8"), data))
    check_origins_kept(before, after)


def test_the_branch_not_taken_may_go():
    x = Var("x", VECTOR)
    taken, other = (negative(x, name, origin(name)) for name in ("taken", "other"))
    cast = Binding(Var("c", TensorType((2,), "int8")), Call(Cast("int8"), (taken.var,)),
                   origin("cast"))
    lost = Binding(Var("d", TensorType((2,), "int8")), Call(Cast("int8"), (other.var,)),
                   origin("lost"))
    choice = If(Constant(np.array(True)), Block((taken, cast), cast.var),
                Block((other, lost), lost.var))
    result = Binding(Var("r", cast.var.type), choice, origin("if"))
    before = module([x], [result], result.var, result.var.type)
    check_origins_kept(before, module([x], [taken, cast], cast.var, cast.var.type))
    with pytest.raises(VerifyError, match="'cast'"):
        check_origins_kept(before, module([x], [other, lost], lost.var, lost.var.type))


DECIDED = """
def main(x: Tensor((2,), "float32"), n: Tensor((), "int32")) -> Tensor((2,), "float32"):
    c = less(LEFT, const(2, (), "int32"))  #: "c"
    if c:  #: "if"
        a = f(x)  #: "a"
        r = a
    else:
        b = cast(x, dtype="int8")  #: "b"
        d = cast(b, dtype="float32")  #: "d"
        r = d
    return r

def f(p: Tensor((2,), "float32")) -> Tensor((2,), "float32"):
    y = tanh(p)  #: "y"
    return y
"""


def test_a_condition_computed_from_constants_decides():
    before = parse_module(DECIDED.replace("LEFT", 'const(1, (), "int32")'))
    check_origins_kept(before, fold_constant(before))
    with pytest.raises(VerifyError, match="'b'"):  # of the else
        check_origins_kept(parse_module(DECIDED.replace("LEFT", "n")), fold_constant(before))


NESTED = """
def main(x: Tensor((2,), "float32")) -> Tensor((2,), "float32"):
    def f(p: Tensor((2,), "float32")) -> Tensor((2,), "float32"):  #: "f"
        a = FIRST  #: "a"
        b = SECOND  #: "b"
        return b
    y = f(x)  #: "y"
    return y
"""


def test_the_identity_on_a_parameter_of_a_closure_may_go():
    def nested(first, second):
        return parse_module(NESTED.replace("FIRST", first).replace("SECOND", second))

    clipped = "clip({}, a_min=-1.0, a_max=1.0)"
    before = nested("maximum(p, p)", clipped.format("a"))
    after = simplify_expr(before)
    assert '"a"' not in str(after)
    check_origins_kept(before, after)
    with pytest.raises(VerifyError, match="'a'"):
        check_origins_kept(nested('cast(p, dtype="int8")', 'cast(a, dtype="float32")'), after)


def test_what_only_a_branch_never_taken_needs_may_go():
    text = DECIDED.replace("c = less", 'e = cast(x, dtype="int8")  #: "e"\n    c = less')
    text = text.replace("f(x)", 'cast(e, dtype="float32")')
    before = parse_module(text.replace("LEFT", 'const(3, (), "int32")'))
    after = fold_constant(before)
    assert '"e"' not in str(after.main)
    check_origins_kept(before, after)
    with pytest.raises(VerifyError, match="'e'"):
        check_origins_kept(parse_module(text.replace("LEFT", "n")), after)


DECIDED_TWICE = """
def main(x: Tensor((2,), "float32"), n: Tensor((), "int32")) -> Tensor((2,), "float32"):
    c = less(LEFT, const(2, (), "int32"))  #: "c"
    if c:  #: "if"
        p = (n, const(5, (), "int32"))  #: "p"
        k = p
    else:
        q = (n, n)  #: "q"
        k = q
    l = k[FIELD]  #: "l"
    d = less(l, const(7, (), "int32"))  #: "d"
    if d:  #: "if2"
        s = x
    else:
        b = cast(x, dtype="int8")  #: "b"
        e = cast(b, dtype="float32")  #: "e"
        s = e
    return s
"""


def test_what_a_decided_branch_gives_may_decide_another():
    def decided(left, field):
        return parse_module(DECIDED_TWICE.replace("LEFT", left).replace("FIELD", field))

    before = decided('const(1, (), "int32")', "1")
    after = fold_constant(before)
    assert '"b"' not in str(after)
    check_origins_kept(before, after)
    for other in (decided('const(1, (), "int32")', "0"), decided("n", "1")):
        with pytest.raises(VerifyError, match="'b'"):
            check_origins_kept(other, after)


GIVEN_AWAY = """
def main(x: Tensor((2,), "float32")) -> Tensor((2,), "float32"):
    k = seven(x)  #: "k"
    y = first(x, k)  #: "y"
    return y

def seven(p: Tensor((2,), "float32")) -> Tensor((2,), "int8"):
    return const([7, 7], (2,), "int8")

def first(p: Tensor((2,), "float32"), q: Tensor((2,), "int8")) -> Tensor((2,), "float32"):
    z = tanh(p)  #: "z"
    return RESULT
"""


def test_what_is_given_for_a_parameter_without_use_may_go():
    before = parse_module(GIVEN_AWAY.replace("RESULT", "z"))
    after = remove_unused_functions(inline(before))
    assert '"k"' not in str(after)
    check_origins_kept(before, after)
    with pytest.raises(VerifyError, match="'k'"):
        check_origins_kept(parse_module(GIVEN_AWAY.replace("return RESULT", (
            'w = cast(q, dtype="float32")  #: "z"\n    return w'))), after)


GIVER = """
def main(x: VECTOR) -> VECTOR:
    f = give(x)  #: "f"
    y = apply(ignore, f, x)  #: "y"
    return y

def give(p: VECTOR) -> Func((VECTOR,), VECTOR):
    def g(q: VECTOR) -> VECTOR:  #: "g"
        w = add(q, q)  #: "w"
        return w
    return g

def apply(h: Func((Func((VECTOR,), VECTOR), VECTOR), VECTOR), k: Func((VECTOR,), VECTOR), x: VECTOR) -> VECTOR:
    y = h(k, x)  #: "h"
    return y

def ignore(k: Func((VECTOR,), VECTOR), x: VECTOR) -> VECTOR:
    i = negative(x)  #: "i"
    return i
"""  # noqa: E501


def test_what_gives_a_function_that_nothing_calls_may_go():
    text = GIVER.replace("VECTOR", 'Tensor((2,), "float32")')
    before = parse_module(text)
    after = dead_code_elimination(lambda_lift(before))
    assert '"f"' not in str(after)
    check_origins_kept(before, after)
    with pytest.raises(VerifyError, match=r"the node '[fg]'"):
        check_origins_kept(parse_module(text.replace("apply(ignore, f, x)", "f(x)")), after)


def test_nodes_of_functions_that_main_calls_count():
    p = Var("p", VECTOR)
    inner = Binding(Var("q", TensorType((2,), "int8")), Call(Cast("int8"), (p,)), origin("inner"))
    f = Function((p,), Block((inner,), inner.var), inner.var.type)
    x = Var("x", VECTOR)
    call = Binding(Var("y", inner.var.type), Call(GlobalVar("f", f.type), (x,)), HERE)
    before = module([x], [call], call.var, call.var.type, f=f)
    after = module([x], [Binding(call.var, Call(Cast("int8"), (x,)), HERE)], call.var,
                   call.var.type)
    with pytest.raises(VerifyError, match="'inner'"):
        check_origins_kept(before, after)
    unused = module([x], [negative(x)], x, f=f)
    check_origins_kept(unused, module([x], [], x))


def test_a_tuple_of_parameters_may_go():
    x = Var("x", VECTOR)
    pair = Binding(Var("pair", relay.TupleType((VECTOR,))), Tuple((x,)), origin("pair"))
    check_origins_kept(module([x], [pair], pair.var, pair.var.type), module([x], [], x))


def test_a_condition_may_go_but_not_what_it_chooses_from():
    x = relay.var("x", shape=(2,))
    body = relay.where(x > 1.0, relay.cast(x, "int8"), relay.cast(x, "int8"))
    greater, first, second, where = relay.Function([x], body).body.bindings
    steps = zip("abcd", (greater, first, second, where), strict=True)
    before = module([x.atom], [Binding(b.var, b.value, origin(name)) for name, b in steps],
                    where.var, where.var.type)

    def after(*names):
        merged = Binding(where.var, first.value, origin(*names))
        return module([x.atom], [merged], where.var, where.var.type)

    check_origins_kept(before, after("b", "c", "d"))
    with pytest.raises(VerifyError, match="'c'"):
        check_origins_kept(before, after("b", "d"))


def test_fields_that_nobody_takes_are_dead():
    x = relay.var("x", shape=(2,))
    pair = relay.Tuple([relay.cast(x, "int8"), relay.cast(x, "int16")])
    first, second, both, item = relay.Function([x], pair[1]).body.bindings
    steps = zip("abcd", (first, second, both, item), strict=True)
    renamed = [Binding(b.var, b.value, origin(name)) for name, b in steps]
    before = module([x.atom], renamed, item.var, item.var.type)
    check_origins_kept(before, module([x.atom], [renamed[1]], second.var, second.var.type))
    with pytest.raises(VerifyError, match="'b'"):
        check_origins_kept(before, module([x.atom], [renamed[0]], first.var, first.var.type))
