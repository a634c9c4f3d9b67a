"""Damaged and malicious checkpoints: each is refused in one line that names file, key and rule, and nothing is written."""
# ruff: noqa: E501 (one defect a line)

import json
import os
import pickle
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from phasor.tools.checkpoints import convert, detect, make_plan

from . import synthetic

SIZES = {"layers": 2, "hidden": 64, "heads": 4, "kv_heads": 2, "wide": 96, "per_shard": 1}
FIRST, SECOND, INDEX = (
    "model-00001-of-00002.safetensors",
    "model-00002-of-00002.safetensors",
    "model.safetensors.index.json",
)
Q = "model.layers.0.self_attn.q_proj.weight"
K = "model.layers.0.self_attn.k_proj.weight"


@pytest.fixture
def folder(tmp_path):
    return synthetic.write(tmp_path / "model", **SIZES)


def index(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        data = json.loads((folder / INDEX).read_text())
        change(data)
        (folder / INDEX).write_text(json.dumps(data))

    return spoil


def config(**changes: Any) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        data = {**json.loads((folder / "config.json").read_text()), **changes}
        (folder / "config.json").write_text(json.dumps({k: v for k, v in data.items() if v != "gone"}))

    return spoil


def file(name: str, data: bytes) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes(data) and None


def tensors(change: Callable[[dict[str, torch.Tensor]], Any]) -> Callable[[Path], None]:
    """Other tensors in one file instead of the shards."""

    def spoil(folder: Path) -> None:
        from safetensors.torch import load_file, save_file

        shards = sorted(folder.glob("model*.safetensors"))
        held = {name: tensor.clone() for shard in shards for name, tensor in load_file(shard).items()}
        change(held)
        for path in (*shards, folder / INDEX):
            path.unlink(missing_ok=True)
        save_file(held, folder / "model.safetensors")

    return spoil


BAD: dict[str, tuple[Callable[[Path], Any], str]] = {
    "index: absent file": (index(lambda d: d["weight_map"].update({Q: "model-3.safetensors"})), f"{INDEX}: {Q}: must be in a file that exists, got 'model-3.safetensors'"),
    "index: ../": (index(lambda d: d["weight_map"].update({Q: "../x.safetensors"})), f"{INDEX}: {Q}: must name a plain file of its own folder, got '../x.safetensors'"),
    "index: backslash": (index(lambda d: d["weight_map"].update({Q: "..\\x"})), "must name a plain file"),
    "index: NUL": (index(lambda d: d["weight_map"].update({Q: "a\0b"})), "must name a plain file"),
    "index: dots": (index(lambda d: d["weight_map"].update({Q: ".."})), "must name a plain file"),
    "index: a name too long": (index(lambda d: d["weight_map"].update({Q: "x" * 300})), "must name a plain file"),
    "index: no map": (index(lambda d: d.pop("weight_map")), "weight_map must map tensors to files, got None"),
    "index: empty": (index(lambda d: d.update(weight_map={})), "weight_map must map tensors to files"),
    "index: a list": (index(lambda d: d.update(weight_map=[Q])), "weight_map must map tensors to files"),
    "index: unlisted tensor": (index(lambda d: d["weight_map"].pop(Q)), f"{Q}: must name '{FIRST}', which holds it, and names no file"),
    "index: absent tensor": (index(lambda d: d["weight_map"].update(other=FIRST)), f"other: must be in {FIRST}, and is not"),
    "index: other shard": (index(lambda d: d["weight_map"].update({Q: SECOND})), f"{Q}: must name '{FIRST}', which holds it, and names '{SECOND}'"),
    "in two shards": (lambda f: (f / SECOND).write_bytes((f / FIRST).read_bytes()), f"{SECOND}: .*: is in {FIRST} as well; remove one"),
    "single and index": (file("model.safetensors", b""), f"has model.safetensors and {INDEX}; remove the one"),
    "a wrong mark": (file("phasor.json", b'{"layout": "neox"}'), "phasor.json: layout must be 'halves' or 'interleaved', got 'neox'"),
    "int64": (tensors(lambda t: t.update({Q: t[Q].long()})), f"{Q}: must have a dtype of .* to hold q and k, got I64"),
    "int8 without scale": (tensors(lambda t: t.update({Q: t[Q].to(torch.int8)})), f"{Q}: must have a dtype of .*, got I8"),
    "no k": (tensors(lambda t: t.pop(K)), "q and k of all 2 layers that rotate, and .*k_proj.weight is missing"),
    "no whole heads": (tensors(lambda t: t.update({Q: t[Q][:60].clone()})), "q_proj must have rows of q for heads of 16 channels .* got 60 rows"),
    "fewer heads": (tensors(lambda t: t.update({Q: t[Q][:32].clone()})), f"{Q}: must have 4 heads of q, .* got 2"),
    "one head of k": (tensors(lambda t: t.update({K: t[K][:16].clone()})), f"{K}: must have 2 heads of k, .* got 1"),
    "more heads of k": (tensors(lambda t: t.update({K: t[Q].clone()})), f"{K}: must have 2 heads of k, .* got 4"),
    "a vector": (tensors(lambda t: t.update({Q: t[Q][:, 0].clone()})), f"{Q}: must be a matrix"),
    "a short bias": (tensors(lambda t: t.update({Q.replace("weight", "bias"): torch.zeros(8)})), "rows of q .* got 8 rows"),
    "a layer too few": (config(num_hidden_layers=3), "layers.2.self_attn.q_proj.weight is missing"),
    "config: other heads": (config(num_attention_heads=8), r"k_proj.weight: must have 2 heads of k, as the config says, got 4"),
    "config: unknown model": (config(model_type="llamma"), "model_type 'llamma' is not known"),
    "config: no model": (config(model_type="gone"), "model_type is missing"),
    "config: types of too few layers": (config(model_type="qwen2", layer_types=["full_attention"]), "layer_types and num_hidden_layers contradict each other"),
    "config: sections": (config(model_type="qwen2_vl", rope_scaling={"type": "mrope", "mrope_section": [1, 2, 3]}), r"rope_scaling.mrope_section must add up to rotary_dim / 2 = 8 pairs, got \(1, 2, 3\)"),
    "config: quantization": (config(quantization_config="fp8"), "config.json: quantization_config must be an object, got 'fp8'"),
    "config: no rotation": (config(model_type="gpt2", n_head=4), "position"),
    "GPTQ": (tensors(lambda t: t.update({Q.replace("weight", "qweight"): torch.zeros(8, 64, dtype=torch.int32)}) or t.pop(Q)), "qweight: the rows of a quantized weight must be rows of bytes .* GPTQ or AWQ"),
    "bitsandbytes": (tensors(lambda t: t.update({f"{Q}.absmax": torch.zeros(8)})), "absmax: .* bitsandbytes: blocks run across rows"),
    "an adapter": (tensors(lambda t: t.update({Q.replace("weight", "lora_A.weight"): torch.zeros(4, 64)})), "quantized or adapted weights; merge them first"),
    "scales that straddle": (tensors(lambda t: t.update({Q.replace("weight", "weight_scale_inv"): torch.ones(6, 1)})), "must be one scale, one for each of 64 rows"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_refused(name, folder):
    spoil, message = BAD[name]
    spoil(folder)
    with pytest.raises(ValueError, match=message) as error:
        make_plan(folder, "interleaved")
    assert len(str(error.value)) < 1000 and str(error.value).isprintable()
    says = str(error.value).replace(str(folder), "")
    assert re.match(r"/[\w.-]+\.(safetensors|json): ", says) or name in WITHOUT_A_FILE, says


LOOKS = pytest.mark.parametrize("look", [lambda folder: make_plan(folder, "interleaved"), detect])


@LOOKS
@pytest.mark.parametrize("name", [Q, K])
def test_a_tensor_of_q_or_k_that_is_missing_is_that_of_its_weights(look, name, folder):
    """The config beside it is sound; in shards, the file of its neighbours is named."""
    from safetensors.torch import load_file, save_file

    shard = folder / json.loads((folder / INDEX).read_text())["weight_map"][name]
    save_file({n: tensor for n, tensor in load_file(shard).items() if n != name}, shard)
    index(lambda d: d["weight_map"].pop(name))(folder)
    with pytest.raises(ValueError, match=f"{re.escape(str(shard))}: must have q and k of all 2 .* {name} is missing"):
        look(folder)
    tensors(lambda t: None)(folder)
    with pytest.raises(ValueError, match=rf"model/model.safetensors: must have q and k of all 2 .* {name} is missing"):
        look(folder)


@LOOKS
def test_a_whole_layer_that_is_missing(look, folder):
    """The last one may be one too many in the config; before others it is lost from the weights."""
    config(num_hidden_layers=3)(folder)
    with pytest.raises(ValueError, match=r"/config.json: .*layers.2.self_attn.q_proj.weight is missing"):
        look(folder)
    tensors(lambda t: [t.pop(name) for name in list(t) if "layers.0." in name])(folder)
    with pytest.raises(ValueError, match=r"/model.safetensors: .*layers.0.self_attn.q_proj.weight is missing"):
        look(folder)


WITHOUT_A_FILE = ("single and index",)  # one file too many is two


def test_a_bias_of_another_length(folder):
    """16 values for 64 rows, whole heads of 16: taken for a bias of one head."""
    bias = Q.replace("weight", "bias")
    tensors(lambda t: t.update({bias: torch.zeros(64)}))(folder)
    make_plan(folder, "interleaved")
    tensors(lambda t: t.update({bias: torch.zeros(16)}))(folder)
    message = (
        rf"/model.safetensors: {bias}: must have one value for each of the 64 rows of its weight, got shape \[16\]"
    )
    for look in (lambda: make_plan(folder, "interleaved"), lambda: detect(folder)):
        with pytest.raises(ValueError, match=message):
            look()


def test_a_checkpoint_without_embedding_has_no_place_in_gguf(folder):
    pytest.importorskip("gguf")
    config(rms_norm_eps=1e-5)(folder)
    with pytest.raises(ValueError, match=r"model.embed_tokens.weight is missing, and the format must have it") as error:
        make_plan(folder, "gguf")
    assert str(folder) in str(error.value)


def test_what_a_link_leads_to_is_told(folder, tmp_path):
    (tmp_path / "elsewhere.txt").write_text("mine")
    (folder / "notes.txt").symlink_to(tmp_path / "elsewhere.txt")
    (folder / "plain.txt").write_text("here")
    said = make_plan(folder, "interleaved").describe()
    assert f"note     notes.txt is a link to {tmp_path / 'elsewhere.txt'}, whose content is copied" in said
    assert "plain.txt" not in said


def test_blocks_that_straddle_heads(folder):
    """Blocks of 24 rows share a scale, and heads have 16."""
    tensors(lambda t: t.update({Q.replace("weight", "weight_scale_inv"): torch.ones(3, 1)}))(folder)
    config(quantization_config={"weight_block_size": [24, 64]})(folder)
    with pytest.raises(ValueError, match="every row must stay in its block of 24 rows that share a scale"):
        make_plan(folder, "interleaved")


@pytest.mark.parametrize("shape, block", [((), None), ((64, 1), None), ((64,), None), ((4, 1), [16, 64])])
def test_scales_follow_their_rows(shape, block, folder, tmp_path):
    scale = Q.replace("weight", "weight_scale_inv")
    values = torch.rand(shape)
    tensors(lambda t: t.update({Q: t[Q].to(torch.float8_e4m3fn), scale: values}))(folder)
    if block:
        config(quantization_config={"weight_block_size": block})(folder)
    convert(folder, tmp_path / "out", to="interleaved")
    from safetensors.torch import load_file

    before, after = load_file(folder / "model.safetensors"), load_file(tmp_path / "out/model.safetensors")
    spread = values.reshape(-1, 1).repeat_interleave(64 // max(values.numel(), 1), 0) if values.numel() else values
    there = after[scale].reshape(-1, 1).repeat_interleave(64 // max(values.numel(), 1), 0)
    order = [16 * h + c // 2 + 8 * (c % 2) for h in range(4) for c in range(16)]
    assert torch.equal((before[Q].double() * spread)[order], after[Q].double() * there)


class Evil:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.marker}",)


def pickled(folder: Path, make: Callable[[Path], Any]) -> None:
    for name in (FIRST, SECOND, INDEX):
        (folder / name).unlink()
    make(folder / "pytorch_model.bin")


def bomb(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"\0" * 10**7)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda p: torch.save({"a": Evil(p.with_name("marker"))}, p), "cannot be read through torch's weights_only"),
        (lambda p: p.write_bytes(pickle.dumps(Evil(p.with_name("marker")))), "must be an archive as torch.save"),
        (lambda p: torch.save({"a": torch.ones(2)}, p, _use_new_zipfile_serialization=False), "must be an archive"),
        (lambda p: torch.save([torch.ones(2)], p), "must hold a dictionary of tensors, got list"),
        (lambda p: torch.save({"a": 3}, p), "a: must be a tensor under a name, got int"),
        (lambda p: torch.save({3: torch.ones(2)}, p), "3: must be a tensor under a name"),
        (lambda p: torch.save({"a": torch.ones(2, 3).T}, p), "must be a plain tensor stored row by row"),
        (lambda p: torch.save({"a": torch.ones(2).to_sparse()}, p), "must be a plain tensor stored row by row|weights_only"),
        (bomb, "must be stored without compression"),
        (lambda p: p.write_bytes(b"PK\3\4 no zip"), "must be an archive"),
    ],
)  # fmt: skip
def test_pickles_that_are_refused(make, message, folder):
    pickled(folder, make)
    with pytest.raises(ValueError, match=r"pytorch_model.bin: is a pickle, which can run code when it is opened"):
        make_plan(folder, "interleaved")
    with pytest.raises(ValueError, match=message) as error:
        make_plan(folder, "interleaved", allow_pickle=True)
    assert str(error.value).startswith(f"{folder / 'pytorch_model.bin'}")
    assert not (folder / "marker").exists()


def test_code_files_are_copied_and_not_run(folder, tmp_path):
    (folder / "modeling_mine.py").write_text(f"open({str(tmp_path / 'marker')!r}, 'w')")
    config(auto_map={"AutoModel": "modeling_mine.Mine"})(folder)
    convert(folder, tmp_path / "out", to="interleaved")
    assert (tmp_path / "out/modeling_mine.py").read_bytes() == (folder / "modeling_mine.py").read_bytes()
    assert not (tmp_path / "marker").exists()


@pytest.mark.parametrize("to", ["neox", "", "gguf2"])
def test_an_unknown_target(to, folder):
    with pytest.raises(ValueError, match=r"to must be a layout .* or a format"):
        make_plan(folder, to)


def test_folders_without_a_checkpoint(tmp_path):
    with pytest.raises(ValueError, match="must hold a checkpoint of transformers, meta, mistral, gguf"):
        make_plan(tmp_path, "halves")
    with pytest.raises(ValueError, match="there is no such file or folder"):
        make_plan(tmp_path / "gone", "halves")


def test_layers_beyond_the_config_are_said_to_stay(tmp_path):
    """What predicts further tokens has no place in the config: it is copied, and the plan says so."""
    source = synthetic.write(tmp_path / "source", layers=3, hidden=32, heads=4, kv_heads=2, wide=64)
    config = json.loads((source / "config.json").read_text())
    assert make_plan(source, "interleaved").notes == ()
    (source / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 2}))
    (said,) = make_plan(source, "interleaved").notes
    assert said.startswith("model.layers.2.self_attn.q_proj.weight stays in halves, with 1 more of q and k")
    assert said.endswith("beyond the 2 of the config")
