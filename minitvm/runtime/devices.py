"""Devices, for those who pass them: compiled code runs on the CPU of this process alone.

    minitvm.cpu(0), minitvm.device("llvm")  ->  Device("cpu", 0)

A device carries nothing: it is there so that programs written for several devices read the same.
"""

from __future__ import annotations

from dataclasses import dataclass

from minitvm.errors import OptionError

CPU_NAMES = ("cpu", "llvm")
"""What a CPU may be called: by itself, or by the target that makes code for it."""


@dataclass(frozen=True, slots=True)
class Device:
    """Where arrays lie and code runs. Raises `OptionError` for anything but the CPU."""

    kind: str = "cpu"
    index: int = 0

    def __post_init__(self) -> None:
        words = str(self.kind).split()
        if not words or words[0] not in CPU_NAMES:
            raise OptionError(f"there is no device {str(self.kind)!r}; code runs on the CPU: "
                              "minitvm.cpu(0)")
        if self.index != 0:
            raise OptionError(f"there is no CPU device {self.index!r}; there is one: "
                              "minitvm.cpu(0)")
        object.__setattr__(self, "kind", "cpu")

    def __str__(self) -> str:
        return f"{self.kind}({self.index})"

    @property
    def exist(self) -> bool:
        """Whether the device is there."""
        return True

    def sync(self) -> None:
        """Waits for what runs on the device: nothing, as a call returns when it is done."""


def cpu(index: int = 0) -> Device:
    """The CPU."""
    return Device("cpu", index)


def device(kind: str = "cpu", index: int = 0) -> Device:
    """The device of that kind: `"cpu"`, `"llvm"`, or a target's string."""
    return Device(kind, index)
