"""Formats of others: read, run by transformers with the logits of the plain code, written back to the bit."""

import json
import struct
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("transformers")

import torch
from safetensors.torch import save_file

from integrations.models import causal
from phasor.tools.checkpoints import convert, make_plan

from . import plain
from .models import contents, save_model, tensors_of

TOKENS = torch.tensor([1, 5, 9, 33, 60, 7, 7, 12])
SIZES = {"layers": 2, "dim": 32, "heads": 4, "kv_heads": 2, "hidden": 96, "vocab": 64}
PARAMS = {
    "dim": 32, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "norm_eps": 1e-5, "rope_theta": 5e5, "vocab_size": -1,
}  # fmt: skip
ROWS = ("wq", "wk", "wv", "w1", "w3", "output", "tok_embeddings")  # cut by rows among processes; wo and w2 by columns


def their_logits(folder: Path, tokens: torch.Tensor = TOKENS) -> torch.Tensor:
    from transformers import AutoModelForCausalLM

    with torch.no_grad():
        return AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()(tokens[None]).logits[0]


def cut(weights, share, shares):
    def part(name, w):
        word = name.removesuffix(".weight").rpartition(".")[2]
        if w.ndim == 1:
            return w
        return w.chunk(shares, 0 if word in ROWS else 1)[share].clone()

    return {name: part(name, w) for name, w in weights.items()}


@pytest.fixture
def weights():
    return plain.random_weights(**SIZES)


def meta(folder: Path, weights, shares: int = 1, **more) -> Path:
    folder.mkdir()
    for i in range(shares):
        torch.save({**cut(weights, i, shares), "rope.freqs": torch.ones(4)}, folder / f"consolidated.{i:02d}.pth")
    (folder / "params.json").write_text(json.dumps({**PARAMS, **more}))
    (folder / "tokenizer.model").write_bytes(b"words")
    return folder


@pytest.mark.parametrize("shares", [1, 2])
def test_meta(shares, weights, tmp_path):
    source = meta(tmp_path / "meta", weights, shares)
    with pytest.raises(ValueError, match=r"consolidated.00.pth: is a pickle, .* add --allow-pickle"):
        convert(source, tmp_path / "no", to="transformers")
    report = convert(source, tmp_path / "hf", to="transformers", allow_pickle=True)
    assert report["tensors"] == {"byte_identical": 17, "moved": 4}
    expected = plain.forward(weights, TOKENS, heads=4, kv_heads=2, base=5e5)
    torch.testing.assert_close(their_logits(tmp_path / "hf"), expected, rtol=0, atol=1e-4 * float(expected.abs().max()))
    convert(tmp_path / "hf", tmp_path / "back", to="meta", options={"files": shares})
    for i in range(shares):
        file = tmp_path / f"back/consolidated.{i:02d}.pth"
        back, wanted = torch.load(file, weights_only=True), cut(weights, i, shares)
        assert back.keys() == wanted.keys() and all(torch.equal(back[n], w) for n, w in wanted.items())
        assert zipfile.ZipFile(file).testzip() is None  # checksums are right, too
    assert (tmp_path / "back/tokenizer.model").read_bytes() == b"words"
    width = json.loads((tmp_path / "back/params.json").read_text())
    assert width["multiple_of"] * -(-int(8 * 32 / 3) // width["multiple_of"]) == 96


def frequencies_of_meta(base: float, dim: int, factor: float) -> torch.Tensor:
    """github.com/meta-llama/llama-models, models/llama3/model.py: ``precompute_freqs_cis`` and ``apply_scaling``."""
    found = []
    for f in (1.0 / (base ** (torch.arange(0, dim, 2).float() / dim))).tolist():
        wave = 2 * torch.pi / f
        smooth = (8192 / wave - 1) / (4 - 1)
        found.append(f if wave < 8192 / 4 else f / factor if wave > 8192 else (1 - smooth) * f / factor + smooth * f)
    return torch.tensor(found)


@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_meta_with_the_scaling_of_llama_3(factor, weights, tmp_path):
    from transformers import AutoModelForCausalLM

    said = {"use_scaled_rope": True, "rope_scaling_factor": factor}
    source = meta(tmp_path / "meta", weights, **said)
    convert(source, tmp_path / "hf", to="transformers", allow_pickle=True)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "hf")
    torch.testing.assert_close(model.model.rotary_emb.inv_freq, frequencies_of_meta(5e5, 8, factor))
    model.save_pretrained(tmp_path / "theirs")  # rope_scaling becomes rope_parameters
    for i, folder in enumerate(("hf", "theirs")):
        convert(tmp_path / folder, tmp_path / f"back{i}", to="meta")
        params = json.loads((tmp_path / f"back{i}/params.json").read_text())
        assert params.items() >= {**said, "rope_theta": 5e5, "n_kv_heads": 2}.items()
        back = torch.load(tmp_path / f"back{i}/consolidated.00.pth", weights_only=True)
        assert all(torch.equal(back[name], tensor) for name, tensor in weights.items())


@pytest.mark.parametrize("to", ["meta", "mistral", "gguf"])
def test_another_scaling_of_the_same_name(to, tmp_path):
    """That of Llama 4, which no params.json says."""
    rope = {"rope_type": "llama3", "factor": 16.0, "low_freq_factor": 1.0, "high_freq_factor": 1.0,
        "original_max_position_embeddings": 8192, "rope_theta": 5e5}  # fmt: skip
    save_model("llama", tmp_path / "source", rms_norm_eps=1e-5, rope_parameters=rope, max_position_embeddings=16384)
    with pytest.raises(ValueError, match=r"llama3.*'high_freq_factor': 1.0|rope_type must be 'default'.* got 'llama3'"):
        make_plan(tmp_path / "source", to)


@pytest.mark.parametrize("to", ["meta", "mistral", "gguf"])
@pytest.mark.parametrize("key", ["rope_theta", "rms_norm_eps"])
def test_what_a_config_leaves_to_its_class(to, key, tmp_path):
    """Transformers would take a default of its own."""
    save_model("llama", tmp_path / "source", rms_norm_eps=1e-5)
    path = tmp_path / "source/config.json"
    config = json.loads(path.read_text())
    base = config["rope_parameters"].pop("rope_theta")
    path.write_text(json.dumps({**config, "rope_theta": base}))
    make_plan(tmp_path / "source", to)
    path.write_text(json.dumps({k: v for k, v in {**config, "rope_theta": base}.items() if k != key}))
    with pytest.raises(ValueError, match=rf"source/config.json: {key} is missing, and the format must say it"):
        make_plan(tmp_path / "source", to)


def test_a_base_beside_rope_parameters_is_not_overlooked(tmp_path):
    save_model("llama", tmp_path / "source", rms_norm_eps=1e-5)
    path = tmp_path / "source/config.json"
    config = {**json.loads(path.read_text()), "rope_theta": 5e5, "rope_parameters": {"rope_type": "default"}}
    path.write_text(json.dumps(config))
    written = {output.name: output.segments for output in make_plan(tmp_path / "source", "meta").outputs}
    assert b'"rope_theta": 500000.0' in written["params.json"][0]


def test_shares_must_fit(weights, tmp_path):
    source = meta(tmp_path / "meta", weights, 2)
    broken = torch.load(source / "consolidated.01.pth", weights_only=True)
    torch.save({**broken, "norm.weight": broken["norm.weight"] + 1}, source / "consolidated.01.pth")
    with pytest.raises(ValueError, match=r"01.pth: norm.weight: must be the same in every share"):
        make_plan(source, "transformers", allow_pickle=True)
    (source / "consolidated.00.pth").unlink()
    with pytest.raises(ValueError, match=r"must have consolidated.00.pth, .01 and so on"):
        make_plan(source, "transformers", allow_pickle=True)


def test_mistral(weights, tmp_path):
    source = tmp_path / "mistral"
    source.mkdir()
    save_file(weights, source / "consolidated.safetensors")
    params = {**PARAMS, "head_dim": 8, "hidden_dim": 96, "vocab_size": 64, "sliding_window": None}
    (source / "params.json").write_text(json.dumps(params))
    convert(source, tmp_path / "hf", to="transformers")
    expected = plain.forward(weights, TOKENS, heads=4, kv_heads=2, base=5e5)
    torch.testing.assert_close(their_logits(tmp_path / "hf"), expected, rtol=0, atol=1e-4 * float(expected.abs().max()))
    convert(tmp_path / "hf", tmp_path / "back", to="mistral")
    back = tensors_of(tmp_path / "back")
    assert back.keys() == weights.keys() and all(torch.equal(back[name], w) for name, w in weights.items())
    convert(tmp_path / "back", tmp_path / "again", to="transformers")
    assert contents(tmp_path / "again") == contents(tmp_path / "hf")


def test_pickles_of_transformers(weights, tmp_path):
    model = save_model("llama", tmp_path / "safe", num_key_value_heads=2)
    old = tmp_path / "old"
    old.mkdir()
    torch.save(model.state_dict(), old / "pytorch_model.bin")
    (old / "config.json").write_bytes((tmp_path / "safe/config.json").read_bytes())
    with pytest.raises(ValueError, match=r"pytorch_model.bin: is a pickle"):
        convert(old, tmp_path / "no", to="native")
    convert(old, tmp_path / "new", to="native", allow_pickle=True)
    ours, theirs = tensors_of(tmp_path / "new"), tensors_of(tmp_path / "safe")
    assert all(torch.equal(ours[name], tensor) for name, tensor in theirs.items())
    convert(old, tmp_path / "other", to="interleaved", allow_pickle=True)
    convert(tmp_path / "other", tmp_path / "back", to="halves")
    assert all(torch.equal(tensors_of(tmp_path / "back")[name], tensor) for name, tensor in theirs.items())


# llama2.c, doc/stories260K.md: ./run stories260K.bin -t 0.0
STORY = (
    "Once upon a time, there was a little girl named Lily. She loved to play outside in the park. One day, she saw a "
    "big, red ball. She wanted to play with it, but it was too high.\nLily's mom said, \"Lily, let's go to the park.\" "
    "Lily was sad and didn't know what to do."
)


def test_a_trained_model(shared_data, tmp_path):
    """stories260K, whose pairs are interleaved, by way of Meta's format, which has its names and its layout."""
    folder = shared_data / "checkpoints/stories260K"
    weights = plain.llama2c_weights(folder / "stories260K.bin")
    source = plain.as_meta(folder / "stories260K.bin", tmp_path / "meta")
    convert(source, tmp_path / "hf", to="transformers", allow_pickle=True)
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(tmp_path / "hf", attn_implementation="eager").eval()
    tokens = model.generate(torch.tensor([[1]]), max_new_tokens=110, do_sample=False, pad_token_id=0)[0]
    words = vocabulary((folder / "tok512.bin").read_bytes())
    assert b"".join(words[t] for t in tokens[1:]).replace(b"<0x0A>", b"\n").decode().strip().startswith(STORY)
    expected = plain.forward(weights, tokens, heads=8, kv_heads=4)
    assert (their_logits(tmp_path / "hf", tokens) - expected).abs().max() <= 1e-4
    convert(tmp_path / "hf", tmp_path / "back", to="meta")
    back = torch.load(tmp_path / "back/consolidated.00.pth", weights_only=True)
    assert all(torch.equal(back[name], tensor) for name, tensor in weights.items())


def vocabulary(data: bytes) -> list[bytes]:
    at, words = 4, []
    while at < len(data):
        (size,) = struct.unpack_from("<i", data, at + 4)
        words.append(data[at + 8 : at + 8 + size])
        at += 8 + size
    return words


def test_the_number_of_positions_is_kept_or_its_loss_is_told(tmp_path):
    """512 through every format; Meta's params.json has no key for it, and GGUF must have one."""
    causal("llama", max_position_embeddings=512, rms_norm_eps=1e-5).save_pretrained(tmp_path / "hf")
    for there in ("mistral", "gguf"):
        convert(tmp_path / "hf", tmp_path / there, to=there)
        convert(tmp_path / there, tmp_path / f"{there}-back", to="transformers")
        assert json.loads((tmp_path / f"{there}-back/config.json").read_text())["max_position_embeddings"] == 512, there
        assert not make_plan(tmp_path / "hf", there).notes
    said = make_plan(tmp_path / "hf", "meta").describe()
    assert "note     the 512 positions of the config are lost: params.json of Meta's code has no key for them" in said
    convert(tmp_path / "hf", tmp_path / "meta", to="meta")
    onwards = {to: make_plan(tmp_path / "meta", to, allow_pickle=True).describe() for to in ("gguf", "transformers")}
    assert "the source does not say its number of positions; 2048 are written" in onwards["gguf"]
    assert "the source does not say its number of positions; transformers takes what" in onwards["transformers"]
