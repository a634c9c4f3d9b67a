"""Key heads and lengths: the class's own default where the config is silent, on record; wrong values refused."""

import contextlib
from typing import Any

import pytest

from phasor.models.configs import read_config
from phasor.models.reading.keys import Keys
from phasor.models.reading.sizes import read_sizes
from rows import FAMILIES
from steps import counted_steps

SMALL = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2}


def theirs(config: Any) -> Any:
    """The key heads with which transformers' own attention is built."""
    if config.model_type == "falcon":  # FalconAttention.__init__
        return config.num_kv_heads if config.new_decoder_architecture or not config.multi_query else 1
    if config.model_type == "dbrx":  # DbrxAttention.__init__
        return config.attn_config.kv_n_heads
    return config.to_dict().get("num_key_value_heads")  # None: the class has no such key, or one per query head


@pytest.mark.parametrize("state", [{}, {"num_key_value_heads": None}], ids=["absent", "null"])
@pytest.mark.parametrize("model_type", sorted(FAMILIES))
def test_key_heads_are_those_of_transformers_when_only_query_heads_are_stated(
    model_type: str, state: dict[str, Any]
) -> None:
    """Every family of the table, with twice the default number of query heads."""
    transformers = pytest.importorskip("transformers")
    from huggingface_hub.errors import StrictDataclassFieldValidationError

    family = FAMILIES[model_type]
    heads = 2 * (family.heads or 8)
    expected = None
    with contextlib.suppress(*[StrictDataclassFieldValidationError] if state else []):  # some refuse null: as of old
        if model_type == "dots3_note_text":  # refuses other numbers of key heads than of query heads
            heads = family.heads or 0
        expected = theirs(getattr(transformers, family.config)(num_attention_heads=heads, **state))
    names = family.names
    source = {names.heads[0]: heads, names.hidden[0]: 16 * heads, names.layers[0]: 2, **state}
    assert read_sizes(family, Keys([("", source)], {})).kv_heads == (expected or heads)


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
