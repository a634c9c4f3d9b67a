"""`phasor plan`: its exit code says whether every engine that was asked for has settings."""

import json
import os

import pytest

GPT_NEOX = {
    "model_type": "gpt_neox", "hidden_size": 256, "num_attention_heads": 4, "num_hidden_layers": 4, "rotary_pct": 0.25,
    "max_position_embeddings": 8192, "rope_theta": 10_000.0,
}  # fmt: skip


@pytest.mark.parametrize("engines, code", [(["vllm"], 0), (["llama.cpp"], 1), (["vllm", "llama.cpp"], 1)])
def test_one_engine_without_settings_is_enough_for_a_bad_end(engines, code, tmp_path, phasor):
    """How llama.cpp converts this type is not shown, so nothing is said; vLLM takes YaRN from the config."""
    (tmp_path / "config.json").write_text(json.dumps(GPT_NEOX))
    asked = [word for engine in engines for word in ("--engine", engine)]
    ended, out, _ = phasor("plan", tmp_path / "config.json", "--length", 32_768, *asked)
    assert ended == code and all(engine in out for engine in engines)


LLAMA = {
    "model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 1, "vocab_size": 32,
    "max_position_embeddings": 512, "rope_theta": 10_000.0,
}  # fmt: skip


@pytest.mark.parametrize(
    "make, says",
    [
        (lambda path: None, "cannot be opened (No such file or directory)"),
        (lambda path: path.mkdir(), "must be a regular file, and is a folder"),
        (lambda path: os.mkfifo(path), "must be a regular file, and is a pipe"),
        (lambda path: path.write_bytes(b""), "header must end inside the file"),
        (lambda path: path.write_bytes(b"junk" * 9), "must begin with GGUF"),
    ],
)
def test_a_file_that_is_no_gguf_is_refused_where_its_keys_stay(make, says, tmp_path, phasor):
    """YaRN is said by flags, so that nothing of the file is changed."""
    pytest.importorskip("gguf")
    config, file = tmp_path / "config.json", tmp_path / "m.gguf"
    config.write_text(json.dumps(LLAMA))
    make(file)
    plan = ("plan", config, "--length", 2048, "--engine", "llama.cpp", "--write", tmp_path / "out", "--gguf", file)
    code, _, err = phasor(*plan)
    assert code == 2 and f"{file}: {says}" in err and err.count("\n") == 1 and not (tmp_path / "out").exists()


def test_a_gguf_file_whose_keys_stay_is_named(tmp_path, phasor):
    gguf = pytest.importorskip("gguf")
    config, file = tmp_path / "config.json", tmp_path / "m.gguf"
    config.write_text(json.dumps(LLAMA))
    writer = gguf.GGUFWriter(file, "llama")
    for step in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file, writer.close):
        step()
    plan = ("plan", config, "--length", 2048, "--engine", "llama.cpp", "--write", tmp_path / "out", "--gguf", file)
    code, out, _ = phasor(*plan)
    assert code == 0 and f"{file} stays as it is, and no copy is written" in out


@pytest.mark.parametrize("heads, says", [(2, ""), (4, "weights in doubt: config.json: ")])
def test_the_doctor_looks_at_a_folder_first(heads: int, says: str, tmp_path, phasor):
    """Key weights of 2 heads: a config that says 4 is of another model, whatever the engine makes of it."""
    transformers = pytest.importorskip("transformers")
    small = {**LLAMA, "num_key_value_heads": 2, "intermediate_size": 64}
    transformers.LlamaForCausalLM(transformers.LlamaConfig(**small)).save_pretrained(tmp_path / "model")
    file = tmp_path / "model/config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "num_key_value_heads": heads}))
    code, out, _ = phasor("plan", tmp_path / "model", "--engine", "vllm")
    assert code == bool(says) and out.startswith(says or "vllm") and "paste" in out
    code, out, _ = phasor("plan", tmp_path / "model", "--engine", "vllm", "--json")
    assert [bool(one["doubts"]) for one in json.loads(out)] == [bool(says)]
    assert phasor("plan", file, "--engine", "vllm")[0] == 0  # the config alone
