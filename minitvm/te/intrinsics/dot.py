"""Tiles of integer dot products, by rows of a and columns of b: see the table in `te.intrinsics`.

    c[i, j] += a[i, 0] * b[j * group] + ... + a[i, group - 1] * b[j * group + group - 1]
"""

from __future__ import annotations

from functools import partial

from minitvm import dtypes
from minitvm.errors import ScheduleError
from minitvm.te.intrinsics.tile import Add, DotTile, Way, splat
from minitvm.te.tensor_intrin import TensorIntrin
from minitvm.tir import ir
from minitvm.tir.instructions import TABLE
from minitvm.tir.ir import Call, Expr

FOUR_BYTES = {
    ("uint8", "int8"): ("x86_vpdpbusd", "arm_usdot"),
    ("int8", "int8"): ("arm_sdot",),
    ("uint8", "uint8"): ("arm_udot",),
}
SEVEN_BITS = 64
"""Two products of a uint8 and an int8 of at most this size add up within 16 bits: 2 * 255 * 64 is
32,640. With 65 the sum could be 33,150, which `vpmaddubsw` would saturate."""


def dot_bytes(rows: int = 1, lanes: int = 16, a: str = "uint8", b: str = "int8") -> TensorIntrin:
    """Products of bytes, four to a lane, by the instructions that add such groups up.

    Raises `ScheduleError` for dtypes of which no instruction is known.
    """
    if (a, b) not in FOUR_BYTES:
        known = ", ".join(f"{left} with {right}" for left, right in FOUR_BYTES)
        raise ScheduleError(f"dot_bytes multiplies {known}, not {a} with {b}")
    ways = [way for name in FOUR_BYTES[a, b] for way in _ways(name, lanes, partial(_four, name))]
    return DotTile(rows, lanes, 4, a, b).declare("dot_bytes", ways)


def _four(name: str, c: Expr, a: Expr, b: Expr) -> Expr:
    sums = dtypes.vector(TABLE[name].result, dtypes.lanes(c.dtype))
    return ir.cast(Call(name, (ir.cast(c, sums), a, b), sums), c.dtype)


def dot_pairs(rows: int = 1, lanes: int = 16, a: str = "int16", b: str = "int16") -> TensorIntrin:
    """Products of what 16 bits with a sign hold, two to a lane, by `vpmaddwd`."""
    for dtype in (a, b):
        if dtype not in ("int16", "int8", "uint8"):
            raise ScheduleError(f"dot_pairs multiplies int16, int8 and uint8, which 16 bits with a "
                                f"sign hold, not {dtype}")
    ways = _ways("x86_vpmaddwd", lanes, _two)
    return DotTile(rows, lanes, 2, a, b).declare("dot_pairs", ways)


def _two(c: Expr, a: Expr, b: Expr) -> Expr:
    wide = dtypes.vector("int16", dtypes.lanes(a.dtype))
    return c + Call("x86_vpmaddwd", (ir.cast(a, wide), ir.cast(b, wide)), c.dtype)


def seven_bits(weight: Expr) -> Expr:
    """An int8 within -64 and 64, which `dot_seven_bits` wants its weights to be."""
    return ir.maximum(ir.minimum(weight, SEVEN_BITS), -SEVEN_BITS)


def dot_seven_bits(rows: int = 1, lanes: int = 16) -> TensorIntrin:
    """uint8 times `seven_bits` of int8, four to a lane, by `vpmaddubsw` and `vpmaddwd`.

    `vpmaddubsw` adds two products in 16 bits and saturates, so that it is exact only for small
    weights. The compute therefore has to say `seven_bits(b[...])`, and so do the computes that this
    stands for: then it is exact for all operands.
    """
    ways = _ways("x86_vpmaddwd", lanes, _saturating)
    return DotTile(rows, lanes, 4, "uint8", "int8", seven_bits).declare("dot_seven_bits", ways)


def _saturating(c: Expr, a: Expr, b: Expr) -> Expr:
    count = dtypes.lanes(c.dtype)
    low, high = (splat(sign * SEVEN_BITS, "int8", 4 * count) for sign in (-1, 1))
    weights = ir.maximum(ir.minimum(b, high), low)
    pairs = Call("x86_vpmaddubsw", (a, weights), dtypes.vector("int16", 2 * count))
    return c + Call("x86_vpmaddwd", (pairs, splat(1, "int16", 2 * count)), c.dtype)


def _ways(name: str, lanes: int, add: Add) -> list[Way]:
    """The forms of an instruction whose lanes divide `lanes`, the widest first."""
    forms = sorted(TABLE[name].forms, key=lambda form: form.lanes, reverse=True)
    return [Way(form.lanes, form.features, add) for form in forms if lanes % form.lanes == 0]
