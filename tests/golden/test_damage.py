"""Tensors of others that are not what they should be: a finding, or one line. Damaged files: tests/test_damage.py."""

import hashlib
import json
from importlib.metadata import version

import pytest
import torch
from safetensors.torch import load_file, save_file

OTHER = {
    "an axis more": lambda t: {"k": t.unsqueeze(-1).expand(*t.shape, 3)},
    "half of it": lambda t: {"k": t.flatten()[: t.numel() // 2]},
    "nothing": lambda t: {"k": torch.zeros(0)},
    "complex": lambda t: {"k": t.to(torch.complex64)},
    "truths": lambda t: {"k": t.bool()},
    "another name": lambda t: {"k": t, "x" * 100_000: t},
    "NaN": lambda t: {"k": torch.full(t.shape, torch.nan)},
    "infinite": lambda t: {"k": torch.full(t.shape, torch.inf)},
    "integers": lambda t: {"k": (t.double() * 1e30).clamp(-(2**62), 2**62).to(torch.int64)},
}


@pytest.mark.parametrize("what", OTHER)
def test_tensors_of_others(what, folder_of, tmp_path, phasor):
    """At the command line: exit code 1 with a finding, or 2 with one line."""
    name = "attention.exact.float32.q_out"
    tensor = load_file(folder_of("llama") / "vectors.safetensors")[name]
    made = {name if key == "k" else key: t.clone().contiguous() for key, t in OTHER[what](tensor).items()}
    save_file(made, tmp_path / "mine.safetensors")
    code, said, err = phasor("check", folder_of("llama"), "--against", tmp_path / "mine.safetensors")
    assert (code == 1 and said.startswith("golden vectors: wrong: ") and not err) or (
        code == 2 and not said and err.count("\n") == 1 and len(err) < 1000
    ), said + err


def test_a_pack_says_what_it_is(folder_of):
    """Who wrote it, under which licence, and what its files must hash to."""
    data = json.loads((folder_of("llama") / "vectors.json").read_text())
    content = (folder_of("llama") / "vectors.safetensors").read_bytes()
    assert data["sha256"]["vectors.safetensors"] == hashlib.sha256(content).hexdigest()
    assert data["phasor"] == version("phasor-rope") and data["licence"] == "Apache-2.0"
    readme = (folder_of("llama") / "README.md").read_text()
    assert data["phasor"] in readme and "Apache-2.0" in readme and data["sha256"]["vectors.safetensors"] in readme
