"""GGUF files, written and read by the gguf package: the keys of plans, for every config that llama.cpp knows."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from phasor.tools.checkpoints.formats.gguf_file import keys_of, rekey
from phasor_serve.engines import CannotSayError, EngineConfig, load_config
from phasor_serve.engines.base import Rules
from phasor_serve.engines.gguf import Metadata, converted
from phasor_serve.engines.llama_cpp import LlamaCpp, written
from phasor_serve.planner import file_traps, plan
from phasor_serve.planner.choose import choose
from phasor_serve.planner.proof import differences, prove
from phasor_serve.planner.result import write as write_plans

from .test_table import CELLS, STRETCH, length_of
from .test_traps import CLEAN

FACTORS = {"rope_freqs": "freqs", "rope_factors_long": "long", "rope_factors_short": "short"}
UNKNOWN = ["zai-org__GLM-5"]  # whose conversion is not known here


def write(path: Path, meta: Metadata) -> None:
    """A file with these keys, the tensors that scale frequencies, and one more."""
    gguf = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(path, meta.arch.name)
    for key, value in meta.keys.items():
        add = {str: writer.add_string, int: writer.add_uint32}.get(type(value), writer.add_float32)
        add(f"{meta.arch.name}.{key}", value)
    writer.add_tensor("kept", torch.arange(6, dtype=torch.float32).reshape(2, 3).numpy())
    for name, field in FACTORS.items():
        if values := getattr(meta, field):
            writer.add_tensor(f"{name}.weight", torch.tensor(values, dtype=torch.float32).numpy())
    for step in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file, writer.close):
        step()


def read(path: Path, meta: Metadata) -> Metadata:
    """The keys and factors of a file."""
    arch, keys = keys_of(path)
    assert arch == meta.arch.name
    tensors = {
        one.name.removesuffix(".weight"): one.data for one in pytest.importorskip("gguf").GGUFReader(path).tensors
    }
    assert tensors["kept"].tolist() == [[0, 1, 2], [3, 4, 5]]
    held: dict[str, Any] = {FACTORS[name]: tuple(tensors[name].tolist()) for name in FACTORS if name in tensors}
    return Metadata(meta.arch, keys, **held)


def known(shared_data: Path, name: str) -> EngineConfig:
    return load_config(json.loads((shared_data / f"configs/full/{name}.json").read_text()))


def test_every_setting_says_all_that_is_wanted() -> None:
    """By hand, from the names in gguf-py's constants: flags in the first setting, keys in the second."""
    config = {
        "model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 1,
        "max_position_embeddings": 4096, "rope_theta": 1e4,
    }  # fmt: skip
    seen = load_config(config)
    flags, keys = written(seen, choose(seen, 16_384, "yarn", None).wanted, 16_384)
    assert flags.gguf in (None, {}) and flags.flags["--rope-scaling"] == "yarn" and flags.flags["--rope-scale"] == 4.0
    assert keys.flags == {"-c": 16_384}
    assert keys.gguf == {
        "context_length": 16_384, "rope.scaling.type": "yarn", "rope.scaling.factor": 4.0,
        "rope.scaling.original_context_length": 4096,
    }  # fmt: skip


@pytest.mark.parametrize("name", [name for name in CLEAN if name not in UNKNOWN])
def test_through_a_file(shared_data: Path, tmp_path: Path, name: str) -> None:
    """The plan for four times the length, from a file that holds what the plan does not say by flags."""
    seen = known(shared_data, name)
    meta, length = converted(seen), 4 * length_of(seen.data)
    wanted = choose(seen, length).wanted
    proof = prove(LlamaCpp(), seen, wanted, length)
    settings, refused = proof.settings, proof.reason
    write(tmp_path / "old.gguf", meta)
    assert (settings is not None) == (CELLS[name]["llama.cpp"][STRETCH.index(4)] == "p"), refused
    if settings is None:
        assert len(refused) > 20
        reading = LlamaCpp().read_file(seen, read(tmp_path / "old.gguf", meta), {}, Rules())
        assert differences(LlamaCpp().read(seen, {}).model, reading, seen.model.max_position or 1) == []
        return
    path = tmp_path / "old.gguf"
    if settings.config is not None:  # converted again
        path, meta = tmp_path / "again.gguf", converted(load_config(settings.config))
        write(path, meta)
    elif settings.gguf:
        path = tmp_path / "new.gguf"
        rekey(tmp_path / "old.gguf", path, settings.gguf)
    reading = LlamaCpp().read_file(seen, read(path, meta), settings.flags, Rules())
    assert differences(wanted, reading, length) == []


def test_the_factors_of_a_file_count_and_not_those_of_the_config_beside_it(shared_data: Path) -> None:
    """Llama 3.1 converted with a factor of 16, read beside the published config, which says 8."""
    seen = known(shared_data, "meta-llama__Meta-Llama-3.1-8B")
    changed = load_config({**seen.data, "rope_scaling": {**seen.data["rope_scaling"], "factor": 16.0}})
    for file, slowest in ((seen, 8), (changed, 16)):
        reading = LlamaCpp().read_file(seen, converted(file), {}, Rules())
        (spec,) = reading.model.distinct
        assert float(spec.inv_freq()[-1]) == pytest.approx(500_000.0 ** (-126 / 128) / slowest, rel=1e-6)


@pytest.mark.parametrize("name", ["Qwen__Qwen3-8B", "google__gemma-3-27b-it", "mistralai__Mixtral-8x7B-v0.1"])
def test_keys_alone(shared_data: Path, tmp_path: Path, name: str) -> None:
    """Keys in the place of flags, written into a copy; the file that was there stays as it was."""
    seen = known(shared_data, name)
    meta, length = converted(seen), 4 * length_of(seen.data)
    wanted = choose(seen, length).wanted
    write(tmp_path / "old.gguf", meta)
    before = (tmp_path / "old.gguf").read_bytes()
    keys = written(seen, wanted, length)[-1].gguf
    assert keys
    rekey(tmp_path / "old.gguf", tmp_path / "new.gguf", keys)
    assert (tmp_path / "old.gguf").read_bytes() == before
    reading = LlamaCpp().read_file(seen, read(tmp_path / "new.gguf", meta), {"-c": length}, Rules())
    assert differences(wanted, reading, length) == []


def test_one_of_thirty_is_unknown(shared_data: Path) -> None:
    for name in UNKNOWN:
        with pytest.raises(CannotSayError, match=r"how llama\.cpp converts"):
            converted(known(shared_data, name))


def test_every_key_is_written_and_the_others_stay(tmp_path: Path) -> None:
    """Texts, whole numbers and numbers, as the gguf package reads them; arrays, tensors and alignment too."""
    gguf = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(tmp_path / "old.gguf", "llama")
    writer.add_custom_alignment(64)
    writer.add_uint32("llama.context_length", 9)
    writer.add_array("tokenizer.ggml.tokens", ["a", "bc"])
    writer.add_tensor("kept", torch.arange(6, dtype=torch.float32).reshape(2, 3).numpy())
    writer.add_tensor("half", torch.arange(10, dtype=torch.float16).reshape(2, 5).numpy())
    for step in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file, writer.close):
        step()
    rekey(tmp_path / "old.gguf", tmp_path / "new.gguf", {"context_length": 77, "rope.scaling.type": "yarn", "x": 4.5})
    reader = gguf.GGUFReader(tmp_path / "new.gguf")
    values = {name: field.contents() for name, field in reader.fields.items() if not name.startswith("GGUF.")}
    assert values == {
        "general.architecture": "llama", "general.alignment": 64, "tokenizer.ggml.tokens": ["a", "bc"],
        "llama.context_length": 77, "llama.rope.scaling.type": "yarn", "llama.x": 4.5,
    }  # fmt: skip
    assert {one.name: one.data.tolist() for one in reader.tensors} == {
        "kept": [[0, 1, 2], [3, 4, 5]], "half": [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]],
    }  # fmt: skip
    assert all(one.data_offset % 64 == 0 for one in reader.tensors)
    with pytest.raises(ValueError, match="never written over"):
        rekey(tmp_path / "old.gguf", tmp_path / "new.gguf", {"x": 1})


@pytest.mark.parametrize("cut", [3, 20, 60])
def test_a_damaged_file_is_refused(cut: int, tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(tmp_path / "whole.gguf", "llama")
    writer.add_tensor("kept", torch.ones(2, 3).numpy())
    for step in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file, writer.close):
        step()
    (tmp_path / "cut.gguf").write_bytes((tmp_path / "whole.gguf").read_bytes()[:cut])
    with pytest.raises(ValueError, match=r"cut\.gguf"):
        rekey(tmp_path / "cut.gguf", tmp_path / "new.gguf", {"x": 1})
    assert not (tmp_path / "new.gguf").exists()


def test_a_plan_that_only_keys_say_is_written_into_a_copy_of_the_file(tmp_path: Path) -> None:
    """A factor on cos and sin of 1.7 at a stretch of 4: llama.cpp takes its key times 0.1 ln 4 + 1."""
    rope = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048, "attention_factor": 1.7}
    config = {
        "model_type": "llama", "hidden_size": 256, "num_attention_heads": 4, "num_hidden_layers": 1,
        "max_position_embeddings": 8192, "rope_theta": 1e4, "rope_scaling": rope,
    }  # fmt: skip
    made = plan(config, length=8192, engine="llama.cpp")
    assert made.settings is not None and made.settings.gguf is not None
    assert f"GGUF key {{arch}}.context_length = {8192}" in made.setting_lines()
    data = made.to_dict()
    assert (data["settings"], data["verdict"], data["factor"]) == (
        {"flags": {"-c": 8192}, "config": None, "gguf": made.settings.gguf}, "right", 1.0,
    )  # fmt: skip
    with pytest.raises(ValueError, match=r"--write needs the GGUF file for llama\.cpp"):
        write_plans([made], tmp_path / "without")
    assert not list(tmp_path.iterdir())
    seen = load_config(config)
    write(tmp_path / "model.gguf", converted(seen))
    other = plan(config, length=8192, engine="vllm")
    paths = write_plans([made, other], tmp_path / "out", tmp_path / "model.gguf")
    assert [path.relative_to(tmp_path / "out").as_posix() for path in paths] == [
        "llama.cpp/flags.txt", "llama.cpp/model.gguf", "vllm/flags.txt",
    ]  # fmt: skip
    reading = LlamaCpp().read_file(seen, read(paths[1], converted(seen)), {"-c": 8192}, Rules())
    (spec,) = reading.model.distinct
    assert spec.attention_factor() == pytest.approx(1.7, rel=1e-6)
    assert differences(made.wanted, reading, 8192) == []


def test_a_file_of_another_model_is_refused(tmp_path: Path) -> None:
    llama = load_config(
        {"model_type": "llama", "num_hidden_layers": 1, "max_position_embeddings": 2048, "rope_theta": 10000.1}
    )  # a base that the float32 of a file rounds
    write(tmp_path / "model.gguf", converted(llama))
    assert file_traps(llama.data, tmp_path / "model.gguf") == []
    with pytest.raises(ValueError, match="holds the architecture 'llama', and the config is of 'qwen3'"):
        file_traps({"model_type": "qwen3", "num_hidden_layers": 1}, tmp_path / "model.gguf")
