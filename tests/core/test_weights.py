"""Rows of fused tensors counted by hand, prefixes of checkpoints, and what is refused."""

import pytest

from phasor.models.prefixes import attentions, find_prefix, prefixes
from phasor.models.rows import ROWS
from phasor.models.weights import Piece, Rows, Weights, pieces
from phasor.rotary.spec import RotarySpec

SPEC = RotarySpec(head_dim=4)
SIZES = {"head_dim": 4, "heads": 4, "kv_heads": 2}
LLAMA = {f"layers.{i}.self_attn.{x}_proj.weight": (16, 16) for i in range(2) for x in "qkvo"}


@pytest.mark.parametrize(
    "rows, size, starts",
    [
        (Rows("x", "q"), 12, {"q": (0, 4, 8)}),
        (Rows("x", "qkv"), 32, {"q": (0, 4, 8, 12), "k": (16, 20)}),
        (Rows("x", "kv"), 16, {"k": (0, 4)}),
        (Rows("x", "kv"), 20, {"k": (0, 4)}),  # values of another width
        # two groups of [q q k v]
        (Rows("x", "qkv", blocks="kv_heads"), 32, {"q": (0, 4, 16, 20), "k": (8, 24)}),
        # four heads of [q gate]
        (Rows("x", "qg", blocks="heads"), 32, {"q": (0, 8, 16, 24)}),
        # two blocks of [q q v k]
        (Rows("x", "qvk", blocks=2), 32, {"q": (0, 4, 16, 20), "k": (12, 28)}),
        (Rows("x", "gqkv"), 48, {"q": (12, 16, 20, 24), "k": (28, 32)}),  # 24 rows are left for g and v
        (Rows("x", "qkv", blocks="unshared"), 32, {"q": (0, 4, 8, 12), "k": (16, 20)}),
    ],
)
def test_rows_of_a_tensor(rows, size, starts):
    assert rows.starts(size, **SIZES) == starts


def test_heads_with_keys_of_their_own_are_packed_head_by_head():
    own = {"head_dim": 2, "heads": 2, "kv_heads": 2}
    assert Rows("x", "qkv", blocks="unshared").starts(12, **own) == {"q": (0, 6), "k": (2, 8)}
    assert Rows("x", "qkv", blocks="kv_heads").starts(12, **own) == {"q": (0, 6), "k": (2, 8)}


def test_rows_of_latent_keys_come_after_the_latent():
    assert Rows("x", "cr").starts(40, rotary_dim=8, **SIZES) == {"r": (32,)}


@pytest.mark.parametrize("rows, size", [(Rows("x", "q"), 10), (Rows("x", "qkv"), 24), (Rows("x", "qk"), 32)])
def test_sizes_that_are_no_whole_heads(rows, size):
    with pytest.raises(ValueError, match=rf"x must have rows of .* got {size} rows"):
        rows.starts(size, **SIZES)


def of(weights=None, spec=SPEC, at="layers.0.self_attn", **shapes):
    named = {f"layers.0.self_attn.{name.replace('__', '.')}": shape for name, shape in shapes.items()}
    return pieces(weights or Weights(), spec, {**LLAMA, **named}, at, heads=4, kv_heads=4)


def test_biases_and_norms_are_pieces_too():
    found = of(q_proj__bias=(16,), q_norm__weight=(4,), k_norm__weight=(16,), k_norm__bias=(16,))
    at = "layers.0.self_attn."
    assert found == [
        Piece(f"{at}q_proj.weight", "q", "weight", (0, 4, 8, 12), 4),
        Piece(f"{at}q_proj.bias", "q", "bias", (0, 4, 8, 12), 4),
        Piece(f"{at}k_proj.weight", "k", "weight", (0, 4, 8, 12), 4),
        Piece(f"{at}q_norm.weight", "q", "norm", (0,), 4),
        Piece(f"{at}k_norm.weight", "k", "norm", (0, 4, 8, 12), 4),
        Piece(f"{at}k_norm.bias", "k", "norm", (0, 4, 8, 12), 4),
    ]


def test_only_the_channels_that_turn():
    first, last = (RotarySpec(head_dim=4, rotary_dim=2, trailing=trailing) for trailing in (False, True))
    assert of(spec=first)[0][3:5] == ((0, 4, 8, 12), 2)
    assert of(spec=last)[0][3:5] == ((2, 6, 10, 14), 2)
    assert of(spec=last, k_norm__weight=(2,))[2][3:5] == ((0,), 2)  # a norm on those channels alone


def test_one_norm_for_each_head():
    found = of(Weights(q_norms=("q_norm.norms.{}",)), q_norm__norms__0__weight=(4,), q_norm__norms__1__weight=(4,))
    assert [p.tensor[-8:] for p in found if p.role == "norm"] == ["0.weight", "1.weight"]


def test_columns_of_the_output_count_where_keys_are_the_values():
    weights = Weights(
        rows=(*Weights().rows, Rows("o_proj", "o", axis=1, instead=("k_proj", "v_proj"))), may_lack=("k",)
    )
    assert [p.kind for p in of(weights)] == ["q", "k"]
    shapes = {f"a0.{x}_proj.weight": (16, 16) for x in "qko"} | {"a0.o_proj.bias": (16,)}
    found = pieces(weights, SPEC, shapes, "a0", heads=4, kv_heads=4)
    assert found[2:] == [Piece("a0.o_proj.weight", "output", "weight", (0, 4, 8, 12), 4, 1)]  # no bias: it has rows
    lent = {name: shape for name, shape in LLAMA.items() if "1.self_attn.k" not in name and "1.self_attn.v" not in name}
    assert len(pieces(weights, SPEC, lent, "layers.1.self_attn", heads=4, kv_heads=4)) == 1
    with pytest.raises(ValueError, match=r"whether the keys that layers.1.self_attn borrows are values too"):
        pieces(weights, SPEC, shapes | lent, "layers.1.self_attn", heads=4, kv_heads=4)


@pytest.mark.parametrize(
    "shapes, message",
    [
        ({"q_proj__weight_scale_inv": (1,)}, r"weight_scale_inv beside .*quantized or adapted"),
        ({"k_proj__lora_A__weight": (1, 16)}, r"lora_A.weight beside .*merge them first"),
        ({"q_norm__weight": (6,)}, r"q_norm.weight must cover whole heads of 4 channels, got 6"),
        ({"k_proj__weight": (15, 16)}, r"layers.0.self_attn.k_proj must have rows of k .* got 15 rows"),
    ],
)
def test_what_is_refused(shapes, message):
    with pytest.raises(ValueError, match=message):
        of(**shapes)


def test_a_missing_tensor_is_named():
    with pytest.raises(ValueError, match=r"shapes must have layers.2.self_attn.q_proj.weight, and does not"):
        of(at="layers.2.self_attn")


def found(shapes, layers=(SPEC, SPEC), weights=None, heads=4):
    return find_prefix(shapes, weights or Weights(), layers, heads=heads, kv_heads=heads)


def under(prefix, shapes=None):
    return {f"{prefix}{name}": shape for name, shape in (shapes or LLAMA).items()}


@pytest.mark.parametrize("prefix", ["", "model.", "model.language_model.", "language_model.model."])
def test_any_prefix_is_found(prefix):
    assert found({"lm_head.weight": (100, 16), **under(prefix)}) == prefix


def test_a_tower_is_told_by_its_width_or_its_number_of_layers():
    narrow = under("tower.", {name: (12, 12) for name in LLAMA})
    assert found({**under("model."), **narrow}) == "model."
    assert found({**under("model."), **narrow}, heads=3) == "tower."
    deep = under("tower.", {f"layers.{i}.self_attn.{x}_proj.weight": (16, 16) for i in range(3) for x in "qk"})
    assert found({**under("model."), **deep}) == "model."
    assert found({**under("model."), **deep}, (SPEC,) * 3) == "tower."


def test_two_that_fit_are_named():
    with pytest.raises(ValueError, match=r"under 'a\.', 'b\.'; give the shapes under one of them alone"):
        found({**under("a."), **under("b.")})


def test_a_layer_without_rotation_may_be_missing_and_one_with_it_may_not():
    second = {name: shape for name, shape in LLAMA.items() if ".1." in name}
    assert found(second, (None, SPEC)) == ""
    with pytest.raises(ValueError, match=r"all 2 layers that rotate, and layers.0.self_attn.q_proj.weight is missing"):
        found(second)
    with pytest.raises(ValueError, match=r"layers.0.self_attn.q_proj.weight is missing"):
        found({})


def test_an_attention_without_its_keys_does_not_count_unless_it_may_borrow_them():
    lent = {name: shape for name, shape in LLAMA.items() if "1.self_attn.k_proj" not in name}
    with pytest.raises(ValueError, match=r"layers.1.self_attn.k_proj.weight is missing"):
        found(lent)
    borrowing = Weights(may_lack=("k",))
    assert found(lent, weights=borrowing) == ""
    last = pieces(borrowing, SPEC, lent, "layers.1.self_attn", heads=4, kv_heads=4)
    assert [p.kind for p in last] == ["q"]


def test_layers_beyond_the_config_turn_like_the_others_or_are_refused():
    assert list(attentions(LLAMA, Weights(), (SPEC,), "")) == ["layers.0.self_attn", "layers.1.self_attn"]
    with pytest.raises(ValueError, match=r"beyond the 2 of the config, .* got layers.2.self_attn; leave it out"):
        attentions([*LLAMA, *(f"layers.2.self_attn.{x}_proj.weight" for x in "qk")], Weights(), (None, SPEC), "")


def test_stacks_one_after_the_other():
    weights = Weights(attention=("encoder.{}.attn", "decoder.{}.attn"), stacks="after")
    other = SPEC.replace(base=500.0)
    names = {
        f"{stack}.{i}.attn.{x}_proj.weight": (16, 16)
        for stack, n in (("encoder", 1), ("decoder", 2))
        for i in range(n)
        for x in "qk"
    }
    assert found(names, (SPEC, other, other), weights) == ""
    assert attentions(names, weights, (SPEC, other, other), "") == {
        "encoder.0.attn": SPEC, "decoder.0.attn": other, "decoder.1.attn": other,
    }  # fmt: skip
    with pytest.raises(ValueError, match=r"decoder.2.attn.q_proj.weight is missing"):
        found(names, (SPEC,) * 4, weights)


def test_several_attentions_in_each_layer_and_layers_that_are_run_again():
    names = {f"layers.0.attn.{n}.{x}_proj.weight": (16, 16) for n in range(2) for x in "qk"}
    weights = Weights(attention=("layers.{}.attn.0", "layers.{}.attn.1"))
    assert prefixes(names, weights) == {"": {"layers.0.attn.0": 0, "layers.0.attn.1": 0}}
    assert found(names, (SPEC,), weights) == ""
    loop = Weights(attention=("low.{}", "high.{}"), stacks="loop")
    names = {f"{stack}.{i}.{x}_proj.weight": (16, 16) for stack in ("low", "high") for i in range(2) for x in "qk"}
    assert found(names, (SPEC,) * 8, loop) == ""
    assert len(attentions(names, loop, (SPEC,) * 8, "")) == 4


def test_baichuan_packs_queries_keys_and_values_one_after_the_other():
    """Its code: ``proj.unflatten(-1, (3, hidden_size))``, a head after the other in each of the three."""
    at = "model.layers.0.self_attn"
    shapes = {f"{at}.W_pack.weight": (24, 8), f"{at}.o_proj.weight": (8, 8)}
    found = pieces(ROWS["baichuan"].weights, RotarySpec(head_dim=4), shapes, at, heads=2, kv_heads=2)
    assert [(*piece[:2], piece.starts) for piece in found] == [
        (f"{at}.W_pack.weight", "q", (0, 4)),
        (f"{at}.W_pack.weight", "k", (8, 12)),
    ]
