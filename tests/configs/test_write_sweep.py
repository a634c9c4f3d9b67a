"""Every model type and every real config, changed, written and read again; and transformers reads the same from it."""

import copy
import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from changes import CHANGES, NotHere

from conformance.operators import compare
from conformance.suite import parts
from conformance.walk import default_config, model_types, quiet
from phasor import read_config, read_parts, write_config
from phasor.models.configs import ModelRotary

transformers = pytest.importorskip("transformers")

FAST = (
    "llama", "gpt_neox", "glm4", "glm4_moe", "gptj", "deepseek_v3", "deepseek_v4", "gemma3_text", "gemma4_text",
    "gpt_oss", "phi3", "llama4_text", "qwen2_vl", "qwen3_vl_text", "hunyuan_vl_text", "granite_swa",
    "muse_glimmer_text", "beam", "laguna", "minimax_m2",
    "dbrx", "ministral3", "apertus", "pixtral", "mimi", "wav2vec2-bert", "sam2_video",
    "moonshine", "zaya", "modernbert",
)  # fmt: skip

# Why a config cannot say a model: the only reasons that there may be.
ARGUED = {
    "has no scaling": "towers, and families whose code has no such scheme",
    "has rotary_dim": "a partial width where the code rotates everything, or a shape of weights in latent attention",
    "in one place for layers": "layers that differ where one dictionary holds for both",
    "has no key for it": "towers that derive what turns from their sizes",
    "which is not understood": "CLVP, whose base stands in its code",
    "holds for": "old configs whose one rope_scaling holds for one kind of layer",
    "has no keys of its own": "indexers and predictors follow the attention beside them",
    "softmax_factor of the model is": "it follows from the scaling, and the model was not changed as a whole",
    "temperatures of the model is": "they follow from the scaling, and the model was not changed as a whole",
    "llama_4_scaling_beta counts in it": "a temperature that counts in the trained length, which the scaling states",
    "no code looks there for it": "the base of CLVP stands in its code, and no key says another",
    "the default of MiMoV2FlashConfig": "MiMo's files state at the top what its class has by default",
    "channels rotate in pairs": "YaRN has no ramp for an odd number of channels (GLM-4-MoE), in the code as well",
    "how many channels rotate": "Dots 3 states a share beside latent attention; a scaling takes it once more",
    "has scaling.original_max_position": "dynamic scaling grows from the declared length",
}


def written(like: dict[str, Any], path: str, model: ModelRotary) -> dict[str, Any] | str:
    """The config that says the model, read back and found equal; or the reason why there is none."""
    before = json.dumps(like)
    try:
        config = write_config(model, like, part=path)
    except ValueError as error:
        return str(error)
    finally:
        assert json.dumps(like) == before
    again = read_config(json.loads(json.dumps(config)), path)
    assert not {key for key in again.diff(model) if key not in ("parts", "notes", "part")}
    keys = [key for key in config if key in like]
    assert keys == list(like)
    return config


def outcomes(like: dict[str, Any], names: Iterable[str]) -> Counter[tuple[str, str]]:
    """(change, outcome) -> how many parts of this config."""
    found: Counter[tuple[str, str]] = Counter()
    for path, model in read_parts(like).items():
        for name in names if isinstance(model, ModelRotary) else ():
            try:
                wanted = CHANGES[name](model)
            except NotHere:
                continue
            result = written(like, path, wanted)
            if isinstance(result, str):
                reason = next((words for words in ARGUED if words in result), None)
                found[name, reason or f"NOT ARGUED: {result}"] += 1
            else:
                assert name != "nothing" or result == like
                found[name, "written"] += 1
    return found


def check(likes: Iterable[dict[str, Any]], least: dict[str, int]) -> None:
    """No reason that is not argued, and no fewer models that can be said."""
    total: Counter[tuple[str, str]] = Counter()
    for like in likes:
        total += outcomes(like, least)
    assert not [key for key in total if key[1].startswith("NOT ARGUED")]
    said = {name: count for (name, outcome), count in total.items() if outcome == "written"}
    assert all(said[name] >= count for name, count in least.items()), said


def real(shared_data: Path) -> dict[str, dict[str, Any]]:
    paths = sorted((shared_data / "configs").glob("*/*.json"))
    return {f"{path.parent.name}/{path.stem}": json.loads(path.read_text()) for path in paths}


def test_types_are_read_again_as_they_were_written() -> None:
    check((default_config(name).to_dict() for name in FAST), {"nothing": 32, "base": 30, "yarn": 23, "one kind": 4})


@pytest.mark.slow
def test_every_type_is_read_again_as_it_was_written() -> None:
    """Each part of each type. What cannot be said is most often a scaling of a tower or of an indexer."""
    least = {
        "nothing": 457, "base": 437, "factor": 18, "linear": 334, "yarn": 331, "llama3": 334, "unscaled": 451,
        "one kind": 38, "width": 42, "length": 345,
    }  # fmt: skip
    check((default_config(name).to_dict() for name in model_types()), least)


def test_real_configs_are_read_again_as_they_were_written(shared_data: Path) -> None:
    check(real(shared_data).values(), {"nothing": 160, "base": 147, "one kind": 6})


@pytest.mark.slow
def test_real_configs_are_read_again_after_every_change(shared_data: Path) -> None:
    # not those of Qwen 1 and ChatGLM: their code knows none of these scalings, and ChatGLM's no other width
    least = {"factor": 30, "linear": 111, "yarn": 106, "llama3": 111, "unscaled": 151, "width": 14, "length": 132}
    check(real(shared_data).values(), least)


# Where transformers does not turn by what was written: model type -> the reason.
THEIRS = {
    "granite_swa": "its model, not its module, reads the list of bases",
    "granitemoe_swa": "its model, not its module, reads the list of bases",
    "minimax": "its YaRN fails where head_dim is null",
    "musicflamingo": "its module takes seconds, not positions",
    "phi3": "its config class takes LongRoPE only",
    "phi4_multimodal": "its config class takes LongRoPE only",
    "phimoe": "its config class wants LongRoPE's keys whatever the scaling",
    **dict.fromkeys(
        ("hunyuan_v1_dense", "hunyuan_v1_moe", "ministral", "mixtral"), "its YaRN fails where head_dim is null"
    ),
}
ODD = {  # the changes that show it
    "base": {"musicflamingo"},
    "linear": {"phi3", "phi4_multimodal", "phimoe"},
    "yarn": {"hunyuan_v1_dense", "hunyuan_v1_moe", "minimax", "ministral", "mixtral", "phimoe"},
    "llama3": {"phi3", "phi4_multimodal", "phimoe"},
    "one kind": {"granite_swa", "granitemoe_swa"},
    "unscaled": {"musicflamingo"},
}


def turned_otherwise(like: dict[str, Any], change: str, cls: Any) -> list[str]:
    """Layers that transformers, given what was written, turns otherwise than the changed model says."""
    found = []
    for path, model in read_parts(like).items():
        try:
            wanted = CHANGES[change](model) if isinstance(model, ModelRotary) else None
        except NotHere:
            continue
        config = {} if wanted is None else written(like, path, wanted)
        if not config or isinstance(config, str):
            continue
        try:
            with quiet():
                theirs = cls.from_dict(copy.deepcopy(config))
        except Exception as error:  # the checks of its config class
            return [f"{error}"]
        for where, case in parts(theirs, config):
            outcome = None if where != path or isinstance(case, str) else compare(case, torch.float32)
            if outcome is not None and not outcome.close:
                found.append(f"{path} {outcome}")
    return found


def turned_otherwise_by_default(name: str, change: str) -> list[str]:
    return turned_otherwise(default_config(name).to_dict(), change, type(default_config(name)))


@pytest.mark.parametrize("name", FAST)
def test_transformers_turns_by_what_was_written(name: str) -> None:
    for change in ("base", "yarn", "llama3"):
        assert bool(turned_otherwise_by_default(name, change)) == (name in ODD[change]), change


@pytest.mark.slow
@pytest.mark.parametrize("change", ["base", "factor", "linear", "yarn", "llama3", "unscaled", "one kind", "width"])
def test_transformers_turns_every_type_by_what_was_written(change: str) -> None:
    found = {name: lines for name in model_types() if (lines := turned_otherwise_by_default(name, change))}
    assert set(found) == ODD.get(change, set()), found
    assert set(found) <= set(THEIRS)


# Real configs that transformers reads otherwise than the model's own code does, whatever is written.
MISREAD = {
    "edited/SpecForge_qwen2-5-vl-7b-eagle3": "its rope type is 'mrope', for which transformers has no function",
    "edited/llama4_scout_flat": "a flat config, which its config class cannot take",
    "full/EleutherAI__gpt-j-6B_prerelease": "says gpt_neo with rotary, which only code before GPT-J's release knew",
    "full/XiaomiMiMo__MiMo-V2-Flash": "its config class drops the keys of the old style",
    "reduced/ipex_llava": "a flat config, whose text keys transformers replaces by defaults",
}


@pytest.mark.slow
@pytest.mark.parametrize("change", ["base", "factor", "yarn", "llama3", "width"])
def test_transformers_turns_real_configs_by_what_was_written(change: str, shared_data: Path) -> None:
    """Most of them are in the old style."""
    mapping = transformers.models.auto.configuration_auto.CONFIG_MAPPING
    known = {name: like for name, like in real(shared_data).items() if like.get("model_type") in mapping}
    found = {name: turned_otherwise(like, change, mapping[like["model_type"]]) for name, like in known.items()}
    wrong = {name: lines for name, lines in found.items() if lines and name not in MISREAD}
    assert {known[name]["model_type"] for name in wrong} <= ODD.get(change, set()), wrong
    assert len(known) > 100
