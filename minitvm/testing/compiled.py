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
        same = (new == old) | (np.isnan(new) & np.isnan(old))
        if not shaken:
            return np.asarray(~same)
        with_noise = [np.where(np.abs(other) > np.finfo(np.float32).max, np.copysign(np.inf, other),
                               other).astype(np.float64) for other in shaken]
        steady = np.all([(other == old) | (np.isnan(other) & np.isnan(old)) | np.isfinite(other)
                         for other in with_noise], axis=0) & np.all(
                             [np.isfinite(other) == np.isfinite(old) for other in with_noise], axis=0)
        if got.dtype.kind != "f":
            moves = np.any([other != old for other in with_noise], axis=0)
            return np.asarray(~same & ~moves)
        spread = np.max([np.abs(other - old) for other in with_noise], axis=0)
        finite = np.abs(old[np.isfinite(old)])
        bound = NOISE_FACTOR * spread + TOLERANCE * np.max(finite, initial=0.0)
        close = same | (np.abs(new - old) <= bound)
        return np.asarray(steady & ~close)
