"""What tells tokens apart where nothing turns: named from the tape, on models whose papers and code say what it is."""

import json

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


def seen_in(name):
    transformers = pytest.importorskip("transformers")
    sizes, _ = OF_TRANSFORMERS[name]
    torch.manual_seed(0)
    model = getattr(transformers, f"{name}Model")(getattr(transformers, f"{name}Config")(vocab_size=64, **sizes)).eval()
    return model, phasor.observe(model).instead


@pytest.mark.parametrize(("name", "over"), [("Bloom", 1.0), ("Mpt", 1.0), ("Falcon", 8**0.5)])
def test_slopes_of_four_heads(name, over):
    """Press et al., section 3: 2 ** (-8 h / heads); Falcon divides them, as products, by the root of the width."""
    _, found = seen_in(name)
    (_, bias), *_ = found.biases
    assert bias.causal and bias.slopes == pytest.approx([2.0 ** (-2 * h) / over for h in range(1, 5)], rel=1e-5)


def test_a_learned_bias_at_each_distance():
    """T5's buckets (arXiv:1910.10683): distances below 8 have rows of their own, keys behind a query from row 16 on."""
    model, found = seen_in("T5")
    table = model.encoder.block[0].layer[0].SelfAttention.relative_attention_bias.weight.detach().double().T
    bias = dict(found.biases)["encoder.block.0.layer.0.SelfAttention"]
    near = bias.values.shape[-1] - 1
    rows = [16 + d for d in range(near, 0, -1)] + list(range(near + 1))  # query minus key: from -near to near
    assert not bias.causal and torch.allclose(bias.by_distance, table[:, rows] - table[:, :1], atol=1e-6)
    assert dict(found.biases)["decoder.block.0.layer.0.SelfAttention"].causal


@pytest.mark.parametrize(("name", "first", "rows"), [("GPT2", 0, 32), ("Bert", 0, 512), ("MPNet", 2, 512)])
def test_the_row_of_the_first_token(name, first, rows):
    _, found = seen_in(name)
    (added,) = found.added
    assert (added.first, len(added.table)) == (first, rows)
    assert added.indices[0].tolist() == list(range(first, first + added.values.shape[1]))


DISENTANGLED = {**SIZES, "intermediate_size": 32, "relative_attention": True, "pos_att_type": ["c2p", "p2c"]}


@pytest.mark.parametrize(
    ("name", "sizes", "count", "row"),
    [
        # arXiv:2006.03654: content to position and back, both by query minus key plus a span
        ("DebertaV2", {**DISENTANGLED, "max_position_embeddings": 32}, 2, lambda d, tokens: 32 + d),
        ("Deberta", {**DISENTANGLED, "position_biased_input": False}, 2, lambda d, tokens: tokens + d),
        # arXiv:1906.08237: distances from all tokens down to minus all, of which each query takes its own by a shift
        ("XLNet", {"d_model": 32, "n_layer": 1, "n_head": 4, "d_inner": 32}, 1, lambda d, tokens: -d),
    ],
)
def test_relative_rows_that_the_contents_are_multiplied_by(name, sizes, count, row):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    model = getattr(transformers, f"{name}Model")(getattr(transformers, f"{name}Config")(vocab_size=64, **sizes))
    found = [bias for _, bias in phasor.observe(model.eval()).instead.biases]
    assert len(found) == count
    for bias in found:
        tokens = bias.values.shape[-1]
        assert bias.looked_up and bias.by_distance[0].tolist() == [row(d, tokens) for d in range(1 - tokens, tokens)]


def test_values_are_plain_data():
    found = json.loads(json.dumps(seen_in("MPNet")[1].to_dict()))
    assert found["added"] == [{"where": "embeddings", "first_row": 2, "table": [512, 32]}]
    where = "encoder.layer.0.attention.attn"
    assert found["biases"] == [{"where": where, "slopes": [], "causal": False, "table": [32, 4]}]
