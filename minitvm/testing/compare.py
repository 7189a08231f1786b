"""Comparing arrays under the name that TVM's users know: `minitvm.testing.assert_allclose`."""

from __future__ import annotations

from typing import Any

import numpy as np


def assert_allclose(actual: Any, desired: Any, rtol: float = 1e-7, atol: float = 1e-7) -> None:
    """Raises `AssertionError` unless both have one shape and |actual - desired| is at most
    atol + rtol * |desired|, element by element. For what rounding may do, see `testing.agree`."""
    given, wanted = np.asarray(actual), np.asarray(desired)
    if given.shape != wanted.shape:
        raise AssertionError(f"the shapes differ: {given.shape} is not {wanted.shape}")
    np.testing.assert_allclose(given, wanted, rtol=rtol, atol=atol)
