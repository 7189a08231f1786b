"""Rolling buffers: each row is computed once, values stay, memory is that of a window."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitvm import te
from minitvm.codegen.jit import build_kernel
from minitvm.codegen.llvm import function_to_llvm
from minitvm.codegen.machine import emit_assembly
from minitvm.errors import ScheduleError
from minitvm.target import Target
from minitvm.te.schedule import Schedule
from minitvm.te.tensor import Tensor
from minitvm.testing.assembly import innermost_loops
from minitvm.testing.te_machine import run_interpreter, run_machine
from minitvm.testing.te_oracle import Program, evaluate, random_inputs
from minitvm.tir import ir, passes
from minitvm.tir.ir import Allocate, For, If, PrimFunc
from minitvm.tir.text import print_func
from minitvm.tir.walk import walk_statements
from minitvm.tir.work import count_work

COLUMNS = 6


@dataclass(frozen=True)
class Window:
    """How rows of a reader lie on those of what it reads."""

    size: int
    stride: int = 1
    dilation: int = 1
    padding: int = 0
    backwards: bool = False

    @property
    def span(self) -> int:
        return (self.size - 1) * self.dilation + 1

    def rows_read(self, rows: int) -> int:
        return (rows - 1) * self.stride + self.span - 2 * self.padding


def windowed(source: Tensor, rows: int, window: Window, name: str) -> Tensor:
    """Sums over windows of rows; outside of `source` there are zeros."""
    k = te.reduce_axis((0, window.size), "k")
    count = window.rows_read(rows)

    def value(i, j):
        at = rows - 1 - i if window.backwards else i
        row = at * window.stride + k * window.dilation - window.padding
        read = source[row, j]
        if window.padding:
            read = te.if_then_else(te.all(row >= 0, row < count), read, 0.0)
        return te.sum(read, axis=k)

    return te.compute((rows, COLUMNS), value, name=name)


def chain(rows: int, windows: list[Window]) -> tuple[Program, list[Tensor]]:
    """x -> first (pointwise) -> sums over windows, one after the other."""
    sizes = [rows]
    for window in reversed(windows):
        sizes.insert(0, window.rows_read(sizes[0]))
    x = te.placeholder((sizes[0], COLUMNS), name="x")
    made = [te.compute(x.shape, lambda i, j: x[i, j] * 2.0 + 1.0, name="first")]
    for number, (size, window) in enumerate(zip(sizes[1:], windows, strict=True)):
        made.append(windowed(made[-1], size, window, f"sums{number}"))
    return Program((x,), (made[-1],)), made


def check(schedule: Schedule, program: Program) -> None:
    inputs = random_inputs(program, seed=5)
    wanted = evaluate(program, inputs)
    for run in (run_interpreter, run_machine):
        for got, want in zip(run(schedule, program, inputs), wanted, strict=True):
            np.testing.assert_array_equal(got, want, err_msg=str(schedule))


def memory(func: PrimFunc) -> dict[str, tuple[int, ...]]:
    return {item.buffer.name: item.buffer.extents() for item in walk_statements(func.body)
            if isinstance(item, Allocate)}


def windows() -> st.SearchStrategy[Window]:
    """Windows that overlap, and padding that leaves something of them."""
    def built(size, stride, dilation, padding, backwards):
        window = Window(size, 1, dilation, 0, backwards)
        stride = min(stride, window.span - 1)
        return Window(size, stride, dilation, min(padding, window.span - 1), backwards)

    return st.builds(built, st.integers(2, 4), st.integers(1, 3), st.integers(1, 2),
                     st.integers(0, 1), st.booleans())


@given(st.integers(4, 9), st.lists(windows(), min_size=1, max_size=3), st.integers(0, 4))
def test_chains_row_by_row_compute_each_row_once(rows, chained, tile):
    program, made = chain(rows, chained)
    plain = te.create_schedule(program.outputs)
    s = te.create_schedule(program.outputs)
    (i, _, _) = s[made[-1]].leaf_iter_vars
    if tile:
        i, _ = s[made[-1]].split(i, factor=tile)
    rolling = []
    for tensor in reversed(made[:-1]):
        s[tensor].compute_at(s[made[-1]], i)
        try:
            s[tensor].rolling_buffer()
            rolling.append(tensor)
        except ScheduleError as error:  # a tile without overlap, clipped at the image's edge
            assert "rolling_buffer of stage" in str(error)
    check(s, program)
    if not tile and rolling == made[-2::-1]:
        work = [count_work(te.lower(each, program.args)).flops for each in (s, plain)]
        assert work[0] <= work[1], "some row is computed twice"


@pytest.mark.parametrize("window", [
    Window(3), Window(3, stride=2), Window(3, dilation=2), Window(2, dilation=3, stride=2),
    Window(3, padding=1), Window(3, stride=2, padding=1), Window(4, stride=3, backwards=True),
    Window(3, padding=1, backwards=True),
], ids=str)
def test_memory_is_a_window_and_work_that_of_the_plain_schedule(window):
    program, (first, sums) = chain(8, [window])
    plain = te.create_schedule(sums)
    s = te.create_schedule(sums)
    s[first].compute_at(s[sums], sums.op.axis[0])
    again = count_work(te.lower(s, program.args)).flops
    s[first].rolling_buffer()
    func = te.lower(s, program.args)
    assert memory(func) == {"first": (window.span, COLUMNS)}
    assert count_work(func).flops == count_work(te.lower(plain, program.args)).flops < again
    check(s, program)
    again = Schedule.replay(sums, Schedule.parse_log(str(s)))
    assert print_func(te.lower(again, program.args)) == print_func(func)
    assert ", rolling over i" in s.show()


def test_the_first_iteration_is_peeled_off_and_the_loop_has_no_guard():
    program, (first, sums) = chain(8, [Window(3)])
    s = te.create_schedule(sums)
    s[first].compute_at(s[sums], sums.op.axis[0])
    s[first].rolling_buffer()
    machine = passes.lower(te.lower(s, program.args))
    assert not any(isinstance(item, If) for item in walk_statements(machine.body))
    loops = [item for item in walk_statements(machine.body) if isinstance(item, For)]
    assert sum(item.var.name == "i" and item.start.value == 1 for item in loops) >= 1


def test_a_chain_rolls_through_a_stage_that_does_not():
    """What does not roll is computed again for the rows that are new, or for all at first."""
    program, (first, middle, last) = chain(7, [Window(3, padding=1), Window(3, padding=1)])
    s = te.create_schedule(last)
    s[middle].compute_at(s[last], last.op.axis[0])
    s[first].compute_at(s[last], last.op.axis[0])
    s[middle].rolling_buffer()
    check(s, program)
    s[first].rolling_buffer()
    check(s, program)


def test_rows_of_a_reader_that_are_outside_of_it_do_not_stop_the_window():
    """`middle` is computed above its first row, where its guard fails: what rolls inside its loop
    is computed there nevertheless, as later rows need it."""
    program, (first, middle, last) = chain(7, [Window(2), Window(3, padding=1)])
    s = te.create_schedule(last)
    s[middle].compute_at(s[last], last.op.axis[0])
    s[first].compute_at(s[middle], middle.op.axis[0])
    s[first].rolling_buffer()
    check(s, program)


@pytest.mark.parametrize("step", [
    lambda s, first, sums: s[sums].reorder("j", "i", "k"),
    lambda s, first, sums: s[sums].split("i", factor=3),
    lambda s, first, sums: s[sums].unroll("i"),
    lambda s, first, sums: s[first].split("i", factor=2),
    lambda s, first, sums: s[first].reorder("j", "i"),
    lambda s, first, sums: s[first].fuse("i", "j"),
    lambda s, first, sums: s[first].vectorize("j"),
    lambda s, first, sums: s[first].storage_align("i", 4, 1),
    lambda s, first, sums: s[first].set_scope("global"),
    lambda s, first, sums: s[first].compute_root(),
    lambda s, first, sums: s.cache_write(first, "local"),
])
def test_further_steps_keep_the_values(step):
    program, (first, sums) = chain(7, [Window(3, padding=1)])
    s = te.create_schedule(sums)
    s[first].compute_at(s[sums], "i")
    s[first].rolling_buffer()
    step(s, first, sums)
    check(s, program)


def test_outer_loops_start_again_and_may_be_parallel():
    program, (first, sums) = chain(8, [Window(3)])
    s = te.create_schedule(sums)
    outer, inner = s[sums].split("i", factor=4)
    s[sums].parallel(outer)
    s[first].compute_at(s[sums], inner)
    s[first].rolling_buffer()
    check(s, program)


def rolled():
    _, (first, sums) = chain(7, [Window(3)])
    s = te.create_schedule(sums)
    s[first].compute_at(s[sums], "i")
    return s, first, sums


@pytest.mark.parametrize(("change", "message"), [
    (lambda s, first, sums: (s[first].compute_root(), s[first].rolling_buffer()),
     "it is computed in no loop of another stage. Legal choices: compute_at first"),
    (lambda s, first, sums: (s[first].rolling_buffer(), s[sums].parallel("i")),
     "whose iterations follow one another; it can't be parallel"),
    (lambda s, first, sums: (s[sums].parallel("i"), s[first].rolling_buffer()),
     "whose iterations follow one another; it can't be parallel"),
    (lambda s, first, sums: (s[first].rolling_buffer(), s[sums].fuse("i", "j")),
     "does not move by the same distance each time"),
    (lambda s, first, sums: (s[first].compute_at(s[sums], "j"), s[first].rolling_buffer()),
     "needs 1 of it, 1 further each time: nothing that was computed before"),
    (lambda s, first, sums: (s[sums].reorder("k", "i", "j"), s[first].rolling_buffer()),
     "needs 1 of it, 1 further each time"),
    (lambda s, first, sums: (s[sums].reorder("j", "i", "k"), s[first].compute_at(s[sums], "j"),
                             s[first].rolling_buffer()),
     "needs 1 of it, 1 further each time"),
    (lambda s, first, sums: s[sums].rolling_buffer(), "computed in no loop of another stage"),
])
def test_what_is_refused(change, message):
    s, first, sums = rolled()
    with pytest.raises(ScheduleError) as error:
        change(s, first, sums)
    assert message in str(error.value)


def test_what_moves_in_two_dimensions_or_in_none_is_refused():
    x = te.placeholder((12, 12), name="x")
    t = te.compute((12, 12), lambda i, j: x[i, j] + 1.0, name="t")
    diagonal = te.compute((9,), lambda i: t[i, i] + t[i + 2, i + 3], name="diagonal")
    fixed = te.compute((9, 12), lambda i, j: t[3, j] + t[4, j], name="fixed")
    for reader, words in ((diagonal, "moves in 2 dimensions"), (fixed, "moves in 0 dimensions")):
        s = te.create_schedule(reader)
        s[t].compute_at(s[reader], "i")
        with pytest.raises(ScheduleError, match=words):
            s[t].rolling_buffer()
        assert not s[t].stage.rolls


def test_steps_of_a_recurrence_roll():
    """What a step needs of the steps before, smoothed, is kept from step to step."""
    x = te.placeholder((9, COLUMNS), name="x")
    state = te.placeholder((9, COLUMNS), name="state")
    init = te.compute((2, COLUMNS), lambda t, i: x[t, i] + 0.0, name="init")
    smooth = te.compute((9, COLUMNS), lambda t, i: state[t - 1, i] - x[t - 1, i], name="smooth")
    update = te.compute((9, COLUMNS), lambda t, i: smooth[t, i] + smooth[t - 1, i] + x[t, i],
                        name="update")
    result = te.scan(init, update, state, name="result")
    s = te.create_schedule(result)
    s[smooth].rolling_buffer()
    func = te.lower(s, [x, result])
    assert memory(func) == {"smooth": (2, COLUMNS)}
    check(s, Program((x,), (result,)))


def test_symbolic_rows_take_the_memory_of_a_window():
    n = te.var("n")
    x = te.placeholder((n + 2, 5), name="x")
    t = te.compute((n + 2, 5), lambda i, j: x[i, j] * 2.0, name="t")
    out = te.compute((n, 5), lambda i, j: t[i, j] + t[i + 1, j] + t[i + 2, j], name="out")
    s = te.create_schedule(out)
    s[t].compute_at(s[out], out.op.axis[0])
    s[t].rolling_buffer()
    assert memory(te.lower(s, [x, out])) == {"t": (3, 5)}
    for rows in (0, 1, 2, 9):
        given_rows = np.arange((rows + 2) * 5, dtype="float32").reshape(rows + 2, 5)
        got = np.empty((rows, 5), "float32")
        build_kernel(passes.lower(te.lower(s, [x, out])))(rows, given_rows, got)
        wanted = 2 * (given_rows[:-2] + given_rows[1:-1] + given_rows[2:])
        np.testing.assert_array_equal(got, wanted[:rows])


def test_a_tensor_intrinsic_does_not_run_around_the_end_of_the_buffer():
    rows = te.placeholder((3,), name="rows")
    copied = te.compute((3,), lambda i: rows[i] + 0.0, name="copied")
    intrin = te.decl_tensor_intrin(
        copied.op, lambda inputs, outputs: outputs[0].vstore(inputs[0].vload()), name="copy_three")
    x = te.placeholder((10,), name="x")
    t = te.compute((10,), lambda i: x[i] * 2.0, name="t")
    out = te.compute((8, 3), lambda i, c: t[i + c] + 0.0, name="out")
    s = te.create_schedule(out)
    s[t].compute_at(s[out], "i")
    s[t].rolling_buffer()
    with pytest.raises(ScheduleError, match="the memory of t goes round in a rolling buffer"):
        s[out].tensorize("c", intrin)
    check(s, Program((x,), (out,)))


def expanded_and_filtered(size: int) -> tuple[Schedule, list[Tensor]]:
    """A 1x1 convolution, clipped below, and a depthwise 3x3 one; rows of the first roll."""
    blocks, lanes, inputs = 2, 8, 12
    x = te.placeholder((size, size, inputs), name="x")
    w = te.placeholder((blocks, inputs, lanes), name="w")
    d = te.placeholder((blocks, 3, 3, lanes), name="d")
    c = te.reduce_axis((0, inputs), "c")
    ky, kx = te.reduce_axis((0, 3), "ky"), te.reduce_axis((0, 3), "kx")
    shape = (blocks, size, size, lanes)
    sums = te.compute(shape, lambda b, i, j, v: te.sum(x[i, j, c] * w[b, c, v], axis=c), name="e")
    clipped = te.compute(shape, lambda b, i, j, v: ir.maximum(sums[b, i, j, v], 0.0), name="r")

    def filtered(b, i, j, v):
        row, column = i + ky - 1, j + kx - 1
        inside = te.all(row >= 0, row < size, column >= 0, column < size)
        tap = te.if_then_else(inside, clipped[b, row, column, v], 0.0)
        return te.sum(tap * d[b, ky, kx, v], axis=[ky, kx])

    out = te.compute(shape, filtered, name="out")
    s = te.create_schedule(out)
    kept = s.cache_write(out, "local")
    b, i, j, v = s[out].leaf_iter_vars
    outer, inner = s[out].split(j, factor=7)
    s[out].reorder(b, i, outer, inner, v)
    s[out].vectorize(v)
    s[kept].compute_at(s[out], outer)
    _, _, j, v, *taps = s[kept].leaf_iter_vars
    s[kept].reorder(*taps, j, v)
    s[kept].vectorize(v)
    s[kept].unroll(j)
    s[clipped].compute_at(s[out], i)
    s[clipped].rolling_buffer()
    outer, inner = s[clipped].split("j", factor=7)
    s[clipped].reorder(outer, inner, "v")
    s[clipped].vectorize("v")
    s[sums].compute_at(s[clipped], outer)
    s[sums].reorder("c", "j", "v")
    s[sums].vectorize("v")
    s[sums].unroll("j")
    return s, [x, w, d, out]


def test_fused_convolutions_keep_three_rows_and_run_from_registers():
    size = 14
    s, args = expanded_and_filtered(size)
    func = te.lower(s, args)
    assert memory(func)["r"] == (1, 3, size, 8)
    target = Target("llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64-v3")
    loops = [loop for loop in innermost_loops(
        emit_assembly(function_to_llvm(passes.lower(func), target), target))
        if loop.multiplies_and_adds]
    assert loops
    for loop in loops:
        assert not loop.stack_accesses
        branches = [line for line in loop.instructions if line.startswith("j")]
        assert len(branches) == 1, "no guard of a row stands in a hot loop"
        assert not any("div" in line or "mul\t" in line.replace("vmul", "")
                       for line in loop.instructions), "nor is the place of a row computed there"
    rng = np.random.default_rng(2)
    x, w, d = (rng.integers(-3, 4, array.extents()).astype("float32") for array in args[:3])
    got = np.empty(args[3].extents(), "float32")
    build_kernel(passes.lower(func))(x, w, d, got)
    middle = np.maximum(np.einsum("ijc,bcv->bijv", x, w), 0)
    padded = np.pad(middle, ((0, 0), (1, 1), (1, 1), (0, 0)))
    wanted = sum(padded[:, p : p + size, q : q + size] * d[:, None, None, p, q]
                 for p in range(3) for q in range(3))
    np.testing.assert_array_equal(got, wanted)
