"""Dataflow patterns: find, rewrite and partition programs by their shape.

    x = wildcard()
    pattern = is_op("nn.relu")(is_op("nn.conv2d")(x, is_constant()))
    match(pattern, function)           whether it matches the result
    find(pattern, function)            all its matches
    rewrite([callback], module)        replaces matches
    partition(pattern, module)         makes a function of each match

`language` has the patterns, `matching` what a match is, `rewriting`, `partition` and `rules` what
can be done with it.
"""

from minitvm.relay.pattern.language import (
    DFPattern,
    dominates,
    is_constant,
    is_if,
    is_op,
    is_tuple,
    is_tuple_get_item,
    is_var,
    wildcard,
)
from minitvm.relay.pattern.matching import Match, find, match
from minitvm.relay.pattern.partition import partition, partition_by_rules
from minitvm.relay.pattern.rewriting import DFPatternCallback, RewriteError, rewrite
from minitvm.relay.pattern.rules import FusionRule

__all__ = [
    "DFPattern",
    "DFPatternCallback",
    "FusionRule",
    "Match",
    "RewriteError",
    "dominates",
    "find",
    "is_constant",
    "is_if",
    "is_op",
    "is_tuple",
    "is_tuple_get_item",
    "is_var",
    "match",
    "partition",
    "partition_by_rules",
    "rewrite",
    "wildcard",
]
