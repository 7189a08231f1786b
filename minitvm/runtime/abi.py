"""The C interface of a compiled model: version, error codes, and the structure of a tensor.

The compiler writes functions that keep to it, the loader calls them, the C header declares them:

    int32_t minitvm_abi_version(void);
    const char *minitvm_model_name(void);
    const char *minitvm_error_text(int32_t code);
    int32_t minitvm_check_cpu(void);
    const char *NAME_metadata(void);
    uint64_t NAME_workspace_bytes(void);
    int32_t NAME_run(const minitvm_tensor *inputs, minitvm_tensor *outputs,
                     void *workspace, int32_t threads);
    int32_t NAME_set_affinity(const int32_t *cpus, int32_t count);
"""

from __future__ import annotations

import ctypes
import re
from enum import IntEnum

ABI_VERSION = 2
MAXIMUM_THREADS = 256


class ErrorCode(IntEnum):
    """What `run`, `check_cpu` and `set_affinity` return."""

    OK = 0
    NULL_POINTER = 1
    BAD_THREADS = 2
    WRONG_CPU = 3
    WRONG_SHAPE = 4
    MISALIGNED = 5
    RECURSION_TOO_DEEP = 6
    OUT_OF_BOUNDS = 7
    BAD_CPU = 8


ERROR_TEXTS = {
    ErrorCode.OK: "no error",
    ErrorCode.NULL_POINTER: "a tensor's data, the tensors or the workspace is a null pointer",
    ErrorCode.BAD_THREADS: f"the number of threads must be from 1 to {MAXIMUM_THREADS}",
    ErrorCode.WRONG_CPU: "this machine's processor lacks instructions that the model needs",
    ErrorCode.WRONG_SHAPE: "a tensor's shape is not the one that the model was compiled for",
    ErrorCode.RECURSION_TOO_DEEP: "functions of the model call each other more deeply than the "
    "recursion_limit that it was compiled with",
    ErrorCode.OUT_OF_BOUNDS: "a kernel would have accessed memory out of bounds; this model was "
    "compiled with tir.bound_checks",
    ErrorCode.BAD_CPU: f"the list names a CPU that threads may not run on, or more than "
    f"{MAXIMUM_THREADS}",
    ErrorCode.MISALIGNED: "a tensor is not aligned to its elements, or the workspace to 64 bytes",
}
UNKNOWN_ERROR = "unknown error code"

GENERAL_FUNCTIONS = ("minitvm_abi_version", "minitvm_model_name", "minitvm_error_text",
                     "minitvm_check_cpu")
WORKSPACE_ALIGNMENT = 64


class Tensor(ctypes.Structure):
    """`minitvm_tensor`: where the elements are, and the shape (may be null: as compiled)."""

    _fields_ = (("data", ctypes.c_void_p), ("shape", ctypes.POINTER(ctypes.c_int64)))


def c_name(name: str) -> str:
    """A model's name as a C identifier: what is not allowed in one becomes `_`."""
    identifier = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return identifier if re.match(r"[A-Za-z_]", identifier) else "model_" + identifier


def function_names(name: str) -> tuple[str, ...]:
    """Every function that the library of a model exports."""
    own = (f"{c_name(name)}_{what}"
           for what in ("metadata", "workspace_bytes", "run", "set_affinity"))
    return (*GENERAL_FUNCTIONS, *own)
