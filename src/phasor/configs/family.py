"""What a line of the family table says, and the default rope parameters that are more than a base.

A line gives the config class, its default rope parameters (a base, or the whole dictionary, flat or per layer type)
and its default sizes ``(hidden_size, num_attention_heads, num_key_value_heads, num_hidden_layers, head_dim,
max_position_embeddings)``, which matter because nested configs leave out what equals the class's default; then what
the model's code does: pair layout, rounding of the tables, partial width, M-RoPE sections, latent attention.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..spec import Angles, Tables

Rope = Mapping[str, Any]
Sizes = tuple[int | None, int | None, int | None, int | None, int | None, int | None]


@dataclass(frozen=True)
class Family:
    """What the code of one model type does, as far as its config does not say it.

    - ``rope``: default base, or default parameters; None: the config must state the base.
    - ``partial``: default partial rotary factor; None: the code turns all channels whatever the config says.
    - ``sections`` / ``striped`` / ``paired``: default M-RoPE sections: contiguous; taking turns; the first two
      taking turns, then the third. ``doubled``: sections over channels, not pairs, which the config must state.
    - ``alternating``: rows and columns take turns pair by pair.
    - ``mla``: default (unrotated, rotated) channels of latent attention; the rotated ones come last.
    - ``blocks``, ``permuted``, ``reverse``, ``learned``, ``angles``: as in `RotarySpec`, where
      ``angles`` are the model's own.
    """

    config: str
    rope: float | Rope | None
    sizes: Sizes
    partial: float | None = None
    interleaved: bool = False
    tables: Tables = "activation"
    sections: tuple[int, ...] | None = None
    striped: tuple[int, ...] | None = None
    paired: tuple[int, int, int] | None = None
    doubled: bool = False
    blocks: int = 1
    alternating: bool = False
    mla: tuple[int, int] | None = None
    permuted: bool = False
    reverse: bool = False
    learned: bool = False
    angles: Angles = "float32"


APERTUS: Rope = {
    "rope_type": "llama3", "rope_theta": 12_000_000.0, "factor": 8.0, "original_max_position_embeddings": 8192,
    "low_freq_factor": 1.0, "high_freq_factor": 4.0,
}  # fmt: skip
BEAM: Rope = {"sliding_attention": {"rope_theta": 10_000.0}, "full_attention": None}
COHERE_COMPASS: Rope = {"full_attention": {"rope_theta": 10_000.0}, "sliding_attention": {"rope_theta": 10_000.0}}
CWM: Rope = {
    "rope_theta": 1_000_000.0, "factor": 16.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
    "original_max_position_embeddings": 8192, "rope_type": "llama3",
}  # fmt: skip
DEEPSEEK_V4: Rope = {"main": {"rope_theta": 10_000.0}, "compress": {"rope_theta": 160_000.0}}
DOTS3_NOTE: Rope = {
    "indexed_attention": {"rope_theta": 80_000_000.0}, "full_attention": {"rope_theta": 80_000_000.0},
    "sliding_attention": {"rope_theta": 50_000.0},
}  # fmt: skip
GEMMA4: Rope = {
    "sliding_attention": {"rope_theta": 10_000.0}, "full_attention": {"rope_type": "proportional",
    "partial_rotary_factor": 0.25, "rope_theta": 1_000_000.0},
}  # fmt: skip
GEMMA3: Rope = {"sliding_attention": {"rope_theta": 10_000.0}, "full_attention": {"rope_theta": 1_000_000.0}}
GPT_OSS: Rope = {
    "rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
    "original_max_position_embeddings": 4096, "rope_theta": 150_000.0,
}  # fmt: skip
HIGGS_AUDIO_V2: Rope = {
    "factor": 32.0, "rope_theta": 500_000.0, "high_freq_factor": 0.5, "low_freq_factor": 0.125,
    "original_max_position_embeddings": 1024, "rope_type": "llama3",
}  # fmt: skip
LAGUNA: Rope = {
    "full_attention": {"rope_theta": 500_000.0, "partial_rotary_factor": 0.5},
    "sliding_attention": {"rope_theta": 10_000.0, "partial_rotary_factor": 1.0},
}  # fmt: skip
LFM3: Rope = {
    "sliding_attention": {"rope_theta": 10_000.0}, "full_attention": {"rope_type": "proportional",
    "rope_theta": 1_000_000.0, "partial_rotary_factor": 0.5},
}  # fmt: skip
MELLUM: Rope = {"full_attention": {"rope_theta": 500_000.0}, "sliding_attention": {"rope_theta": 10_000.0}}
MIMO_V2_FLASH: Rope = {
    "full_attention": {"rope_theta": 5_000_000.0, "partial_rotary_factor": 0.334},
    "sliding_attention": {"rope_theta": 10_000.0, "partial_rotary_factor": 0.334},
}  # fmt: skip
MINISTRAL3: Rope = {
    "rope_theta": 1_000_000.0, "factor": 16.0, "original_max_position_embeddings": 16_384, "beta_fast": 32.0,
    "beta_slow": 1.0, "mscale_all_dim": 1.0, "mscale": 1.0, "llama_4_scaling_beta": 0.1, "rope_type": "yarn",
}  # fmt: skip
MISTRAL4: Rope = {
    "rope_theta": 10_000.0, "factor": 128.0, "original_max_position_embeddings": 8192, "beta_fast": 32.0,
    "beta_slow": 1.0, "mscale_all_dim": 1.0, "mscale": 1.0, "llama_4_scaling_beta": 0.1,
    "partial_rotary_factor": 0.5, "rope_type": "yarn",
}  # fmt: skip
MISTRAL_LARGE4: Rope = {
    "rope_theta": 10_000.0, "factor": 2048.0, "original_max_position_embeddings": 512, "beta_fast": 32.0,
    "beta_slow": 1.0, "attention_factor": 1.0, "rope_type": "yarn",
}  # fmt: skip
MODERNBERT: Rope = {"sliding_attention": {"rope_theta": 10_000.0}, "full_attention": {"rope_theta": 160_000.0}}
NEOMME: Rope = {
    "sliding_attention": {"rope_theta": 10_000.0, "partial_rotary_factor": 1.0},
    "full_attention": {"rope_theta": 1_000_000.0, "partial_rotary_factor": 0.25},
}  # fmt: skip
OLMO3: Rope = {"sliding_attention": {"rope_theta": 500_000.0}, "full_attention": {"rope_theta": 500_000.0}}
ULTRABERT: Rope = {"sliding_attention": {"rope_theta": 10_000.0}, "full_attention": {"rope_theta": 2_560_000.0}}
ZAYA: Rope = {
    "hybrid": {"rope_theta": 5_000_000.0, "partial_rotary_factor": 0.5}, "hybrid_sliding": {"rope_theta": 10_000.0,
    "partial_rotary_factor": 0.5},
}  # fmt: skip
