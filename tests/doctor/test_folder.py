"""Folders whose configs contradict themselves or their weights: what is wrong, and what the config must say."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from integrations.sick import healthy
from phasor.tools.doctor.folder import examine

pytest.importorskip("transformers")

THETA = {"rope_theta": 1e4}  # of a model whose rope_parameters say 5e5
# 1 / 500000 ** (2 i / 16), in float32 as Llama's code forms it
FREQUENCIES = 1.0 / (500_000.0 ** (torch.arange(0, 16, 2, dtype=torch.float) / 16))
STORED = "model.layers.0.self_attn.rotary_emb.inv_freq"  # where transformers kept it until 4.32


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> Path:
    """A small Llama of base 500000, 4 query heads and 2 key heads of 16, on disk."""
    folder = tmp_path_factory.mktemp("models") / "right"
    healthy("llama").save_pretrained(folder)
    (folder / "notes").mkdir()
    (folder / "notes" / "tokens.txt").write_text("a b c")
    return folder


@pytest.fixture
def edited(sound, tmp_path):
    """The folder with other keys in its config (None: without the key), and with more tensors."""

    def make(changes: dict[str, Any], tensors: dict[str, torch.Tensor] | None = None) -> Path:
        folder = tmp_path / "sick"
        shutil.copytree(sound, folder)
        config = json.loads((folder / "config.json").read_text()) | changes
        kept = {name: value for name, value in config.items() if value is not None}
        (folder / "config.json").write_text(json.dumps(kept))
        if tensors:
            file = folder / "model.safetensors"
            save_file(load_file(file) | tensors, file, metadata={"format": "pt"})
        return folder

    make.folder = tmp_path / "sick"
    return make


def test_a_sound_folder(sound):
    found = examine(sound)
    assert found.findings == ()
    assert [check.verdict for check in found.checks] == ["right"]


SCALED = {"rope_type": "linear", "factor": 2.0}
KEEP, CONVERT = "keep the one that the weights were trained with", "set the config that its weights were saved with"
CONTRADICTIONS = {
    "two bases": (THETA, "config contradicts itself", KEEP),
    "two scalings": ({"rope_scaling": SCALED}, "config contradicts itself", KEEP),
    "head_dim": ({"head_dim": 32}, "config and weights differ in size", CONVERT),
    "key heads": ({"num_key_value_heads": 1}, "config and weights differ in size", CONVERT),
    "a key that the code does not read": (
        {"partial_rotary_factor": 0.5}, "config not understood", "change that key by hand",
    ),
    "no base": ({"rope_parameters": SCALED}, "base by default", "add the rope_theta of the original"),
}  # fmt: skip


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_what_contradicts_is_named_and_not_guessed(case, edited):
    changes, cause, says = CONTRADICTIONS[case]
    (finding,) = examine(edited(changes)).findings
    assert (finding.where, finding.cause, finding.verdict) == ("config.json", cause, "wrong")
    assert says in finding.way_out


@pytest.mark.parametrize(
    "own, words",
    [
        (FREQUENCIES.bfloat16(), "rounded to bfloat16"),
        (FREQUENCIES.half(), "rounded to float16"),
        (torch.zeros(8), "zeros"),
        (FREQUENCIES * 2, "other values than the config gives"),
    ],
)
def test_stored_frequencies_that_the_model_does_not_read(own, words, edited):
    """transformers forms its own, so stored ones can only repeat the config."""
    (finding,) = examine(edited({}, {STORED: own})).findings
    assert (finding.where, finding.reason) == (STORED, f"stored frequencies are {words}")
    assert finding.way_out == "store those of the config, or none: the config says them"


def test_stored_frequencies_of_the_config_are_no_fault(edited):
    assert examine(edited({}, {STORED: FREQUENCIES})).findings == ()


def test_integers_with_something_to_read_them_by_are_no_fault(edited):
    name = "model.layers.0.self_attn.q_proj.weight"
    packed = {name: torch.zeros(64, 64, dtype=torch.int8)}
    quantized = {"quantization_config": {"quant_method": "bitsandbytes", "load_in_8bit": True}}
    assert examine(edited(quantized, packed)).findings == ()


def test_stored_frequencies_that_the_model_reads(tmp_path):
    """Of another encoding they may be what the weights were trained with; rounded they are those of the config."""
    import transformers

    config = transformers.EsmConfig(
        vocab_size=33, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        position_embedding_type="rotary", pad_token_id=1,
    )  # fmt: skip
    folder = tmp_path / "esm"
    transformers.EsmModel(config).save_pretrained(folder)
    tensors = load_file(folder / "model.safetensors")
    (name,) = (n for n in tensors if n.endswith("inv_freq"))
    for own, decided in ((tensors[name].bfloat16(), True), (tensors[name] / 2, False)):
        save_file(tensors | {name: own}, folder / "model.safetensors", metadata={"format": "pt"})
        found = examine(folder)
        assert [f.way_out.startswith("store those of the config") for f in found.findings] == [decided], found
