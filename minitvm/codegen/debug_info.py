"""Line tables: each instruction of a kernel says the line of the kernel's printed tir.

The file is `<kernel>.tir`, and its lines are those of `tir.text.print_func`, so that a profiler or
`objdump -d -S` shows tir above the assembly. There is nothing else in the debug information: no
types, no variables, and no path of the machine that compiled.
"""

from __future__ import annotations

from copy import copy

from minitvm.codegen.text import ModuleText
from minitvm.tir import ir
from minitvm.tir.text import print_func_with_lines


class DebugInfo:
    """The debug metadata of one function, and the location of each of its statements."""

    def __init__(self, module: ModuleText, func: ir.PrimFunc) -> None:
        self.module, self.name = module, func.name
        _, statements = print_func_with_lines(func)
        self.lines = {id(statement): number for number, statement in enumerate(statements, 1)
                      if statement is not None}
        self.file = module.append(f"!DIFile(filename: {_quote(func.name + '.tir')}, "
                                  'directory: "")')
        module.unit = module.append(
            f'distinct !DICompileUnit(language: DW_LANG_C99, file: {self.file}, '
            'producer: "minitvm", isOptimized: true, runtimeVersion: 0, '
            "emissionKind: LineTablesOnly)")
        self.kind = module.append("!DISubroutineType(types: !{})")
        self.subprogram = self._describe(func.name, 1)
        version = module.append('!{i32 2, !"Debug Info Version", i32 3}')
        dwarf = module.append('!{i32 7, !"Dwarf Version", i32 4}')
        module.flags.extend((version, dwarf))
        self.start = self._at(1)

    def _describe(self, name: str, line: int) -> str:
        """The metadata of a function that starts at a line."""
        return self.module.append(
            f"distinct !DISubprogram(name: {_quote(name)}, scope: {self.file}, file: {self.file}, "
            f"line: {line}, type: {self.kind}, scopeLine: {line}, spFlags: DISPFlagDefinition | "
            f"DISPFlagOptimized, unit: {self.module.unit})")

    def outlined(self, statement: ir.Stmt, number: int) -> DebugInfo:
        """The same for a statement that becomes a function of its own."""
        line = self.lines.get(id(statement), 1)
        inner = copy(self)
        inner.subprogram = self._describe(f"{self.name}.{number}", line)
        inner.start = inner._at(line)
        return inner

    def _at(self, line: int) -> str:
        node = self.module.node(f"!DILocation(line: {line}, column: 1, scope: {self.subprogram})")
        return f", !dbg {node}"

    def location(self, statement: ir.Stmt) -> str:
        """What ends the instructions of a statement."""
        return self._at(self.lines.get(id(statement), 1))


def _quote(text: str) -> str:
    """A string of LLVM: what is not printable ASCII, a quote or a backslash is `\\xx`."""
    plain = "".join(chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:02X}"
                    for byte in text.encode())
    return f'"{plain}"'

