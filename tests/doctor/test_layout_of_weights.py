"""Weights of the other pair layout fit their config and run: the doctor of a folder says that it is not shown."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

from phasor.checkpoints import convert


def smooth(folder: Path, *, rows: str = "qk") -> Path:
    """A Llama whose pairs of q and k, in halves, get weaker from one to the next, as training leaves them.

    The two channels of a pair share its energy unevenly, so that other pairings are rough.
    """
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64, hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, head_dim=32, max_position_embeddings=64,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    share = torch.rand(16) * 0.8 + 0.1
    size = (torch.exp(-torch.arange(16) / 4).repeat(2) * torch.cat([share, 1 - share])).sqrt()[None, :, None]
    with torch.no_grad():
        for layer in model.model.layers:
            for name in rows:
                weight = getattr(layer.self_attn, f"{name}_proj").weight
                weight.copy_((weight.view(2, 32, 64) * size).view(64, 64))
    model.save_pretrained(folder)
    return folder


def doctor(phasor: Any, folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the command says, and its row on the layout of the weights."""
    report = json.loads(phasor("doctor", folder, "--json")[1])
    (row,) = [check for check in report["checks"] if check["what"] == "pair layout of the weights"]
    return report, row


def test_the_layout_that_the_code_rotates_is_right(phasor: Any, tmp_path: Path) -> None:
    report, row = doctor(phasor, smooth(tmp_path / "model"))
    assert (row["verdict"], report["verdict"]) == ("right", "right")
    assert row["reason"].startswith("halves (smoothness: halves ")


@pytest.mark.parametrize("mark", [False, True])
def test_the_other_layout_is_not_shown_to_be_right(phasor: Any, tmp_path: Path, mark: bool) -> None:
    """transformers rotates halves, whatever phasor.json says beside the weights."""
    convert(smooth(tmp_path / "model"), tmp_path / "other", to="interleaved", proof=False)
    if not mark:
        (tmp_path / "other/phasor.json").unlink()
    report, row = doctor(phasor, tmp_path / "other")
    assert (row["verdict"], report["verdict"], report["exit_code"]) == ("not shown", "not shown", 0)
    assert report["summary"].endswith(", 1 not shown: pair layout of the weights")
    assert "look interleaved" in row["reason"] and "rotates halves" in row["reason"]


def test_what_the_command_says_to_do_makes_the_layout_right(phasor: Any, tmp_path: Path) -> None:
    convert(smooth(tmp_path / "model"), tmp_path / "other", to="interleaved", proof=False)
    said = " ".join(phasor("doctor", tmp_path / "other")[1].split())
    for words in (
        "--text FILE, with a text of the kind it was trained on, decides",
        f"{tmp_path / 'other'} OUT --from interleaved --to halves",
    ):
        assert words in said
    convert(tmp_path / "other", tmp_path / "back", to="halves", source_layout="interleaved", proof=False)
    assert doctor(phasor, tmp_path / "back")[0]["verdict"] == "right"


def test_half_a_conversion_is_not_shown_to_be_right(phasor: Any, tmp_path: Path) -> None:
    convert(smooth(tmp_path / "model"), tmp_path / "other", to="interleaved", proof=False)
    whole, other = (load_file(tmp_path / name / "model.safetensors") for name in ("model", "other"))
    mixed = {name: (other if "q_proj" in name else whole)[name] for name in whole}
    save_file(mixed, tmp_path / "model/model.safetensors", {"format": "pt"})
    report, row = doctor(phasor, tmp_path / "model")
    assert report["verdict"] == "not shown" and "a conversion looks half done" in row["reason"]


def test_weights_that_tell_nothing_do_not_change_the_verdict(phasor: Any, tmp_path: Path) -> None:
    report, row = doctor(phasor, smooth(tmp_path / "model", rows=""))
    assert (row["verdict"], report["verdict"]) == ("not shown", "right")
