"""The definition of agreement: right results are in, a dropped term or a moved NaN is out."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitvm.relay.ops.nn.conv2d import Conv2d
from minitvm.relay.ops.nn.dense import Dense
from minitvm.testing.agree import (
    DisagreementError,
    agree,
    agrees,
    linear_reference,
    max_relative,
    sum_bound,
    ulp_distance,
)

SEEDS = st.integers(0, 2**32 - 1)


def test_integers_and_bools_are_exact():
    agree(np.array([1, 2]), np.array([1, 2]))
    agree(np.array([True]), np.array([True]))
    with pytest.raises(DisagreementError, match=r"in 1 of 2 elements; at \(1,\).*3.*not.*2"):
        agree(np.array([1, 3]), np.array([1, 2]))
    assert not agrees(np.array([True]), np.array([False]))


def test_shapes_and_dtypes():
    with pytest.raises(DisagreementError, match="the shape"):
        agree(np.zeros(2), np.zeros((2, 1)))
    with pytest.raises(DisagreementError, match="is int32, not int64"):
        agree(np.zeros(2, np.int32), np.zeros(2, np.int64))
    agree(np.zeros(2, np.float32), np.zeros(2, np.float64))


def test_floats_without_tolerance():
    agree(np.float32([0.0, np.nan, np.inf, 1.5]), np.float32([-0.0, np.nan, np.inf, 1.5]))
    for got, reference in [(np.nan, 1), (1, np.nan), (np.inf, -np.inf), (np.inf, 3e38),
                           (1 + 2**-23, 1)]:
        assert not agrees(np.float32([got]), np.float32([reference]))


@given(SEEDS, st.integers(1, 6000))
def test_float32_sums_in_any_order_agree(seed, terms):
    random = np.random.default_rng(seed)
    x, w = random.standard_normal((2, terms)).astype(np.float32)
    products = x.astype(np.float64) * w
    tolerance = {"terms": terms, "sum_abs": np.abs(products).sum()}
    for order in (np.arange(terms), random.permutation(terms)):
        forward = np.float32(0)
        for term in (x[order] * w[order])[:2000]:
            forward += term
        rest = np.dot(x[order][2000:], w[order][2000:])
        agree(np.float32(forward + rest), products.sum(), **tolerance)


@given(SEEDS)
def test_a_term_too_many_is_noticed(seed):
    random = np.random.default_rng(seed)
    x = random.standard_normal((3, 40)).astype(np.float32)
    w = (1 + np.abs(random.standard_normal((5, 40)))).astype(np.float32)
    reference, terms, sum_abs = linear_reference(Dense(), x, w)
    np.testing.assert_array_equal(terms, 40)
    good = (x.astype(np.float64) @ w.T).astype(np.float32)
    agree(good, reference, terms=terms, sum_abs=sum_abs)
    large = np.argmax(np.abs(x[0]))
    bad = good.copy()
    bad[0, 2] += x[0, large] * w[2, large]
    with pytest.raises(DisagreementError, match=r"at \(0, 2\).*allowed"):
        agree(bad, reference, terms=terms, sum_abs=sum_abs)


def test_terms_are_counted_at_borders():
    op = Conv2d(padding=(1, 1, 1, 1))
    _, terms, _ = linear_reference(op, np.ones((1, 2, 3, 3)), np.ones((1, 2, 3, 3)))
    np.testing.assert_array_equal(terms[0, 0], 2 * np.array([[4, 6, 4], [6, 9, 6], [4, 6, 4]]))


def test_long_dot_products_may_be_off_relatively():
    x = np.float32([1e4, 1, -1e4])
    got = np.float32(x[0] + x[1] + x[2] + np.float32(5e-4))
    agree(got, 1.0, terms=3, sum_abs=2e4)
    assert not agrees(got, 1.0, terms=3, sum_abs=2.0)


def test_the_bound_is_the_documented_one():
    assert sum_bound(10, 3.0) == 18 * 2.0**-24 * 3 + 10 * 2.0**-149
    assert sum_bound(10, 3.0, np.float64) == pytest.approx(18 * 2.0**-53 * 3)
    agree(np.float32(2**-149), 0.0, terms=1, sum_abs=0.0)
    assert not agrees(np.float32(2**-148), 0.0, terms=1, sum_abs=0.0)


def test_special_values_in_sums():
    tolerance = {"terms": 2, "sum_abs": np.float64([np.nan, np.inf, np.inf, 1])}
    reference = np.float64([np.nan, np.inf, -np.inf, 1])
    agree(reference.astype(np.float32), reference, **tolerance)
    for index, wrong in [(0, 1), (1, 3e38), (1, np.nan), (2, np.inf), (3, np.nan), (3, np.inf)]:
        got = reference.astype(np.float32)
        got[index] = wrong
        assert not agrees(got, reference, **tolerance)


def test_sums_that_overflow_on_the_way_are_not_judged():
    agree(np.float32([np.inf, np.nan, 1e38]), np.float64([1e38] * 3), terms=3,
          sum_abs=np.full(3, 1e39))
    assert not agrees(np.float32(np.inf), np.float64(1e38), terms=3, sum_abs=1e38)


@given(SEEDS, st.sampled_from([np.float16, np.float32, np.float64]), st.integers(0, 5))
def test_ulp_counts_floats_in_between(seed, dtype, steps):
    random = np.random.default_rng(seed)
    value = dtype(random.standard_normal() * 10.0 ** random.integers(-8, 4))
    other = value
    for _ in range(steps):
        other = np.nextafter(other, dtype(np.inf))
    assert ulp_distance(np.array([other]), np.array([value]))[0] == steps
    assert agrees(np.array([other]), np.array([value]), ulp=steps)
    assert steps == 0 or not agrees(np.array([other]), np.array([value]), ulp=steps - 1)


def test_ulp_across_zero_and_at_special_values():
    tiny = np.float32(2**-149)
    np.testing.assert_array_equal(
        ulp_distance(np.array([0.0, -tiny, tiny, np.nan, np.inf, np.nan, 1], np.float32),
                     np.array([-0.0, tiny, 0, np.nan, np.inf, 1, np.inf])),
        [0, 2, 1, 0, 0, np.inf, np.inf],
    )
    assert not agrees(np.float32([np.inf]), np.float32([3.4028235e38]), ulp=4)
    agree(np.float32([np.float32(0.1)]), np.float64([0.1]), ulp=0)


def test_max_relative():
    assert max_relative([1.0, 2.0], [1.0, 2.0]) == 0
    assert max_relative([1.0, 2.0001], [1.0, 2.0]) == pytest.approx(5e-5)
    assert max_relative([0.1, 2.0], [0.0, 2.0]) == pytest.approx(0.05)
    assert max_relative([np.nan, 1], [np.nan, 1]) == 0
    assert max_relative([], []) == 0
    for got, reference in [([np.nan], [1]), ([1], [np.nan]), ([np.inf], [1]), ([1], [0]),
                           ([np.inf], [-np.inf]), ([1, 2], [1])]:
        assert max_relative(got, reference) == np.inf


def test_terms_need_their_sum():
    with pytest.raises(TypeError, match="go together"):
        agree(np.float32(1), np.float32(1), terms=3)
