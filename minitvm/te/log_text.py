"""The log of a schedule as Python statements, and back.

    s["C"].split("i", factor=8)
    s["C"].vectorize("i.inner")
    s.cache_read("A", "local", ["C"])
    s["A.local"].compute_at(s["C"], "i.outer")

`write_log` gives one statement a step; run on a fresh schedule `s`, they rebuild it. `read_log`
reads them without running them, and takes the short forms that people write too: arguments by
name or by position, `factor` left out, `tile`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

from minitvm.errors import ScheduleError
from minitvm.te import steps
from minitvm.te.steps import Step
from minitvm.text import read_source

_ANNOTATIONS = {"vectorized": "vectorize", "unrolled": "unroll", "parallel": "parallel"}


def write_log(taken: Iterable[Step]) -> str:
    """The statements, a line each."""
    return "".join(f"{_statement(step)}\n" for step in taken)


def _statement(step: Step) -> str:
    match step:
        case steps.CacheRead(stage, index, scope, readers):
            where = f", index={index}" if index else ""
            return f"s.cache_read({_text(stage)}, {_text(scope)}, {_text(list(readers))}{where})"
        case steps.CacheWrite(stage, scope):
            return f"s.cache_write({_text(stage)}, {_text(scope)})"
        case steps.Rfactor(stage, axis, factor_axis):
            return f"s.rfactor({_text(stage)}, {_text(axis)}, factor_axis={factor_axis})"
    return f"s[{_text(step.stage)}].{_call(step)}"


def _call(step: Step) -> str:
    match step:
        case steps.Split(_, axis, factor, nparts):
            sizes = [f"{name}={size}" for name, size in (("factor", factor), ("nparts", nparts))
                     if size is not None]
            return f"split({', '.join([_text(axis), *sizes])})"
        case steps.Fuse(_, axes):
            return f"fuse({', '.join(map(_text, axes))})"
        case steps.Reorder(_, axes):
            return f"reorder({', '.join(map(_text, axes))})"
        case steps.Annotate(_, axis, kind):
            return f"{_ANNOTATIONS[kind]}({_text(axis)})"
        case steps.Bind(_, axis, tag):
            return f"bind({_text(axis)}, {_text(tag)})"
        case steps.Pragma(_, axis, name, value):
            return f"pragma({_text(axis)}, {_text(name)}, {_text(value)})"
        case steps.ComputeAt(_, parent, axis):
            return f"compute_at(s[{_text(parent)}], {_text(axis)})"
        case steps.ComputeInline():
            return "compute_inline()"
        case steps.ComputeRoot():
            return "compute_root()"
        case steps.SetScope(_, scope):
            return f"set_scope({_text(scope)})"
        case steps.StorageAlign(_, axis, factor, offset):
            return f"storage_align({_text(axis)}, {factor}, {offset})"
        case steps.ReorderStorage(_, axes, factor):
            block = [] if factor is None else [f"factor={factor}"]
            return f"reorder_storage({', '.join([*map(_text, axes), *block])})"
        case steps.RollingBuffer():
            return "rolling_buffer()"
        case steps.Tensorize(_, axis, intrin):
            return f"tensorize({_text(axis)}, {_text(intrin)})"
    raise TypeError(f"not a step of a stage: {step!r}")


def _text(value: Any) -> str:
    """A literal, strings in double quotes."""
    if isinstance(value, list):
        return f"[{', '.join(map(_text, value))}]"
    if isinstance(value, str):
        quoted = repr(value)
        return f'"{quoted[1:-1]}"' if quoted[0] == "'" and '"' not in quoted else quoted
    return repr(value)


# --- reading ------------------------------------------------------------------------------------


def read_log(text: str, file: str = "<schedule>") -> tuple[Step, ...]:
    """The steps of a log; raises `ParseError` with line and column."""
    source = read_source(text, file)
    found: list[Step] = []
    for node in source.tree.body:
        call = node.value if isinstance(node, ast.Expr | ast.Assign) else None
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            source.fail(node, 'expected a step such as `s["C"].split("i", factor=8)`')
        try:
            found += _read(call, call.func)
        except (_LogError, TypeError, ScheduleError) as error:
            source.fail(node, str(error))
    return tuple(found)


class _LogError(Exception):
    """Why a statement is no step."""


def _read(call: ast.Call, method: ast.Attribute) -> list[Step]:
    arguments = [_argument(item) for item in call.args]
    keywords = {item.arg or "**": _argument(item.value) for item in call.keywords}
    if isinstance(method.value, ast.Name):
        table: Mapping[str, Callable[..., Any]] = _SCHEDULE
    else:
        table = _STAGE
        arguments.insert(0, _stage(method.value))
    build = table.get(method.attr)
    if build is None:
        known = ", ".join(sorted(table))
        raise _LogError(f"there is no primitive {method.attr}; there are {known}")
    made = build(*arguments, **keywords)
    made = made if isinstance(made, list) else [made]
    return [steps.from_json(steps.to_json(step)) for step in made]  # checks what the fields hold


def _argument(node: ast.expr) -> Any:
    if isinstance(node, ast.Subscript):
        return _stage(node)
    try:
        value = ast.literal_eval(node)
    except ValueError:
        _fail_literal(node)
    return value


def _fail_literal(node: ast.expr) -> NoReturn:
    raise _LogError(f"`{ast.unparse(node)}` is no literal; name stages and axes as strings")


def _stage(node: ast.expr) -> str:
    match node:
        case ast.Subscript(_, ast.Constant(str() as name)):
            return name
    raise _LogError(f'`{ast.unparse(node)}` is no stage; write s["name"]')


def _tile(stage: str, x: str, y: str, x_factor: int, y_factor: int) -> list[Step]:
    order = (f"{x}.outer", f"{y}.outer", f"{x}.inner", f"{y}.inner")
    return [steps.Split(stage, x, x_factor), steps.Split(stage, y, y_factor),
            steps.Reorder(stage, order)]


def _cache_read(stage: str, scope: str, readers: Any, index: int = 0) -> Step:
    names = (readers,) if isinstance(readers, str) else tuple(readers)
    return steps.CacheRead(stage, index, scope, names)


_SCHEDULE: Mapping[str, Callable[..., Any]] = {
    "cache_read": _cache_read, "cache_write": steps.CacheWrite, "rfactor": steps.Rfactor,
}
_STAGE: Mapping[str, Callable[..., Any]] = {
    "split": lambda stage, parent, factor=None, nparts=None: steps.Split(
        stage, parent, factor, nparts),
    "tile": _tile,
    "fuse": lambda stage, *axes: steps.Fuse(stage, axes),
    "reorder": lambda stage, *axes: steps.Reorder(stage, axes),
    "vectorize": lambda stage, axis: steps.Annotate(stage, axis, "vectorized"),
    "unroll": lambda stage, axis: steps.Annotate(stage, axis, "unrolled"),
    "parallel": lambda stage, axis: steps.Annotate(stage, axis, "parallel"),
    "bind": lambda stage, axis, thread: steps.Bind(stage, axis, thread),
    "pragma": steps.Pragma,
    "compute_at": steps.ComputeAt,
    "compute_inline": steps.ComputeInline,
    "compute_root": steps.ComputeRoot,
    "set_scope": steps.SetScope,
    "storage_align": steps.StorageAlign,
    "reorder_storage": lambda stage, *axes, factor=None: steps.ReorderStorage(stage, axes, factor),
    "rolling_buffer": steps.RollingBuffer,
    "tensorize": steps.Tensorize,
}
