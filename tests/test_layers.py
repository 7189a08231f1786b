"""The layering of docs/architecture.md, held by the sources themselves."""

import ast
import sys
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "minitvm"
BASE = {"errors", "origin", "dtypes", "text", "transform", "target", "instruments", "remarks"}
MAY_IMPORT = {
    "tir": BASE,
    "te": BASE | {"tir"},
    "relay": BASE | {"tir", "te"},
    "runtime": {"errors", "dtypes"},
    "codegen": BASE | {"tir", "runtime"},
    "peak": BASE | {"tir", "codegen", "runtime"},
    "profile": BASE | {"tir", "codegen", "runtime", "peak"},
    "driver": BASE | {"tir", "te", "relay", "codegen", "runtime", "profile"},
    "autotune": BASE | {"tir", "te", "relay", "codegen", "runtime", "driver"},
    "bench": BASE | {"runtime", "driver", "profile", "peak"},
    "te_driver": BASE | {"tir", "te", "codegen", "runtime"},
    "build_module": BASE | {"relay", "runtime", "driver"},
    "nd": {"runtime"},
    "contrib": {"runtime"},
}
LAZY = {
    "onnx", "google", "llvmlite", "networkx", "xgboost", "rich", "click", "PIL", "onnxruntime",
    "openvino", "torch", "onnx2torch",
}
SOURCES = sorted(PACKAGE.rglob("*.py"))


def module_name(path: Path) -> str:
    parts = ("minitvm", *path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts).removesuffix(".__init__")


MODULES = {module_name(path) for path in SOURCES}


def imports(path: Path):
    """(module, is local to a function, line) of every import that runs."""
    tree = ast.parse(path.read_text())
    inside_function = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
    }
    typing_only = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in ast.walk(block)
    }
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, id(node) in inside_function, node.lineno
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute"
            assert all(alias.name != "*" for alias in node.names), f"{path}:{node.lineno}: import *"
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                module = submodule if submodule in MODULES else node.module
                yield module, id(node) in inside_function, node.lineno




def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def test_rooms_import_only_what_they_may():
    for path in SOURCES:
        allowed = BASE if room(path) in BASE else MAY_IMPORT.get(room(path))
        if allowed is None:
            continue
        for module, _, line in imports(path):
            parts = module.split(".")
            if parts[0] == "minitvm" and len(parts) > 1:
                assert parts[1] in allowed | {room(path)}, f"{path}:{line} imports {module}"


def test_imports_inside_functions_are_for_heavy_packages_alone():
    for path in SOURCES:
        for module, is_local, line in imports(path):
            if is_local:
                assert module.split(".")[0] in LAZY, f"{path}:{line} imports {module} in a function"


def test_heavy_packages_are_imported_lazily():
    for path in SOURCES:
        if room(path) in ("cli", "cli_tune"):
            continue
        for module, is_local, line in imports(path):
            if module.split(".")[0] in LAZY - {"click"}:
                assert is_local, f"{path}:{line} imports {module} when minitvm is imported"


def test_no_import_cycles():
    graph = {module_name(path): [module for module, _, _ in imports(path)] for path in SOURCES}
    state: dict[str, int] = {}

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert state.get(name) != 1, f"import cycle: {' -> '.join((*trail, name))}"
        if name in state or name not in graph:
            return
        state[name] = 1
        for target in graph[name]:
            visit(target, (*trail, name))
        state[name] = 2

    sys.setrecursionlimit(5000)
    for name in graph:
        visit(name, ())


def test_every_module_says_what_it_is_for():
    for path in SOURCES:
        text = path.read_text()
        if text.strip():
            assert ast.get_docstring(ast.parse(text)), f"{path} has no docstring"
