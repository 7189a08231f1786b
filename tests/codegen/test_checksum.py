"""The checksum of weights is XXH64: against the algorithm written down in Python."""

import struct

import numpy as np
import pytest

from minitvm.codegen.checksum import checksum, checksum_to_llvm
from minitvm.codegen.machine import emit_object
from minitvm.runtime import elf
from minitvm.target import Target

MASK = 2**64 - 1
P1, P2, P3, P4, P5 = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9,
                      0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)


def turn(value, bits):
    return (value << bits | (value & MASK) >> (64 - bits)) & MASK


def mix(total, word):
    return turn((total + word * P2) & MASK, 31) * P1 & MASK


def xxh64(data):
    """The whole algorithm with seed 0, tail and short inputs included, so that it can be compared
    with results that are published."""
    place, whole = 0, len(data) // 32 * 32
    total = P5
    if whole:
        sums = [(P1 + P2) & MASK, P2, 0, -P1 & MASK]
        for place in range(0, whole, 32):
            sums = [mix(s, w) for s, w in zip(sums, struct.unpack_from("<4Q", data, place))]
        total = sum(map(turn, sums, (1, 7, 12, 18))) & MASK
        for s in sums:
            total = ((total ^ mix(0, s)) * P1 + P4) & MASK
    total = (total + len(data)) & MASK
    place = whole
    while place + 8 <= len(data):
        word, = struct.unpack_from("<Q", data, place)
        total, place = (turn(total ^ mix(0, word), 27) * P1 + P4) & MASK, place + 8
    if place + 4 <= len(data):
        word, = struct.unpack_from("<I", data, place)
        total, place = (turn(total ^ word * P1 & MASK, 23) * P2 + P3) & MASK, place + 4
    for byte in data[place:]:
        total = turn(total ^ byte * P5 & MASK, 11) * P1 & MASK
    for shift, factor in ((33, P2), (29, P3), (32, 1)):
        total = (total ^ total >> shift) * factor & MASK
    return total


def test_the_reference_gives_what_is_published():
    assert xxh64(b"") == 0xEF46DB3751D8E999
    assert xxh64(b"a") == 0xD24EC4F1A98C6E5B
    assert xxh64(b"abc") == 0x44BC2CF5AD770999
    assert xxh64(b"Nobody inspects the spammish repetition") == 0xFBCEA83C8A378BF1


@pytest.mark.parametrize("stripes", [1, 2, 3, 31, 1000])
def test_the_code_gives_what_the_reference_gives(stripes):
    data = np.random.default_rng(stripes).integers(0, 256, 32 * stripes, np.uint8)
    assert checksum(data) == xxh64(data.tobytes())
    assert checksum(np.zeros_like(data)) == xxh64(bytes(32 * stripes)) != checksum(data)
    assert checksum(np.full_like(data, 255)) == xxh64(b"\xff" * 32 * stripes)


def test_every_bit_counts():
    data = np.random.default_rng(0).integers(0, 256, 256, np.uint8)
    sums = {checksum(data)}
    for bit in range(8 * data.size):
        changed = data.copy()
        changed[bit // 8] ^= 1 << bit % 8
        sums.add(checksum(changed))
    assert len(sums) == 1 + 8 * data.size


def test_it_compiles_for_every_architecture():
    for triple in ("x86_64-linux-gnu", "aarch64-linux-gnu", "riscv64-linux-gnu"):
        target = Target(f"llvm -mtriple={triple} -mcpu="
                        f"{'generic-rv64' if 'riscv' in triple else 'generic'}")
        text = f'target triple = "{triple}"\n' + checksum_to_llvm().replace("internal ", "")
        assert elf.header(emit_object(text, target))[1] == elf.MACHINES[target.isa]
