"""An instruction that tir names -> the call of LLVM's intrinsic, for a target that has it."""

from __future__ import annotations

from minitvm import dtypes
from minitvm.codegen.text import FunctionText, llvm_type
from minitvm.errors import CodegenError
from minitvm.tir.instructions import Instruction, describe


def instruction(f: FunctionText, row: Instruction, dtype: str, arguments: list[str]) -> str:
    """The value of an instruction; raises `CodegenError` if the target has none."""
    lanes = dtypes.lanes(dtype)
    form = row.form(lanes)
    if form is None:
        raise CodegenError(f"{row.name} has no form that gives {dtype}")
    target = f.module.target
    if not target.has_one(form.features):
        raise CodegenError(
            f"{row.name} with {lanes} lanes needs {describe(form.features)}; the target '{target}' "
            "has no such instruction: compile for one that has, or use another tensor intrinsic"
        )
    given = list(zip(row.takes(lanes), arguments, strict=True))
    if row.name == "x86_vpdpbusd":
        given = [given[0], *(_as_words(f, kind, value) for kind, value in given[1:])]
    return f.call(form.function, dtype, given)


def _as_words(f: FunctionText, dtype: str, value: str) -> tuple[str, str]:
    """Groups of four bytes as integers of 32 bits, which is how LLVM's intrinsic takes them."""
    words = dtypes.vector("int32", dtypes.lanes(dtype) // 4)
    return words, f.pure(f"bitcast {llvm_type(dtype)} {value} to {llvm_type(words)}")
