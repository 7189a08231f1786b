"""Every error a user can meet, under one root: `MinitvmError`.

A message is one or more full sentences: what is wrong, where (node, operator, stage, line), and
what to do about it. A user's mistake never surfaces as `KeyError` or `AssertionError`.
"""

from __future__ import annotations


class MinitvmError(Exception):
    """The root: catch this to catch whatever minitvm refuses."""


class ModelError(MinitvmError):
    """An ONNX file that cannot be read: not ONNX, truncated, inconsistent, or with missing data."""


class UnsupportedOperatorError(ModelError):
    """A model uses operators, opsets or attributes outside what the importer knows; lists all."""


class TypeInferenceError(MinitvmError):
    """A relay call whose argument types break the operator's type rule."""


class ParseError(MinitvmError):
    """IR text that does not read; the message starts with `file:line:column`."""


class VerifyError(MinitvmError):
    """IR that breaks a numbered invariant of its verifier."""


class ScheduleError(MinitvmError):
    """A schedule primitive that is refused: stage, axis, reason, loop nest and legal choices."""


class LoweringError(MinitvmError):
    """A program that is well-formed at one level and cannot be taken to the next."""


class TargetError(MinitvmError):
    """A target string that is malformed or names a CPU or feature that LLVM does not know."""


class CodegenError(MinitvmError):
    """LLVM refused the code, or code generation met TIR outside the machine spec."""


class LinkError(MinitvmError):
    """No linker was found, or linking the shared library failed or gave an unexpected file."""


class InputError(MinitvmError):
    """Wrong inputs at run time: names, dtypes, shapes, or a missing tensor."""


class RunError(MinitvmError):
    """A run that had to stop: functions of the model called each other too deeply."""


class LoadError(MinitvmError):
    """A `.so` that is not a minitvm model, or is of another version or for another CPU."""


class InterpreterError(MinitvmError):
    """An interpreter met an out-of-bounds access, an unset variable or an uninitialised element."""


class OptionError(MinitvmError):
    """An unknown pass, option or configuration key, with the closest known name."""


class TuningError(MinitvmError):
    """A tuning log that can't be used, or tuning in which nothing works."""
