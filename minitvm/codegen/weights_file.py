"""The weights of a model -> a file of their own, and the code in the library that maps it.

The file, all numbers little-endian:

    0   8  "MTVMWGHT"
    8   4  version of this format, 1
    12  4  where the weights start, 64
    16  8  how many bytes they are, a multiple of 64
    24  8  their checksum, XXH64 with the seed 0
    32  32 their SHA-256 without padding, by which the library knows its own
    64     the weights, as the code addresses them

The library knows all of these 64 bytes. `load_weights` maps the file read-only, so that processes
share its memory, and compares; the SHA-256 is only compared, the checksum also computed over all
that is mapped. This is done once in a process, by the first run unless `load_weights` is called
before it. Nothing is locked: of threads that come at the same time each maps the file and one keeps
what it has. So nothing is held that a `fork` could leave behind.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from pathlib import Path

import numpy as np

from minitvm.codegen.checksum import CHECKSUM, checksum, checksum_to_llvm
from minitvm.codegen.interface import LOAD_WEIGHTS, WEIGHTS_ADDRESS
from minitvm.codegen.machine import emit_object
from minitvm.codegen.program import Program, baseline
from minitvm.codegen.text import bytes_constant
from minitvm.runtime import abi
from minitvm.target import Target

MAGIC, VERSION = b"MTVMWGHT", 1
HEADER_BYTES = 64
ALIGNMENT = abi.WORKSPACE_ALIGNMENT

_LOADER = """\
@@address@ = hidden global ptr null
declare i32 @dladdr(ptr, ptr)
declare ptr @strrchr(ptr, i32)
declare i32 @memcmp(ptr, ptr, i64)
declare i32 @open(ptr, i32, ...)
declare i32 @close(i32)
declare i64 @lseek(i32, i64, i32)
declare i64 @pread(i32, ptr, i64, i64)
declare ptr @mmap(ptr, i64, i32, i32, i32, i64)
declare i32 @munmap(ptr, i64)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

; writes the path of the weights file beside this library to memory of 4096 bytes; gives 1, or 0
define internal i32 @weights.beside(ptr %path) nounwind {
  %facts = alloca { ptr, ptr, ptr, ptr }
  %found = call i32 @dladdr(ptr @@address@, ptr %facts)
  %known = icmp ne i32 %found, 0
  br i1 %known, label %named, label %none
named:
  %library = load ptr, ptr %facts
  %slash = call ptr @strrchr(ptr %library, i32 47)
  %bare = icmp eq ptr %slash, null
  %start = ptrtoint ptr %library to i64
  %last = ptrtoint ptr %slash to i64
  %before = sub i64 %last, %start
  %with = add i64 %before, 1
  %length = select i1 %bare, i64 0, i64 %with
  %fits = icmp ule i64 %length, @room@
  br i1 %fits, label %copy, label %none
copy:
  call void @llvm.memcpy.p0.p0.i64(ptr %path, ptr %library, i64 %length, i1 false)
  %end = getelementptr i8, ptr %path, i64 %length
  call void @llvm.memcpy.p0.p0.i64(ptr %end, ptr @weights.name, i64 @name_bytes@, i1 false)
  ret i32 1
none:
  ret i32 0
}

; maps an open file and keeps it
define internal i32 @weights.map(i32 %file) nounwind {
  %head = alloca [64 x i8], align 8
  call void @llvm.memset.p0.i64(ptr %head, i8 0, i64 64, i1 false)
  %length = call i64 @lseek(i32 %file, i64 0, i32 2)
  %got = call i64 @pread(i32 %file, ptr %head, i64 64, i64 0)
  %unread = icmp slt i64 %got, 0
  br i1 %unread, label %unreadable, label %start
start:
  %none = icmp ult i64 %got, 16
  br i1 %none, label %short, label %format
format:
  %f = call i32 @memcmp(ptr %head, ptr @weights.head, i64 16)
  %other_format = icmp ne i32 %f, 0
  br i1 %other_format, label %no_weights, label %whole
whole:
  %cut = icmp ult i64 %got, 64
  br i1 %cut, label %short, label %identity
identity:
  %given_identity = getelementptr i8, ptr %head, i64 32
  %own_identity = getelementptr i8, ptr @weights.head, i64 32
  %i = call i32 @memcmp(ptr %given_identity, ptr %own_identity, i64 32)
  %other_model = icmp ne i32 %i, 0
  br i1 %other_model, label %another, label %sums
sums:
  %given_sums = getelementptr i8, ptr %head, i64 16
  %own_sums = getelementptr i8, ptr @weights.head, i64 16
  %s = call i32 @memcmp(ptr %given_sums, ptr %own_sums, i64 16)
  %other_sums = icmp ne i32 %s, 0
  br i1 %other_sums, label %damaged, label %shorter
shorter:
  %too_short = icmp slt i64 %length, @file_bytes@
  br i1 %too_short, label %short, label %longer
longer:
  %too_long = icmp sgt i64 %length, @file_bytes@
  br i1 %too_long, label %damaged, label %map
map:
  %mapped = call ptr @mmap(ptr null, i64 @file_bytes@, i32 1, i32 1, i32 %file, i64 0)
  %address = ptrtoint ptr %mapped to i64
  %unmapped = icmp eq i64 %address, -1
  br i1 %unmapped, label %unreadable, label %check
check:
  %weights = getelementptr i8, ptr %mapped, i64 64
  %sum = call i64 @@checksum@(ptr %weights, i64 @weights_bytes@)
  %wrong = icmp ne i64 %sum, @sum@
  br i1 %wrong, label %free_damaged, label %keep
keep:
  %swapped = cmpxchg ptr @@address@, ptr null, ptr %weights acq_rel acquire
  %first = extractvalue { ptr, i1 } %swapped, 1
  br i1 %first, label %done, label %free
free:
  %a = call i32 @munmap(ptr %mapped, i64 @file_bytes@)
  br label %done
free_damaged:
  %b = call i32 @munmap(ptr %mapped, i64 @file_bytes@)
  br label %damaged
done:
  ret i32 0
unreadable:
  ret i32 @unreadable@
no_weights:
  ret i32 @format@
another:
  ret i32 @another@
short:
  ret i32 @truncated@
damaged:
  ret i32 @damaged@
}

; maps the weights from a path, or from beside the library where it is null
define hidden i32 @@load@(ptr %path) nounwind {
  %now = load atomic ptr, ptr @@address@ acquire, align 8
  %there = icmp ne ptr %now, null
  br i1 %there, label %done, label %find
find:
  %given = icmp ne ptr %path, null
  br i1 %given, label %open, label %beside
beside:
  %space = alloca [4096 x i8]
  %found = call i32 @weights.beside(ptr %space)
  %none = icmp eq i32 %found, 0
  br i1 %none, label %unreadable, label %open
open:
  %name = phi ptr [ %path, %find ], [ %space, %beside ]
  ; read-only, closed by exec, never waiting for a pipe's other end
  %file = call i32 (ptr, i32, ...) @open(ptr %name, i32 @flags@)
  %failed = icmp slt i32 %file, 0
  br i1 %failed, label %unreadable, label %map
map:
  %code = call i32 @weights.map(i32 %file)
  %ignored = call i32 @close(i32 %file)
  ret i32 %code
unreadable:
  ret i32 @unreadable@
done:
  ret i32 0
}
"""
_FLAGS = 0x80000 | 0x800  # O_CLOEXEC and O_NONBLOCK on Linux


def write_weights_file(program: Program, path: Path) -> bytes:
    """Writes the file; gives its header, which `loader_object` puts into the library."""
    data = _padded(program.weights)
    head = struct.pack("<8sIIQQ32s", MAGIC, VERSION, HEADER_BYTES, data.nbytes, checksum(data),
                       bytes.fromhex(program.weights_sha256))
    with path.open("wb") as file:
        file.write(head)
        file.write(data.data)
    return head


def _padded(weights: np.ndarray) -> np.ndarray:
    """Bytes up to a multiple of the alignment, and not none."""
    missing = -weights.nbytes % ALIGNMENT if weights.nbytes else ALIGNMENT
    return np.concatenate((weights, np.zeros(missing, np.uint8))) if missing else weights


@lru_cache(maxsize=4)
def loader_object(head: bytes, name: str, target: Target) -> bytes:
    """The object file of `load_weights` for the file of this header and this name."""
    *_, size, total, _ = struct.unpack("<8sIIQQ32s", head)
    file_name_bytes = name.encode() + b"\0"
    words = {
        "address": WEIGHTS_ADDRESS, "load": LOAD_WEIGHTS, "checksum": CHECKSUM,
        "room": 4096 - len(file_name_bytes), "name_bytes": len(file_name_bytes),
        "file_bytes": HEADER_BYTES + size, "weights_bytes": size, "sum": total,
        "flags": _FLAGS, "unreadable": abi.ErrorCode.WEIGHTS_UNREADABLE.value,
        "format": abi.ErrorCode.WEIGHTS_FORMAT.value,
        "another": abi.ErrorCode.WEIGHTS_OF_ANOTHER_MODEL.value,
        "truncated": abi.ErrorCode.WEIGHTS_TRUNCATED.value,
        "damaged": abi.ErrorCode.WEIGHTS_DAMAGED.value,
    }
    text = _LOADER
    for word, value in words.items():
        text = text.replace(f"@{word}@", str(value))
    constants = [bytes_constant("weights.name", file_name_bytes),
                 bytes_constant("weights.head", head)]
    return emit_object("\n".join([f'target triple = "{target.triple}"', checksum_to_llvm(),
                                  *constants, text]), baseline(target))
