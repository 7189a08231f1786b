"""A `Program` -> a shared library, with a C header and a sample beside it.

The linker is looked for before anything is compiled (`find_linker`). Everything is written in a
temporary folder and moved into place at the end, so that a failure leaves nothing behind and a
reader never sees half a file. What the linker made is read back and checked: the machine, the
exported functions, and that nothing but libc, libm and libpthread (part of
libc where that is new) is needed. The same program gives the same
bytes: there are no build ids, no times, no paths; debug lines stay behind in the cached objects.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from minitvm.codegen.c_header import header_text, sample_text
from minitvm.codegen.program import Program, pool, program_objects
from minitvm.codegen.weights import write_weights_object
from minitvm.errors import LinkError
from minitvm.runtime import abi, elf
from minitvm.target import Target

OVERRIDE = "MINITVM_LINKER"
"""The environment variable that names the command to link with, such as `clang -fuse-ld=lld`."""

_FLAGS = ("--as-needed", "--gc-sections", "--build-id=none", "--strip-all", "--hash-style=gnu",
          "--no-undefined", "-Bsymbolic")
_Z_FLAGS = ("noexecstack", "relro", "now", "nodelete")  # the pool's threads outlive dlclose
_SYSTEM_LIBRARIES = ("libc.", "libm.", "libpthread.", "ld-linux-")
_LIBRARY_FOLDERS = ("/lib64", "/usr/lib64", "/lib", "/usr/lib")


@dataclass(frozen=True, slots=True)
class Linker:
    """A command that links; `is_driver`: a C compiler, which passes options on by `-Wl,`."""

    command: tuple[str, ...]
    is_driver: bool = True

    def arguments(self, objects: list[Path], output: Path, exports: Path,
                  target: Target) -> list[str]:
        """The whole command line."""
        files = [*map(str, objects), "-o", str(output)]
        flags = [*_FLAGS, f"--version-script={exports}"]
        if self.is_driver:
            options = [f"-Wl,{flag}" for flag in flags]
            options += [f"-Wl,-z,{flag}" for flag in _Z_FLAGS]
            return [*self.command, "-shared", "-nostdlib", *options, *files, "-lpthread", "-lm",
                    "-lc"]
        options = [*flags, *(word for flag in _Z_FLAGS for word in ("-z", flag))]
        folders = [f"/lib/{target.isa}-linux-gnu", f"/usr/{target.isa}-linux-gnu/lib",
                   *_LIBRARY_FOLDERS]
        options += [f"-L{folder}" for folder in folders]
        return [*self.command, "-shared", *options, *files, "-l:libm.so.6", "-l:libc.so.6"]


def find_linker(target: Target) -> Linker:
    """The linker for a target; raises `LinkError` with advice where there is none."""
    override = os.environ.get(OVERRIDE)
    if override:
        command = tuple(shlex.split(override))
        if not command or shutil.which(command[0]) is None:
            raise LinkError(f"the environment variable {OVERRIDE} names {override!r}, which is not "
                            "a command on this machine")
        name = os.path.basename(command[0])
        return Linker(command, name not in ("ld", "ld.lld", "ld.bfd", "ld.gold", "ld.mold"))
    for linker in _candidates(target):
        if shutil.which(linker.command[0]) is not None and _works(linker):
            return linker
    cross = f"{target.isa}-linux-gnu-gcc"
    raise LinkError(
        f"no linker for {target.triple} was found; install gcc or clang ({cross} for another "
        f"machine than this), or the Python package ziglang, which links for every target, or "
        f"name one in the environment variable {OVERRIDE}"
    )


def _candidates(target: Target) -> list[Linker]:
    if target.isa == Target.host().isa:
        found = [Linker(("cc",)), Linker(("gcc",)), Linker(("clang",)),
                 Linker(("ld.lld",), is_driver=False)]
    else:
        found = [Linker((f"{target.isa}-linux-gnu-gcc",)),
                 Linker((f"{target.isa}-unknown-linux-gnu-gcc",))]
    zig = (sys.executable, "-m", "ziglang", "cc", "-target", f"{target.isa}-linux-gnu")
    return [*found, Linker(zig)]


def _works(linker: Linker) -> bool:
    """Whether a command that exists is more than a name: Python may lack the module ziglang."""
    if "ziglang" not in linker.command:
        return True
    probe = [sys.executable, "-c", "import ziglang"]
    return subprocess.run(probe, capture_output=True).returncode == 0


def export(program: Program, path: str | os.PathLike[str], linker: Linker | None = None) -> Path:
    """Writes the shared library `path`, `<name>.h` and `<name>_sample.c`; gives the path.

    Raises `LinkError`. Files that exist are replaced at once, or not at all.
    """
    linker = linker or find_linker(program.target)
    output = Path(path)
    check_output(output)
    name = abi.c_name(program.name)
    if output.name in (f"{name}.h", f"{name}_sample.c"):
        raise LinkError(f"the model can't be written to {str(output)!r}: that is the name of its C "
                        "header or sample; end it in .so")
    try:
        with tempfile.TemporaryDirectory(dir=output.parent, prefix=".minitvm-") as folder:
            library = _link(program, Path(folder), linker)
            _verify(program, library)
            elf.seal(library)
            texts = {f"{name}.h": header_text(program),
                     f"{name}_sample.c": sample_text(program, output.name, f"{name}.h")}
            for file, text in texts.items():
                (library.parent / file).write_text(text)
            os.replace(library, output)
            for file in texts:
                os.replace(library.parent / file, output.parent / file)
    except OSError as error:
        raise LinkError(f"the model can't be written to {str(output)!r}: {error}") from error
    return output


def check_output(output: Path) -> None:
    """Raises `LinkError` if nothing can be written to `output`: said before compiling, too."""
    if not output.parent.is_dir():
        raise LinkError(f"the folder {str(output.parent)!r}, where the model should be written, "
                        "does not exist")
    if output.is_dir():
        raise LinkError(f"the model can't be written to {str(output)!r}: that is a folder")
    try:
        tempfile.TemporaryDirectory(dir=output.parent, prefix=".minitvm-").cleanup()
    except OSError as error:
        raise LinkError(f"nothing can be written to the folder {str(output.parent)!r}: "
                        f"{error.strerror}") from error


def _link(program: Program, folder: Path, linker: Linker) -> Path:
    objects = []
    for number, data in enumerate([*program_objects(program), pool(program.target)]):
        objects.append(folder / f"{number:04}.o")
        objects[-1].write_bytes(data)
    objects.append(folder / "weights.o")
    write_weights_object(program.weights, program.target, objects[-1])
    exports = folder / "exports.map"
    exports.write_text("{ global: " + " ".join(f"{name};" for name in
                                               abi.function_names(program.name))
                       + " local: *; };\n")
    library = folder / "model.so"
    command = linker.arguments(objects, library, exports, program.target)
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        shown = shlex.join(linker.arguments([Path("*.o")], Path("model.so"), Path("exports.map"),
                                            program.target))
        raise LinkError(f"linking {program.name!r} failed with status {result.returncode}.\n"
                        f"The command was: {shown}\nIt said: {result.stderr.strip()[-2000:]}")
    library.chmod(0o755)
    return library


def _verify(program: Program, library: Path) -> None:
    """Raises `LinkError` unless the linker made what it should have."""
    try:
        facts = elf.read_library(library)
    except elf.ElfError as error:
        raise LinkError(f"the linker's output {error}") from error
    machine = elf.architecture(facts.machine)
    if machine != program.target.isa:
        raise LinkError(f"the linker made a library for {machine}, not for {program.target.isa}; "
                        f"name one for this target in {OVERRIDE}")
    wanted = frozenset(abi.function_names(program.name))
    if facts.exported != wanted:
        surplus, missing = sorted(facts.exported - wanted), sorted(wanted - facts.exported)
        raise LinkError(f"the linker exported {surplus} too, and did not export {missing}")
    others = [name for name in facts.needed if not name.startswith(_SYSTEM_LIBRARIES)]
    if others:
        raise LinkError(f"the library needs {', '.join(others)}; only libc, libm and libpthread "
                        "are allowed")
