"""What a compiled model needs at run time; imports nothing of the compiler."""

from minitvm.runtime.loader import load
from minitvm.runtime.module import Module
from minitvm.runtime.tensor_info import TensorInfo

__all__ = ["Module", "TensorInfo", "load"]
