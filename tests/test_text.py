"""Literals, origins, names and positions in the text of the IRs."""

from __future__ import annotations

import ast
import math
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitvm import text
from minitvm.errors import ParseError
from minitvm.origin import NOWHERE, origin

literals = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


def expression(code: str) -> ast.expr:
    return ast.parse(code, mode="eval").body


@given(st.floats(allow_nan=False))
def test_floats_round_trip_by_their_bits(value: float) -> None:
    read = text.number(expression(text.format_float(value)))
    assert struct.pack("<d", read) == struct.pack("<d", value)


@given(st.floats(width=32, allow_nan=False))
def test_float32_text_is_exact_after_rounding(value: float) -> None:
    written = text.format_float(value, "float32")
    read = text.number(expression(written))
    assert struct.pack("<f", read) == struct.pack("<f", value)
    assert isinstance(read, float)


def test_signs_of_nan_are_kept() -> None:
    for sign in (1.0, -1.0):
        read = text.number(expression(text.format_float(math.copysign(math.nan, sign))))
        assert math.isnan(read) and math.copysign(1.0, read) == sign
    assert text.format_float(0.1, "float32") == "0.1"
    assert text.format_float(float(np.float32(0.1))) != "0.1"


@given(literals)
def test_literals_round_trip(value: object) -> None:
    source = text.read_source("")
    written = text.format_literal(value)
    assert text.format_literal(source.literal(expression(written))) == written
    if "nan" not in written:
        assert source.literal(expression(written)) == value


def test_origins_are_found_by_line() -> None:
    source = text.read_source(
        'x = "#: no"\n'
        'for i in y:  #: "b", "a\\"#: "\n'
        "    f(\n"
        '        "#",)  #: "c"\n'
    )
    first, loop = source.tree.body
    assert isinstance(loop, ast.For)
    assert source.origin(first) is NOWHERE
    assert source.origin(loop) == origin('a"#: ', "b")
    assert source.origin(loop.body[0]) == origin("c")


def test_with_origin_reads_back() -> None:
    names = origin("Conv_0", 'quote"d', "back\\slash", "ünïcode", "#: x")
    line = text.with_origin("x = 1", names)
    source = text.read_source(line)
    assert source.origin(source.tree.body[0]) == names
    assert text.with_origin("x = 1", NOWHERE) == "x = 1"


@pytest.mark.parametrize(
    ("code", "place"),
    [
        ("x = 1\ny = = 2\n", "f.txt:2:5"),
        ("x = 1  #: nonsense\n", "f.txt:1:8"),
        ("x = 1  #: 3\n", "f.txt:1:8"),
        ("x = " + "(" * 300 + ")" * 300, "f.txt:1:"),
        ("x = \0", "f.txt:1:"),
    ],
)
def test_errors_say_where(code: str, place: str) -> None:
    with pytest.raises(ParseError) as caught:
        text.read_source(code, "f.txt")
    assert str(caught.value).startswith(place)


def test_very_deep_operators_are_refused_not_a_crash() -> None:
    with pytest.raises(ParseError):
        text.read_source("x = " + "-" * 100_000 + "1")


def test_wrong_kinds_of_nodes_are_refused_with_a_place() -> None:
    source = text.read_source("f(1,\n  g(x), 'a', n)", "f.txt")
    statement = source.tree.body[0]
    assert isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
    one, call, string, name = statement.value.args
    assert (source.integer(one), source.string(string), source.name(name)) == (1, "a", "n")
    for read in (source.literal, source.integer, source.string, source.name):
        with pytest.raises(ParseError, match=r"^f\.txt:2:3: expected .*`g\(x\)`"):
            read(call)


def test_names_are_unique_identifiers() -> None:
    names = text.Names()
    names.reserve(["range"])
    wanted = ["i.outer", "i_outer", "range", "for", "3x", "", "i_outer_1", "i.outer"]
    given_names = [names.unique(name) for name in wanted]
    assert given_names[:6] == ["i_outer", "i_outer_1", "range_1", "for_", "_3x", "_"]
    assert len(set(given_names)) == len(wanted)
    assert all(name.isidentifier() for name in given_names)
