"""A small model of pictures, video or sound, as diffusers and timm build it from a config, and a call that it takes.

Arguments are made by what they are called, for a clip of unequal frames, rows and columns: that is how axes differ.
"""

import importlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .inputs import run
from .model import noisy, one_line

FRAMES, ROWS, COLUMNS, TEXT, SOUND = 2, 3, 5, 4, 7
LAYERS = re.compile(r"^(n|num)_(\w+_)?(layers|blocks)$|^(mmdit_)?(layers|depth)$")
HEADS = re.compile(r"^(?P<part>\w*?)(num_|n_)(?P<kind>cross_)?(attention_)?heads$")
KEY_HEADS = ("num_kv_heads", "num_key_value_heads", "n_kv_heads", "num_key_value_attention_heads")
WIDTHS = ("hidden_size", "dim")
TEXT_WIDTHS = (
    "joint_attention_dim", "text_dim", "text_embed_dim", "caption_channels", "in_text_dim", "cap_feat_dim",
    "context_in_dim", "encoder_hidden_size", "cross_attention_input_dim", "cross_attention_dim", "hidden_size",
)  # fmt: skip
LESS = {"max_resolution": [16, 16], "approximator_hidden_dim": 64}  # of what no rotation depends on
POOLED_WIDTHS = ("pooled_projection_dim", "text_emb_dim", "in_text_dim2")


def class_of(package: str, name: str) -> type[nn.Module] | None:
    """A class of a package by its name, if it is a module; raises ``ImportError`` where the package is not there."""
    found = getattr(importlib.import_module(package), name, None) if name.isidentifier() else None
    return found if inspect.isclass(found) and issubclass(found, nn.Module) else None


def small(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config with one layer of each kind and two heads, each as wide as it was."""
    new = {key: value for key, value in config.items() if not key.startswith("_")}
    new |= {key: value for key, value in LESS.items() if new.get(key)}
    for key, value in new.items():
        if LAYERS.search(key) and isinstance(value, int):
            new[key] = min(value, 1)
    for key in [key for key in new if HEADS.match(key)]:
        heads, match = new[key], HEADS.match(key)
        assert match is not None
        part = match["part"] + (match["kind"] or "")
        each = new.get(f"{part}attention_head_dim") or new.get(f"{part}head_dim")
        width = next((key for key in WIDTHS if new.get(key)), "") if not part else ""
        if isinstance(heads, int) and heads > 2 and (each or width):
            old = new[width] if width else heads * int(each or 0)
            per = each or old // heads
            sized = {k: v for k, v in new.items() if v == old and isinstance(v, int) and k not in TEXT_WIDTHS[:-2]}
            new |= {k: 2 * per for k in sized} | {key: 2}
            new |= {k: 1 if new[k] < heads else 2 for k in KEY_HEADS if isinstance(new.get(k), int) and not part}
    return new


def made_of(cls: type[nn.Module], config: Mapping[str, Any]) -> nn.Module:
    """A model of diffusers with what a config says that its class takes."""
    takes = inspect.signature(cls).parameters
    return cls(**{key: value for key, value in config.items() if key in takes})


def built(make: Callable[[], nn.Module]) -> nn.Module:
    """A model with random weights, noise where they would start at zero."""
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        model = make().float().eval()
        for parameter in model.parameters():
            noisy(parameter)
    return model


def inputs_of(model: nn.Module, config: Mapping[str, Any]) -> dict[str, Any]:
    """The first of a few sets of arguments with which the model runs; ``ValueError`` with what the first one said."""
    takes = inspect.signature(model.forward).parameters
    first: Exception | None = None
    dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
    for made in _sets(_Made(config, dtype), set(takes)):
        given = {name: value for name, value in made.items() if name in takes and value is not None}
        try:
            run(model, given)
            return given
        except Exception as error:
            first = first or error
    said = one_line(first) if first else f"none are known for {', '.join(takes)}"
    raise ValueError(f"no inputs fit: {said}") from first


@dataclass(frozen=True)
class _Made:
    """Values of the sizes that a config states, contents in the dtype of the weights."""

    config: Mapping[str, Any]
    dtype: torch.dtype

    def size(self, *names: str) -> int:
        found = next((value for name in names if (value := self.config.get(name))), 4)
        return int(found[0] if isinstance(found, list | tuple) else found)

    @property
    def patch(self) -> tuple[int, int, int]:
        """Frames, rows and columns of one patch."""
        size = self.config.get("patch_size") or self.config.get("all_patch_size") or 1
        sizes = [size] if isinstance(size, int) else list(size)
        frames = self.config.get("patch_size_t") or (sizes[0] if len(sizes) == 3 else 1)
        return int(frames), int(sizes[-1]), int(sizes[-1])

    def noise(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape) + shape[-1])).to(self.dtype)

    def text(self, *more: int) -> Tensor:
        return self.noise(*more, TEXT, self.size(*TEXT_WIDTHS))


def _sets(made: _Made, takes: set[str]) -> Iterator[dict[str, Any]]:
    """Arguments for each form that pictures have: tokens, a clip, a picture, channels last, sound."""
    channels = made.size("in_channels", "in_visual_dim")
    frames, rows, columns = (n * size for n, size in zip((FRAMES, ROWS, COLUMNS), made.patch, strict=True))
    tokens = made.noise(1, FRAMES * ROWS * COLUMNS, channels)
    clip, picture = made.noise(1, channels, frames, rows, columns), made.noise(1, channels, rows, columns)
    sound = made.noise(1, 2 * SOUND, made.size("audio_acoustic_hidden_dim"))
    as_tokens = takes & {"img_ids", "img_shapes", "num_frames"} and "hidden_states_masks" not in takes
    for x in (tokens, clip, picture) if as_tokens else (clip, picture, clip.movedim(1, -1), sound, tokens):
        both = _named(made, x) | {"hidden_states": x, "x": [clip[0]]}
        yield both
        yield both | {"timestep": torch.ones(1, tokens.shape[1])}  # one for each token


def _named(made: _Made, x: Tensor) -> dict[str, Any]:
    """Values for what arguments beside the picture are called."""
    config, grid = made.config, (FRAMES, ROWS, COLUMNS)
    one, mask = torch.ones(1), torch.ones(1, TEXT, dtype=torch.bool)
    count = len(config.get("axes_dims_rope") or (0, 0, 0))
    ids = torch.cartesian_prod(*(torch.arange(n) for n in grid)).float()
    pictures = nn.functional.pad(ids, (0, max(count - 3, 0)))[:, -count:]
    words = torch.zeros(TEXT, count)
    words[:, 3:] = torch.arange(TEXT)[:, None]  # an axis of text alone
    beside = max(made.size("in_channels") - made.size("audio_acoustic_hidden_dim"), 0)
    guidance = one if config.get("guidance_embeds") else None
    t5 = made.text(1) if config.get("text_embed_dim_t5", True) else None
    size = torch.tensor([[float(ROWS), float(COLUMNS)]])
    return {
        "encoder_hidden_states": made.text(1), "encoder_hidden_states_t5": t5,
        "encoder_hidden_states_llama3": made.text(len(config.get("llama_layers") or [0]), 1),
        "cap_feats": [made.text()], "audio_encoder_hidden_states": made.text(1),
        "encoder_attention_mask": mask, "encoder_hidden_states_mask": mask, "audio_encoder_attention_mask": mask,
        "timestep": one, "timesteps": one, "t": one / 2, "timestep_r": one, "guidance": guidance,
        "pooled_projections": made.noise(1, made.size(*POOLED_WIDTHS)) if _has(config, POOLED_WIDTHS) else None,
        "pooled_embeds": made.noise(1, made.size(*POOLED_WIDTHS)),
        "img_ids": pictures, "txt_ids": words, "img_shapes": [[grid]],
        "num_frames": FRAMES, "height": ROWS, "width": COLUMNS, "fps": 24 if "max_size" in config else 24.0,
        "rope_interpolation_scale": (8 / 24, 32, 32) if "audio_in_channels" not in config else None,
        "audio_hidden_states": made.noise(1, SOUND, made.size("audio_in_channels")),
        "audio_timestep": torch.ones(1, SOUND), "audio_num_frames": SOUND,
        "visual_rope_pos": [torch.arange(n) for n in grid], "text_rope_pos": torch.arange(TEXT),
        "original_size": size, "target_size": size, "crop_coords": torch.zeros(1, 2),
        "padding_mask": torch.zeros(1, 1, *x.shape[-2:]),
        "context_latents": made.noise(*x.shape[:2], beside) if beside and x.ndim == 3 else None,
        "additional_t_cond": torch.ones(1, dtype=torch.long) if config.get("use_additional_t_cond") else None,
    }  # fmt: skip


def _has(config: Mapping[str, Any], names: tuple[str, ...]) -> bool:
    return any(config.get(name) for name in names)
