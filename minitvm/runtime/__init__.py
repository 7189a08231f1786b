"""What a compiled model needs at run time; imports nothing of the compiler."""

from minitvm.runtime.devices import Device, cpu, device
from minitvm.runtime.function_module import FunctionModule, as_function
from minitvm.runtime.graph_module import GraphModule
from minitvm.runtime.loader import load
from minitvm.runtime.module import Module
from minitvm.runtime.ndarray import NDArray
from minitvm.runtime.tensor_info import TensorInfo
from minitvm.runtime.timing import BenchmarkResult

__all__ = [
    "BenchmarkResult", "Device", "FunctionModule", "GraphModule", "Module", "NDArray", "TensorInfo",
    "cpu", "device", "load", "load_module",
]


def load_module(path: str) -> Module | FunctionModule:
    """Loads an exported library: a model, or the function that `minitvm.build` made."""
    module = load(path)
    return as_function(module) or module
