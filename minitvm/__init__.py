"""minitvm: ONNX in, one native shared library out, through IRs that can be read.

    import minitvm

    module = minitvm.compile("model.onnx")
    module.run({"input": x})
    module.export("model.so")
    minitvm.load("model.so").run({"input": x})

The stages by name: `minitvm.relay`, `minitvm.te`, `minitvm.tir`, `minitvm.codegen`,
`minitvm.runtime`. They load when first used, so that `import minitvm` is quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from minitvm.errors import MinitvmError

if TYPE_CHECKING:
    from minitvm import (
        autotune,
        codegen,
        contrib,
        nd,
        relay,
        runtime,
        target,
        te,
        testing,
        tir,
        transform,
    )
    from minitvm.driver import CompiledModule, compile
    from minitvm.relay.ir import Module as IRModule
    from minitvm.relay.onnx import supported as supported_onnx_operators
    from minitvm.runtime import Module, cpu, device, load
    from minitvm.target import Target
    from minitvm.te_driver import build, lower
    from minitvm.transform import PassContext

__version__ = "0.1.0"

__all__ = [
    "CompiledModule", "IRModule", "MinitvmError", "Module", "PassContext", "Target",
    "__version__", "autotune", "build", "codegen", "compile", "contrib", "cpu", "device",
    "load", "lower", "nd", "relay", "runtime", "supported_onnx_operators", "target", "te",
    "testing", "tir", "transform",
]  # fmt: skip

_HOMES = {
    "CompiledModule": "minitvm.driver:CompiledModule",
    "IRModule": "minitvm.relay.ir:Module",
    "Module": "minitvm.runtime:Module",
    "PassContext": "minitvm.transform:PassContext",
    "Target": "minitvm.target:Target",
    "build": "minitvm.te_driver:build",
    "compile": "minitvm.driver:compile",
    "cpu": "minitvm.runtime:cpu",
    "device": "minitvm.runtime:device",
    "load": "minitvm.runtime:load",
    "lower": "minitvm.te_driver:lower",
    "supported_onnx_operators": "minitvm.relay.onnx:supported",
}


def __getattr__(name: str) -> Any:
    """Loads a stage, or a name from its home, when it is first used."""
    if name in _HOMES:
        module, _, attribute = _HOMES[name].partition(":")
        value = getattr(importlib.import_module(module), attribute)
    elif name in __all__:
        value = importlib.import_module(f"minitvm.{name}")
    else:
        raise AttributeError(f"module 'minitvm' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(__all__) | set(globals()))
