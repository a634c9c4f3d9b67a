"""cos, sin, q and k: every rotary class and function of transformers against phasor, bit for bit."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch

transformers = pytest.importorskip("transformers")

from .operators import compare, wrong  # noqa: E402
from .suite import parts, rows  # noqa: E402
from .table import line, table  # noqa: E402
from .theirs import modules_for  # noqa: E402
from .walk import default_config, model_types, quiet  # noqa: E402

# One model type for every way to rotate.
FAST = (
    "llama", "gpt_neox", "glm4", "gptj", "cohere", "olmo2", "ernie4_5", "deepseek_v2", "deepseek_v3", "deepseek_v32",
    "deepseek_v4", "gemma3_text", "gemma4_text", "gpt_oss", "phi3", "llama4_text", "nanochat", "mistral_large4",
    "qwen2_vl_text", "qwen3_vl_text", "glm_ocr_text", "ernie4_5_vl_moe_text", "neomme", "glm4_moe", "qwen2_vl_vision",
    "pixtral", "gemma4_vision", "kimi_k25_vision", "step3p5_vision", "dinov3_vit", "sam3_vit_model", "sam2_video",
    "llama4_vision_model", "minimax_m3_vl_vision", "mimi", "clvp_encoder", "vjepa2", "wav2vec2-bert", "roformer",
    "internlm3",
)  # fmt: skip

# Equal up to roundings only: products of complex numbers, and in bfloat16 V-JEPA 2, which rounds its angles to it, and
# Dots 3, whose module rounds tables that its layers with an indexer form in float32.
ROUNDED = {"deepseek_v2", "dots3_note_text", "llama4", "llama4_text", "llama4_vision_model", "vjepa2"}

# Not compared, or known to differ: model type -> the reason.
ARGUED = {
    "lightglue": "its angles are a trained map of keypoints, which no config can say: the reader refuses and says how",
    "musicflamingo": "its module takes seconds, not positions: compared in tests/configs/test_towers_bits.py",
}

# Real configs that transformers misreads, where phasor follows the model's own code -> the reason.
MISREAD = {
    "edited/SpecForge_qwen2-5-vl-7b-eagle3": "its rope type is 'mrope', for which transformers has no function",
    "edited/databricks__dbrx-like-16x13b": "attn_config.rope_theta does not reach its rotary module",
    "full/EleutherAI__gpt-j-6B_prerelease": "says gpt_neo with rotary, which only code before GPT-J's release knew",
    "full/Qwen__Qwen3-ASR": "thinker_config is replaced by a default text config",
    "reduced/ipex_llava": "a flat config, replaced by a default text config",
}


@pytest.mark.parametrize("name", FAST)
def test_rotations_are_those_of_the_models_own_code(name: str) -> None:
    found = line(name, rows(default_config(name)))
    assert found.complete, str(found)
    assert found.exact == found.cases or name in ROUNDED, str(found)


@pytest.mark.parametrize("name", FAST)
def test_angles_five_percent_off_are_noticed(name: str) -> None:
    for _, case in parts(default_config(name)):
        assert not isinstance(case, str)
        outcome = compare(case, torch.float32, by=wrong(case.spec))
        assert outcome.difference is not None and not outcome.close and outcome.difference > 0.01


def test_transformers_drops_the_rotary_dim_of_minimax_m3() -> None:
    """Its module reads partial_rotary_factor alone and turns all 128 channels of its own default; phasor follows the
    key, and says so. Checkpoints state both, and agree."""
    plain = transformers.MiniMaxM3VLTextConfig()
    (module,) = modules_for(plain)
    (case,) = (one for path, one in parts(plain) if path == "")
    assert not isinstance(case, str)
    assert (plain.rotary_dim, case.spec.rotary_dim, 2 * len(module.inv_freq)) == (64, 64, 128)
    assert any("rotates all channels" in note for note in case.model.notes)


@pytest.mark.slow
def test_every_model_type() -> None:
    lines = [line(name, rows(default_config(name))) for name in model_types()]
    print("\n" + table("model type (default config)", lines))
    print("\n".join(f"argued: {name}: {why}" for name, why in ARGUED.items()))
    assert {one.name: str(one) for one in lines if not one.complete and one.name not in ARGUED} == {}
    assert {one.name for one in lines if one.complete} & set(ARGUED) == set()
    assert {one.name for one in lines if one.exact < one.cases} <= ROUNDED


@pytest.mark.slow
def test_every_real_config(shared_data: Path) -> None:
    lines = []
    for path in sorted((shared_data / "configs").glob("*/*.json")):
        data = json.loads(path.read_text())
        if (config := theirs(data)) is not None and any(True for _ in parts(config, data)):
            lines.append(line(f"{path.parent.name}/{path.stem}"[:44], rows(config, data)))
    print("\n" + table("real config", lines))
    print("\n".join(f"misread by transformers: {name}: {why}" for name, why in MISREAD.items()))
    assert {one.name: str(one) for one in lines if not one.complete and one.name not in MISREAD} == {}
    assert len(lines) > 95


def theirs(data: dict[str, Any]) -> Any:
    """The config object that transformers makes of a JSON; None if it does not know the type."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    name = data.get("model_type")
    if name not in CONFIG_MAPPING:
        return None
    with quiet():
        try:
            return CONFIG_MAPPING[name].from_dict(copy.deepcopy(data))  # from_dict writes into what it is given
        except Exception:  # a config that its own class refuses
            return None
