"""Rewrite rules as lines of text.

    pattern -> result  if condition

Patterns are Python expressions: `x y z` match anything, `p q` any condition, `c1 c2 c3` integer
constants (or broadcasts of them), a number itself. A name that comes twice must match equal
expressions; `+ * min max & | ^ == !=` match in either order. A result folds what it does to
constants, and the rule doesn't apply where a constant leaves the dtype. A condition is about
constants, `low(x)`, `high(x)` (bounds of an operand) and `less(x, y)` (x < y is proved).

Every rule makes the expression lighter (`rewriting.weight`), so that rewriting ends. What sums,
intervals and residues already settle needs no rule.
"""

from __future__ import annotations

EVERY = """
select(p, x, x) -> x
select(not p, x, y) -> select(p, y, x)
select(p, select(p, x, y), z) -> select(p, x, z)
select(p, x, select(p, y, z)) -> select(p, x, z)
select(p, select(q, x, y), y) -> select(p and q, x, y)
select(p, x, select(q, x, y)) -> select(p or q, x, y)
if_then_else(p, x, x) -> x
if_then_else(not p, x, y) -> if_then_else(p, y, x)
if_then_else(p, if_then_else(p, x, y), z) -> if_then_else(p, x, z)
if_then_else(p, x, if_then_else(p, y, z)) -> if_then_else(p, x, z)
if_then_else(p, if_then_else(q, x, y), y) -> if_then_else(p and q, x, y)
if_then_else(p, x, if_then_else(q, x, y)) -> if_then_else(p or q, x, y)
min(x, x) -> x
max(x, x) -> x
p and p -> p
p or p -> p
p and (q and p) -> q and p
p or (q or p) -> q or p
p and not p -> False
not p and p -> False
p or not p -> True
not p or p -> True
p and (p or q) -> p
p and (q or p) -> p
(p or q) and p -> p
(q or p) and p -> p
p or (p and q) -> p
p or (q and p) -> p
(p and q) or p -> p
(q and p) or p -> p
not p and not q -> not (p or q)
not p or not q -> not (p and q)
"""
"""Domain: values of every dtype, floats with NaN and both zeros included."""

INTEGERS = """
x + 0 -> x
x - 0 -> x
x - x -> 0
x * 0 -> 0
x * 1 -> x
x // 1 -> x
x % 1 -> 0
0 // x -> 0
0 % x -> 0
x % x -> 0
x + y - y -> x
x - y + y -> x
x - (x - y) -> y
x - (x + y) -> 0 - y
(x + c1) + c2 -> x + (c1 + c2)
(x + c1) - c2 -> x + (c1 - c2)
(x - c1) - c2 -> x - (c1 + c2)
(x - c1) + c2 -> x + (c2 - c1)
(x * c1) * c2 -> x * (c1 * c2)
x * c1 + x * c2 -> x * (c1 + c2)
x * c1 - x * c2 -> x * (c1 - c2)
x * y + x * z -> x * (y + z)
x * y - x * z -> x * (y - z)
x & x -> x
x | x -> x
x ^ x -> 0
x & 0 -> 0
x | 0 -> x
x ^ 0 -> x
x | (x & y) -> x
x & (x | y) -> x
x ^ (x ^ y) -> y
(x & c1) & c2 -> x & (c1 & c2)
(x | c1) | c2 -> x | (c1 | c2)
(x ^ c1) ^ c2 -> x ^ (c1 ^ c2)
x << 0 -> x
x >> 0 -> x
min(x, min(x, y)) -> min(x, y)
max(x, max(x, y)) -> max(x, y)
min(x, max(x, y)) -> x
max(x, min(x, y)) -> x
min(min(x, c1), c2) -> min(x, min(c1, c2))
max(max(x, c1), c2) -> max(x, max(c1, c2))
min(max(x, c1), c2) -> c2  if c2 <= c1
max(min(x, c1), c2) -> c2  if c1 <= c2
min(max(min(x, c1), c2), c3) -> min(max(x, c2), c3)  if c3 <= c1
max(min(max(x, c1), c2), c3) -> max(min(x, c2), c3)  if c1 <= c3
min(min(x, y), min(x, z)) -> min(min(x, y), z)
max(max(x, y), max(x, z)) -> max(max(x, y), z)
min(max(x, y), max(x, z)) -> max(x, min(y, z))
max(min(x, y), min(x, z)) -> min(x, max(y, z))
min(x, min(y, min(x, z))) -> min(y, min(x, z))
max(x, max(y, max(x, z))) -> max(y, max(x, z))
min(min(x, y), max(x, y)) -> min(x, y)
max(min(x, y), max(x, y)) -> max(x, y)
x == x -> True
x != x -> False
x < x -> False
x <= x -> True
x > x -> False
x >= x -> True
x < y and y < x -> False
x < y and y <= x -> False
x <= y and y < x -> False
x < y or y <= x -> True
x <= y or y < x -> True
x <= y or y <= x -> True
x == y and x != y -> False
x == y or x != y -> True
x < y or x == y -> x <= y
x == y or x < y -> x <= y
x < y or y < x -> x != y
x <= y and y <= x -> x == y
x <= y and x != y -> x < y
min(x, y) <= x -> True
min(x, y) > x -> False
x >= min(x, y) -> True
x < min(x, y) -> False
max(x, y) >= x -> True
max(x, y) < x -> False
x <= max(x, y) -> True
x > max(x, y) -> False
x <= min(x, y) -> x <= y
min(x, y) >= x -> x <= y
max(x, y) <= x -> y <= x
x >= max(x, y) -> y <= x
min(x, y) < x -> y < x
x < max(x, y) -> x < y
min(x, y) <= max(x, y) -> True
select(x < y, x, y) -> min(x, y)
select(x <= y, x, y) -> min(x, y)
select(y < x, x, y) -> max(x, y)
select(y <= x, x, y) -> max(x, y)
"""
"""Domain: integers of any dtype, which wrap."""

INDEX = """
x << c1 -> x * (1 << c1)  if 0 <= c1 and c1 < 31
x >> c1 -> x // (1 << c1)  if 0 <= c1 and c1 < 31
x // x -> 1
x * y // y -> x
x * y % y -> 0
(x * y + z) // y -> x + z // y
(x * y + z) % y -> z % y
(x * y - z) % y -> (0 - z) % y
(x + y) % y -> x % y
(x - y) % y -> x % y
x % y % y -> x % y
x // y -> 0  if low(x) >= 0 and less(x, y)
x % y -> x  if low(x) >= 0 and less(x, y)
x // y * y + x % y -> x
x - x // y * y -> x % y
x % y // y -> 0
min(x + z, y + z) -> min(x, y) + z
max(x + z, y + z) -> max(x, y) + z
min(x - z, y - z) -> min(x, y) - z
max(x - z, y - z) -> max(x, y) - z
min(z - x, z - y) -> z - max(x, y)
max(z - x, z - y) -> z - min(x, y)
min(x * c1, y * c1) -> min(x, y) * c1  if c1 > 0
max(x * c1, y * c1) -> max(x, y) * c1  if c1 > 0
min(x * c1, y * c1) -> max(x, y) * c1  if c1 < 0
max(x * c1, y * c1) -> min(x, y) * c1  if c1 < 0
min(x // c1, y // c1) -> min(x, y) // c1  if c1 > 0
max(x // c1, y // c1) -> max(x, y) // c1  if c1 > 0
min(x, y) + max(x, y) -> x + y
min(x, y) * max(x, y) -> x * y
max(x, y) - max(y, x) -> 0
"""
"""Domain: index arithmetic (see `canonical`), exact integers; divisors are not zero."""

DOMAINS = {"every": EVERY, "integers": INTEGERS, "index": INDEX}
