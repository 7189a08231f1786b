"""The transformers of the zoo, small: they agree with ONNX Runtime in each form an exporter may
write, and what a mask hides has no influence."""

import numpy as np
import onnx
import pytest
from networks import assert_close, check, image

import minitvm
from minitvm.testing import zoo_transformers

FORMS = [
    {}, {"gelu": "tanh"}, {"layer_norm": "operator"},
    {"layer_norm": "operator", "gelu": "operator"},
]  # fmt: skip


def sentence(tokens=13, vocabulary=50, hidden=3):
    """Inputs of `minilm`: two kinds of tokens, the last few masked."""
    random = np.random.default_rng(3)
    mask = np.ones((1, tokens), np.int64)
    mask[:, tokens - hidden:] = 0
    return {
        "input_ids": random.integers(0, vocabulary, (1, tokens)),
        "attention_mask": mask,
        "token_type_ids": np.arange(tokens)[None] // 7,
    }


def small_minilm(**options):
    return zoo_transformers.minilm(5, tokens=13, width=24, layers=2, heads=3, vocabulary=50,
                                   **options)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_vision_transformers_agree(form):
    model = zoo_transformers.vit(seed=4, image=32, classes=10, layers=1, **form)
    onnx.checker.check_model(model, full_check=True)
    check(model, {"input": image(1, 3, 32, 32)})


def test_a_batch_of_pictures():
    check(zoo_transformers.vit(seed=6, image=32, batch=2, classes=10, layers=1),
          {"input": image(2, 3, 32, 32)})


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_text_encoders_agree(form):
    model = small_minilm(**form)
    onnx.checker.check_model(model, full_check=True)
    check(model, sentence())


def test_masked_tokens_do_not_matter():
    compiled = minitvm.compile(small_minilm())
    first, second = sentence(), sentence()
    second["input_ids"][0, 10:] = 7
    outputs = [compiled.run(inputs)["last_hidden_state"][:, :10] for inputs in (first, second)]
    np.testing.assert_array_equal(*outputs)
    second["input_ids"][0, 2] = (first["input_ids"][0, 2] + 1) % 50
    assert not np.array_equal(outputs[0], compiled.run(second)["last_hidden_state"][:, :10])


def test_the_forms_mean_the_same():
    """Layer normalization in nine nodes and in one; GELU's approximation is near."""
    outputs = [minitvm.compile(small_minilm(**form)).run(sentence()) for form in FORMS[:3]]
    assert_close(outputs[2], outputs[0])
    difference = np.abs(outputs[1]["last_hidden_state"] - outputs[0]["last_hidden_state"]).max()
    assert 1e-6 < difference < 2e-2


def test_gelu_of_opset_20_has_no_reduce_mean_of_opset_17():
    with pytest.raises(ValueError, match="layer_norm='operator'"):
        zoo_transformers.vit(gelu="operator")
