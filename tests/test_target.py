"""Target strings: what they say, what they refuse, what LLVM answers."""

import pytest

from minitvm.errors import TargetError
from minitvm.target import Target

A76 = "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a76 -mattr=+dotprod"
X86 = "llvm -mtriple=x86_64-linux-gnu -mcpu="


@pytest.mark.parametrize("text", [A76, X86 + "x86-64-v3", X86 + "generic -num-cores=4",
                                  X86 + "skylake -mattr=+avx512f,-fma -l1-bytes=1 -l2-bytes=2",
                                  A76 + " -tlb-pages=48 -fma-per-cycle=1 -l2-bytes-per-cycle=16 "
                                        "-memory-bytes-per-cycle=5"])
def test_printing_round_trips(text):
    target = Target(text)
    assert Target(str(target)) == target
    assert hash(Target(str(target))) == hash(target)


def test_the_string_is_canonical():
    one = Target("llvm  -mattr=+fma,+avx2,+fma -l2-bytes=524288 -mcpu=x86-64 "
                 "-mtriple=x86_64-linux-gnu")
    assert str(one) == X86 + "x86-64 -mattr=+avx2,+fma"
    assert Target(A76) != Target(A76.replace("+dotprod", "-dotprod"))


def test_the_host_is_the_default():
    host = Target.host()
    assert Target() == Target("llvm") == host == Target(str(host))
    assert host.is_host() and host.l1_bytes >= 4096 and host.cores >= 1
    assert Target("llvm -mcpu=generic").triple == host.triple


@pytest.mark.parametrize("cpu, bits, registers, fma", [
    ("x86-64", 128, 16, False), ("generic", 128, 16, False), ("x86-64-v3", 256, 16, True),
    ("znver3", 256, 16, True), ("x86-64-v4", 512, 32, True), ("skylake-avx512", 512, 32, True),
    ("haswell -mattr=-fma", 256, 16, False), ("x86-64 -mattr=+avx2", 256, 16, False),
])
def test_vectors_of_x86(cpu, bits, registers, fma):
    target = Target(X86 + cpu)
    assert (target.vector_bits, target.vector_registers, target.fma) == (bits, registers, fma)
    assert target.lanes("float32") == bits // 32 and target.lanes("int8") == bits // 8
    assert target.lanes("float64") == bits // 64


def test_vectors_of_aarch64():
    target = Target(A76)
    assert (target.isa, target.vector_bits, target.vector_registers) == ("aarch64", 128, 32)
    assert (target.fma and target.lanes("float32") == 4 and not target.is_host()) or (
        Target.host().isa == "aarch64")


def test_what_a_core_does_in_a_cycle():
    """By default as common cores do; all of it may be said."""
    for text in (A76, X86 + "x86-64-v3", X86 + "x86-64-v4"):
        target = Target(text)
        assert (target.fma_per_cycle, target.l2_bytes_per_cycle, target.tlb_pages) == (2, 32, 64)
        assert (target.memory_bytes_per_cycle, target.weight_bytes_per_cycle) == (10, 8)
        half = target.vector_bits / 16
        assert target.bytes_per_cycle(target.l2_bytes) == half
        assert target.bytes_per_cycle(target.l2_bytes + 1) == min(half, 10)
    assert Target(X86 + "x86-64").fma_per_cycle == 1, "two instructions"
    said = Target(X86 + "x86-64-v4 -fma-per-cycle=3 -l2-bytes-per-cycle=20 "
                  "-memory-bytes-per-cycle=5 -tlb-pages=7")
    assert (said.fma_per_cycle, said.tlb_pages, said.weight_bytes_per_cycle) == (3, 7, 4)
    assert (said.bytes_per_cycle(1), said.bytes_per_cycle(2**30)) == (20, 5)
    with pytest.raises(TargetError, match=r"-tlb-pages must be a positive integer, not '0'"):
        Target(X86 + "x86-64-v4 -tlb-pages=0")


def test_features_come_from_the_cpu_and_from_attributes():
    assert Target(A76).has("dotprod") and not Target(A76).has("sve")
    assert not Target(A76.replace("+dotprod", "-dotprod")).has("dotprod")
    assert Target(X86 + "cascadelake").has("avx512vnni")
    assert not Target(X86 + "skylake").has("avx512vnni")
    assert Target(X86 + "skylake -mattr=+avx512vnni").has("avx512vnni")
    assert not Target(X86 + "skylake").has("dotprod"), "a feature of another machine"
    asked = ("fma", "avx2", "avx512f", "no-such-feature")
    assert Target(X86 + "haswell").supported(asked) == {"fma", "avx2"}


@pytest.mark.parametrize("text, message", [
    ("cuda", "does not start with 'llvm'"),
    ("", "does not start with 'llvm'"),
    ("llvm -mcpu", "needs a value"),
    ("llvm -mcpu=", "needs a value"),
    ("llvm -cpu=x", "'-cpu' is unknown; did you mean -mcpu"),
    ("llvm -mcpu=generic -mcpu=generic", "given twice"),
    (X86 + "skylak", "no CPU 'skylak' .* did you mean skylake"),
    (X86 + "cortex-a76", "no CPU 'cortex-a76'"),
    (X86 + "generic -mattr=+avx22", "no feature 'avx22' .* did you mean avx2"),
    (X86 + "generic -mattr=avx2", "must start with"),
    (X86 + "generic -num-cores=0", "positive integer"),
    (X86 + "generic -l1-bytes=32k", "positive integer"),
    ("llvm -mtriple=m68k-linux -mcpu=generic", "'m68k-linux' names no machine"),
    ("llvm -mtriple=aarch64-linux-gnu", "names no CPU for aarch64-linux-gnu; add -mcpu"),
])
def test_mistakes_are_explained(text, message):
    with pytest.raises(TargetError, match=message):
        Target(text)
