"""Models whose code cannot be called in the common form: each by its own hand-written call.

The towers' are those of tests/configs/towers_theirs.py.
"""

import copy
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from phasor import RotarySpec, Rotation, apply_rotary

sys.path.append(str(Path(__file__).parents[1] / "configs"))
import towers_theirs

AT = torch.tensor((*range(8), 100, 4095, 32_767, 131_071))
Pairs = tuple[tuple[Tensor, ...], tuple[Tensor, ...]]

TOWERS = {
    "ClvpEncoderConfig": "clvp_encoder", "DINOv3ViTConfig": "dinov3_vit", "EfficientLoFTRConfig": "efficientloftr",
    "EomtDinov3Config": "eomt_dinov3", "EsmFold2AtomEncoderConfig": "esmfold2_atom",
    "Llama4VisionConfig": "llama4_vision_model", "Qwen2_5OmniDiTConfig": "qwen2_5_omni_dit",
    "Sapiens2Config": "sapiens2", "SeamlessM4TConfig": "seamless_m4t", "VJEPA2Config": "vjepa2",
    "Wav2Vec2BertConfig": "wav2vec2-bert", "Wav2Vec2ConformerConfig": "wav2vec2-conformer",
}  # fmt: skip


def by_hand(config: Any) -> bool:
    name = type(config).__name__
    return name in TOWERS or name in TEXT


def both_by_hand(config: Any, part: str, spec: RotarySpec, dtype: torch.dtype) -> Pairs:
    """What the model's code makes of some q (and k), and what phasor makes of them by ``spec``."""
    name = type(config).__name__
    if name in TEXT:
        return TEXT[name](config, spec, dtype)
    tower = "vjepa2_predictor" if part.endswith("predictor") else TOWERS[name]
    theirs, ours = towers_theirs.OWN.get(tower, towers_theirs.on_a_line)(tower, config, spec, dtype)
    return (theirs,), (ours,)


def _heads(spec: RotarySpec, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    q, k = (torch.randn(1, h, len(AT), spec.head_dim, generator=generator).to(dtype) for h in (3, 2))
    return q, k


def _ours(spec: RotarySpec, q: Tensor, k: Tensor, at: Tensor = AT) -> tuple[Tensor, Tensor]:
    rotation = Rotation.at(spec, at, dtype=q.dtype)
    return apply_rotary(q, rotation), apply_rotary(k, rotation)


def gptj(config: Any, spec: RotarySpec, dtype: torch.dtype) -> Pairs:
    """Its module has a float32 table of as many positions as its config says; the function takes tokens, then heads."""
    code, longer = _modeling(config), copy.deepcopy(config)
    longer.max_position_embeddings, longer.rotary_dim = int(AT[-1]) + 1, spec.rotary_dim
    module = next(m for name, m in vars(code).items() if name.endswith("RotaryEmbedding"))(longer)
    q, k = _heads(spec, dtype)
    sin, cos = module(q, AT[None])
    inside = slice(0, spec.rotary_dim)
    theirs = []
    for x in (q, k):
        turned = code.apply_rotary_pos_emb(x[..., inside].transpose(1, 2), sin, cos).transpose(1, 2)
        theirs.append(torch.cat((turned, x[..., spec.rotary_dim :]), dim=-1))
    return tuple(theirs), _ours(spec, q, k)


def roformer(config: Any, spec: RotarySpec, dtype: torch.dtype) -> Pairs:
    """A table that numpy forms in float64; its loop over all positions is run to 4095 only, which takes a second."""
    code, at = _modeling(config), AT.clamp(max=4095)
    table = code.RoFormerSinusoidalPositionalEmbedding(4096, spec.head_dim).create_weight().to(dtype)
    q, k = _heads(spec, dtype)
    theirs = code.RoFormerSelfAttention.apply_rotary_position_embeddings(table[at][None, None], q, k)
    return theirs, _ours(spec, q, k, at)


def _modeling(config: Any) -> Any:
    return importlib.import_module(type(config).__module__.replace("configuration_", "modeling_"))


TEXT: dict[str, Callable[[Any, RotarySpec, torch.dtype], Pairs]] = {
    "CodeGenConfig": gptj,
    "GPTJConfig": gptj,
    "RoFormerConfig": roformer,
}
