"""What a run leaves behind where an access was out of bounds -> a sentence.

A report is four int64: 1, the number of the call, that of the check in its kernel, and the index.
A row of checks is the buffer's name, the dimension, its extent, and the origins of the statement.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

REPORT_BYTES = 32


def report_sentence(kernel: str, row: Sequence[Any], index: int, origin: str = "") -> str:
    """Which kernel accessed which buffer where, and for which node of the model."""
    buffer, dimension, extent, names = row
    source = origin or ", ".join(names)
    return (f"{kernel} accesses {buffer} out of bounds: the index {index} in dimension {dimension},"
            f" whose extent is {extent}" + (f", for {source}" if source else ""))


def model_sentence(metadata: dict[str, Any], workspace: np.ndarray) -> str:
    """The sentence for a model, whose metadata says where in its workspace the report is."""
    facts = metadata["bound_checks"]
    report = workspace[facts["offset"]:facts["offset"] + REPORT_BYTES].view(np.int64)
    call = facts["calls"][int(report[1])]
    row = facts["checks"][call["kernel"]][int(report[2])]
    return report_sentence(call["kernel"], row, int(report[3]), call["origin"])
