"""Machine tir -> the text of an LLVM module, one function in it.

Loops become loops. An `unrolled` one carries metadata that makes LLVM unroll it: the same code as
unrolling before LLVM, in a third of the time; the accumulators that its body indexes are then
promoted from stack memory to registers. A `serial` loop around vector code is left exactly as it
is, since LLVM would unroll it again and spill; a loop of scalar code is LLVM's to vectorize.
A `parallel` loop becomes two functions beside the kernel, for the threads of `thread_pool`.

Parameters are `noalias` unless `attrs["may_alias"]`, and `dereferenceable` where shapes are known.
Allocations live in the entry block; `scratch.lift_scratch` has taken the large ones away: where a
parallel loop has some, each thread gets its copy.
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
from minitvm.codegen.parallel import Captures, captures, runs_parallel
from minitvm.codegen.scratch import (
    STACK_BYTES,
    STACK_BYTES_IN_ALL,
    buffer_bytes,
    thread_copies,
)
from minitvm.codegen.text import FunctionText, ModuleText, llvm_type, memory_type, symbol
from minitvm.codegen.thread_pool import PARALLEL_FOR
from minitvm.errors import CodegenError
from minitvm.runtime.abi import MAXIMUM_THREADS
from minitvm.target import Target
from minitvm.tir import ir, walk

STACK_ALIGNMENT = 64


def function_to_llvm(func: ir.PrimFunc, target: Target, name: str | None = None,
                     debug: bool = True) -> str:
    """The LLVM module of a kernel, or of `main`, whose symbol is `name` or made from its own."""
    module = ModuleText(target)
    writer = _Writer(module, func, DebugInfo(module, func) if debug else None)
    module.functions.extend(writer.write(name or symbol(func.name)))
    return str(module)


def program_to_llvm(main: ir.PrimFunc, functions: Sequence[ir.PrimFunc], target: Target,
                    name: str) -> str:
    """The LLVM module of `main`, whose symbol is `name`, and of the functions that it and they
    call, which nothing outside of the module sees. Kernels are declared."""
    module = ModuleText(target)
    local = frozenset(func.name for func in functions)
    module.functions.extend(_Writer(module, main, None, local).write(name))
    for func in functions:
        module.functions.extend(_Writer(module, func, None, local).write(symbol(func.name),
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
        self.name = ""
        self.outlined: list[str] = []
        self.in_parallel = not runs_parallel(func)
        self.copies = thread_copies(func)

    def write(self, name: str, linkage: str = "") -> list[str]:
        """The function, and before it those that its parallel loops become."""
        self.name = name
        parameters = ", ".join(self.parameter(number, parameter)
                               for number, parameter in enumerate(self.func.params))
        if self.debug is not None:
            self.f.location = self.debug.start
        self.statement(self.func.body)
        self.f.effect("ret void")
        tag = "" if self.debug is None else f" !dbg {self.debug.subprogram}"
        return [*self.outlined,
                self.f.text(f"define {linkage}void @{name}({parameters}) #0{tag}")]

    def parameter(self, number: int, parameter: ir.Buffer | ir.Var) -> str:
        name = f"%p{number}"
        if isinstance(parameter, ir.Var):
            self.scope.values[parameter] = name
            return f"{llvm_type(parameter.dtype)} {name}"
        self.scope.pointers[parameter] = name
        words = ["ptr"] if self.func.attrs.get("may_alias") else ["ptr", "noalias"]
        words.append(f"nonnull align {alignment(parameter.dtype)}")
        if all(isinstance(extent, ir.Const) for extent in parameter.shape):
            size = buffer_bytes(parameter) // self.copies.get(parameter, 1)
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
        if loop.kind == "vectorized":
            raise CodegenError(f"the loop over {loop.var.name!r} in {self.func.name} is still "
                               "vectorized; run the pass VectorizeLoop before code generation")
        start, extent = (index_value(self.scope, e) for e in (loop.start, loop.extent))
        if is_literal(extent) and int(extent) <= 1:
            if int(extent) == 1:
                self.scope.wide[loop.var] = start
                self.statement(loop.body)
        elif loop.kind == "parallel" and not self.in_parallel:
            self.parallel_loop(loop, start, extent)
        else:
            self.counted_loop(loop, start, extent, self.loop_end(start, extent))

    def parallel_loop(self, loop: ir.For, start: str, extent: str) -> None:
        """Puts what the loop uses into a context, and has the threads run the region on it."""
        f, taken = self.f, captures(loop)
        given = [("ptr", self.scope.pointers[buffer]) for buffer in taken.buffers]
        given += [(llvm_type(var.dtype), value(self.scope, var)) for var in taken.variables]
        given.append(("i64", start))
        layout = f"{{ {', '.join(kind for kind, _ in given)} }}"
        limit = min((self.copies[buffer] for buffer in taken.buffers if buffer in self.copies),
                    default=MAXIMUM_THREADS)
        context = "%" + f.name("context")
        f.entry.append(f"  {context} = alloca {layout}, align 8")
        for number, (kind, passed) in enumerate(given):
            place = f.pure(f"getelementptr {layout}, ptr {context}, i64 0, i32 {number}")
            f.effect(f"store {kind} {passed}, ptr {place}, align 8")
        name = f"{self.name}.{len(self.outlined) // 2}"
        self.outlined += [self.outlined_body(loop, taken, f"{name}.body"),
                          self.region(name, layout, [kind for kind, _ in given], taken)]
        self.module.declare(PARALLEL_FOR, "void", ("ptr", "ptr", "i64", "i64"))
        f.effect(f"call void @{PARALLEL_FOR}(ptr @{name}, ptr {context}, i64 {extent}, "
                 f"i64 {limit})")

    def region(self, name: str, layout: str, kinds: list[str], taken: Captures) -> str:
        """The function that a thread calls for a part of the iterations of a parallel loop. It
        gives each thread its copy of the memory that there are several of."""
        f = FunctionText(self.module)
        loaded = []
        for number, kind in enumerate(kinds):
            place = f.pure(f"getelementptr {layout}, ptr %context, i64 0, i32 {number}")
            passed = f.emit(f"load {kind}, ptr {place}, align 8")
            buffer = taken.buffers[number] if number < len(taken.buffers) else None
            if buffer is not None and buffer in self.copies:
                step = f.pure(f"mul i64 %thread, {buffer_bytes(buffer) // self.copies[buffer]}")
                passed = f.pure(f"getelementptr i8, ptr {passed}, i64 {step}")
            loaded.append(f"{kind} {passed}")
        f.effect(f"call void @{name}.body({', '.join([*loaded, 'i64 %begin', 'i64 %end'])})")
        f.effect("ret void")
        return f.text(f"define internal void @{name}(ptr %context, i64 %begin, i64 %end, "
                      "i64 %thread) #0")

    def outlined_body(self, loop: ir.For, taken: Captures, name: str) -> str:
        """The function that runs the iterations [begin, end) of a parallel loop."""
        debug = None if self.debug is None else self.debug.outlined(loop, len(self.outlined) // 2)
        inner = _Writer(self.module, self.func, debug, self.local)
        inner.in_parallel = True
        passed: list[ir.Buffer | ir.Var] = [*taken.buffers, *taken.variables]
        parameters = [inner.parameter(*numbered) for numbered in enumerate(passed)]
        parameters += ["i64 %start", "i64 %begin", "i64 %end"]
        if debug is not None:
            inner.f.location = debug.start
        first = inner.f.pure("add nsw i64 %start, %begin")
        last = inner.f.pure("add nsw i64 %start, %end")
        count = inner.f.pure("sub nsw i64 %end, %begin")
        inner.counted_loop(loop, first, count, last)
        inner.f.effect("ret void")
        tag = "" if debug is None else f" !dbg {debug.subprogram}"
        return inner.f.text(f"define internal void @{name}({', '.join(parameters)}) noinline "
                            f"#0{tag}")

    def counted_loop(self, loop: ir.For, start: str, extent: str, end: str) -> None:
        """A loop that tests at its end; one that may run zero times is guarded."""
        f = self.f
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
