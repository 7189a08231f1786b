"""Relay passes watched by the relay interpreter: the first pass that changes the result is named.

    with PassContext(instruments=[Oracle(seed=0)]):
        module = pipeline(module)

Before and after each pass the module is run on the same seeded random inputs, in float64 so that
rounding does not hide a mistake; a pass after which the outputs differ stops the compilation with
an `OracleError`, which holds a runnable `Case`. `testing.bisect` shrinks it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from minitvm import dtypes
from minitvm.errors import MinitvmError
from minitvm.origin import Origin, merge_all
from minitvm.relay.dim import Dim, sizes_of, substitute
from minitvm.relay.interpret import run
from minitvm.relay.ir import Module, TensorType, walk_bindings
from minitvm.relay.text import print_module, save_text
from minitvm.testing.agree import agrees, max_relative
from minitvm.testing.widen import widen, widen_array

TOLERANCE = 1e-5
"""How far outputs may be apart, by `max_relative` in float64: what folding constants in float32
costs."""

SHAKES = 4
NOISE_FACTOR = 16
"""Outputs out of tolerance are run with noise so many times; they may be off by so many times as
much as the worst of these."""

DEFAULT_SIZE = 3
"""The extent of a named size, unless it is given."""


@dataclass(frozen=True, slots=True)
class Case:
    """A pass that changed the result, runnable: apply the pass to the module, run both on the
    inputs of the seed."""

    pass_name: str
    seed: int
    before: Module
    after: Module
    origins: Origin
    difference: str

    def save(self, directory: str | PathLike[str]) -> None:
        """Writes `before.relay`, `after.relay` (with their constants) and `case.py`, which runs
        both and prints how far they are apart."""
        folder = Path(directory)
        folder.mkdir(parents=True, exist_ok=True)
        save_text(self.before, folder / "before.relay")
        save_text(self.after, folder / "after.relay")
        (folder / "case.py").write_text(_SCRIPT.format(
            name=self.pass_name, seed=self.seed, origins=self.origins, difference=self.difference,
        ))


_SCRIPT = '''\
"""{name} changed the result: {difference}

Seed {seed}. Bindings the pass wrote come from: {origins}
"""

from pathlib import Path

from minitvm.relay.text import load_text
from minitvm.testing.oracle import difference, random_inputs

here = Path(__file__).parent
before = load_text(here / "before.relay")
after = load_text(here / "after.relay")
print(difference(before, after, random_inputs(before, {seed})) or "they agree")
'''


class OracleError(MinitvmError):
    """A pass changed what a module computes; `case` has the details."""

    def __init__(self, case: Case) -> None:
        self.case = case
        super().__init__(
            f"the pass {case.pass_name} changed the result on the inputs of seed {case.seed}: "
            f"{case.difference}; the bindings it wrote come from {case.origins or 'no origin'}; "
            f"save the case with error.case.save(directory)\nbefore:\n"
            f"{_excerpt(print_module(case.before))}\nafter:\n{_excerpt(print_module(case.after))}"
        )


def _excerpt(text: str, limit: int = 60) -> str:
    lines = text.splitlines()
    if len(lines) <= limit:
        return text
    return "\n".join([*lines[:limit], f"... and {len(lines) - limit} lines more"])


class Oracle:
    """The instrument. `sizes` gives named sizes their extents; passes over tir are not its own."""

    def __init__(self, seed: int = 0, tolerance: float = TOLERANCE,
                 sizes: Mapping[str, int] | None = None) -> None:
        self.seed = seed
        self.tolerance = tolerance
        self.sizes = dict(sizes or {})
        self.checked: list[str] = []
        self._known: tuple[Module, list[np.ndarray]] | None = None

    def run_before_pass(self, name: str, before: Any) -> None:
        """Nothing to do: the result of the module is known from the pass before, or comes later."""

    def run_after_pass(self, name: str, before: Any, after: Any) -> None:
        """Raises `OracleError` if the pass changed the outputs."""
        if not isinstance(before, Module) or not isinstance(after, Module):
            return
        self.checked.append(name)
        if after is before:
            return
        inputs = random_inputs(before, self.seed, self.sizes)
        expected = self._outputs(before, inputs)
        found = signature_difference(before, after)
        if not found:
            got = run_wide(after, inputs)
            found = judge(before, inputs, got, expected, self.tolerance)
            self._known = (after, got)
        if found:
            origins = new_origins(before, after)
            raise OracleError(Case(name, self.seed, before, after, origins, found))

    def _outputs(self, module: Module, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        if self._known is not None and self._known[0] is module:
            return self._known[1]
        return run_wide(module, inputs)


# --- running and comparing ----------------------------------------------------------------------


def random_inputs(
    module: Module, seed: int, sizes: Mapping[str, int] | None = None
) -> dict[str, np.ndarray]:
    """Inputs of a module, drawn from a seed: floats from a normal distribution, integers from -8
    to 8, bools; named sizes are `DEFAULT_SIZE` unless given."""
    generator = np.random.default_rng(seed)
    return {param.name: random_array(param.type, generator, sizes) for param in module.main.params}


def random_array(
    wanted: Any, generator: np.random.Generator, sizes: Mapping[str, int] | None = None
) -> np.ndarray:
    """An array of a tensor type."""
    if not isinstance(wanted, TensorType):
        raise MinitvmError(f"inputs are drawn for tensors, not for {wanted}")
    shape = tuple(_extent(dim, sizes or {}) for dim in wanted.shape)
    if dtypes.is_float(wanted.dtype):
        return generator.standard_normal(shape).astype(wanted.dtype)
    low, high = dtypes.integer_range(wanted.dtype)
    return generator.integers(max(low, -8), min(high, 8), shape, endpoint=True).astype(wanted.dtype)


def _extent(dim: Dim, sizes: Mapping[str, int]) -> int:
    known: dict[str, Dim] = {name: sizes.get(name, DEFAULT_SIZE) for name in sizes_of(dim)}
    extent = substitute(dim, known)
    assert isinstance(extent, int)
    return extent


def run_wide(
    module: Module, inputs: Mapping[str, np.ndarray], noise: np.random.Generator | None = None
) -> list[np.ndarray]:
    """The outputs of a module computed in float64; with `noise`, with inputs and constants off by
    as much as rounding to float32 may be."""
    wide = {name: widen_array(array, noise) for name, array in inputs.items()}
    return run(widen(module, noise), wide)


def difference(
    before: Module, after: Module, inputs: Mapping[str, np.ndarray], tolerance: float = TOLERANCE
) -> str:
    """How two modules differ on inputs, in words; empty if they agree."""
    return signature_difference(before, after) or judge(
        before, inputs, run_wide(after, inputs), run_wide(before, inputs), tolerance
    )


def judge(
    module: Module, inputs: Mapping[str, np.ndarray], got: Sequence[np.ndarray],
    expected: Sequence[np.ndarray], tolerance: float,
) -> str:
    """`outputs_difference`, where an output that is out of tolerance is held against how far noise
    takes it: `tan` near a pole and `floor` near an integer may magnify what rounding a constant to
    float32 costs."""
    if not outputs_difference(got, expected, tolerance):
        return ""
    generator = np.random.default_rng(0)
    shaken = [run_wide(module, inputs, generator) for _ in range(SHAKES)]
    for position, (new, old) in enumerate(zip(got, expected, strict=True)):
        found = outputs_difference([new], [old], tolerance)
        noise = max(_distance(other[position], old) for other in shaken)
        if found and _distance(new, old) > NOISE_FACTOR * noise:
            return found.replace("output 0", f"output {position}")
    return ""


def _distance(got: np.ndarray, expected: np.ndarray) -> float:
    if dtypes.is_float(expected.dtype.name):
        return max_relative(got, expected)
    return float(np.count_nonzero(got != expected))


def signature_difference(before: Module, after: Module) -> str:
    """How the signatures of `main` differ; empty if they are the same."""
    old, new = before.main, after.main
    old_params = [(param.name, param.type) for param in old.params]
    if old_params != [(param.name, param.type) for param in new.params]:
        return "the parameters of main are others"
    if old.result_type != new.result_type:
        return f"the result of main is {new.result_type}, no longer {old.result_type}"
    return ""


def outputs_difference(
    got: Sequence[np.ndarray], expected: Sequence[np.ndarray], tolerance: float = TOLERANCE
) -> str:
    """The first output that is out of tolerance, in words; empty if none is."""
    for position, (new, old) in enumerate(zip(got, expected, strict=True)):
        if dtypes.is_float(old.dtype.name):
            apart = max_relative(new, old)
            if apart > tolerance:
                return f"output {position} is off by {apart:.3g} of its largest element"
        elif not agrees(new, old):
            return f"output {position} has {int(np.sum(new != old))} of {old.size} elements wrong"
    return ""


def new_origins(before: Module, after: Module) -> Origin:
    """The origins of the bindings that are in `after` alone."""
    old = {id(binding) for function in before.functions.values()
           for binding in walk_bindings(function.body)}
    return merge_all(
        binding.origin for function in after.functions.values()
        for binding in walk_bindings(function.body) if id(binding) not in old
    )
