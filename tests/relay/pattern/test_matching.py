"""Patterns match what they say, and nothing else."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_graphs import emitter, main, modules, op

from minitvm import relay
from minitvm.errors import OptionError
from minitvm.relay.ir import Call, Constant, TensorType, Tuple, TupleGetItem, Var
from minitvm.relay.pattern import (
    dominates,
    find,
    is_constant,
    is_if,
    is_op,
    is_tuple,
    is_tuple_get_item,
    is_var,
    match,
    wildcard,
)
from minitvm.relay.pattern.language import PATTERN_KIND
from minitvm.relay.pattern.matching import Graph, match_at

x = relay.var("x", shape=(2, 3))
y = relay.var("y", shape=(2, 3))
one = relay.const(np.ones((2, 3), "float32"))
_ = wildcard


@pytest.mark.parametrize(("pattern", "yes", "no"), [
    (wildcard(), x, None),
    (is_var(), x, x + y),
    (is_var("x"), x, y),
    (is_constant(), one, x),
    (is_constant(1.0), one, relay.const([1.0, 2.0])),
    (is_op("add")(_(), _()), x + y, x - y),
    (is_op("add")(_(), is_constant()), one + x, x + y),
    (is_op("add")(is_var("y"), is_var("x")), x + y, x + x),
    (is_op("subtract")(_(), is_constant()), x - one, one - x),
    (is_op("concatenate")(None), relay.concatenate(x, y, x), x + y),
    (is_op("concatenate")(_(), _()), relay.concatenate(x, y), relay.concatenate(x, y, x)),
    (is_tuple(), relay.Tuple([x, y]), x),
    (is_tuple([is_var("x"), _()]), relay.Tuple([x, y]), relay.Tuple([y, x])),
    (is_tuple([_()]), relay.Tuple([x]), relay.Tuple([x, y])),
    (is_tuple_get_item(is_op("split")(_()), 1), relay.split(x, 3, axis=1)[1],
     relay.split(x, 3, axis=1)[0]),
    (is_tuple_get_item(is_op("split")(_())), relay.split(x, 3, axis=1)[0], relay.abs(x)),
    (is_op("abs")(_()) | is_op("exp")(_()), relay.exp(x), relay.log(x)),
    (is_op("clip")(_()).has_attr({"a_min": 0.0}), relay.clip(x, 0.0, 6.0), relay.clip(x, 1.0)),
    (is_op("clip").has_attr({"a_min": 0.0})(_()), relay.clip(x, 0.0, 6.0), relay.clip(x, 1.0)),
    (is_op("transpose")(_()).has_attr({"axes": [1, 0]}), relay.transpose(x, axes=(1, 0)),
     relay.transpose(x)),
    (_().has_attr({PATTERN_KIND: relay.Pattern.ELEMWISE}), relay.exp(x), x + y),
    (_().has_shape((2, 3)), x + y, relay.transpose(x)),
    (_().has_dtype("bool"), x > y, x + y),
    (_().has_type(TensorType((2, 3), "float32")), x, x > y),
    (_() + _() * _(), x * y + x, x * y - x),
    (_() / (_() - _()), y / (x - y), (x - y) / y),
    (is_op("abs")(_()).optional(is_op("exp")), relay.exp(relay.abs(x)), relay.log(relay.abs(x))),
    (is_op("abs")(_()).optional(is_op("exp")), relay.abs(x), relay.exp(x)),
    (is_op("add")(is_op("abs")(_()), is_op("exp")(_())), relay.exp(x) + relay.abs(y),
     relay.exp(x) + relay.exp(y)),
])
def test_what_matches(pattern, yes, no):
    assert match(pattern, yes)
    assert no is None or not match(pattern, no)


def test_branches_match_by_condition_and_results():
    flag = relay.var("flag", shape=(), dtype="bool")
    expression = relay.If(flag, relay.exp(x), y)
    pattern = is_if(is_var("flag"), is_op("exp")(_()), is_var("y"))
    assert match(pattern, expression)
    assert not match(is_if(_(), is_var(), _()), expression)


def test_a_pattern_that_occurs_twice_matches_one_node():
    a = wildcard()
    assert match(is_op("add")(a, a), x + x) and not match(is_op("add")(a, a), x + y)
    shared = relay.exp(x)
    squared = is_op("multiply")(is_op("exp")(a), is_op("exp")(a))
    assert match(squared, shared * shared)
    assert not match(squared, shared * relay.exp(y))


def test_alternatives_are_taken_back():
    """The first choice for the first argument would leave none for the second."""
    a = is_op("exp")(wildcard())
    either = wildcard() | a
    assert match(is_op("subtract")(either, a) | is_op("subtract")(a, either),
                 relay.exp(x) - relay.exp(y)) is True
    shape = is_op("add")(is_op("add")(_(), is_constant()), is_var("x"))
    assert match(shape, x + (one + y))
    b = wildcard()
    nested = is_op("add")(is_op("add")(b, wildcard()), is_op("abs")(b))
    assert match(nested, (y + x) + relay.abs(x))


def test_functions_match_by_their_result():
    function = relay.Function([x], relay.nn.relu(x))
    assert match(is_op("nn.relu")(is_var()), function)


def test_unknown_names_are_refused():
    with pytest.raises(OptionError, match=r"did you mean nn\.relu"):
        is_op("nn.relo")
    with pytest.raises(OptionError, match="its attributes are: a_min, a_max"):
        is_op("clip")(_()).has_attr({"minimum": 0})
    with pytest.raises(OptionError, match="None alone"):
        is_op("add")(_(), None)


# --- dominators ---------------------------------------------------------------------------------

IMAGE = relay.var("image", shape=(1, 2, 4, 4))
CONV = relay.nn.conv2d(IMAGE, relay.const(np.ones((2, 2, 1, 1), "float32")))
UNARY = _().has_attr({PATTERN_KIND: relay.Pattern.ELEMWISE})(_())


def dominator(path=None):
    path = UNARY if path is None else path
    return dominates(is_op("nn.conv2d")(_(), _()), path, is_op("add")(_(), _()))


def test_all_ways_from_the_parent_meet_in_the_child():
    assert match(dominator(), relay.exp(CONV) + relay.nn.relu(relay.abs(CONV)))
    assert match(dominator(), CONV + relay.exp(CONV))
    assert match(dominator(), CONV + IMAGE)
    assert match(is_op("add")(_(), _()).dominates(is_op("nn.conv2d")(_(), _())), CONV + IMAGE)


def test_a_way_that_ends_elsewhere_is_no_domination():
    through = relay.exp(CONV)
    assert not match(dominator(), relay.Tuple([through + CONV, through])[0])
    both = relay.Function([IMAGE], relay.Tuple([through + CONV, through]))
    assert not find(dominator(), both)
    function = relay.Function([IMAGE], relay.Tuple([relay.exp(CONV) + CONV, IMAGE]))
    assert len(find(dominator(), function)) == 1


def test_a_node_that_is_not_of_the_path_ends_it():
    assert not match(dominator(), relay.nn.max_pool2d(CONV, pool_size=(1, 1)) + CONV)
    assert not match(dominator(is_op("exp")(_())), relay.abs(CONV) + relay.exp(CONV))


def test_members_are_all_between():
    function = relay.Function([IMAGE], relay.exp(CONV) + relay.nn.relu(relay.abs(CONV)))
    (found,) = find(dominator(), function)
    assert len(found.members) == 5
    assert found.is_closed(Graph(function.body))


# --- graphs -------------------------------------------------------------------------------------


def pattern_of(atom, graph, draw, depth, seen):
    """The pattern of what computes an atom, cut off by wildcards here and there."""
    value = graph.value_of(atom)
    if atom in seen:
        return seen[atom]
    stop = depth == 0 or draw(st.integers(0, 3)) == 0
    inner = lambda part: pattern_of(part, graph, draw, depth - 1, seen)  # noqa: E731
    match value:
        case _ if stop:
            made = wildcard()
        case Call(callee, arguments):
            made = is_op(callee.name)(*map(inner, arguments))
        case Tuple(items):
            made = is_tuple(list(map(inner, items)))
        case TupleGetItem(source, index):
            made = is_tuple_get_item(inner(source), index)
        case None:
            made = is_constant() if isinstance(atom, Constant) else is_var(atom.name)
        case _:
            made = wildcard()
    seen[atom] = made
    return made


@given(st.data(), modules(branches=False))
def test_a_pattern_made_of_a_graph_matches_it(data, module):
    graph = Graph(module.main.body)
    root = data.draw(st.sampled_from(list(graph.bindings)))
    seen = {}
    pattern = pattern_of(root, graph, data.draw, 4, seen)
    found = match_at(pattern, root, graph)
    assert found is not None
    for atom, part in seen.items():
        if part in found.nodes and not isinstance(atom, Constant):
            assert graph.value_of(found.nodes[part][0]).__class__ is graph.value_of(atom).__class__


@given(modules())
def test_find_agrees_with_looking_at_every_call(module):
    graph = Graph(module.main.body)
    found = find(is_op("nn.relu")(is_op("add")(_(), _())), module.main)
    expected = set()
    for var, binding in graph.bindings.items():
        match binding.value:
            case Call(callee, (Var() as inner,)) if callee.name == "nn.relu":
                value = graph.value_of(inner)
                if isinstance(value, Call) and value.callee.name == "add":
                    expected.add(var)
    assert {item.root for item in found} == expected


def chain(length):
    def build(b, start):
        e = emitter(b)
        value = start
        for _step in range(length):
            value = e(op("nn.relu"), value)
        return value

    return main([Var("x", TensorType((2,), "float32"))], build).main


def test_long_chains_take_linear_time():
    relus = is_op("nn.relu")(is_op("nn.relu")(_()))
    deep = dominates(is_op("nn.conv2d")(_(), _()), is_op("nn.relu")(_()), is_op("nn.relu")(_()))
    for pattern, most in ((relus, 1.5), (deep, 6.0)):
        short, long = chain(1000), chain(10_000)
        times = []
        for function in (short, long):
            start = time.process_time()
            find(pattern, function)
            times.append(time.process_time() - start)
        assert times[1] < most and times[1] < 30 * times[0] + 0.1
