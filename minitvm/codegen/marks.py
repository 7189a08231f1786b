"""A program -> the same program that says how long each call of a kernel took.

`main` gets one more output, `record`, and after each call of a kernel a call of `minitvm_mark`:

    invoke(minitvm_mark, address(record, 0), 0)         the clock starts
    invoke(minitvm_mark, address(record, 0), 1)         what a mark itself takes
    invoke(conv, ...)
    invoke(minitvm_mark, address(record, 0), 2)         record of 2 += time since the last mark
    invoke(pool, ...)
    invoke(minitvm_mark, address(record, 0), 3)

So the times of all calls add up to the time of the run, by construction. A mark takes some 0.3 us,
which is subtracted. The clock of a run on one thread is the processor time of that thread: on a
machine that others use too, waiting for the processor is no work of a kernel. Several threads have
no such clock: there it is the time that passes. Functions that `main` calls are given the record
too. Calls in loops and branches add up what they take in all, and how often they came.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from minitvm.codegen.machine import emit_object
from minitvm.codegen.program import Kernel, Program
from minitvm.codegen.text import symbol
from minitvm.origin import origin
from minitvm.runtime.tensor_info import TensorInfo
from minitvm.target import Target
from minitvm.tir import ir, walk
from minitvm.tir.text import print_func
from minitvm.tir.walk import walk_statements

MARK = "minitvm_mark"
_FIRST = 2
"""The number of the first call."""
_CLOCK_MONOTONIC, _CLOCK_THREAD_CPUTIME = 1, 3
"""On Linux."""


@dataclass(frozen=True, slots=True)
class MarkedProgram:
    """A program whose last output is the record, and the calls of kernels that it times."""

    program: Program
    calls: tuple[ir.Invoke, ...]

    def new_record(self) -> np.ndarray:
        """A record for one run; each run needs a new one, or one filled with zeros."""
        return np.zeros(_record_size(len(self.calls)), np.int64)

    def read(self, record: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """For each call, the nanoseconds that it took in all, without marks, and how often it
        came."""
        rows = record[1:].reshape(-1, 2)
        counts = rows[_FIRST:, 1].copy()
        return np.maximum(rows[_FIRST:, 0] - rows[1, 0] * counts, 0), counts


def mark_program(program: Program, threads: int = 1) -> MarkedProgram:
    """The program with marks behind the calls of its kernels, to be run on so many threads."""
    kernels = {kernel.name for kernel in program.kernels}
    functions = {function.name for function in program.functions}
    calls = tuple(statement for func in (program.main, *program.functions)
                  for statement in walk_statements(func.body)
                  if isinstance(statement, ir.Invoke) and statement.callee in kernels)
    marking = _Marking(kernels, functions, _record_size(len(calls)))
    main = marking.function(program.main, behind=2, starts=True)
    info = TensorInfo("minitvm_record", (marking.size,), "int64")
    clock = _CLOCK_THREAD_CPUTIME if threads == 1 else _CLOCK_MONOTONIC
    marked = replace(
        program, main=main, functions=tuple(map(marking.function, program.functions)),
        kernels=(*program.kernels, _mark_kernel(program.target, marking.size, clock)),
        outputs=(*program.outputs, info))
    return MarkedProgram(marked, calls)


def _record_size(calls: int) -> int:
    """The time of the last mark; then time and count of each number, those of calls last."""
    return 1 + 2 * (calls + _FIRST)


@dataclass(slots=True)
class _Marking:
    """Marks the calls of `kernels`, in the order of the program, and passes the record to
    `functions`."""

    kernels: set[str]
    functions: set[str]
    size: int
    marked: int = 0

    def function(self, func: ir.PrimFunc, behind: int = 1, starts: bool = False) -> ir.PrimFunc:
        """The function with the record before its last `behind` parameters."""
        record = ir.buffer("minitvm_record", (self.size,), "int64")
        address = ir.Address(record, ir.Const(0))
        numbers: dict[int, int] = {}
        for statement in walk_statements(func.body):
            if isinstance(statement, ir.Invoke) and statement.callee in self.kernels:
                numbers[id(statement)] = _FIRST + self.marked
                self.marked += 1
        body = _rewrite(func.body, numbers, self.functions, address)
        if starts:
            body = ir.seq(_mark(address, 0), _mark(address, 1), body)
        params = (*func.params[:-behind], record, *func.params[-behind:])
        return replace(func, params=params, body=body)


def _rewrite(statement: ir.Stmt, numbers: dict[int, int], functions: set[str],
             address: ir.Address) -> ir.Stmt:
    """The statement with marks; the same Invoke may stand at several places, all one call."""
    match statement:
        case ir.Invoke(callee, arguments) if callee in functions:
            return replace(statement, arguments=(*arguments[:-1], address, arguments[-1]))
        case ir.Invoke() if id(statement) in numbers:
            return ir.seq(statement, _mark(address, numbers[id(statement)]))
    inner = tuple(_rewrite(body, numbers, functions, address) for body in walk.bodies(statement))
    return walk.with_parts(statement, walk.expressions(statement), inner)


def _mark(record: ir.Address, number: int) -> ir.Stmt:
    return ir.Invoke(MARK, (record, ir.Const(number)), origin("mark"))


def _mark_kernel(target: Target, size: int, clock: int) -> Kernel:
    """`minitvm_mark`; written as LLVM IR, since tir knows no clock. Its tir says what it takes."""
    params = (ir.buffer("record", (size,), "int64"), ir.Var("number"))
    func = ir.PrimFunc(MARK, params, ir.Evaluate(ir.Const(0)))
    text = f"""target triple = "{target.triple}"
declare i32 @clock_gettime(i32, ptr)
define void @{symbol(MARK)}(ptr %record, i32 %number) {{
  %time = alloca {{ i64, i64 }}
  %called = call i32 @clock_gettime(i32 {clock}, ptr %time)
  %seconds = load i64, ptr %time
  %rest_place = getelementptr {{ i64, i64 }}, ptr %time, i64 0, i32 1
  %rest = load i64, ptr %rest_place
  %whole = mul i64 %seconds, 1000000000
  %now = add i64 %whole, %rest
  %last = load i64, ptr %record
  %passed = sub i64 %now, %last
  %twice = shl i32 %number, 1
  %index = add i32 %twice, 1
  %place = getelementptr i64, ptr %record, i32 %index
  %before = load i64, ptr %place
  %after = add i64 %before, %passed
  store i64 %after, ptr %place
  %count_place = getelementptr i64, ptr %place, i64 1
  %count = load i64, ptr %count_place
  %counted = add i64 %count, 1
  store i64 %counted, ptr %count_place
  store i64 %now, ptr %record
  ret void
}}
"""
    return Kernel(MARK, func, print_func(func), emit_object(text, target))
