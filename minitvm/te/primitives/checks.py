"""The checks that primitives share; each refuses with the legal choices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from minitvm.te.attach import enclosing, first_broken
from minitvm.te.show import leaf_names, refuse
from minitvm.te.stage import Stage, StageGraph
from minitvm.te.tensor import Compute, IterVar


def find_stage(graph: StageGraph, name: str, action: str) -> Stage:
    """The stage of that name; refuses inputs, which have no loops."""
    stage = graph.by_name.get(name)
    if stage is None:
        refuse(graph, name, action, "there is no such stage",
               [other.name for other in graph.stages if not other.is_input])
    if stage.is_input:
        refuse(graph, stage, action, f"{name} is an input, which has no loops",
               [other.name for other in graph.stages if not other.is_input])
    return stage


def operation(stage: Stage) -> Compute:
    """The operation of a stage that is neither an input nor a scan."""
    assert isinstance(stage.op, Compute)
    return stage.op


def check_compute(graph: StageGraph, stage: Stage, action: str) -> None:
    """Refuses a scan, which is but a loop over time around its updates."""
    if stage.is_scan:
        refuse(graph, stage, action, "it is a scan, whose loop over time only holds its updates",
               [other.name for other in graph.stages if isinstance(other.op, Compute)])


def check_unscheduled_space(
    graph: StageGraph, stage: Stage, action: str, primitive: str
) -> None:
    """Refuses a stage whose spatial loops are scheduled: the primitive starts them afresh."""
    spatial = [leaf for leaf in stage.leaves if leaf.kind == "spatial"]
    plain = spatial == list(operation(stage).axis)
    if not plain or stage.tensorized or stage.annotations or stage.pragmas or stage.bindings:
        refuse(graph, stage, action,
               f"its loops are already scheduled; {primitive} comes first", [f"{primitive} first"])


def find_leaf(graph: StageGraph, stage: Stage, axis: str, action: str) -> IterVar:
    """The loop of that name; refuses axes that were split or fused, and inlined stages."""
    if stage.attach == "inline":
        refuse(graph, stage, action, "it is computed inline and has no loops",
               ["compute_root first"])
    found = stage.axes.get(axis)
    if found is None:
        refuse(graph, stage, action, f"it has no axis named {axis!r}", leaf_names(stage))
    if found not in stage.leaves:
        refuse(graph, stage, action, f"axis {axis} is no loop any more: it was split or fused",
               leaf_names(stage))
    if stage.tensorized is not None:
        first = stage.position(stage.tensorized[0])
        if stage.position(found) >= first:
            refuse(graph, stage, action,
                   f"axis {axis} is part of the tensor intrinsic {stage.tensorized[1].name}",
                   leaf_names(stage)[:first])
    return found


def check_plain(graph: StageGraph, stage: Stage, axis: IterVar, action: str) -> None:
    """Refuses an axis that is already vectorized, unrolled or parallel."""
    if axis.kind == "scan":
        refuse(graph, stage, action, "the steps of a scan follow one another; this loop stays",
               [f"the axes of {other.name}" for other in graph.stages if graph.is_update(other)])
    kind = stage.annotations.get(axis) or stage.bindings.get(axis)
    if kind is not None:
        refuse(graph, stage, action, f"axis {stage.labels[axis]} is already {kind}",
               [stage.labels[leaf] for leaf in stage.leaves if leaf not in stage.annotations])


class Illegal(Exception):
    """Why a change that was tried can't stay."""

    def __init__(self, reason: str, choices: Sequence[str]) -> None:
        super().__init__(reason)
        self.reason, self.choices = reason, choices


@contextmanager
def attempt(graph: StageGraph, stage: Stage, action: str, *changing: Stage) -> Iterator[None]:
    """Undoes what the block did to the stages `changing` if it finds it `Illegal`, then refuses."""
    restore = graph.snapshot(changing)
    try:
        yield
    except Illegal as illegal:
        restore()
        refuse(graph, stage, action, illegal.reason, illegal.choices)


def check_places(graph: StageGraph) -> None:
    """Raises `Illegal` if a stage stands where one of its readers can't see it."""
    for stage in graph.stages if graph.owners else ():
        scan = graph.scan_around(stage)
        if scan is not None and stage.attach != "inline" and scan not in enclosing(stage):
            raise Illegal(f"{stage.name} depends on a state of the scan {scan.name}, and must stay "
                          f"inside its loop", [f"compute_at ({scan.name}, t)"])
    broken = first_broken(graph)
    if broken is not None:
        attach = broken.stage.attach
        assert not isinstance(attach, str)
        place = f"{attach.stage.name} at {attach.stage.labels[attach.axis]}"
        raise Illegal(
            f"{broken.stage.name} is computed in {place}, and its reader {broken.reader.name} "
            f"would not be inside that loop", [f"compute_root {broken.stage.name} first"])
