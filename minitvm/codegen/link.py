"""A `Program` -> a shared library, with a C header and a sample beside it, and, where it is asked
for, its weights in a file of their own.

The linker is looked for before anything is compiled (`find_linker`). Everything is written in a
temporary folder and moved into place at the end, so that a failure leaves nothing behind and a
reader never sees half a file. What the linker made is read back and checked: the machine, the
exported functions, and that nothing but libc, libm, libpthread and libdl (parts of libc where
that is new) is needed. The same program gives the same
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
from minitvm.codegen.weights import MAXIMUM_BYTES, write_weights_object
from minitvm.codegen.weights_file import loader_object, write_weights_file
from minitvm.errors import LinkError, OptionError
from minitvm.runtime import abi, elf
from minitvm.runtime.abi import EMBEDDED, SEPARATE
from minitvm.runtime.seal import seal
from minitvm.target import Target

OVERRIDE = "MINITVM_LINKER"
"""The environment variable that names the command to link with, such as `clang -fuse-ld=lld`."""

_FLAGS = ("--as-needed", "--gc-sections", "--build-id=none", "--strip-all", "--hash-style=gnu",
          "--no-undefined", "-Bsymbolic")
_Z_FLAGS = ("noexecstack", "relro", "now", "nodelete")  # the pool's threads outlive dlclose
_SYSTEM_LIBRARIES = ("libc.", "libm.", "libpthread.", "libdl.", "ld-linux-")
_PARTS_OF_LIBC = ("libpthread.so.0", "libdl.so.2")
"""Libraries that glibc took in with 2.34. A bare linker looks into those that there are; the model
needs them only where libc lacks what they have."""
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
                    "-ldl", "-lc"]
        options = [*flags, *(word for flag in _Z_FLAGS for word in ("-z", flag))]
        folders = [f"/lib/{target.isa}-linux-gnu", f"/usr/{target.isa}-linux-gnu/lib",
                   *_LIBRARY_FOLDERS]
        options += [f"-L{folder}" for folder in folders]
        parts = [f"-l:{part}" for part in _PARTS_OF_LIBC if _has(part, folders)]
        return [*self.command, "-shared", *options, *files, "-l:libm.so.6", *parts,
                "-l:libc.so.6"]


def _has(file: str, folders: list[str]) -> bool:
    return any(Path(folder, file).exists() for folder in folders)


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


def export(program: Program, path: str | os.PathLike[str], linker: Linker | None = None,
           weights: str = EMBEDDED) -> Path:
    """Writes the shared library `path`, `<name>.h` and `<name>_sample.c`; gives the path. With
    `weights` "separate" it writes `<name>.weights`, too, which the library then needs.

    Raises `LinkError`. Files that exist are replaced at once, or not at all.
    """
    check_weights(weights)
    linker = linker or find_linker(program.target)
    output = Path(path)
    check_output(output)
    beside = abi.files_beside(program.name, weights)
    if output.name in beside:
        raise LinkError(f"the model can't be written to {str(output)!r}: that is the name of its C "
                        "header, its sample or its weights; end it in .so")
    try:
        with tempfile.TemporaryDirectory(dir=output.parent, prefix=".minitvm-") as name:
            folder = Path(name)
            library = _link(program, folder, linker, weights)
            _verify(program, library)
            seal(library)
            header, sample = beside[:2]
            (folder / header).write_text(header_text(program))
            (folder / sample).write_text(sample_text(program, output.name, header))
            for file in reversed(beside):  # the weights are there before a library needs them
                os.replace(folder / file, output.parent / file)
            os.replace(library, output)
    except OSError as error:
        raise LinkError(f"the model can't be written to {str(output)!r}: {error}") from error
    return output


def check_weights(weights: str) -> None:
    """Raises `OptionError` unless it says where the weights go."""
    if weights not in (EMBEDDED, SEPARATE):
        raise OptionError(f"weights is {weights!r}; it must be {EMBEDDED!r} or {SEPARATE!r}")


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


def _link(program: Program, folder: Path, linker: Linker, weights: str) -> Path:
    objects = []
    for number, data in enumerate([*_objects(program, folder, weights), pool(program.target)]):
        objects.append(folder / f"{number:04}.o")
        objects[-1].write_bytes(data)
    if weights == EMBEDDED:
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


def _objects(program: Program, folder: Path, weights: str) -> list[bytes]:
    """All object files but those of the pool and of weights; writes a file of weights."""
    if weights == SEPARATE:
        name = abi.weights_file(program.name)
        head = write_weights_file(program, folder / name)
        return [*program_objects(program, name), loader_object(head, name, program.target)]
    if program.weights.nbytes > MAXIMUM_BYTES:
        raise LinkError(f"the weights of {program.name!r} take {program.weights.nbytes} bytes, and "
                        f"a library holds at most {MAXIMUM_BYTES}; keep them in a file of their "
                        f"own, by --weights {SEPARATE}")
    return program_objects(program)


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
        raise LinkError(f"the library needs {', '.join(others)}; only libc, libm, libpthread "
                        "and libdl are allowed")
