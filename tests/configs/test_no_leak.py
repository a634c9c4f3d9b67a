"""Nothing that a config says is lost without a word: what no line of `literal_configs.json` can say.

Expected values are those of transformers 5.23's own classes, read in their source or built where that is cheap.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from phasor import read_config, read_parts
from phasor.configs import read_rule

SMALL = {"hidden_size": 512, "num_attention_heads": 4, "num_hidden_layers": 4}
LLAMA = {"model_type": "llama", **SMALL, "rope_theta": 10_000.0}


def test_a_key_twice_in_one_object_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text('{"model_type": "llama", "rope_theta": 1e4, "inner": {"a": 1}, "rope_theta": 5e5}')
    with pytest.raises(ValueError, match="the key 'rope_theta' stands twice in one object; keep one"):
        read_config(file)


def test_towers_of_clip_and_its_kin_do_not_rotate() -> None:
    for name in ("aimv2", "align", "siglip"):
        found = read_parts({"model_type": name, "text_config": {"model_type": f"{name}_text_model", **SMALL}})
        assert str(found["text_config"]).startswith("no rotary"), found


def test_every_inner_config_is_read_or_named() -> None:
    vt = {"vt_hidden_size": 1152, "vt_num_attention_heads": 16, "vt_num_hidden_layers": 2, "pos_emb_height": 64}
    kimi = read_parts({"model_type": "kimi_k25", "text_config": {"model_type": "kimi_k2"}, "vision_config": vt})
    assert kimi["vision_config"].layers[0].head_dim == 72  # type: ignore[union-attr]
    later = read_parts({"model_type": "kimi_k3", "text_config": {"model_type": "kimi_linear"}, "vision_config": vt})
    assert str(later["vision_config"]).startswith("not read: model_type of vision_config is missing")
    text = {"model_type": "qwen2_5_vl_text", **SMALL}
    depth = read_parts({"model_type": "qwen2_5_vl", "text_config": text, "vision_config": {"depth": 3}})
    assert len(depth["vision_config"].layers) == 3  # type: ignore[union-attr]
    empty = read_parts({"model_type": "qwen3_vl", "text_config": {"model_type": "qwen3_vl_text"}, "vision_config": {}})
    assert len(empty["vision_config"].layers) == 27  # type: ignore[union-attr]
    unknown = read_parts({"model_type": "newcomer", "text_config": LLAMA, "image_config": {"stages": 3}})
    assert str(unknown["image_config"]).startswith("not read")


@pytest.mark.parametrize(
    ("name", "text", "key"),
    [("voxtral", "llama", "text_config"), ("voxtral_realtime", "voxtral_realtime_text", "text_config"),
     ("glmasr", "llama", "text_config"), ("pe_audio", "modernbert", "text_config")],
)  # fmt: skip
def test_defaults_that_a_composite_class_gives_its_parts(name: str, text: str, key: str) -> None:
    pytest.importorskip("transformers")
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    stated = {"model_type": name, key: {"model_type": text, "vocab_size": 1000}}
    theirs = getattr(CONFIG_MAPPING[name].from_dict(json.loads(json.dumps(stated))), key)
    model = read_config(stated, part=key)
    assert model == read_config({"model_type": name, key: theirs.to_dict()}, part=key)
    assert len(model.layers) == theirs.num_hidden_layers and model.num_heads == theirs.num_attention_heads
    assert any("what the class around it sets" in text for text in model.sources.values())


def test_the_rule_of_positions_is_read_strictly() -> None:
    assert read_rule({"model_type": "qwen2_5_vl", "vision_config": {"tokens_per_second": 2}}).rate == 2
    with pytest.raises(ValueError, match="token_per_second is not understood; did you mean tokens_per_second"):
        read_rule({"model_type": "qwen2_5_vl", "vision_config": {"token_per_second": 2}})
    with pytest.raises(ValueError, match="tokens_per_second must be a finite number"):
        read_rule({"model_type": "qwen2_5_vl", "vision_config": {"tokens_per_second": "2"}})
    with pytest.raises(ValueError, match="tokens_per_second is 2, where the code of qwen2_5_vl does not look for it"):
        read_rule({"model_type": "qwen2_5_vl", "tokens_per_second": 2})
    with pytest.raises(ValueError, match=r"text_config\.rope_scaling\.xdrope_section must be a list, got 5"):
        read_rule({"model_type": "hunyuan_vl", "text_config": {"rope_scaling": {"xdrope_section": 5}}})


@pytest.mark.parametrize("place", ["", "rope_scaling", "text_config", "above", "settings"])
def test_control_characters_never_reach_a_terminal(place: str) -> None:
    key = "rope_\x1b[31mtheta\x07"
    source: dict[str, Any] = {**LLAMA, "settings": {}, "rope_scaling": {}, "text_config": None}
    if place == "text_config":
        source = {"model_type": "llava", "text_config": {**LLAMA, key: 2.0}}
    elif place == "above":
        source = {"model_type": "llava", key: 2.0, "text_config": LLAMA}
    elif place:
        source[place] = {key: 2.0}
    else:
        source[key] = 2.0
    with pytest.raises(ValueError, match="rope_") as caught:
        read_config(source)
    assert str(caught.value).isprintable(), str(caught.value)
