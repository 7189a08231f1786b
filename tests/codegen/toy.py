"""A model of two kernel calls, one scratch buffer and some weights: y = ((x + w) * 2 + w) * 2."""

import numpy as np

from minitvm.codegen.program import TensorInfo, compile_kernel, make_program
from minitvm.target import Target
from minitvm.tir.text import parse_func

SIZE = 1000
KERNEL = """
def add_twice(A: Buffer((1000,), "float32"), W: Buffer((1000,), "float32"),
              B: Buffer((1000,), "float32")):
    T = allocate((10000,), "float32")
    for i in range(1000):
        T[i] = A[i] + W[i]  #: "Add_0"
    for j in range(1000):
        B[j] = T[j] * 2.0  #: "Mul_1"
"""
MAIN = """
def main(x: Buffer((1000,), "float32"), y: Buffer((1000,), "float32"),
         weights: Buffer((4000,), "uint8"), workspace: Buffer((4000,), "uint8")):
    invoke(add_twice, address(x, 0), address(weights, 0), address(workspace, 0))  #: "Add_0"
    invoke(add_twice, address(workspace, 0), address(weights, 0), address(y, 0))  #: "Mul_1"
"""
WEIGHTS = np.arange(SIZE, dtype=np.float32) / 8


def toy_program(target=None, name="toy.model-1", weights=WEIGHTS):
    target = target or Target.host()
    kernel = compile_kernel(parse_func(KERNEL), target)
    return make_program(name, parse_func(MAIN), [kernel], weights,
                        [TensorInfo("x", (10, SIZE // 10))], [TensorInfo("y", (SIZE,))], target)


def toy_input(seed=0):
    random = np.random.default_rng(seed)
    return random.normal(0, 1, (10, SIZE // 10)).astype(np.float32)


def toy_result(x, weights=WEIGHTS):
    return ((x.ravel() + weights) * 2 + weights) * 2
