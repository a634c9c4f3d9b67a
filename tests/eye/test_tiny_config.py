"""A tiny model rotates as the real one: its config, read by the rows, gives the spec of every layer of the real one."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import torch

pytest.importorskip("transformers")

from transformers import CONFIG_MAPPING
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

from phasor import ModelRotary, read_parts
from phasor.eye.tiny import Tiny, first_inputs, recorded_reads, tiny_config, tiny_model
from phasor.eye.tiny.inputs import run
from phasor.eye.tiny.layers import kept_layers
from phasor.support.transformers_log import quiet

VARIED = [
    "llama", "gemma3_text", "gpt_neox", "deepseek_v3", "qwen3_next", "llama4_text", "glm4_moe", "recurrent_gemma",
    "modernbert", "gptj", "phi3", "qwen2_vl", "qwen2_vl_vision", "dinov3_vit", "sam3_vit_model", "mimi", "moonshine",
]  # fmt: skip


def default(model_type: str) -> dict[str, Any]:
    return json.loads(json.dumps(CONFIG_MAPPING[model_type]().to_dict(), default=str))


def differences(data: dict[str, Any], tiny: Tiny) -> tuple[int, list[str]]:
    """How many parts rotate, and in which layers a part of the tiny config is read as something else."""
    small = read_parts(json.loads(json.dumps(tiny.config.to_dict(), default=str)))
    parts = {path: part for path, part in read_parts(data).items() if isinstance(part, ModelRotary)}
    found = []
    for path, part in parts.items():
        other = small[path]
        if not isinstance(other, ModelRotary):
            found.append(f"{path}: {other}")
            continue
        stands = stands_for(path, len(part.layers), tiny)
        found += [f"{path} {i}" for i, j in enumerate(stands) if part.layers[i] != other.layers[j]]
    return len(parts), found


def stands_for(path: str, count: int, tiny: Tiny) -> list[int]:
    """For each layer that is read, its place in the tiny model; a part may list an encoder's and a decoder's layers."""
    above = path.rpartition(".")[0]
    for place in (path, above):
        groups = [list(v) for k, v in tiny.layers.items() if k.rpartition(".")[0] == place and v]
        if fitting := [g for g in groups if len(g) == count]:
            return fitting[0]
        if len(groups) > 1 and sum(map(len, groups)) == count:
            starts = [sum(max(g) + 1 for g in groups[:i]) for i in range(len(groups))]
            return [start + place for start, group in zip(starts, groups, strict=True) for place in group]
    alike = [list(v) for v in tiny.layers.values() if len(v) == count]
    return alike[0] if alike else list(range(count))


@pytest.mark.parametrize("model_type", VARIED)
def test_a_tiny_model_rotates_as_the_real_one(model_type: str) -> None:
    data = default(model_type)
    tiny = tiny_config(data)
    rotating, different = differences(data, tiny)
    assert rotating and not different
    model = tiny_model(tiny.config)
    assert sum(p.numel() for p in model.parameters()) < 3e7
    assert not model.training and all(p.dtype == torch.float32 for p in model.parameters())
    run(model, first_inputs(model))


def test_what_was_changed_is_said() -> None:
    data = default("llama") | {"num_attention_heads": 24, "hidden_size": 3072, "num_key_value_heads": 8}
    tiny = tiny_config(data)
    assert tiny.changed["hidden_size"] == (3072, 256)
    assert tiny.changed["num_attention_heads"] == (24, 2)
    assert tiny.config.head_dim == 128 and "head_dim" not in tiny.changed
    assert tiny.layers == {"num_hidden_layers": (0, 1, *[0] * 30)}


@pytest.mark.parametrize(
    ("said", "chosen", "stands"),
    [
        ({"layer_types": ["a", "b", "a", "c", "c", "a"]}, (0, 1, 3), (0, 1, 0, 2, 2, 0)),
        ({"first_k_dense_replace": 2}, (0, 2), (0, 0, 1, 1, 1, 1)),
        ({"attn_layer_indices": [3, 5]}, (0, 3), (0, 0, 0, 1, 0, 1)),
        ({"block_types": ["a", "a", "b"]}, (0, 1, 2), (0, 1, 2, 0, 1, 2)),
        ({"per_layer_config": {"4": {"rope_theta": 1.0}}}, (0, 4), (0, 0, 0, 0, 1, 0)),
        ({"num_kv_shared_layers": 2}, (0, 4), (0, 0, 0, 0, 1, 1)),
        ({"n_first_layers": 2, "n_last_layers": 4}, (0, 2), (0, 0, 1, 1, 1, 1)),
    ],
)
def test_a_layer_of_each_kind_stays(said: dict[str, Any], chosen: tuple[int, ...], stands: tuple[int, ...]) -> None:
    kept = kept_layers({"num_hidden_layers": 6, **said}, 6, "")
    assert (kept.chosen, kept.stands) == (chosen, stands)


def test_the_random_state_stays_and_the_weights_are_the_same() -> None:
    config = tiny_config(default("llama")).config
    before = torch.get_rng_state()
    one, two = tiny_model(config), tiny_model(config)
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))


def test_what_starts_at_zero_is_noise() -> None:
    model = tiny_model(tiny_config(default("zaya")).config)
    assert all(p.any() for p in model.parameters())


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"model_type": "no_such_type"}, "model_type must be one that the installed transformers knows"),
        ({}, "got None"),
        ({"model_type": "llama", "hidden_size": 30, "num_attention_heads": 4}, "refuses this config"),
    ],
)
def test_what_cannot_be_built_says_why_in_one_line(data: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        tiny_config(data)
    assert "\n" not in str(caught.value)


def test_the_keys_that_a_model_reads() -> None:
    data = default("llama") | {
        "rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0, "beta_fast": 1}
    }
    config = tiny_config(data | {"rotary_pct": 0.5}).config
    with recorded_reads() as reads:
        model = tiny_model(config)
        run(model, first_inputs(model))
    seen = reads.of(config)
    assert {"hidden_size", "rope_parameters.rope_theta", "rope_parameters.factor", "max_position_embeddings"} <= seen
    assert not {"rotary_pct", "rope_parameters.beta_fast", "bos_token_id"} & seen
    assert type(config.rope_parameters) is dict


def test_what_transformers_itself_reads_does_not_count() -> None:
    config = tiny_config(default("llama")).config
    with recorded_reads() as reads:
        config.to_dict()
        config.validate_rope()
        type(config)(**config.to_dict())
    assert reads.of(config) == set() and reads.of(tiny_config(default("llama")).config) == set()


def all_defaults() -> Iterator[tuple[str, dict[str, Any]]]:
    """The default config of every type; some classes refuse their own, and some never come to its end."""
    for model_type in CONFIG_MAPPING_NAMES:
        try:
            with quiet():
                data = default(model_type)
        except Exception:
            continue
        yield model_type, data


@pytest.mark.slow
def test_every_tiny_config_rotates_as_the_real_one() -> None:
    """Of every type whose default config describes a model that can be built; some leave out what it needs."""
    rotating, unbuilt, different = 0, [], {}
    for model_type, data in all_defaults():
        try:
            parts, found = differences(data, tiny_config(data))
        except ValueError:
            unbuilt += [model_type] if any(isinstance(p, ModelRotary) for p in read_parts(data).values()) else []
            continue
        rotating += parts
        different |= {model_type: found} if found else {}
    assert not different
    assert rotating >= 392 and len(unbuilt) <= 30, unbuilt
