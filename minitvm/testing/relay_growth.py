"""A relay function that is being drawn: the block, the values at hand, and what they evaluate to.

The state that the moves of `relay_moves` share. Choices come from a generator with a seed, so that
what grows depends on seeds alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minitvm.errors import MinitvmError
from minitvm.origin import NOWHERE, origin
from minitvm.relay.build import BlockBuilder
from minitvm.relay.calls import all_atoms
from minitvm.relay.interpret import Interpreter, apply_operator, flatten
from minitvm.relay.ir import (
    Atom,
    Call,
    Constant,
    Function,
    Module,
    TensorType,
    Tuple,
    Value,
    Var,
    atoms,
    blocks,
    use_counts,
    walk_bindings,
)
from minitvm.relay.op import REGISTRY, Op, Pattern

EXTENTS = (1, 2, 3, 4, 5, 7, 8, 9, 16, 17)
"""Few, and most of them divided by no vector width."""

MAX_ELEMENTS = 2048
"""Of any one tensor."""

EXACT_LIMIT = 2.0**23
"""What values and partial sums of exact cases stay below; float32 counts up to 2**24."""

EXACT_OPERATORS = frozenset({
    "abs", "add", "all", "any", "argmax", "argmin", "broadcast_to", "cast", "ceil", "clip",
    "concatenate", "copy", "equal", "expand_dims", "floor", "greater", "greater_equal", "less",
    "less_equal", "logical_and", "logical_not", "logical_or", "logical_xor", "matmul", "max",
    "maximum", "min", "minimum", "multiply", "negative", "nn.batch_matmul", "nn.bias_add",
    "nn.conv2d", "nn.dense", "nn.dropout", "nn.global_max_pool2d", "nn.max_pool2d", "nn.pad",
    "nn.relu", "not_equal", "prod", "reduce_l1", "reduce_sum_square", "repeat", "reshape",
    "reverse", "round", "sign", "split", "squeeze", "stack", "strided_slice", "subtract", "sum",
    "tile", "transpose", "trunc", "where",
})
"""Those that give integers for integers in any order of evaluation."""

# --- growing a function -------------------------------------------------------------------------


class SkipMoveError(Exception):
    """Nothing at hand fits a move."""


class Grower:
    """A function being drawn: the block, the values at hand, and what they evaluate to."""

    def __init__(self, seed: int, exact: bool, special: bool, allowed: frozenset[str]) -> None:
        self.exact = exact
        self.special = special
        self.allowed = allowed
        self.generator = np.random.default_rng(seed)
        self.builder = BlockBuilder()
        self.params: list[Var] = []
        self.inputs: dict[str, np.ndarray] = {}
        self.values: list[Var] = []
        self.known: dict[Var, Any] = {}
        self.huge: set[Var] = set()
        self.interpreter = Interpreter()

    def attempt(self, moves: Sequence[Move], seed: Sequence[int]) -> None:
        """Moves drawn from a seed until one fits what is at hand; a few tries."""
        self.generator = np.random.default_rng(seed)
        for _ in range(TRIES):
            try:
                self.pick(moves).function(self)
                return
            except SkipMoveError:
                continue

    def integer(self, low: int, high: int) -> int:
        """An integer from `low` to `high`."""
        return int(self.generator.integers(low, high, endpoint=True))

    def flag(self) -> bool:
        """True or false."""
        return self.integer(0, 1) == 1

    def pick(self, options: Sequence[Any]) -> Any:
        """One of the options; skips the move if there is none."""
        if not options:
            raise SkipMoveError
        return options[self.integer(0, len(options) - 1)]

    def several(self, options: Sequence[Any], low: int, high: int) -> list[Any]:
        """From `low` to `high` of the options, with repetition."""
        return [self.pick(options) for _ in range(self.integer(low, high))]

    def permutation(self, count: int) -> tuple[int, ...]:
        """The integers below `count` in some order."""
        return tuple(int(item) for item in self.generator.permutation(count))

    # --- data

    def data(self, shape: tuple[int, ...], positive: bool = False) -> np.ndarray:
        """float32 data of the kind of this case."""
        if self.exact:
            return self.generator.integers(1 if positive else -4, 5, shape).astype(np.float32)
        data = np.asarray(self.generator.standard_normal(shape), np.float32)
        if positive:
            return np.abs(data) + np.float32(0.5)
        if self.special and data.size:
            count = self.generator.integers(0, min(data.size, 3) + 1)
            places = self.generator.integers(0, data.size, count)
            data.flat[places] = self.generator.choice(SPECIAL_VALUES, count)
        return data

    def add_parameter(self, shape: tuple[int, ...], positive: bool = False) -> Var:
        """A new parameter, with its data."""
        param = Var(f"x{len(self.params)}", TensorType(shape, "float32"))
        self.params.append(param)
        self.values.append(param)
        data = self.data(shape, positive)
        if self.special and data.size and not positive and self.integer(0, 3) == 0:
            data.flat[self.integer(0, data.size - 1)] = HUGE
            self.huge.add(param)
        self.inputs[param.name] = self.known[param] = data
        return param

    def add_flag(self) -> Var:
        """A new parameter: one bool."""
        param = Var(f"x{len(self.params)}", TensorType((), "bool"))
        self.params.append(param)
        self.values.append(param)
        self.inputs[param.name] = self.known[param] = np.array(self.flag())
        return param

    def weight(self, shape: tuple[int, ...], positive: bool = False) -> Atom:
        """Data that is a constant, or at times a parameter."""
        if self.integer(0, 5) == 0:
            return self.add_parameter(shape, positive)
        return Constant(self.data(shape, positive))

    # --- values at hand

    def tensors(
        self, rank: int | None = None, dtype: str | None = "float32", at_least: int = 0
    ) -> list[Var]:
        """The values at hand of a rank (or of at least one) and dtype, latest first."""
        return [
            value for value in reversed(self.values)
            if isinstance(value.type, TensorType)
            and (rank is None or value.type.rank == rank)
            and value.type.rank >= at_least
            and (dtype is None or value.type.dtype == dtype)
        ]

    def tensor(self, rank: int | None = None, dtype: str | None = "float32",
               at_least: int = 0) -> Var:
        """One of them."""
        found: Var = self.pick(self.tensors(rank, dtype, at_least))
        return found

    def plain_operators(self, pattern: Pattern, arity: int) -> list[Op]:
        """The operators of a pattern and arity that need no attribute and fit the case."""
        found = []
        for name in sorted(self.allowed & REGISTRY.keys()):
            operator = REGISTRY[name]
            exact = not self.exact or name in EXACT_OPERATORS
            if operator.pattern == pattern and operator.arity == arity and exact:
                try:
                    found.append(operator())
                except TypeError:
                    continue
        return found

    # --- adding

    def call(self, op: Op, *arguments: Atom) -> Var:
        """Binds a call and adds its result; skips the move if the operator does not take it, or if
        the result is too large (an exact case: if it is not exact any more)."""
        if op.name not in self.allowed or (self.exact and op.name not in EXACT_OPERATORS):
            raise SkipMoveError
        return self.bind(Call(op, arguments), op.name)

    def bind(self, value: Value, name: str) -> Var:
        """The same for any value; skips the move too if it would add up huge elements."""
        huge = any(atom in self.huge for atom in _atoms_inside(value))
        if huge and not _only_moves_or_maps(value):
            raise SkipMoveError
        try:
            probe = BlockBuilder().emit(value)
        except MinitvmError:
            raise SkipMoveError from None
        if isinstance(probe.type, TensorType) and not (
            0 < probe.type.elements() <= MAX_ELEMENTS
        ):
            raise SkipMoveError
        block = BlockBuilder()
        result = block.emit(value, origin=origin("probe"))
        outcome = self.interpreter.evaluate(block.finish(result), dict(self.known))
        if self.exact and not (is_exact(flatten(outcome)) and self.sums_exactly(value)):
            raise SkipMoveError
        number = len(self.builder.bindings)
        var = self.builder.emit(value, origin=origin(f"{name}_{number}"))
        self.known[var] = outcome
        self.values.append(var)
        if huge:
            self.huge.add(var)
        return var

    def sums_exactly(self, value: Value) -> bool:
        """Whether partial sums stay in range too: the value of the arguments' magnitudes does."""
        if not isinstance(value, Call) or not isinstance(value.callee, Op):
            return True
        given = [self.interpreter.atom(item, self.known) for item in value.arguments]
        inputs = [np.abs(item) for item in flatten(tuple(given))]
        return is_exact(flatten(apply_operator(value.callee, inputs, NOWHERE)))

    def finish(self) -> Module:
        """The module: its result is what nothing else uses, a tuple if that is several."""
        bindings = self.builder.bindings
        if not bindings:
            self.bind(Tuple((self.params[0], self.params[0])), "pair")
        uses = use_counts(self.builder.finish(self.values[-1]))
        ends = [value for value in self.values[:-1]
                if value not in uses and value not in self.params
                and isinstance(value.type, TensorType)]
        result = self.values[-1] if self.values[-1] not in self.params else bindings[-1].var
        if ends and isinstance(result.type, TensorType):
            fields_of = (*ends[-2:], result)
            result = self.builder.emit(Tuple(fields_of), origin=origin("outputs"))
        body = self.builder.finish(result)
        used = use_counts(body)
        params = tuple(param for param in self.params if param in used)
        self.inputs = {param.name: self.inputs[param.name] for param in params}
        return Module({"main": Function(params, body, result.type)})


TRIES = 4
"""Moves tried for one seed."""

SPECIAL_VALUES = np.array(
    [np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-45, -1e-40], np.float32
)


HUGE = np.float32(3e38)
"""Of parameters: two of them are too many for float32, so that a sum of several terms depends on
their order. Nothing is summed that is computed from it."""


def _atoms_inside(value: Value) -> list[Atom]:
    return [*atoms(value), *(atom for block in blocks(value) for atom in all_atoms(block))]


def _only_moves_or_maps(value: Value) -> bool:
    """Whether each element of a value depends on one of each argument, in one way of computing
    it."""
    inside = [binding.value for block in blocks(value) for binding in walk_bindings(block)]
    operators = [item.callee for item in (value, *inside)
                 if isinstance(item, Call) and isinstance(item.callee, Op)]
    return all(op.pattern <= Pattern.INJECTIVE and type(op).legalize is Op.legalize
               for op in operators)


def is_exact(arrays: Sequence[np.ndarray]) -> bool:
    """Whether all floats are integers small enough for float32 to add and multiply exactly."""
    for array in arrays:
        if array.dtype.kind != "f" or not array.size:
            continue
        if not np.isfinite(array).all() or np.abs(array).max() > EXACT_LIMIT:
            return False
        if (array != np.rint(array)).any():
            return False
    return True


# --- moves --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Move:
    """A way to grow: how often it is tried, and the operators without which it is not."""

    function: Callable[[Grower], object]
    weight: int
    needs: frozenset[str]
