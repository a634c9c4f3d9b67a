"""Segments, kinds and steps: that they agree, go on, and refuse what does not fit."""

import pytest
import torch

from phasor import RotarySpec, Rotation, positions
from phasor.configs import read_rule
from phasor.models.rows import ROWS
from phasor.positions import Rule, Video, decode_from, from_kinds, from_segments, mrope
from phasor.rotary.axes import InterleavedSections
from refused import refused

GRID = torch.tensor([[1, 4, 4]])
KINDS = torch.tensor([[0, 1, 1, 1, 1, 0]])
RULES = {name: row.positions for name, row in ROWS.items() if getattr(row, "positions", None) is not None}
OMNI = RULES["qwen2_5_omni"]


def test_a_video_by_hand():
    """Two words, 3 frames of 1 x 2, a word. By the paper text resumes after time, in the code after the plane."""
    segments = [2, (3, 1, 2), 1]
    code = from_segments(segments, RULES["qwen2_vl"])
    assert code.positions.tolist() == [
        [0, 1, 2, 2, 3, 3, 4, 4, 4],
        [0, 1, 2, 2, 2, 2, 2, 2, 4],
        [0, 1, 2, 3, 2, 3, 2, 3, 4],
    ]
    assert mrope(segments)[:, -1].tolist() == [5, 5, 5]
    assert code.offset.tolist() == [5 - 9]


def test_one_frame_at_a_time_by_hand():
    """Qwen3-VL: each frame starts where the last one stopped, and its time coordinate stays at its start."""
    placed = from_segments([1, (2, 1, 2), 1], RULES["qwen3_vl"])
    assert placed.positions.tolist() == [[0, 1, 1, 3, 3, 5], [0, 1, 1, 3, 3, 5], [0, 1, 2, 3, 4, 5]]


def test_the_delta_counts_the_largest_even_inside_a_video():
    """A long video at the end: the next token lies past its last frame, although text would have resumed earlier."""
    placed = from_segments([1, (9, 1, 1)], Rule())
    assert decode_from(placed.offset[None], torch.tensor([10]))[:, 0, 0].tolist() == [10, 10, 10]
    assert from_segments([1, (9, 1, 1), 1], Rule()).positions[:, -1].tolist() == [2, 2, 2]


def test_sound_in_a_video_by_hand():
    """Qwen2.5-Omni: pairs of marks share a number; one position per second and chunks of 2: video, sound, video."""
    slow = Rule(after="largest", time="clock", rate=1, mix="chunks", chunk=2, shared_marks=True)
    placed = from_segments([1, Video(3, 1, 1, seconds=1.0, audio=2), 1], slow)
    assert placed.positions[0].tolist() == [0, 1, 1, 2, 3, 2, 3, 4, 5, 5, 6]
    by_time = Rule(after="largest", time="clock", rate=1, mix="time", whole=False)
    placed = from_segments([1, Video(2, 1, 1, seconds=0.5, audio=2), 1], by_time)
    assert placed.positions[0].tolist() == [0, 1, 2, 3, 3, 3.5, 4, 5, 6, 7]


def test_sparse_frames_fall_behind_their_chunk():
    """A frame every 3 chunks: each token may be one chunk further than the last, as their loop counts."""
    slow = Rule(after="largest", time="clock", rate=1, mix="chunks", chunk=1, shared_marks=True)
    placed = from_segments([Video(2, 1, 2, seconds=3.0, audio=3)], slow)
    assert placed.positions[0].tolist() == [0, 0, 1, 1, 1, 4, 2, 4, 3, 4, 4]


def test_segments_and_kinds_agree():
    kinds = torch.tensor([[0, 0, 1, 1, 0, 2, 2, 2, 2, 0]])
    grids = {"image_grids": torch.tensor([[1, 2, 4]]), "video_grids": torch.tensor([[2, 2, 4]])}
    for name in ("qwen2_vl", "qwen3_vl", "qwen2_5_vl"):
        ours = from_kinds(kinds, RULES[name], **grids)
        said = from_segments([2, (1, 2), 1, (2, 1, 2), 1], RULES[name])
        assert torch.equal(ours.positions[:, 0], said.positions)
        assert torch.equal(ours.offset[0], said.offset)


def test_grids_back_to_back_fill_one_run():
    """Where theirs needs a mark between two images, ours does not."""
    kinds = torch.tensor([[1, 1, 1, 0]])
    ours = from_kinds(kinds, Rule(merge=1), image_grids=torch.tensor([[1, 1, 2], [1, 1, 1]]))
    assert torch.equal(ours.positions[:, 0], from_segments([(1, 2), (1, 1), 1], Rule(merge=1)).positions)


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_numbers_the_same_tokens(side):
    pad = torch.zeros(1, 3, dtype=torch.int64)
    kinds = torch.cat((pad, KINDS) if side == "left" else (KINDS, pad), 1)
    mask = torch.cat((pad, KINDS * 0 + 1) if side == "left" else (KINDS * 0 + 1, pad), 1)
    padded = from_kinds(kinds, Rule(padding=7), image_grids=GRID, mask=mask)
    plain = from_kinds(KINDS, Rule(), image_grids=GRID)
    assert torch.equal(padded.positions[:, mask.bool()], plain.positions[:, 0])
    assert torch.equal(padded.offset, plain.offset)
    assert (padded.positions[:, ~mask.bool()] == 7).all()


def test_a_row_of_padding_only():
    placed = from_kinds(torch.zeros(2, 3, dtype=torch.int64), Rule(), mask=torch.tensor([[0, 0, 0], [1, 1, 1]]))
    assert placed.positions[0].tolist() == [[0, 0, 0], [0, 1, 2]] and placed.offset.tolist() == [[0], [0]]


def test_text_only_is_the_mask():
    """No images: the positions of plain text, and no offset."""
    for name, mine in RULES.items():
        placed = from_kinds(torch.zeros(1, 5, dtype=torch.int64), mine)
        assert placed.positions.tolist() == [[[0, 1, 2, 3, 4]]] * mine.axes, name
        assert placed.offset.tolist() == [[0]]


def test_fractional_time_rotates():
    """Qwen3-Omni: positions are real numbers, so the spec is one of real coordinates."""
    placed = from_segments([2, Video(2, 1, 1, seconds=0.02)], RULES["qwen3_omni_moe"])
    assert placed.positions.dtype == torch.float32 and placed.positions[0].tolist() == [0, 1, 2, 2.5]
    spec = RotarySpec(head_dim=8, axes=InterleavedSections((2, 1, 1)))
    with pytest.raises(ValueError, match="coordinates='real'"):
        Rotation.at(spec, placed.positions)
    rotation = Rotation.at(spec.replace(coordinates="real"), placed.positions)
    assert abs(float(rotation.cos[-1, 0]) - torch.cos(torch.tensor(2.5)).item()) < 1e-6


def test_positions_stay_on_their_device_and_dtype():
    torch.set_default_dtype(torch.bfloat16)
    try:
        placed = from_kinds(KINDS.to(torch.int32), OMNI, image_grids=GRID)
        floats = from_segments([300, Video(2, 1, 1)], RULES["qwen3_omni_moe"])
    finally:
        torch.set_default_dtype(torch.float32)
    assert placed.positions.dtype == torch.int64 and placed.offset.dtype == torch.int64
    assert floats.positions.dtype == torch.float32 and floats.positions[0, 299] == 299


def test_rule_of_an_omni_config():
    """The vision tower's tokens_per_second is another model's key; seconds count by position_id_per_seconds."""
    tower = {"tokens_per_second": 25, "spatial_merge_size": 3}
    thinker = {"position_id_per_seconds": 13, "seconds_per_chunk": 4, "vision_config": tower}
    found = read_rule({"model_type": "qwen2_5_omni", "thinker_config": thinker})
    assert (found.rate, found.chunk, found.merge) == (13, 4, 3)
    assert read_rule({"model_type": "qwen2_5_omni_thinker", **thinker}) == found
    assert read_rule({"model_type": "qwen2_vl", "vision_config": tower}) == Rule(merge=3)


def kinds_of(*row):
    return torch.tensor([row])


VIDEO_GRID = torch.tensor([[2, 2, 4]])
ERRORS = """
from_kinds([[0]], Rule()) => kinds must be a tensor with 2 dimensions [batch, seq]
from_kinds(torch.zeros(1, 2), Rule()) => kinds must hold integers, got torch.float32
from_kinds(kinds_of(0, 4), OMNI) => kinds must be out of (0, 1, 2, 3) … got [0, 4]
from_kinds(kinds_of(0, 3), Rule()) => kinds must be out of (0, 1, 2) for this rule
from_kinds(KINDS, Rule(), mask=torch.ones(1, 2)) => mask must have the shape (1, 6) … (1, 2)
from_kinds(KINDS, Rule(), mask=KINDS + 1) => mask must hold only 0 and 1
from_kinds(KINDS, Rule()) => image_grids must hold a grid for every run of kind 1
from_kinds(KINDS[:, 2:], Rule(), image_grids=GRID) => as many tokens as image_grids says … 1 x 2 x 2 merged patches
    takes 4, got 3
from_kinds(kinds_of(1, 1, 1, 1, 1), Rule(), image_grids=GRID) => got too few
from_kinds(KINDS, Rule(), image_grids=GRID.repeat(3, 1)) => image_grids must hold as many grids … got 2 too many
from_kinds(kinds_of(0), RULES['qwen3_vl'], video_grids=VIDEO_GRID) => video_grids … got 2 too many (frames
from_kinds(KINDS, Rule(), image_grids=VIDEO_GRID) => image_grids[0] must have one frame, got 2 … video_grids
from_kinds(KINDS, Rule(merge=3), image_grids=GRID) => image_grids[0] must be a multiple … (1, 3, 3), got (1, 4, 4)
from_kinds(KINDS, Rule(frame_merge=2), video_grids=torch.tensor([[3, 2, 2]])) => video_grids[0] must be a multiple … (2,
    2, 2), got (3, 2, 2)
from_kinds(kinds_of(2, 2, 2, 2), Rule(), video_grids=VIDEO_GRID, seconds=[1.0, 2.0]) => seconds must hold one number per
    video, got 2 for 1 videos
from_kinds(kinds_of(0, 2, 2, 3, 2, 2, 0, 0), OMNI, video_grids=VIDEO_GRID) => two tokens of text before and after a
    video mixed with sound
from_kinds(kinds_of(0, 0, 2, 2, 3, 2, 2), OMNI, video_grids=VIDEO_GRID) => two tokens of text before and after a video
    mixed with sound
from_kinds(kinds_of(0, 0, 2, 2, 3, 2, 0, 0), OMNI, video_grids=VIDEO_GRID) => kinds must hold as many tokens as
    video_grids says … takes 4, got 3
from_segments([Video(1, 1, 1, audio=2)], Rule()) => audio must be 0: this rule does not
from_segments([(2, 1, 1)], RULES['hunyuan_vl']) => frames must be 1: this rule knows images and no videos
from_segments([2, 'image'], Rule()) => segments[1] must be an integer … got 'image'
from_segments(5, Rule()) => segments must be a list or tuple, got 5
Video(1, 1, 1, seconds=-1) => seconds must be a finite number of at least 0, got -1
Video(1, 1, 1, audio=-1) => audio must be an integer of at least 0, got -1
Rule(after='max') => after must be one of ('plane', 'largest', 'tokens'), got 'max'
Rule(whole=1) => whole must be True or False, got 1
Rule(merge=0) => merge must be an integer of at least 1, got 0
Rule(rate=0) => rate must be a finite number above 0, got 0
Rule(mix='chunks', rate=1, chunk=0.5) => chunk must hold at least one position
Rule(axes=4) => axes must be 3 (time, height, width) unless after is 'tokens', got 4
read_rule({'model_type': 'llama'}) => model_type must be one that numbers images … qwen2_vl … got 'llama' … Rule
read_rule('qwen2_vl') => source must be a config.json or a folder that holds one … got 'qwen2_vl'
decode_from(torch.zeros(2, 1), torch.tensor([1, 2, 3, 4])) => offset must be a tensor [batch, 1] with the batch 4 … got
    shape (2, 1) … repeat_interleave
token_kinds(torch.zeros(3).long()) => input_ids must be a tensor with 2 dimensions [batch, seq]
"""
test_errors = refused(ERRORS, globals(), of=(positions,))


def test_packed_is_one_graph_where_it_is_told_how_many_tokens_there_are():
    def numbered(bounds, x):
        return positions.packed(bounds, torch.tensor([0, 5, 9]), total=x.shape[0])

    compiled = torch.compile(numbered, fullgraph=True, backend="aot_eager")
    for bounds in ([0, 3, 3, 5], [0, 1, 5, 7]):
        given = torch.tensor(bounds), torch.zeros(bounds[-1])
        assert compiled(*given).tolist() == numbered(*given).tolist()
    assert numbered(torch.tensor([0, 3, 3, 5]), torch.zeros(5)).tolist() == [0, 1, 2, 9, 10]
    with pytest.raises(RuntimeError, match=r"cu_seqlens must start at 0 .* end with total=7"):
        compiled(torch.tensor([0, 3, 3, 5]), torch.zeros(7))
    with pytest.raises(ValueError, match="total must be the last of cu_seqlens, 5, got 7"):
        numbered(torch.tensor([0, 3, 3, 5]), torch.zeros(7))
