"""XXH64, the checksum of weights, as LLVM IR: one function for a library and for this process.

A library computes it over the weights that it maps, and the compiler over those that it writes. It
reads memory as fast as that can be read; a change of up to eight bytes always shows, any other but
once in 2**64. Only whole stripes of 32 bytes, at least one, so that the algorithm's tail
is not needed. From: Y. Collet, "xxHash fast digest algorithm", version 0.1.1, whose constants and
results these are.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np

from minitvm.codegen.jit import load_objects
from minitvm.codegen.machine import emit_object
from minitvm.target import Target

CHECKSUM = "minitvm.checksum"
STRIPE_BYTES = 32

_PRIMES = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63)
_STARTS = (_PRIMES[0] + _PRIMES[1], _PRIMES[1], 0, -_PRIMES[0])
_ROTATIONS = (1, 7, 12, 18)
_LANES = range(4)


def checksum_to_llvm() -> str:
    """The definition of the function: a pointer and a number of bytes -> the checksum."""
    return "\n".join([
        "declare i64 @llvm.fshl.i64(i64, i64, i64)",
        f"define internal i64 @{CHECKSUM}(ptr %data, i64 %size) nounwind {{", "entry:",
        "  br label %stripe", *_stripes(), *_merge(), *_avalanche(), "}"])


def _stripes() -> list[str]:
    """The loop: each of four sums takes eight bytes of a stripe."""
    lines = ["stripe:", "  %place = phi i64 [ 0, %entry ], [ %next, %stripe ]"]
    lines += [f"  %sum{n} = phi i64 [ {_signed(_STARTS[n])}, %entry ], [ %new{n}, %stripe ]"
              for n in _LANES]
    for n in _LANES:
        lines += [f"  %at{n} = add i64 %place, {8 * n}",
                  f"  %from{n} = getelementptr i8, ptr %data, i64 %at{n}",
                  f"  %word{n} = load i64, ptr %from{n}, align 8",
                  *_round(f"%new{n}", f"%sum{n}", f"%word{n}")]
    return [*lines, f"  %next = add i64 %place, {STRIPE_BYTES}",
            "  %more = icmp ult i64 %next, %size", "  br i1 %more, label %stripe, label %merge"]


def _merge() -> list[str]:
    lines = ["merge:", *(_rotate(f"%turned{n}", f"%new{n}", _ROTATIONS[n]) for n in _LANES),
             "  %joined1 = add i64 %turned0, %turned1", "  %joined2 = add i64 %joined1, %turned2",
             "  %hash0 = add i64 %joined2, %turned3"]
    for n in _LANES:
        lines += [*_round(f"%mixed{n}", "0", f"%new{n}"),
                  f"  %met{n} = xor i64 %hash{n}, %mixed{n}",
                  f"  %spread{n} = mul i64 %met{n}, {_signed(_PRIMES[0])}",
                  f"  %hash{n + 1} = add i64 %spread{n}, {_signed(_PRIMES[3])}"]
    return [*lines, "  %sized = add i64 %hash4, %size"]


def _avalanche() -> list[str]:
    return ["  %high1 = lshr i64 %sized, 33", "  %fold1 = xor i64 %sized, %high1",
            f"  %wide1 = mul i64 %fold1, {_signed(_PRIMES[1])}",
            "  %high2 = lshr i64 %wide1, 29", "  %fold2 = xor i64 %wide1, %high2",
            f"  %wide2 = mul i64 %fold2, {_signed(_PRIMES[2])}",
            "  %high3 = lshr i64 %wide2, 32", "  %fold3 = xor i64 %wide2, %high3",
            "  ret i64 %fold3"]


def _round(result: str, total: str, word: str) -> list[str]:
    """`result` = rotate(total + word * P2, 31) * P1."""
    stem = result[1:]
    return [f"  %{stem}.a = mul i64 {word}, {_signed(_PRIMES[1])}",
            f"  %{stem}.b = add i64 {total}, %{stem}.a",
            _rotate(f"%{stem}.c", f"%{stem}.b", 31),
            f"  {result} = mul i64 %{stem}.c, {_signed(_PRIMES[0])}"]


def _rotate(result: str, value: str, bits: int) -> str:
    return f"  {result} = call i64 @llvm.fshl.i64(i64 {value}, i64 {value}, i64 {bits})"


def _signed(number: int) -> int:
    """The number modulo 2**64, as LLVM writes it."""
    return (number + 2**63) % 2**64 - 2**63


@cache
def _function() -> tuple[Any, Any]:
    """The function in this process, and what keeps it."""
    target = Target.host()
    text = (f'target triple = "{target.triple}"\n{checksum_to_llvm()}\n'
            "define i64 @checksum(ptr %data, i64 %size) {\n"
            f"  %sum = call i64 @{CHECKSUM}(ptr %data, i64 %size)\n  ret i64 %sum\n}}\n")
    tracker = load_objects([emit_object(text, target)], ["checksum"])
    kind = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint64)
    return kind(tracker["checksum"]), tracker


def checksum(data: np.ndarray) -> int:
    """The XXH64 of a contiguous array: whole stripes of 32 bytes, at least one."""
    function, _ = _function()
    return int(function(data.ctypes.data, data.nbytes))
