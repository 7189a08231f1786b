"""Machine code against the relay interpreter: how a compiled module differs from what it means.

    assert not compiled_difference(module, inputs)

The last of the four answers to a program against the second, through everything between. Outputs
of *exact* cases (see `relay_strategies`) must be equal. Else rounding is told from mistakes by
shaking: the interpreter runs again on inputs and constants that are off by as much as rounding may
be. What moves under that is known only so far, element by element, and what does not move must be
the same: a NaN, an infinity, a bool or an integer too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from minitvm.driver import compile
from minitvm.relay.interpret import run
from minitvm.relay.ir import Module
from minitvm.target import Target
from minitvm.testing.oracle import run_wide

SHAKES = 6
NOISE_FACTOR = 32
"""An element may be off by so many times as much as the worst of the shaken runs..."""

TOLERANCE = 1e-5
"""...and by this share of the largest element of its output."""


def compiled_difference(module: Module, inputs: Mapping[str, np.ndarray], *, exact: bool = False,
                        target: Target | None = None) -> str:
    """How the compiled module differs from the interpreter, in words; empty if they agree."""
    got = list(compile(module, target=target).run(inputs).values())
    expected = run(module, inputs)
    return outputs_difference(got, expected, [] if exact else shaken_outputs(module, inputs))


def shaken_outputs(module: Module, inputs: Mapping[str, np.ndarray]) -> list[list[np.ndarray]]:
    """The outputs as float64 has them, and on inputs and constants with some noise."""
    generator = np.random.default_rng(0)
    return [run_wide(module, inputs), *(run_wide(module, inputs, generator) for _ in range(SHAKES))]


def outputs_difference(got: Sequence[np.ndarray], expected: Sequence[np.ndarray],
                       shaken: Sequence[Sequence[np.ndarray]]) -> str:
    """The first output that is wrong, in words; without `shaken` outputs they must be equal."""
    if len(got) != len(expected):
        return f"there are {len(got)} outputs, not {len(expected)}"
    for position, (new, old) in enumerate(zip(got, expected, strict=True)):
        if (new.shape, new.dtype) != (old.shape, old.dtype):
            return f"output {position} is {new.dtype}{new.shape}, not {old.dtype}{old.shape}"
        wrong = _wrong(new, old, [outputs[position] for outputs in shaken])
        if wrong.any():
            index = tuple(int(i) for i in np.argwhere(wrong)[0])
            return (f"output {position} is wrong in {np.count_nonzero(wrong)} of {new.size} "
                    f"elements: at {index} it is {new[index]!r}, not {old[index]!r}")
    return ""


def _wrong(got: np.ndarray, expected: np.ndarray, shaken: Sequence[np.ndarray]) -> np.ndarray:
    """Which elements are wrong."""
    with np.errstate(all="ignore"):
        new, old = got.astype(np.float64), expected.astype(np.float64)
        same = _same(new, old)
        if not shaken:
            return np.asarray(~same)
        others = [_in_range(other) for other in shaken]
        if got.dtype.kind != "f":
            return np.asarray(~same & np.all([other == old for other in others], axis=0))
        finite = np.isfinite(old)
        steady = np.all([np.where(finite, np.isfinite(other), _same(other, old))
                         for other in others], axis=0)
        spread = np.max([np.abs(other - old) for other in others], axis=0)
        bound = NOISE_FACTOR * spread + TOLERANCE * np.max(np.abs(old[finite]), initial=0.0)
        return np.asarray(steady & ~same & ~(np.abs(new - old) <= bound))


def _same(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.asarray((a == b) | (np.isnan(a) & np.isnan(b)))


def _in_range(array: np.ndarray) -> np.ndarray:
    """A result in float64, infinite where float32 would be."""
    wide = array.astype(np.float64)
    too_large = np.abs(wide) > np.finfo(np.float32).max
    return np.where(too_large, np.copysign(np.inf, wide), wide)
