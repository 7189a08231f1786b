"""LLVM IR -> machine code: an object file, or assembly to read.

The text is parsed and verified, optimised with the target's own pipeline, and emitted as
position-independent code in the small code model: one object serves a shared library and the
loader of this process alike. Nothing depends on the time, the machine or the order of calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from minitvm.errors import CodegenError
from minitvm.target import Target, target_machine

OPTIMIZATION_LEVEL = 3


@lru_cache(maxsize=16)
def machine_for(target: Target) -> Any:
    """LLVM's target machine."""
    return target_machine(target.triple, target.cpu, target.features, OPTIMIZATION_LEVEL)


@contextmanager
def _optimized(text: str, target: Target, optimize: bool) -> Iterator[Any]:
    import llvmlite.binding as llvm

    machine = machine_for(target)
    try:
        module = llvm.parse_assembly(text, llvm.create_context())
        module.verify()
    except RuntimeError as error:
        raise CodegenError(
            f"LLVM refuses the code made for {target}, which is an error in minitvm: {error}"
        ) from error
    with module:
        if optimize:
            options = llvm.create_pipeline_tuning_options(OPTIMIZATION_LEVEL)
            options.slp_vectorization = False
            builder = llvm.create_pass_builder(machine, options)
            manager = builder.getModulePassManager()
            manager.run(module, builder)
        yield module


def emit_object(text: str, target: Target, optimize: bool = True) -> bytes:
    """The ELF object file of an LLVM module."""
    with _optimized(text, target, optimize) as module:
        return bytes(machine_for(target).emit_object(module))


def emit_assembly(text: str, target: Target) -> str:
    """The assembly of an LLVM module, as `emit_object` encodes it."""
    with _optimized(text, target, True) as module:
        return str(machine_for(target).emit_assembly(module))


def optimized_text(text: str, target: Target) -> str:
    """The LLVM module after optimisation."""
    with _optimized(text, target, True) as module:
        return str(module)
