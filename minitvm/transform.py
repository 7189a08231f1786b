"""Passes, and the context they run in; shared by relay and tir.

    with PassContext(opt_level=3, disabled_pass=["FuseOps"], instruments=[PassTimer()]):
        module = Sequential([fold_constants, fuse_ops])(module)

A `Pass` is a pure function from module to module (a `relay.Module`, or a `tir.PrimFunc`) with a
name and the optimisation level from which it runs. Names and options are those that users of
TVM's `transform` module know.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from minitvm.errors import MinitvmError, OptionError

M = TypeVar("M")

PASS_NAMES: dict[str, int] = {}
"""Every pass made so far, by name, with its level."""

CONFIG_KEYS: dict[str, str] = {
    "relay.fuse_max_depth": "the most operators one fused kernel may hold (default 64)",
    "relay.recursion_limit": "how deeply compiled functions may call each other (default 1000)",
    "relay.fusion_rules": "patterns or FusionRules: each match is one kernel (default none)",
    "relay.fuse_depthwise": "'gaining' by modelled costs, or 'always' (default 'gaining')",
    "relay.layouts": "'planned' by modelled costs, or 'greedy' (default 'planned')",
    "relay.winograd_tile": "results a side of Winograd tiles: 2, 4, or 0 for none (default 2)",
    "tir.disable_vectorize": "lower vectorized loops as serial ones (default False)",
    "tir.unroll_max_step": "unroll serial loops that make at most so many stores (default 0)",
    "tir.unroll_max_extent": "and that run at most so often (default 16)",
    "tir.unroll_explicitly": "repeat unrolled loops in tir; else LLVM does it (default False)",
    "tir.bound_checks": "check at run time what is not proven to be in bounds (default False)",
    "cache.directory": "where compiled kernels are kept; None turns the cache off",
}
"""The keys that `PassContext(config=...)` takes, with what they mean."""


class Instrument(Protocol):
    """Observes passes. `before` and `after` are modules; an exception stops the compilation."""

    def run_before_pass(self, name: str, before: Any) -> None:
        """Called before each pass that runs."""

    def run_after_pass(self, name: str, before: Any, after: Any) -> None:
        """Called after each pass that ran."""


@dataclass(frozen=True, slots=True)
class PassContext:
    """How passes run: a context manager, like TVM's.

    `opt_level`: passes above it are skipped. `disabled_pass`, `required_pass`: names of passes
    skipped or run whatever the level. `instruments` see every pass. `config`: see `CONFIG_KEYS`.
    Unknown names raise `OptionError` with the closest known one.
    """

    opt_level: int = 3
    disabled_pass: Sequence[str] = ()
    required_pass: Sequence[str] = ()
    instruments: Sequence[Instrument] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    _tokens: list[Any] = field(default_factory=list, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.opt_level not in range(5):
            raise OptionError(f"opt_level is {self.opt_level!r}; it takes 0, 1, 2, 3 or 4")
        _check_names("config key", self.config, CONFIG_KEYS)

    def __enter__(self) -> PassContext:
        self._tokens.append(_CURRENT.set(self))
        return self

    def __exit__(self, *_: object) -> None:
        _CURRENT.reset(self._tokens.pop())

    @staticmethod
    def current() -> PassContext:
        """The innermost context entered, or the default one."""
        return _CURRENT.get()

    def enabled(self, name: str, opt_level: int) -> bool:
        """Whether a pass of that name and level runs."""
        if name in self.disabled_pass:
            return False
        return name in self.required_pass or opt_level <= self.opt_level

    def check_pass_names(self) -> None:
        """Raises `OptionError` for a disabled or required pass that does not exist."""
        _check_names("pass", (*self.disabled_pass, *self.required_pass), PASS_NAMES)


def _check_names(what: str, given: Iterable[str], known: Iterable[str]) -> None:
    names = list(known)
    for name in given:
        if name not in names:
            close = difflib.get_close_matches(name, names, n=3, cutoff=0.4)
            hint = f"did you mean {' or '.join(close)}?" if close else f"known: {', '.join(names)}"
            raise OptionError(f"there is no {what} named {name!r}; {hint}")


_DEFAULT = PassContext()
_CURRENT: ContextVar[PassContext] = ContextVar("pass_context", default=_DEFAULT)


@dataclass(frozen=True, slots=True)
class Pass(Generic[M]):
    """A named function from module to module, run from `opt_level` on.

    Calling it runs the instruments of the current context around it. An error inside gets a note
    that names the pass.
    """

    name: str
    function: Callable[[M], M]
    opt_level: int = 0

    def __post_init__(self) -> None:
        PASS_NAMES[self.name] = self.opt_level

    def __call__(self, module: M) -> M:
        context = PassContext.current()
        if not context.enabled(self.name, self.opt_level):
            return module
        try:
            for instrument in context.instruments:
                instrument.run_before_pass(self.name, module)
            result = self.function(module)
            for instrument in context.instruments:
                instrument.run_after_pass(self.name, module, result)
        except MinitvmError as error:
            _note(error, f"in pass {self.name}")
            raise
        return result


def _note(error: Exception, note: str) -> None:
    if note not in getattr(error, "__notes__", ()):
        error.add_note(note)


def make_pass(name: str, opt_level: int = 0) -> Callable[[Callable[[M], M]], Pass[M]]:
    """A decorator that makes a `Pass` of a function."""

    def decorate(function: Callable[[M], M]) -> Pass[M]:
        return Pass(name, function, opt_level)

    return decorate


def module_pass(pass_func: Any = None, opt_level: int = 0, name: str | None = None) -> Any:
    """TVM's decorator: a function of module and context becomes a pass; a class with such a method
    `transform_module` a function that makes the pass of its arguments."""
    return decorated_pass("transform_module", lambda apply: apply, pass_func, opt_level, name)


def decorated_pass(method: str, spread: Callable[[Any], Any], pass_func: Any, opt_level: int,
                   name: str | None) -> Any:
    """What TVM's decorators of passes share: `spread` takes a function of what a pass transforms to
    one of the module."""

    def make(function: Callable[..., Any], title: str) -> Pass[Any]:
        return Pass(name or title,
                    lambda module: spread(function)(module, PassContext.current()), opt_level)

    def decorate(given: Any) -> Any:
        if isinstance(given, type):
            return lambda *arguments, **options: make(
                getattr(given(*arguments, **options), method), given.__name__)
        return make(given, given.__name__)

    return decorate if pass_func is None else decorate(pass_func)


@dataclass(frozen=True, slots=True)
class Sequential(Generic[M]):
    """Passes one after the other, each subject to the current `PassContext`."""

    passes: Sequence[Pass[M]]

    def __call__(self, module: M) -> M:
        PassContext.current().check_pass_names()
        for item in self.passes:
            module = item(module)
        return module

    def __iter__(self) -> Iterator[Pass[M]]:
        return iter(self.passes)
