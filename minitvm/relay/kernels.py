"""Groups of bindings, one after the other -> kernels and calls of them: equal groups share one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from minitvm.origin import Origin, merge_all
from minitvm.relay.extract import extract, kernel_name
from minitvm.relay.ir import Binding, Block, Call, Function, GlobalVar
from minitvm.relay.structural_hash import structural_hash


@dataclass(slots=True)
class _Kernel:
    """A kernel being collected: its function, and the origins of each binding in each use."""

    name: str
    function: Function
    origins: list[list[Origin]]

    def finished(self) -> Function:
        """The function, its bindings with the origins of all uses."""
        body = self.function.body
        bindings = tuple(
            Binding(binding.var, binding.value, merge_all(origins))
            for binding, origins in zip(body.bindings, self.origins, strict=True)
        )
        return self.function.with_body(Block(bindings, body.result))


@dataclass(slots=True)
class Kernels:
    """The kernels so far, by structural hash; `taken` are the names of functions."""

    taken: set[str]
    by_hash: dict[str, _Kernel] = field(default_factory=dict)

    def call(self, group: list[Binding], attrs: Mapping[str, Any] | None = None) -> Binding:
        """A call of the kernel that computes a group; made unless an equal one exists."""
        function, arguments = extract(group, attrs)
        key = structural_hash(function)
        kernel = self.by_hash.get(key)
        if kernel is None:
            name = self._new_name(group)
            kernel = self.by_hash[key] = _Kernel(name, function, [[] for _ in group])
        for origins, binding in zip(kernel.origins, group, strict=True):
            origins.append(binding.origin)
        callee = GlobalVar(kernel.name, kernel.function.type)
        source = merge_all(binding.origin for binding in group)
        return Binding(group[-1].var, Call(callee, arguments), source)

    def finished(self) -> dict[str, Function]:
        """The functions by name, in the order of their first use."""
        return {kernel.name: kernel.finished() for kernel in self.by_hash.values()}

    def _new_name(self, group: list[Binding]) -> str:
        base = name = kernel_name(group)
        count = 0
        while name in self.taken:
            count += 1
            name = f"{base}_{count}"
        self.taken.add(name)
        return name
