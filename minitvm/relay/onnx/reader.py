"""ONNX, as a file, bytes or a `ModelProto` -> a plain graph: nodes in order, arrays, names.

Whatever a file can hold is checked here, so that converters meet only well-formed nodes: it parses,
its versions are known, names are defined once and before use, external data lies beside the model.
Nodes that no output needs are dropped.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from minitvm.errors import ModelError
from minitvm.relay.onnx.tensors import read_tensor

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

OnnxModel = "ModelProto | bytes | str | os.PathLike[str]"


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """A node. `name` is unique in the graph; strings among the attributes are str, tensors arrays;
    an empty name among inputs or outputs is an optional one left out."""

    name: str
    operator: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]

    @property
    def results(self) -> tuple[str, ...]:
        """The outputs that have a name."""
        return tuple(name for name in self.outputs if name)

    def __str__(self) -> str:
        return f'node "{self.name}" ({self.operator})'


@dataclass(frozen=True, slots=True)
class Graph:
    """A model: nodes sorted so that values come before their uses; weights; inputs and outputs."""

    name: str
    nodes: tuple[Node, ...]
    weights: Mapping[str, np.ndarray]
    inputs: tuple[Any, ...]
    outputs: tuple[str, ...]
    opsets: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Subgraph:
    """A branch of an `If`, or the body of a loop; inputs and outputs are names."""

    nodes: tuple[Node, ...]
    weights: Mapping[str, np.ndarray]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def read_model(source: Any) -> tuple[ModelProto, str]:
    """The parsed model, and the folder that its external data lies in."""
    import onnx

    if isinstance(source, onnx.ModelProto):
        return source, ""
    if isinstance(source, bytes | bytearray | memoryview):
        return _parse(bytes(source), "the model"), ""
    if not isinstance(source, str | os.PathLike):
        raise ModelError(
            f"a model is a path, bytes or an onnx.ModelProto, not {type(source).__name__}"
        )
    path = Path(source)
    try:
        data = path.read_bytes()
    except (OSError, ValueError) as error:  # a ValueError where the path holds a zero byte
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        raise ModelError(f"{path} cannot be read: {reason}") from error
    return _parse(data, str(path)), str(path.parent)


def _parse(data: bytes, what: str) -> ModelProto:
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except (DecodeError, ValueError) as error:
        raise ModelError(f"{what} is not an ONNX model, or is truncated: {error}") from error
    if not model.HasField("graph") or not model.graph.output:
        raise ModelError(f"{what} is not an ONNX model: it holds no graph with outputs")
    return model


def read_graph(model: ModelProto, folder: str) -> Graph:
    """The checked graph of a model."""
    model = _inline_functions(model)
    opsets = _opsets(model)
    graph = model.graph
    _require_text(graph)
    weights = _read_weights(graph, folder)
    inputs = tuple(value for value in graph.input if value.name not in weights)
    _require_unique([value.name for value in inputs], "graph inputs")
    nodes = _read_nodes(graph.node, folder)
    outputs = tuple(value.name for value in graph.output)
    _require_unique(outputs, "graph outputs")
    known = {value.name for value in inputs} | set(weights)
    ordered = _sorted_nodes(nodes, known, outputs)
    return Graph(graph.name, ordered, weights, inputs, outputs, opsets)


def read_subgraph(graph: GraphProto, owner: Node, folder: str, outer: Iterable[str]) -> Subgraph:
    """A branch or the body of a loop; `outer` names may be used in it. Its nodes are named after
    the node it belongs to."""
    _require_text(graph)
    weights = _read_weights(graph, folder)
    inputs = tuple(value.name for value in graph.input if value.name not in weights)
    _require_unique(inputs, f"inputs of a subgraph of {owner}")
    nodes = [
        (replace(node, name=f"{owner.name}/{node.name}"), names)
        for node, names in _read_nodes(graph.node, folder)
    ]
    outputs = tuple(value.name for value in graph.output)
    defined = {name for node, _ in nodes for name in node.results}
    known = set(weights) | set(inputs) | (set(outer) - defined)
    return Subgraph(_sorted_nodes(nodes, known, outputs), weights, inputs, outputs)


def _inline_functions(model: ModelProto) -> ModelProto:
    """The model with its own functions replaced by their bodies."""
    if not model.functions:
        return model
    import onnx.inliner

    try:
        inlined: ModelProto = onnx.inliner.inline_local_functions(model)
    except (RuntimeError, ValueError, TypeError) as error:
        raise ModelError(f"the functions of the model cannot be inlined: {error}") from error
    return inlined


def _opsets(model: ModelProto) -> dict[str, int]:
    import onnx

    if model.ir_version > onnx.IR_VERSION:
        raise ModelError(
            f"the model has IR version {model.ir_version}; the installed onnx {onnx.__version__} "
            f"knows versions up to {onnx.IR_VERSION}: upgrade onnx"
        )
    opsets: dict[str, int] = {}
    for entry in model.opset_import:
        domain = "" if entry.domain == "ai.onnx" else entry.domain
        if not isinstance(domain, str):
            raise ModelError(f"the model imports an opset whose name is no text: {domain!r}")
        if opsets.setdefault(domain, entry.version) != entry.version:
            raise ModelError(f"the model imports two versions of the opset {domain or 'ai.onnx'!r}")
    return opsets


def _require_text(graph: GraphProto) -> None:
    """Refuses names that are not UTF-8, which protobuf gives as bytes."""
    names: list[str] = [graph.name]
    for value in (*graph.input, *graph.output, *graph.initializer):
        names.append(value.name)
    for node in graph.node:
        names.extend((node.name, node.op_type, node.domain, *node.input, *node.output))
        names.extend(attribute.name for attribute in node.attribute)
    for name in names:
        if not isinstance(name, str):
            raise ModelError(f"the model holds a name that is not UTF-8 text: {name!r}")


def _require_unique(names: Iterable[str], what: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ModelError(f'two of the {what} are named "{name}"; names must be unique')
        seen.add(name)


def _read_weights(graph: GraphProto, folder: str) -> dict[str, np.ndarray]:
    if graph.sparse_initializer:
        raise ModelError("the model has sparse initializers, which are not supported: densify them")
    _require_unique([tensor.name for tensor in graph.initializer], "initializers")
    needed = {name for node in graph.node for name in _used_names(node)}
    needed.update(value.name for value in graph.output)
    return {
        tensor.name: read_tensor(tensor, f'initializer "{tensor.name}"', folder)
        if tensor.name in needed
        else np.empty(0, np.float32)
        for tensor in graph.initializer
    }


# --- nodes --------------------------------------------------------------------------------------


def _read_nodes(protos: Iterable[NodeProto], folder: str) -> list[tuple[Node, tuple[str, ...]]]:
    """The nodes, and the names each one uses, those used inside its subgraphs included."""
    taken: set[str] = set()
    result = []
    for index, proto in enumerate(protos):
        name = proto.name or f"{proto.op_type}_{index}"
        if name in taken:
            name = f"{name}_{index}"
            while name in taken:
                name += "_"
        taken.add(name)
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        inputs = list(proto.input)
        while inputs and not inputs[-1]:
            inputs.pop()
        attributes = _read_attributes(proto, name, folder)
        node = Node(name, proto.op_type, domain, tuple(inputs), tuple(proto.output), attributes)
        result.append((node, tuple(_used_names(proto))))
    return result


def _read_attributes(proto: NodeProto, node_name: str, folder: str) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for attribute in proto.attribute:
        if attribute.name in result:
            raise ModelError(f'node "{node_name}" has the attribute {attribute.name} twice')
        place = f'the attribute {attribute.name} of node "{node_name}"'
        result[attribute.name] = _attribute_value(attribute, place, folder)
    return result


def _attribute_value(attribute: Any, place: str, folder: str) -> Any:
    import onnx

    if attribute.ref_attr_name:
        raise ModelError(f"{place} refers to an attribute of a function, outside of any function")
    try:
        value = onnx.helper.get_attribute_value(attribute)
    except (ValueError, TypeError) as error:
        raise ModelError(f"{place} cannot be read: {error}") from error
    match value:
        case None:
            raise ModelError(f"{place} has no value")
        case bytes():
            return value.decode("utf-8", "replace")
        case onnx.TensorProto():
            return read_tensor(value, place, folder)
        case int() | float() | str() | onnx.GraphProto():
            return value
        case _ if attribute.type == onnx.AttributeProto.STRINGS:
            return tuple(item.decode("utf-8", "replace") for item in value)
        case _ if attribute.type in (onnx.AttributeProto.INTS, onnx.AttributeProto.FLOATS):
            return tuple(value)
        case _:
            return value


def _used_names(proto: NodeProto) -> Iterable[str]:
    """The names that a node reads, those that its subgraphs take from outside included."""
    yield from (name for name in proto.input if name)
    graphs = _subgraphs(proto)
    inner: dict[str, None] = {}
    defined: set[str] = set()
    while graphs:
        graph = graphs.pop()
        defined.update(value.name for value in graph.input)
        defined.update(tensor.name for tensor in graph.initializer)
        inner.update(dict.fromkeys(value.name for value in graph.output))
        for node in graph.node:
            defined.update(node.output)
            inner.update(dict.fromkeys(name for name in node.input if name))
            graphs.extend(_subgraphs(node))
    yield from (name for name in inner if name not in defined)


def _subgraphs(proto: NodeProto) -> list[GraphProto]:
    graphs = []
    for attribute in proto.attribute:
        if attribute.HasField("g"):
            graphs.append(attribute.g)
        graphs.extend(attribute.graphs)
    return graphs


# --- order --------------------------------------------------------------------------------------


def _sorted_nodes(
    nodes: list[tuple[Node, tuple[str, ...]]], known: set[str], outputs: tuple[str, ...]
) -> tuple[Node, ...]:
    """The nodes that outputs need, values before uses, otherwise in the order of the file."""
    producer = _producers(nodes, known)
    for name in outputs:
        if name not in known and name not in producer:
            raise ModelError(f'the graph output "{name}" is computed by no node')
    needed = _needed(nodes, producer, outputs, known)
    waiting = {}
    users: dict[int, list[int]] = {}
    for index in needed:
        sources = {producer[name] for name in nodes[index][1] if name not in known}
        waiting[index] = len(sources)
        for source in sources:
            users.setdefault(source, []).append(index)
    ready = [index for index, count in waiting.items() if count == 0]
    heapq.heapify(ready)
    order = []
    while ready:
        index = heapq.heappop(ready)
        order.append(nodes[index][0])
        for user in users.get(index, ()):
            waiting[user] -= 1
            if waiting[user] == 0:
                heapq.heappush(ready, user)
    if len(order) < len(needed):
        stuck = [nodes[index][0].name for index, count in waiting.items() if count > 0]
        raise ModelError(f"the graph has a cycle through {', '.join(stuck[:8])}")
    return tuple(order)


def _producers(nodes: list[tuple[Node, tuple[str, ...]]], known: set[str]) -> dict[str, int]:
    producer: dict[str, int] = {}
    for index, (node, _) in enumerate(nodes):
        for name in node.results:
            if name in known or name in producer:
                other = nodes[producer[name]][0].name if name in producer else ""
                by = f'node "{other}" too' if other else "also a graph input or an initializer"
                raise ModelError(f'{node} computes "{name}", which is {by}; names must be unique')
            producer[name] = index
    return producer


def _needed(
    nodes: list[tuple[Node, tuple[str, ...]]],
    producer: Mapping[str, int],
    outputs: tuple[str, ...],
    known: set[str],
) -> list[int]:
    """The indices of the nodes that outputs depend on, rising."""
    found: set[int] = set()
    stack = [producer[name] for name in outputs if name in producer]
    while stack:
        index = stack.pop()
        if index in found:
            continue
        found.add(index)
        node, names = nodes[index]
        for name in names:
            if name in known:
                continue
            if name not in producer:
                raise ModelError(
                    f'{node} reads "{name}", which is no graph input, no initializer and no '
                    f"result of a node"
                )
            stack.append(producer[name])
    return sorted(found)
