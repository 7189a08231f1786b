"""Instruments see every pass, in order, and stop the compilation where they refuse."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from minitvm.errors import VerifyError
from minitvm.instruments import DumpIR, PassTimer, VerifyEach
from minitvm.transform import PASS_NAMES, Pass, PassContext, Sequential


@pytest.fixture
def passes() -> Iterator[Sequential[str]]:
    made: list[Pass[str]] = [
        Pass("TestAppend", lambda text: text + "b"),
        Pass("TestKeep", lambda text: text),
        Pass("Test/Slash", lambda text: text + "c"),
    ]
    yield Sequential(made)
    for item in made:
        PASS_NAMES.pop(item.name, None)


def test_timer_sums_by_pass(passes: Sequential[str]) -> None:
    timer = PassTimer()
    with PassContext(instruments=[timer]):
        passes("a")
        passes("a")
    assert timer.runs == {"TestAppend": 2, "TestKeep": 2, "Test/Slash": 2}
    assert all(seconds > 0 for seconds in timer.seconds.values())
    lines = timer.table().splitlines()
    assert len(lines) == 5 and lines[-1].endswith("total")


def test_dump_writes_what_changed(passes: Sequential[str], tmp_path: Path) -> None:
    with PassContext(instruments=[DumpIR(tmp_path / "new", str.upper)]):
        passes("a")
    files = sorted((tmp_path / "new").iterdir())
    assert [file.name for file in files] == [
        "000_input.txt", "001_TestAppend.txt", "003_Test_Slash.txt"
    ]
    assert [file.read_text() for file in files] == ["A", "AB", "ABC"]


def test_verify_names_the_pass_at_fault(passes: Sequential[str]) -> None:
    def refuse(text: str) -> None:
        if text.endswith("c"):
            raise VerifyError("it ends with c")

    with PassContext(instruments=[VerifyEach(refuse)]), pytest.raises(VerifyError) as caught:
        passes("a")
    assert caught.value.__notes__ == ["in pass Test/Slash"]


def test_verify_checks_origins(passes: Sequential[str]) -> None:
    pairs: list[tuple[str, str]] = []
    instrument = VerifyEach(lambda text: None, lambda before, after: pairs.append((before, after)))
    with PassContext(instruments=[instrument]):
        passes("a")
    assert pairs == [("a", "ab"), ("ab", "abc")]
