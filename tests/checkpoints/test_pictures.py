"""Folders of diffusers and timm: which tensors follow the pairs is seen on a small model, and proved by its output."""

import importlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from eye.test_pictures import packages
from phasor.eye.tiny.picture_call import inputs_of
from phasor.tools.checkpoints import convert, detect, make_plan

from .models import contents, tensors_of

HEADS = {"attention_head_dim": 16, "num_attention_heads": 2, "in_channels": 4, "num_layers": 2}
FLUX = {
    **HEADS, "axes_dims_rope": [4, 6, 6], "guidance_embeds": False, "joint_attention_dim": 8, "num_single_layers": 2,
    "patch_size": 1, "pooled_projection_dim": 10,
}  # fmt: skip
# A class and its config, the module and the function in it that turns queries and keys, and tensors that must move.
CASES: dict[str, tuple[dict[str, Any], str, str, set[str]]] = {
    "FluxTransformer2DModel": (
        FLUX, "diffusers.models.transformers.transformer_flux", "apply_rotary_emb",
        {"single_transformer_blocks.1.attn.norm_k.weight", "transformer_blocks.1.attn.add_q_proj.bias"}),
    "QwenImageTransformer2DModel": (
        {**HEADS, "axes_dims_rope": [4, 6, 6], "joint_attention_dim": 8, "out_channels": 4, "patch_size": 1},
        "diffusers.models.transformers.transformer_qwenimage", "apply_rotary_emb_qwen",
        {"transformer_blocks.1.attn.norm_added_k.weight", "transformer_blocks.0.attn.to_q.weight"}),
    "JoyImageEditTransformer3DModel": (
        {"num_attention_heads": 2, "hidden_size": 32, "in_channels": 4, "num_layers": 2, "rope_dim_list": [4, 6, 6],
         "text_dim": 12, "out_channels": 4},
        "diffusers.models.transformers.transformer_joyimage", "_apply_rotary_emb",
        {"double_blocks.1.attn.img_attn_qkv.bias", "double_blocks.0.attn.txt_attn_qkv.weight"}),
    "eva02_tiny_patch14_224": (
        {"img_size": 56, "depth": 2}, "timm.models.eva", "apply_rot_embed_cat",
        {"blocks.1.attn.qkv.weight", "blocks.0.attn.q_bias"}),
}  # fmt: skip


def saved(name: str, folder: Path) -> Any:
    """A model with wild weights, as diffusers saves it (in shards), or as timm does."""
    packages()
    import diffusers
    import timm

    config, timms = CASES[name][0], name.islower()
    model = timm.create_model(name, **config) if timms else getattr(diffusers, name)(**config)
    torch.manual_seed(0)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter.data, mean=0.5 if parameter.ndim == 1 else 0.0, std=0.3)
    if timms:
        folder.mkdir(parents=True)
        save_file(dict(model.state_dict()), folder / "model.safetensors", metadata={"format": "pt"})
        (folder / "config.json").write_text(json.dumps({"architecture": name, "model_args": config}))
    else:
        model.save_pretrained(folder, max_shard_size="40KB")
    return model.eval()


def given_back(model: Any) -> Tensor:
    timms = not hasattr(model, "config")
    seen = {"x": torch.linspace(-1, 1, 3 * 56 * 56).view(1, 3, 56, 56)} if timms else inputs_of(model, model.config)
    with torch.no_grad():
        out = model(**seen)
    found: Tensor = out if timms else out[0]
    return found


def laid(x: Tensor, shape: tuple[int, int]) -> Tensor:
    return x.unflatten(-1, shape).transpose(-1, -2).flatten(-2)


def read_halves(monkeypatch: pytest.MonkeyPatch, module: str, function: str) -> None:
    """Let the code of a class, which turns neighbours, turn halves: they are beside each other for so long."""
    turn = getattr(importlib.import_module(module), function)

    def turned(x: Tensor, other: Any, *args: Any, **kwargs: Any) -> Any:
        both = isinstance(other, Tensor) and other.shape == x.shape
        out = turn(laid(x, (2, -1)), laid(other, (2, -1)) if both else other, *args, **kwargs)
        return tuple(laid(t, (-1, 2)) for t in out) if both else laid(out, (-1, 2))

    monkeypatch.setattr(f"{module}.{function}", turned)


@pytest.mark.parametrize("name", CASES)
def test_code_of_the_other_layout_gives_what_the_class_gave(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = saved(name, tmp_path / "source")
    before = given_back(model)
    report = convert(tmp_path / "source", tmp_path / "halves", to="halves")
    assert CASES[name][3] <= report["moved"].keys()
    model.load_state_dict(tensors_of(tmp_path / "halves"))
    assert not torch.allclose(given_back(model), before, atol=1e-3)  # its own code reads neighbours
    read_halves(monkeypatch, *CASES[name][1:3])
    torch.testing.assert_close(given_back(model), before, atol=1e-4, rtol=1e-4)


def test_there_and_back_gives_every_file_of_a_pipelines_transformer(tmp_path: Path) -> None:
    saved("FluxTransformer2DModel", tmp_path / "pipe" / "transformer")
    (tmp_path / "pipe" / "model_index.json").write_text(json.dumps({"_class_name": "FluxPipeline"}))
    plan = make_plan(tmp_path / "pipe", "halves").describe()
    assert "format diffusers" in plan
    assert "the code of FluxTransformer2DModel reads interleaved: it loads the result without an error" in plan
    convert(tmp_path / "pipe", tmp_path / "halves", to="halves")
    assert detect(tmp_path / "halves").said == "halves"
    convert(tmp_path / "halves", tmp_path / "back", to="native")
    assert contents(tmp_path / "back") == contents(tmp_path / "pipe" / "transformer")


@pytest.mark.parametrize(
    "name, config, said",
    [
        ("ErnieImageTransformer2DModel",
         {"hidden_size": 32, "num_attention_heads": 2, "num_layers": 1, "ffn_hidden_size": 32, "in_channels": 4,
          "out_channels": 4, "patch_size": 1, "text_in_dim": 8, "rope_axes_dim": [4, 6, 6]},
         "the two members of its pairs turn by different angles, .* its pairs cannot be exchanged"),
        ("LTXVideoTransformer3DModel",
         {**HEADS, "out_channels": 4, "caption_channels": 8, "cross_attention_dim": 32},
         "no spec says what it rotates"),
    ],
)  # fmt: skip
def test_what_cannot_be_exchanged_says_why(name: str, config: dict[str, Any], said: str, tmp_path: Path) -> None:
    packages()
    import diffusers

    getattr(diffusers, name)(**config).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=said) as raised:
        make_plan(tmp_path, "halves")
    assert "\n" not in str(raised.value)


def test_damaged_folders_are_refused_in_a_line(tmp_path: Path) -> None:
    folder = tmp_path / "pipe" / "transformer"
    saved("FluxTransformer2DModel", folder)
    for to in ("gguf", "meta"):
        with pytest.raises(ValueError, match=f"a model of diffusers has no place in the format {to}"):
            make_plan(folder, to)
    with pytest.raises(ValueError, match="is diffusers in interleaved already"):
        make_plan(folder, "interleaved")
    (tmp_path / "pipe" / "model_index.json").write_text("{}")
    (folder / "config.json").rename(tmp_path / "config.json")
    with pytest.raises(ValueError, match="the pipeline in it has no transformer"):
        make_plan(tmp_path / "pipe", "halves")
    config = json.loads((tmp_path / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "num_layers": 3}))
    with pytest.raises(ValueError, match=r"transformer_blocks\.2\.\S+ is missing, which a FluxTransformer2DModel"):
        make_plan(folder, "halves")
    (folder / "config.json").write_text(json.dumps({**config, "num_attention_heads": 4}))
    with pytest.raises(ValueError, match=r"must have the shape \[64, .*\] that its config says, got \[32"):
        make_plan(folder, "halves")
    (folder / "config.json").write_text(json.dumps(config))
    for file in folder.glob("*.safetensors"):
        kept = {name: t for name, t in load_file(file).items() if name != "x_embedder.weight"}
        save_file(kept, file)
    with pytest.raises(ValueError, match=r"x_embedder\.weight: must be in diffusion_pytorch_model-0"):
        make_plan(folder, "halves")
    with pytest.raises(ValueError, match=r"must be a folder with a config\.json, got weights alone"):
        make_plan(file, "halves")


def test_scales_beside_a_projection_are_refused(tmp_path: Path) -> None:
    saved("FluxTransformer2DModel", tmp_path)
    first, *_ = sorted(tmp_path.glob("*.safetensors"))
    index = json.loads((tmp_path / "diffusion_pytorch_model.safetensors.index.json").read_text())
    scale = "transformer_blocks.0.attn.to_q.weight_scale"
    index["weight_map"][scale] = first.name
    (tmp_path / "diffusion_pytorch_model.safetensors.index.json").write_text(json.dumps(index))
    save_file({**load_file(first), scale: torch.ones(1)}, first)
    with pytest.raises(ValueError, match=r"to_q\.weight_scale beside .*: quantized or adapted weights"):
        make_plan(tmp_path, "halves")
