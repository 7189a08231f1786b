"""Line tables: each instruction of a kernel says the line of the kernel's printed tir.

The file is `<kernel>.tir`, and its lines are those of `tir.text.print_func`, so that a profiler or
`objdump -d -S` shows tir above the assembly. There is nothing else in the debug information: no
types, no variables, and no path of the machine that compiled.
"""

from __future__ import annotations

from minitvm.codegen.text import ModuleText
from minitvm.tir import ir
from minitvm.tir.text import print_func_with_lines


class DebugInfo:
    """The debug metadata of one function, and the location of each of its statements."""

    def __init__(self, module: ModuleText, func: ir.PrimFunc) -> None:
        self.module = module
        _, statements = print_func_with_lines(func)
        self.lines = {id(statement): number for number, statement in enumerate(statements, 1)
                      if statement is not None}
        file = module.append(f"!DIFile(filename: {_quote(func.name + '.tir')}, "
                                         'directory: "")')
        unit = module.append(
            f'distinct !DICompileUnit(language: DW_LANG_C99, file: {file}, producer: "minitvm", '
            "isOptimized: true, runtimeVersion: 0, emissionKind: LineTablesOnly)")
        kind = module.append("!DISubroutineType(types: !{})")
        self.subprogram = module.append(
            f"distinct !DISubprogram(name: {_quote(func.name)}, scope: {file}, file: {file}, "
            f"line: 1, type: {kind}, scopeLine: 1, spFlags: DISPFlagDefinition | "
            f"DISPFlagOptimized, unit: {unit})")
        module.unit = unit
        version = module.append('!{i32 2, !"Debug Info Version", i32 3}')
        dwarf = module.append('!{i32 7, !"Dwarf Version", i32 4}')
        module.flags.extend((version, dwarf))
        self.start = self._at(1)

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

