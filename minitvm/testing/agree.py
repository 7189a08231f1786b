"""When two results agree: the one definition of equality for all tests, oracles and tools.

- Integers and bools agree when they are equal.
- NaN agrees with NaN, an infinity with the same infinity; nothing else agrees with them.
- Floats agree when they are equal, unless a tolerance is given for how they were computed:
  * sums of products (`terms`, `sum_abs`): |got - reference| <= (n + 8) * u * sum|terms| + n * tiny,
    for n terms, the unit roundoff u and the least subnormal `tiny` of the dtype of `got`, against
    a reference in float64. It holds for any order of summation, with or without fused
    multiply-adds, and for a further rounding or two. `linear_reference` computes n and the sum;
  * functions (`ulp`): at most so many floats of the dtype of `got` apart.
- "Within 1e-4 of another runtime" means `max_relative(a, b) <= 1e-4`.

A bound on rounding hides a dropped term of small size. Data of small integers held as floats must
therefore agree exactly too: no tolerance, then.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minitvm.errors import MinitvmError
from minitvm.relay.op import Op

Array = np.ndarray


class DisagreementError(MinitvmError, AssertionError):
    """Two results that should agree do not."""


def agree(
    got: Any,
    reference: Any,
    *,
    terms: Any = None,
    sum_abs: Any = None,
    ulp: int | None = None,
    what: str = "the result",
) -> None:
    """Raises `DisagreementError`, which shows the worst element, unless `got` agrees with
    `reference` within the given tolerance: `terms` with `sum_abs`, or `ulp`, or none."""
    got, reference = np.asarray(got), np.asarray(reference)
    if got.shape != reference.shape:
        raise DisagreementError(f"{what} has the shape {got.shape}, not {reference.shape}")
    if got.dtype != reference.dtype and not (_is_float(got) and _is_float(reference)):
        raise DisagreementError(f"{what} is {got.dtype}, not {reference.dtype}")
    if (terms is None) != (sum_abs is None):
        raise TypeError("`terms` and `sum_abs` go together")
    if not _is_float(got):
        bad, bound = got != reference, None
    elif terms is not None:
        bound = sum_bound(terms, sum_abs, got.dtype)
        bad = _outside(got, reference, bound, sum_abs)
    elif ulp is not None:
        bound = None
        bad = ulp_distance(got, reference) > ulp
    else:
        bad, bound = ~_same(got, reference), None
    if np.any(bad):
        raise DisagreementError(_explain(got, reference, bad, bound, what))


def agrees(got: Any, reference: Any, **tolerance: Any) -> bool:
    """Whether `agree` holds."""
    try:
        agree(got, reference, **tolerance)
    except DisagreementError:
        return False
    return True


def max_relative(got: Any, reference: Any) -> float:
    """max|got - reference| / max|reference| over the finite elements; infinite where NaNs or
    infinities are not in the same places, or where the shapes differ."""
    got, reference = np.asarray(got, np.float64), np.asarray(reference, np.float64)
    if got.shape != reference.shape:
        return np.inf
    finite = np.isfinite(reference)
    if not np.array_equal(got[~finite], reference[~finite], equal_nan=True):
        return np.inf
    got, reference = got[finite], reference[finite]
    if not np.isfinite(got).all():
        return np.inf
    difference = float(np.max(np.abs(got - reference), initial=0.0))
    if difference == 0:
        return 0.0
    scale = float(np.max(np.abs(reference), initial=0.0))
    return difference / scale if scale else np.inf


def sum_bound(terms: Any, sum_abs: Any, dtype: Any = np.float32) -> Array:
    """How far a sum of `terms` products may be from its exact value, by element."""
    info = np.finfo(dtype)
    count = np.asarray(terms, np.float64)
    size = np.asarray(sum_abs, np.float64)
    bound: Array = (count + 8) * (float(info.eps) / 2) * size
    return bound + count * float(info.smallest_subnormal)


def linear_reference(op: Op, *inputs: Array) -> tuple[Array, Array, Array]:
    """(reference, terms, sum_abs) of an operator that sums products of its inputs, such as
    `nn.conv2d`, `nn.dense`, `matmul` or `sum`: its own meaning in float64, on the inputs, on ones
    and on absolute values."""
    wide = [np.asarray(item, np.float64) for item in inputs]
    with np.errstate(all="ignore"):
        reference = op.evaluate(*wide)
        terms = op.evaluate(*(np.ones_like(item) for item in wide))
        sum_abs = op.evaluate(*map(np.abs, wide))
    return np.asarray(reference), np.asarray(terms), np.asarray(sum_abs)


def ulp_distance(got: Any, reference: Any) -> Array:
    """How many floats lie between, by element, after rounding `reference` to the dtype of `got`.
    0 for two NaNs and for +0 and -0; infinite for a NaN against a number, and for an infinity
    against anything else."""
    got = np.asarray(got)
    with np.errstate(all="ignore"):
        rounded = np.asarray(reference).astype(got.dtype)
    distance: Array = np.abs(_ordinal(got) - _ordinal(rounded))
    special = ~(np.isfinite(got) & np.isfinite(rounded))
    apart: Array = np.where(special, np.where(_same(got, rounded), 0.0, np.inf), distance)
    return apart


def _ordinal(values: Array) -> Array:
    """The position of each float among all of its dtype, zero for both zeros, as integers (of any
    size: 64 bits do not hold the distance of two float64)."""
    bits = np.asarray(values).view(f"i{values.dtype.itemsize}")
    bits = bits.astype(object if values.itemsize == 8 else np.int64)
    least = -(1 << (8 * values.dtype.itemsize - 1))
    ordinal: Array = np.where(bits < 0, least - bits, bits)
    return ordinal


def _is_float(values: Array) -> bool:
    return values.dtype.kind == "f"


def _same(got: Array, reference: Array) -> Array:
    same: Array = (got == reference) | (np.isnan(got) & np.isnan(reference))
    return same


def _outside(got: Array, reference: Array, bound: Array, sum_abs: Any) -> Array:
    """Where the bound does not hold. Where the absolute values sum up to more than the dtype can
    hold, partial sums may overflow, depending on their order: any result will do there. Where the
    reference is NaN or infinite for its inputs' sake, the result must be the same."""
    largest = float(np.finfo(got.dtype).max)
    size = np.asarray(sum_abs, np.float64)
    with np.errstate(all="ignore"):
        near = np.abs(got.astype(np.float64) - reference) <= bound
    may_overflow = np.isfinite(size) & (size + bound > largest)
    finite = np.isfinite(reference)
    outside: Array = np.where(finite, ~near & ~may_overflow, ~_same(got, reference))
    return outside


def _explain(got: Array, reference: Array, bad: Array, bound: Array | None, what: str) -> str:
    count = int(np.count_nonzero(bad))
    with np.errstate(all="ignore"):
        error = np.abs(got.astype(np.float64) - reference.astype(np.float64))
        excess = error if bound is None else error - bound
    excess = np.where(np.isnan(excess), np.inf, excess)
    index = np.unravel_index(int(np.argmax(np.where(bad, excess, -np.inf))), got.shape)
    place = tuple(map(int, index))
    allowed = None if bound is None else float(np.broadcast_to(bound, got.shape)[index])
    limit = "" if allowed is None else f", {allowed:.3g} allowed"
    return (
        f"{what} differs in {count} of {got.size} elements; at {place} it is {got[index]!r}, not "
        f"{reference[index]!r} (difference {float(error[index]):.3g}{limit})"
    )
