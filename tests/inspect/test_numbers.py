"""Facts that `phasor inspect` prints, against numbers published elsewhere."""

import math

import pytest
import torch

from phasor import ModelRotary, RotarySpec, read_config
from phasor.rotary.axes import Sections
from phasor.rotary.scaling import NTK, DynamicNTK, Linear, Llama3, LongRoPE, Proportional, YaRN
from phasor.tools.inspect.curves import decay
from phasor.tools.inspect.disagreement import compare, compare_lengths
from phasor.tools.inspect.model_page import model_facts, page
from phasor.tools.inspect.numbers import log_distances, regimes, spec_facts
from phasor.tools.inspect.rows import unit

LLAMA31 = RotarySpec(head_dim=128, base=500_000.0, scaling=Llama3(8.0, 1.0, 4.0, 8192))


@pytest.mark.parametrize(("base", "distance"), [(1e4, 1707), (5e5, 18438), (1e6, 27115)])
def test_first_negative_mean_cosine(base, distance):
    # "Base of RoPE bounds context length", arXiv:2405.14591: where the condition fails first, 128 channels
    facts = spec_facts(RotarySpec(head_dim=128, base=base), 2 * distance)
    assert facts.first_negative == distance
    assert spec_facts(RotarySpec(head_dim=128, base=base), distance).first_negative is None


def test_mean_cosine():
    # g(1), g(4), g(64), g(2048) for d = 128, base 10000, by closed form in plain Python
    spec = RotarySpec(head_dim=128)
    for d in (0, 1, 4, 64, 2048):
        expected = sum(math.cos(d * 10_000 ** (-2 * i / 128)) for i in range(64)) / 64
        assert decay(spec, torch.tensor(d)).item() == pytest.approx(expected, abs=1e-12)
    stretched = spec.replace(scaling=YaRN(4.0, 4096))  # whose cos and sin are 1.1386 times as long
    assert decay(stretched, torch.tensor(0)).item() == pytest.approx(1, abs=1e-12)


def test_what_positions_count():
    axes = RotarySpec(head_dim=8, axes=Sections((2, 1, 1)))
    specs = RotarySpec(head_dim=8), axes, axes.replace(coordinates="real")
    assert [unit(spec) for spec in specs] == ["tokens", "steps of a coordinate", "units of a coordinate"]


def test_regimes_of_llama31():
    # llama-models' apply_scaling: pairs 0-28 unchanged, 29-34 blended, 35-63 divided by 8
    facts = spec_facts(LLAMA31, 131_072)
    assert facts.regimes == ("kept",) * 29 + ("blended",) * 6 + ("slowed",) * 29
    assert facts.trained_length == 8192


@pytest.mark.parametrize(
    ("scaling", "expected"),
    [
        (None, {"kept": 64}),
        (Linear(4.0), {"slowed": 64}),
        (NTK(8.0), {"kept": 1, "slowed": 1, "blended": 62}),
        (YaRN(16.0, 4096), {"kept": 21, "slowed": 18, "blended": 25}),  # ramp 20 to 46 for Llama 2
        (Proportional(0.25), {"kept": 16, "stopped": 48}),
        (DynamicNTK(2.0, 4096), {"kept": 64}),  # inside the trained length
        (LongRoPE((1.0,) * 64, (2.0,) * 64, 4096, 2.0), {"kept": 64}),
    ],
)
def test_regimes(scaling, expected):
    found = regimes(RotarySpec(head_dim=128, scaling=scaling))
    assert {r: found.count(r) for r in set(found)} == expected


def test_never_turn():
    # 18 pairs have a wavelength above 4096 for base 10000, 128 channels: "Scaling laws of RoPE", arXiv:2310.05209
    assert spec_facts(RotarySpec(head_dim=128), 4096, trained_length=4096).never_turn == 18
    assert spec_facts(RotarySpec(head_dim=128), 4096).never_turn is None  # nobody said how long it was trained


def test_float32_error_grows_with_the_position():
    # measured elsewhere against float64 for base 5e5, 128 channels, over the last 512 positions: 2.8e-4, 9.2e-3, 7.4e-2
    spec = RotarySpec(head_dim=128, base=500_000.0)
    found = [spec_facts(spec, n).float32_error for n in (4096, 131_072, 1_048_576)]
    assert found == pytest.approx([2.8e-4, 9.2e-3, 7.4e-2], rel=0.03)


def test_a_page_says_what_a_table_takes():
    """By hand: cos and sin of 64 pairs take 512 bytes a token in float32; a step takes 8 bytes a pair and axis."""
    one, several = (
        " ".join(page(toy, model_facts(toy, seq_len=131_072)).split())
        for spec in (LLAMA31, RotarySpec(head_dim=128, axes=Sections((32, 16, 16))))
        for toy in [ModelRotary(model_type="toy", layers=(spec,), layer_types=("a",), num_heads=1)]
    )
    assert "64 MiB of cos and sin for 131,072 positions; 512 bytes of steps replace it" in one
    assert "512 bytes of cos and sin per token; 1.5 KiB of steps replace any table" in several


def test_distances_of_real_coordinates_begin_below_one():
    real = spec_facts(RotarySpec(head_dim=8, coordinates="real"), 1024)
    distances = log_distances(real, 5)
    assert (float(distances[0]), float(distances[-1])) == pytest.approx((1 / 64, real.farthest))
    assert log_distances(spec_facts(RotarySpec(head_dim=8), 1024), 5)[0] == 1


def test_facts_survive_json():
    import json

    for spec in (
        LLAMA31,
        RotarySpec(head_dim=16, scaling=Proportional(0.5)),
        RotarySpec(head_dim=8, axes=Sections((2, 1, 1))),
    ):
        data = json.loads(json.dumps(spec_facts(spec, 64).to_dict(), allow_nan=False))
        assert RotarySpec.from_dict(data["spec"]) == spec


def test_compare_names_the_pair_and_the_position():
    # pairs 0.09 rad per token apart: 0.09 after one token, 0.18 after two
    found = compare(RotarySpec(head_dim=4, base=100.0), RotarySpec(head_dim=4, base=10_000.0))
    assert (found.pair, found.position, found.pairs_apart, found.layout) == (1, 2, 1, False)
    assert "pair 1 is 0.1 rad off from position 2" in found.describe()


def test_compare_sees_layout_and_magnitude():
    plain = RotarySpec(head_dim=128)
    assert compare(plain, plain).same
    assert compare(plain, plain.replace(interleaved=True)).layout
    stated = plain.replace(scaling=YaRN(32.0, 4096))
    muted = plain.replace(scaling=YaRN(32.0, 4096, attention=1.0))
    found = compare(muted, stated)
    assert found.pair is None and not found.same
    assert found.score_ratio == pytest.approx((0.1 * math.log(32) + 1) ** 2)


def test_compare_tells_axes_from_layout():
    plain = RotarySpec(head_dim=8)
    found = compare(plain, plain.replace(axes=Sections((2, 1, 1))))
    assert found.axes and not found.layout and not found.same and "not in text" in found.describe()


def test_compare_looks_at_both_regimes():
    def spec(short):
        return RotarySpec(head_dim=8, scaling=LongRoPE((short,) * 4, (2.0,) * 4, 4096, 32.0))

    near, far = compare_lengths(spec(1.0), spec(1.5), 131_072)
    assert near.pairs_apart == 4 and far.same and far.seq_len == 131_072
    assert "in sequences of 131,072 tokens" in far.describe()
    assert [len(compare_lengths(spec(1.0), spec(1.5), length)) for length in (1, 2, 3)] == [1, 2, 2]


def test_seq_len_is_not_the_trained_length():
    model = read_config(
        {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 1,
         "max_position_embeddings": 4096, "rope_theta": 10000.0}
    )  # fmt: skip
    (facts,) = model_facts(model, seq_len=100)
    assert (facts.trained_length, facts.max_position) == (4096, 100)


def test_a_spec_in_which_nothing_turns_has_a_page():
    spec = RotarySpec(head_dim=4, frequencies=(0.0, 0.0))
    model = ModelRotary(model_type="still", layers=(spec,), layer_types=("attention",), num_heads=1)
    assert "none rotates" in page(model, model_facts(model))
