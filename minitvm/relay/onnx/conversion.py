"""What a converter works with: one node of the model, its arguments, and the block being built.

Everything that a converter does not read is an error: an attribute that it never asks for, or a
value outside of the choices it knows, is reported as unsupported, never ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from minitvm.errors import InterpreterError, ModelError, TypeInferenceError
from minitvm.origin import Origin, origin
from minitvm.relay.build import BlockBuilder
from minitvm.relay.infer import operator_type
from minitvm.relay.interpret import apply_operator
from minitvm.relay.ir import Atom, Constant, TensorType, Type, tensor_type
from minitvm.relay.onnx.reader import Node, Subgraph
from minitvm.relay.onnx.tensors import element_dtype
from minitvm.relay.op import Op

FOLD_LIMIT_BYTES = 2**31
"""Constants larger than this are refused: a few bytes of a file can ask for any size."""


LONGEST = 2000
"""The steps of a recurrent layer or loop that are unrolled; each makes some ten calls."""


class Scope(Protocol):
    """Where the names of a graph have their values: what imports the nodes of subgraphs."""

    def subgraph(self, node: Node, graph: Any) -> Subgraph:
        """Reads a graph that is an attribute of a node."""

    def inline(self, subgraph: Subgraph, arguments: Sequence[Atom],
               builder: BlockBuilder) -> tuple[Atom | None, ...]:
        """Imports it once more, into a block; names in it are seen by itself alone."""


class Unsupported(Exception):
    """A node that can't be imported: what about it, and what to do."""

    def __init__(self, what: str, advice: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.advice = advice


@dataclass(slots=True)
class Conversion:
    """A node being imported. `opset` is the model's; `arguments` hold None for inputs left out."""

    node: Node
    opset: int
    arguments: list[Atom | None]
    builder: BlockBuilder
    scope: Scope
    read: set[str] = field(default_factory=set)

    @property
    def origin(self) -> Origin:
        """The origin of all bindings made for the node."""
        return origin(self.node.name)

    # --- inputs and outputs

    def input(self, index: int) -> Atom:
        """A required input."""
        atom = self.optional(index)
        if atom is None:
            raise ModelError(f"{self.node} lacks its input {index}")
        return atom

    def optional(self, index: int) -> Atom | None:
        """An input that may be left out."""
        return self.arguments[index] if index < len(self.arguments) else None

    def inputs(self) -> list[Atom]:
        """All inputs of an operator that takes any number of them."""
        if not self.arguments:
            raise ModelError(f"{self.node} has no input")
        return [self.input(index) for index in range(len(self.arguments))]

    def constant(self, index: int, what: str) -> np.ndarray:
        """A required input whose value must be known when importing."""
        atom = self.input(index)
        if not isinstance(atom, Constant):
            raise Unsupported(
                f"input {index} ({what}) is computed at run time",
                f"make {what} a constant, or give the input shapes that it is computed from",
            )
        return atom.data

    def constant_integers(self, index: int, what: str) -> tuple[int, ...]:
        """A required input that holds integers, known when importing, of rank 0 or 1."""
        data = self.constant(index, what)
        if data.dtype.kind not in "iu" or data.ndim > 1:
            raise ModelError(
                f"{self.node}: {what} must be a list of integers, not {data.dtype.name} "
                f"of shape {data.shape}"
            )
        return tuple(int(item) for item in data.reshape(-1))

    def wants(self, index: int) -> bool:
        """Whether an optional output has a name, and so may be used."""
        return index < len(self.node.outputs) and bool(self.node.outputs[index])

    def require_one_output(self, advice: str) -> None:
        """Refuses a node that asks for more than its first output."""
        if any(self.wants(index) for index in range(1, len(self.node.outputs))):
            raise Unsupported("it asks for more than its first output", advice)

    def subgraph(self, name: str) -> Subgraph:
        """The graph in an attribute."""
        self.read.add(name)
        graph = self.node.attributes.get(name)
        if not hasattr(graph, "node"):
            raise ModelError(f"{self.node}: the attribute {name} must be a graph")
        return self.scope.subgraph(self.node, graph)

    def inline(self, subgraph: Subgraph, arguments: Sequence[Atom] = (),
               builder: BlockBuilder | None = None) -> tuple[Atom | None, ...]:
        """The results of a subgraph for values of its inputs, here or in a nested block; None for
        what can't be imported."""
        return self.scope.inline(subgraph, arguments, builder or self.builder)

    # --- attributes

    def attribute(self, name: str, default: Any, kinds: tuple[type, ...], kind: str) -> Any:
        """An attribute of one of these Python types."""
        self.read.add(name)
        value = self.node.attributes.get(name, default)
        if value is not default and not isinstance(value, kinds):
            raise ModelError(f"{self.node}: the attribute {name} must be {kind}, not {value!r}")
        return value

    def integer(self, name: str, default: int) -> int:
        """An integer attribute."""
        return int(self.attribute(name, default, (int,), "an integer"))

    def required_integer(self, name: str) -> int:
        """An integer attribute without a default."""
        value = self.attribute(name, None, (int,), "an integer")
        if value is None:
            raise ModelError(f"{self.node} lacks its attribute {name}")
        return int(value)

    def flag(self, name: str, default: bool = False) -> bool:
        """An integer attribute that is 0 or 1."""
        value = self.integer(name, int(default))
        if value not in (0, 1):
            raise Unsupported(f"the attribute {name} is {value}", "it takes 0 or 1")
        return bool(value)

    def number(self, name: str, default: float) -> float:
        """A float attribute."""
        return float(self.attribute(name, default, (float, int), "a number"))

    def text(self, name: str, default: str, choices: tuple[str, ...]) -> str:
        """A string attribute with known choices."""
        value = str(self.attribute(name, default, (str,), "a string"))
        if value not in choices:
            raise Unsupported(f'the attribute {name} is "{value}"', f"it takes {_either(choices)}")
        return value

    def integers(self, name: str) -> tuple[int, ...] | None:
        """A list of integers; None where it is left out."""
        value = self.attribute(name, None, (tuple,), "a list of integers")
        if value is not None and not all(isinstance(item, int) for item in value):
            raise ModelError(f"{self.node}: the attribute {name} must be a list of integers")
        return value  # type: ignore[no-any-return]

    def ignore(self, *names: str) -> None:
        """Attributes that have no effect on inference."""
        self.read.update(names)

    def check_all_read(self) -> None:
        """Refuses attributes that the converter did not ask for."""
        for name, value in self.node.attributes.items():
            if name not in self.read:
                shown = value if isinstance(value, int | float | str | tuple) else "..."
                raise Unsupported(
                    f"the attribute {name} (here {shown!r}) is not known at opset {self.opset}",
                    "check the opset that the model declares",
                )

    def dtype(self, element_type: int) -> str:
        """The dtype of an ONNX element type, refused where minitvm has none for it."""
        try:
            return element_dtype(element_type, "it")
        except ModelError as error:
            raise Unsupported(str(error)) from error

    # --- building

    def type(self, atom: Atom) -> TensorType:
        """The type of an input or intermediate value."""
        return tensor_type(atom)

    def shape(self, atom: Atom) -> tuple[int, ...]:
        """The shape as integers: importing fixes all input shapes."""
        return tensor_type(atom).extents()

    def emit(self, op: Op, *atoms: Atom) -> Atom:
        """A call of an operator. Evaluated at once where all arguments are constants."""
        if atoms and all(isinstance(atom, Constant) for atom in atoms):
            return self._fold(op, [atom for atom in atoms if isinstance(atom, Constant)])
        name = self.node.results[0] if self.node.results else ""
        return self.builder.emit(op, *atoms, origin=self.origin, name=name)

    def _fold(self, op: Op, atoms: list[Constant]) -> Constant:
        types: tuple[Type, ...] = tuple(atom.type for atom in atoms)
        try:
            found = operator_type(op, types)
        except TypeInferenceError as error:
            raise TypeInferenceError(f"{self.origin}: {error}") from error
        if isinstance(found, TensorType) and found.size_bytes() > FOLD_LIMIT_BYTES:
            raise ModelError(f"{self.node} would give a constant of {found.size_bytes()} bytes")
        try:
            value = apply_operator(op, [atom.data for atom in atoms], self.origin)
        except InterpreterError as error:
            raise ModelError(str(error)) from error
        return Constant(value, self.origin)  # type: ignore[arg-type]

    def make(self, value: Any, dtype: str) -> Constant:
        """A constant."""
        try:
            return Constant(np.asarray(value, dtype), self.origin)
        except (ValueError, TypeError, OverflowError) as error:
            raise ModelError(f"{self.node}: {value!r} is no {dtype}: {error}") from error


def _either(choices: tuple[str, ...]) -> str:
    return " or ".join(f'"{choice}"' for choice in choices)


def chain(emit: Callable[..., Atom], op: Op, atoms: list[Atom]) -> Atom:
    """A binary operator from left to right over several values."""
    result = atoms[0]
    for atom in atoms[1:]:
        result = emit(op, result, atom)
    return result
