"""write_config: each spelling of the same change, what a config cannot say, and what is left alone."""

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from changes import CHANGES, LLAMA3, each, scaled

from phasor import read_config, write_config
from phasor.models.configs import ModelRotary
from phasor.models.rows import ROWS
from phasor.rotary.axes import Sections
from phasor.rotary.scaling import NTK, DynamicNTK, Linear, LongRoPE, SteppedNTK, YaRN
from phasor.rotary.temperature import LogFloor

SMALL = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 4, "max_position_embeddings": 4096}
SIX = {"num_hidden_layers": 6}  # Gemma's first layer with full attention
GONE = object()
PER_TYPE = {
    "full_attention": {"rope_type": "default", "rope_theta": 1e6},
    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
}
YARN = YaRN(factor=4.0, original_max_position=1024)
IN_YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}
SU = {"type": "su", "short_factor": [1.0] * 8, "long_factor": [2.0] * 8, "original_max_position_embeddings": 1024}


def changed(like: dict[str, Any], written: dict[str, Any], path: str = "") -> dict[str, Any]:
    """Dotted key -> the new value, or GONE, of what differs."""
    found: dict[str, Any] = {}
    for key in (*like, *(key for key in written if key not in like)):
        mine, theirs = like.get(key, GONE), written.get(key, GONE)
        if isinstance(mine, dict) and isinstance(theirs, dict):
            found |= changed(mine, theirs, f"{path}{key}.")
        elif mine != theirs:
            found[f"{path}{key}"] = theirs
    return found


def base(value: float) -> Any:
    return lambda model: each(model, lambda spec: spec.replace(base=value))


def width(value: int) -> Any:
    return lambda model: each(model, lambda spec: spec.replace(rotary_dim=value))


def one(layer: int, **fields: Any) -> Any:
    """One layer alone, changed."""

    def change(model: ModelRotary) -> ModelRotary:
        spec = model.layers[layer]
        assert spec is not None
        return replace(model, layers=(*model.layers[:layer], spec.replace(**fields), *model.layers[layer + 1 :]))

    return change


def kind(word: str, **fields: Any) -> Any:
    """All layers of one kind, changed."""

    def change(model: ModelRotary) -> ModelRotary:
        layers = zip(model.layers, model.layer_types, strict=True)
        return replace(model, layers=tuple(s.replace(**fields) if s and w == word else s for s, w in layers))

    return change


def still(layer: int) -> Any:
    """One layer does not rotate."""
    return lambda model: replace(model, layers=(*model.layers[:layer], None, *model.layers[layer + 1 :]))


SPELLINGS: list[tuple[str, dict[str, Any], Any, dict[str, Any]]] = [
    # the base: where it stands, under the family's name, or where the config has such keys
    ("llama", {"rope_theta": 1e4}, base(5e5), {"rope_theta": 5e5}),
    ("llama", {"rope_parameters": {"rope_theta": 1e4}}, base(5e5), {"rope_parameters.rope_theta": 5e5}),
    ("llama", {"rope_theta": 1e4, "rope_parameters": {"rope_theta": 1e4}}, base(5e5),
        {"rope_theta": 5e5, "rope_parameters.rope_theta": 5e5}),
    ("llama", {"rope_scaling": None}, base(5e5), {"rope_theta": 5e5}),
    ("llama", {}, base(5e5), {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}),
    ("llama", {"rope_theta": 1e4}, base(1e4), {}),
    ("gpt_neox", {"rotary_emb_base": 10_000}, base(5e5), {"rotary_emb_base": 500_000}),
    ("gpt_neox", {"rotary_pct": 1.0}, base(5e5), {"rotary_emb_base": 5e5}),
    ("chatglm", {"rope_ratio": 2, "seq_length": 8, "kv_channels": 16}, base(5e5), {"rope_ratio": 50.0}),
    ("apertus", {}, base(5e5), {"rope_parameters": {
        "rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "original_max_position_embeddings": 8192,
        "low_freq_factor": 1.0, "high_freq_factor": 4.0}}),
    ("modernbert", {"global_rope_theta": 1e5, "local_rope_theta": 1e4}, kind("sliding_attention", base=2e4),
        {"local_rope_theta": 2e4}),
    ("gemma3_text", {"rope_local_base_freq": 1e4, "rope_theta": 1e6}, kind("sliding_attention", base=2e4),
        {"rope_local_base_freq": 2e4}),
    ("gemma3_text", {"rope_theta": 1e6}, kind("sliding_attention", base=2e4), {"rope_local_base_freq": 2e4}),
    ("gemma3_text", {"rope_parameters": PER_TYPE}, kind("sliding_attention", base=2e4),
        {"rope_parameters.sliding_attention.rope_theta": 2e4}),
    ("gemma3_text", {"rope_parameters": {**PER_TYPE, "rope_theta": 1e4}}, kind("sliding_attention", base=2e4),
        {"rope_parameters.sliding_attention.rope_theta": 2e4, "rope_parameters.rope_theta": 1e6}),
    ("mimo_v2_flash", {"swa_rope_theta": 1e4}, kind("sliding_attention", base=2e4), {"rope_parameters": {
        "full_attention": {"rope_type": "default", "partial_rotary_factor": 0.334, "rope_theta": 5e6},
        "sliding_attention": {"rope_type": "default", "partial_rotary_factor": 0.334, "rope_theta": 2e4}}}),
    ("deepseek_v4", {"compress_rope_theta": 1e4}, base(2e4), {"compress_rope_theta": 2e4}),
    ("dbrx", {"attn_config": {"rope_theta": 1e4}}, base(5e5),
        {"attn_config.rope_theta": 5e5, "rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}),
    ("esm", {"position_embedding_type": "rotary"}, base(5e5), {"rope_theta": 5e5}),
    ("wav2vec2-bert", {"position_embeddings_type": "rotary", "rotary_embedding_base": 10_000}, base(5e5),
        {"rotary_embedding_base": 500_000}),
    ("sam2_video", {"memory_attention_rope_theta": 1e4}, base(5e5), {"memory_attention_rope_theta": 5e5}),
    ("pixtral", {}, base(5e5), {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}),
    # one base per layer
    ("granite_swa", {"layer_rope_theta": [1e4] * 4}, one(2, base=2e4), {"layer_rope_theta": [1e4, 1e4, 2e4, 1e4]}),
    ("granite_swa", {"rope_theta": 1e4}, one(2, base=2e4), {"layer_rope_theta": [1e4, 1e4, 2e4, 1e4]}),
    ("granite_swa", {"rope_theta": 1e4}, still(1), {"layer_rope_theta": [1e4, 0, 1e4, 1e4]}),
    ("step3p5", {"rope_theta": [1e4] * 4}, one(2, base=2e4), {"rope_theta": [1e4, 1e4, 2e4, 1e4]}),
    ("step3p5", {"rope_theta": [1e4] * 5, "head_dim": 16}, one(2, rotary_dim=8),
        {"partial_rotary_factors": [1.0, 1.0, 0.5, 1.0, 1.0]}),
    ("muse_glimmer_text", SIX, base(5e5), {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}),
    ("muse_glimmer_text", {"layer_rope_theta": [1e4, 0, 0, 1e4]}, base(5e5),
        {"layer_rope_theta": [5e5, 0, 0, 5e5], "rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}),
    ("smollm3", {"rope_theta": 1e4}, still(0), {"no_rope_layers": [0, 1, 1, 0]}),
    # the scaling: the name of its dictionary, the family's word for it, the keys that go with it
    ("llama", {"rope_theta": 1e4}, scaled(YARN), {"rope_scaling": IN_YARN}),
    ("llama", {}, scaled(YARN), {"rope_parameters": {"rope_theta": 1e4, **IN_YARN}}),
    ("llama", {"rope_scaling": {"type": "linear", "factor": 2.0}}, scaled(Linear(4.0)), {"rope_scaling.factor": 4.0}),
    ("llama", {"rope_scaling": {"type": "linear", "factor": 2.0}}, scaled(YARN),
        {"rope_scaling.type": "yarn", "rope_scaling.factor": 4.0,
         "rope_scaling.original_max_position_embeddings": 1024}),
    ("llama", {"rope_scaling": {**IN_YARN, "beta_fast": 32}}, scaled(LLAMA3),
        {"rope_scaling.rope_type": "llama3", "rope_scaling.factor": 8.0, "rope_scaling.beta_fast": GONE,
         "rope_scaling.original_max_position_embeddings": 8192, "rope_scaling.low_freq_factor": 1.0,
         "rope_scaling.high_freq_factor": 4.0}),
    ("llama", {"rope_scaling": {**IN_YARN, "beta_fast": 32}}, scaled(replace(YARN, factor=8.0)),
        {"rope_scaling.factor": 8.0}),
    ("llama", {"rope_scaling": IN_YARN}, scaled(None), {"rope_scaling": None}),
    ("llama", {"rope_parameters": {"rope_theta": 1e4, **IN_YARN}}, scaled(None),
        {"rope_parameters.rope_type": "default", "rope_parameters.factor": GONE,
         "rope_parameters.original_max_position_embeddings": GONE}),
    ("apertus", {"rope_theta": 12e6}, scaled(None), {"rope_scaling": {"rope_type": "default"}}),
    ("phi3", {"rope_scaling": SU}, scaled(LongRoPE((1.0,) * 8, (2.0,) * 8, 1024, 8.0)), {"rope_scaling.factor": 8.0}),
    ("phi3", {"rope_scaling": {**SU, "original_max_position_embeddings": None},
        "original_max_position_embeddings": 1024}, scaled(LongRoPE((1.0,) * 8, (2.0,) * 8, 2048, 4.0)),
        {"original_max_position_embeddings": 2048, "rope_scaling.factor": 4.0}),
    ("phimoe", {"rope_scaling": SU}, scaled(LongRoPE((1.0,) * 8, (2.0,) * 8, 1024, 4.0, 1.25, 1.5)),
        {"rope_scaling.long_mscale": 1.25, "rope_scaling.short_mscale": 1.5, "rope_scaling.factor": 4.0}),
    ("hunyuan_v1_dense", {"rope_theta": 1e4}, scaled(NTK(8.0)),
        {"rope_scaling": {"rope_type": "dynamic", "alpha": 8.0}}),
    ("hunyuan_v1_dense", {"rope_scaling": {"type": "dynamic", "alpha": 8.0}}, scaled(DynamicNTK(2.0, 4096)),
        {"rope_scaling.alpha": GONE, "rope_scaling.factor": 2.0,
         "rope_scaling.original_max_position_embeddings": 4096}),
    ("qwen2_vl", {"rope_scaling": {"type": "mrope", "mrope_section": [4, 2, 2]}}, scaled(Linear(4.0)),
        {"rope_scaling.type": "linear", "rope_scaling.factor": 4.0}),
    ("gemma3_text", {"rope_theta": 1e6, **SIX}, kind("full_attention", scaling=Linear(4.0)),
        {"rope_scaling": {"rope_type": "linear", "factor": 4.0}}),
    ("gemma3_text", SIX, kind("full_attention", scaling=Linear(4.0)), {"rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 4.0}}}),
    ("qwen", {"use_dynamic_ntk": True, "seq_length": 2048}, scaled(SteppedNTK(4096)), {"seq_length": 4096}),
    ("qwen", {"use_dynamic_ntk": True, "seq_length": 2048}, scaled(None), {"use_dynamic_ntk": False}),
    # width and sections
    ("gpt_neox", {"rotary_pct": 1.0}, width(4), {"rotary_pct": 0.25}),
    ("gptj", {"rotary_dim": 8, "n_embd": 64, "n_head": 4}, width(4), {"rotary_dim": 4}),
    ("phi", {"partial_rotary_factor": 1.0}, width(4), {"partial_rotary_factor": 0.25}),
    ("phi", {"rope_theta": 1e4}, width(4), {"partial_rotary_factor": 0.25}),
    ("phi", {}, width(4),
        {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.25}}),
    ("glm4_moe", {"head_dim": 50, "partial_rotary_factor": 0.5}, CHANGES["nothing"], {}),
    ("qwen2_vl", {"rope_scaling": {"type": "mrope", "mrope_section": [4, 2, 2]}},
        lambda model: each(model, lambda spec: spec.replace(axes=Sections((2, 3, 3)))),
        {"rope_scaling.mrope_section": [2, 3, 3]}),
    ("deepseek_v3", {"rope_interleave": True},
        lambda model: each(model, lambda spec: spec.replace(interleaved=False, permuted=False)),
        {"rope_interleave": False}),
    # the declared length
    ("llama", {}, CHANGES["length"], {"max_position_embeddings": 16_384}),
    ("chatglm", {"seq_length": 1024, "kv_channels": 16}, CHANGES["length"], {"seq_length": 4096}),
    ("phi3", {"rope_scaling": SU}, CHANGES["length"], {"max_position_embeddings": 16_384, "rope_scaling.factor": 4.0}),
    ("dots3_note_audio_encoder", {"max_position_embeddings": None, "whisper_config": {"max_source_positions": 1500}},
        CHANGES["length"], {"whisper_config.max_source_positions": 6000}),
]  # fmt: skip


def config(name: str, keys: dict[str, Any]) -> dict[str, Any]:
    sizes = {**SMALL, "multi_query_group_num": 2} if name == "chatglm" else SMALL
    return copy.deepcopy({"model_type": name, **sizes, **keys})


@pytest.mark.parametrize(("name", "keys", "change", "expected"), SPELLINGS)
def test_what_differs_is_written_where_the_config_says_it(
    name: str, keys: dict[str, Any], change: Any, expected: dict[str, Any]
) -> None:
    like = config(name, keys)
    before = copy.deepcopy(like)
    wanted = change(read_config(like))
    written = write_config(wanted, like)
    assert changed(like, written) == expected
    assert like == before and [key for key in written if key in like] == list(like)
    assert not {f for f in read_config(json.loads(json.dumps(written))).diff(wanted) if f != "notes"}


def test_a_type_without_a_row_is_written_as_most_are_spelled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its small model was observed, and is observed again in what was written."""
    pytest.importorskip("transformers")
    monkeypatch.delitem(ROWS, "exaone")
    like = config("exaone", {"rope_theta": 1e4, "num_key_value_heads": 4})
    assert "observed" in read_config(like).sources["model_type"]
    assert changed(like, write_config(base(5e5)(read_config(like)), like)) == {"rope_theta": 5e5}


def test_whole_numbers_stay_whole() -> None:
    """Some config classes of transformers take no float where an int is declared."""
    like = config("gpt_neox", {"rotary_emb_base": 10_000, "rotary_pct": 1.0})
    written = write_config(base(5e5)(read_config(like)), like)
    assert json.dumps(written).endswith('"rotary_emb_base": 500000, "rotary_pct": 1.0}')
    assert write_config(base(1.5)(read_config(like)), like)["rotary_emb_base"] == 1.5


def temperate(model: ModelRotary) -> ModelRotary:
    return replace(model, temperatures=(LogFloor(0.2, 1024),) * len(model.layers))


def test_a_temperature_is_written_with_the_scaling_it_counts_by() -> None:
    like = config("ministral3", {"rope_parameters": {"rope_theta": 1e6, **IN_YARN, "llama_4_scaling_beta": 0.1}})
    written = write_config(temperate(read_config(like)), like)
    assert changed(like, written) == {"rope_parameters.llama_4_scaling_beta": 0.2}
    plain = replace(scaled(None)(read_config(like)), temperatures=())
    assert write_config(plain, like)["rope_parameters"] == {"rope_theta": 1e6, "rope_type": "default"}


def test_a_kind_of_layer_starts_or_stops_to_rotate_where_null_says_so() -> None:
    like = config(
        "beam", {"rope_parameters": {"sliding_attention": {"rope_theta": 1e4}, "full_attention": None}, **SIX}
    )
    model = read_config(like)
    spec = model.layers[0]
    assert spec is not None and model.layers[5] is None
    turning = replace(model, layers=(*model.layers[:5], spec.replace(base=5e5)), temperatures=())
    there = write_config(turning, like)
    assert there["rope_parameters"]["full_attention"] == {"rope_type": "default", "rope_theta": 5e5}
    assert write_config(model, there)["rope_parameters"]["full_attention"] is None


def test_an_indexer_follows_its_attention() -> None:
    like = config("deepseek_v32", {"rope_theta": 1e4})
    model = read_config(like, "indexer")
    assert write_config(model, like) == like
    with pytest.raises(ValueError, match="it follows the attention beside it, so write part=''"):
        write_config(base(5e5)(model), like)


COMPOSITE: dict[str, Any] = {
    "model_type": "llava", "rope_theta": 1e4, "text_config": {"model_type": "llama", "rope_theta": 1e4, **SMALL},
    "vision_config": {"model_type": "pixtral", "rope_theta": 1e4},
}  # fmt: skip


def test_parts_of_a_composite_config() -> None:
    text, vision = (base(5e5)(read_config(COMPOSITE, part)) for part in ("text_config", "vision_config"))
    assert changed(COMPOSITE, write_config(text, COMPOSITE)) == {"text_config.rope_theta": 5e5, "rope_theta": 5e5}
    assert changed(COMPOSITE, write_config(vision, COMPOSITE)) == {"vision_config.rope_theta": 5e5}
    nulls = {**COMPOSITE, "rope_scaling": None, "text_config": {**COMPOSITE["text_config"], "rope_scaling": None}}
    scaling = scaled(YARN)(read_config(nulls))
    assert changed(nulls, write_config(scaling, nulls)) == {"text_config.rope_scaling": IN_YARN}
    alone = base(5e5)(read_config(COMPOSITE["text_config"]))
    assert write_config(alone, COMPOSITE) == write_config(text, COMPOSITE)  # the part that read_config chooses
    with pytest.raises(ValueError, match="part must be one of"):
        write_config(text, COMPOSITE, part="audio_config")


def test_what_a_composite_class_sets_in_its_part_counts_as_said() -> None:
    """Voxtral's text config has base 1e8 where it states none."""
    like = {
        "model_type": "voxtral",
        "text_config": {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 8},
    }
    model = read_config(like)
    assert write_config(model, like) == like
    assert write_config(base(5e5)(model), like)["text_config"]["rope_theta"] == 5e5


def test_angles_are_no_part_of_a_config() -> None:
    like = config("llama", {"rope_theta": 1e4})
    for angles in ("exact", "float32"):
        assert write_config(base(5e5)(read_config(like)).with_angles(angles), like)["rope_theta"] == 5e5


def test_like_is_whatever_read_config_takes(tmp_path: Path) -> None:
    like = config("llama", {"rope_theta": 1e4})
    (tmp_path / "config.json").write_text(json.dumps(like))
    model = base(5e5)(read_config(tmp_path))
    assert write_config(model, tmp_path) == write_config(model, tmp_path / "config.json") == {**like, "rope_theta": 5e5}


def test_arguments_of_another_kind_are_refused() -> None:
    with pytest.raises(ValueError, match="model must be a ModelRotary, as read_config returns it, got dict"):
        write_config({}, {})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"source must be the path of a config\.json"):
        write_config(read_config(config("llama", {})), 3)
