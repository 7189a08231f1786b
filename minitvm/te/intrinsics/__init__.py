"""Tensor intrinsics ready for `tensorize`: tiles of a matrix product, by the instructions that CPUs
have for them.

    from minitvm.te import intrinsics

    s[C].tensorize(i_inner, intrinsics.dot_bytes(rows=4, lanes=16))

| declares | a tile of | x86 | ARM |
|---|---|---|---|
| `fma_tile` | float32 | `vfmadd231ps` (fma) | `fmla` |
| `dot_bytes` | groups of four bytes | `vpdpbusd` (AVX512-VNNI, AVX-VNNI): uint8 x int8 | `sdot`, \
`udot` (dotprod): equal signs; `usdot` (i8mm) |
| `dot_pairs` | pairs of int16, int8, uint8 | `vpmaddwd` (AVX-512, AVX2) | |
| `dot_seven_bits` | groups of four: uint8 x int8 within +-64 | `vpmaddubsw`, `vpmaddwd` | |

The target decides which instruction it is and how many lanes it takes at once; where there is none,
a loop does the same, slower. The integer ones add up in int32 exactly what the compute says, for
any operands. A group of the columns lies together: b holds for each lane the elements of its group,
at lane * group + element, so that a whole vector is read at once.
"""

from minitvm.te.intrinsics.dot import dot_bytes, dot_pairs, dot_seven_bits, seven_bits
from minitvm.te.intrinsics.fma import fma_tile

__all__ = ["dot_bytes", "dot_pairs", "dot_seven_bits", "fma_tile", "seven_bits"]
