"""The ONNX importer: `from_onnx` gives the relay module of a model, `supported` what it knows."""

from minitvm.relay.onnx.importer import from_onnx
from minitvm.relay.onnx.table import supported

__all__ = ["from_onnx", "supported"]
