"""GGUF files that the gguf package writes: read, run, written back to the bit; and its view of ours."""

import json

import pytest

pytest.importorskip("transformers")
pytest.importorskip("gguf")

import gguf
import numpy as np
import torch

from phasor.scaling import Linear
from phasor.tools.checkpoints import convert, make_plan
from phasor.tools.checkpoints.formats.gguf_file import rekey

from . import plain
from .models import logits, save_model, tensors_of
from .test_formats import SIZES, TOKENS, their_logits

NAMES = {
    "attention.wq": "attn_q", "attention.wk": "attn_k", "attention.wv": "attn_v", "attention.wo": "attn_output",
    "feed_forward.w1": "ffn_gate", "feed_forward.w2": "ffn_down", "feed_forward.w3": "ffn_up",
    "attention_norm": "attn_norm", "ffn_norm": "ffn_norm", "tok_embeddings": "token_embd", "norm": "output_norm",
    "output": "output",
}  # fmt: skip


def write(path, weights, kind=None, arch="llama", factors=None, **more):
    """A model by Meta's names as a GGUF file: the rows of q and k as they are, which llama.cpp turns interleaved."""
    writer = gguf.GGUFWriter(path, arch)
    writer.add_block_count(2)
    writer.add_context_length(64)
    writer.add_embedding_length(SIZES["dim"])
    writer.add_feed_forward_length(SIZES["hidden"])
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(5e5)
    writer.add_rope_dimension_count(SIZES["dim"] // 4)
    writer.add_token_list(["a", "b", "c"])
    writer.add_bos_token_id(1)
    for key, value in more.items():
        writer.add_uint32(f"{arch}.{key}", value)
    if factors is not None:
        writer.add_tensor("rope_freqs.weight", factors)
    for name, tensor in weights.items():
        word = name.removesuffix(".weight")
        ours = f"blk.{word.split('.')[1]}.{NAMES[word.split('.', 2)[2]]}" if word.startswith("layers") else NAMES[word]
        data = tensor.numpy()
        if kind is not None and data.ndim == 2:
            writer.add_tensor(f"{ours}.weight", gguf.quantize(data, kind), raw_dtype=kind)
        else:
            writer.add_tensor(f"{ours}.weight", data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture
def weights():
    return plain.random_weights(**SIZES)


def test_to_transformers_and_back(weights, tmp_path):
    source = write(tmp_path / "model.gguf", weights)
    convert(source, tmp_path / "hf", to="transformers")
    expected = plain.forward(weights, TOKENS, heads=4, kv_heads=2, base=5e5)
    torch.testing.assert_close(their_logits(tmp_path / "hf"), expected, rtol=0, atol=1e-4 * float(expected.abs().max()))
    convert(tmp_path / "hf", tmp_path / "back", to="gguf")
    assert (tmp_path / "back/model.gguf").read_bytes() == source.read_bytes()


def test_metadata_that_contradicts_the_config(weights, tmp_path):
    """The base was changed in transformers' config, after the metadata came along."""
    convert(write(tmp_path / "model.gguf", weights), tmp_path / "hf", to="transformers")
    path = tmp_path / "hf/config.json"
    config = json.loads(path.read_text())
    del config["rope_theta"]
    path.write_text(json.dumps({**config, "rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}}))
    with pytest.raises(ValueError, match=r"metadata.gguf: rope_parameters must be what config.json says, .*1000000.0"):
        make_plan(tmp_path / "hf", "gguf")


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0", "Q4_1", "Q5_0"])
def test_quantized_rows_move_whole(kind, weights, tmp_path):
    """A file whose q and k were written in halves, as converters that forget to permute do, is mended."""
    kind = gguf.GGMLQuantizationType[kind]
    right = write(tmp_path / "right.gguf", weights, kind)

    def forgotten(name, w):
        heads = 4 if "wq" in name else 2
        return (
            w.view(heads, 4, 2, -1).transpose(1, 2).reshape(w.shape) if name.endswith(("wq.weight", "wk.weight")) else w
        )

    wrong = write(tmp_path / "wrong.gguf", {n: forgotten(n, w).contiguous() for n, w in weights.items()}, kind)
    assert wrong.read_bytes() != right.read_bytes()
    with pytest.raises(ValueError, match="is gguf in interleaved already"):
        make_plan(wrong, "native")
    convert(wrong, tmp_path / "mended", to="native", source_layout="halves")
    assert (tmp_path / "mended/model.gguf").read_bytes() == right.read_bytes()
    with pytest.raises(ValueError, match="have no place outside GGUF"):
        make_plan(right, "transformers")


@pytest.mark.parametrize(
    "model_type, changes", [("qwen2", {}), ("qwen3", {"head_dim": 32}), ("llama", {}), ("olmo2", {})]
)
def test_what_the_package_reads(model_type, changes, tmp_path):
    """Halves stay in architectures that llama.cpp turns in halves; its package sees every tensor where it is."""
    save_model(model_type, tmp_path / "hf", num_key_value_heads=2, **changes)
    plan = make_plan(tmp_path / "hf", "gguf")
    assert bool(plan.moves) == (model_type == "llama")
    convert(tmp_path / "hf", tmp_path / "gguf", to="gguf")
    reader = gguf.GGUFReader(tmp_path / "gguf/model.gguf")
    assert reader.fields["general.architecture"].contents() == model_type
    assert reader.fields[f"{model_type}.attention.head_count_kv"].contents() == 2
    held = {t.name: t.data for t in reader.tensors}
    ours = tensors_of(tmp_path / "hf")
    assert np.array_equal(held["blk.1.attn_v.weight"], ours["model.layers.1.self_attn.v_proj.weight"].numpy())
    q = ours["model.layers.1.self_attn.q_proj.weight"]
    if model_type == "llama":  # llama.cpp's LlamaModel.permute
        q = q.view(4, 2, 8, 64).swapaxes(1, 2).reshape(64, 64)
    assert np.array_equal(held["blk.1.attn_q.weight"], q.numpy())
    convert(tmp_path / "gguf", tmp_path / "back", to="transformers")
    back = tensors_of(tmp_path / "back")
    assert back.keys() == ours.keys() and all(torch.equal(back[name], tensor) for name, tensor in ours.items())
    assert torch.equal(logits(tmp_path / "back"), logits(tmp_path / "hf"))


def test_factors_of_llama_3(weights, tmp_path):
    """rope_freqs as llama.cpp's converter forms it, against transformers' llama3 frequencies."""
    from transformers import AutoConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    rope = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192, "rope_theta": 5e5}  # fmt: skip
    config = AutoConfig.for_model("llama", hidden_size=32, num_attention_heads=4, rope_parameters=rope)
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")
    factors = 5e5 ** -(torch.arange(0, 8, 2).float() / 8) / scaled
    source = write(tmp_path / "model.gguf", weights, factors=factors.numpy())
    plan = make_plan(source, "transformers")
    config_file = next(output for output in plan.outputs if output.name == "config.json").segments[0]
    assert b'"rope_type": "llama3"' in config_file and b'"factor": 8.0' in config_file
    convert(source, tmp_path / "hf", to="transformers")
    convert(tmp_path / "hf", tmp_path / "back", to="gguf")
    found = gguf.GGUFReader(tmp_path / "back/model.gguf").tensors[0]
    assert found.name == "rope_freqs.weight" and np.allclose(found.data, factors.numpy(), rtol=1e-6)
    wrong = write(tmp_path / "wrong.gguf", weights, factors=2 * factors.numpy())
    with pytest.raises(ValueError, match=r"rope_freqs.weight: must be the factors of Llama 3.1 or 3.2"):
        make_plan(wrong, "transformers")


def metadata_of_llama_3(path, length, **more):
    """A file with so many positions, whose base is that of Llama 3, without tensor of factors."""
    rekey(write(path.with_suffix(".64"), plain.random_weights(**SIZES)), path, {"context_length": length, **more})
    return path


def test_factors_of_llama_3_that_were_lost(phasor, tmp_path):
    """Llama 3.1 and 3.2 divide by rope_freqs beyond 8192 positions (ik_llama.cpp 402); Llama 3 has 8192 and none."""
    lost, whole = metadata_of_llama_3(tmp_path / "lost.gguf", 131072), metadata_of_llama_3(tmp_path / "old.gguf", 8192)
    for words in (("--dry-run",), (tmp_path / "hf", "--to", "transformers")):
        code, said, _ = phasor("convert", lost, *words)
        assert code == 1 and f"lost     {lost}: rope_freqs.weight: is missing" in said
    assert phasor("convert", whole, "--dry-run")[0] == 0
    scaled = metadata_of_llama_3(tmp_path / "scaled.gguf", 131072, **{"rope.scaling.factor": 16.0})
    assert phasor("convert", scaled, "--dry-run")[0] == 0


def test_factors_of_longrope_that_were_lost(weights, tmp_path):
    """The metadata of MiniCPM and Phi-3 say longrope; the factors are two tensors."""
    made = write(tmp_path / "plain.gguf", weights, arch="minicpm3")
    rekey(made, tmp_path / "lost.gguf", {"rope.scaling.type": "longrope"})
    with pytest.raises(ValueError, match=r"lost.gguf: rope_factors_long.weight: is missing, and minicpm3.rope.scaling"):
        make_plan(tmp_path / "lost.gguf", "transformers")


def test_a_linear_factor_without_a_type_or_the_reverse(weights, tmp_path):
    """llama.cpp (load_hparams): the type is linear where a file has none, and an absent factor is 1."""
    made = write(tmp_path / "plain.gguf", weights)
    rekey(made, tmp_path / "typeless.gguf", {"rope.scaling.factor": 4.0})
    plan = make_plan(tmp_path / "typeless.gguf", "transformers")
    assert next(iter(plan.qk.rotary.distinct)).scaling == Linear(4.0)
    rekey(made, tmp_path / "lost.gguf", {"rope.scaling.type": "linear"})
    with pytest.raises(ValueError, match=r"lost.gguf: llama.rope.scaling.factor: is missing"):
        make_plan(tmp_path / "lost.gguf", "transformers")


@pytest.mark.parametrize(
    "more, message",
    [
        ({"expert_count": 8}, "llama.expert_count: is not known, and may change the model: 8"),
        ({"attention.value_length": 4}, "llama.attention.value_length must be the width of a head, 8, got 4"),
    ],
)
def test_metadata_that_is_refused(more, message, weights, tmp_path):
    with pytest.raises(ValueError, match=message):
        make_plan(write(tmp_path / "model.gguf", weights, **more), "transformers")


def test_unknown_architectures_and_parts(weights, tmp_path):
    with pytest.raises(
        ValueError, match=r"general.architecture must be one of llama, olmo2, qwen2, qwen3 here, got 'gemma'"
    ):
        make_plan(write(tmp_path / "model.gguf", weights, arch="gemma"), "transformers")
    save_model("stablelm", tmp_path / "hf", num_key_value_heads=4)
    with pytest.raises(ValueError, match="model_type 'stablelm' is not written to GGUF here"):
        make_plan(tmp_path / "hf", "gguf")


def test_headers_of_published_files(shared_data):
    """Of llama.cpp, without tensors: the metadata is what the package reads."""
    from phasor.tools.checkpoints.formats.gguf_file import read_header

    for path in sorted((shared_data / "gguf").glob("header_*.gguf")):
        ours, theirs = read_header(path), gguf.GGUFReader(path)
        for key, field in theirs.fields.items():
            if not key.startswith("GGUF.") and field.types[0] != gguf.GGUFValueType.ARRAY:
                assert ours.metadata[key] == field.contents()
        assert len(ours.pairs) == theirs.fields["GGUF.kv_count"].contents() and not ours.tensors
