"""TIR, the loop nests: print, read, verify, run and lower them.

    func = tir.parse_func(text)
    tir.verify(func)
    lowered = tir.lower(func)
    tir.run(lowered, [a, b, out])
    print(tir.print_func(lowered))

The nodes are in `tir.ir`, the passes in `tir.passes`.
"""

from __future__ import annotations

from minitvm.tir import passes
from minitvm.tir.interpret import run
from minitvm.tir.ir import (
    Buffer,
    Const,
    Expr,
    PrimFunc,
    Stmt,
    Var,
    buffer,
    cast,
    equal,
    if_then_else,
    maximum,
    minimum,
    not_equal,
    select,
    seq,
)
from minitvm.tir.ir import conjunction as all
from minitvm.tir.ir import disjunction as any
from minitvm.tir.names import Select, const, floordiv, floormod, indexdiv, indexmod
from minitvm.tir.passes import lower
from minitvm.tir.simplify import Analyzer
from minitvm.tir.text import (
    parse_func,
    parse_functions,
    print_expr,
    print_func,
    print_func_with_lines,
    print_module,
    print_stmt,
)
from minitvm.tir.verify import check_origins_kept, verify

__all__ = [
    "Analyzer", "Buffer", "Const", "Expr", "PrimFunc", "Select", "Stmt", "Var", "all", "any",
    "buffer", "cast", "check_origins_kept", "const", "equal", "floordiv", "floormod",
    "if_then_else", "indexdiv", "indexmod", "lower", "maximum", "minimum", "not_equal",
    "parse_func", "parse_functions", "passes", "print_expr", "print_func",
    "print_func_with_lines", "print_module", "print_stmt", "run", "select", "seq", "verify",
]  # fmt: skip
