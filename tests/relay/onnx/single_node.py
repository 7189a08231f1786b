"""One ONNX node, imported and run, against the ONNX reference implementation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from minitvm.relay.interpret import run
from minitvm.relay.ir import Module
from minitvm.relay.onnx import from_onnx

NEWEST = onnx.defs.onnx_opset_version()


def opsets_of(operator: str, first: int = 7, last: int = NEWEST) -> list[int]:
    """The opsets between `first` and `last` where the definition of an operator changes, and the
    last one."""
    schemas = [s for s in onnx.defs.get_all_schemas_with_history()
               if s.name == operator and s.domain == "" and not s.deprecated]
    changes = {max(s.since_version, first) for s in schemas}
    oldest = min(s.since_version for s in schemas)
    return sorted(v for v in changes | {last} if max(first, oldest) <= v <= last)


def single_node(
    operator: str,
    inputs: Sequence[np.ndarray | None],
    opset: int,
    constant: Sequence[int] = (),
    outputs: Sequence[str] = ("y",),
    **attributes: Any,
) -> onnx.ModelProto:
    """A model of one node. Inputs of `constant` are initializers, None is an input left out."""
    names = ["" if array is None else f"x{k}" for k, array in enumerate(inputs)]
    node = helper.make_node(operator, names, list(outputs), name="the_node", **attributes)
    values, weights = [], []
    for k, array in enumerate(inputs):
        if array is None:
            continue
        if k in constant:
            weights.append(numpy_helper.from_array(array, names[k]))
        else:
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
            values.append(helper.make_tensor_value_info(names[k], kind, array.shape))
    results = [onnx.ValueInfoProto(name=name) for name in outputs if name]
    graph = helper.make_graph([node], "one_node", values, results, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def feeds(inputs: Sequence[np.ndarray | None], constant: Sequence[int]) -> dict[str, np.ndarray]:
    return {f"x{k}": array for k, array in enumerate(inputs)
            if array is not None and k not in constant}


def run_model(model: onnx.ModelProto, values: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """What the imported model computes."""
    return run(imported(model), values)


def imported(model: onnx.ModelProto) -> Module:
    return from_onnx(model.SerializeToString())


def assert_agrees(
    operator: str,
    inputs: Sequence[np.ndarray | None],
    opset: int,
    constant: Sequence[int] = (),
    outputs: Sequence[str] = ("y",),
    expected: Sequence[np.ndarray] | None = None,
    **attributes: Any,
) -> list[np.ndarray]:
    """Asserts that importing one node and running it gives what the reference gives (or
    `expected`), with inputs given at run time, and all of them known when importing too."""
    model = single_node(operator, inputs, opset, constant, outputs, **attributes)
    values = feeds(inputs, constant)
    if expected is None:
        with np.errstate(all="ignore"):
            expected = ReferenceEvaluator(model).run(None, values)
    got = run_model(model, values)
    everything = tuple(range(len(inputs)))
    folded = single_node(operator, inputs, opset, everything, outputs, **attributes)
    compare(operator, opset, got, expected)
    compare(operator, opset, run_model(folded, {}), expected)
    return got


def compare(
    operator: str, opset: int, got: Sequence[np.ndarray], expected: Sequence[np.ndarray]
) -> None:
    assert len(got) == len(expected)
    for one, wanted in zip(got, expected, strict=True):
        wanted = np.asarray(wanted)
        assert (one.shape, one.dtype) == (wanted.shape, wanted.dtype), f"{operator} {opset}"
        np.testing.assert_allclose(one, wanted, rtol=2e-5, atol=1e-6, equal_nan=True,
                                   err_msg=f"{operator}, opset {opset}")
