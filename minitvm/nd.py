"""Arrays under the name that TVM's users know: `minitvm.nd.array`, `minitvm.nd.empty`."""

from minitvm.runtime.devices import Device, cpu, device
from minitvm.runtime.ndarray import NDArray, array, empty

__all__ = ["Device", "NDArray", "array", "cpu", "device", "empty"]
