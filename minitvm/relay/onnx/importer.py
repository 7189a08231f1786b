"""An ONNX model -> a relay module: the converters of `table`, applied node by node.

Nothing is compiled: what depends on constants alone is evaluated in numpy at once, which makes the
arithmetic on shapes disappear. Everything that can't be imported is collected and reported
together. Each binding's origin is the name of its node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

import minitvm.relay.onnx.converters  # noqa: F401, which fills the table
from minitvm.errors import MinitvmError, ModelError, UnsupportedOperatorError
from minitvm.origin import origin
from minitvm.relay.build import BlockBuilder
from minitvm.relay.infer import value_type
from minitvm.relay.ir import Atom, Constant, Function, Module, TensorType, Tuple, Var
from minitvm.relay.onnx.advice import advice_for
from minitvm.relay.onnx.conversion import Conversion, Unsupported
from minitvm.relay.onnx.inputs import input_values, static_type
from minitvm.relay.onnx.reader import (
    Graph,
    Node,
    Subgraph,
    read_graph,
    read_model,
    read_subgraph,
)
from minitvm.relay.onnx.table import CONVERTERS, OLDEST_OPSET, find_converter, newest_opset

if TYPE_CHECKING:
    from onnx import ModelProto


def from_onnx(
    model: Any, shapes: Mapping[str, tuple[int, ...]] | None = None, name: str = "",
    fixed: Mapping[str, Any] | None = None,
) -> Module:
    """The relay module of an ONNX model, given as a path, bytes or `onnx.ModelProto`.

    `shapes` gives the shapes of inputs by name, where the model leaves them open; `fixed` the
    values of inputs that become constants. The parameters of `main` have the names of the model's
    other inputs; its attributes hold `output_names` and `name`.

    Raises `ModelError` for what is no well-formed model or leaves a size open, and
    `UnsupportedOperatorError` for operators, opsets or attributes outside of what is known: it
    lists all of them.
    """
    proto, folder = read_model(model)
    graph = read_graph(proto, folder)
    inputs = input_values(graph, shapes or {}, fixed or {})
    importer = Importer(graph, proto, folder, inputs)
    importer.run()
    title = name or graph.name or "model"
    return Module({"main": importer.function(title)})


@dataclass(slots=True)
class Importer:
    """The values of a graph so far. A name that maps to None could not be imported."""

    graph: Graph
    proto: ModelProto
    folder: str
    inputs: Mapping[str, Var | Constant]
    values: dict[str, Atom | None] = field(default_factory=dict)
    builder: BlockBuilder = field(default_factory=BlockBuilder)
    problems: list[str] = field(default_factory=list)
    stand_ins: dict[str, TensorType] | None = None

    def run(self) -> None:
        """Imports every node, then reports what could not be imported."""
        self._check_opset()
        self.values.update(self.inputs)
        self._nodes(self.graph.weights, self.graph.nodes)
        if self.problems:
            count = len(self.problems)
            what = "1 node" if count == 1 else f"{count} nodes"
            raise UnsupportedOperatorError(
                f"{what} of the model cannot be imported:\n" + "\n".join(self.problems)
            )

    def _check_opset(self) -> None:
        opset = self.graph.opsets.get("")
        newest = newest_opset()
        if opset is None:
            if any(not node.domain for node in self.graph.nodes):
                raise ModelError("the model imports no version of the ONNX opset (ai.onnx)")
        elif not OLDEST_OPSET <= opset <= newest:
            advice = (
                "convert it with onnx.version_converter" if opset < OLDEST_OPSET else "upgrade onnx"
            )
            raise UnsupportedOperatorError(
                f"the model is of opset {opset}; minitvm imports opsets {OLDEST_OPSET} to "
                f"{newest}: {advice}"
            )

    def _nodes(self, weights: Mapping[str, np.ndarray], nodes: tuple[Node, ...]) -> None:
        for name, data in weights.items():
            self.values[name] = Constant(data, origin(name))
        for node in nodes:
            self._node(node)

    def subgraph(self, node: Node, graph: Any) -> Subgraph:
        """Reads a graph that is an attribute of a node."""
        return read_subgraph(graph, node, self.folder, self.values.keys())

    def inline(self, subgraph: Subgraph, arguments: Sequence[Atom],
               builder: BlockBuilder) -> tuple[Atom | None, ...]:
        """Imports a subgraph, whose names are seen in it alone, into a block."""
        outer = self.values, self.builder
        self.values = {**self.values, **dict(zip(subgraph.inputs, arguments, strict=True))}
        self.builder = builder
        try:
            self._nodes(subgraph.weights, subgraph.nodes)
            return tuple(self.values[name] for name in subgraph.outputs)
        finally:
            self.values, self.builder = outer

    def _node(self, node: Node) -> None:
        try:
            results = self._convert(node)
        except Unsupported as problem:
            self._note(node, problem)
            return
        except MinitvmError:
            if not self.problems:
                raise
            results = None  # after a first problem, stand-in types may be wrong
        for position, name in enumerate(node.outputs):
            if name:
                self.values[name] = results[position] if results else None

    def _convert(self, node: Node) -> tuple[Atom | None, ...] | None:
        """The results of a node; None where its arguments could not be imported."""
        opset = self.graph.opsets.get("", 0)
        function = None if node.domain else find_converter(node.operator, opset)
        if function is None:
            raise Unsupported(*advice_for(node, opset, CONVERTERS))
        arguments = [self.values[name] if name else None for name in node.inputs]
        if any(name and atom is None for name, atom in zip(node.inputs, arguments, strict=True)):
            return None
        conversion = Conversion(node, opset, arguments, self.builder, self)
        results = function(conversion)
        conversion.check_all_read()
        atoms = results if isinstance(results, tuple) else (results,)
        if any(node.outputs[len(atoms):]):
            raise Unsupported(f"it has {len(node.outputs)} outputs, but {len(atoms)} are known")
        return atoms

    def _note(self, node: Node, problem: Unsupported) -> None:
        domain = f"{node.domain}." if node.domain else ""
        opset = self.graph.opsets.get(node.domain, "not imported")
        advice = f"; {problem.advice}" if problem.advice else ""
        self.problems.append(
            f'  node "{node.name}": {domain}{node.operator} (opset {opset}): {problem.what}{advice}'
        )
        if self.stand_ins is None:
            self.stand_ins = _inferred_types(self.proto, self.inputs)
        for name in node.results:
            known = self.stand_ins.get(name)
            self.values[name] = Var(name, known) if known else None

    def function(self, title: str) -> Function:
        """The function `main`."""
        outputs = [self.values[name] for name in self.graph.outputs]
        atoms = tuple(atom for atom in outputs if atom is not None)
        result = atoms[0]
        if len(atoms) > 1:
            result = self.builder.emit(Tuple(atoms), origin=origin(*self.graph.outputs))
        attributes = {"output_names": self.graph.outputs, "name": title}
        body = self.builder.finish(result)
        params = tuple(value for value in self.inputs.values() if isinstance(value, Var))
        return Function(params, body, value_type(result), attributes)


def _inferred_types(
    proto: ModelProto, inputs: Mapping[str, Var | Constant]
) -> dict[str, TensorType]:
    """Types by ONNX's own inference, so that the search for further problems can go on behind a
    node that can't be imported. Empty where that fails: it is only for the report."""
    import onnx

    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    for value in copy.graph.input:
        if value.name in inputs:
            _set_shape(value, inputs[value.name].type)
    try:
        inferred = onnx.shape_inference.infer_shapes(copy)
    except (onnx.shape_inference.InferenceError, ValueError, RuntimeError):
        return {}
    found = {}
    for value in (*inferred.graph.value_info, *inferred.graph.output):
        known = static_type(value)
        if known is not None:
            found[value.name] = known
    return found


def _set_shape(value: Any, wanted: Any) -> None:
    del value.type.tensor_type.shape.dim[:]
    for extent in wanted.extents():
        value.type.tensor_type.shape.dim.add().dim_value = extent
