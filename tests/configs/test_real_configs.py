"""Every config in the data folder is read, or refused with the expected words; frequencies: the law of keys."""

import re
from pathlib import Path

import pytest

from phasor.models.configs import ModelRotary, read_config

# file -> words that must be in the refusal
REFUSED = {
    "edited/stepfun-ai__Step-3.7-Flash-FP8.json": "rope_theta is missing",  # the rope keys were trimmed away
    "edited/stepfun-ai__Step-3.7-Flash.json": "rope_theta is missing",
    "full/WizardLM__WizardCoder-15B-V1.0.json": "gpt_bigcode uses learned absolute positions",
    "full/bert4torch_transfo-xl-wt103.json": "uses Transformer-XL's relative positions",
    "full/bigscience__bloom-3b.json": "bloom uses ALiBi; it has no rotary embedding to read",
    "full/google-t5__t5-small.json": "t5 uses T5's bucketed relative bias",
    "full/google__t5-v1_1-xxl.json": "t5 uses T5's bucketed relative bias",
    "full/moonshotai__Kimi-K3.json": "kimi_linear uses no position encoding",
    "full/nvidia__NVIDIA-Nemotron-3-Nano-30B-A3B-BF16.json": "nemotron_h uses no position encoding",
    "full/nvidia__NVIDIA-Nemotron-3-Super-120B-A12B-FP8.json": "nemotron_h uses no position encoding",
    "full/nvidia__NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16.json": "nemotron_h uses no position encoding",
    "full/tiiuae__Falcon-Perception.json": "2-D directions, one set per head",
    "full/xlnet__xlnet-base-cased.json": "xlnet uses Transformer-XL's relative positions",
    "reduced/ipex_bloom.json": "bloom uses ALiBi",
    "reduced/ipex_opt.json": "opt uses learned absolute positions",
    "reduced/ipex_t5.json": "t5 uses T5's bucketed relative bias",
}

# files that transformers 5.23 misreads, where the model's own code is followed: file -> (base, pairs) of the first spec
MISREAD = {
    "edited/databricks__dbrx-like-16x13b.json": (500_000.0, 64),  # attn_config.rope_theta is lost there
    "edited/SpecForge_qwen2-5-vl-7b-eagle3.json": (1_000_000.0, 64),  # KeyError 'mrope'
    "full/Qwen__Qwen3-ASR.json": (1_000_000.0, 64),  # the nested thinker_config is replaced by a default text config
    "reduced/ipex_llava.json": (10_000.0, 128),  # a flat config, replaced by a default text config of 64 pairs
}


def files(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.glob("*/*.json"))


@pytest.fixture(scope="module")
def folder(shared_data: Path) -> Path:
    return shared_data / "configs"


@pytest.fixture(scope="module")
def read(folder: Path) -> dict[str, ModelRotary]:
    return {name: read_config(folder / name) for name in files(folder) if name not in REFUSED}


def test_every_file_is_read_or_refused_and_the_lists_are_current(folder: Path, read: dict[str, ModelRotary]) -> None:
    assert set(REFUSED) <= set(files(folder)) and set(MISREAD) <= set(read)
    assert set(read) | set(REFUSED) == set(files(folder)) and not set(read) & set(REFUSED)


def test_refusals_name_the_reason(folder: Path) -> None:
    for name, words in REFUSED.items():
        with pytest.raises(ValueError, match=re.escape(words)):
            read_config(folder / name)


@pytest.mark.parametrize("name", sorted(MISREAD))
def test_the_models_own_code_is_followed_where_transformers_misreads(name: str, read: dict[str, ModelRotary]) -> None:
    (spec,) = read[name].distinct
    assert (spec.base, spec.pairs) == MISREAD[name]


def test_every_used_key_and_every_default_is_told(read: dict[str, ModelRotary]) -> None:
    for name, model in read.items():
        assert any("base" in text for text in model.sources.values()), name
        assert all(isinstance(text, str) and text for text in model.sources.values()), name
