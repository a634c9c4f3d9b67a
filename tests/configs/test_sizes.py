"""Sizes beyond any model are refused at once, and the largest that are read take few steps."""

from typing import Any

import pytest

from phasor.models.configs import read_config
from steps import counted_steps

SMALL = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2}


def test_configs_of_absurd_extent_are_refused() -> None:
    with pytest.raises(ValueError, match=r"config has \d+ keys; a config has at most 2000"):
        read_config({"model_type": "llama", **SMALL, **{f"k{i}": i for i in range(3000)}})
    parts = {f"part{i}_config": {"model_type": "llama"} for i in range(100)}
    with pytest.raises(ValueError, match="config holds 100 models; a composite config has at most 64"):
        read_config({"model_type": "frame", **parts})


@pytest.mark.parametrize(
    "keys",
    [{"num_hidden_layers": 2**11}, {"head_dim": 2**12}, {"num_attention_heads": 2**11, "head_dim": 2**12},
     {"model_type": "deepseek_v3", "qk_rope_head_dim": 2**12}, {f"k{i}": i for i in range(1900)}],
)  # fmt: skip
def test_the_largest_sizes_are_read_in_few_steps(keys: dict[str, Any]) -> None:
    """Far beyond any model; what is larger is refused at once."""
    with counted_steps() as steps:
        read_config({"model_type": "llama", **SMALL, **keys})
    assert steps.count < 2_000_000  # about half of that; the squares of these sizes are four million
