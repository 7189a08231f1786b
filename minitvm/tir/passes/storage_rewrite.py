"""StorageRewrite: scratch buffers that are never alive together share memory.

Buffers are considered where their Allocates stand directly around the same statements. One is alive
from the first of these statements that touches it to the last: what one iteration of a loop leaves
behind isn't read by the next, as the Allocate stands inside or the loop counts as a whole. A buffer
takes the memory of one that is dead, of the same dtype and scope, the one closest in size; the
memory grows to the larger of the two.

Buffers of at most `REGISTER_BYTES` in local scope keep their own: they become registers, which
sharing would only tie together.
"""

from __future__ import annotations

from dataclasses import dataclass

from minitvm import dtypes
from minitvm.origin import NOWHERE, Origin, merge
from minitvm.tir import walk
from minitvm.tir.ir import (
    Address,
    Allocate,
    Buffer,
    Const,
    Expr,
    Load,
    PrimFunc,
    Seq,
    Stmt,
    Store,
)
from minitvm.tir.passes.copying import with_body
from minitvm.tir.walk import walk_statements
from minitvm.transform import make_pass

REGISTER_BYTES = 4096
"""A local buffer up to this size may become registers."""


@make_pass("StorageRewrite", opt_level=1)
def storage_rewrite(func: PrimFunc) -> PrimFunc:
    """Lets scratch buffers of disjoint lifetimes share memory. Flat -> flat, machine -> machine.

    Before:
        def f(A: Buffer((2048,), "float32"), B: Buffer((2048,), "float32")):
            x = allocate((2048,), "float32")
            y = allocate((2048,), "float32")
            z = allocate((1024,), "float32")
            for i in range(2048):
                x[i] = A[i]
            for i_1 in range(2048):
                y[i_1] = x[i_1] + 1.0
            for i_2 in range(1024):
                z[i_2] = y[i_2 * 2]
            for i_3 in range(1024):
                B[i_3] = z[i_3]
    After:
        def f(A: Buffer((2048,), "float32"), B: Buffer((2048,), "float32")):
            x = allocate((2048,), "float32")
            y = allocate((2048,), "float32")
            for i in range(2048):
                x[i] = A[i]
            for i_1 in range(2048):
                y[i_1] = x[i_1] + 1.0
            for i_2 in range(1024):
                x[i_2] = y[i_2 * 2]
            for i_3 in range(1024):
                B[i_3] = x[i_3]
    """
    return with_body(func, _rewrite(func.body))


@dataclass(slots=True)
class _Memory:
    """Shared memory: what it is for, its size in elements, and until when it is taken."""

    first: Buffer
    elements: int
    taken_until: int
    origin: Origin


def _rewrite(statement: Stmt) -> Stmt:
    if not isinstance(statement, Allocate):
        inner = tuple(map(_rewrite, walk.bodies(statement)))
        return walk.with_parts(statement, walk.expressions(statement), inner)
    allocates: list[Allocate] = []
    body: Stmt = statement
    while isinstance(body, Allocate):
        allocates.append(body)
        body = body.body
    body = _rewrite(body)
    buffers = _share(allocates, body)
    if all(new is old for old, new in buffers.items()):
        for allocate in reversed(allocates):
            body = walk.with_parts(allocate, walk.expressions(allocate), (body,))
        return body
    body = _rename(body, buffers)
    for buffer, origin in reversed(_merged(allocates, buffers).items()):
        body = Allocate(buffer, body, origin)
    return body


def _merged(allocates: list[Allocate], buffers: dict[Buffer, Buffer]) -> dict[Buffer, Origin]:
    """What is still allocated, in order, with the origins of all that share it."""
    found: dict[Buffer, Origin] = {}
    for allocate in allocates:
        memory = buffers[allocate.buffer]
        found[memory] = merge(found.get(memory, NOWHERE), allocate.origin)
    return found


def _share(allocates: list[Allocate], body: Stmt) -> dict[Buffer, Buffer]:
    """For each buffer, the one whose memory it takes; itself where it has its own."""
    statements = body.statements if isinstance(body, Seq) else (body,)
    lives = _lifetimes({allocate.buffer for allocate in allocates}, statements)
    memories: list[_Memory] = []
    chosen: dict[Buffer, _Memory] = {}
    for allocate in sorted(allocates, key=lambda item: lives.get(item.buffer, (0, 0))):
        buffer = allocate.buffer
        if not _may_share(buffer):
            continue
        first, last = lives.get(buffer, (0, -1))
        size = buffer.extents()[0]
        free = [memory for memory in memories
                if memory.taken_until < first and memory.first.dtype == buffer.dtype
                and memory.first.scope == buffer.scope]
        if free:
            memory = min(free, key=lambda memory: abs(memory.elements - size))
            memory.elements = max(memory.elements, size)
            memory.taken_until = last
        else:
            memory = _Memory(buffer, size, last, allocate.origin)
            memories.append(memory)
        chosen[buffer] = memory
    made = {id(memory): _grown(memory) for memory in memories}
    return {
        allocate.buffer: made[id(chosen[allocate.buffer])]
        if allocate.buffer in chosen else allocate.buffer
        for allocate in allocates
    }


def _grown(memory: _Memory) -> Buffer:
    buffer = memory.first
    if memory.elements == buffer.extents()[0]:
        return buffer
    extent = Const(memory.elements, buffer.shape[0].dtype)
    return Buffer(buffer.name, (extent,), buffer.dtype, buffer.scope)


def _may_share(buffer: Buffer) -> bool:
    if len(buffer.shape) != 1 or not isinstance(buffer.shape[0], Const):
        return False
    size = buffer.extents()[0] * dtypes.size_bytes(buffer.dtype)
    return buffer.scope != "local" or size > REGISTER_BYTES


def _lifetimes(
    buffers: set[Buffer], statements: tuple[Stmt, ...]
) -> dict[Buffer, tuple[int, int]]:
    """The first and the last of the statements that touch each buffer."""
    lives: dict[Buffer, tuple[int, int]] = {}
    for position, statement in enumerate(statements):
        for buffer in _touched(statement) & buffers:
            first, _ = lives.get(buffer, (position, position))
            lives[buffer] = (first, position)
    return lives


def _touched(statement: Stmt) -> set[Buffer]:
    found: set[Buffer] = set()
    for item in walk_statements(statement):
        if isinstance(item, Store):
            found.add(item.buffer)
        for expr in walk.expressions(item):
            found.update(node.buffer for node in walk.walk(expr)
                         if isinstance(node, Load | Address))
    return found


def _rename(statement: Stmt, buffers: dict[Buffer, Buffer]) -> Stmt:
    def node(expr: Expr) -> Expr:
        match expr:
            case Load(buffer, indices) if buffers.get(buffer, buffer) is not buffer:
                return Load(buffers[buffer], indices)
            case Address(buffer, offset) if buffers.get(buffer, buffer) is not buffer:
                return Address(buffers[buffer], offset)
        return expr

    def store(item: Stmt) -> Stmt:
        if isinstance(item, Store) and item.buffer in buffers:
            return Store(buffers[item.buffer], item.indices, item.value, item.origin)
        return item

    return walk.rewrite_statement(statement, store, lambda expr: walk.rewrite(expr, node))
