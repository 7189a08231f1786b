"""Machine tir -> the text of an LLVM module, one function in it.

Loops become loops. An `unrolled` one carries metadata that makes LLVM unroll it: the same code as
unrolling before LLVM, in a third of the time; the accumulators that its body indexes are then
promoted from stack memory to registers. A `serial` loop around vector code is left exactly as it
is, since LLVM would unroll it again and spill; a loop of scalar code is LLVM's to vectorize.
`parallel` loops run as serial ones.

Parameters are `noalias` unless `attrs["may_alias"]`, and `dereferenceable` where shapes are known.
Allocations live in the entry block; `scratch.lift_scratch` has taken the large ones away.
"""

from __future__ import annotations

from collections.abc import Sequence

from minitvm import dtypes
from minitvm.codegen.arithmetic import is_literal
from minitvm.codegen.debug_info import DebugInfo
from minitvm.codegen.expressions import (
    Scope,
    alignment,
    element_address,
    index_value,
    is_index,
    store,
    value,
)
from minitvm.codegen.scratch import STACK_BYTES, STACK_BYTES_IN_ALL, buffer_bytes
from minitvm.codegen.text import FunctionText, ModuleText, llvm_type, memory_type, symbol
from minitvm.errors import CodegenError
from minitvm.target import Target
from minitvm.tir import ir, walk

STACK_ALIGNMENT = 64


def function_to_llvm(func: ir.PrimFunc, target: Target, name: str | None = None,
                     debug: bool = True) -> str:
    """The LLVM module of a kernel, or of `main`, whose symbol is `name` or made from its own."""
    module = ModuleText(target)
    writer = _Writer(module, func, DebugInfo(module, func) if debug else None)
    module.functions.append(writer.write(name or symbol(func.name)))
    return str(module)


def program_to_llvm(main: ir.PrimFunc, functions: Sequence[ir.PrimFunc], target: Target,
                    name: str) -> str:
    """The LLVM module of `main`, whose symbol is `name`, and of the functions that it and they
    call, which nothing outside of the module sees. Kernels are declared."""
    module = ModuleText(target)
    local = frozenset(func.name for func in functions)
    module.functions.append(_Writer(module, main, None, local).write(name))
    for func in functions:
        module.functions.append(_Writer(module, func, None, local).write(symbol(func.name),
                                                                         "internal "))
    return str(module)


class _Writer:
    """Writes the statements of one function."""

    def __init__(self, module: ModuleText, func: ir.PrimFunc, debug: DebugInfo | None,
                 local: frozenset[str] = frozenset()) -> None:
        """`local` are the functions that the module itself defines."""
        self.local = local
        self.module = module
        self.func = func
        self.debug = debug
        self.f = FunctionText(module)
        self.scope = Scope(self.f)
        self.stack_bytes = 0
        self.vector_loops = _loops_with_vectors(func.body)

    def write(self, name: str, linkage: str = "") -> str:
        parameters = ", ".join(self.parameter(number, parameter)
                               for number, parameter in enumerate(self.func.params))
        if self.debug is not None:
            self.f.location = self.debug.start
        self.statement(self.func.body)
        self.f.effect("ret void")
        tag = "" if self.debug is None else f" !dbg {self.debug.subprogram}"
        return self.f.text(f"define {linkage}void @{name}({parameters}) #0{tag}")

    def parameter(self, number: int, parameter: ir.Buffer | ir.Var) -> str:
        name = f"%p{number}"
        if isinstance(parameter, ir.Var):
            self.scope.values[parameter] = name
            return f"{llvm_type(parameter.dtype)} {name}"
        self.scope.pointers[parameter] = name
        words = ["ptr"] if self.func.attrs.get("may_alias") else ["ptr", "noalias"]
        words.append(f"nonnull align {alignment(parameter.dtype)}")
        if all(isinstance(extent, ir.Const) for extent in parameter.shape):
            size = buffer_bytes(parameter)
            if size:
                words.append(f"dereferenceable({size})")
        return " ".join([*words, name])

    def statement(self, statement: ir.Stmt) -> None:
        if isinstance(statement, ir.Seq):
            for inner in statement.statements:
                self.statement(inner)
            return
        if self.debug is not None:
            self.f.location = self.debug.location(statement)
        match statement:
            case ir.Store(buffer, (index,), stored):
                store(self.scope, buffer, index, stored)
            case ir.For():
                self.loop(statement)
            case ir.Let(var, bound, body):
                self.bind(var, bound)
                self.statement(body)
            case ir.If(condition, then_body, else_body):
                self.branch(condition, then_body, else_body)
            case ir.While(condition, body):
                self.repeat(condition, body)
            case ir.Allocate(buffer, body):
                self.allocate(buffer)
                self.statement(body)
            case ir.Invoke(callee, arguments):
                self.invoke(callee, arguments)
            case ir.Evaluate(evaluated):
                value(self.scope, evaluated)
            case _:
                raise CodegenError(
                    f"the statement {type(statement).__name__} in {self.func.name} is not in the "
                    "machine form of tir; run tir.passes.LOWERING before code generation"
                )

    def bind(self, var: ir.Var, bound: ir.Expr) -> None:
        """A variable may be bound at several places: only its last meaning counts."""
        if is_index(bound):
            self.scope.wide[var] = index_value(self.scope, bound)
            self.scope.values.pop(var, None)
        else:
            self.scope.values[var] = value(self.scope, bound)
            self.scope.wide.pop(var, None)

    def branch(self, condition: ir.Expr, then_body: ir.Stmt, else_body: ir.Stmt | None) -> None:
        f = self.f
        flag = value(self.scope, condition)
        then, other, end = f.name("then"), f.name("else"), f.name("end")
        f.effect(f"br i1 {flag}, label %{then}, label %{other if else_body else end}")
        f.start(then)
        self.statement(then_body)
        f.branch(end)
        if else_body is not None:
            f.start(other)
            self.statement(else_body)
            f.branch(end)
        f.start(end)

    def repeat(self, condition: ir.Expr, body: ir.Stmt) -> None:
        f = self.f
        test, again, end = f.name("while"), f.name("turn"), f.name("end")
        f.branch(test)
        f.start(test)
        flag = value(self.scope, condition)
        f.effect(f"br i1 {flag}, label %{again}, label %{end}")
        f.start(again)
        self.statement(body)
        f.branch(test)
        f.start(end)

    def allocate(self, buffer: ir.Buffer) -> None:
        size = buffer_bytes(buffer)
        self.stack_bytes += size
        if size > STACK_BYTES or self.stack_bytes > STACK_BYTES_IN_ALL:
            raise CodegenError(f"the buffer {buffer.name!r} of {size} bytes in {self.func.name} is "
                               "too large for the stack; run scratch.lift_scratch first")
        count = size // dtypes.size_bytes(buffer.dtype)
        self.scope.pointers[buffer] = self.f.allocate(memory_type(buffer.dtype), max(count, 1),
                                                      STACK_ALIGNMENT)

    def invoke(self, callee: str, arguments: tuple[ir.Expr, ...]) -> None:
        kinds = tuple(llvm_type(argument.dtype) for argument in arguments)
        function = f"@{symbol(callee)}"
        if callee not in self.local:
            self.module.declare(symbol(callee), "void", kinds)
        given = []
        for kind, argument in zip(kinds, arguments):
            if isinstance(argument, ir.Address):
                offset = index_value(self.scope, argument.offset)
                given.append(f"ptr {element_address(self.scope, argument.buffer, offset)}")
            else:
                given.append(f"{kind} {value(self.scope, argument)}")
        self.f.effect(f"call void {function}({', '.join(given)})")

    def loop(self, loop: ir.For) -> None:
        """A loop that tests at its end; one that may run zero times is guarded."""
        if loop.kind == "vectorized":
            raise CodegenError(f"the loop over {loop.var.name!r} in {self.func.name} is still "
                               "vectorized; run the pass VectorizeLoop before code generation")
        f = self.f
        start, extent = (index_value(self.scope, e) for e in (loop.start, loop.extent))
        if is_literal(extent) and int(extent) <= 1:
            if int(extent) == 1:
                self.scope.wide[loop.var] = start
                self.statement(loop.body)
            return
        end = self.loop_end(start, extent)
        body, exit_label = f.name("loop"), f.name("done")
        counter = "%" + f.name("i")
        if is_literal(extent):
            f.branch(body)
        else:
            runs = f.pure(f"icmp sgt i64 {extent}, 0")
            f.effect(f"br i1 {runs}, label %{body}, label %{exit_label}")
        before = f.block
        f.start(body)
        phi = len(f.lines)
        f.effect("")
        self.scope.wide[loop.var] = counter
        location = f.location
        self.statement(loop.body)
        f.location = location
        after = f.emit(f"add nsw i64 {counter}, 1")
        f.lines[phi] = (f"  {counter} = phi i64 [ {start}, %{before} ], [ {after}, %{f.block} ]"
                        f"{location}")
        again = f.emit(f"icmp slt i64 {after}, {end}")
        f.effect(f"br i1 {again}, label %{body}, label %{exit_label}, "
                 f"!llvm.loop {self.loop_metadata(loop)}")
        f.start(exit_label)

    def loop_end(self, start: str, extent: str) -> str:
        if is_literal(start) and is_literal(extent):
            return str(int(start) + int(extent))
        return extent if start == "0" else self.f.pure(f"add nsw i64 {start}, {extent}")

    def loop_metadata(self, loop: ir.For) -> str:
        hints = []
        if loop.kind == "unrolled":
            hints.append("llvm.loop.unroll.full")
        elif id(loop) in self.vector_loops:
            hints.append("llvm.loop.unroll.disable")
            hints.append("llvm.loop.vectorize.enable")
        nodes = [self.module.node(f'!{{!"{hint}", i1 false}}' if hint.endswith("enable")
                                  else f'!{{!"{hint}"}}') for hint in hints]
        nodes.insert(0, self.module.node('!{!"llvm.loop.mustprogress"}'))
        return self.module.append("distinct !{{self}, " + ", ".join(nodes) + "}")


def _loops_with_vectors(body: ir.Stmt) -> frozenset[int]:
    """The loops (by `id`) with vector code in them."""
    found: set[int] = set()

    def visit(statement: ir.Stmt) -> bool:
        inside = [visit(inner) for inner in walk.bodies(statement)]
        vector = any(inside) or any(
            dtypes.lanes(node.dtype) > 1
            for expr in walk.expressions(statement) for node in walk.walk(expr))
        if vector and isinstance(statement, ir.For):
            found.add(id(statement))
        return vector

    visit(body)
    return frozenset(found)
