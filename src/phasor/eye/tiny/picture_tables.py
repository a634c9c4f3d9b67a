"""Tables that a pipeline of diffusers makes for its model: by the functions of diffusers, from what the config says.

Which function follows from what the model is given: sound, a picture, or a clip. Two things no config says: a model of
sound turns half of its head, and a grid is stretched over the crop of that of 512 x 512 pixels.
"""

import importlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import nn

TABLES = ("image_rotary_emb", "rotary_embedding", "video_rotary_emb")  # arguments that take what a pipeline makes
EMBEDDINGS = "diffusers.models.embeddings"
LATENTS = 512 // 8  # rows and columns of them
SCALES = [f"interpolation_scale_{axis}" for axis in "thw"]
Grid = tuple[int, int, int]


def makers(model: nn.Module, config: Mapping[str, Any], grid: Grid, sound: int) -> dict[int, list[Callable[[], Any]]]:
    """By the number of axes: what a pipeline may call for a ``sound`` of so many tokens, a picture or a clip."""
    if config.get("use_rotary_positional_embeddings") is False:
        return {}
    if own := getattr(model, "build_rotary_emb_for_absolute_positions", None):
        return {3: [partial(own, 1, list(range(grid[0])), *grid[1:], "cpu", 24.0)]}
    made: Any = importlib.import_module(EMBEDDINGS)
    crops: Any = importlib.import_module("diffusers.models.transformers.transformer_easyanimate")
    width = config.get("attention_head_dim") or config["hidden_size"] // config["num_attention_heads"]
    patch, picture = int(config.get("patch_size") or 1), grid[1:]
    base = [int(config.get(key) or LATENTS) // patch for key in ("sample_width", "sample_height")]
    crop = crops.EasyAnimateRotaryPosEmbed(patch, [width]).get_resize_crop_region_for_grid(picture, *base)
    counts: dict[str, Any] = {"grid_type": "slice", "max_size": base[::-1]} if config.get("patch_size_t") else {}
    return {
        1: [partial(made.get_1d_rotary_pos_embed, width // 2, sound, use_real=True, repeat_interleave_real=False)],
        2: [
            partial(made.get_2d_rotary_pos_embed, width, crop, picture),
            partial(made.get_2d_rotary_pos_embed_lumina, width, *picture),
        ],
        3: [
            partial(made.get_3d_rotary_pos_embed, width, crop, picture, grid[0], **counts),
            partial(_looked_up, config, grid),
        ],
    }


def _looked_up(config: Mapping[str, Any], grid: Grid) -> Any:
    """A table for each axis, and where each token looks it up: Allegro's."""
    made: Any = importlib.import_module(EMBEDDINGS).get_3d_rotary_pos_embed_allegro
    scales = [config[key] for key in SCALES]
    *tables, t, h, w = made(config["attention_head_dim"], ((0, 0), grid[1:]), grid[1:], grid[0], scales)
    return tables, torch.cartesian_prod(t.long(), h.long(), w.long()).T[:, None]
