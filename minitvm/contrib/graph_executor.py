"""`graph_executor.GraphModule(lib["default"](dev))`, as in TVM."""

from minitvm.runtime.graph_module import GraphModule

__all__ = ["GraphModule"]
