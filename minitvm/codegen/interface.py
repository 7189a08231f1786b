"""The C interface of a model as LLVM IR: what `runtime.abi` describes, around `main`.

`run` checks what it is given (null pointers, alignment, shapes where they are given, the number of
threads, the CPU), takes the thread pool if more than one is asked for, and returns an error code;
nothing is kept between runs but the threads, the answer of the CPU check and, where the weights lie
in a file of their own, their address.
"""

from __future__ import annotations

import math

from minitvm import dtypes
from minitvm.codegen import cpu_check
from minitvm.codegen.text import bytes_constant, text_constant
from minitvm.codegen.thread_pool import ENTER, LEAVE, SET_AFFINITY
from minitvm.runtime import abi
from minitvm.runtime.seal import EMPTY_NOTE, SECTION
from minitvm.runtime.tensor_info import TensorInfo
from minitvm.target import Target

MAIN = "minitvm.main"
WEIGHTS = "minitvm.weights"
WEIGHTS_ADDRESS = "minitvm.weights_address"
"""Where the weights of a file of their own have been mapped; null before that."""
LOAD_WEIGHTS = "minitvm.load_weights"


def interface_to_llvm(name: str, metadata: str, inputs: tuple[TensorInfo, ...],
                      outputs: tuple[TensorInfo, ...], workspace_bytes: int,
                      target: Target, status_offset: int | None = None,
                      report_offset: int | None = None, separate: bool = False) -> str:
    """The LLVM module that holds the functions a C program calls. `status_offset` is where in the
    workspace `main` leaves a byte that is not zero if it had to stop, `report_offset` where
    a kernel says that an access was out of bounds; `separate`: the weights lie in a file."""
    prefix = abi.c_name(name)
    run = _run_function(prefix, inputs, outputs, workspace_bytes, status_offset, report_offset,
                        separate)
    parts = [
        f'target triple = "{target.triple}"',
        *_weights(prefix, separate),
        _note(),
        _text_function(f"{prefix}_metadata", metadata),
        _text_function("minitvm_model_name", prefix),
        _number_function("minitvm_abi_version", "i32", abi.ABI_VERSION),
        _number_function(f"{prefix}_workspace_bytes", "i64", workspace_bytes),
        _error_text_function(),
        cpu_check.cpu_check_to_llvm(target),
        *run,
        f"declare i32 @{SET_AFFINITY}(ptr, i32)",
        f"define i32 @{prefix}_set_affinity(ptr %cpus, i32 %count) #0 {{",
        f"  %code = call i32 @{SET_AFFINITY}(ptr %cpus, i32 %count)", "  ret i32 %code", "}",
        'attributes #0 = { nounwind }',
    ]
    return "\n".join(parts) + "\n"


def _weights(prefix: str, separate: bool) -> list[str]:
    """What the functions know of the weights, and `load_weights`."""
    if separate:
        return [f"@{WEIGHTS_ADDRESS} = external hidden global ptr",
                f"declare hidden i32 @{LOAD_WEIGHTS}(ptr)",
                f"define i32 @{prefix}_load_weights(ptr %path) #0 {{",
                f"  %code = call i32 @{LOAD_WEIGHTS}(ptr %path)", "  ret i32 %code", "}"]
    return [f"@{WEIGHTS} = external constant i8, align {abi.WORKSPACE_ALIGNMENT}",
            f"define i32 @{prefix}_load_weights(ptr %path) #0 {{\n  ret i32 0\n}}"]


def _note() -> str:
    """The note that `runtime.seal` fills. Linkers keep notes. (It isn't in `llvm.used`: LLVM's
    machines remember the addresses of what is, and treat alike what has that address later.)"""
    note = bytes_constant("minitvm.note", EMPTY_NOTE)
    return (f'{note}, section "{SECTION}", align 4\n@llvm.compiler.used = appending global '
            '[1 x ptr] [ptr @minitvm.note], section "llvm.metadata"')


def _text_function(name: str, text: str) -> str:
    return (f"{text_constant('text.' + name, text)}\n"
            f"define ptr @{name}() #0 {{\n  ret ptr @text.{name}\n}}")


def _number_function(name: str, kind: str, value: int) -> str:
    return f"define {kind} @{name}() #0 {{\n  ret {kind} {value}\n}}"


def _error_text_function() -> str:
    texts = [text_constant(f"error.{code}", text) for code, text in abi.ERROR_TEXTS.items()]
    cases = "\n".join(f"    i32 {code}, label %code{code}" for code in abi.ERROR_TEXTS)
    blocks = "\n".join(f"code{code}:\n  ret ptr @error.{code}" for code in abi.ERROR_TEXTS)
    return "\n".join([
        *texts, text_constant("error.unknown", abi.UNKNOWN_ERROR),
        "define ptr @minitvm_error_text(i32 %code) #0 {",
        f"  switch i32 %code, label %unknown [\n{cases}\n  ]",
        blocks, "unknown:\n  ret ptr @error.unknown\n}"])


class _Run:
    """The body of `run`: a chain of checks, each leaving with its code, then the call."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.count = 0

    def value(self, instruction: str) -> str:
        self.count += 1
        self.lines.append(f"  %v{self.count} = {instruction}")
        return f"%v{self.count}"

    def fail_if(self, condition: str, code: int) -> None:
        self.count += 1
        label = f"next{self.count}"
        self.lines += [f"  br i1 {condition}, label %fail{code}, label %{label}", f"{label}:"]

    def return_if(self, condition: str, code: str) -> None:
        """Leaves with a code that is known when it runs."""
        self.count += 1
        label = f"next{self.count}"
        self.lines += [f"  br i1 {condition}, label %leave{self.count}, label %{label}",
                       f"leave{self.count}:", f"  ret i32 {code}", f"{label}:"]

    def fail_if_null(self, pointer: str) -> None:
        self.fail_if(self.value(f"icmp eq ptr {pointer}, null"), abi.ErrorCode.NULL_POINTER)

    def fail_if_misaligned(self, pointer: str, alignment: int) -> None:
        if alignment > 1:
            number = self.value(f"ptrtoint ptr {pointer} to i64")
            low = self.value(f"and i64 {number}, {alignment - 1}")
            self.fail_if(self.value(f"icmp ne i64 {low}, 0"), abi.ErrorCode.MISALIGNED)

    def load_tensor(self, tensors: str, position: int, info: TensorInfo) -> str:
        """Checks one tensor and gives its data."""
        place = self.value(f"getelementptr {{ ptr, ptr }}, ptr {tensors}, i64 {position}")
        data = self.value(f"load ptr, ptr {place}")
        if math.prod(info.shape):
            self.fail_if_null(data)
        self.fail_if_misaligned(data, dtypes.size_bytes(info.dtype))
        if info.shape:
            field = self.value(f"getelementptr {{ ptr, ptr }}, ptr {place}, i64 0, i32 1")
            self.check_shape(self.value(f"load ptr, ptr {field}"), info.shape)
        return data

    def check_shape(self, shape: str, extents: tuple[int, ...]) -> None:
        given = self.value(f"icmp ne ptr {shape}, null")
        self.count += 1
        check, done = f"shape{self.count}", f"after{self.count}"
        self.lines += [f"  br i1 {given}, label %{check}, label %{done}", f"{check}:"]
        for axis, extent in enumerate(extents):
            place = self.value(f"getelementptr i64, ptr {shape}, i64 {axis}")
            loaded = self.value(f"load i64, ptr {place}")
            self.fail_if(self.value(f"icmp ne i64 {loaded}, {extent}"), abi.ErrorCode.WRONG_SHAPE)
        self.lines += [f"  br label %{done}", f"{done}:"]


def _run_function(prefix: str, inputs: tuple[TensorInfo, ...], outputs: tuple[TensorInfo, ...],
                  workspace_bytes: int, status_offset: int | None,
                  report_offset: int | None, separate: bool) -> list[str]:
    run = _Run()
    below = run.value("sub i32 %threads, 1")
    too_many = run.value(f"icmp uge i32 {below}, {abi.MAXIMUM_THREADS}")
    run.fail_if(too_many, abi.ErrorCode.BAD_THREADS)
    cpu = run.value("call i32 @minitvm_check_cpu()")
    run.fail_if(run.value(f"icmp ne i32 {cpu}, 0"), abi.ErrorCode.WRONG_CPU)
    for tensors, infos in (("%inputs", inputs), ("%outputs", outputs)):
        if infos:
            run.fail_if_null(tensors)
    weights = f"@{WEIGHTS}"
    if separate:
        loaded = run.value(f"call i32 @{LOAD_WEIGHTS}(ptr null)")
        run.return_if(run.value(f"icmp ne i32 {loaded}, 0"), loaded)
        weights = run.value(f"load atomic ptr, ptr @{WEIGHTS_ADDRESS} acquire, align 8")
    workspace = weights  # never touched where no workspace is needed
    if workspace_bytes:
        workspace = "%workspace"
        run.fail_if_null(workspace)
        run.fail_if_misaligned(workspace, abi.WORKSPACE_ALIGNMENT)
    data = [run.load_tensor("%inputs", number, info) for number, info in enumerate(inputs)]
    data += [run.load_tensor("%outputs", number, info) for number, info in enumerate(outputs)]
    data = [_never_null(run, value, info, weights)
            for value, info in zip(data, (*inputs, *outputs))]
    arguments = ", ".join(f"ptr {value}" for value in (*data, weights, workspace))
    kinds = ", ".join(["ptr"] * (len(data) + 2))
    owned = run.value(f"call i32 @{ENTER}(i32 %threads)")
    run.lines.append(f"  call void @{MAIN}({arguments})")
    has_pool = run.value(f"icmp ne i32 {owned}, 0")
    run.lines += [f"  br i1 {has_pool}, label %leave, label %left", "leave:",
                  f"  call void @{LEAVE}()", "  br label %left", "left:"]
    for offset, code in ((report_offset, abi.ErrorCode.OUT_OF_BOUNDS),
                         (status_offset, abi.ErrorCode.RECURSION_TOO_DEEP)):
        if offset is not None:
            place = run.value(f"getelementptr i8, ptr {workspace}, i64 {offset}")
            stopped = run.value(f"icmp ne i8 {run.value(f'load i8, ptr {place}')}, 0")
            run.fail_if(stopped, code)
    fails = [f"fail{code}:\n  ret i32 {code}" for code in abi.ERROR_TEXTS if code]
    return [
        f"declare void @{MAIN}({kinds})", f"declare i32 @{ENTER}(i32)", f"declare void @{LEAVE}()",
        f"define i32 @{prefix}_run(ptr %inputs, ptr %outputs, ptr %workspace, i32 %threads) #0 {{",
        *run.lines, "  ret i32 0", *fails, "}"]


def _never_null(run: _Run, value: str, info: TensorInfo, weights: str) -> str:
    """A tensor without elements may be null in C; kernels are promised that it is not."""
    if math.prod(info.shape):
        return value
    null = run.value(f"icmp eq ptr {value}, null")
    return run.value(f"select i1 {null}, ptr {weights}, ptr {value}")
