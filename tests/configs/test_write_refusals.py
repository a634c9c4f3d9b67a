"""write_config refuses in words what the code of a family cannot say."""

import re
from dataclasses import replace
from typing import Any

import pytest
from changes import CHANGES, each, scaled
from test_write import IN_YARN, PER_TYPE, SIX, YARN, base, config, one, still, width

from phasor import read_config, write_config
from phasor.rotary.scaling import NTK, YaRNPaper

REFUSED: list[tuple[str, dict[str, Any], Any, str]] = [
    ("llama", {}, lambda m: each(m, lambda s: s.replace(interleaved=True)),
        "layer 0 of the model has interleaved True, but the code of llama has False in any config; take a config"),
    ("llama", {}, lambda m: each(m, lambda s: s.replace(position_scale=0.5)), "position_scale 0.5"),
    ("llama", {}, lambda m: each(m, lambda s: s.replace(head_dim=32)), "has head_dim 32, but the code of llama has 16"),
    ("llama", {}, width(8), "makes 8 of 16 channels rotate, but the code of llama rotates all"),
    ("llama", {}, one(2, base=5e5), "layer 0 of the model has base 10000.0, but the code of llama reads 500000.0 in "
        "the spelling of this config, in one place for layers 2 and 0"),
    ("llama", {}, still(3), "layer 3 of the model does not rotate, which this config of llama does not say"),
    ("llama", {}, lambda m: replace(m, layers=(None,) * 4), "layer 0 of the model does not rotate"),
    ("llama", {}, scaled(YaRNPaper(4.0, 1024)), "YaRNPaper has no name in configs"),
    ("llama", {}, scaled(NTK(4.0)), "the code of llama has no scaling 'alpha'"),
    ("phi3", {}, scaled(YARN), "the code of phi3 has no scaling 'yarn'"),
    ("ernie4_5_vl_moe_text", {"head_dim": 128}, scaled(YARN), "the code of ernie4_5_vl_moe_text has no scaling"),
    ("pixtral", {}, scaled(YARN), "the code of pixtral has no scaling"),
    ("clvp_encoder", {"hidden_size": 768, "num_attention_heads": 12}, width(8),
        "the code of clvp_encoder reads 32 in the spelling of this config"),
    ("gptj", {"n_embd": 64, "n_head": 4, "rotary_dim": 8}, base(5e5), "the code of gptj has no key for it"),
    ("deepseek_v3", {}, width(32), "qk_rope_head_dim contradict each other: 0.16666666666666666 and 64"),
    ("gemma3_text", {"rope_theta": 1e6, **SIX}, scaled(YARN),
        "rope_scaling holds for other layers than sliding_attention; rope_parameters per layer type would"),
    ("gemma3_text", {"rope_parameters": PER_TYPE}, one(1, base=5e5), "in one place for layers"),
    ("llama", {}, lambda m: replace(m, layers=m.layers[:3], layer_types=m.layer_types[:3]),
        "layers of the model is 3, but what llama makes of it is 4; take a config of that model as like"),
    ("llama", {}, lambda m: replace(m, num_heads=8), "num_heads of the model is 8, but what llama makes of it is 4"),
    ("llama", {}, lambda m: replace(m, model_type="mistral"), "model_type of the model is 'mistral'"),
    ("llama", {}, lambda m: replace(m, max_position=None), "max_position of the model is None"),
    ("deepseek_v3", {"rope_scaling": {**IN_YARN, "mscale_all_dim": 1.0, "mscale": 1.0}}, CHANGES["factor"],
        "softmax_factor of the model is 1.29"),
    ("roformer", {}, lambda m: replace(m, targets=("k",)), "targets of the model is ('k',)"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "keys", "change", "words"), REFUSED)
def test_what_the_familys_code_cannot_say_is_refused(name: str, keys: dict[str, Any], change: Any, words: str) -> None:
    like = config(name, keys)
    wanted = change(read_config(like))
    with pytest.raises(ValueError, match=re.escape(words)) as refusal:
        write_config(wanted, like)
    assert str(refusal.value).startswith("like cannot say this model: ") and "; " in str(refusal.value)
