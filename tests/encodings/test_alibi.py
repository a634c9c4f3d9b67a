import pytest
import torch

from phasor.encodings import ALiBi, alibi_slopes

# Press et al. 2021, section 3, and the authors' get_slopes for 12 heads
EIGHT = [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]
TWELVE = [*EIGHT, 0.70710678, 0.35355339, 0.1767767, 0.08838835]
SIXTEEN = [2 ** (-0.5 * h) for h in range(1, 17)]


@pytest.mark.parametrize("slopes", [EIGHT, TWELVE, SIXTEEN])
def test_published_slopes(slopes):
    assert alibi_slopes(len(slopes)) == pytest.approx(slopes, abs=5e-9)


def test_the_formula_of_powers_of_two_is_wrong_for_twelve_heads():
    assert alibi_slopes(12) != pytest.approx([2 ** (-8 * h / 12) for h in range(1, 13)], rel=0.01)


@pytest.mark.parametrize("heads", [*range(1, 41), 71, 112])
def test_slopes_of_mpt(heads):
    mpt = pytest.importorskip("transformers.models.mpt.modeling_mpt")
    theirs = mpt.build_mpt_alibi_tensor(heads, 2)[:, 0, 0]  # the key one step back
    torch.testing.assert_close(-torch.tensor(alibi_slopes(heads)), theirs)


@pytest.mark.parametrize("heads", [8, 12, 5])
def test_bias_of_bloom_up_to_a_constant_per_query(heads):
    bloom = pytest.importorskip("transformers.models.bloom.modeling_bloom")
    theirs = bloom.build_alibi_tensor(torch.ones(1, 9), heads, torch.float32)  # [heads, 1, keys]
    q, t = torch.zeros(1, heads, 9, 2), torch.arange(9)
    ours = ALiBi(heads).bias(q, q, t, t, scale=1.0)
    torch.testing.assert_close(ours - ours[..., :1], (theirs - theirs[..., :1]).expand_as(ours))


def test_bias_is_minus_slope_times_distance():
    q, m, n = torch.zeros(1, 2, 2, 4), torch.tensor([2**31, 2**31 + 1]), torch.tensor([2**31 - 4, 2**31 + 3])
    # slopes of two heads: 1/16 and 1/256; exact in float32 at any position because distances are formed in int64
    causal = torch.tensor([[[-4, 3], [-5, 2]]]) / torch.tensor([16.0, 256.0]).view(2, 1, 1)
    assert torch.equal(ALiBi(2).bias(q, q, m, n, 1.0), causal)
    assert torch.equal(ALiBi(2, symmetric=True).bias(q, q, m, n, 1.0), -causal.abs())


@pytest.mark.parametrize("total, ranks", [(12, 3), (16, 4), (6, 2)])
def test_ranks_of_a_tensor_parallel_group_share_out_the_slopes(total, ranks):
    each = total // ranks
    parts = [ALiBi(each, total_heads=total, head_offset=r * each).slopes for r in range(ranks)]
    assert sum(parts, ()) == alibi_slopes(total)
    assert parts[1] != alibi_slopes(each)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: ALiBi(0), "num_heads must be an integer of at least 1, got 0"),
        (lambda: ALiBi(4, head_offset=4), "total_heads must be at least head_offset .* = 8, got 4; give total_heads="),
        (lambda: ALiBi(4, head_offset=-1), "head_offset must be an integer of at least 0, got -1"),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_wrong_number_of_heads_names_the_way_out():
    q, t = torch.zeros(1, 2, 3, 4), torch.arange(3)
    with pytest.raises(ValueError, match=r"q must have the 4 heads that ALiBi was made for, got 2; .*head_offset"):
        ALiBi(4).bias(q, q, t, t, 1.0)


def test_slopes_of_falcon_are_rounded():
    """transformers' Falcon multiplies bfloat16 slopes; what the docstring says of them, against its own function."""
    falcon = pytest.importorskip("transformers.models.falcon.modeling_falcon")
    for heads, most in ((8, 0.0), (71, 0.004)):
        theirs = falcon.build_alibi_tensor(torch.ones(1, 2), heads, torch.float64).flatten(0, 1)[:, 1]
        ours = torch.tensor(alibi_slopes(heads), dtype=torch.float64)
        assert torch.equal(theirs, ours.float().bfloat16().double())
        assert most / 2 <= float((theirs / ours - 1).abs().max()) <= most
