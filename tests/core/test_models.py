"""Models whose rotary needs more than one ladder and two halves: their own code in transformers, to the bit.

Each case builds the model's rotary module from its config, runs the model's own apply function on q and k, and compares
with `apply_rotary` on a spec, in float32 and in bfloat16, at near and far positions.
"""

import math
from importlib import import_module

import numpy
import pytest
import torch

from phasor import Layout, RotarySpec, Rotation, apply_rotary
from phasor.rotary.axes import Alternating, Axial, Listed, Sections
from phasor.rotary.scaling import NTK
from phasor.rotary.temperature import LearnedLog, LogFloor, Power

pytest.importorskip("transformers")

TEXT = torch.tensor([[0, 1, 2, 3, 7, 100, 4095, 32767, 131071]])
GRID = torch.stack((torch.arange(12) // 4, torch.arange(12) % 4)) + torch.tensor([[0], [30]])
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])


def modeling(name):
    return import_module(f"transformers.models.{name}.modeling_{name}")


def configuration(name):
    return import_module(f"transformers.models.{name}.configuration_{name}")


def heads(tokens, width, dtype, batch=1):
    """q ``[B, 3, S, D]`` and k ``[B, 2, S, D]``."""
    return (torch.randn(batch, h, tokens, width).to(dtype) for h in (3, 2))


def assert_same(spec, positions, q, k, expected, **more):
    rotation = Rotation.at(spec, positions, dtype=q.dtype, **more)
    for x, y in zip((q, k), expected, strict=True):
        got = apply_rotary(x, rotation)
        assert got.dtype == y.dtype
        assert torch.equal(got, y)


def float32(**fields):
    return RotarySpec(angles="float32", **fields)


@DTYPES
def test_nanochat_turns_backwards(dtype):
    theirs, config = modeling("nanochat"), configuration("nanochat").NanoChatConfig(head_dim=128)
    spec = float32(head_dim=128, base=config.rope_parameters["rope_theta"], reverse=True)
    q, k = heads(9, 128, dtype)
    tables = theirs.NanoChatRotaryEmbedding(config)(q, TEXT)
    # the module's own attention uses its own rotate_half, which apply_rotary_pos_emb finds in the same file
    expected = theirs.apply_rotary_pos_emb(q, k, *tables)
    assert_same(spec, TEXT[0], q, k, expected)
    assert not torch.equal(apply_rotary(q, Rotation.at(spec.replace(reverse=False), TEXT[0], dtype=dtype)), expected[0])


@DTYPES
def test_glm4_moe_with_an_odd_width(dtype):
    theirs = modeling("glm4_moe")
    config = configuration("glm4_moe").Glm4MoeConfig(
        hidden_size=168,
        num_attention_heads=4,
        head_dim=42,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": 0.5},
    )
    spec = float32(head_dim=42, rotary_dim=22, exponent_dim=21)
    module = theirs.Glm4MoeRotaryEmbedding(config)
    q, k = heads(9, 42, dtype)
    assert torch.equal(spec.inv_freq().float(), module.inv_freq)
    assert_same(spec, TEXT[0], q, k, theirs.apply_rotary_pos_emb(q, k, *module(q, TEXT)))


@DTYPES
def test_gemma4_vision_in_two_blocks(dtype):
    theirs = modeling("gemma4")
    config = configuration("gemma4").Gemma4VisionConfig(hidden_size=256, num_attention_heads=4, head_dim=64)
    module = theirs.Gemma4VisionRotaryEmbedding(config)
    spec = float32(head_dim=64, base=config.rope_parameters["rope_theta"], blocks=2, axes=Axial((16, 16)))
    q, k = heads(12, 64, dtype)
    at = GRID.T.unsqueeze(0)
    expected = [
        theirs.apply_multidimensional_rope(x.transpose(1, 2), *module(q, at), at).transpose(1, 2) for x in (q, k)
    ]
    assert_same(spec, GRID, q, k, expected)


@DTYPES
def test_deepseek_writes_halves(dtype):
    theirs, config = modeling("deepseek_v3"), configuration("deepseek_v3").DeepseekV3Config()
    module = theirs.DeepseekV3RotaryEmbedding(config)
    width = config.qk_rope_head_dim
    spec = float32(head_dim=width, base=config.rope_parameters["rope_theta"], interleaved=True, permuted=True)
    q, k = heads(9, width, dtype)
    assert_same(spec, TEXT[0], q, k, theirs.apply_rotary_pos_emb_interleave(q, k, *module(q, TEXT)))


@DTYPES
def test_dinov3_has_real_coordinates_and_tokens_that_pass(dtype):
    theirs = modeling("dinov3_vit")
    config = configuration("dinov3_vit").DINOv3ViTConfig(hidden_size=256, num_attention_heads=4, patch_size=16)
    module = theirs.DINOv3ViTRopePositionEmbedding(config).eval()  # in training it jitters the coordinates
    spec = float32(
        head_dim=64, base=config.rope_theta, axes=Axial((16, 16)), coordinates="real", position_scale=2 * math.pi
    )
    centres = theirs.get_patches_center_coordinates(3, 5, dtype=torch.float32, device="cpu").T
    q, k = heads(5 + 15, 64, dtype)
    cos, sin = module(torch.zeros(1, 3, 48, 80, dtype=dtype))
    rotation = Rotation.at(spec, centres, dtype=dtype).padded(before=5)
    for x, expected in zip((q, k), theirs.apply_rotary_pos_emb(q, k, cos, sin), strict=True):
        assert torch.equal(apply_rotary(x, rotation), expected)


@DTYPES
@pytest.mark.parametrize(
    "name, axes",
    [
        ("kimi_k25", Alternating((1, 0), own_ladders=True)),
        ("step3p7", Listed((1,) * 16 + (0,) * 16, tuple((i, 16) for i in range(16)) * 2)),
    ],
)
def test_vision_towers_with_the_width_first(name, axes, dtype):
    theirs, prefix = modeling(name), {"kimi_k25": "Kimi_K25", "step3p7": "Step3p7"}[name]
    config = getattr(configuration(name), f"{prefix}VisionConfig")(hidden_size=256, num_attention_heads=4)
    module = getattr(theirs, f"{prefix}VisionRotaryEmbedding")(config)
    spec = float32(head_dim=64, base=config.rope_parameters["rope_theta"], axes=axes, tables="float32")
    q, k = heads(12, 64, dtype)
    tables = module(q, GRID.T)
    turned = theirs.apply_rotary_pos_emb_vision(q.transpose(1, 2), k.transpose(1, 2), *tables)
    assert_same(spec, GRID, q, k, [y.transpose(1, 2) for y in turned])


@DTYPES
def test_pixtral_splits_one_ladder(dtype):
    theirs = modeling("pixtral")
    config = configuration("pixtral").PixtralVisionConfig(hidden_size=256, num_attention_heads=4, head_dim=64)
    module = theirs.PixtralVisionRotaryEmbedding(config)
    rungs = tuple((2 * i, 32) for i in range(16)) + tuple((2 * i + 1, 32) for i in range(16))
    spec = float32(head_dim=64, base=config.rope_parameters["rope_theta"], axes=Listed((0,) * 16 + (1,) * 16, rungs))
    q, k = heads(12, 64, dtype)
    tables = (t.unsqueeze(0) for t in module(q, GRID.T))
    assert_same(spec, GRID, q, k, theirs.apply_rotary_pos_emb(q, k, *tables))


@DTYPES
def test_ernie_alternates_height_and_width_before_time(dtype):
    theirs = modeling("ernie4_5_vl_moe")
    config = configuration("ernie4_5_vl_moe").Ernie4_5_VLMoeTextConfig(hidden_size=512, num_attention_heads=4)
    module = theirs.Ernie4_5_VLMoeTextRotaryEmbedding(config)
    axes = Listed((1, 2) * 22 + (0,) * 20)
    spec = float32(
        head_dim=128, base=config.rope_parameters["rope_theta"], interleaved=True, axes=axes, tables="float32"
    )
    q, k = heads(9, 128, dtype)
    positions = torch.stack((TEXT, TEXT * 2, TEXT + 5))
    assert_same(spec, positions, q, k, theirs.apply_rotary_pos_emb(q, k, *module(q, positions)))


@DTYPES
@pytest.mark.parametrize("layer_type", ["full_attention", "sliding_attention"])
def test_neomme_alternates_rows_and_columns(layer_type, dtype):
    theirs, config = modeling("neomme"), configuration("neomme").NeoMMEConfig()
    module, parameters = theirs.NeoMMERotaryEmbedding(config), config.rope_parameters[layer_type]
    width = int(config.head_dim * parameters.get("partial_rotary_factor", 1.0))
    spec = float32(head_dim=config.head_dim, rotary_dim=width, base=parameters["rope_theta"], axes=Alternating((0, 1)))
    q, k = heads(9, config.head_dim, dtype)
    positions = torch.stack((TEXT, TEXT * 2 + 1))
    assert_same(spec, positions, q, k, theirs.apply_rotary_pos_emb(q, k, *module(q, positions, layer_type)))


def test_vjepa2_turns_the_members_of_a_pair_apart():
    """In float32 only: in bfloat16 the model forms its frequencies in bfloat16."""
    theirs = modeling("vjepa2")
    attention = theirs.VJEPA2RopeAttention(
        configuration("vjepa2").VJEPA2Config(), hidden_size=256, num_attention_heads=4
    )
    n = attention.d_dim // 2  # 64 // 3 // 2 = 10 pairs for each of time, height, width; four channels pass
    owner = tuple(axis for axis in range(3) for _ in range(n))
    spec = float32(
        head_dim=64,
        rotary_dim=6 * n,
        interleaved=True,
        axes=Listed(owner, tuple(((2 * i) % n, n) for i in range(n)) * 3),
        second=Listed(owner, tuple(((2 * i + 1) % n, n) for i in range(n)) * 3),
    )
    q, k = heads(21, 64, torch.float32)
    positions = torch.stack(attention.get_position_ids(torch.zeros(1, 21, 1))).long() + torch.tensor([[3], [0], [0]])
    expected = [attention.apply_rotary_embeddings(x, tuple(positions)) for x in (q, k)]
    assert_same(spec, positions, q, k, expected)
    assert n == 10


def test_vjepa2_is_no_rotation():
    """Its own code on a unit vector, one frame on: pair 0 has the frequencies 1 and 10000 ** -0.1, and no norm of 1."""
    theirs = modeling("vjepa2")
    attention = theirs.VJEPA2RopeAttention(
        configuration("vjepa2").VJEPA2Config(), hidden_size=256, num_attention_heads=4
    )
    x = torch.zeros(1, 1, 1, 64)
    x[..., 0] = 1
    frame, rest = torch.ones(1), torch.zeros(1)
    norm = attention.apply_rotary_embeddings(x, (frame, rest, rest)).norm().item()
    assert math.isclose(norm, math.hypot(math.cos(1), math.sin(10_000**-0.1)), rel_tol=1e-6)
    assert norm < 0.67
    # and scores do not depend on distances alone: both heads one frame on
    q, k = heads(1, 64, torch.float32)
    scores = [
        (
            attention.apply_rotary_embeddings(q[:, :2], (frame * at, rest, rest))
            * attention.apply_rotary_embeddings(k, (frame * at, rest, rest))
        ).sum(-1)
        for at in (0, 1)
    ]
    assert (scores[0] - scores[1]).abs().max() > 1e-2


@DTYPES
@pytest.mark.parametrize("alpha", [None, 1000.0])
def test_hunyuan_vl_doubles_its_sections(alpha, dtype):
    theirs, sections = modeling("hunyuan_vl"), (16, 16, 16, 16)
    rope = {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": list(sections)}
    rope |= {"rope_type": "dynamic", "alpha": alpha, "factor": 1.0} if alpha else {}
    config = configuration("hunyuan_vl").HunYuanVLTextConfig(
        hidden_size=512, num_attention_heads=4, head_dim=128, rope_parameters=rope
    )
    owner = tuple(axis for axis, size in enumerate(sections) for _ in range(2 * size))
    spec = float32(
        head_dim=128,
        scaling=NTK(alpha) if alpha else None,
        axes=Listed(owner[:64], axes=4),
        second=Listed(owner[64:], axes=4),
        tables="rounded",
    )
    q, k = heads(9, 128, dtype)
    module = theirs.HunYuanVLRotaryEmbedding(config)
    positions = torch.stack((TEXT, TEXT + 3, TEXT * 2, TEXT + 11))
    assert_same(spec, positions, q, k, theirs.apply_rotary_pos_emb(q, k, *module(q, positions)))
    # for text, where all axes agree, it is plain rotary
    text = TEXT.expand(4, 1, -1)
    plain = float32(head_dim=128, scaling=spec.scaling, axes=Sections(sections), tables="rounded")
    assert_same(plain, text, q, k, theirs.apply_rotary_pos_emb(q, k, *module(q, text)))


@DTYPES
def test_codegen_promotes(dtype):
    theirs = modeling("codegen")
    table = theirs.create_sinusoidal_positions(4096, 64)
    at = torch.tensor([0, 1, 7, 100, 4095])
    sin, cos = table[at].unsqueeze(0).chunk(2, dim=-1)
    spec = float32(head_dim=64, interleaved=True, tables="promoted")
    q, k = heads(5, 64, dtype)
    expected = [theirs.apply_rotary_pos_emb(x.transpose(1, 2), sin, cos).transpose(1, 2) for x in (q, k)]
    assert_same(spec, at, q, k, expected)
    assert expected[0].dtype == torch.float32
    partial = apply_rotary(
        torch.ones(1, 1, 5, 70, dtype=dtype), Rotation.at(spec.replace(head_dim=70, rotary_dim=64), at)
    )
    assert partial.dtype == torch.float32


def test_roformer_forms_angles_in_float64():
    theirs = modeling("roformer")
    module = theirs.RoFormerSinusoidalPositionalEmbedding(1536, 64)
    table = module.create_weight()
    at = torch.arange(1536)
    spec = RotarySpec(head_dim=64, interleaved=True, angles="float64")
    q, k = heads(1536, 64, torch.float32)
    expected = theirs.RoFormerSelfAttention.apply_rotary_position_embeddings(table[None, None], q, k)
    assert_same(spec, at, q, k, expected)
    in_float32 = Rotation.at(spec.replace(angles="float32"), at)
    assert not torch.equal(in_float32.sin, table[:, :32])


@DTYPES
def test_musicflamingo_multiplies_in_float64(dtype):
    theirs = modeling("musicflamingo")
    cos, sin = (torch.randn(1, 9, 32).repeat_interleave(2, -1) for _ in range(2))
    x = torch.randn(1, 9, 70).to(dtype)
    expected = theirs.apply_rotary_time_emb(x, cos, sin)
    widened = Rotation.at(float32(head_dim=64, interleaved=True, tables="float64"), TEXT, dtype=dtype)
    assert widened.cos.dtype == torch.float64
    assert torch.equal(widened.cos.float(), Rotation.at(float32(head_dim=64, tables="float32"), TEXT).cos)
    layout = Layout(head_dim=70, rotary_dim=64, interleaved=True)
    rotation = widened.replace(cos=cos[..., ::2].double(), sin=sin[..., ::2].double(), layout=layout)
    assert torch.equal(apply_rotary(x.unsqueeze(1), rotation).squeeze(1), expected)


@DTYPES
def test_mistral_large4_learns_a_log_scale(dtype):
    theirs = modeling("mistral_large4")
    config = configuration("mistral_large4").MistralLarge4TextConfig(
        head_dim=64, rope_parameters={"rope_type": "default", "rope_theta": 10_000.0}
    )
    module = theirs.MistralLarge4TextRotaryEmbedding(config)
    alpha = 0.3 * torch.randn(32)
    module.alpha.data.copy_(alpha)
    spec = float32(head_dim=64, interleaved=True, permuted=True, learned=True)
    q, k = heads(9, 64, dtype)
    expected = theirs.apply_rotary_pos_emb_interleave(q, k, *module(q, TEXT))
    assert_same(spec, TEXT[0], q, k, expected, log_scale=alpha)


@DTYPES
def test_temperatures(dtype):
    positions = torch.arange(200_000)[None, ::37]
    ministral = modeling("ministral3").get_llama_4_attn_scale(positions, 0.1, 16384)
    assert torch.equal(LogFloor(beta=0.1, length=16384).at(positions), ministral[:, 0, :, 0])
    # Llama 4 writes it inside its attention: log1p(floor((positions.float() + 1.0) / floor_scale)) * attn_scale + 1.0
    llama = torch.log1p(torch.floor((positions.float() + 1.0) / 8192)) * 0.1 + 1.0
    assert torch.equal(LogFloor(beta=0.1, length=8192, offset=1).at(positions), llama)
    beam = modeling("beam")
    assert torch.equal(Power().at(positions), beam.compute_attention_scaling(positions)[:, 0, :, 0])
    module = modeling("mistral_large4").MistralLarge4TextSoftmaxScaling(3)
    torch.nn.init.normal_(module.scale)
    torch.nn.init.normal_(module.bias)
    module = module.to(dtype)
    q = torch.randn(1, 3, positions.shape[-1], 4).to(dtype)
    factor = LearnedLog().at(positions, scale=module.scale, bias=module.bias)
    assert torch.equal(q * factor.unsqueeze(-1), module(q, positions, head_dim_first=True))


def test_log_floor_against_the_closed_form():
    """In float64 with numpy; a float32 logarithm and two roundings are within three steps."""
    positions = torch.tensor([0, 8190, 8191, 8192, 100_000, 10_000_000])
    for offset in (0, 1):
        exact = 1 + 0.1 * numpy.log(1 + (positions.numpy() + offset) // 8192)
        got = LogFloor(0.1, 8192, offset).at(positions)
        assert numpy.abs(got.numpy() / exact - 1).max() < 3 * 2**-23
