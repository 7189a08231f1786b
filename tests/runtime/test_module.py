"""Running a model: names, dtypes, shapes, memory layouts, threads."""

import threading

import numpy as np
import pytest
from toy import toy_input, toy_program, toy_result

from minitvm.codegen.jit import load_program
from minitvm.errors import InputError
from minitvm.runtime import TensorInfo


@pytest.fixture(scope="module")
def module():
    return load_program(toy_program())


@pytest.mark.parametrize("inputs, message", [
    ({}, r"needs another input: x: float32\[10, 100\]"),
    ({"X": toy_input()}, "no input 'X'; it has: x"),
    ({"x": toy_input(), "z": 1}, "no input 'z'"),
    ({"x": toy_input().astype(np.float64)}, r"dtype float64; .* float32: .*astype\('float32'\)"),
    ({"x": toy_input().astype(">f4")}, "dtype >f4"),
    ({"x": toy_input().ravel()}, "has 1 dimensions"),
    ({"x": toy_input().T}, r"shape \[100, 10\]; the model was compiled for \[10, 100\]"),
    ({"x": toy_input().tolist()}, "is a list; give a numpy array"),
    ({"x": None}, "is a NoneType"),
    ([toy_input()], "takes a mapping .* not a list; the inputs are: x"),
    (toy_input(), "takes a mapping .* not a ndarray"),
])
def test_unfit_inputs_are_refused(module, inputs, message):
    with pytest.raises(InputError, match=message):
        module.run(inputs)


def test_a_close_name_is_suggested():
    program = toy_program()
    module = load_program(program)
    module.inputs = (TensorInfo("pixels", (10, 100)),)
    with pytest.raises(InputError, match="no input 'pixel'; did you mean 'pixels'"):
        module.run({"pixel": toy_input()})


def test_any_memory_layout_works(module):
    x = toy_input()
    wide = np.zeros((20, 300), np.float32)
    wide[::2, ::3] = x
    raw = np.zeros(x.nbytes + 1, np.uint8)
    misaligned = raw[1:].view(np.float32).reshape(x.shape)
    misaligned[:] = x
    read_only = x.copy()
    read_only.setflags(write=False)
    layouts = (x, np.asfortranarray(x), wide[::2, ::3], x[::-1][::-1], misaligned, read_only)
    for array in layouts:
        np.testing.assert_array_equal(module.run({"x": array})["y"], toy_result(x))


def test_contiguous_inputs_are_not_copied():
    x = toy_input()
    info = TensorInfo("x", x.shape)
    assert info.accept(x) is x
    assert not np.shares_memory(info.accept(np.asfortranarray(x)), x)


def test_dlpack_is_read_in_place():
    class Foreign:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    x = toy_input()
    assert np.shares_memory(TensorInfo("x", x.shape).accept(Foreign(x)), x)


def test_scalars_are_arrays_of_rank_zero():
    assert TensorInfo("x", (), "int64").accept(np.int64(4)).shape == ()


def test_outputs_are_new_and_inputs_untouched(module):
    x = toy_input()
    before = x.copy()
    first, second = module.run({"x": x})["y"], module.run({"x": x})["y"]
    assert not np.shares_memory(first, second)
    np.testing.assert_array_equal(x, before)


def test_many_threads_may_run_one_model(module):
    wrong = []

    def work(seed):
        x = toy_input(seed)
        expected = toy_result(x)
        for _ in range(200):
            if not np.array_equal(module.run({"x": x})["y"], expected):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# --- outputs that the caller gives --------------------------------------------------------------


class Foreign:
    """Memory of another library: it speaks DLPack and is no numpy array."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_outputs_are_written_in_place(module):
    x, y = toy_input(), np.empty(1000, np.float32)
    result = module.run({"x": x}, outputs={"y": y})
    assert result["y"] is y
    np.testing.assert_array_equal(y, toy_result(x))
    np.testing.assert_array_equal(module.run({"x": x}, outputs={})["y"], toy_result(x))


def test_outputs_are_written_through_dlpack(module):
    x, y = toy_input(), np.zeros(1000, np.float32)
    result = module.run({"x": Foreign(x)}, outputs={"y": Foreign(y)})
    assert np.shares_memory(result["y"], y)
    np.testing.assert_array_equal(y, toy_result(x))


def test_results_go_out_through_dlpack(module):
    x = toy_input()
    taken = np.from_dlpack(module.run({"x": x})["y"])
    np.testing.assert_array_equal(taken, toy_result(x))


def read_only(array):
    array.setflags(write=False)
    return array


@pytest.mark.parametrize("y, message", [
    (np.empty(1000), r"is float32\[1000\]; it can't be written into .* float64\[1000\]"),
    (np.empty(1000, ">f4"), "can't be written into an array that is >f4"),
    (np.empty((10, 100), np.float32), r"float32\[10, 100\]"),
    (np.empty(2000, np.float32)[::2], r"not C-contiguous and aligned.*np.empty\(\(1000,\)"),
    (np.empty(4001, np.uint8)[1:].view(np.float32), "not C-contiguous and aligned"),
    (read_only(np.empty(1000, np.float32)), "is read-only"),
    ([0.0] * 1000, "the output 'y' is a list"),
    (np.float32(1), "the output 'y' is a float32; give a numpy array"),
])
def test_unfit_outputs_are_refused(module, y, message):
    with pytest.raises(InputError, match=message):
        module.run({"x": toy_input()}, outputs={"y": y})


def test_outputs_of_unknown_names_and_shared_memory_are_refused(module):
    x = toy_input()
    with pytest.raises(InputError, match="no output 'z'; it has: y"):
        module.run({"x": x}, outputs={"z": x})
    memory = np.zeros(1500, np.float32)
    x = memory[:1000].reshape(10, 100)
    for start in (0, 500):
        with pytest.raises(InputError, match="shares memory with an input"):
            module.run({"x": x}, outputs={"y": memory[start:start + 1000]})
