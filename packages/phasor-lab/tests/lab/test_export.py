import json

import pytest
import torch

from phasor import read_config
from phasor_lab.lab import Decoder, ModelConfig, export
from phasor_lab.lab.evaluate import SCHEMES


def model(**changes: object) -> Decoder:
    torch.manual_seed(0)
    made = Decoder(ModelConfig(**{"layers": 2, "dim": 64, "heads": 4, "length": 32, **changes})).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter += 0.1 * torch.randn_like(parameter)  # norms that are not 1, attention that is not uniform
    return made


@pytest.mark.filterwarnings("ignore")  # transformers' own
@pytest.mark.parametrize("changes", [{}, {"tied": False}, {"kv_heads": 2}, {"base": 500.0, "hidden": 40}])
@torch.no_grad()
def test_transformers_loads_an_export_with_equal_logits(tmp_path, changes):
    transformers = pytest.importorskip("transformers")
    ours = model(**changes)
    export(ours, tmp_path / "llama")
    theirs, report = transformers.LlamaForCausalLM.from_pretrained(tmp_path / "llama", output_loading_info=True)
    assert not any(report.values())
    tokens = torch.randint(0, 256, (2, 100))
    torch.testing.assert_close(ours(tokens), theirs(tokens).logits, rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "scheme, rope",
    [
        ("linear", {"rope_type": "linear", "factor": 4.0}),
        ("dynamic", {"rope_type": "dynamic", "factor": 4.0}),
        ("yarn", {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}),
        (
            "llama3",
            {
                "rope_type": "llama3",
                "factor": 4.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 32,
            },
        ),
    ],
)
@torch.no_grad()
def test_an_extended_model_is_what_transformers_makes_of_that_scaling(tmp_path, scheme, rope):
    transformers = pytest.importorskip("transformers")
    ours = model()
    folder = export(ours, tmp_path / "llama")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "rope_scaling": rope}))
    theirs = transformers.LlamaForCausalLM.from_pretrained(folder)
    tokens = torch.randint(0, 256, (1, 128))
    spec = ours.config.rotary_spec.replace(scaling=SCHEMES[scheme](4, 32))
    torch.testing.assert_close(ours(tokens, rotary=spec), theirs(tokens).logits, rtol=1e-5, atol=1e-5)


def test_our_own_reader_understands_an_export(tmp_path):
    ours = model(base=500.0, kv_heads=2)
    understood = read_config(export(ours, tmp_path / "llama"))
    assert understood.layers == (ours.config.rotary_spec,) * 2
    assert (understood.num_heads, understood.num_kv_heads, understood.max_position) == (4, 2, 32)


def test_what_cannot_be_exported_is_refused(tmp_path):
    with pytest.raises(ValueError, match="run must be of a rotary model to be exported as Llama, got alibi"):
        export(model(encoding="alibi"), tmp_path / "llama")
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"folder to export to must be new or empty, got '.*'; choose another name"):
        export(model(), tmp_path)
