"""Golden vectors where nothing rotates: what is added to logits and to tokens, and what differs when it differs."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")

import torch
import transformers

import phasor
from eye.skeleton import HEADS, Attention, Decoder, ids
from phasor import golden
from phasor.tools.golden.vectors import read_vectors

BLOOM = {"vocab_size": 64, "hidden_size": 32, "n_layer": 2, "n_head": 4}
T5 = {"vocab_size": 64, "d_model": 32, "d_kv": 8, "num_layers": 2, "num_heads": 4, "d_ff": 32}
OPT = {
    "vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 32,
    "word_embed_proj_dim": 32,
}  # fmt: skip


def written(folder: Path, name: str, sizes: dict[str, Any]) -> Any:
    torch.manual_seed(0)
    model = getattr(transformers, name)(getattr(transformers, name).config_class(**sizes)).eval()
    return golden.write(model, folder / "golden"), model


def test_alibi_by_distance(tmp_path: Path) -> None:
    """Press et al., arXiv:2108.12409, section 3: slopes of 4 heads are 2**-2, 2**-4, 2**-6, 2**-8."""
    folder, _ = written(tmp_path, "BloomForCausalLM", BLOOM)
    vectors = read_vectors(folder)
    assert list(vectors.kinds) == ["bias"] and vectors.kinds["bias"].layers == (0, 1)
    at = torch.arange(vectors.tensors["bias.positions"].numel())
    mine = -torch.tensor([2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8])[:, None] * at
    assert golden.check(folder, {"bias.before": mine}).verdict == "right"
    for other, cause in ((mine.flip(0), "slopes"), (-mine, "direction"), (mine * 0.9, "unknown")):
        report = golden.check(folder, {"bias.before": other})
        assert report.verdict == "wrong" and report.causes == (cause,), str(report)


def test_buckets_on_both_sides(tmp_path: Path) -> None:
    """Raffel et al., arXiv:1910.10683: distances below 8 have a row each, keys behind a query those from 16 on."""
    folder, model = written(tmp_path, "T5EncoderModel", T5)
    table = model.encoder.block[0].layer[0].SelfAttention.relative_attention_bias.weight.detach().T
    count = read_vectors(folder).tensors["bias.before"].shape[1]
    before = table[:, :count] - table[:, :1]
    behind = torch.cat((table[:, :1], table[:, 17 : 16 + count]), 1) - table[:, :1]
    assert golden.check(folder, {"bias.before": before, "bias.behind": behind}).verdict == "right"
    assert golden.check(folder, {"bias.before": behind}).verdict == "wrong"


def test_rows_of_learned_positions(tmp_path: Path) -> None:
    folder, model = written(tmp_path, "OPTForCausalLM", OPT)
    table = model.model.decoder.embed_positions.weight.detach()
    count = read_vectors(folder).tensors["tokens.rows"].numel()
    mine = {"tokens.rows": torch.arange(2, 2 + count), "tokens.vectors": table[2 : 2 + count]}
    assert golden.check(folder, mine).verdict == "right"
    report = golden.check(folder, {"tokens.vectors": table[3 : 3 + count]})
    assert report.causes == ("positions",) and "next position" in report.findings[0].reason


class NearTheStart(Attention):
    """The first two keys count more, for every query: no function of the distance."""

    def attend(self, q, k, v):
        bias = torch.tensor([0.5, 0.25] + [0.0] * (k.shape[2] - 2)) * torch.arange(1, q.shape[1] + 1)[:, None, None]
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias.expand(-1, q.shape[2], -1))


def test_a_bias_that_is_no_function_of_the_distance_is_written_whole(tmp_path: Path) -> None:
    """Less that of the query's own key, which no softmax shows."""
    folder = golden.write(phasor.observe(Decoder(NearTheStart), (ids(),)), tmp_path / "golden")
    rows = read_vectors(folder).tensors["bias.logits"].shape[-1]
    added = torch.tensor([0.5, 0.25] + [0.0] * (rows - 2)) * torch.arange(1, HEADS + 1)[:, None]
    mine = added[:, None] - added[..., None]
    assert golden.check(folder, {"bias.logits": mine}).verdict == "right"
    assert golden.check(folder, {"bias.logits": mine * 1.01}).verdict == "wrong"


def test_a_config_has_the_slopes_of_all_heads(tmp_path: Path) -> None:
    """Of twelve heads (Press et al.'s code): the eight of a power of two, then every other one of sixteen."""
    folder = golden.write({"model_type": "bloom", **BLOOM, "hidden_size": 48, "n_head": 12}, tmp_path / "golden")
    at = torch.arange(read_vectors(folder).tensors["bias.positions"].numel())
    slopes = torch.tensor([2.0**-n for n in range(1, 9)] + [2.0 ** (-n / 2) for n in (1, 3, 5, 7)])
    assert golden.check(folder, {"bias.before": -slopes[:, None] * at}).verdict == "right"
    assert "(0.5, 0.25, 0.125, 0.0625, …)" in (folder / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name, kind, first", [("t5", "bias", 0), ("opt", "tokens", 2)])
def test_a_config_has_random_tables_of_what_is_learned(name: str, kind: str, first: int, tmp_path: Path) -> None:
    """Its decoder's nearest distances have a row each (T5); its first token has row 2 (OPT)."""
    tensors = read_vectors(golden.write({"model_type": name, **(T5 if name == "t5" else OPT)}, tmp_path / "g")).tensors
    rows = tensors[f"{kind}.table"][first : first + 4]
    seen = tensors["tokens.vectors"] if kind == "tokens" else tensors["bias.before"].T + tensors["bias.table"][0]
    assert torch.allclose(seen[:4], rows, atol=1e-6)


def test_a_part_that_does_not_rotate_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="part must be left out"):
        golden.write({"model_type": "bloom", **BLOOM}, tmp_path / "golden", part="text_config")


@pytest.mark.parametrize("asked", [{"moved": True}, {"positions": [0, 1]}])
def test_what_is_about_a_rotation_is_refused(asked: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(asked))} is about a rotation, and bloom has none: leave it out"):
        golden.write({"model_type": "bloom", **BLOOM}, tmp_path / "golden", **asked)
