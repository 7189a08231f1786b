"""The examples in the docstrings of passes: `Before:` becomes `After:`.

A pass joins by being in a list of `ROOMS`, with its room's parser and printer. What the docstring
shows after `Before:` and after `After:` is text of the IR, indented; the result must print so.
"""

from __future__ import annotations

import runpy
import textwrap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from minitvm.relay import passes as relay_passes
from minitvm.relay.parser import parse_module
from minitvm.relay.printer import print_module
from minitvm.relay.verify import verify as verify_module
from minitvm.tir import passes as tir_passes
from minitvm.tir.text import parse_func, print_func
from minitvm.tir.verify import verify
from minitvm.transform import Pass, PassContext


@dataclass(frozen=True)
class Room:
    """How the examples of one IR are read, written and verified."""

    name: str
    passes: Iterable[Pass[Any]]
    parse: Callable[[str], Any]
    print: Callable[[Any], str]
    verify: Callable[[Any], None]


RELAY_PASSES = (*relay_passes.ALL, *relay_passes.WITH_OPTIONS, *relay_passes.EVALUATING)
ROOMS = [
    Room("tir", tir_passes.ALL, parse_func, print_func, verify),
    Room("relay", RELAY_PASSES, parse_module, print_module, verify_module),
]


def sections(docstring: str) -> Iterator[tuple[str, str]]:
    """The titled, indented pieces of a docstring: ("Before", text), ("After", text), ..."""
    lines = textwrap.dedent("    " + docstring).splitlines()
    for position, line in enumerate(lines):
        if line in ("Before:", "After:"):
            body = []
            for inner in lines[position + 1 :]:
                if inner.strip() and not inner.startswith("    "):
                    break
                body.append(inner)
            yield line[:-1], textwrap.dedent("\n".join(body)).strip() + "\n"


def examples(item: Pass[Any]) -> list[tuple[str, str]]:
    """The pairs of texts in a pass's docstring."""
    found = list(sections(item.function.__doc__ or ""))
    titles = [title for title, _ in found]
    assert titles == ["Before", "After"] * (len(titles) // 2), f"{item.name} shows {titles}"
    return list(zip([t for _, t in found[::2]], [t for _, t in found[1::2]], strict=True))


CASES = [pytest.param(room, item, id=f"{room.name}-{item.name}")
         for room in ROOMS for item in room.passes]


@pytest.mark.parametrize(("room", "item"), CASES)
def test_examples_of_a_pass(room: Room, item: Pass[Any]) -> None:
    pairs = examples(item)
    assert pairs, f"the docstring of {item.name} has no Before: and After:"
    for before, after in pairs:
        module = room.parse(before)
        room.verify(module)
        with PassContext(required_pass=[item.name]):
            result = item(module)
        room.verify(result)
        assert room.print(result) == after
        assert room.print(room.parse(after)) == after


def test_the_page_of_passes_is_up_to_date() -> None:
    path = Path(__file__).parents[1] / "docs" / "generate.py"
    page = runpy.run_path(str(path))["passes_page"]()
    assert (path.parent / "passes.md").read_text() == page, "run: python docs/generate.py"
    for room in ROOMS:
        for item in room.passes:
            assert f"### {item.name}\n" in page


def test_sections_are_found() -> None:
    doc = "Does.\n\n    Before:\n        a\n          b\n    After:\n        c\n\n    Then more.\n"
    assert list(sections(doc)) == [("Before", "a\n  b\n"), ("After", "c\n")]
