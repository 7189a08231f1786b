"""The public names and their signatures, written down: a change of one is a decision, not a slip.

A change here goes into CHANGELOG.md.
"""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import pytest

import minitvm
from minitvm import relay, te

ROOT = Path(__file__).parents[1]
NAMES = {
    "CompiledModule", "MinitvmError", "Module", "PassContext", "Target", "__version__", "codegen",
    "compile", "load", "relay", "runtime", "supported_onnx_operators", "te", "testing", "tir",
    "transform",
}  # fmt: skip
SIGNATURES = {
    "compile": "(model, shapes=None, target=None, opt_level=None, schedules=None, *, name='', "
               "dump=None, progress=None, export=None, weights='embedded', fixed=None)",
    "load": "(path, threads=None, cpus=None, weights=None)",
    "supported_onnx_operators": "()",
    "Target": "(text='llvm')",
    "Target.host": "()",
    "Target.has": "(self, feature)",
    "Target.lanes": "(self, dtype)",
    "CompiledModule.run": "(self, inputs, outputs=None)",
    "CompiledModule.benchmark": "(self, inputs=None, repeat=None, seconds=None)",
    "CompiledModule.profile": "(self, inputs=None, repeat=50, threads=1)",
    "CompiledModule.export": "(self, path, weights='embedded')",
    "CompiledModule.summary": "(self)",
    "Module.run": "(self, inputs, outputs=None)",
    "Module.benchmark": "(self, inputs=None, repeat=None, seconds=None)",
    "relay.var": None, "relay.const": None, "relay.Function": None, "relay.print_module": None,
    "te.placeholder": None, "te.compute": None, "te.reduce_axis": None, "te.create_schedule": None,
    "te.lower": None,
}
"""What a caller writes, without types; None where only that it can be called is held."""


def found(name: str) -> object:
    value: object = minitvm
    for part in name.split("."):
        value = getattr(value, part)
    return value


def test_the_names_are_these_and_all_can_be_had():
    missing = NAMES - set(minitvm.__all__)
    assert not missing, f"{missing} went away; more names are fine, fewer are not"
    for name in minitvm.__all__:
        assert getattr(minitvm, name) is not None
    assert set(minitvm.__all__) <= set(dir(minitvm))
    for module in (relay, te):
        assert all(getattr(module, name) is not None for name in module.__all__)


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures_stay(name):
    value = found(name)
    assert callable(value)
    expected = SIGNATURES[name]
    if expected is not None:
        parameters = inspect.signature(value).parameters.values()
        bare = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in parameters]
        assert str(inspect.Signature(bare)) == expected


def test_public_functions_are_documented():
    for name in SIGNATURES:
        assert inspect.getdoc(found(name)), name


def test_a_name_that_does_not_exist_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'complie'"):
        minitvm.complie  # noqa: B018


def test_every_name_that_loads_lazily_is_seen_by_type_checkers():
    tree = ast.parse((ROOT / "minitvm" / "__init__.py").read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    typed = {alias.asname or alias.name for node in block.body for alias in node.names}
    assert typed == set(minitvm.__all__) - {"__version__", "MinitvmError"}
    assert set(minitvm._HOMES) <= typed


def test_the_version_is_the_same_everywhere():
    project = (ROOT / "pyproject.toml").read_text()
    declared = re.search(r'^version = "(.*)"$', project, re.MULTILINE)
    assert declared and declared[1] == minitvm.__version__
    assert f"## {minitvm.__version__}" in (ROOT / "CHANGELOG.md").read_text()
    assert (ROOT / "minitvm" / "py.typed").exists()
