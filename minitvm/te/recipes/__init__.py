"""Schedules that operators share: from a kernel's tensors and the target to a scheduled loop nest.

Each recipe takes the schedule, the kernel's anchor (the tensor that decides the loop nest, such as
a convolution) and its output (the anchor itself, or what was fused behind it). Choices depend on
shapes and on the target's vector width, registers and caches, never on a model.
"""

from minitvm.te.recipes.attention import schedule_attention
from minitvm.te.recipes.convolution import schedule_conv2d
from minitvm.te.recipes.injective import (
    CHANNELS,
    schedule_default,
    schedule_outputs,
    schedule_reduce,
)
from minitvm.te.recipes.lrn import schedule_lrn
from minitvm.te.recipes.matmul import schedule_dense, schedule_matmul
from minitvm.te.recipes.recurrence import schedule_recurrence
from minitvm.te.recipes.rows import schedule_standardize
from minitvm.te.recipes.softmax import schedule_softmax
from minitvm.te.recipes.winograd import schedule_winograd_input, schedule_winograd_output

__all__ = [
    "CHANNELS",
    "schedule_attention",
    "schedule_conv2d",
    "schedule_default",
    "schedule_dense",
    "schedule_lrn",
    "schedule_matmul",
    "schedule_outputs",
    "schedule_recurrence",
    "schedule_reduce",
    "schedule_softmax",
    "schedule_standardize",
    "schedule_winograd_input",
    "schedule_winograd_output",
]
