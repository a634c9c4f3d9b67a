"""The family table and the layouts against transformers: config classes, config objects, rotated tensors."""

import contextlib
import dataclasses
import importlib
import importlib.util
import inspect
import os
from typing import Any

import pytest
import torch

from phasor import Rotation, apply_rotary_qk
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


# families whose code has no function of the common form apply_rotary_pos_emb(q, k, cos, sin), or no rotary class
OWN_FORM = {
    "codegen", "deepseek_v2", "deepseek_v4", "diffusion_gemma_text", "gemma3n_text", "gemma4_text",
    "gemma4_unified_text", "gptj", "granite4_vision_text", "internlm3", "iquestcoder", "llama4_text", "roformer",
    "minimax_m3_vl_text",
    "cohere_compass_text",  # its default has parameters for no layer type
    "dots3_note_text",  # layers with an indexer have tables in float32, and the others in the model's dtype
}  # fmt: skip
# … in NOT_BY_DEFAULT for the empty dictionary only: the config object says what is missing there
COMPLETE_AS_OBJECT = {"bailing_hybrid", "cohere2_moe", "flint", "jetmoe", "lfm3", "longcat_flash", "minimax"}


def code_of(config: Any) -> Any:
    """The module of its model: beside the config class, or that of another model that the type runs by."""
    beside = config.__module__.replace("configuration_", "modeling_")
    found = importlib.util.find_spec(beside) is not None
    return importlib.import_module(beside if found else transformers.MODEL_MAPPING[config].__module__)


def rotary_of(code: Any, config: Any) -> torch.nn.Module:
    """The module's rotary embedding for this config; a module may have others, for vision."""
    for name, cls in vars(code).items():
        mine = inspect.isclass(cls) and cls.__module__ == code.__name__
        if mine and name.endswith("RotaryEmbedding") and "Vision" not in name:
            with contextlib.suppress(AttributeError, KeyError, TypeError):
                return cls(config)
    raise AssertionError(f"{code.__name__} has no rotary embedding for {type(config).__name__}")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("model_type", sorted(set(FAMILIES) - OWN_FORM - (NOT_BY_DEFAULT - COMPLETE_AS_OBJECT)))
def test_rotated_q_and_k_equal_those_of_transformers(
    model_type: str, dtype: torch.dtype, classes: dict[str, Any]
) -> None:
    """Bit for bit: frequencies, angles, pairs, partial width, sections, and where cos and sin are rounded."""
    cls = classes[FAMILIES[model_type].config]
    config = cls()
    code = code_of(cls)
    model = read_config(config).with_angles("float32")
    rotary = rotary_of(code, config)
    for spec, layers in model.distinct.items():
        apply = code.apply_rotary_pos_emb_interleave if spec.permuted else code.apply_rotary_pos_emb
        positions = torch.tensor([[0, 1, 7, 500, 1023, 2047]])
        if spec.axes.count > 1:  # time, height and width differ
            positions = torch.stack([positions + shift for shift in (0, 3, 40)[: spec.axes.count]])
        q = torch.randn(1, 3, 6, spec.head_dim).to(dtype)
        k = torch.randn(1, 2, 6, spec.head_dim).to(dtype)
        word = model.layer_types[layers[0]]
        kind = {"layer_type": word} if isinstance((config.rope_parameters or {}).get(word), dict) else {}
        cos, sin = rotary(q, positions, **kind)
        log_scale = {"log_scale": torch.zeros(spec.pairs)} if spec.learned else {}  # as its module starts
        first = spec.head_dim - spec.rotary_dim if spec.trailing else 0
        turned = slice(first, first + spec.rotary_dim)
        theirs = apply(q[..., turned], k[..., turned], cos, sin)
        rotation = Rotation.at(spec, positions, dtype=dtype, **log_scale)
        ours = apply_rotary_qk(q, k, rotation)
        for before, mine, reference in zip((q, k), ours, theirs, strict=True):
            part = mine[..., turned]
            assert torch.equal(part, reference), model_type
            assert torch.equal(mine[..., :first], before[..., :first])
            assert torch.equal(mine[..., first + spec.rotary_dim :], before[..., first + spec.rotary_dim :])
