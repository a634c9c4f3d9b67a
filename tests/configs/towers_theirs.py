"""Towers whose code cannot be called in the common form (tests/conformance): each called on the same q as ours."""

import importlib
import inspect
import os
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import transformers
from torch import Tensor

from phasor import RotarySpec, Rotation, apply_rotary
from phasor.positions import grid
from rows import TOWERS, read_tower

LINE = torch.cat((torch.arange(8), torch.tensor([100, 4095, 32767, 131071])))
Pair = tuple[Tensor, Tensor]  # theirs and ours, in one layout


@cache
def classes() -> dict[str, tuple[Any, str]]:
    """Config class name -> the class, and its model folder."""
    wanted = {tower.config for tower in TOWERS.values()}
    root = os.path.join(os.path.dirname(transformers.__file__), "models")
    found = {}
    for folder in sorted(os.listdir(root)):
        path = os.path.join(root, folder, f"configuration_{folder}.py")
        if os.path.isfile(path):
            with open(path, encoding="utf-8") as file:
                text = file.read()
            if any(f"class {name}(" in text for name in wanted):
                module = importlib.import_module(f"transformers.models.{folder}.configuration_{folder}")
                members = inspect.getmembers(module, inspect.isclass)
                found.update({n: (c, folder) for n, c in members if n in wanted and c.__module__ == module.__name__})
    return found


def modeling(name: str) -> Any:
    folder = classes()[TOWERS[name].config][1]
    return importlib.import_module(f"transformers.models.{folder}.modeling_{folder}")


def config_of(name: str, **changes: Any) -> Any:
    if name in ("seamless_m4t", "wav2vec2-bert", "wav2vec2-conformer"):
        changes["position_embeddings_type"] = "rotary"
    return classes()[TOWERS[name].config][0](**changes)


def spec_of(name: str, config: Any) -> RotarySpec:
    model, _ = read_tower(name, config.to_dict())
    return next(spec for spec in model.layers if spec is not None).replace(angles="float32")


def made(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype)


def ours(x: Tensor, spec: RotarySpec, at: Tensor, before: int = 0, after: int = 0, form: str = "bhsd") -> Tensor:
    rotation = Rotation.at(spec, at, dtype=x.dtype)
    if before or after:
        rotation = rotation.padded(before=before, after=after)
    return apply_rotary(x, rotation, tensor_format=form)  # type: ignore[arg-type]


def llama4(name: str, config: Any, spec: RotarySpec, dtype: torch.dtype) -> Pair:
    """Cosines and sines: its complex product is allowed to round otherwise."""
    freqs = modeling(name).Llama4VisionRotaryEmbedding(config)(torch.zeros(1))[:, 0]
    side = config.image_size // config.patch_size
    rotation = Rotation.at(spec, grid(side, side).flip(0) + 1, dtype=dtype).padded(after=1)
    return torch.stack((freqs.real, freqs.imag)), torch.stack((rotation.cos, rotation.sin))


def dino(name: str, config: Any, spec: RotarySpec, dtype: torch.dtype) -> Pair:
    code, rows, columns = modeling(name), 11, 14
    pixels = torch.zeros(1, 3, rows * config.patch_size, columns * config.patch_size, dtype=dtype)
    cos, sin = getattr(code, TOWERS[name].code)(config).eval()(pixels)
    model, _ = read_tower(name, config.to_dict())
    assert model.prefix_tokens == 1 + config.num_register_tokens
    q = made((1, 2, model.prefix_tokens + rows * columns, spec.head_dim), dtype)
    centres = ((torch.arange(0.5, n) / n) for n in (rows, columns))
    at = 2.0 * torch.stack(torch.meshgrid(*centres, indexing="ij")).flatten(1) - 1.0
    return code.apply_rotary_pos_emb(q, q, cos, sin)[0], ours(q, spec, at, before=model.prefix_tokens)


def vjepa2(name: str, config: Any, spec: RotarySpec, dtype: torch.dtype) -> Pair:
    own = {"hidden_size": config.hidden_size, "num_attention_heads": config.num_attention_heads}
    if name == "vjepa2_predictor":
        own = {"hidden_size": config.pred_hidden_size, "num_attention_heads": config.pred_num_attention_heads}
    attention = modeling(name).VJEPA2RopeAttention(config, **own)
    at = grid(3, 5, 7)
    q = made((1, 2, at.shape[1], spec.head_dim), dtype)
    return attention.apply_rotary_embeddings(q, tuple(at)), ours(q, spec, at)


def loftr(name: str, config: Any, spec: RotarySpec, dtype: torch.dtype) -> Pair:
    code, (rows, columns) = modeling(name), (6, 9)
    side = [(n - 1) * config.q_aggregation_stride + config.q_aggregation_kernel_size for n in (rows, columns)]
    cos, sin = code.EfficientLoFTRRotaryEmbedding(config)(torch.zeros(1, spec.head_dim, *side, dtype=dtype))
    q = made((1, rows, columns, spec.head_dim), dtype)  # the whole hidden size, as one head
    theirs = code.apply_rotary_pos_emb(q, q, cos, sin, unsqueeze_dim=0)[0].reshape(1, 1, -1, spec.head_dim)
    return theirs, ours(q.reshape(1, 1, -1, spec.head_dim), spec, grid(rows, columns) + 1)


def on_a_line(name: str, config: Any, spec: RotarySpec, dtype: torch.dtype) -> Pair:
    code, q = modeling(name), made((1, 2, len(LINE), spec.head_dim), dtype)
    cos, sin = getattr(code, TOWERS[name].code)(config)(q, LINE[None])
    if spec.permuted:
        return code.apply_rotary_pos_emb(*(code.deinterleave_head_dim(q),) * 2, cos, sin)[0], ours(q, spec, LINE)
    return code.apply_rotary_pos_emb(q, q, cos, sin)[0], ours(q, spec, LINE)


def conformer(name: str, config: Any, spec: RotarySpec, dtype: torch.dtype) -> Pair:
    """Its cosines, [2, seq, 1, 1, channels]; positions are always 0, 1, 2, …"""
    at = torch.arange(300)
    table = getattr(modeling(name), TOWERS[name].code)(config)(torch.zeros(1, len(at), 8, dtype=dtype))
    rotation = Rotation.at(spec, at, dtype=dtype)
    half = spec.head_dim // 2
    assert torch.equal(table[..., :half], table[..., half:])
    return table[:, :, 0, 0, :half], torch.stack((rotation.cos, rotation.sin))


def clvp(name: str, config: Any, spec: RotarySpec, dtype: torch.dtype) -> Pair:
    code, at, wide = modeling(name), torch.arange(300), spec.rotary_dim
    q = made((1, 2, 300, spec.head_dim), dtype)
    angles = code.ClvpRotaryPositionalEmbedding(config)(q[:, 0])[0]
    turned = code.apply_rotary_pos_emb(*(q[..., :wide],) * 3, angles.cos().to(dtype), angles.sin().to(dtype), at[None])
    assert torch.equal(turned[0], turned[2])
    return torch.cat((turned[0], q[..., wide:]), dim=-1), ours(q, spec, at)


def esmfold2(name: str, config: Any, spec: RotarySpec, dtype: torch.dtype) -> Pair:
    code, q = modeling(name), made((1, 2, 40, spec.head_dim), dtype)
    xyz, uid = 9 * made((1, 40, 3), torch.float32), torch.arange(40)[None] // 3
    cos, sin = code.EsmFold2RotaryEmbedding(config)(xyz, uid, dtype=dtype)
    at = torch.cat((xyz[0].T, uid.float()))
    return code.apply_rotary_pos_emb(q, q, cos, sin)[0], ours(q, spec, at)


OWN: dict[str, Callable[[str, Any, RotarySpec, torch.dtype], Pair]] = {
    "llama4_vision_model": llama4, "dinov3_vit": dino, "eomt_dinov3": dino, "sapiens2": dino, "vjepa2": vjepa2,
    "vjepa2_predictor": vjepa2, "efficientloftr": loftr, "clvp_encoder": clvp, "esmfold2_atom": esmfold2,
    "seamless_m4t": conformer, "wav2vec2-bert": conformer, "wav2vec2-conformer": conformer,
}  # fmt: skip
