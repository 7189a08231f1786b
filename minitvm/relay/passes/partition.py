"""Bindings of one block -> groups, each to become one kernel: fusion by post-dominators.

The dataflow graph of a block has a node for each call of an operator and for each field taken of
such a call's tuple. An edge from a node to a user has the pattern with which the user reads it.

The immediate post-dominator of a node is where all paths from it first meet again: the least common
ancestor of its users in the tree of post-dominators. One pass from the last binding to the first
builds that tree, because users come after what they use; ancestors are found in logarithmic time
through jump pointers. A node whose value leaves the graph (the block's result, a tuple, a nested
block, a call of a function) has none.

Then nodes join their post-dominator's group, in order, if patterns allow. All nodes on all paths
between the two join as well, so a group has one output and no path leaves it and comes back:

| phase | node's group | pattern on the way | groups in between | group at the end |
|---|---|---|---|---|
| 0 | out-elementwise | elementwise only | <= broadcast | <= broadcast |
| 0 | <= broadcast | <= injective, or reduction | <= injective | <= out-elementwise |
| 1 | injective | <= injective | <= injective | <= injective |
| 1 | <= injective | any | <= injective | copies its arguments: <= out-elementwise |
| 2 | <= injective | <= injective | <= injective | joins many: <= injective |

An operator with any number of arguments, such as concatenate, joins many: it takes them as if from
a tuple, and only phase 2 fuses into it, when what it reads is already settled.

The rules are those of "Relay: a high-level compiler for deep learning" (arXiv 1904.08368) and of
the compiler that came of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from minitvm.relay.op import Pattern


@dataclass(slots=True)
class Node:
    """An operation: its pattern, its users with the patterns with which they read it, and whether
    its value is also needed outside the graph. One that `copies` its arguments may compute them
    as it does so."""

    pattern: Pattern
    joins_many: bool = False
    copies: bool = False
    escapes: bool = False
    users: list[tuple[int, Pattern]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A fusion of `node` into `dominator` that the limit on operators forbade."""

    node: int
    dominator: int


# --- post-dominators ----------------------------------------------------------------------------

ROOT = -1
"""The place where the paths of values that leave the graph meet."""


class PostDominators:
    """The tree of post-dominators: `parent[n]`, or `ROOT`; and the pattern on the way there."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        count = len(nodes)
        self.parent = [ROOT] * count
        self.pattern = [Pattern.OPAQUE] * count
        # One entry more than nodes: index -1 is the root itself.
        self._depth = [0] * (count + 1)
        self._jump = [ROOT] * (count + 1)
        self._jump_pattern = [Pattern.OPAQUE] * (count + 1)
        for index in range(count - 1, -1, -1):
            self._add(index, nodes[index])

    def _add(self, index: int, node: Node) -> None:
        if node.users and not node.escapes:
            meeting, pattern = node.users[0]
            for user, edge in node.users[1:]:
                meeting, on_the_way = self._meet(meeting, user)
                pattern = max(pattern, edge, on_the_way)
            if meeting != ROOT:
                self.parent[index], self.pattern[index] = meeting, pattern
        self._set_jump(index)

    def _set_jump(self, index: int) -> None:
        """Jumps as far as the parent's jump does, twice, where both are of one length: the skew
        binary scheme of Myers, "An applicative random-access stack" (1983)."""
        parent = self.parent[index]
        self._depth[index] = self._depth[parent] + 1
        first = self._jump[parent]
        second = self._jump[first]
        depth = self._depth
        if parent != ROOT and depth[parent] - depth[first] == depth[first] - depth[second]:
            self._jump[index] = second
            steps = (self.pattern[index], self._jump_pattern[parent], self._jump_pattern[first])
            self._jump_pattern[index] = max(steps)
        else:
            self._jump[index] = parent
            self._jump_pattern[index] = self.pattern[index]

    def _meet(self, left: int, right: int) -> tuple[int, Pattern]:
        """The least common ancestor, and the greatest pattern on the ways to it."""
        worst = Pattern.ELEMWISE
        if self._depth[left] < self._depth[right]:
            left, right = right, left
        while self._depth[left] > self._depth[right]:
            jumps = self._depth[self._jump[left]] >= self._depth[right]
            worst = max(worst, self._jump_pattern[left] if jumps else self.pattern[left])
            left = self._jump[left] if jumps else self.parent[left]
        while left != right:
            jumps = self._jump[left] != self._jump[right]
            step, patterns = (
                (self._jump, self._jump_pattern) if jumps else (self.parent, self.pattern)
            )
            worst = max(worst, patterns[left], patterns[right])
            left, right = step[left], step[right]
        return left, worst


# --- groups -------------------------------------------------------------------------------------


class Partition:
    """A union-find over nodes. A group's pattern is the greatest of its members'."""

    def __init__(self, nodes: Sequence[Node], level: int, limit: int) -> None:
        self.nodes = nodes
        self.limit = limit
        self.refusals: list[Refusal] = []
        self._leader = list(range(len(nodes)))
        self._size = [1] * len(nodes)
        self._pattern = [node.pattern for node in nodes]
        if level > 0:
            self._dominators = PostDominators(nodes)
            for phase in range(min(level, 3)):
                self._run_phase(phase)

    def find(self, node: int) -> int:
        """The group's leader: the one node whose value leaves the group."""
        leader = self._leader
        while leader[node] != node:
            leader[node] = leader[leader[node]]
            node = leader[node]
        return node

    def groups(self) -> dict[int, list[int]]:
        """The members of each group in order, by the leader."""
        members: dict[int, list[int]] = {}
        for node in range(len(self.nodes)):
            members.setdefault(self.find(node), []).append(node)
        return members

    def _run_phase(self, phase: int) -> None:
        for node in range(len(self.nodes)):
            end = self._dominators.parent[node]
            if end == ROOT or self.find(node) == self.find(end):
                continue
            allowed = self._rule(phase, node, end)
            if allowed is not None:
                self._try_to_fuse(phase, node, end, *allowed)

    def _rule(self, phase: int, node: int, end: int) -> tuple[Pattern, Pattern] | None:
        """The greatest patterns of groups in between and at the end; None where the node stays."""
        own = self._pattern[self.find(node)]
        way = self._dominators.pattern[node]
        if self.nodes[end].joins_many != (phase == 2):
            return None
        if phase == 0:
            if own == Pattern.OUT_ELEMWISE_FUSABLE and way == Pattern.ELEMWISE:
                return Pattern.BROADCAST, Pattern.BROADCAST
            if own <= Pattern.BROADCAST and way <= Pattern.COMM_REDUCE:
                return Pattern.INJECTIVE, Pattern.OUT_ELEMWISE_FUSABLE
            return None
        if phase == 1 and own <= Pattern.INJECTIVE and self.nodes[end].copies:
            return Pattern.INJECTIVE, Pattern.OUT_ELEMWISE_FUSABLE
        if own == Pattern.INJECTIVE or (phase == 2 and own <= Pattern.INJECTIVE):
            return Pattern.INJECTIVE, Pattern.INJECTIVE
        return None

    def _try_to_fuse(
        self, phase: int, node: int, end: int, between: Pattern, at_end: Pattern
    ) -> None:
        if self._pattern[self.find(end)] > at_end:
            return
        found = self._on_all_paths(phase, node, end, between)
        if found is None:
            return
        leaders = {self.find(member) for member in found} | {self.find(node), self.find(end)}
        if len(found) > self.limit or sum(self._size[leader] for leader in leaders) > self.limit:
            self.refusals.append(Refusal(node, end))
            return
        self._merge(leaders, self.find(end))

    def _on_all_paths(self, phase: int, node: int, end: int, most: Pattern) -> list[int] | None:
        """The nodes strictly between two; None if the group of one of them is not allowed. Stops
        once there are more than fit in a group."""
        found: dict[int, None] = {}
        waiting = [node]
        while waiting and len(found) <= self.limit:
            for user, _ in self.nodes[waiting.pop()].users:
                if user == end or user in found:
                    continue
                waits = self.nodes[user].joins_many and phase < 2
                if waits or self._pattern[self.find(user)] > most:
                    return None
                found[user] = None
                waiting.append(user)
                if len(found) > self.limit:
                    break
        return list(found)

    def _merge(self, leaders: set[int], into: int) -> None:
        self._pattern[into] = max(self._pattern[leader] for leader in leaders)
        self._size[into] = sum(self._size[leader] for leader in leaders)
        for leader in leaders:
            self._leader[leader] = into
