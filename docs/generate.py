"""Writes the pages that are made from docstrings: `python docs/generate.py`.

`docs/primitives.md` comes from the schedule primitives, `docs/passes.md` from the passes over relay
and tir; tests check that they are up to date.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from minitvm.relay import passes as relay_passes
from minitvm.te import steps
from minitvm.te.primitives import PRIMITIVES
from minitvm.te.schedule import Schedule, StageHandle
from minitvm.tir import passes as tir_passes

DOCS = Path(__file__).parent

INTRODUCTION = """\
# Schedule primitives

A schedule says how computes are carried out: `s = te.create_schedule(C)`, then one primitive after
the other. Each checks when it is called: what would not compute the same values is refused with a
`ScheduleError` that names the stage, the axis, the reason, the loops so far and the legal choices.
Names, argument order and meaning are TVM's. Axes are given as they are returned, or by name:
`i.outer`, `i.inner`, `i.j.fused`.

`print(s)` writes the steps as Python statements; `Schedule.parse_log` reads them back, and
`Schedule.replay(outputs, steps)` takes them. `s.show()` prints the loops, `te.lower(s, args)` gives
the code.

This page is made from the docstrings of the primitives by `docs/generate.py`; the code before and
after each step is what tests hold them to.
"""

METHODS: Mapping[type[Any], tuple[str, ...]] = {
    steps.Split: ("split", "tile"),
    steps.Annotate: ("vectorize", "unroll", "parallel"),
}
"""The methods of steps that have several, or another name than theirs."""


def primitives_page() -> str:
    """The text of `docs/primitives.md`."""
    sections = [_section(kind, function) for kind, function in PRIMITIVES.items()]
    return "\n".join([INTRODUCTION, *sections])


def _section(kind: type[Any], function: Callable[..., Any]) -> str:
    names = METHODS.get(kind, (_snake_case(kind.__name__),))
    lines = [f"## {', '.join(names)}", ""]
    for name in names:
        receiver, method = _method(name)
        lines += [f"`{receiver}.{name}{_signature(method)}`: {_summary(method)}", ""]
    return "\n".join([*lines, *_explained(inspect.getdoc(function) or "")]) + "\n"


def _method(name: str) -> tuple[str, Callable[..., Any]]:
    if hasattr(Schedule, name):
        return "s", getattr(Schedule, name)
    return "s[T]", getattr(StageHandle, name)


def _signature(method: Callable[..., Any]) -> str:
    parameters = list(inspect.signature(method).parameters.values())[1:]
    return f"({', '.join(str(p.replace(annotation=p.empty)) for p in parameters)})"


def _summary(method: Callable[..., Any]) -> str:
    return " ".join((inspect.getdoc(method) or "").split())


def _explained(doc: str) -> Iterator[str]:
    """A docstring's prose, then its example as blocks of code."""
    prose, _, example = doc.partition("\nStep: ")
    given = re.findall(r"^Given: (.*)$", prose, re.MULTILINE)
    yield re.sub(r"^Given: .*$", "", prose, flags=re.MULTILINE).strip()
    if not example:
        return
    step, _, code = example.partition("\nBefore:\n")
    before, _, after = code.partition("\nAfter:\n")
    yield from ["", "```py", *given, step, "```"]
    for word, text in (("Before", before), ("After", after)):
        yield from ["", f"{word}:", "", "```tir", textwrap.dedent(text).strip("\n"), "```"]


# --- passes -------------------------------------------------------------------------------------

PASSES_INTRODUCTION = """\
# Passes

A pass takes a module (relay), or a function (tir), and gives another one that computes the same.
`PassContext(opt_level=3, disabled_pass=[...], required_pass=[...])` says which passes run, and
`Sequential` runs several; `minitvm.relay.transform` and `minitvm.tir.transform` have them by TVM's
names. The order in which compiling runs them is in `minitvm/driver.py` and `minitvm/tir/passes/`.

This page is made from the docstrings of the passes by `docs/generate.py`; what they show before and
after is what tests hold them to.
"""


def passes_page() -> str:
    """The text of `docs/passes.md`."""
    with_targets = [("AlterOpLayout", 3, inspect.getdoc(relay_passes.alter_op_layout)),
                    ("FuseDepthwise", 3, inspect.getdoc(relay_passes.fuse_depthwise)),
                    ("Winograd", 3, inspect.getdoc(relay_passes.winograd))]
    over_relay = sorted([
        *((item.name, item.opt_level, inspect.getdoc(item.function))
          for item in (*relay_passes.ALL, *relay_passes.WITH_OPTIONS, *relay_passes.EVALUATING)),
        *with_targets,
    ])
    over_tir = [(item.name, item.opt_level, inspect.getdoc(item.function))
                for item in tir_passes.ALL]
    parts = [PASSES_INTRODUCTION, "## Over relay", ""]
    for name, level, doc in over_relay:
        parts.extend(_pass_section(name, level, doc or ""))
    parts += ["## Over tir", ""]
    for name, level, doc in over_tir:
        parts.extend(_pass_section(name, level, doc or ""))
    return "\n".join(parts).rstrip() + "\n"


def _pass_section(name: str, level: int, doc: str) -> Iterator[str]:
    """A pass: its prose, and each of its examples."""
    runs = "always" if level == 0 else f"from level {level} on"
    yield from (f"### {name}", "", f"Runs {runs}.", "")
    pieces = re.split(r"^(Before|After):\n", doc, flags=re.MULTILINE)
    yield from (pieces[0].strip(), "")
    for word, text in zip(pieces[1::2], pieces[2::2], strict=True):
        lines = text.splitlines()
        count = next((i for i, line in enumerate(lines) if line and not line.startswith(" ")),
                     len(lines))
        code = textwrap.dedent("\n".join(lines[:count])).strip("\n")
        rest = "\n".join(lines[count:]).strip()
        yield from (f"{word}:", "", "```py", code, "```", "")
        if rest:
            yield from (rest, "")


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def main() -> None:
    """Writes the pages."""
    (DOCS / "primitives.md").write_text(primitives_page())
    (DOCS / "passes.md").write_text(passes_page())


if __name__ == "__main__":
    main()
