"""Remarks reach every collector that is open, and nobody else."""

from minitvm.origin import origin
from minitvm.remarks import Remark, collect, remark


def test_remarks_are_collected_in_order():
    with collect() as found:
        remark("A", "is too big", origin("n"))
        remark("B", "is too small")
    assert found == [Remark("A", "is too big", origin("n")), Remark("B", "is too small")]
    assert [str(r) for r in found] == ['A: is too big ("n")', "B: is too small"]


def test_nested_collectors_each_get_what_is_inside():
    with collect() as outer:
        remark("A", "first")
        with collect() as inner:
            remark("B", "second")
        remark("C", "third")
    assert [r.pass_name for r in outer] == ["A", "B", "C"]
    assert [r.pass_name for r in inner] == ["B"]


def test_outside_a_collector_remarks_go_nowhere():
    remark("A", "unheard")
    with collect() as found:
        pass
    assert found == []
