"""Hypothesis strategies for computes and schedules.

    programs()                          random graphs of small computes, see `te_programs`
    schedules(program)                  random legal steps on one, see `te_steps`

`te_oracle.random_inputs` and `te_oracle.evaluate` say what must come out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from minitvm.te.schedule import Schedule
from minitvm.testing.choices import DrawnChoices
from minitvm.testing.te_oracle import Program
from minitvm.testing.te_programs import random_program
from minitvm.testing.te_steps import random_schedule

Draw = Callable[[Any], Any]


@st.composite
def programs(draw: Draw, most_operations: int = 6) -> Program:
    """A graph of up to `most_operations` computes on two small matrices."""
    return random_program(DrawnChoices(draw), most_operations)


@st.composite
def schedules(draw: Draw, program: Program, most_steps: int = 12) -> Schedule:
    """A schedule of `program` that has taken random steps."""
    return random_schedule(DrawnChoices(draw), program, most_steps)
