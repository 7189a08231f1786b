"""LLVM IR -> machine code: an object file, or assembly to read.

The text is parsed and verified, optimised with the target's own pipeline, and emitted as
position-independent code in the small code model: one object serves a shared library and the
loader of this process alike. Nothing depends on the time, the machine or the order of calls.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from minitvm.errors import CodegenError
from minitvm.target import Target, target_machine

OPTIMIZATION_LEVEL = 3
NARROW_MASKED_STORE = re.compile(r"llvm\.masked\.store\.v\d+i(8|16|32)\.")


@lru_cache(maxsize=16)
def machine_for(target: Target) -> Any:
    """LLVM's target machine."""
    return target_machine(target.triple, target.cpu, target.features, OPTIMIZATION_LEVEL)


@contextmanager
def _optimized(text: str, target: Target, optimize: bool) -> Iterator[Any]:
    with _parsed(text, target) as module:
        if optimize:
            _optimize(module, target)
        if not optimize or not _stores_narrow_masked(module):
            yield module
            return
    with _parsed(text, target) as module:
        _optimize(module, target, vectorize=False)
        yield module


def _parsed(text: str, target: Target) -> Any:
    """LLVM's module of a text, verified."""
    import llvmlite.binding as llvm

    try:
        module = llvm.parse_assembly(text, llvm.create_context())
        module.verify()
    except RuntimeError as error:
        raise CodegenError(
            f"LLVM refuses the code made for {target}, which is an error in minitvm: {error}"
        ) from error
    return module


def _optimize(module: Any, target: Target, vectorize: bool = True) -> None:
    """Runs LLVM's passes; `vectorize` lets it find vectors in scalar loops."""
    import llvmlite.binding as llvm

    options = llvm.create_pipeline_tuning_options(OPTIMIZATION_LEVEL)
    options.slp_vectorization = False
    options.loop_vectorization = vectorize
    builder = llvm.create_pass_builder(machine_for(target), options)
    builder.getModulePassManager().run(module, builder)


def _stores_narrow_masked(module: Any) -> bool:
    """Whether LLVM's vectors store narrow integers under a mask, as for the last turns of a short
    loop. LLVM 22.1 compiles that wrongly for AVX-512 where the mask is a constant of one lane and
    the numbers were truncated: it stores the wide number, past the end of the array."""
    return any(NARROW_MASKED_STORE.match(function.name) for function in module.functions)


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
