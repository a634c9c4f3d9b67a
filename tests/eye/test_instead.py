"""What tells tokens apart where nothing turns: named from the tape, on models whose papers and code say what it is."""

import pytest
import torch

import phasor
from eye.zoo import ZOO

ALIBI = "ALiBi: the logits of each head fall by a slope for each position of distance ("
T5, LEARNED = "a learned bias on the logits by distance (as T5's)", "learned positions, added to the embeddings"
SINES, NONE = (
    "sinusoidal positions, added to the embeddings",
    "no position is seen in q, k, the logits or the embeddings",
)
OF_ZOO = {
    "alibi": ALIBI + "0.25, 0.0625, 0.01562, 0.003906",  # 2 ** (-8 h / heads): arXiv:2108.12409, section 3
    "t5 bias": T5,
    "learned positions": LEARNED,
    "sinusoidal": SINES,
    "hidden states turned": "the hidden states are multiplied by a table of positions, before any projection",
    "linear attention": "products of q and k without a softmax (linear attention), and no position in them",
    "no attention": "",
    "hadamard": NONE,
    "turned and turned back": NONE,
    # something moves with the tokens there, and it is no rotation: nothing is said of it
    **dict.fromkeys(("convolved keys", "two angles in a pair", "shear", "reflection", "angles of the data"), ""),
}


def said(model, inputs=None):
    facts = {fact.name: fact.value for fact in phasor.observe(model, inputs).facts}
    return facts.get("instead of a rotation", "")


@pytest.mark.parametrize("name", [name for name, case in ZOO.items() if not case.truth.turns])
def test_of_each_model_of_the_zoo_in_which_nothing_turns(name):
    what = said(ZOO[name].model(), ZOO[name].inputs)
    expected = OF_ZOO.get(name, "")
    assert what.startswith(expected) and bool(what) is bool(expected)


def test_nothing_is_said_where_something_turns():
    turning = next(case for case in ZOO.values() if case.truth.turns)
    assert said(turning.model(), turning.inputs) == ""


SIZES = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4}
OF_TRANSFORMERS = {
    "Bloom": ({"hidden_size": 32, "n_layer": 1, "n_head": 4}, ALIBI + "0.25, 0.0625"),
    "Mpt": ({"d_model": 32, "n_heads": 4, "n_layers": 1, "max_seq_len": 32}, ALIBI + "0.25, 0.0625"),
    "Falcon": ({**SIZES, "alibi": True, "multi_query": True, "new_decoder_architecture": False}, ALIBI),
    "T5": ({"d_model": 32, "d_kv": 8, "num_layers": 1, "num_heads": 4, "d_ff": 32}, f"{T5}, from a table [32, 4]"),
    "GPT2": ({"n_embd": 32, "n_layer": 1, "n_head": 4, "n_positions": 32}, LEARNED),
    "MPNet": ({**SIZES, "intermediate_size": 32}, f"{T5}, from a table [32, 4]; {LEARNED}"),
    "Bert": ({**SIZES, "intermediate_size": 32}, LEARNED),
    "XLM": ({"emb_dim": 32, "n_layers": 1, "n_heads": 4, "sinusoidal_embeddings": True}, SINES),
}


FUSED = ("GPT2", "Bert", "T5", "Falcon")  # attend through PyTorch's own function too


@pytest.mark.parametrize(
    ("name", "implementation"), [*((name, "eager") for name in OF_TRANSFORMERS), *((name, "sdpa") for name in FUSED)]
)
def test_of_models_of_transformers(name, implementation):
    transformers = pytest.importorskip("transformers")
    sizes, expected = OF_TRANSFORMERS[name]
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(vocab_size=64, **sizes)
    config._attn_implementation = implementation
    what = said(getattr(transformers, f"{name}Model")(config).eval())
    assert what.startswith(expected) and ("; " in what) is ("; " in expected)
