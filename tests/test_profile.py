"""Profiles: every call is timed once, work and time add up, results stay what they are."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

import minitvm
from minitvm.codegen.jit import load_program
from minitvm.codegen.marks import MARK, mark_program
from minitvm.errors import InputError, OptionError
from minitvm.peak import CHAINS, peak_loop, read_loop
from minitvm.profile import Profile, Row
from minitvm.target import Target
from minitvm.testing import zoo
from minitvm.tir import ir
from minitvm.tir.walk import walk_statements
from minitvm.tir.work import count_work

sys.path.insert(0, str(Path(__file__).parent / "relay"))
from functional_programs import program

LOOPS = """
def main(x: VECTOR, n: COUNT, c: FLAG) -> VECTOR:
    a = exp(x)  #: "first"
    r = repeat(n, a)  #: "repeat"
    if c:  #: "if"
        o = tanh(r)  #: "then"
        out = o
    else:
        out = r
    return out

def repeat(n: COUNT, x: VECTOR) -> VECTOR:
    more = greater(n, const(0, (), "int32"))  #: "test"
    if more:  #: "if"
        y = sin(x)  #: "turn"
        m = subtract(n, const(1, (), "int32"))  #: "less"
        z = repeat(m, y)  #: "again"
        w = z
    else:
        w = x
    return w
"""


@pytest.fixture(scope="module")
def network():
    return minitvm.compile(zoo.mobilenet_v2(0, image=64, width=0.35))


@pytest.fixture(scope="module")
def profile(network):
    return network.profile(repeat=20)


def test_every_call_has_a_row_in_order(network, profile):
    invokes = [s for s in walk_statements(network.main.body) if isinstance(s, ir.Invoke)]
    assert [row.name for row in profile.calls] == [invoke.callee for invoke in invokes]
    assert [row.nodes for row in profile.calls] == [invoke.origin.names for invoke in invokes]
    assert all(row.calls == 1 and row.seconds > 0 for row in profile.calls)
    assert {row.name for row in profile.kernels} == {kernel.name for kernel in network.kernels}


def test_times_add_up(profile):
    total = profile.total()
    for rows in (profile.kernels, profile.nodes):
        assert sum(row.seconds for row in rows) == pytest.approx(total.seconds)
        assert sum(row.calls for row in rows) == total.calls == len(profile.calls)
        assert [row.seconds for row in rows] == sorted((row.seconds for row in rows), reverse=True)
    assert profile.kernel_seconds == pytest.approx(total.seconds)
    assert 0.8 < profile.coverage < 1.2  # near 1, on a machine that others use too


def test_work_is_that_of_the_kernels(network, profile):
    works = {kernel.name: count_work(kernel.func) for kernel in network.kernels}
    assert all(row.flops == works[row.name].flops for row in profile.calls)
    total = profile.total()
    assert total.flops == sum(works[row.name].flops for row in profile.calls)
    assert total.bytes_written == sum(works[row.name].bytes_written for row in profile.calls)
    image = next(row for row in profile.calls if row.kernels == (profile.calls[0].name,))
    assert image.bytes_read >= 3 * 64 * 64 * 4 and image.exact


def test_the_tables_and_the_json_say_the_same(profile):
    header, rows = profile.kernels_table(3)
    assert len(rows) == 5 and all(len(row) == len(header) for row in rows)
    assert rows[3][0] == f"{len(profile.kernels) - 3} more" and rows[-1][0] == "all kernels"
    assert rows[-1][3] == "100.0%"
    assert len(profile.nodes_table()[1]) == len(profile.nodes) + 1
    assert len(profile.calls_table()[1]) == len(profile.calls) + 1
    data = json.loads(profile.json())
    assert data["kernel_seconds"] == pytest.approx(profile.kernel_seconds)
    assert [row["flops"] for row in data["calls"]] == [row.flops for row in profile.calls]
    assert data["nodes"][0]["nodes"] == list(profile.nodes[0].nodes)
    assert profile.kernels[0].name in str(profile) and "processor time" in str(profile)


def test_figures_of_a_row():
    row = Row("k", ("k",), ("Conv_0",), 2, 1e-3, 10**8, 10**6, 10**6, False, 4e-4, 5e-4, 5e-4)
    assert (row.gflops, row.gigabytes, row.roofline) == pytest.approx((100, 2, 0.5))
    assert row.bound == "memory"
    profile = Profile("m", "llvm", 1, 1, 2e-3, 3e-3, 50.0, (row, row))
    assert profile.coverage == pytest.approx(1.0) and profile.total().seconds == 2e-3
    cells = profile.kernels_table()[1][0]
    assert cells == ("k", "4", "2.000", "100.0%", "<=0.2000", "100.0", "4.00", "2.0", "50% memory")


def test_loops_and_branches_are_counted_as_they_run():
    compiled = minitvm.compile(program(LOOPS))
    x = np.linspace(-1, 1, 4, dtype=np.float32)
    for turns, then in ((0, True), (7, False)):
        inputs = {"x": x, "n": np.array(turns, np.int32), "c": np.array(then)}
        found = {row.nodes: row.calls for row in compiled.profile(inputs, repeat=2).calls}
        assert found[("first",)] == 1
        assert found.get(("turn",), 0) == turns
        assert found.get(("then",), 0) == then
        assert found[("test",)] == turns + 1


def test_marks_change_no_result(network):
    x = {"input": np.random.default_rng(0).random((1, 3, 64, 64), np.float32)}
    marked = mark_program(network.program)
    results = load_program(marked.program).run(x)
    record = results.pop("minitvm_record")
    assert record.shape == marked.new_record().shape
    for name, expected in network.run(x).items():
        np.testing.assert_array_equal(results[name], expected)
    invokes = [s for s in walk_statements(marked.program.main.body) if isinstance(s, ir.Invoke)]
    assert sum(invoke.callee == MARK for invoke in invokes) == len(marked.calls) + 2


@pytest.mark.parametrize("threads", [1, 2])
def test_every_nanosecond_between_first_and_last_mark_is_charged_to_one_call(network, threads):
    marked = mark_program(network.program, threads)
    record = marked.new_record()
    load_program(marked.program, threads).run({"input": np.zeros((1, 3, 64, 64), np.float32)},
                                              {"minitvm_record": record})
    last, (first, _), *rows = record[0], record[1:3], *record[3:].reshape(-1, 2)
    assert sum(nanoseconds for nanoseconds, _ in rows) == last - first > 0
    assert [count for _, count in rows] == [1] * (len(marked.calls) + 1)


def test_a_profile_of_several_threads(network, profile):
    found = network.profile(repeat=3, threads=2)
    assert found.threads == 2 and profile.threads == 1 and found.data()["threads"] == 2
    assert "on 2 threads" in found.summary() and "processor time" in profile.summary()
    for row, single in zip(found.calls, profile.calls, strict=True):
        assert (row.nodes, row.flops, row.calls) == (single.nodes, single.flops, single.calls)
    row, single = found.calls[0], profile.calls[0]
    assert row.compute_seconds == pytest.approx(row.flops / found.peak_gflops / 2e9)
    assert single.compute_seconds == pytest.approx(single.flops / profile.peak_gflops / 1e9)


def test_what_a_call_takes_is_charged_to_it():
    """A product with a hundred times the work takes most of the time."""
    text = """
def main(x: Tensor((300, 256), "float32"), y: Tensor((3, 256), "float32"),
         w: Tensor((256, 256), "float32")) -> Tuple(Tensor((300, 256), "float32"),
                                                    Tensor((3, 256), "float32")):
    a = nn.dense(x, w)  #: "large"
    b = nn.dense(y, w)  #: "small"
    t = (a, b)
    return t
"""
    found = minitvm.compile(minitvm.relay.parse_module(text)).profile(repeat=10)
    rows = {row.nodes: row for row in found.nodes}
    assert 2 * 300 * 256 * 256 <= rows["large",].flops < 2.2 * 300 * 256 * 256
    assert rows["large",].seconds > 5 * rows["small",].seconds


def test_unfit_arguments_are_refused(network):
    with pytest.raises(OptionError, match=r"repeat is 0; .* at least one run"):
        network.profile(repeat=0)
    with pytest.raises(InputError, match="no input 'inputs'; did you mean 'input'"):
        network.profile({"inputs": 1})


def test_the_peak_is_of_the_right_size():
    peak = peak_loop(Target.host())
    assert peak.flops == 2 * CHAINS * Target.host().lanes("float32") * 100_000
    assert 1 < peak.gflops() < 1000
    read = read_loop(Target.host())
    assert 0.1 < read.gigabytes(1 << 16) < 2000
    assert read.gigabytes(1 << 16) == read.gigabytes((1 << 16) - 5)  # measured once
    assert set(read.found) == {1 << 16}


def test_reading_reads_all_that_it_says():
    read = read_loop(Target.host())
    count = 3 * read.block
    data = np.arange(count, dtype=np.float32)
    result = np.zeros(read.block, np.float32)
    read.run(count, 2, data, result)
    np.testing.assert_array_equal(result, 2 * data.reshape(3, -1).sum(axis=0))
