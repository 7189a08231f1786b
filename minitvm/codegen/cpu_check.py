"""`minitvm_check_cpu`: does this machine's processor have what the code was compiled for?

x86: the features of the target are looked up with the instruction `cpuid`, and `xgetbv` tells
whether the operating system keeps the wide registers. LLVM has no intrinsic for either, and can
assemble text only for the machine that it runs on; so each is a function whose *prologue data*
(bytes that LLVM puts at its start) is machine code that returns. AArch64: the kernel's answer,
through `getauxval` of libc. The answer is kept in a variable, since `cpuid` is slow in a virtual
machine.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from minitvm.runtime import abi
from minitvm.target import Target

_EAX, _EBX, _ECX, _EDX = range(4)

X86_FEATURES: dict[str, tuple[int, int, int, int]] = {
    "sse3": (1, 0, _ECX, 0), "pclmul": (1, 0, _ECX, 1), "ssse3": (1, 0, _ECX, 9),
    "fma": (1, 0, _ECX, 12), "cx16": (1, 0, _ECX, 13), "sse4.1": (1, 0, _ECX, 19),
    "sse4.2": (1, 0, _ECX, 20), "movbe": (1, 0, _ECX, 22), "popcnt": (1, 0, _ECX, 23),
    "aes": (1, 0, _ECX, 25), "avx": (1, 0, _ECX, 28), "f16c": (1, 0, _ECX, 29),
    "bmi": (7, 0, _EBX, 3), "avx2": (7, 0, _EBX, 5), "bmi2": (7, 0, _EBX, 8),
    "avx512f": (7, 0, _EBX, 16), "avx512dq": (7, 0, _EBX, 17), "adx": (7, 0, _EBX, 19),
    "avx512ifma": (7, 0, _EBX, 21), "avx512cd": (7, 0, _EBX, 28), "sha": (7, 0, _EBX, 29),
    "avx512bw": (7, 0, _EBX, 30), "avx512vl": (7, 0, _EBX, 31),
    "avx512vbmi": (7, 0, _ECX, 1), "avx512vbmi2": (7, 0, _ECX, 6), "gfni": (7, 0, _ECX, 8),
    "vaes": (7, 0, _ECX, 9), "vpclmulqdq": (7, 0, _ECX, 10), "avx512vnni": (7, 0, _ECX, 11),
    "avx512bitalg": (7, 0, _ECX, 12), "avx512vpopcntdq": (7, 0, _ECX, 14),
    "avx512fp16": (7, 0, _EDX, 23), "avxvnni": (7, 1, _EAX, 4), "avx512bf16": (7, 1, _EAX, 5),
    "avxifma": (7, 1, _EAX, 23), "avxvnniint8": (7, 1, _EDX, 4),
    "avxneconvert": (7, 1, _EDX, 5), "avxvnniint16": (7, 1, _EDX, 10),
    "lzcnt": (0x80000001, 0, _ECX, 5), "sse4a": (0x80000001, 0, _ECX, 6),
    "xop": (0x80000001, 0, _ECX, 11), "fma4": (0x80000001, 0, _ECX, 16),
    "tbm": (0x80000001, 0, _ECX, 21),
}
"""By LLVM's name: leaf, subleaf, register and bit of `cpuid` (Intel's and AMD's manuals)."""

AARCH64_FEATURES: dict[str, tuple[int, int]] = {
    "fp-armv8": (16, 0), "neon": (16, 1), "aes": (16, 3), "crc": (16, 7), "lse": (16, 8),
    "fullfp16": (16, 10), "rdm": (16, 12), "sha3": (16, 17), "dotprod": (16, 20), "sve": (16, 22),
    "sve2": (26, 1), "i8mm": (26, 13), "bf16": (26, 14),
}
"""By LLVM's name: the entry of the auxiliary vector (AT_HWCAP, AT_HWCAP2) and its bit."""

_OSXSAVE = 1 << 27
_AVX_STATE, _AVX512_STATE = 0b110, 0b11100110

_CPUID = bytes.fromhex(
    "53"  # push rbx, which the caller owns
    "4989d0"  # mov r8, rdx: the third argument
    "89f8 89f1"  # mov eax, edi; mov ecx, esi
    "0fa2"  # cpuid
    "418900 41895804 41894808 4189500c"  # mov [r8], eax; [r8+4], ebx; [r8+8], ecx; [r8+12], edx
    "5b c3")  # pop rbx; ret
_XGETBV = bytes.fromhex("31c9 0f01d0 c3")  # xor ecx, ecx; xgetbv; ret


def required_features(target: Target) -> list[str]:
    """What `minitvm_check_cpu` looks for, by LLVM's names."""
    tables: dict[str, dict[str, Any]] = {"x86_64": X86_FEATURES, "aarch64": AARCH64_FEATURES}
    return sorted(target.supported(tuple(tables.get(target.isa, {}))))


def cpu_check_to_llvm(target: Target) -> str:
    """The definition of `minitvm_check_cpu`."""
    if target.isa == "x86_64":
        helpers, body = _x86_check(target)
    elif target.isa == "aarch64":
        helpers, body = _aarch64_check(target)
    else:
        helpers, body = [], ["  br label %good"]
    return "\n".join([
        *helpers,
        "@cpu.answer = internal global i32 -1",
        "define i32 @minitvm_check_cpu() #0 {",
        "  %known = load atomic i32, ptr @cpu.answer monotonic, align 4",
        "  %ask = icmp eq i32 %known, -1",
        "  br i1 %ask, label %check, label %answered",
        "answered:\n  ret i32 %known",
        "check:", *body,
        "good:\n  store atomic i32 0, ptr @cpu.answer monotonic, align 4\n  ret i32 0",
        f"bad:\n  store atomic i32 {abi.ErrorCode.WRONG_CPU}, ptr @cpu.answer monotonic, align 4\n"
        f"  ret i32 {abi.ErrorCode.WRONG_CPU}",
        "}"])


def _machine_code(name: str, signature: str, code: bytes) -> str:
    """A function that is these bytes; its own body, behind them, is never reached.

    It is `weak`, so that LLVM draws no conclusions from that body.
    """
    kind = "<{ " + ", ".join(["i8"] * len(code)) + " }>"
    data = "<{ " + ", ".join(f"i8 {byte}" for byte in code) + " }>"
    result = signature.split()[0]
    value = "" if result == "void" else " 0"
    return (f"define weak hidden {signature.replace('@', '@' + name)} noinline nounwind "
            f"prologue {kind} {data} {{\n  ret {result}{value}\n}}")


def _x86_check(target: Target) -> tuple[list[str], list[str]]:
    masks: dict[tuple[int, int], dict[int, int]] = defaultdict(lambda: defaultdict(int))
    features = target.supported(tuple(X86_FEATURES))
    for name in features:
        leaf, subleaf, register, bit = X86_FEATURES[name]
        masks[leaf, subleaf][register] |= 1 << bit
    state = _AVX512_STATE if "avx512f" in features else _AVX_STATE if "avx" in features else 0
    if state:
        masks[1, 0][_ECX] |= _OSXSAVE
    lines = ["  %registers = alloca [4 x i32], align 4"]
    for leaf, subleaf in sorted(masks):
        lines += _check_leaf(leaf, subleaf, masks[leaf, subleaf])
    if state:  # from here on the operating system is known to have enabled xgetbv
        lines += ["  %kept = call i32 @minitvm.xgetbv()", f"  %wide = and i32 %kept, {state}",
                  f"  %enabled = icmp eq i32 %wide, {state}",
                  "  br i1 %enabled, label %good, label %bad"]
    else:
        lines.append("  br label %good")
    helpers = [_machine_code("minitvm.cpuid", "void @(i32 %leaf, i32 %subleaf, ptr %to)", _CPUID),
               _machine_code("minitvm.xgetbv", "i32 @()", _XGETBV)]
    return helpers, lines


def _check_leaf(leaf: int, subleaf: int, masks: dict[int, int]) -> list[str]:
    """Goes to `bad` unless the leaf exists and its registers have all the bits."""
    stem = f"{leaf:x}.{subleaf}"
    call = "  call void @minitvm.cpuid(i32 {}, i32 {}, ptr %registers)"
    lines = [call.format(leaf & 0x80000000, 0), f"  %greatest{stem} = load i32, ptr %registers",
             f"  %exists{stem} = icmp uge i32 %greatest{stem}, {leaf}",
             f"  br i1 %exists{stem}, label %leaf{stem}, label %bad", f"leaf{stem}:",
             call.format(leaf, subleaf)]
    for register, mask in sorted(masks.items()):
        name = f"{stem}.{register}"
        lines += [f"  %place{name} = getelementptr i32, ptr %registers, i64 {register}",
                  f"  %bits{name} = load i32, ptr %place{name}",
                  f"  %wanted{name} = and i32 %bits{name}, {mask}",
                  f"  %has{name} = icmp eq i32 %wanted{name}, {mask}",
                  f"  br i1 %has{name}, label %after{name}, label %bad", f"after{name}:"]
    return lines


def _aarch64_check(target: Target) -> tuple[list[str], list[str]]:
    masks: dict[int, int] = defaultdict(int)
    for name in target.supported(tuple(AARCH64_FEATURES)):
        entry, bit = AARCH64_FEATURES[name]
        masks[entry] |= 1 << bit
    lines = []
    for entry, mask in sorted(masks.items()):
        lines += [f"  %bits{entry} = call i64 @getauxval(i64 {entry})",
                  f"  %wanted{entry} = and i64 %bits{entry}, {mask}",
                  f"  %has{entry} = icmp eq i64 %wanted{entry}, {mask}",
                  f"  br i1 %has{entry}, label %after{entry}, label %bad", f"after{entry}:"]
    return ["declare i64 @getauxval(i64)"], [*lines, "  br label %good"]
