"""Configs with values that no model has: one line with key, rule, value and way out, and nothing is made of them."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from integrations.sick import healthy
from phasor.tools.doctor import memory
from phasor.tools.doctor.folder import bounds
from phasor.tools.doctor.model_folder import ModelConfig

pytest.importorskip("transformers")

NAN = float("nan")
HUGE = 10**9
OUT = "; set it to what the weights were trained with"
# keys, what stands before the rule, the rule and the value
VALUES = [
    ({"rope_theta": "big"}, "rope_parameters.rope_theta must be a finite number above 1", "got 'big'"),
    ({"rope_theta": 0}, "rope_parameters.rope_theta must be a finite number above 1", "got 0"),
    ({"rope_theta": -1.0}, "rope_parameters.rope_theta must be a finite number above 1", "got -1.0"),
    ({"rope_theta": NAN}, "rope_parameters.rope_theta must be a finite number", "got nan"),
    ({"rope_type": "linear", "factor": -2.0}, "rope_parameters.factor must be a finite number above 0", "got -2.0"),
    ({"rope_type": 3}, "rope_parameters.rope_type must be the name of a scaling", "got 3"),
]
SIZES = [
    ({"num_attention_heads": 0}, "num_attention_heads must be an integer of at least 1", "got 0"),
    ({"num_attention_heads": "4"}, "num_attention_heads must be an integer of at least 1", "got '4'"),
    ({"num_key_value_heads": -1}, "num_key_value_heads must be an integer of at least 1", "got -1"),
    ({"num_hidden_layers": 0}, "num_hidden_layers must be an integer of at least 1", "got 0"),
    ({"head_dim": 2.5}, "head_dim must be an integer of at least 1", "got 2.5"),
    ({"hidden_size": 0}, "hidden_size must be an integer of at least 1", "got 0"),
    ({"vocab_size": -1}, "vocab_size must be an integer of at least 1", "got -1"),
    ({"max_position_embeddings": NAN}, "max_position_embeddings must be a finite number", "got nan"),
]
# the widest weight of the model has 96 rows, its words
WIDE = "must be at most 65536, for the weights beside it have 96 in one dimension"
MANY = "must be at most 1024, for the weights beside it have 2 of a kind"
TOO_LARGE = [
    *(({key: HUGE}, f"{key} {WIDE}", f"got {HUGE}") for key in ("vocab_size", "hidden_size", "intermediate_size")),
    *(({key: HUGE}, f"{key} {WIDE}", f"got {HUGE}") for key in ("head_dim", "num_attention_heads", "n_inner")),
    *(
        ({key: HUGE}, f"{key} {MANY}", f"got {HUGE}")
        for key in ("num_hidden_layers", "num_experts", "max_window_layers")
    ),
]
# transformers has a rule, or stumbles; or the weights tell
OTHERS = [
    ({"rope_parameters": {"rope_type": "frob"}}, "rope_type is 'frob', which is none of those that the code of llama"),
    ({"rope_parameters": {"rope_type": "linear"}}, "rope_parameters.factor is missing: linear scaling needs it; add"),
    ({"rope_parameters": {"rope_theta": None}}, "rope_parameters.rope_theta is null: set it, or take the key away"),
    ({"num_attention_heads": None}, "num_attention_heads must be int, got None; mend that key by hand"),
    ({"head_dim": [16]}, "head_dim must be an integer of at least 1, got [16]"),
    ({"hidden_act": "gelu9"}, "hidden_act must be a value that transformers knows, got 'gelu9'"),
    ({"intermediate_size": -8}, "intermediate_size must be a value that transformers knows, got -8 (RuntimeError:"),
    ({"dtype": "float33"}, "dtype must be a value that transformers knows, got 'float33'"),
    ({"torch_dtype": 3}, "torch_dtype must be the name of a number format of torch, got 3; mend that key by hand"),
    ({"quantization_config": "fp8"}, "quantization_config must be an object, got 'fp8'; mend that key by hand"),
]


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    made = tmp_path_factory.mktemp("models") / "llama"
    healthy("llama").save_pretrained(made)
    return made


@pytest.fixture
def edited(sound, tmp_path):
    """The folder with other keys in its config (Ellipsis: without the key)."""

    def make(changes):
        folder = tmp_path / "edited"
        shutil.copytree(sound, folder)
        config = json.loads((folder / "config.json").read_text()) | changes
        kept = {name: value for name, value in config.items() if value is not ...}
        (folder / "config.json").write_text(json.dumps(kept))
        return folder

    return make


def _refused(phasor, *arguments):
    code, out, err = phasor("doctor", *arguments)
    assert (code, out) == (2, "") and err.count("\n") == 1, (code, out, err)
    return err


@pytest.mark.parametrize(
    "changes, rule, got", [*(({"rope_parameters": r}, *w) for r, *w in VALUES), *SIZES, *TOO_LARGE]
)
def test_a_value_that_no_model_has(changes, rule, got, edited, phasor, monkeypatch):
    def built(data):
        raise AssertionError("nothing of such a size is made")

    if HUGE in changes.values():
        monkeypatch.setattr("phasor.tools.doctor.model_folder.built", built)
    err = _refused(phasor, edited(changes))
    assert "config.json: " + rule in err and got + OUT in err, err


@pytest.mark.parametrize("changes, says", OTHERS)
def test_a_config_that_is_not_understood(changes, says, edited, phasor):
    assert says in _refused(phasor, edited(changes))


@pytest.mark.parametrize("metadata", [[], "total", None])
def test_an_index_whose_metadata_is_no_object(metadata, edited, phasor):
    folder = edited({})
    index = {"metadata": metadata, "weight_map": {"lm_head.weight": "model.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    err = _refused(phasor, folder)
    assert f"model.safetensors.index.json: metadata must be an object, got {metadata!r}; fetch it anew" in err


def test_what_a_folder_is_not_loaded_for_names_file_and_tensor(edited):
    from phasor.tools.doctor.loading import load

    folder = edited({"intermediate_size": 8})
    with pytest.raises(ValueError, match=r"than its config says: model\.safetensors: model\.layers.*by the config"):
        load(folder)
    shard = folder / "model.safetensors"
    shard.write_bytes(shard.read_bytes()[:-4])
    with pytest.raises(ValueError, match=r"model\.safetensors: .*\.weight: data_offsets must be .* inside the file"):
        load(folder)


def test_torch_does_not_warn_of_a_size_that_the_doctor_judges(edited):
    """Here a warning is an error: "Initializing zero-element tensors is a no-op"."""
    from phasor.tools.doctor.loading import load
    from phasor.tools.doctor.model_folder import built

    config = edited({"intermediate_size": 0}) / "config.json"
    assert built(json.loads(config.read_text())).config.intermediate_size == 0
    with pytest.raises(ValueError, match="its weights have other sizes than its config says"):
        load(config.parent)


@pytest.mark.parametrize("key", ["num_hidden_layers", "hidden_size", "vocab_size", "num_experts"])
def test_sizes_are_bounded_without_weights_too(key, edited, phasor):
    err = _refused(phasor, edited({key: HUGE}) / "config.json")
    assert f"{key} must be at most" in err and "for models have" in err


@pytest.mark.parametrize("key", ["hidden_size", "vocab_size", "intermediate_size", "num_attention_heads"])
def test_a_size_that_is_missing_differs_from_that_of_the_weights(key, edited):
    from phasor.tools.doctor.folder import examine

    found = examine(edited({key: ...})).findings
    assert [finding.cause for finding in found] == ["config and weights differ in size"]


def test_tables_beyond_the_memory(phasor, tmp_path, capsys):
    """GPT-J keeps its sines and cosines for every position: 1e9 of 16 float32 are 64 GB, beside 0.4 MB of weights."""
    import transformers

    config = transformers.GPTJConfig(
        vocab_size=96, n_embd=64, n_layer=1, n_head=4, rotary_dim=16, n_positions=64, bos_token_id=1, eos_token_id=2
    )
    transformers.GPTJForCausalLM(config).save_pretrained(tmp_path / "m")
    capsys.readouterr()
    data = json.loads((tmp_path / "m" / "config.json").read_text()) | {"n_positions": HUGE}
    (tmp_path / "m" / "config.json").write_text(json.dumps(data))
    assert "its config describes a model of 59.6 GiB, and its weights take" in _refused(phasor, tmp_path / "m")


@pytest.mark.parametrize(
    "sizes, shapes",
    [
        ({"num_hidden_layers": 80, "vocab_size": 128_256}, {"layers.79.w": (8192, 1024), "embed": (128_256, 8192)}),
        ({"num_experts": 2048}, {"layers.0.experts.w": (2048, 2, 2)}),  # stacked
        ({"num_hidden_layers": 24}, {"group.0.w": (64, 64)}),  # layers that share their weights
        ({"max_window_layers": 70, "pad_token_id": HUGE, "text_config": {"head_dim": 256}}, {"w": (2, 2)}),
        ({"hidden_size": 2**17}, {"w": (2**14, 1)}),  # eight in an element
    ],
)
def test_sizes_of_models_that_there_are(sizes, shapes, tmp_path):
    bounds.check_sizes(ModelConfig(sizes), shapes, tmp_path)


def test_weights_of_four_bits_describe_a_larger_model(monkeypatch):
    """32,768 x 32,768 in float32 are 4 GiB, of four bits 512 MiB; no format has less than two."""
    monkeypatch.setattr(memory, "free_memory", lambda: 2**40)
    model = torch.nn.Linear(2**15, 2**15, bias=False, device="meta")
    memory.check_memory(Path("m"), model, 2**29, "")
    with pytest.raises(ValueError, match=r"describes a model of 4 GiB, and its weights take 128 MiB"):
        memory.check_memory(Path("m"), model, 2**27, "")
