"""What the machine code of hot loops looks like: spills are a fault that no result shows.

`innermost_loops(assembly)` gives the instructions of each loop without a loop inside; with
`stack_accesses` a test asserts that those which multiply and add keep their values in registers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_LABEL = re.compile(r"^(\.?[A-Za-z_][\w.$]*):")
_BRANCH = re.compile(
    r"^\s+(?:j[a-z]+|b(?:\.[a-z]+)?|cbn?z|tbn?z)\s+(?:.*,\s*)?(\.?[A-Za-z_][\w.$]*)\s*$"
)
_FMA = re.compile(r"\b(?:vf?n?m(?:add|sub)\d*[ps][sd]|fml[as])\b")
_STACK = re.compile(r"\(%[re][sb]p\b|\[sp\b|\[x29\b")


@dataclass(frozen=True, slots=True)
class Loop:
    """The instructions of an innermost loop, from its label to the branch back."""

    label: str
    instructions: tuple[str, ...]

    @property
    def multiplies_and_adds(self) -> bool:
        """Whether there is a fused multiply-add in it."""
        return any(_FMA.search(line) for line in self.instructions)

    @property
    def stack_accesses(self) -> tuple[str, ...]:
        """The instructions with a memory operand relative to the stack or frame pointer."""
        return tuple(line for line in self.instructions if _STACK.search(line))


def innermost_loops(assembly: str) -> list[Loop]:
    """The innermost loops of some assembly (x86-64 in AT&T syntax, or aarch64)."""
    lines = [line.split("#")[0].rstrip() for line in assembly.splitlines()]
    labels: dict[str, int] = {}
    spans: list[tuple[int, int, str]] = []
    for number, line in enumerate(lines):
        if match := _LABEL.match(line):
            labels[match[1]] = number
        elif (match := _BRANCH.match(line)) and match[1] in labels:
            spans.append((labels[match[1]], number, match[1]))
    found = {}
    for start, end, label in spans:
        inside = any(start <= other and stop <= end and (other, stop) != (start, end)
                     for other, stop, _ in spans)
        if not inside:
            body = [line.strip() for line in lines[start:end + 1]]
            code = tuple(line for line in body if line and not line.startswith((".", "//")))
            found[label] = Loop(label, code)
    return list(found.values())
