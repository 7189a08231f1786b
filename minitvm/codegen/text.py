"""The text of an LLVM module as it is written: functions, declarations, helpers, metadata.

Knows LLVM's syntax and nothing of tir. Values are pieces of text, such as `%v12` or
`splat (i32 4)`; their types come from minitvm's dtypes: a bool is `i1` in a register and `i8`
in memory.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from minitvm import dtypes
from minitvm.target import Target

_SCALARS = {
    "bool": "i1", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "uint8": "i8",
    "uint16": "i16", "uint32": "i32", "uint64": "i64", "float16": "half", "float32": "float",
    "float64": "double", "handle": "ptr",
}


@cache
def llvm_type(dtype: str) -> str:
    """`"float32x8"` -> `<8 x float>`: the type of a value in a register."""
    element, count = dtypes.split(dtype)
    return _SCALARS[element] if count == 1 else f"<{count} x {_SCALARS[element]}>"


@cache
def memory_type(dtype: str) -> str:
    """The type of a value in memory: as in a register, but a bool takes a byte."""
    element, count = dtypes.split(dtype)
    return llvm_type(dtypes.vector("uint8", count)) if element == "bool" else llvm_type(dtype)


@cache
def suffix(dtype: str) -> str:
    """How intrinsic names spell a type: `v8f32`, `i32`."""
    element, count = dtypes.split(dtype)
    letter = "f" if dtypes.is_float(element) else "i"
    width = 1 if element == "bool" else dtypes.bits(element)
    return f"{letter}{width}" if count == 1 else f"v{count}{letter}{width}"


def constant(value: float | int | bool, dtype: str) -> str:
    """A constant as an operand; the same value in every lane of a vector dtype."""
    element, count = dtypes.split(dtype)
    text = _scalar_constant(value, element)
    return text if count == 1 else f"splat ({_SCALARS[element]} {text})"


def _scalar_constant(value: float | int | bool, element: str) -> str:
    if element == "bool":
        return "true" if value else "false"
    if not dtypes.is_float(element):
        return str(int(value))
    with np.errstate(over="ignore"):
        number = np.dtype(element).type(value)
    if element == "float16":
        return f"0xH{number.view(np.uint16):04X}"
    return "0x" + struct.pack(">d", float(number)).hex().upper()


def symbol(kernel: str) -> str:
    """The linker's name of a kernel: a prefix keeps it apart from C's, whatever it is called."""
    return "kernel." + re.sub(r"[^A-Za-z0-9_.]", "_", kernel)


@dataclass(slots=True)
class ModuleText:
    """What the functions of a module share; each piece is written once, in order of first use."""

    target: Target
    declarations: dict[str, str] = field(default_factory=dict)
    helpers: dict[str, str] = field(default_factory=dict)
    functions: list[str] = field(default_factory=list)
    metadata: list[str] = field(default_factory=list)
    known_metadata: dict[str, str] = field(default_factory=dict)
    flags: list[str] = field(default_factory=list)
    unit: str = ""
    """The compile unit of the debug information, if there is any."""

    def node(self, text: str) -> str:
        """The number of the metadata node with this text, such as `!3`."""
        if text not in self.known_metadata:
            self.known_metadata[text] = self.append(text)
        return self.known_metadata[text]

    def append(self, text: str) -> str:
        """Adds a metadata node; `{self}` in the text is its own number."""
        number = f"!{len(self.metadata)}"
        self.metadata.append(text.replace("{self}", number))
        return number

    def declare(self, name: str, result: str, arguments: tuple[str, ...],
                pure: bool = False) -> str:
        """Declares an external function and gives its name as an operand."""
        attributes = " #1" if pure else ""
        self.declarations[name] = f"declare {result} @{name}({', '.join(arguments)}){attributes}"
        return "@" + name

    def __str__(self) -> str:
        machine = (f'"target-cpu"="{self.target.cpu}" "target-features"="{self.target.features}" '
                   '"no-trapping-math"="true"')
        parts = [f'target triple = "{self.target.triple}"', *self.functions,
                 *self.helpers.values(), *self.declarations.values(),
                 f'attributes #0 = {{ nounwind "frame-pointer"="all" {machine} }}',
                 "attributes #1 = { nounwind willreturn memory(none) }",
                 f"attributes #2 = {{ alwaysinline nounwind willreturn memory(none) {machine} }}",
                 f"attributes #3 = {{ noinline cold nounwind willreturn memory(none) {machine} }}"]
        if self.flags:
            parts.append(f"!llvm.module.flags = !{{{', '.join(self.flags)}}}")
        if self.unit:
            parts.append(f"!llvm.dbg.cu = !{{{self.unit}}}")
        parts += [f"!{number} = {text}" for number, text in enumerate(self.metadata)]
        return "\n".join(parts) + "\n"


@dataclass(slots=True)
class FunctionText:
    """The body of one function: its instructions and the stack memory of its entry block."""

    module: ModuleText
    entry: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    count: int = 0
    block: str = "entry"
    location: str = ""
    """What ends each instruction: `, !dbg !7`, or nothing."""
    known: dict[str, str] = field(default_factory=dict)
    """The pure instructions of the current block, so that none is written twice."""

    def name(self, stem: str = "v") -> str:
        """A fresh name."""
        self.count += 1
        return f"{stem}{self.count}"

    def emit(self, instruction: str) -> str:
        """Writes an instruction and gives its result."""
        result = "%" + self.name()
        self.lines.append(f"  {result} = {instruction}{self.location}")
        return result

    def pure(self, instruction: str) -> str:
        """As `emit`, for an instruction whose result depends on its operands alone."""
        result = self.known.get(instruction)
        if result is None:
            result = self.known[instruction] = self.emit(instruction)
        return result

    def effect(self, instruction: str) -> None:
        """Writes an instruction without a result."""
        self.lines.append(f"  {instruction}{self.location}")

    def start(self, label: str) -> None:
        """Starts a basic block."""
        self.lines.append(f"{label}:")
        self.block = label
        self.known.clear()

    def branch(self, label: str) -> None:
        """Ends the block by going to `label`."""
        self.effect(f"br label %{label}")

    def allocate(self, memory: str, count: int, alignment: int) -> str:
        """Stack memory, in the entry block so that it is taken once and promoted to registers."""
        result = "%" + self.name("stack")
        self.entry.append(f"  {result} = alloca [{count} x {memory}], align {alignment}")
        return result

    def call(self, function: str, dtype: str, arguments: list[tuple[str, str]],
             pure: bool = True) -> str:
        """Calls an external function or intrinsic; `arguments` are pairs of dtype and value."""
        types = tuple(llvm_type(kind) for kind, _ in arguments)
        callee = self.module.declare(function, llvm_type(dtype), types,
                                     pure=not function.startswith("llvm."))
        given = ", ".join(f"{kind} {value}" for kind, (_, value) in zip(types, arguments))
        text = f"call {llvm_type(dtype)} {callee}({given})"
        return self.pure(text) if pure else self.emit(text)

    def text(self, header: str) -> str:
        """The whole function, `header` being what comes before its brace."""
        return "\n".join([f"{header} {{", "entry:", *self.entry, *self.lines, "}"])


def splat(f: FunctionText, dtype: str, value: str) -> str:
    """A scalar value in every lane of vector `dtype`."""
    if value[0] not in "%@":
        return f"splat ({llvm_type(dtypes.element(dtype))} {value})"
    kind, scalar = llvm_type(dtype), llvm_type(dtypes.element(dtype))
    count = dtypes.lanes(dtype)
    first = f.pure(f"insertelement {kind} poison, {scalar} {value}, i64 0")
    return f.pure(f"shufflevector {kind} {first}, {kind} poison, <{count} x i32> zeroinitializer")


def text_constant(name: str, text: str) -> str:
    """A constant that holds a text and the zero byte behind it."""
    return bytes_constant(name, text.encode() + b"\0")


def bytes_constant(name: str, data: bytes) -> str:
    """A constant that holds bytes."""
    escaped = "".join(chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:02X}"
                      for byte in data)
    return f'@{name} = private constant [{len(data)} x i8] c"{escaped}"'
