"""Golden vectors of small configs, each written once, and what a right implementation gives for them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from phasor.tools.golden import write

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}
LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}  # fmt: skip
SIZES = {"num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2, "hidden_size": 256}
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama", **SIZES, "rope_theta": 500000.0, "max_position_embeddings": 8192},
    "yarn": {
        "model_type": "llama", **SIZES, "rope_theta": 10000.0, "rope_scaling": YARN, "max_position_embeddings": 16384,
    },
    "llama3": {
        "model_type": "llama", **SIZES, "rope_theta": 500000.0, "rope_scaling": LLAMA3,
        "max_position_embeddings": 131072,
    },
    "neox": {
        "model_type": "gpt_neox", "num_attention_heads": 4, "num_hidden_layers": 2, "hidden_size": 256,
        "rotary_pct": 0.25, "rotary_emb_base": 10000, "max_position_embeddings": 2048,
    },
    "mrope": {
        "model_type": "qwen2_vl_text", **SIZES, "rope_theta": 1000000.0, "max_position_embeddings": 32768,
        "rope_scaling": {"type": "mrope", "mrope_section": [8, 12, 12]},
    },
    "deepseek": {
        "model_type": "deepseek_v3", "num_attention_heads": 4, "num_hidden_layers": 2, "hidden_size": 256,
        "qk_rope_head_dim": 32, "qk_nope_head_dim": 32, "rope_theta": 10000.0, "max_position_embeddings": 4096,
    },
}  # fmt: skip


@pytest.fixture(scope="session")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a config's vectors, by its name in `CONFIGS`."""
    done: dict[str, Path] = {}

    def of(name: str) -> Path:
        if name not in done:
            done[name] = write(CONFIGS[name], tmp_path_factory.mktemp(name) / "vectors")
        return done[name]

    return of


def load(folder: Path) -> dict[str, Tensor]:
    """Every tensor, without the kind's name: these configs have one kind."""
    from safetensors.torch import load_file

    return {name.partition(".")[2]: t for name, t in load_file(folder / "vectors.safetensors").items()}
