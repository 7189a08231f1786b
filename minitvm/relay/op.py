"""What an operator is: one class that says everything the compiler needs to know about it.

    class Relu(Op):                       a frozen dataclass: fields are the attributes
        name = "nn.relu"
        pattern = Pattern.ELEMWISE        how it fuses
        def infer(self, x): ...           the type rule: argument types -> result type
        def evaluate(self, x): ...        the meaning in numpy: folder, interpreter and oracle
        def compute(self, x): ...         the same in te: tensors -> tensor (or a tuple of tensors)
        def schedule(self, s, ...): ...   the default recipe of a kernel that this operator anchors
        def legalize(self, emit, x): ...  for a composite operator: what it decomposes into
        def alter_layout(self, ...): ...  which packed layouts it prefers, takes and gives

`register` puts the class into `REGISTRY` under its name, which is also how the text of relay
spells it; attributes print as keyword arguments. Users register their own from their own files.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from enum import IntEnum
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from minitvm.errors import OptionError, TypeInferenceError
from minitvm.te.recipes import schedule_default

if TYPE_CHECKING:
    from minitvm.relay.ir import Atom, Type
    from minitvm.target import Target
    from minitvm.te import Schedule, Tensor


class Pattern(IntEnum):
    """How an operator's output elements depend on its inputs; lower is easier to fuse.

    From "TVM: An Automated End-to-End Optimizing Compiler for Deep Learning" (OSDI 2018), and
    Relay's `TOpPattern`.
    """

    ELEMWISE = 0
    BROADCAST = 1
    INJECTIVE = 2
    COMM_REDUCE = 3
    OUT_ELEMWISE_FUSABLE = 4
    TUPLE = 7
    OPAQUE = 8


@dataclass(frozen=True, slots=True)
class LayoutChoice:
    """The answer of `alter_layout`: the operator to call, and the layouts of arguments and result.

    `arguments[i]` is the layout wanted for argument i (None: as it is), for example "NCHW16c".
    """

    op: Op
    arguments: tuple[str | None, ...]
    result: str | None


Emit = Callable[..., "Atom"]
"""`emit(op, *atoms) -> atom`: adds a call to the block being built, with the right origin."""


@dataclass(frozen=True, slots=True)
class Op:
    """The base class. `arity` None means any number of arguments."""

    name: ClassVar[str]
    pattern: ClassVar[Pattern] = Pattern.OPAQUE
    arity: ClassVar[int | None] = 1
    layouts: ClassVar[tuple[str, ...]] = ()
    """The names of the fields that hold layouts, for `alter_layout` and `ConvertLayout`."""

    clears_padding: ClassVar[bool] = False
    """Whether its packed form gives zeros in padding lanes, whatever finite numbers its arguments
    have in theirs."""

    reads_through_copies: ClassVar[bool] = False
    """Whether it copies its arguments anyway, so that what only moves their elements, or computes
    them one by one, is fused into that copy."""

    def infer(self, *types: Any) -> Type:
        """The result type; raises `TypeInferenceError` through `self.fail` for ill-typed calls."""
        raise NotImplementedError(f"{self.name} has no type rule")

    def evaluate(self, *values: Any) -> np.ndarray | tuple[np.ndarray, ...]:
        """The result in numpy, dtype and shape as `infer` says."""
        raise NotImplementedError(f"{self.name} has no numpy meaning")

    def compute(self, *inputs: Any) -> Tensor | tuple[Tensor, ...]:
        """The result as te tensors."""
        raise NotImplementedError(f"{self.name} has no te computation")

    def schedule(self, s: Schedule, anchor: Tensor, output: Tensor, target: Target) -> None:
        """Schedules a kernel that this operator anchors: `anchor` is what `compute` gave, `output`
        the kernel's last tensor (the same one, or what was fused behind it)."""
        schedule_default(s, anchor, output, target)

    def legalize(self, emit: Emit, *arguments: Any) -> Atom | None:
        """Emits simpler operators and gives their result; None where the operator stays."""
        return None

    def alter_layout(self, types: tuple[Type, ...], target: Target) -> LayoutChoice | None:
        """The packed form this operator prefers on `target`; None where it has none."""
        return None

    def layout_alternatives(
        self, types: tuple[Type, ...], target: Target
    ) -> tuple[LayoutChoice, ...]:
        """The forms among which `AlterOpLayout` chooses by their costs; one without any layout is
        the plain form. By default only what `alter_layout` prefers."""
        choice = self.alter_layout(types, target)
        return () if choice is None else (choice,)

    def seconds(self, types: tuple[Type, ...], target: Target) -> float | None:
        """The modelled time of a call on arguments of these types, for choices among layouts: only
        how it compares with that of other forms matters. None: by the bytes it reads and writes."""
        return None

    def follow_layout(
        self, types: tuple[Type, ...], layouts: tuple[str | None, ...]
    ) -> LayoutChoice | None:
        """The form this operator takes where its arguments come in packed `layouts` (None: plain);
        None where it doesn't take them. `types` are those of the plain arguments. Elementwise,
        broadcasting and reducing operators need not say: their patterns do."""
        return None

    def fail(self, types: tuple[Any, ...], rule: str) -> TypeInferenceError:
        """The error for argument types that break `rule`, for `raise self.fail(types, "...")`."""
        given = ", ".join(str(t) for t in types)
        return TypeInferenceError(f"{self.name}({given}): {rule}")

    def attributes(self) -> dict[str, Any]:
        """The attributes that differ from their defaults, in order of declaration."""
        shown = {}
        for item in fields(self):
            value = getattr(self, item.name)
            default = item.default if item.default_factory is MISSING else item.default_factory()
            if default is MISSING or repr(value) != repr(default):  # -0.0 is not 0.0
                shown[item.name] = value
        return shown


REGISTRY: dict[str, type[Op]] = {}
OpClass = TypeVar("OpClass", bound=type[Op])


def register(cls: OpClass) -> OpClass:
    """Adds an operator class to the registry; a decorator. A name can be taken once."""
    if cls.name in REGISTRY and REGISTRY[cls.name].__qualname__ != cls.__qualname__:
        raise OptionError(f"the operator name {cls.name!r} is taken by {REGISTRY[cls.name]!r}")
    REGISTRY[cls.name] = cls
    return cls


def lookup(name: str) -> type[Op]:
    """The operator class of that name; the error names the closest ones."""
    if name not in REGISTRY:
        close = difflib.get_close_matches(name, REGISTRY, n=3)
        hint = f"; did you mean {' or '.join(close)}?" if close else ""
        raise OptionError(f"there is no relay operator {name!r}{hint}")
    return REGISTRY[name]
