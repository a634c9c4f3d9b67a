"""`phasor check` and `phasor golden` as a person meets them: files, exit codes, refusals."""

import json
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from phasor.tools.golden import check

from .conftest import CONFIGS
from .plain import ladder, tables


def test_commands(phasor, tmp_path):
    config = tmp_path / "config.json"
    config.write_text(json.dumps(CONFIGS["llama"]))
    out = tmp_path / "golden"
    code, said, _ = phasor("golden", config, "--out", out, "--positions", "0..3,100,-5", "--seed", 3)
    assert code == 0 and "README.md" in said
    described = json.loads((out / "vectors.json").read_text())
    assert described["kinds"][0]["positions"] == [0, 1, 2, 3, 100, -5] and described["seed"] == 3

    code, said, _ = phasor("check", out, "--against", out / "vectors.safetensors")
    assert code == 0 and said.startswith("golden vectors: right: 30 tensors compared, 0 not given")

    wrong = tables(torch.tensor([0, 1, 2, 3, 100, -5]) + 1, ladder(500_000.0, 64))[0]
    save_file({"attention.exact.cos": wrong}, tmp_path / "mine.safetensors")
    code, said, _ = phasor("check", out, "--against", tmp_path / "mine.safetensors")
    assert code == 1 and said.startswith("golden vectors: wrong: 1 tensors compared, 29 not given: positions\n")
    assert "exact.cos: positions\n  first at position 0, pair 0: expected 1, got 0.540302306" in said
    assert "\n  positions are too high by 1" in said
    code, said, _ = phasor("check", out, "--against", tmp_path / "mine.safetensors", "--json")
    data = json.loads(said)
    assert code == 1 and data["verdict"] == "wrong" and data["findings"][0]["cause"] == "positions"

    code, said, err = phasor("check", out, "--against", tmp_path / "absent")
    assert code == 2 and not said and "which is absent" in err and err.count("\n") == 1


def test_the_default_folder_is_named_after_the_model(phasor, tmp_path, monkeypatch):
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS["neox"]))
    monkeypatch.chdir(tmp_path)
    assert phasor("golden", ".")[0] == 0 and Path("golden-gpt_neox/README.md").is_file()


@pytest.mark.parametrize("positions", ["a", "1..", "0..5000", "", "1,,2"])
def test_bad_positions(positions, phasor, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS["llama"]))
    code, _, err = phasor("golden", tmp_path, "--out", tmp_path / "v", "--positions", positions)
    assert code == 2 and "--positions must be numbers and ranges as in 0..7,100" in err
    assert not (tmp_path / "v").exists()


def test_a_folder_of_files_and_other_dtypes(folder_of, tmp_path):
    v = load_file(folder_of("llama") / "vectors.safetensors")
    save_file({"attention.exact.cos": v["attention.exact.cos"].float()}, tmp_path / "a.safetensors")
    save_file(
        {"attention.model.bfloat16.q_out": v["attention.model.bfloat16.q_out"].double()}, tmp_path / "b.safetensors"
    )
    report = check(folder_of("llama") / "vectors.safetensors", tmp_path)
    assert report.verdict == "right" and len(report.compared) == 2
    save_file({"attention.exact.cos": v["attention.exact.cos"]}, tmp_path / "c.safetensors")
    with pytest.raises(ValueError, match=r"other: attention.exact.cos stands in two files of .*; keep one"):
        check(folder_of("llama"), tmp_path)


@pytest.mark.parametrize(
    "tensors, message",
    [
        ({}, "other must hold at least one tensor"),
        (
            {"attention.exact.coss": torch.ones(1)},
            r"must be the name of a tensor.*did you mean 'attention.exact.cos'\?",
        ),
        (
            {"attention.exact.cos": torch.ones(3, 32)},
            r"attention.exact.cos must have the shape \[\d+, 32\], got \[3, 32\]",
        ),
        ({"attention.exact.float32.q_out": torch.ones(4)}, r"q_out must have the shape \[1, 2, "),
        ({"attention.exact.float32.q_out": torch.ones(3, 1, 2, 14, 64)}, r"q_out must have the shape \[1, 2, "),
        (
            {"attention.exact.cos": torch.rand(13, 64)},
            "must have one value per pair, 32, or each of them twice, got 64",
        ),
        ({"attention.exact.cos": "words"}, "must be a tensor of real numbers, got str"),
        ({"attention.exact.cos": torch.ones(13, 32, dtype=torch.complex64)}, "real numbers, got torch.complex64"),
        ({"attention.exact.cos": torch.ones(13, 32, dtype=torch.bool)}, "real numbers, got torch.bool"),
        ({"attention.exact.cos": torch.zeros(0)}, r"attention.exact.cos must have the shape .*, got \[0\]"),
        ({"x" * 100_000: torch.ones(13, 32)}, "other: 'x{200}…' must be the name"),
    ],
)
def test_refused_tensors(tensors, message, folder_of):
    with pytest.raises(ValueError, match=message):
        check(folder_of("llama"), tensors)


def test_refused_files(folder_of, tmp_path):
    with pytest.raises(ValueError, match="other must hold tensors"):
        check(folder_of("llama"), tmp_path)
    (tmp_path / "x.safetensors").write_text("no tensors")
    with pytest.raises(ValueError, match="is not a safetensors file"):
        check(folder_of("llama"), tmp_path / "x.safetensors")
    with pytest.raises(ValueError, match="vectors must be a folder written by phasor golden"):
        check(tmp_path, folder_of("llama"))
    (tmp_path / "vectors.json").write_text("{")
    with pytest.raises(ValueError, match="is not JSON"):
        check(tmp_path, folder_of("llama"))
    (tmp_path / "vectors.json").write_text("[]")
    with pytest.raises(ValueError, match=r"vectors\.json: must hold a JSON object, got list; write"):
        check(tmp_path, folder_of("llama"))
    (tmp_path / "vectors.json").write_text('{"format": 1}')
    with pytest.raises(ValueError, match="must have the format 'phasor golden vectors 2', got 1; write"):
        check(tmp_path, folder_of("llama"))
    (tmp_path / "vectors.json").write_bytes((folder_of("llama") / "vectors.json").read_bytes())
    with pytest.raises(ValueError, match="cannot be opened"):
        check(tmp_path, folder_of("llama"))
    os.replace(tmp_path / "x.safetensors", tmp_path / "vectors.safetensors")
    save_file({"a": torch.ones(1)}, tmp_path / "vectors.safetensors")
    with pytest.raises(
        ValueError,
        match=r"vectors.safetensors is not as it was written \(its sha256 differs\)",
    ):
        check(tmp_path, folder_of("llama"))


def test_the_first_of_two_kinds_is_named_each(folder_of, tmp_path):
    """Gemma 3: a fault in the sliding layers only is reported for these only."""
    from phasor.tools.golden import write

    from .test_write import THEIRS

    folder = write(THEIRS["gemma3"], tmp_path / "v")
    v = load_file(folder / "vectors.safetensors")
    right, wrong = v["full_attention.exact.inv_freq"], ladder(1_000_000.0, 64)
    report = check(folder, {"full_attention.exact.inv_freq": right, "sliding_attention.exact.inv_freq": wrong})
    (finding,) = report.findings
    assert finding.where == "sliding_attention" and finding.cause == "base" and finding.layers == (0, 1, 2, 3, 4)
    assert "the base is 1000000, and must be 10000" in str(report)
