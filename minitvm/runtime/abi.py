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
    int32_t NAME_load_weights(const char *path);
"""

from __future__ import annotations

import ctypes
import re
from enum import IntEnum

ABI_VERSION = 3
MAXIMUM_THREADS = 256


class ErrorCode(IntEnum):
    """What `run`, `check_cpu`, `set_affinity` and `load_weights` return."""

    OK = 0
    NULL_POINTER = 1
    BAD_THREADS = 2
    WRONG_CPU = 3
    WRONG_SHAPE = 4
    MISALIGNED = 5
    RECURSION_TOO_DEEP = 6
    OUT_OF_BOUNDS = 7
    BAD_CPU = 8
    WEIGHTS_UNREADABLE = 9
    WEIGHTS_FORMAT = 10
    WEIGHTS_OF_ANOTHER_MODEL = 11
    WEIGHTS_TRUNCATED = 12
    WEIGHTS_DAMAGED = 13


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
    ErrorCode.WEIGHTS_UNREADABLE: "the file with the model's weights is missing or can't be read; "
    "it belongs beside the library, or is named to load_weights",
    ErrorCode.WEIGHTS_FORMAT: "what should hold the weights is not a weights file, or one of "
    "another version",
    ErrorCode.WEIGHTS_OF_ANOTHER_MODEL: "the weights file belongs to another model; copy the one "
    "that was written with this library",
    ErrorCode.WEIGHTS_TRUNCATED: "the weights file ends too early; copy it again",
    ErrorCode.WEIGHTS_DAMAGED: "the weights file is damaged: its checksum is wrong; copy it again",
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
           for what in ("metadata", "workspace_bytes", "run", "set_affinity", "load_weights"))
    return (*GENERAL_FUNCTIONS, *own)


EMBEDDED, SEPARATE = "embedded", "separate"
"""Where the weights of a model are: in the library, or in a file beside it."""


def weights_file(name: str) -> str:
    """What a model's file of weights is called; the library looks for it in its own folder."""
    return f"{c_name(name)}.weights"


def files_beside(name: str, weights: str) -> list[str]:
    """The names of the files that a library of this model comes with: header and sample, and the
    weights if they are separate."""
    own = [f"{c_name(name)}.h", f"{c_name(name)}_sample.c"]
    return [*own, weights_file(name)] if weights == SEPARATE else own
