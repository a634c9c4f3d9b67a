"""`phasor inspect` on every model type of transformers that rotates: a page that says what was read, of which part."""

import json
from importlib.metadata import PackageNotFoundError, version

import pytest

from conformance import walk  # imports transformers only when asked
from phasor import ModelRotary
from phasor.models.configs import read_parts
from phasor.tools.inspect.disagreement import diff, diff_lines
from phasor.tools.inspect.model_page import model_facts
from phasor.tools.inspect.view import read_view
from phasor.tools.inspect.view_text import view_dict, view_page

try:
    INSTALLED = version("transformers")
except PackageNotFoundError:
    INSTALLED = "none"
pytestmark = pytest.mark.skipif(INSTALLED != "5.24.0", reason="its model types are those of transformers 5.24.0")

# Of each kind one, and what its page must say: the factor, in the words and numbers of the model's own code.
SAMPLE = {
    "llama": ["all 128 channels", "all 32 layers"],
    "glm4_moe": ["exponents over 21"],  # int(42 * 0.5): an odd rotary dim
    "nanochat": ["rotated backwards"],
    "deepseek_v3": ["written as halves", "written to 128 and 160, …"],  # 128 + 64 channels, the last 64 turn
    "deepseek_v4": ["rotates      q, k, v, the output of attention, back", "  indexer"],
    "mistral_large4": ["learned log-scale", "all numbers here are without it", "scale ln(position + 1) + bias"],
    "llama4": ["log_floor(beta=0.1, length=8192, offset=1): times 1.283 at", "  vision_config"],  # 1 + .1 ln 17
    "beam": ["power(): times 1.175 at position 8,191", "9 layers (full_attention)"],  # (8192 / 2048 + 1) ** .1
    "codegen": ["cos and sin in float32, multiplied in it; the result stays float32"],
    "roformer": ["float32 angles would be off by", "float64 angles, cos and sin"],
    "musicflamingo": ["(top level)", "real coordinates"],
    "dinov3_vit": ["positions times 6.283185307", "not the first token", "(in float64)", "1/64 to 1,024"],
    "sapiens2": ["not the first 9 tokens"],
    # 768 / 12 = 64 channels in two blocks of 32
    "gemma4_vision": [
        "halves in 2 blocks: channel 0 pairs with 16",
        "2 coordinates, by pair: 0 rotates 16, 1 rotates 16",
    ],
    "vjepa2": [
        "not orthogonal",
        "of each pair's second member: t rotates 10, h rotates 10, w rotates 10",
        "  predictor",
    ],
    "hunyuan_vl": ["of each pair's second member: 0 rotates 0, 1 rotates 0, 2 rotates 32, 3 rotates 32"],
    "pixtral": ["0 alone", "1 alone"],
    "qwen2_5_omni_dit": ["only the first 1 of 16 heads"],
    "clvp": ["rotates      q, k, v"],
    "qwen2_vl": ["t alone", "h alone", "w alone"],
    "neomme": ["alternating("],
    "sam3": ["not shown    clip_text_model uses learned", "positions times 0.3333333333"],
    "nemo_speechlm": ["not shown    nemotron_h uses no position encoding", "audio_config.asr_config, one of"],
    "esmfold2": ["  atom_encoder"],
    "perception_lm": ["not read: model_type 'timm_wrapper'"],
    "gemma3": ["rotation 1", "rotation 2"],
}


def config_of(model_type: str) -> dict:
    with walk.quiet():
        return walk.default_config(model_type).to_dict()


def check_page(config: dict) -> str:
    """The page of a config: every rotation of the models shown, every part by name, and what was found in it."""
    whole = read_view(config)
    facts = [model_facts(model) for model in whole.shown]
    text = view_page(whole, facts)
    shown = {model.part: model for model in whole.shown}
    for model in whole.shown:
        for spec in model.distinct:
            assert f"  rotates    {spec.describe()}\n" in text
        assert all(f"{key} → {became}" in text for key, became in model.sources.items())
    found = read_parts(config)
    assert list(whole.others) == [path for path in found if path not in shown]
    lines = {line[2:].partition("  ")[0]: line for line in text.split("\nother parts")[-1].splitlines()[1:]}
    for path, what in whole.others.items():
        said = lines[path or "(top level)"]
        assert (what if isinstance(what, str) else next(iter(what.distinct)).describe()) in said
    data = json.loads(json.dumps(view_dict(whole, facts), allow_nan=False))
    assert {data["part"], *data["other_parts"]} == set(found)
    itself = diff(whole, whole)
    assert itself["same"] and set(itself["other_parts"].values()) <= {"same"} and diff_lines(itself)
    return text


@pytest.mark.parametrize("model_type", SAMPLE)
def test_a_page_of_each_kind(model_type: str) -> None:
    text = check_page(config_of(model_type))
    for said in SAMPLE[model_type]:
        assert said in text


@pytest.mark.slow
def test_a_page_of_every_model_type() -> None:
    """All but one: LightGlue's only frequencies are trained and follow no rule, and the reader says so."""
    refused = []
    for model_type, turning in walk.model_types().items():
        config = config_of(model_type)
        if not any(isinstance(found, ModelRotary) for found in read_parts(config).values()):
            with pytest.raises(ValueError, match="its frequencies are trained"):
                read_view(config)
            refused.append(model_type)
            continue
        text = check_page(config)
        named = text.replace("the top level", "(top level)") + (" (top level)" if "\npart " not in text else "")
        for place in turning:
            assert not written(config, place.path) or (place.path or "(top level)") in named, (model_type, place.path)
    assert refused == ["lightglue"]


def written(config: dict, path: str) -> bool:
    """Whether a part stands in the config, and is not only derived from it (`mimi.encoder_config`)."""
    for key in path.split(".") if path else []:
        config = config.get(key) or {}
    return bool(config)
