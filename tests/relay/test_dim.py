"""Dims: arithmetic is that of integers, equal dims have one form, text round-trips."""

import operator
from itertools import product

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from minitvm.errors import OptionError, TypeInferenceError
from minitvm.relay.dim import (
    Dim,
    DimExpr,
    floor_divide,
    lower_bound,
    maximum,
    minimum,
    parse_dim,
    size,
    sizes_of,
    substitute,
)
from minitvm.relay.ir import TensorType

N, S = size("N"), size("S")
OPERATIONS = {
    "+": (operator.add, operator.add),
    "-": (operator.sub, operator.sub),
    "*": (operator.mul, operator.mul),
    "//": (floor_divide, operator.floordiv),
    "%": (operator.mod, operator.mod),
    "min": (minimum, min),
    "max": (maximum, max),
}


@st.composite
def computations(draw, depth=3):
    """A dim, and the function of (N, S) on Python integers that it should be."""
    if depth == 0 or draw(st.integers(0, 4)) == 0:
        leaf = draw(st.sampled_from(["N", "S", 0, 1, 2, 3, 4, 6, -1, -3]))
        match leaf:
            case "N":
                return N, lambda n, s: n
            case "S":
                return S, lambda n, s: s
        return leaf, lambda n, s: leaf
    symbolic, plain = OPERATIONS[draw(st.sampled_from(sorted(OPERATIONS)))]
    left, left_value = draw(computations(depth=depth - 1))
    right, right_value = draw(computations(depth=depth - 1))
    if symbolic in (floor_divide, operator.mod):
        assume(all(right_value(n, s) for n, s in product(range(1, 12), range(1, 12))))
        assume(right != 0)
    return symbolic(left, right), lambda n, s: plain(left_value(n, s), right_value(n, s))


@given(computations(), st.integers(1, 11), st.integers(1, 11))
def test_a_dim_computes_what_integers_do(computation, n, s):
    dim, value = computation
    assert substitute(dim, {"N": n, "S": s}) == value(n, s)


@given(computations())
def test_text_round_trips(computation):
    dim, _ = computation
    assert parse_dim(str(dim)) == dim
    assert str(parse_dim(str(dim))) == str(dim)


@given(computations(), st.integers(1, 11), st.integers(1, 11))
def test_no_value_is_below_the_lower_bound(computation, n, s):
    dim, value = computation
    assert lower_bound(dim) <= value(n, s)


@given(computations(), computations(), st.integers(1, 11), st.integers(1, 11))
def test_a_decided_comparison_holds_for_all_sizes(first, second, n, s):
    try:
        less = first[0] < second[0]
    except TypeInferenceError:
        return
    assert less == (first[1](n, s) < second[1](n, s))


@given(computations(), computations(), computations())
def test_one_form_for_equal_polynomials(first, second, third):
    a, b, c = first[0], second[0], third[0]
    assert a + b == b + a and a * b == b * a
    assert (a + b) + c == a + (b + c)
    assert a * (b + c) == a * b + a * c
    assert hash(a + b) == hash(b + a)


@pytest.mark.parametrize(
    ("dim", "text"),
    [
        (2 * S + 1, "2*S + 1"),
        (N - 1, "N - 1"),
        (1 - N, "-N + 1"),
        (N * N * S, "N*N*S"),
        ((N + 1) // 2, "(N + 1)//2"),
        (3 * ((N + 1) // 2) - 4, "3*((N + 1)//2) - 4"),
        (maximum(N, 4) + minimum(N, S), "max(4, N) + min(N, S)"),
        ((4 * N + 3) // 2, "2*N + 1"),
        ((N // 2 + 1) // 2, "(N + 2)//4"),
        ((N * S) // N, "S"),
        (N - N, "0"),
        (minimum(N, N + 1), "N"),
        (maximum(N, 1), "N"),
        (N % 2, "N - 2*(N//2)"),
    ],
)
def test_canonical_forms(dim, text):
    assert str(dim) == text


def test_what_does_not_depend_on_sizes_is_an_int():
    for dim in (N - N + 3, 0 * N, (N * 2) // N, maximum(3, 4)):
        assert type(dim) is int


def test_an_undecided_comparison_names_both_dims_and_the_option():
    with pytest.raises(TypeInferenceError, match=r"N < 2\*S .* sizes N, S; .*--shape"):
        bool(N < 2 * S)


def test_decided_comparisons():
    assert N < N + 1 and N >= 1 and N + S > N and not N > N and bool(N)
    assert N != 1, "equality is of form: it never raises"


def test_sizes_of():
    assert sizes_of(maximum(N // 2, S) + 1) == ("N", "S")
    assert sizes_of(7) == ()


def test_substitute_by_dims():
    assert substitute(N * S + 1, {"N": 2 * S}) == 2 * S * S + 1


@pytest.mark.parametrize("name", ["", "2x", "batch size", "min", "a.b"])
def test_a_size_needs_an_identifier(name):
    with pytest.raises(OptionError, match="identifier"):
        size(name)


@pytest.mark.parametrize("text", ["N +", "N / 2", "f(N)", "1.5", "True", "N if S else 1", "min(N)"])
def test_text_that_is_no_dim(text):
    with pytest.raises(ValueError):
        parse_dim(text)


def test_division_by_zero():
    with pytest.raises(TypeInferenceError, match="divided by zero"):
        floor_divide(N, 0)


def test_dims_in_types():
    first: Dim = N + 1
    assert TensorType((first, 3), "float32") == TensorType((1 + N, 3), "float32")
    assert str(TensorType((first, 3), "float32")) == 'Tensor((N + 1, 3), "float32")'
    assert isinstance(first, DimExpr)
