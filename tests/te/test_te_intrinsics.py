"""Ready-made tensor intrinsics: exact on this machine, and the right instruction on others."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minitvm
from minitvm import te
from minitvm.errors import LoweringError, ScheduleError
from minitvm.target import Target
from minitvm.te import intrinsics
from minitvm.testing.assembly import innermost_loops
from minitvm.tir import ir
from minitvm.tir.interpret import run
from minitvm.tir.text import print_func

AVX2 = Target("llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64-v3")
VNNI = Target("llvm -mtriple=x86_64-linux-gnu -mcpu=cascadelake")
SKYLAKE = Target("llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512")
AVX_VNNI = Target("llvm -mtriple=x86_64-linux-gnu -mcpu=alderlake")
CORTEX = Target("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a76")
NEOVERSE = Target("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-v1")
OLD = Target("llvm -mtriple=x86_64-linux-gnu -mcpu=nehalem")
OLD_ARM = Target("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a53")


def same(weight):
    return weight


class Product:
    """C = A x W, W packed by columns of `lanes` and groups of rows, in tiles of an intrinsic."""

    def __init__(self, intrin, rows, lanes, group, a="uint8", b="int8", weight=same, m=8, n=2,
                 k=3):
        self.lanes, self.group, self.weight = lanes, group, weight
        self.shape = (m, n * lanes, k * group)
        self.A = te.placeholder((m, k * group), a, name="A")
        self.W = te.placeholder((n, k, lanes * group), b, name="W")
        r = te.reduce_axis((0, k * group), name="r")

        def element(i, j):
            w = self.W[j // lanes, r.var // group, j % lanes * group + r.var % group]
            return te.sum(ir.cast(self.A[i, r], "int32") * ir.cast(weight(w), "int32"), axis=r)

        self.C = te.compute((m, n * lanes), element, name="C")
        s = self.schedule = te.create_schedule(self.C)
        local = s.cache_write(self.C, "local")
        _, column, ii, ji = s[self.C].tile(*self.C.op.axis, rows, lanes)
        s[local].compute_at(s[self.C], column)
        outer, inner = s[local].split(local.op.reduce_axis[0], factor=group)
        s[local].reorder(outer, *local.op.axis, inner)
        s[local].tensorize(local.op.axis[0], intrin)
        s[self.C].vectorize(ji)
        s[self.C].unroll(ii)

    @property
    def args(self):
        return [self.A, self.W, self.C]

    def operands(self, seed):
        """Random ones, or the extremes of the dtypes."""
        random = np.random.default_rng(seed)
        for tensor in (self.A, self.W):
            low, high = np.iinfo(tensor.dtype).min, np.iinfo(tensor.dtype).max
            if seed % 2:
                yield random.choice([low, high, 0, 1], tensor.extents()).astype(tensor.dtype)
            else:
                yield random.integers(low, high + 1, tensor.extents()).astype(tensor.dtype)

    def expected(self, a, w):
        """In numpy's int64, cut down to 32 bits."""
        n, k, _ = w.shape
        unpacked = w.reshape(n, k, self.lanes, self.group).transpose(1, 3, 0, 2)
        unpacked = unpacked.reshape(k * self.group, n * self.lanes).astype(np.int64)
        if self.weight is intrinsics.seven_bits:
            unpacked = unpacked.clip(-64, 64)
        return (a.astype(np.int64) @ unpacked).astype(np.int32)

    def check(self, execute):
        for seed in range(4):
            a, w = self.operands(seed)
            out = np.full(self.shape[:2], -7, np.int32)
            execute(a, w, out)
            np.testing.assert_array_equal(out, self.expected(a, w))

    def assembly(self, target):
        return minitvm.build(self.schedule, self.args, target).get_source("asm")


TILES = {
    "bytes 16": lambda: (intrinsics.dot_bytes(4, 16), 4, 16, 4),
    "bytes 8": lambda: (intrinsics.dot_bytes(2, 8), 2, 8, 4),
    "bytes 12": lambda: (intrinsics.dot_bytes(1, 12), 1, 12, 4),
    "pairs": lambda: (intrinsics.dot_pairs(4, 8), 4, 8, 2, "int16", "int16"),
    "pairs of bytes": lambda: (intrinsics.dot_pairs(2, 32, "uint8", "int8"), 2, 32, 2),
    "seven bits": lambda: (intrinsics.dot_seven_bits(4, 16), 4, 16, 4, "uint8", "int8",
                           intrinsics.seven_bits),
    "signed": lambda: (intrinsics.dot_bytes(4, 8, "int8", "int8"), 4, 8, 4, "int8", "int8"),
    "unsigned": lambda: (intrinsics.dot_bytes(2, 4, "uint8", "uint8"), 2, 4, 4, "uint8", "uint8"),
}
NEEDS = {
    # targets and the instruction in their hot loop; a target without one
    "bytes 16": ({VNNI: "vpdpbusd\\t.*zmm", AVX_VNNI: "{vex}\\tvpdpbusd\\t.*ymm",
                  NEOVERSE: "usdot\\t"}, AVX2),
    "bytes 8": ({VNNI: "vpdpbusd\\t.*ymm", AVX_VNNI: "{vex}\\tvpdpbusd\\t.*ymm"}, CORTEX),
    "bytes 12": ({VNNI: "vpdpbusd\\t.*xmm", AVX_VNNI: "{vex}\\tvpdpbusd\\t.*xmm"}, SKYLAKE),
    "pairs": ({AVX2: "vpmaddwd\\t.*ymm", VNNI: "vpdpwssd\\t.*ymm"}, OLD),
    "pairs of bytes": ({AVX2: "vpmaddwd\\t.*ymm", SKYLAKE: "vpmaddwd\\t.*zmm",
                        VNNI: "vpdpwssd\\t.*zmm"}, OLD),
    "seven bits": ({AVX2: "vpmaddubsw\\t.*ymm", SKYLAKE: "vpmaddubsw\\t.*zmm"}, OLD),
    "signed": ({CORTEX: "sdot\\t", NEOVERSE: "sdot\\t"}, OLD_ARM),
    "unsigned": ({CORTEX: "udot\\t"}, OLD_ARM),
}  # fmt: skip


@pytest.mark.parametrize("name", TILES)
def test_results_are_exact(name):
    """By the interpreter with the instructions; by machine code with them, if this CPU has them,
    else with the loop that stands in for them."""
    product = Product(*TILES[name]())
    func = te.lower(product.schedule, product.args)
    assert re.search("(x86|arm)_", print_func(func))
    product.check(lambda *arrays: run(func, arrays))
    product.check(minitvm.build(product.schedule, product.args))


@pytest.mark.parametrize(("name", "target"), [
    pytest.param(name, target, id=f"{name}-{target.cpu}")
    for name, (targets, _) in NEEDS.items() for target in targets])
def test_the_hot_loop_is_the_instruction(name, target):
    """In registers, without a multiplication beside it."""
    product = Product(*TILES[name]())
    wanted = NEEDS[name][0][target]
    hot = [loop for loop in innermost_loops(product.assembly(target))
           if any(re.match(wanted, line) for line in loop.instructions)]
    assert len(hot) == 1 and not hot[0].stack_accesses
    assert not any(re.match(r"(v?pmull|imull|mul|smull|umull)", line)
                   for line in hot[0].instructions)
    func = te.lower(product.schedule, product.args, target=target)
    product.check(lambda *arrays: run(func, arrays))


@pytest.mark.parametrize("name", TILES)
def test_targets_without_it_run_a_loop_that_gives_the_same(name):
    product = Product(*TILES[name]())
    targets, other = NEEDS[name]
    func = te.lower(product.schedule, product.args, target=other)
    assert "lane" in print_func(func) and not re.search("(x86|arm)_", print_func(func))
    product.check(lambda *arrays: run(func, arrays))
    assembly = product.assembly(other)
    assert not any(re.search(instruction, assembly) for instruction in targets.values())


@pytest.mark.parametrize("rows", [1, 4])
def test_fma_tiles_stay_in_registers(rows):
    lanes = 8
    A, B = te.placeholder((8, 6), name="A"), te.placeholder((6, 16), name="B")
    r = te.reduce_axis((0, 6), name="r")
    C = te.compute((8, 16), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="C")
    s = te.create_schedule(C)
    local = s.cache_write(C, "local")
    _, column, _, ji = s[C].tile(*C.op.axis, rows, lanes)
    s[local].compute_at(s[C], column)
    s[local].reorder(*local.op.reduce_axis, *local.op.axis)
    s[local].tensorize(local.op.axis[0], intrinsics.fma_tile(rows, lanes))
    s[C].vectorize(ji)
    random = np.random.default_rng(0)
    a, b = (random.integers(-9, 9, shape).astype("float32") for shape in ((8, 6), (6, 16)))
    out = np.zeros((8, 16), "float32")
    minitvm.build(s, [A, B, C])(a, b, out)
    np.testing.assert_array_equal(out, a @ b)
    for target, mnemonic in ((AVX2, "vfmadd"), (CORTEX, "fmla"), (OLD, "mulps")):
        loops = innermost_loops(minitvm.build(s, [A, B, C], target).get_source("asm"))
        hot = [loop for loop in loops if any(line.startswith(mnemonic)
                                             for line in loop.instructions)]
        assert hot and not hot[0].stack_accesses, target


def test_weights_of_eight_bits_are_no_weights_of_seven():
    with pytest.raises(ScheduleError, match="its body is not that of the intrinsic"):
        Product(intrinsics.dot_seven_bits(4, 8), 4, 8, 4)


def test_operands_in_the_wrong_order_are_refused():
    with pytest.raises(ScheduleError, match=r"its body is not that|is not like that"):
        Product(intrinsics.dot_bytes(4, 8), 4, 8, 4, "int8", "uint8")


def needs_vnni(name, **options):
    tile = intrinsics.dot_bytes(4, 16)
    return te.decl_tensor_intrin(tile.op, tile.function, name, tile.features, **options)


def test_without_a_body_for_them_other_targets_are_refused():
    product = Product(needs_vnni("only_vnni"), 4, 16, 4)
    assert "vpdpbusd" in product.assembly(VNNI)
    with pytest.raises(LoweringError) as caught:
        minitvm.build(product.schedule, product.args, AVX2)
    assert re.fullmatch(
        r"the intrinsic only_vnni needs a target with avx512vnni \(such as -mcpu=cascadelake\); "
        r"'llvm .*-mcpu=x86-64-v3' lacks it: compile for one that has it, use another intrinsic, "
        r"or declare this one with a body for any target", str(caught.value))


def test_all_bodies_are_tried_when_the_schedule_is_made():
    def wrong(inputs, outputs):
        return None, None, outputs[0].vstore(0, 1)

    with pytest.raises(ScheduleError, match="with 1 indices"):
        Product(needs_vnni("broken", others=[((), wrong)]), 4, 16, 4)


@pytest.mark.parametrize(("call", "message"), [
    (lambda: intrinsics.dot_bytes(1, 5), "no dot_bytes of 1 rows and 5 lanes"),
    (lambda: intrinsics.dot_bytes(0, 8), "no dot_bytes of 0 rows"),
    (lambda: intrinsics.dot_pairs(1, 8, "uint16"), "not uint16"),
    (lambda: intrinsics.dot_bytes(1, 4, "int8", "uint8"), "not int8 with uint8"),
], ids=["lanes", "rows", "dtype", "signs"])
def test_tiles_that_are_none(call, message):
    with pytest.raises(ScheduleError, match=message):
        call()


@given(st.data())
def test_random_tiles(data):
    """Rows, lanes and sizes at random."""
    rows = data.draw(st.sampled_from([1, 2, 3, 6]))
    make, group, a, b = data.draw(st.sampled_from([
        (intrinsics.dot_bytes, 4, "uint8", "int8"), (intrinsics.dot_bytes, 4, "int8", "int8"),
        (intrinsics.dot_pairs, 2, "int16", "int16")]))
    lanes = data.draw(st.sampled_from([8, 16, 24]))
    product = Product(make(rows, lanes, a, b), rows, lanes, group, a, b, m=6,
                      n=data.draw(st.integers(1, 3)), k=data.draw(st.integers(1, 4)))
    func = te.lower(product.schedule, product.args)
    product.check(lambda *arrays: run(func, arrays))
