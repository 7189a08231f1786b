"""How far the functions of tir are from the truth, over every float32 there is.

    python -m minitvm.testing.ulp                       all functions, this machine, every float
    python -m minitvm.testing.ulp sin cos --target "llvm -mcpu=x86-64" --step 97
    python -m minitvm.testing.ulp exp --target llvm --target "llvm -mcpu=x86-64-v3" --to 105

Prints, for each function and target, the greatest error in units in the last place and where it is.
Each value is computed by the compiled kernels of the targets and compared with one float64
reference: numpy's functions, and libm's for erf, whose relative errors are below 3e-16. NaN must be
NaN, an infinity that infinity, a zero that zero with its sign: anything else counts as an infinite
error. A unit is the distance between floats around the true value, so that subnormals are measured
by theirs.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from minitvm import dtypes
from minitvm.codegen.jit import build_kernel
from minitvm.origin import origin
from minitvm.target import Target
from minitvm.tir import intrinsics, ir

CHUNK = 2**16
"""How many values a kernel computes at once: they should stay in the second cache."""
LANES = 16
_PATTERNS = 2**32


@dataclass(frozen=True, slots=True)
class Worst:
    """The greatest error found, in units in the last place, and where."""

    error: float
    argument: float
    got: float
    exact: float

    def __str__(self) -> str:
        return (f"{self.error:.3f} ulp at {self.argument!r}: {self.got!r}, "
                f"exactly {self.exact!r}")


def exact_erf(x: np.ndarray) -> np.ndarray:
    """erf in float64: libm's where it is neither almost linear nor almost 1."""
    size = np.abs(x)
    near = np.where(size < 2.0**-10, x, 0.0)
    square = near * near
    series = 2 / math.sqrt(math.pi) * near * (1 - square * (1 / 3 - square / 10))
    result = np.where(size < 2.0**-10, series, np.copysign(1.0, x))
    between = (size >= 2.0**-10) & (size < 6)
    result[between] = list(map(math.erf, x[between].tolist()))
    return np.where(np.isnan(x) | (x == 0), x, result)


def exact_sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-x)) in float64, precise at both ends."""
    small = np.exp(-np.abs(x))
    return np.asarray(np.where(x < 0, small, 1.0) / (1 + small))


REFERENCES: dict[str, Callable[[np.ndarray], Any]] = {
    "exp": np.exp, "log": np.log, "tanh": np.tanh, "sigmoid": exact_sigmoid, "erf": exact_erf,
    "sin": np.sin, "cos": np.cos, "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x),
    "decay": np.exp, "tan": np.tan, "asin": np.arcsin,
    "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh}
"""What each function means, from float64 to float64."""
FLUSHING = ("decay",)
"""Functions whose subnormal results may be zero."""
NEGATIVE = ("decay",)
"""The functions that are only defined for floats with a sign."""


def ulps(got: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """How far `got` is from float64 values, in units in the last place of its dtype.

    Infinite where only one of the two is NaN, is infinite after rounding, or is a negative zero.
    """
    with np.errstate(all="ignore"):
        rounded = exact.astype(got.dtype)
        greatest = np.finfo(got.dtype).max
        unit = np.spacing(np.minimum(np.abs(rounded), greatest)).astype(np.float64)
        distance = np.abs(got.astype(np.float64) - exact) / unit
        same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
        zero_of_wrong_sign = (exact == 0) & (np.signbit(got) != np.signbit(exact))
    distance = np.nan_to_num(distance, nan=np.inf, posinf=np.inf)
    distance = np.where(same, np.minimum(distance, 0.5), distance)
    return np.where(zero_of_wrong_sign, np.inf, distance)


def function_kernel(name: str, size: int, lanes: int) -> ir.PrimFunc:
    """A kernel that applies an intrinsic to `size` float32, a multiple of `lanes`, in vectors."""
    source, result = (ir.buffer(stem, (size,), "float32") for stem in ("source", "result"))
    i = ir.Var("i")
    at: ir.Expr = i if lanes == 1 else ir.Ramp(i * lanes, ir.Const(1), lanes)
    value = ir.Call(name, (ir.Load(source, (at,)),), dtypes.vector("float32", lanes))
    store = ir.Store(result, (at,), value, origin("ulp"))
    loop = ir.For(i, ir.Const(0), ir.Const(size // lanes), "serial", store)
    return ir.PrimFunc(name, (source, result), loop)


def patterns(step: int, start: int = 0, stop: int = _PATTERNS) -> Iterator[np.ndarray]:
    """The floats whose bits are `start`, `start + step`, ...: arrays of at most `CHUNK`."""
    for first in range(start, stop, step * CHUNK):
        bits = np.arange(first, min(first + step * CHUNK, stop), step, dtype=np.uint64)
        yield bits.astype(np.uint32).view(np.float32)


def sizes(least: float, most: float) -> range:
    """The patterns, without the sign, of floats from `least` up to and with `most`; NaN, which may
    be the most, is greater than all others."""
    first, last = (int(np.float32(size).view(np.uint32)) for size in (least, most))
    return range(first, 2**31 if math.isnan(most) else last + 1)


def worst_errors(name: str, targets: Sequence[Target], step: int = 1, lanes: int = LANES,
                 within: range = range(2**31)) -> list[Worst]:
    """The greatest error of each target's machine code of a function, over every `step`-th pattern
    of bits `within` sizes, with both signs. The reference is computed once for all targets.

    At least 0.5, which rounding alone may come to.
    """
    function = function_kernel(name, CHUNK, lanes)
    kernels = [build_kernel(function, target) for target in targets]
    worst = [Worst(0.5, 0.0, 0.0, 0.0)] * len(targets)
    got, padded = (np.zeros(CHUNK, np.float32) for _ in range(2))
    signs = (2**31,) if name in NEGATIVE else (0, 2**31)
    for values in chain(*(patterns(step, sign + within.start, sign + within.stop)
                          for sign in signs)):
        padded[:len(values)] = values
        with np.errstate(all="ignore"):
            exact = np.asarray(REFERENCES[name](values.astype(np.float64)))
            rounded = exact.astype(np.float32)
        for index, kernel in enumerate(kernels):
            kernel(padded, got)
            result = got[:len(values)]
            if name in FLUSHING:
                flushed = (result == 0) & (np.abs(exact) < np.finfo(np.float32).tiny)
                result = np.where(flushed, rounded, result)
            found = _worst_of(values, result, exact, rounded)
            worst[index] = max(worst[index], found, key=lambda each: each.error)
    return worst


def _worst_of(values: np.ndarray, got: np.ndarray, exact: np.ndarray,
              rounded: np.ndarray) -> Worst:
    """The greatest error of some results; only those that are not rightly rounded are measured."""
    off = np.flatnonzero(got.view(np.int32) != rounded.view(np.int32))
    off = off[~(np.isnan(got[off]) & np.isnan(rounded[off]))]
    if not len(off):
        return Worst(0.0, 0.0, 0.0, 0.0)
    error = ulps(got[off], exact[off])
    at = int(error.argmax())
    place = off[at]
    return Worst(float(error[at]), *map(float, (values[place], got[place], exact[place])))


def main(arguments: list[str] | None = None) -> int:
    """The command; its status is 1 if a function is less exact than `tir.intrinsics` says."""
    parser = argparse.ArgumentParser("python -m minitvm.testing.ulp", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("functions", nargs="*", metavar="function",
                        help=f"of {', '.join(REFERENCES)}; all of them if none is named")
    parser.add_argument("--target", action="append", default=[], dest="targets", metavar="TARGET",
                        help="as for `minitvm compile`; this machine's. May be repeated")
    parser.add_argument("--step", type=int, default=1, help="checks every so manieth float only")
    parser.add_argument("--from", type=float, default=0.0, dest="least", metavar="SIZE",
                        help="only floats of at least this size, of both signs")
    parser.add_argument("--to", type=float, default=math.nan, dest="most", metavar="SIZE",
                        help="and at most this; by default all, infinity and NaN too")
    parser.add_argument("--lanes", type=int, default=LANES, help="the width of vectors")
    options = parser.parse_args(arguments)
    unknown = sorted({*options.functions} - {*REFERENCES})
    if not options.least >= 0 or options.most < options.least:
        parser.error("--from must be at least zero, and --to no less than it")
    if unknown or options.step < 1 or options.lanes < 1 or CHUNK % options.lanes:
        parser.error(f"unknown function {unknown[0]!r}" if unknown else
                     f"--step must be positive, and --lanes divide {CHUNK}")
    targets = [Target(text) for text in options.targets] or [Target.host()]
    failed = False
    for name in options.functions or REFERENCES:
        bound = intrinsics.TABLE[name].ulp or 0.5
        errors = worst_errors(name, targets, options.step, options.lanes,
                              sizes(options.least, options.most))
        for target, worst in zip(targets, errors):
            failed |= worst.error > bound
            print(f"{name:8} {'too much' if worst.error > bound else 'ok':8} {worst}"
                  + (f", {target.cpu}" if len(targets) > 1 else ""), flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
