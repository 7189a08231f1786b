"""The log of a schedule: statements that rebuild it, read back as the same steps."""

import pytest

from minitvm import te
from minitvm.errors import ParseError
from minitvm.te import steps
from minitvm.te.log_text import write_log
from minitvm.te.schedule import Schedule
from minitvm.tir.text import print_func


def example():
    A, B = te.placeholder((10, 6), name="A"), te.placeholder((6, 8), name="B")
    k = te.reduce_axis((0, 6), name="k")
    C = te.compute((10, 8), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    D = te.compute((10, 8), lambda y, x: C[y, x] + 1.0, name="D")
    return A, B, C, D


LOG = """\
s["D"].split("y", factor=4)
s["D"].split("x", nparts=2)
s["D"].reorder("y.outer", "x.outer", "y.inner", "x.inner")
s["D"].vectorize("x.inner")
s["D"].pragma("y.outer", "note", 3)
s["C"].compute_at(s["D"], "x.outer")
s["C"].set_scope("local")
s["C"].storage_align("i", 16, 4)
s.cache_read("A", "local", ["C"])
s["A.local"].compute_inline()
s["C"].unroll("k")
"""


def test_the_log_runs_and_reads_back():
    A, B, _, D = example()
    s = te.create_schedule(D)
    exec(LOG, {"s": s})
    assert str(s) == s.to_python() == LOG
    assert Schedule.parse_log(LOG) == s.steps
    again = Schedule.replay(D, Schedule.parse_log(str(s)))
    assert print_func(te.lower(again, [A, B, D])) == print_func(te.lower(s, [A, B, D]))


def test_outputs_of_a_tuple_are_told_by_index():
    step = steps.CacheRead("pair", 1, "local", ("C",))
    text = 's.cache_read("pair", "local", ["C"], index=1)\n'
    assert Schedule.parse_log(text) == (step,)


def test_short_forms_are_read():
    text = 'xo, yo, xi, yi = s["D"].tile("y", "x", 4, 2)\ns["D"].split("y.inner", 2)\n'
    assert Schedule.parse_log(text) == (
        steps.Split("D", "y", 4), steps.Split("D", "x", 2),
        steps.Reorder("D", ("y.outer", "x.outer", "y.inner", "x.inner")),
        steps.Split("D", "y.inner", 2))


@pytest.mark.parametrize(("line", "message"), [
    ("x = 3", "expected a step"),
    ('s["C"].dance("i")', "no primitive dance; there are bind"),
    ("s[C].split(4)", r"`s\[C\]` is no stage"),
    ('s["C"].split(i, factor=4)', "`i` is no literal"),
    ('s["C"].split("i", factor="four")', "factor of Split takes int"),
    ('s["C"].split("i", parts=4)', "parts"),
    ('s["C"].split(', "never closed"),
    ('s.split("C", "i", 4)', "no primitive split; there are cache_read"),
])
def test_what_is_no_log_is_refused_with_its_line(line, message):
    with pytest.raises(ParseError, match=message) as caught:
        Schedule.parse_log('s["C"].unroll("i")\n' + line)
    assert str(caught.value).startswith("<schedule>:2:")


def test_names_with_quotes_survive():
    for name in ("a'b", 'a"b', "a'\"b", "a\\b", "ü\n"):
        step = steps.Split(name, name, 2)
        assert Schedule.parse_log(write_log((step,))) == (step,)
