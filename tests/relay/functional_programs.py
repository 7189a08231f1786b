"""Relay programs with functions, for the tests of passes, lowering and the interpreter."""

from __future__ import annotations

from minitvm.relay.ir import Module
from minitvm.relay.text import parse_module

COUNT = 'Tensor((), "int32")'
FLAG = 'Tensor((), "bool")'
VECTOR = 'Tensor((4,), "float32")'
MAP = f"Func(({VECTOR},), {VECTOR})"


def program(text: str) -> Module:
    """The module of a text in which the types above stand by their names."""
    for name, kind in (("COUNT", COUNT), ("FLAG", FLAG), ("MAP", MAP), ("VECTOR", VECTOR)):
        text = text.replace(name, kind)
    return parse_module(text)


CLOSURES = """
def main(x: VECTOR, n: COUNT, c: FLAG) -> VECTOR:
    a = abs(x)  #: "a"
    def shift(y: VECTOR) -> VECTOR:  #: "f"
        b = add(y, a)  #: "b"
        return b
    k = compose(shift, shift)  #: "k"
    r = repeat(k, n, x)  #: "r"
    if c:  #: "if"
        def g(y: VECTOR) -> VECTOR:  #: "g"
            s = apply(shift, y)  #: "s"
            return s
        q = g(r)  #: "q"
        o = q
    else:
        o = x
    return o

def apply(f: MAP, x: VECTOR) -> VECTOR:
    r = f(x)  #: "ap"
    return r

def compose(f: MAP, g: MAP) -> MAP:
    def h(y: VECTOR) -> VECTOR:  #: "h"
        u = f(y)  #: "u"
        v = g(u)  #: "v"
        return v
    return h

def repeat(f: MAP, n: COUNT, x: VECTOR) -> VECTOR:
    more = greater(n, const(0, (), "int32"))  #: "more"
    if more:  #: "rif"
        m = subtract(n, const(1, (), "int32"))  #: "m"
        y = f(x)  #: "y"
        z = repeat(f, m, y)  #: "z"
        w = z
    else:
        w = x
    return w
"""
"""Closures, functions that take and give functions, and a loop over one."""

LOOP = """
def main(n: COUNT, x: VECTOR) -> Tuple(COUNT, VECTOR):
    r = loop(n, x, x)  #: "call"
    return r

def loop(n: COUNT, x: VECTOR, step: VECTOR) -> Tuple(COUNT, VECTOR):
    c = greater(n, const(0, (), "int32"))  #: "c"
    if c:  #: "if"
        m = subtract(n, const(1, (), "int32"))  #: "m"
        y = add(x, step)  #: "y"
        z = clip(y, a_min=-100.0, a_max=100.0)  #: "z"
        r = loop(m, z, step)  #: "r"
        q = r
    else:
        t = (n, x)  #: "t"
        q = t
    return q
"""
"""A while loop: a function that calls itself in tail position."""

SWAP = """
def main(n: COUNT, x: VECTOR, y: VECTOR) -> Tuple(VECTOR, VECTOR):
    r = swap(n, x, y)  #: "call"
    return r

def swap(n: COUNT, x: VECTOR, y: VECTOR) -> Tuple(VECTOR, VECTOR):
    c = greater(n, const(0, (), "int32"))  #: "c"
    if c:  #: "if"
        m = subtract(n, const(1, (), "int32"))  #: "m"
        r = swap(m, y, x)  #: "r"
        q = r
    else:
        t = (x, y)  #: "t"
        q = t
    return q
"""
"""A loop whose turns exchange two values."""

TWICE = """
def main(n: COUNT) -> COUNT:
    r = twice(n)  #: "call"
    return r

def twice(n: COUNT) -> COUNT:
    c = greater(n, const(0, (), "int32"))  #: "c"
    if c:  #: "if"
        m = subtract(n, const(1, (), "int32"))  #: "m"
        x = twice(m)  #: "x"
        y = twice(m)  #: "y"
        z = add(x, y)  #: "z"
        q = z
    else:
        q = const(1, (), "int32")
    return q
"""
"""2 ** n by 2 ** n calls: past the limit it must not go on calling."""

NEST = """
def main(n: COUNT) -> COUNT:
    r = down(n)  #: "call"
    return r

def down(n: COUNT) -> COUNT:
    c = greater(n, const(0, (), "int32"))  #: "c"
    if c:  #: "if"
        m = subtract(n, const(1, (), "int32"))  #: "m"
        x = down(m)  #: "x"
        z = add(x, const(2, (), "int32"))  #: "z"
        q = z
    else:
        q = const(1, (), "int32")
    return q
"""
"""1 + 2 n by n nested calls."""

EVEN = """
def main(n: COUNT) -> FLAG:
    r = even(n)  #: "call"
    return r

def even(n: COUNT) -> FLAG:
    c = greater(n, const(0, (), "int32"))  #: "c"
    if c:  #: "if"
        m = subtract(n, const(1, (), "int32"))  #: "m"
        x = odd(m)  #: "x"
        q = x
    else:
        q = const(True, (), "bool")
    return q

def odd(n: COUNT) -> FLAG:
    c = greater(n, const(0, (), "int32"))  #: "c2"
    if c:  #: "if2"
        m = subtract(n, const(1, (), "int32"))  #: "m2"
        x = even(m)  #: "x2"
        q = x
    else:
        q = const(False, (), "bool")
    return q
"""
"""Two functions that call each other."""
