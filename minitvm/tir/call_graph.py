"""Who calls whom -> the circles in it: the strongly connected components of a graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def circles(calls: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """The strongly connected components, callees first: Tarjan's algorithm ("Depth-first search and
    linear graph algorithms", 1972), with a stack of its own. Every callee is itself a key."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    open_names: list[str] = []
    is_open: set[str] = set()
    found: list[list[str]] = []
    for start in calls:
        work = [(start, 0)] if start not in index else []
        while work:
            name, position = work.pop()
            if position == 0:
                index[name] = low[name] = len(index)
                open_names.append(name)
                is_open.add(name)
            elif (done := calls[name][position - 1]) in is_open:
                low[name] = min(low[name], low[done])
            if position < len(calls[name]):
                work.append((name, position + 1))
                following = calls[name][position]
                if following not in index:
                    work.append((following, 0))
            elif low[name] == index[name]:
                group = _pop_through(open_names, name)
                is_open.difference_update(group)
                found.append(group)
    return found


def _pop_through(names: list[str], last: str) -> list[str]:
    group: list[str] = []
    while not group or group[-1] != last:
        group.append(names.pop())
    return group


def in_circles(calls: Mapping[str, Sequence[str]]) -> frozenset[str]:
    """The names from which a way leads back to themselves."""
    return frozenset(name for group in circles(calls) for name in group
                     if len(group) > 1 or name in calls[name])


def leading_to(calls: Mapping[str, Sequence[str]], targets: frozenset[str]) -> frozenset[str]:
    """The names from which a way leads to one of `targets`, these included."""
    found = set(targets)
    for group in circles(calls):
        if any(name in found or not found.isdisjoint(calls[name]) for name in group):
            found.update(group)
    return frozenset(found)
