"""How many tokens a picture or clip has that a pipeline of diffusers makes where its caller names no size."""

from collections.abc import Mapping
from typing import Any

AXES = ("frame", "row", "column")
# The class of the transformer -> its pipeline, the channels of its latents (other VAEs have other patches), and tokens
# along each axis. Frames count once for every 4 (Cosmos: 8) after the first, a token is 16 x 16 pixels.
SIZES: dict[str, tuple[str, int, tuple[int, int, int]]] = {
    "BriaTransformer2DModel": ("BriaPipeline", 64, (1, 64, 64)),
    "ChromaTransformer2DModel": ("ChromaPipeline", 64, (1, 64, 64)),
    "CosmosTransformer3DModel": ("CosmosTextToWorldPipeline", 16, (16, 44, 80)),
    "Flux2Transformer2DModel": ("Flux2Pipeline", 128, (1, 64, 64)),
    "FluxTransformer2DModel": ("FluxPipeline", 64, (1, 64, 64)),
    "HiDreamImageTransformer2DModel": ("HiDreamImagePipeline", 16, (1, 64, 64)),
    "HunyuanVideoTransformer3DModel": ("HunyuanVideoPipeline", 16, (33, 45, 80)),
    "Kandinsky5Transformer3DModel": ("Kandinsky5T2VPipeline", 16, (31, 32, 48)),
    "Lumina2Transformer2DModel": ("Lumina2Pipeline", 16, (1, 64, 64)),
    "QwenImageTransformer2DModel": ("QwenImagePipeline", 64, (1, 64, 64)),
    "SkyReelsV2Transformer3DModel": ("SkyReelsV2Pipeline", 16, (25, 34, 60)),
    "WanTransformer3DModel": ("WanPipeline", 16, (21, 30, 52)),
    "ZImageTransformer2DModel": ("ZImagePipeline", 16, (1, 64, 64)),
}


def default_size(name: str, config: Mapping[str, Any]) -> tuple[str, dict[str, float | None]]:
    """The pipeline, and tokens along each axis, of a class with this config; nothing where that is not known.

    >>> default_size("FluxTransformer2DModel", {"in_channels": 64})
    ('FluxPipeline', {'frame': 1, 'row': 64, 'column': 64})
    """
    pipeline, channels, tokens = SIZES.get(name, ("", 0, (0, 0, 0)))
    stated = config.get("in_channels", config.get("in_visual_dim", channels))
    return (pipeline, dict(zip(AXES, tokens, strict=True))) if pipeline and stated == channels else ("", {})
