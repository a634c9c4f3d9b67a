"""Sizes that the files of a format would state wrongly: refused in the plan, by a line that names file, key or tensor."""
# ruff: noqa: E501 (one defect a line)

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("gguf")

import torch
from safetensors.torch import save_file

from phasor.tools.checkpoints import convert, detect, make_plan
from phasor.tools.checkpoints.formats.gguf_file import rekey

from .models import write_folder

Tensors = dict[str, torch.Tensor]
LAYERS, WIDTH, WIDE, VOCAB = 2, 64, 96, 60
CONFIG = {
    "model_type": "llama", "hidden_size": WIDTH, "intermediate_size": WIDE, "num_hidden_layers": LAYERS,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": VOCAB, "rms_norm_eps": 1e-5, "rope_theta": 1e4,
    "max_position_embeddings": 128,
}  # fmt: skip
Q, V = "model.layers.0.self_attn.q_proj.weight", "model.layers.1.self_attn.v_proj.weight"
EMBEDDING, HEAD, GATE = "model.embed_tokens.weight", "lm_head.weight", "model.layers.0.mlp.gate_proj.weight"
ALL = ("meta", "mistral", "gguf")


def tensors() -> Tensors:
    shapes = {
        "self_attn.q_proj": (WIDTH, WIDTH), "self_attn.k_proj": (32, WIDTH), "self_attn.v_proj": (32, WIDTH),
        "self_attn.o_proj": (WIDTH, WIDTH), "mlp.gate_proj": (WIDE, WIDTH), "mlp.up_proj": (WIDE, WIDTH),
        "mlp.down_proj": (WIDTH, WIDE), "input_layernorm": (WIDTH,), "post_attention_layernorm": (WIDTH,),
    }  # fmt: skip
    made = {f"model.layers.{i}.{n}.weight": torch.randn(s) for i in range(LAYERS) for n, s in shapes.items()}
    return {EMBEDDING: torch.randn(VOCAB, WIDTH), **made, "model.norm.weight": torch.randn(WIDTH)}


def small(folder: Path, **config: Any) -> Path:
    return write_folder(folder, {k: v for k, v in {**CONFIG, **config}.items() if v != "gone"}, tensors())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return small(tmp_path / "model")


@pytest.mark.parametrize("to", ALL)
def test_what_is_sound_is_planned(to: str, folder: Path, tmp_path: Path) -> None:
    make_plan(folder, to)
    make_plan(small(tmp_path / "short", max_position_embeddings=None), to)


WORDS: list[tuple[dict[str, Any], str, tuple[str, ...]]] = [
    *(({"intermediate_size": value}, "intermediate_size must be an integer", ALL) for value in (8.5, 0, -8, "abc", "96", [96], {}, 10**30)),
    *(({"vocab_size": value}, "vocab_size must be an integer", ALL) for value in ("abc", -8, [64], float("nan"))),
    *(({"rms_norm_eps": value}, "rms_norm_eps must be a finite number above 0", ALL) for value in (float("nan"), -8, [8], {}, "abc")),
    ({"max_position_embeddings": 10**15}, "max_position_embeddings must be at most 2147483647", ALL),
    ({"intermediate_size": "gone"}, "intermediate_size is missing, and the format must say it", ALL),
    ({"intermediate_size": None}, "intermediate_size is missing, and the format must say it", ALL),
    ({"vocab_size": "gone"}, "vocab_size is missing, and the format must say it", ("meta", "mistral")),
    ({"tie_word_embeddings": False}, "lm_head.weight is missing, and the format must have it, since tie_word_embeddings is false", ALL),
    ({"rms_norm_eps": 1e39}, "llama.attention.layer_norm_rms_epsilon must fit into the float32 of GGUF", ("gguf",)),
    ({"rope_theta": 1e39}, "llama.rope.freq_base must fit into the float32 of GGUF", ("gguf",)),
    ({"sliding_window": "abc"}, "sliding_window must be an integer", ("mistral",)),
    ({"hidden_size": "gone"}, "hidden_size is not in config: LlamaConfig's default, 4096", ("meta", "gguf", "interleaved")),
    ({"num_hidden_layers": "gone"}, "num_hidden_layers is not in config: LlamaConfig's default, 32", ("meta", "gguf", "interleaved")),
    ({"num_attention_heads": "gone"}, "num_attention_heads is not in config: LlamaConfig's default, 32", ("meta", "gguf", "interleaved")),
]  # fmt: skip


@pytest.mark.parametrize("config, message, to", [(c, m, to) for c, m, formats in WORDS for to in formats])
def test_keys_that_only_the_target_needs(config: dict[str, Any], message: str, to: str, tmp_path: Path) -> None:
    folder = small(tmp_path / "model", **config)
    with pytest.raises(ValueError, match=message) as error:
        make_plan(folder, to)
    assert str(error.value).startswith(
        (f"{folder}/config.json: ", f"{folder}/model.safetensors: ", f"{folder}: llama.")
    )


def shape(name: str, *sizes: int) -> Callable[[Tensors], Any]:
    return lambda held: held.update({name: torch.randn(sizes)})


WEIGHTS: dict[str, tuple[Callable[[Tensors], Any], str, tuple[str, ...]]] = {
    "columns of q": (shape(Q, WIDTH, 30), rf"{Q}: must have 64 along axis 1, as config.json: hidden_size says, got shape \[64, 30\]", ALL),
    "q without columns": (shape(Q, WIDTH, 0), rf"{Q}: must be a matrix, got shape \[64, 0\]", (*ALL, "interleaved")),
    "another vocabulary": (shape(EMBEDDING, 64, WIDTH), f"{EMBEDDING}: must have 60 along axis 0, as config.json: vocab_size says", ALL),
    "another width": (shape(GATE, 100, WIDTH), f"{GATE}: must have 96 along axis 0, as config.json: intermediate_size says", ALL),
    "rows of v": (shape(V, 8, WIDTH), rf"{V}: must have 32 along axis 0, as config.json: num_key_value_heads \* head_dim says", ALL),
    "three axes": (shape(GATE, WIDE, WIDTH, 1), f"{GATE}: must have axes of intermediate_size, hidden_size", ALL),
    "no v": (lambda held: held.pop(V), f"model.safetensors: {V} is missing, and the format must have it", ALL),
    "a bias of q alone": (shape(Q.replace("weight", "bias"), WIDTH), "model.safetensors: .*.bias is missing, and the format must have it", ("gguf",)),
    "too much": (shape("model.extra.weight", 2), "model.extra.weight: has no place in this format", ALL),
    "float8": (lambda held: held.update({Q: held[Q].to(torch.float8_e4m3fn)}), f"{Q}: must have a dtype of F.*, got F8_E4M3", ("gguf",)),
    "a number for q": (shape(Q), rf"{Q}: must have an axis of channels, got shape \[\]", (*ALL, "interleaved")),
    "a number for its bias": (shape(Q.replace("weight", "bias")), r"q_proj.bias: must have an axis of channels, got shape \[\]", (*ALL, "interleaved")),
}  # fmt: skip


@pytest.mark.parametrize("name, to", [(name, to) for name, (_, _, formats) in WEIGHTS.items() for to in formats])
def test_weights_that_the_config_does_not_fit(name: str, to: str, folder: Path) -> None:
    spoil, message, _ = WEIGHTS[name]
    held = tensors()
    spoil(held)
    save_file(held, folder / "model.safetensors")
    with pytest.raises(ValueError, match=message) as error:
        make_plan(folder, to)
    assert str(error.value).startswith((f"{folder}/config.json: ", f"{folder}/model.safetensors: "))
    if name.startswith("a number"):
        with pytest.raises(ValueError, match=message):
            detect(folder)


@pytest.mark.parametrize(
    "to, key, value, message",
    [
        *(("meta", "n_layers", n, "n_layers must be a number of layers that 20") for n in (0, 21, True, "2", 2.0)),
        ("meta", "n_kv_heads", "abc", "n_kv_heads must be an integer"),
        ("meta", "n_kv_heads", 3, "n_kv_heads must divide the number of query heads, 4, got 3"),
        ("meta", "rope_scaling_factor", "abc", "rope_scaling_factor must be a finite number above 0"),
        ("mistral", "head_dim", "abc", "head_dim must be an integer"),
        ("mistral", "max_position_embeddings", "abc", "max_position_embeddings must be an integer"),
        ("mistral", "dim", 30, r"dim 30 must be the width of model.embed_tokens.weight"),
    ],
)  # fmt: skip
def test_params_json_is_named_with_its_own_keys(to: str, key: str, value: Any, message: str, folder: Path) -> None:
    out = folder.with_name("out")
    convert(folder, out, to=to, proof=False)
    params = json.loads((out / "params.json").read_text())
    (out / "params.json").write_text(json.dumps({**params, key: value}))
    with pytest.raises(ValueError, match=message) as error:
        make_plan(out, "transformers", allow_pickle=True)
    assert str(error.value).startswith(f"{out}/params.json: {message[:5]}")


def test_a_tensor_that_params_json_asks_for(folder: Path) -> None:
    out = folder.with_name("out")
    convert(folder, out, to="mistral", proof=False)
    (out / "params.json").write_text((out / "params.json").read_text().replace('"n_layers": 2', '"n_layers": 3'))
    with pytest.raises(ValueError, match=r"/out/params.json: .*layers.2.self_attn.q_proj.weight is missing"):
        make_plan(out, "transformers")


GGUF: list[tuple[str, Any, str]] = [
    ("embedding_length", 16, "embed_tokens.weight: must have 16 along axis 1, as model.gguf: llama.embedding_length says"),
    ("embedding_length", 2**32 - 1, "llama.embedding_length must be at most 2147483647"),
    ("feed_forward_length", 0, "llama.feed_forward_length must be a number from 1, got 0"),
    ("feed_forward_length", 100, "must have 100 along axis ., as model.gguf: llama.feed_forward_length says"),
    ("attention.layer_norm_rms_epsilon", float("nan"), "llama.attention.layer_norm_rms_epsilon must be a finite number above 0"),
    ("attention.head_count_kv", "abc", "llama.attention.head_count_kv must be an integer"),
    ("attention.head_count_kv", 3, r"must have 48 along axis 0, as model.gguf: llama.attention.head_count_kv \* llama.attention.key_length says"),
    ("context_length", "abc", "llama.context_length must be an integer"),
    ("rope.freq_base", "abc", "llama.rope.freq_base must be a finite number"),
    ("block_count", 3, "layers.2.self_attn.q_proj.weight is missing"),
]  # fmt: skip


@pytest.mark.parametrize("key, value, message", GGUF)
@pytest.mark.parametrize("to", ["transformers", "meta"])
def test_gguf_is_named_with_its_own_keys(to: str, key: str, value: Any, message: str, folder: Path) -> None:
    convert(folder, folder.with_name("out"), to="gguf", proof=False)
    path = folder.with_name("model.gguf")
    rekey(folder.with_name("out") / "model.gguf", path, {key: value})
    with pytest.raises(ValueError, match=message) as error:
        make_plan(path, to)
    assert str(error.value).startswith(f"{path}: ")


def test_a_value_of_no_known_type_is_named(folder: Path) -> None:
    convert(folder, folder.with_name("out"), to="gguf", proof=False)
    path, key = folder.with_name("out") / "model.gguf", b"llama.context_length"
    data = path.read_bytes()
    at = data.index(key) + len(key)
    path.write_bytes(data[:at] + bytes([99]) + data[at + 1 :])
    with pytest.raises(ValueError, match=r"model.gguf: llama.context_length: must have a known type, got 99"):
        make_plan(path, "transformers")


@pytest.mark.parametrize("name", ["model.safetensors", "model.gguf"])
@pytest.mark.parametrize(
    "data, message",
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 1044984\n", "it is a pointer of Git LFS, not the weights: fetch them with git lfs pull"),
        (b"<!DOCTYPE html>\n<html><body>Not found</body></html>\n", "it is a page of the web, not the weights"),
    ],
)  # fmt: skip
def test_what_stands_in_place_of_weights(data: bytes, message: str, name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ValueError, match=rf"/{name}: .*; {message}"):
        make_plan(tmp_path, "halves")


def test_a_file_where_the_target_grows(folder: Path) -> None:
    folder.with_name("out.phasor-partial").write_text("mine")
    with pytest.raises(ValueError, match=r"out.phasor-partial: is in the way, and not what a conversion left"):
        convert(folder, folder.with_name("out"), to="interleaved")
