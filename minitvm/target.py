"""The machine that code is made for: a target string -> CPU, features, vector width, caches.

    Target("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a76 -mattr=+dotprod")
    Target("llvm -mcpu=x86-64-v3")        the host's triple, another CPU
    Target.host(), or Target("llvm")      the host: its CPU, the features it has, its caches

Two targets are equal when they print equally, and `Target(str(target)) == target`. What can be
asked of LLVM is asked of LLVM, not kept in tables: whether a CPU exists, which features it
implies (`has`), how wide its vectors are (from the assembly of a wide addition).
"""

from __future__ import annotations

import difflib
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from minitvm import dtypes
from minitvm.errors import TargetError

DEFAULT_L1_BYTES = 32 * 1024
DEFAULT_L2_BYTES = 512 * 1024
OPTIONS = ("-mtriple", "-mcpu", "-mattr", "-l1-bytes", "-l2-bytes", "-num-cores",
           "-fma-per-cycle", "-l2-bytes-per-cycle", "-memory-bytes-per-cycle", "-tlb-pages")
"""What a target string may set. All from the fourth are positive integers. By default the caches
have 32 KiB and 512 KiB (less than any current CPU has, so that tiles fit), and there is one core; a
host target says its own. The last four are what models of costs take a core to do: see the
properties of those names."""

MODEL_OPTIONS = OPTIONS[6:]

_ISAS = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64",
         "riscv64": "riscv64"}


@dataclass(frozen=True, slots=True)
class TargetKind:
    """The backend of a target, by name: there is one."""

    name: str = "llvm"


@dataclass(frozen=True, slots=True, init=False)
class Target:
    """A target, made from its string; see the module. Raises `TargetError`."""

    triple: str
    cpu: str
    attributes: tuple[str, ...]
    """Features on top of the CPU's (`+name`) or taken from it (`-name`), sorted."""
    l1_bytes: int
    l2_bytes: int
    cores: int
    model: tuple[tuple[str, int], ...]
    """Options of the model of costs that the string sets, by name, sorted."""

    def __init__(self, text: str = "llvm") -> None:
        options = _parse(text)
        if not options:
            options = _host_options()
        triple = options.get("-mtriple", "") or _host_triple()
        if _isa(triple) is None:
            raise TargetError(
                f"the target triple {triple!r} names no machine that minitvm knows; use one that "
                f"starts with {', '.join(sorted(set(_ISAS.values())))}"
            )
        values = {
            "triple": triple,
            "cpu": _choose_cpu(options, triple),
            "attributes": _check_attributes(options.get("-mattr", ""), triple),
            "l1_bytes": _positive(options, "-l1-bytes", DEFAULT_L1_BYTES),
            "l2_bytes": _positive(options, "-l2-bytes", DEFAULT_L2_BYTES),
            "cores": _positive(options, "-num-cores", 1),
            "model": tuple((name, _positive(options, name, 1)) for name in sorted(MODEL_OPTIONS)
                           if name in options),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @staticmethod
    def host() -> Target:
        """The machine this runs on."""
        return _host_target()

    def __str__(self) -> str:
        parts = ["llvm", f"-mtriple={self.triple}", f"-mcpu={self.cpu}"]
        if self.attributes:
            parts.append("-mattr=" + ",".join(self.attributes))
        if self.l1_bytes != DEFAULT_L1_BYTES:
            parts.append(f"-l1-bytes={self.l1_bytes}")
        if self.l2_bytes != DEFAULT_L2_BYTES:
            parts.append(f"-l2-bytes={self.l2_bytes}")
        if self.cores != 1:
            parts.append(f"-num-cores={self.cores}")
        parts += [f"{name}={value}" for name, value in self.model]
        return " ".join(parts)

    @property
    def kind(self) -> TargetKind:
        """The backend that makes its code."""
        return TargetKind()

    @property
    def isa(self) -> str:
        """The instruction set's family: `x86_64`, `aarch64` or `riscv64`."""
        return _isa(self.triple) or "unknown"

    @property
    def features(self) -> str:
        """The attributes as LLVM takes them: `+dotprod,-sve`."""
        return ",".join(self.attributes)

    def has(self, feature: str) -> bool:
        """Whether code for this target may use an LLVM feature, by its CPU or its attributes."""
        return self.supported((feature,)) == {feature}

    def supported(self, features: tuple[str, ...]) -> frozenset[str]:
        """Those of `features` that this target has; one question to LLVM for all."""
        known = tuple(name for name in features if _feature_exists(name, self.triple))
        return _implied_features(self.triple, self.cpu, self.features, known)

    def has_one(self, sets: tuple[str, ...]) -> bool:
        """Whether it has all features of one of the sets, each of them separated by commas."""
        names = dict.fromkeys(name for each in sets for name in each.split(","))
        known = self.supported(tuple(names))
        return any(known.issuperset(each.split(",")) for each in sets)

    @property
    def vector_bits(self) -> int:
        """The width of the widest vector register that code for this target uses."""
        return _vector_bits(self.triple, self.cpu, self.features)

    @property
    def vector_registers(self) -> int:
        """How many vector registers there are: 32 with AVX-512 or NEON, 16 with less of x86."""
        return 16 if self.isa == "x86_64" and self.vector_bits < 512 else 32

    @property
    def fma(self) -> bool:
        """Whether a multiply and an add fuse into one instruction."""
        return self.isa != "x86_64" or self.has("fma")

    def lanes(self, dtype: str) -> int:
        """How many elements of `dtype` a vector register holds, at least one."""
        return max(1, self.vector_bits // dtypes.bits(dtype))

    @property
    def fma_per_cycle(self) -> int:
        """How many vectors a core multiplies and adds in a cycle: two, as a common core does, or
        one where these are two instructions. `-fma-per-cycle` says otherwise."""
        return self._modelled("-fma-per-cycle", 2 if self.fma else 1)

    @property
    def l2_bytes_per_cycle(self) -> int:
        """How many bytes a cycle the second cache moves at best: 32, or as `-l2-bytes-per-cycle`
        says."""
        return self._modelled("-l2-bytes-per-cycle", 32)

    @property
    def memory_bytes_per_cycle(self) -> int:
        """How many bytes a cycle move from beyond the second cache at best: 10, or as
        `-memory-bytes-per-cycle` says."""
        return self._modelled("-memory-bytes-per-cycle", 10)

    @property
    def weight_bytes_per_cycle(self) -> float:
        """How many bytes a cycle of weights, which are read once, come from beyond the caches: a
        little less than of data that a kernel just wrote."""
        return 0.8 * self.memory_bytes_per_cycle

    @property
    def tlb_pages(self) -> int:
        """How many pages of memory a core reads in turn at no cost: 64, or as `-tlb-pages` says."""
        return self._modelled("-tlb-pages", 64)

    @property
    def cycle_seconds(self) -> float:
        """What models of costs take a cycle to last. Only ratios of costs decide anything."""
        return 0.5e-9

    def bytes_per_cycle(self, size: int) -> float:
        """How many bytes a cycle code moves through the memory that a tensor of `size` bytes fits:
        what the memory moves, but no more than half a vector."""
        near = size <= self.l2_bytes
        most = self.l2_bytes_per_cycle if near else self.memory_bytes_per_cycle
        return min(self.vector_bits / 16, most)

    def _modelled(self, option: str, default: int) -> int:
        return dict(self.model).get(option, default)

    def is_host(self) -> bool:
        """Whether code for this target can run on this machine."""
        host = Target.host()
        if self.isa != host.isa:
            return False
        if (self.cpu, self.attributes) == (host.cpu, host.attributes):
            return True
        names = tuple(sorted(_host_features()))
        return self.supported(names) <= {name for name, has in _host_features().items() if has}


def _parse(text: str) -> dict[str, str]:
    if not isinstance(text, str):
        raise TargetError(f"a target is made from a string, such as 'llvm -mcpu=x86-64-v3', not "
                          f"from a {type(text).__name__}")
    words = text.split()
    if not words or words[0] != "llvm":
        raise TargetError(
            f"the target {text!r} does not start with 'llvm', the one backend there is; for "
            "example: 'llvm -mcpu=x86-64-v3', or 'llvm' alone for this machine"
        )
    options: dict[str, str] = {}
    for word in words[1:]:
        name, equals, value = word.partition("=")
        if name not in OPTIONS:
            raise TargetError(f"the target option {name!r} is unknown{_hint(name, OPTIONS)}")
        if not equals or not value:
            raise TargetError(f"the target option {name} needs a value: {name}=...")
        if name in options:
            raise TargetError(f"the target option {name} is given twice in {text!r}")
        options[name] = value
    return options


def _hint(name: str, known: Any) -> str:
    close = difflib.get_close_matches(name, list(known), n=3, cutoff=0.5)
    if close:
        return f"; did you mean {' or '.join(close)}?"
    return f"; known: {', '.join(known)}" if len(known) < 12 else ""


def _isa(triple: str) -> str | None:
    return _ISAS.get(triple.split("-")[0])


def _choose_cpu(options: dict[str, str], triple: str) -> str:
    cpu = options.get("-mcpu")
    if cpu is None:
        raise TargetError(
            f"the target names no CPU for {triple}; add -mcpu=..., or -mcpu=generic for code that "
            "runs on every such machine and is slower"
        )
    if cpu not in ("generic", _host_cpu() if triple == _host_triple() else ""):
        known = _known_names(triple)[0]
        if cpu not in known:
            raise TargetError(f"LLVM knows no CPU {cpu!r} for {triple}{_hint(cpu, known)}")
    return cpu


def _check_attributes(text: str, triple: str) -> tuple[str, ...]:
    words = [word for word in text.split(",") if word]
    chosen: dict[str, str] = {}
    for word in words:
        sign, name = word[:1], word[1:]
        if sign not in "+-" or not name:
            raise TargetError(f"the feature {word!r} in -mattr must start with + or -")
        if not _feature_exists(name, triple):
            known = _known_names(triple)[1]
            raise TargetError(f"LLVM knows no feature {name!r} for {triple}{_hint(name, known)}")
        chosen[name] = sign + name
    return tuple(chosen[name] for name in sorted(chosen))


def _feature_exists(name: str, triple: str) -> bool:
    if _isa(triple) == _isa(_host_triple()) and name in _host_features():
        return True
    return name in _known_names(triple)[1]


def _positive(options: dict[str, str], name: str, default: int) -> int:
    value = options.get(name, str(default))
    if not (value.isascii() and value.isdigit() and int(value) > 0):
        raise TargetError(f"the target option {name} must be a positive integer, not {value!r}")
    return int(value)


# --- the host -----------------------------------------------------------------------------------


@cache
def _host_target() -> Target:
    return Target("llvm")


def _llvm() -> Any:
    import llvmlite.binding as llvm

    return llvm


def _host_triple() -> str:
    return str(_llvm().get_process_triple())


def _host_cpu() -> str:
    return str(_llvm().get_host_cpu_name())


@cache
def _host_features() -> dict[str, bool]:
    return {str(name): bool(has) for name, has in _llvm().get_host_cpu_features().items()}


@cache
def _host_options() -> dict[str, str]:
    """The CPU that LLVM names, less what this machine lacks of it, plus what it has beyond it."""
    features = _host_features()
    triple, cpu = _host_triple(), _host_cpu()
    implied = _implied_features(triple, cpu, "", tuple(sorted(features)))
    differing = [("+" if has else "-") + name for name, has in sorted(features.items())
                 if has != (name in implied)]
    options = {"-mtriple": triple, "-mcpu": cpu, "-mattr": ",".join(differing),
               "-l1-bytes": str(_cache_bytes(1) or DEFAULT_L1_BYTES),
               "-l2-bytes": str(_cache_bytes(2) or DEFAULT_L2_BYTES),
               "-num-cores": str(_core_count())}
    return {name: value for name, value in options.items() if value}


def _core_count() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cache_bytes(level: int) -> int | None:
    """The size of the first core's data cache, where Linux tells."""
    for index in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        try:
            facts = {name: (index / name).read_text().strip() for name in ("level", "type", "size")}
        except OSError:
            continue
        match = re.fullmatch(r"(\d+)([KM])", facts["size"])
        if facts["level"] == str(level) and facts["type"] != "Instruction" and match:
            return int(match[1]) * {"K": 1024, "M": 1024**2}[match[2]]
    return None


# --- questions to LLVM --------------------------------------------------------------------------

_HELP = """
import sys, llvmlite.binding as llvm
llvm.initialize_all_targets()
llvm.Target.from_triple(sys.argv[1]).create_target_machine(cpu="help")
"""


@cache
def _known_names(triple: str) -> tuple[frozenset[str], frozenset[str]]:
    """Every CPU and every feature of an architecture.

    LLVM lists them only on the standard error stream, so a process of its own is asked.
    """
    answer = subprocess.run([sys.executable, "-c", _HELP, triple], capture_output=True, text=True)
    cpus, _, features = answer.stderr.partition("Available features")
    names = re.compile(r"^  ([A-Za-z0-9._-]+) +- ", re.MULTILINE)
    found = frozenset(names.findall(cpus)), frozenset(names.findall(features))
    if answer.returncode or not all(found):
        raise TargetError(f"LLVM could not list the CPUs of {triple}: {answer.stderr[:200]}")
    return found


def target_machine(triple: str, cpu: str, features: str, level: int = 3) -> Any:
    """LLVM's target machine: position-independent code, in the small code model."""
    llvm = _llvm()
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(triple).create_target_machine(
        cpu=cpu, features=features, opt=level, reloc="pic", codemodel="small")
    machine.set_asm_verbosity(False)
    return machine


@cache
def _vector_bits(triple: str, cpu: str, features: str) -> int:
    if not triple.startswith(("x86_64", "amd64")):
        return 128
    llvm = _llvm()
    source = f"""target triple = "{triple}"
        define <16 x float> @add(<16 x float> %a, <16 x float> %b) {{
          %c = fadd <16 x float> %a, %b
          ret <16 x float> %c
        }}"""
    machine = target_machine(triple, cpu, features, level=0)
    with llvm.parse_assembly(source, llvm.create_context()) as module:
        assembly = machine.emit_assembly(module)
    return 512 if "zmm" in assembly else 256 if "ymm" in assembly else 128


@cache
def _implied_features(triple: str, cpu: str, features: str,
                      asked: tuple[str, ...]) -> frozenset[str]:
    """Those of `asked` that are already on for this CPU with these features.

    LLVM inlines a function only into one that has all its features: so a callee with one more
    feature is inlined exactly where the feature adds nothing.
    """
    llvm = _llvm()
    plain = f'"target-cpu"="{cpu}" "target-features"="{features}"'
    lines = [f'target triple = "{triple}"']
    for number, name in enumerate(asked):
        more = f"{features},+{name}" if features else f"+{name}"
        lines.append(
            f'define internal i32 @callee{number}(i32 %x) "target-cpu"="{cpu}" '
            f'"target-features"="{more}" {{\n  %y = mul i32 %x, {number + 3}\n  ret i32 %y\n}}\n'
            f"define i32 @caller{number}(i32 %x) {plain} {{\n"
            f"  %y = call i32 @callee{number}(i32 %x)\n  ret i32 %y\n}}"
        )
    builder = llvm.create_pass_builder(target_machine(triple, cpu, features),
                                       llvm.create_pipeline_tuning_options(1))
    with llvm.parse_assembly("\n".join(lines), llvm.create_context()) as module:
        builder.getModulePassManager().run(module, builder)
        optimized = str(module)
    kept = {int(number) for number in re.findall(r"call .*@callee(\d+)\(", optimized)}
    return frozenset(name for number, name in enumerate(asked) if number not in kept)
