"""What the figures draw and what the memory costs, against phasor's own numbers."""

import json

import pytest
import torch
from explorer_page import model_entry
from explorer_page.entries import memory_groups, spec_data

from phasor import RotarySpec, read_config
from phasor.models.published_lengths import published_length
from phasor.rotary.scaling import DynamicNTK, Linear, Llama3, LongRoPE, YaRN
from phasor.tools.inspect.curves import decay
from phasor.tools.inspect.model_page import model_facts
from phasor.tools.inspect.numbers import float32_error
from phasor_lab.demo.run import bundled_models
from phasor_serve.engines import load_config
from phasor_serve.planner import memory, plan

MODELS = {name: one["config"] for name, one in bundled_models().items()}


@pytest.mark.parametrize("name", MODELS)
def test_facts_of_every_model(js, name):
    model = read_config(MODELS[name])
    entry = model_entry(model, MODELS[name], name)
    body = """
      const [entry, rotation, length, first, last, far] = a;
      const written = writtenRegime(rotation, length);
      const m = measured(rotation.spec, length, float32FromHex(written.float32));
      const waves = wavelengths(m.frequencies).map((w) => (Number.isFinite(w) ? w : 1e300));
      return {
        waves, regimes: regimes(m), turns: trainedTurns(entry, rotation, rotation.spec), factor: m.factor,
        error: float32Error(m, first, last), decay: far.map((d) => decayAt(m.frequencies, d)),
        steps: written.steps.map((text) => stepsFromHex(text).map(String)),
        formed: m.steps.map((row) => row.map(String)), stated: trainedIsStated(entry, rotation.spec),
      };"""
    for rotation, fact in zip(entry["rotations"], model_facts(model), strict=True):
        last, far = fact.max_position - 1, [1, 10, 1000]
        got = js(body, entry, rotation, fact.seq_len, last - 31, last, far)
        assert got["steps"] == got["formed"]
        assert got["waves"] == pytest.approx([min(w, 1e300) for w in fact.wavelengths], rel=1e-12)
        assert got["regimes"] == list(fact.regimes)
        assert got["turns"] == pytest.approx(fact.turns, rel=1e-12)
        scaling = fact.spec.scaling
        assert got["stated"] == bool((scaling and scaling.trained_length) or published_length(model))
        assert got["factor"] == pytest.approx(fact.attention_factor, rel=1e-15)
        plain = fact.spec.axes.count == 1
        if plain:
            assert got["decay"] == pytest.approx(decay(fact.spec, torch.tensor(far), fact.seq_len).tolist(), abs=1e-11)
        # theirs rounds cos and sin to float32 as well: half a step at 1 each
        assert got["error"] == pytest.approx(float32_error(fact.spec, last + 1, fact.seq_len, 32), abs=1.2e-7)


@pytest.mark.parametrize("name", MODELS)
def test_memory_is_the_planners(js, name):
    config = load_config(MODELS[name])
    groups = memory_groups(config)
    assert sorted(engine for group in groups for engine in group["engines"]) == sorted(
        ["transformers", "vllm", "sglang", "llama.cpp", "exllamav3", "mlx-lm", "tensorrt-llm"]
    )
    for group in groups:
        for length in (1, 5000, 100_000):
            for dtype, width in (("bfloat16", 2), ("float32", 4)):
                expected = memory(config, group["engines"][-1], length, dtype=dtype, batch=3).total
                assert js("return cacheBytes(a[0], a[1], a[2], 3)", group["stores"], length, width) == expected
        for size in (2**30, 24 * 2**30):
            most = js("return longestThatFits(a[0], a[1], 2, 3)", group["stores"], size)
            fits = js("return [cacheBytes(a[0], a[1], 2, 3), cacheBytes(a[0], a[1] + 1, 2, 3)]", group["stores"], most)
            assert fits[0] <= size < fits[1]


def test_nothing_and_everything_fits(js):
    store = {"kind": "x", "layers": 2, "per_token": 8, "window": 16, "state": 0, "beside": []}
    assert js("return longestThatFits([a[0]], 31, 2, 1)", store) == 0
    assert js("return longestThatFits([a[0]], 64, 2, 1)", store) == 2
    assert js("return longestThatFits([a[0]], 512, 2, 1) === Infinity", store) is True


def test_settings_are_those_of_the_plan():
    config = MODELS["Qwen/Qwen3-8B"]
    entry = model_entry(read_config(config), config, "x")
    assert {one["length"] for one in entry["settings"]} == {40960, 81920, 163840, 327680}
    one = next(s for s in entry["settings"] if (s["engine"], s["length"]) == ("llama.cpp", 163840))
    assert one["lines"] == ["-c 163840 --rope-scaling yarn --rope-scale 5.0 --yarn-orig-ctx 32768"]
    refused = next(s for s in entry["settings"] if s["engine"] == "tensorrt-llm" and s["length"] == 163840)
    assert not refused["lines"] and refused["refused"] == plan(config, length=163840, engine="tensorrt-llm").refused


LIST = tuple(1.0 + i for i in range(64))


@pytest.mark.parametrize(
    "scaling",
    [
        None, Linear(4.0), DynamicNTK(2.0, 8192), YaRN(factor=4.0, original_max_position=2048),
        YaRN(factor=4.0, original_max_position=2048, truncate=False, mscale=1.0, mscale_all_dim=0.5, beta_fast=16.0),
        YaRN(factor=4.0, original_max_position=2048, attention=1.5), Llama3(8.0, 1.0, 4.0, 8192),
        LongRoPE(LIST, LIST, 4096, 2.0), LongRoPE(LIST, LIST, 4096, 2.0, attention=1.25, attention_short=1.5),
    ],
    ids=lambda s: "none" if s is None else s.name,
)  # fmt: skip
def test_rope_parameters_are_read_back(js, scaling):
    """What is copied for a config.json gives the rotation that the page shows."""
    spec = RotarySpec(head_dim=128, base=123_456.0, scaling=scaling)
    rope = js("return ropeParameters(a[0])", spec_data(spec))
    config = {
        "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 1,
        "max_position_embeddings": 8192, "rope_parameters": json.loads(json.dumps(rope)),
    }  # fmt: skip
    assert read_config(config).layers[0] == spec


def test_a_share_is_copied_and_what_no_key_says_is_not(js):
    phi = RotarySpec(head_dim=80, rotary_dim=32)
    assert js("return ropeParameters(a[0])", spec_data(phi))["partial_rotary_factor"] == 0.4
    assert js("return ropeParameters(a[0])", spec_data(phi.replace(exponent_dim=80))) is None
    assert js("return ropeParameters(a[0])", spec_data(RotarySpec(head_dim=2, frequencies=(1.0,)))) is None


@pytest.mark.parametrize(
    "spec",
    [
        RotarySpec(head_dim=8), RotarySpec(head_dim=8, interleaved=True), RotarySpec(head_dim=12, rotary_dim=8),
        RotarySpec(head_dim=12, rotary_dim=8, trailing=True), RotarySpec(head_dim=16, blocks=2),
        RotarySpec(head_dim=8, rotary_dim=4, trailing=True, interleaved=True),
    ],
)  # fmt: skip
def test_layouts(js, spec):
    channels = torch.arange(spec.head_dim)[spec.layout.turning]
    first, second = spec.layout.split(channels)
    assert js("return channelsOf(a[0])", spec_data(spec)) == [
        list(pair) for pair in zip(first.tolist(), second.tolist(), strict=True)
    ]
