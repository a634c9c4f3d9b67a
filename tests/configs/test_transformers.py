"""The family table against transformers: config classes and config objects. Rotations: tests/conformance."""

import dataclasses
import importlib
import importlib.util
import inspect
import os
from typing import Any

import pytest

from phasor.models.configs import read_config
from rows import FAMILIES

transformers = pytest.importorskip("transformers")

SIZES = {
    "hidden": "hidden_size", "heads": "num_attention_heads", "kv_heads": "num_key_value_heads",
    "layers": "num_hidden_layers", "head_dim": "head_dim", "length": "max_position_embeddings",
}  # fmt: skip


def config_classes() -> dict[str, Any]:
    """Class name -> config class, of every model folder whose configs mention a family of the table."""
    wanted = {family.config for family in FAMILIES.values()}
    root = os.path.join(os.path.dirname(transformers.__file__), "models")
    found = {}
    for folder in sorted(os.listdir(root)):
        path = os.path.join(root, folder, f"configuration_{folder}.py")
        if not os.path.isfile(path):
            continue
        with open(path, encoding="utf-8") as file:
            text = file.read()
        if any(f"class {name}(" in text for name in wanted):
            module = importlib.import_module(f"transformers.models.{folder}.configuration_{folder}")
            for name, cls in vars(module).items():
                if name in wanted and inspect.isclass(cls) and cls.__module__ == module.__name__:
                    found[name] = cls
    return found


@pytest.fixture(scope="module")
def classes() -> dict[str, Any]:
    return config_classes()


# classes whose names for these sizes are others (n_embd, d_model, ...), or which derive them while they are built
OTHER_NAMES = {"codegen", "gptj", "dbrx", "jetmoe"}
DERIVED = {
    "num_hidden_layers": {"longcat_flash"},
    "head_dim": {"axk2", "deepseek_v32", "glm_moe_dsa", "bailing_hybrid", "longcat_flash", "hy_v4"},
}


@pytest.mark.parametrize("model_type", sorted(set(FAMILIES) - OTHER_NAMES))
def test_default_sizes_are_those_of_the_config_class(model_type: str, classes: dict[str, Any]) -> None:
    family = FAMILIES[model_type]
    fields = {f.name: f.default for f in dataclasses.fields(classes[family.config])}
    for field, name in SIZES.items():
        ours, theirs = getattr(family, field), fields.get(name)
        if callable(ours) or model_type in DERIVED.get(name, ()) or (family.mla and name == "head_dim"):
            continue
        assert ours == theirs, (model_type, name)


# types whose default config says nothing about layers or switches the rotation off, as the reader demands
NOT_BY_DEFAULT = {
    "esm", "granitemoehybrid", "jetmoe", "lfm2_moe", "lfm3", "step3p5", "bamba", "longcat_flash", "zamba2",
    # default configs that cannot be run as a model: sections or heads do not fit, or sections are missing
    "glm4v_moe_text", "glm4v_text", "glm_image_text", "qwen3_omni_moe_text", "hunyuan_vl_text",
}  # fmt: skip


@pytest.mark.parametrize("model_type", sorted(set(FAMILIES) - NOT_BY_DEFAULT))
def test_a_default_config_object_reads_with_its_own_rope_parameters(model_type: str, classes: dict[str, Any]) -> None:
    config = classes[FAMILIES[model_type].config]()
    model = read_config(config)
    theirs = getattr(config, "rope_parameters", None) or {"rope_theta": 10_000.0}
    nested = {k: v for k, v in theirs.items() if isinstance(v, dict)} or {"all": theirs}
    bases = {spec.base for spec in model.distinct}
    assert bases <= {float(v["rope_theta"]) for v in nested.values()}
    assert len(model.layers) == config.num_hidden_layers
    if model_type != "dots3_note_text":  # has another number in sliding layers
        assert model.num_heads == config.num_attention_heads
    stated = getattr(config, "layer_types", None)
    if stated and set(model.layer_types) != {"attention"}:
        assert list(model.layer_types) == list(stated)
    if model_type != "hrm_text":  # derives its number of layers from other keys while it is built
        assert read_config({"model_type": model_type}).layers == model.layers  # an empty config means the same
