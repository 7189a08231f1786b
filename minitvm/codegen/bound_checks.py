"""Kernels with bound checks -> calls that pass them memory for their report.

A kernel that `InjectBoundChecks` gave tests to takes `report` and `call` behind its inputs and
outputs. The report lies at the end of the workspace of `main`, which clears it first, and is passed
on to functions, before their workspace. Each call has a number, by which `Report.metadata` names
kernel and origin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from minitvm.codegen.scratch import ALIGNMENT, buffer_bytes, with_buffer, workspace_of
from minitvm.runtime.bound_report import REPORT_BYTES
from minitvm.tir import ir, walk
from minitvm.tir.passes.inject_bound_checks import CHECKS
from minitvm.tir.walk import walk_statements

PARAMS = 2
"""How many parameters a kernel takes for its checks."""


@dataclass(frozen=True, slots=True)
class Report:
    """Where in the workspace of `main` the report is, and what its numbers mean."""

    offset: int
    metadata: Mapping[str, Any]


def add_report(
    main: ir.PrimFunc, functions: Sequence[ir.PrimFunc], kernels: Mapping[str, ir.PrimFunc]
) -> tuple[ir.PrimFunc, tuple[ir.PrimFunc, ...], Report | None]:
    """`main` and functions that pass a report to the kernels that check; None if none does."""
    checks = {name: [list(row) for row in kernel.attrs[CHECKS]]
              for name, kernel in kernels.items() if CHECKS in kernel.attrs}
    if not checks:
        return main, tuple(functions), None
    old = workspace_of(main)
    offset = -(-buffer_bytes(old) // ALIGNMENT) * ALIGNMENT
    passing = _Passing(set(checks), {function.name for function in functions}, [])
    workspace = ir.buffer(old.name, (offset + ALIGNMENT,), "uint8")
    main = with_buffer(main, old, workspace)
    clear = ir.Var("byte")
    cleared = ir.For(clear, ir.Const(0), ir.Const(REPORT_BYTES), "serial",
                     ir.Store(workspace, (clear + offset,), ir.Const(0, "uint8")))
    main = replace(main, body=ir.seq(cleared, passing.body(main, workspace, offset)))
    made = tuple(map(passing.function, functions))
    used = {call["kernel"] for call in passing.calls}
    rows = {name: row for name, row in checks.items() if name in used}
    return main, made, Report(offset, {"offset": offset, "calls": passing.calls, "checks": rows})


@dataclass(slots=True)
class _Passing:
    """Extends calls of `kernels`, which it numbers, and of `functions`."""

    kernels: set[str]
    functions: set[str]
    calls: list[dict[str, str]]

    def function(self, function: ir.PrimFunc) -> ir.PrimFunc:
        report = ir.buffer("report", (REPORT_BYTES // 8,), "int64")
        params = (*function.params[:-1], report, function.params[-1])
        return replace(function, params=params, body=self.body(function, report, 0))

    def body(self, function: ir.PrimFunc, report: ir.Buffer, offset: int) -> ir.Stmt:
        dtype = next((node.offset.dtype for statement in walk_statements(function.body)
                      for expr in walk.expressions(statement) for node in walk.walk(expr)
                      if isinstance(node, ir.Address)), ir.INDEX)
        address = ir.Address(report, ir.Const(offset, dtype))

        def extend(statement: ir.Stmt) -> ir.Stmt:
            if not isinstance(statement, ir.Invoke):
                return statement
            given = statement.arguments
            if statement.callee in self.functions:
                return replace(statement, arguments=(*given[:-1], address, given[-1]))
            if statement.callee not in self.kernels:
                return statement
            number = ir.Const(len(self.calls), "int64")
            self.calls.append({"kernel": statement.callee, "origin": str(statement.origin)})
            return replace(statement, arguments=(*given, address, number))

        return walk.rewrite_statement(function.body, extend)
