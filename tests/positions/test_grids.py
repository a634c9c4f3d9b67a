"""Grids of vision towers against the towers' own code (transformers) and against plain loops."""

import pytest
import torch

from phasor.positions import centres, grid, patches

GRIDS = torch.tensor([[1, 4, 8], [3, 8, 4], [2, 12, 4]])


@pytest.mark.parametrize("merge", [1, 2, 4, [1, 2, 4]])
@pytest.mark.parametrize("time", [False, True])
def test_patches_are_those_of_the_towers(merge, time):
    """`get_vision_position_ids`: Qwen2-VL and all its kin; one merge per image in Video LLaMA 3, time in MiniMax M3."""
    theirs = pytest.importorskip("transformers.vision_utils").get_vision_position_ids
    size = torch.tensor(merge) if isinstance(merge, list) else merge
    ours = patches(GRIDS, merge, time=time)
    assert ours.dtype == torch.int64
    assert torch.equal(ours.T, theirs(GRIDS, size, include_temporal=time))


def test_patches_of_nothing():
    assert patches(torch.empty(0, 3, dtype=torch.int64), 2).shape == (2, 0)


@pytest.mark.parametrize("size", [(1, 1), (2, 3), (14, 14), (37, 11)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_centres_are_those_of_dinov3(size, dtype):
    code = pytest.importorskip("transformers.models.dinov3_vit.modeling_dinov3_vit")
    theirs = code.get_patches_center_coordinates(*size, dtype=dtype, device=torch.device("cpu"))
    ours = centres(*size, dtype=dtype)
    assert ours.dtype == dtype and torch.equal(ours.T, theirs)
    assert torch.equal(ours.flip(1), -ours) or ours.abs().max() < 1


def test_llama4_counts_columns_and_rows_from_one():
    """Its complex table, class token at the end at zero: the angles of the first pairs are x + 1 and y + 1."""
    code = pytest.importorskip("transformers.models.llama4.modeling_llama4")
    configuration = pytest.importorskip("transformers.models.llama4.configuration_llama4")
    config = configuration.Llama4VisionConfig(image_size=70, patch_size=14)
    table = code.Llama4VisionRotaryEmbedding._compute_freqs_ci(config)[:, 0]
    x, y = table[:-1, 0].angle(), table[:-1, table.shape[1] // 2].angle()
    at = grid(5, 5).flip(0) + 1
    turn = torch.exp(1j * at.to(torch.float32)).angle()
    torch.testing.assert_close(torch.stack((x, y)), turn, rtol=0, atol=1e-6)
    assert table[-1].angle().abs().max() == 0


def test_vjepa2_counts_frames_rows_and_columns():
    code = pytest.importorskip("transformers.models.vjepa2.modeling_vjepa2")

    class Bare(code.VJEPA2RopeAttention):
        def __init__(self):
            torch.nn.Module.__init__(self)
            self.grid_size = self.grid_depth = 4

    theirs = Bare().get_position_ids(torch.zeros(1, 48, 1))
    assert torch.equal(grid(3, 4, 4), torch.stack(list(theirs)).to(torch.int64))
