"""Runs tir on numpy arrays: the meaning of the IR, checked as it goes.

`run(func, arrays)` computes in place. Any spec runs: nested, flat and machine; vectors are numpy
arrays of lanes. Integers wrap, floats round to their dtype at each operation, and min and max
propagate NaN. Refused with `InterpreterError`, naming the buffer, the index and the origin:
an access out of bounds, a read of scratch memory not yet written, a division of integers by zero,
a shift by more than the width.

A function is first compiled to Python closures: each expression becomes `value(frame)`, each
statement `execute(frame)`, where a frame is a list with a slot for each variable and buffer. A
scalar integer is a Python int, a scalar float a numpy scalar of its dtype.

What an Invoke is given of scratch memory counts as written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minitvm import dtypes
from minitvm.errors import InterpreterError
from minitvm.origin import NOWHERE, Origin
from minitvm.tir.evaluate import Frame, Value, check_lanes, expression_rules
from minitvm.tir.ir import (
    Address,
    Allocate,
    Buffer,
    Call,
    Evaluate,
    Expr,
    For,
    If,
    Invoke,
    Let,
    Load,
    PrimFunc,
    Seq,
    Stmt,
    Store,
    Var,
    While,
    is_masked_load,
)

Execute = Callable[[Frame], None]


@dataclass(slots=True)
class Memory:
    """The elements of a buffer, flat; `written` says which are set (None: all of them)."""

    data: np.ndarray
    extents: tuple[int, ...]
    written: np.ndarray | None = None


def run(
    func: PrimFunc, arrays: Sequence[Any], functions: Mapping[str, PrimFunc] | None = None
) -> None:
    """Runs `func` in place on one array (or number, for a scalar) for each parameter.

    `functions`: what Invoke may call, by name.
    """
    program = _Program(functions or {})
    with np.errstate(all="ignore"):
        program.call(func, arrays)


class _Program:
    """The functions compiled so far."""

    def __init__(self, functions: Mapping[str, PrimFunc]) -> None:
        self.functions = functions
        self.compiled: dict[int, _Compiler] = {}

    def call(self, func: PrimFunc, arrays: Sequence[Any]) -> None:
        self.code(func).call(arrays)

    def code(self, func: PrimFunc) -> _Compiler:
        """A function as closures, made when it is first called."""
        code = self.compiled.get(id(func))
        if code is None:
            code = self.compiled[id(func)] = _Compiler(func, self)
        return code

    def invoke(self, callee: str, arguments: Sequence[Any]) -> None:
        """Calls a kernel on scalars and on (memory, offset) pairs."""
        func = self.functions.get(callee)
        if func is None:
            known = ", ".join(self.functions) or "none"
            raise InterpreterError(f"invoke names {callee}, which was not given; given: {known}")
        if len(arguments) != len(func.params):
            raise InterpreterError(
                f"{callee} takes {len(func.params)} arguments; invoke gives {len(arguments)}"
            )
        code = self.code(func)
        frame = code.scalars(arguments)
        code.call([
            argument if isinstance(param, Var)
            else _argument(callee, param, code.extents(param, frame), argument)
            for param, argument in zip(func.params, arguments, strict=True)
        ])


def _argument(callee: str, param: Buffer, extents: tuple[int, ...], argument: Any) -> Any:
    memory, offset = argument
    count = int(np.prod(extents, dtype=np.int64))
    itemsize = dtypes.to_numpy(param.dtype).itemsize
    begin = offset * memory.data.itemsize
    data = memory.data.view(np.uint8)
    if begin < 0 or begin + count * itemsize > data.size:
        raise InterpreterError(
            f"the argument {param.name} of {callee} takes {count * itemsize} bytes from byte "
            f"{begin} of a buffer of {data.size} bytes"
        )
    if memory.written is not None:
        last = -(-(begin + count * itemsize) // memory.data.itemsize)
        memory.written[offset:last] = True
    return data[begin : begin + count * itemsize].view(param.dtype).reshape(extents)


class _Compiler:
    """One function as closures."""

    def __init__(self, func: PrimFunc, program: _Program) -> None:
        self.func = func
        self.program = program
        self.slots: dict[Var | Buffer, int] = {}
        self.origin: Origin = NOWHERE
        for param in func.params:
            self.slots[param] = len(self.slots)
        shapes = [(param, tuple(map(self.value, param.shape)))
                  for param in func.params if isinstance(param, Buffer)]
        self.shapes: dict[Buffer, tuple[Value, ...]] = dict(shapes)
        self.body = self.statement(func.body)

    # --- calling --------------------------------------------------------------------------------

    def call(self, arrays: Sequence[Any]) -> None:
        func = self.func
        if len(arrays) != len(func.params):
            raise InterpreterError(
                f"{func.name} takes {len(func.params)} arrays; {len(arrays)} were given"
            )
        frame = self.scalars(arrays)
        copies: list[tuple[np.ndarray, Memory]] = []
        for slot, (param, array) in enumerate(zip(func.params, arrays, strict=True)):
            if isinstance(param, Buffer):
                memory = frame[slot] = self.parameter(param, array, frame)
                if not np.shares_memory(memory.data, array):
                    copies.append((array, memory))
        self.body(frame)
        for array, memory in copies:
            array[...] = memory.data.reshape(array.shape)

    def scalars(self, arguments: Sequence[Any]) -> Frame:
        """A frame with the parameters that are scalars, on which shapes may depend."""
        frame: Frame = [None] * len(self.slots)
        for slot, (param, argument) in enumerate(zip(self.func.params, arguments, strict=True)):
            if isinstance(param, Var):
                frame[slot] = _scalar(argument, param.dtype)
        return frame

    def extents(self, param: Buffer, frame: Frame) -> tuple[int, ...]:
        """The shape of a parameter."""
        return tuple(int(extent(frame)) for extent in self.shapes[param])

    def parameter(self, param: Buffer, array: Any, frame: Frame) -> Memory:
        extents = self.extents(param, frame)
        if not isinstance(array, np.ndarray):
            raise InterpreterError(f"the parameter {param.name} takes a numpy array")
        if array.shape != extents or array.dtype != dtypes.to_numpy(param.dtype):
            raise InterpreterError(
                f"the parameter {param.name} of {self.func.name} is {param.dtype}{list(extents)}; "
                f"an array of {array.dtype}{list(array.shape)} was given"
            )
        return Memory(np.ascontiguousarray(array).reshape(-1), extents)

    # --- statements -----------------------------------------------------------------------------

    def statement(self, statement: Stmt) -> Execute:
        if statement.origin:
            self.origin = statement.origin
        match statement:
            case Store(buffer, indices, value):
                return self.store(buffer, indices, value)
            case Seq(statements):
                return _run_all([self.statement(item) for item in statements])
            case For():
                return self.loop(statement)
            case Let(var, value, body):
                computed = self.value(value)
                return _let(self.declare(var), computed, self.statement(body))
            case If(condition, then_body, else_body):
                test = self.value(condition)
                otherwise = None if else_body is None else self.statement(else_body)
                return _branch(test, self.statement(then_body), otherwise)
            case While(condition, body):
                return _while(self.value(condition), self.statement(body))
            case Allocate(buffer, body):
                return self.allocate(buffer, body)
            case Invoke(callee, arguments):
                values = [self.value(argument) for argument in arguments]
                invoke = self.program.invoke
                return lambda frame: invoke(callee, [value(frame) for value in values])
            case Evaluate(value):
                return self.value(value)
        raise InterpreterError(f"{type(statement).__name__} is not a statement of tir")

    def declare(self, item: Var | Buffer) -> int:
        slot = self.slots[item] = len(self.slots)
        return slot

    def loop(self, loop: For) -> Execute:
        start, extent = self.value(loop.start), self.value(loop.extent)
        slot = self.declare(loop.var)
        body = self.statement(loop.body)

        def execute(frame: Frame) -> None:
            first = start(frame)
            for index in range(first, first + extent(frame)):
                frame[slot] = index
                body(frame)

        return execute

    def allocate(self, buffer: Buffer, body: Stmt) -> Execute:
        extents = [self.value(extent) for extent in buffer.shape]
        slot = self.declare(buffer)
        inner = self.statement(body)
        dtype = dtypes.to_numpy(buffer.dtype)

        def execute(frame: Frame) -> None:
            shape = tuple(int(extent(frame)) for extent in extents)
            count = int(np.prod(shape, dtype=np.int64))
            frame[slot] = Memory(np.zeros(count, dtype), shape, np.zeros(count, bool))
            inner(frame)

        return execute

    def store(self, buffer: Buffer, indices: Sequence[Expr], value: Expr) -> Execute:
        slot = self.slot(buffer)
        place = self.offset(buffer, indices)
        computed = self.value(value)

        def execute(frame: Frame) -> None:
            result = computed(frame)
            memory: Memory = frame[slot]
            offset = place(frame, memory)
            memory.data[offset] = result
            if memory.written is not None:
                memory.written[offset] = True

        return execute

    # --- expressions ----------------------------------------------------------------------------

    def value(self, expr: Expr) -> Value:
        """The closure that computes an expression."""
        match expr:
            case Var():
                slot = self.slot(expr)
                return lambda frame: frame[slot]
            case Load(buffer, indices):
                return self.load(buffer, indices)
            case Address(buffer, offset):
                return self.address(buffer, offset)
            case Call("if_then_else", (condition, Load() as load, other)) if is_masked_load(expr):
                return self.masked_load(condition, load, other)
        return expression_rules(expr, self.value)

    def slot(self, item: Var | Buffer) -> int:
        found = self.slots.get(item)
        if found is None:
            raise InterpreterError(
                f"{item.name} is used in {self.func.name} outside of where it is defined"
                + _at(self.origin)
            )
        return found

    def load(self, buffer: Buffer, indices: Sequence[Expr]) -> Value:
        slot = self.slot(buffer)
        place = self.offset(buffer, indices)
        origin = self.origin
        vector = bool(indices) and dtypes.lanes(indices[-1].dtype) > 1
        plain = not vector and not dtypes.is_float(buffer.dtype)

        def execute(frame: Frame) -> Any:
            memory: Memory = frame[slot]
            offset = place(frame, memory)
            written = memory.written
            if written is not None and not (written[offset].all() if vector else written[offset]):
                raise InterpreterError(
                    f"{buffer.name}[{_unflatten(offset, memory)}] is read before it is written"
                    + _at(origin)
                )
            return memory.data.item(offset) if plain else memory.data[offset]

        return execute

    def masked_load(self, condition: Expr, load: Load, other: Expr) -> Value:
        slot, test, rest = self.slot(load.buffer), self.value(condition), self.value(other)
        indices = [self.value(index) for index in load.indices]
        origin = self.origin

        def execute(frame: Frame) -> Any:
            memory: Memory = frame[slot]
            mask, result = test(frame), np.array(rest(frame))
            *outer, lanes = [index(frame) for index in indices]
            found = [*outer, lanes[mask]]
            if not all(map(check_lanes, found, memory.extents)):
                raise _out_of_bounds(load.buffer, found, memory.extents, origin)
            offset = np.ravel_multi_index(np.broadcast_arrays(*found), memory.extents)
            if memory.written is not None and not memory.written[offset].all():
                raise InterpreterError(
                    f"{load.buffer.name}[{_unflatten(offset, memory)}] is read before it is "
                    "written" + _at(origin))
            result[mask] = memory.data[offset]
            return result

        return execute

    def address(self, buffer: Buffer, offset: Expr) -> Value:
        slot, computed = self.slot(buffer), self.value(offset)
        return lambda frame: (frame[slot], computed(frame))

    def offset(
        self, buffer: Buffer, indices: Sequence[Expr]
    ) -> Callable[[Frame, Memory], Any]:
        """The closure that computes the checked row-major offset of an element, or of lanes."""
        values = [self.value(index) for index in indices]
        origin = self.origin
        if len(values) == 1 and dtypes.lanes(indices[0].dtype) == 1:
            only = values[0]

            def flat(frame: Frame, memory: Memory) -> Any:
                index = only(frame)
                if 0 <= index < memory.data.size:
                    return index
                raise _out_of_bounds(buffer, (index,), memory.extents, origin)

            return flat
        if all(dtypes.lanes(index.dtype) == 1 for index in indices):
            return _scalar_offset(buffer, values, origin)

        def general(frame: Frame, memory: Memory) -> Any:
            offset: Any = 0
            found = [value(frame) for value in values]
            for index, extent in zip(found, memory.extents, strict=True):
                if not check_lanes(index, extent):
                    raise _out_of_bounds(buffer, found, memory.extents, origin)
                offset = offset * extent + index
            return offset

        return general


def _scalar_offset(
    buffer: Buffer, values: list[Value], origin: Origin
) -> Callable[[Frame, Memory], int]:
    def execute(frame: Frame, memory: Memory) -> int:
        offset = 0
        for value, extent in zip(values, memory.extents, strict=True):
            index = value(frame)
            if not 0 <= index < extent:
                found = [value(frame) for value in values]
                raise _out_of_bounds(buffer, found, memory.extents, origin)
            offset = offset * extent + index
        return offset

    return execute


def _scalar(value: Any, dtype: str) -> Any:
    number = np.asarray(value).astype(dtypes.to_numpy(dtype))[()]
    return number if dtypes.is_float(dtype) else number.item()


def _run_all(parts: list[Execute]) -> Execute:
    def execute(frame: Frame) -> None:
        for part in parts:
            part(frame)

    return execute


def _let(slot: int, value: Value, body: Execute) -> Execute:
    def execute(frame: Frame) -> None:
        frame[slot] = value(frame)
        body(frame)

    return execute


def _while(test: Value, body: Execute) -> Execute:
    def execute(frame: Frame) -> None:
        while test(frame):
            body(frame)

    return execute


def _branch(test: Value, then_body: Execute, else_body: Execute | None) -> Execute:
    def execute(frame: Frame) -> None:
        if test(frame):
            then_body(frame)
        elif else_body is not None:
            else_body(frame)

    return execute


def _at(origin: Origin) -> str:
    return f" (from {origin})" if origin else ""


def _unflatten(offset: Any, memory: Memory) -> str:
    if np.ndim(offset):
        offset = offset[~memory.written[offset]][0] if memory.written is not None else offset[0]
    return ", ".join(str(int(index)) for index in np.unravel_index(offset, memory.extents))


def _out_of_bounds(
    buffer: Buffer, indices: Sequence[Any], extents: tuple[int, ...], origin: Origin
) -> InterpreterError:
    place = ", ".join(str(index) for index in indices)
    return InterpreterError(
        f"{buffer.name}[{place}] is outside of its extents {list(extents)}" + _at(origin)
    )
