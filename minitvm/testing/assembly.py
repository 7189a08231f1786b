"""What the machine code of hot loops looks like: spills are a fault that no result shows.

`innermost_loops(assembly)` gives the instructions of each loop without a loop inside; with
`stack_accesses` a test asserts that those which multiply and add keep their values in registers.
Loops are natural loops of the control flow graph: LLVM lays blocks out in any order, so that the
lines between a label and a branch back to it may hold parts of other loops.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_LABEL = re.compile(r"^(\.?[A-Za-z_][\w.$]*):")
_BRANCH = re.compile(
    r"^(j[a-z]+|b(?:\.[a-z]+)?|cbn?z|tbn?z)\s+(?:.*,\s*)?(\.?[A-Za-z_][\w.$]*)\s*$"
)
_COMMENT = re.compile(r"(?:^|\s)(?:#\s|//)")
_END = re.compile(r"^(?:ret[a-z]?|ud2|brk|udf)\b")
_ALWAYS = {"jmp", "b"}
_FMA = re.compile(r"\b(?:vf?n?m(?:add|sub)\d*[ps][sd]|fml[as])\b")
_STACK = re.compile(r"\(%[re][sb]p\b|\[sp\b|\[x29\b")


@dataclass(frozen=True, slots=True)
class Loop:
    """The instructions of an innermost loop, block by block, its header first."""

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


@dataclass(slots=True)
class _Block:
    """Instructions that run one after the other, and the labels of what may come next."""

    label: str
    instructions: list[str]
    following: list[str]
    falls_through: bool = True


def innermost_loops(assembly: str) -> list[Loop]:
    """The innermost loops of some assembly (x86-64 in AT&T syntax, or aarch64)."""
    found = []
    for blocks in _functions(assembly):
        loops = _natural_loops(blocks)
        for header, members in loops.items():
            if not any(other in members for other in loops if other != header):
                order = [header, *(label for label in blocks if label in members - {header})]
                code = tuple(line for label in order for line in blocks[label].instructions)
                found.append(Loop(header, code))
    return found


def _functions(assembly: str) -> list[dict[str, _Block]]:
    """The blocks of each function, in order; a label without a leading dot starts one."""
    functions: list[dict[str, _Block]] = []
    block: _Block | None = None
    for raw in assembly.splitlines():
        line = _COMMENT.split(raw)[0].strip()
        if match := _LABEL.match(line):
            label = match[1]
            if not label.startswith(".") or not functions:
                functions.append({})
                block = None
            if not label.startswith((".Ltmp", ".Lfunc")):
                if block is not None and block.falls_through:
                    block.following.append(label)
                block = functions[-1].setdefault(label, _Block(label, [], []))
        elif line and not line.startswith(".") and block is not None:
            block = _extend(functions[-1], block, line)
    return functions


def _extend(blocks: dict[str, _Block], block: _Block, line: str) -> _Block:
    """The block that goes on after an instruction."""
    block.instructions.append(line)
    branch = _BRANCH.match(line)
    if branch is None:
        block.falls_through = not _END.match(line)
        return block
    block.following.append(branch[2])
    block.falls_through = branch[1] not in _ALWAYS
    after = _Block(f"{block.label}'", [], [])
    blocks[after.label] = after
    if block.falls_through:
        block.following.append(after.label)
    return after


def _natural_loops(blocks: dict[str, _Block]) -> dict[str, set[str]]:
    """From the header of each loop to its blocks (Aho, Sethi and Ullman, section 10.4)."""
    import networkx

    if not blocks:
        return {}
    graph = networkx.DiGraph()
    graph.add_nodes_from(blocks)
    graph.add_edges_from(
        (block.label, label)
        for block in blocks.values()
        for label in block.following
        if label in blocks
    )
    entry = next(iter(blocks))
    dominators = networkx.immediate_dominators(graph, entry)
    loops: dict[str, set[str]] = {}
    for source, header in graph.edges:
        if _dominates(header, source, dominators, entry):
            members = loops.setdefault(header, {header})
            stack = [source]
            while stack:
                label = stack.pop()
                if label not in members:
                    members.add(label)
                    stack.extend(graph.predecessors(label))
    return loops


def _dominates(header: str, label: str, dominators: dict[str, str], entry: str) -> bool:
    """Whether every way from the entry to `label` leads through `header`."""
    while label not in (header, entry) and label in dominators:  # what is never reached is not
        label = dominators[label]
    return label == header
