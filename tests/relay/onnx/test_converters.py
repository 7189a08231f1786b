"""Every converter at every opset where its operator changed, against the ONNX reference."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import onnx
import pytest
from cases import CASES, Case
from onnx import numpy_helper
from single_node import NEWEST, assert_agrees, opsets_of

from minitvm.relay.onnx import supported
from minitvm.relay.onnx.table import CONVERTERS, LAST_OPSET, OLDEST_OPSET

RUNS = [
    pytest.param(case, opset, id=f"{case}-{opset}")
    for case in CASES
    for opset in opsets_of(case.operator, case.first, case.last)
]


@pytest.mark.parametrize(("case", "opset"), RUNS)
def test_agrees_with_the_reference(case: Case, opset: int):
    attributes = {
        name: numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value
        for name, value in case.attributes.items()
    }
    inputs = [None if x is None else np.asarray(x) for x in case.inputs]
    assert_agrees(case.operator, inputs, opset, case.constant, case.outputs, case.expected,
                  **attributes)


TESTED = {operator: versions for operator, versions in CONVERTERS.items()
          if operator not in ("If", "Loop", "Scan")}
"""What holds other nodes is no single node; `test_control` has them."""


def test_every_converter_has_a_case():
    run = {(param.values[0].operator, param.values[1]) for param in RUNS}
    for operator, versions in TESTED.items():
        bounds = [*sorted(versions), LAST_OPSET.get(operator, NEWEST) + 1]
        for since, until in pairwise(bounds):
            if until <= OLDEST_OPSET:
                continue
            covered = any(name == operator and since <= opset < until for name, opset in run)
            assert covered, f"{operator} from opset {since} to {until - 1} has no case"


def test_every_change_of_an_operator_has_a_case():
    run = {(param.values[0].operator, param.values[1]) for param in RUNS}
    for operator in TESTED:
        for opset in opsets_of(operator, last=LAST_OPSET.get(operator, NEWEST)):
            assert (operator, opset) in run, f"{operator} at opset {opset} has no case"


def test_supported_says_what_exists():
    for operator, (first, last) in supported().items():
        for opset in range(first, last + 1):
            schema = onnx.defs.get_schema(operator, opset, "")
            assert not schema.deprecated
        if last != NEWEST:
            assert onnx.defs.get_schema(operator, last + 1, "").deprecated
        if operator == "Scan":  # of opset 8 has batches, and is not imported
            assert first == 9
        elif first > OLDEST_OPSET and onnx.defs.has(operator, first - 1, ""):
            assert onnx.defs.get_schema(operator, first - 1, "").deprecated, operator


def test_supported_lists_every_converter():
    assert list(supported()) == sorted(CONVERTERS)
