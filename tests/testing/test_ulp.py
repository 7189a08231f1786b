"""The tool that measures how exact the functions are sees what it should."""

import math
from itertools import pairwise

import numpy as np
import pytest

from minitvm.codegen import exponentials
from minitvm.target import Target
from minitvm.testing import ulp


def test_distance_in_units():
    one = np.float32(1.0)
    above, below = np.nextafter(one, np.float32(2)), np.nextafter(one, np.float32(0))
    got = np.array([above, below, 1, 1], np.float32)
    assert ulp.ulps(got, np.array([1.0, 1.0, 1.0, 1 + 2.0**-25])).tolist() == [1, 0.5, 0, 0.25]


@pytest.mark.parametrize(("got", "exact"), [
    (0.0, -0.0), (math.nan, 1.0), (1.0, math.nan), (math.inf, 1.0), (-math.inf, math.inf),
    (1.0, math.inf)])
def test_wrong_specials_are_infinitely_wrong(got, exact):
    assert ulp.ulps(np.array([got], np.float32), np.array([exact]))[0] == math.inf


@pytest.mark.parametrize("value", [math.nan, math.inf, -0.0, 0.0, 1e-45, 3e38])
def test_right_specials(value):
    got = np.array([value], np.float32)
    assert ulp.ulps(got, got.astype(np.float64))[0] <= 0.5


def test_patterns_are_all_floats_once():
    start = 2**32 - 3 * ulp.CHUNK - 7
    bits = np.concatenate(list(ulp.patterns(1, start))).view(np.uint32)
    np.testing.assert_array_equal(bits, np.arange(start, 2**32, dtype=np.uint32))


def test_reference_erf():
    x = np.concatenate([np.geomspace(1e-30, 8, 4001), [0.0, -0.0, np.inf, -np.inf]])
    for values in (x, -x):
        expected = np.array([math.erf(value) for value in values])
        np.testing.assert_allclose(ulp.exact_erf(values), expected, rtol=1e-15)
        np.testing.assert_array_equal(np.signbit(ulp.exact_erf(values)), np.signbit(expected))
    assert np.isnan(ulp.exact_erf(np.array([np.nan]))[0])


def test_reference_sigmoid():
    np.testing.assert_array_equal(
        ulp.exact_sigmoid(np.array([-800.0, -np.inf, 0.0, np.inf])), [0.0, 0.0, 0.5, 1.0])


def test_a_worse_polynomial_is_found_out(monkeypatch, capsys):
    assert ulp.main(["exp", "--step", "65537"]) == 0
    monkeypatch.setattr(exponentials, "_EXP", (*exponentials._EXP[:-2], 0.00837, 0.0))
    assert ulp.main(["exp", "--step", "65537"]) == 1
    assert "too much" in capsys.readouterr().out


def test_errors_are_no_less_than_rounding():
    (worst,) = ulp.worst_errors("sqrt", [Target.host()], 65537)
    assert worst.error == 0.5


def test_each_target_is_measured_by_itself(capsys):
    """Without fused multiply-add errors differ."""
    plain, fused = Target("llvm -mcpu=x86-64"), Target("llvm -mcpu=x86-64-v3")
    both = ulp.worst_errors("erf", [plain, fused], 4099)
    assert both == [*ulp.worst_errors("erf", [plain], 4099),
                    *ulp.worst_errors("erf", [fused], 4099)]
    assert both[0] != both[1]
    assert ulp.main(["erf", "--step", "4099", "--target", str(plain), "--target",
                     str(fused)]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.endswith(", x86-64") and second.endswith(", x86-64-v3")
    assert str(both[0]) in first and str(both[1]) in second


def test_sizes_part_the_floats():
    edges = [0.0, 1e-40, 1.0, 2.0**20, math.inf]
    parts = [ulp.sizes(least, np.nextafter(np.float32(most), np.float32(0)))
             for least, most in pairwise(edges)] + [ulp.sizes(math.inf, math.nan)]
    assert parts[0].start == 0 and parts[-1].stop == 2**31
    assert all(a.stop == b.start for a, b in pairwise(parts))
    assert ulp.sizes(1.0, 1.0) == range(0x3F800000, 0x3F800001)


def test_only_sizes_asked_for_are_measured():
    (worst,) = ulp.worst_errors("exp", [Target.host()], 4099, within=ulp.sizes(3.0, 5.0))
    assert 3 <= abs(worst.argument) <= 5
    with pytest.raises(SystemExit):
        ulp.main(["exp", "--from", "2", "--to", "1"])


def test_decay_is_only_measured_where_it_is_defined():
    (worst,) = ulp.worst_errors("decay", [Target.host()], 65537)
    assert 0.5 <= worst.error <= 2 and worst.argument <= 0


@pytest.mark.parametrize(
    "arguments", [["nothing"], ["exp", "--step", "0"], ["exp", "--lanes", "3"]])
def test_wrong_arguments_are_refused(arguments):
    with pytest.raises(SystemExit):
        ulp.main(arguments)
