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

CHOSEN = """
def main(x: VECTOR, n: COUNT, c: FLAG) -> VECTOR:
    a = abs(x)  #: "a"
    def shift(y: VECTOR) -> VECTOR:  #: "f"
        b = add(y, a)  #: "b"
        return b
    if c:  #: "if"
        k = shift
    else:
        s = negative(x)  #: "s"
        def scale(y: VECTOR) -> VECTOR:  #: "g"
            d = multiply(y, s)  #: "d"
            return d
        k = scale
    r = k(x)  #: "r"
    return r
"""
"""One closure or another: what they capture has another place each."""

CHOSEN_PAIR = """
def main(x: VECTOR, n: COUNT, c: FLAG) -> VECTOR:
    more = greater(n, const(1, (), "int32"))  #: "more"
    if c:  #: "if"
        p = (negate, x, double)  #: "p"
        k = p
    else:
        d = double(x)  #: "d"
        if more:  #: "inner"
            q = (negate, d, negate)  #: "q"
            l = q
        else:
            def same(y: VECTOR) -> VECTOR:  #: "same"
                e = add(y, d)  #: "e"
                return e
            o = (same, d, same)  #: "o"
            l = o
        k = l
    f = k[0]  #: "k0"
    v = k[1]  #: "k1"
    g = k[2]  #: "k2"
    w = both(f, g, v)  #: "w"
    return w

def negate(x: VECTOR) -> VECTOR:
    a = negative(x)  #: "negate"
    return a

def double(x: VECTOR) -> VECTOR:
    a = add(x, x)  #: "double"
    return a

def both(f: MAP, g: MAP, x: VECTOR) -> VECTOR:
    a = f(x)  #: "fx"
    b = g(a)  #: "ga"
    return b
"""
"""Functions in a tuple, chosen by nested branches and passed through a call."""

FOLD = """
def main(x: VECTOR, n: COUNT, c: FLAG) -> VECTOR:
    def plus(y: VECTOR) -> VECTOR:  #: "plus"
        b = add(y, x)  #: "b"
        return b
    r = fold(plus, negate, n, x)  #: "r"
    return r

def negate(x: VECTOR) -> VECTOR:
    a = negative(x)  #: "negate"
    return a

def fold(f: MAP, g: MAP, n: COUNT, x: VECTOR) -> VECTOR:
    more = greater(n, const(0, (), "int32"))  #: "more"
    if more:  #: "if"
        m = subtract(n, const(1, (), "int32"))  #: "m"
        y = f(x)  #: "y"
        odd = equal(m, const(2, (), "int32"))  #: "odd"
        if odd:  #: "oif"
            h = f
        else:
            h = g
        z = fold(h, f, m, y)  #: "z"
        w = z
    else:
        w = x
    return w
"""
"""A fold whose turns exchange functions, by a condition."""

PICK = """
def main(x: VECTOR, n: COUNT, c: FLAG) -> VECTOR:
    a = abs(x)  #: "a"
    def shift(y: VECTOR) -> VECTOR:  #: "f"
        b = add(y, a)  #: "b"
        return b
    l = pick(shift, n)  #: "l"
    r = l(x)  #: "r"
    return r

def pick(f: MAP, n: COUNT) -> MAP:
    more = greater(n, const(0, (), "int32"))  #: "more"
    if more:  #: "pif"
        m = subtract(n, const(1, (), "int32"))  #: "m"
        odd = equal(m, const(2, (), "int32"))  #: "odd"
        if odd:  #: "oif"
            g = f
        else:
            g = negate
        z = pick(g, m)  #: "z"
        q = z
    else:
        q = f
    return q

def negate(x: VECTOR) -> VECTOR:
    a = negative(x)  #: "na"
    return a
"""
"""A recursive function that takes and gives functions."""

EVEN_PICK = """
def main(x: VECTOR, n: COUNT, c: FLAG) -> VECTOR:
    f = even(n, x)  #: "f"
    r = f(x)  #: "r"
    return r

def even(n: COUNT, x: VECTOR) -> MAP:
    more = greater(n, const(0, (), "int32"))  #: "more"
    if more:  #: "if"
        m = subtract(n, const(1, (), "int32"))  #: "m"
        y = add(x, x)  #: "y"
        z = odd(m, y)  #: "z"
        q = z
    else:
        def minus(v: VECTOR) -> VECTOR:  #: "minus"
            a = subtract(v, x)  #: "a"
            return a
        q = minus
    return q

def odd(n: COUNT, x: VECTOR) -> MAP:
    more = greater(n, const(0, (), "int32"))  #: "more2"
    if more:  #: "if2"
        m = subtract(n, const(1, (), "int32"))  #: "m2"
        z = even(m, x)  #: "z2"
        def twice(v: VECTOR) -> VECTOR:  #: "twice"
            u = add(v, x)  #: "u"
            return u
        three = equal(m, const(3, (), "int32"))  #: "three"
        if three:  #: "if3"
            o = twice
        else:
            o = z
        q = o
    else:
        def times(v: VECTOR) -> VECTOR:  #: "times"
            a = multiply(v, x)  #: "ta"
            return a
        q = times
    return q
"""
"""Two functions that call each other and give closures."""

WRAPPED = """
def main(x: VECTOR, n: COUNT, c: FLAG) -> VECTOR:
    more = greater(n, const(1, (), "int32"))  #: "more"
    if c:  #: "if"
        a = wrap(negate, x)  #: "a"
        if more:  #: "if2"
            p = a
        else:
            p = double
        k = p
    else:
        b = wrap(double, x)  #: "b"
        if more:  #: "if3"
            q = b
        else:
            q = negate
        k = q
    r = k(x)  #: "r"
    return r

def wrap(f: MAP, v: VECTOR) -> MAP:
    s = abs(v)  #: "s"
    def h(y: VECTOR) -> VECTOR:  #: "h"
        u = f(y)  #: "u"
        w = add(u, s)  #: "w"
        return w
    return h

def negate(x: VECTOR) -> VECTOR:
    a = negative(x)  #: "negate"
    return a

def double(x: VECTOR) -> VECTOR:
    a = add(x, x)  #: "double"
    return a
"""
"""One closure around different functions, chosen among others: behind the outer branch it captures
one of several functions."""

CHOSEN_PROGRAMS = (CHOSEN, CHOSEN_PAIR, FOLD, PICK, EVEN_PICK, WRAPPED)
