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


@pytest.mark.parametrize("heads", [*range(1, 41), 71, 112])
def test_slopes_of_mpt(heads):
    mpt = pytest.importorskip("transformers.models.mpt.modeling_mpt")
    theirs = mpt.build_mpt_alibi_tensor(heads, 2)[:, 0, 0]  # the key one step back
    torch.testing.assert_close(-torch.tensor(alibi_slopes(heads)), theirs)


@pytest.mark.parametrize("total, ranks", [(12, 3), (16, 4), (6, 2)])
def test_ranks_of_a_tensor_parallel_group_share_out_the_slopes(total, ranks):
    each = total // ranks
    parts = [ALiBi(each, total_heads=total, head_offset=r * each).slopes for r in range(ranks)]
    assert sum(parts, ()) == alibi_slopes(total)
    assert parts[1] != alibi_slopes(each)
