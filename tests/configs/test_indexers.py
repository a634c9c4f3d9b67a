"""Indexers of sparse attention against the functions of transformers, and which layers have one."""

import importlib
from typing import Any

import pytest
import torch

from phasor import Rotation, apply_rotary_qk
from phasor.models.configs import ModelRotary, read_config, read_parts
from rows import INDEXERS

transformers = pytest.importorskip("transformers")

# model type -> function, whether the turned channels come last: from the class …Indexer of each modeling file
FORMS = {
    "axk2": ("axk2", "apply_rotary_pos_emb", False),
    "deepseek_v32": ("deepseek_v32", "apply_rotary_pos_emb", False),
    "dots3_note_text": ("dots3_note", "apply_rotary_pos_emb_interleave", False),
    "glm_moe_dsa": ("glm_moe_dsa", "apply_rotary_pos_emb_interleave", False),
    "hy_v4": ("hy_v4", "apply_rotary_pos_emb", True),
    "mistral_large4_text": ("mistral_large4", "apply_rotary_pos_emb_interleave", False),
}


def indexer_of(source: Any) -> ModelRotary:
    return read_config(source, part="indexer")


@pytest.mark.parametrize("name", sorted(FORMS))
def test_indexers_rotate_as_in_transformers(name: str) -> None:
    folder, function, last = FORMS[name]
    code = importlib.import_module(f"transformers.models.{folder}.modeling_{folder}")
    model = indexer_of({"model_type": name}).with_angles("float32")
    (spec,) = model.distinct
    n, positions = spec.rotary_dim, torch.tensor([[0, 1, 7, 500, 1023]])
    q, k = torch.randn(1, 3, 5, spec.head_dim), torch.randn(1, 1, 5, spec.head_dim)
    angles = positions[..., None].float() * spec.inv_freq().float()
    cos, sin = (torch.cat((f(angles), f(angles)), -1) for f in (torch.cos, torch.sin))
    turned = slice(spec.head_dim - n, None) if last else slice(0, n)
    theirs = getattr(code, function)(q[..., turned], k[..., turned], cos, sin)
    scale = {"log_scale": torch.zeros(spec.pairs)} if spec.learned else {}
    ours = apply_rotary_qk(q, k, Rotation.at(spec, positions, **scale))
    for mine, reference, before in zip(ours, theirs, (q, k), strict=True):
        assert torch.equal(mine[..., turned], reference)
        assert int((mine != before).any(dim=(0, 1, 2)).sum()) == n  # no other channel changes
    assert (model.num_kv_heads, model.softmax_factor, model.part) == (1, 1.0, "indexer")


@pytest.mark.parametrize("name", sorted(set(INDEXERS) - {"qwen4_exp_text"}))
def test_default_sizes_are_those_of_the_config_class(name: str) -> None:
    config = transformers.AutoConfig.for_model(name)
    assert (INDEXERS[name].head_dim, INDEXERS[name].heads) == (config.index_head_dim, config.index_n_heads)


def test_only_some_layers_have_one() -> None:
    shared = {"model_type": "glm_moe_dsa", "num_hidden_layers": 3, "indexer_types": ["full", "shared", "full"]}
    assert [spec is None for spec in indexer_of(shared).layers] == [False, True, False]
    dense = {"model_type": "minimax_m3_vl_text", "num_hidden_layers": 2,
             "layer_types": ["full_attention", "minimax_m3_sparse"]}  # fmt: skip
    assert [spec is None for spec in indexer_of(dense).layers] == [True, False]
    published = {"model_type": "minimax_m3", "num_hidden_layers": 2, "head_dim": 128, "sparse_attention_config": {
        "sparse_attention_freq": [0, 1], "sparse_index_dim": 64, "sparse_num_index_heads": 2}}  # fmt: skip
    sparse = indexer_of(published)
    assert sparse.layers[0] is None and sparse.layers[1].head_dim == 64 and sparse.num_heads == 2  # type: ignore[union-attr]
    with pytest.raises(ValueError, match="minimax_m3_vl_text has an indexer in none of its 60 layers"):
        indexer_of({"model_type": "minimax_m3_vl_text"})
    with pytest.raises(ValueError, match="indexer_types must have one word per layer, 3 here"):
        indexer_of({**shared, "indexer_types": ["full"]})


def test_an_indexer_is_a_part_of_its_text_model() -> None:
    text = {"model_type": "dots3_note_text", "num_hidden_layers": 2}
    found = read_parts({"model_type": "dots3_note", "text_config": text})
    assert isinstance(found["text_config.indexer"], ModelRotary)
    assert found["text_config.indexer"].num_heads == 64
    assert "indexer" not in read_parts({"model_type": "qwen4_exp_text"})  # has one only where its sizes are stated
    qsa = {"model_type": "qwen4_exp_text", "indexer_head_dim": 256, "indexer_n_heads": 4}
    assert read_config(qsa, part="indexer").num_heads == 4


def test_a_flag_that_contradicts_the_code_is_refused() -> None:
    source = {"model_type": "glm_moe_dsa", "indexer_rope_interleave": False}
    assert read_config(source).layers
    with pytest.raises(ValueError, match="the code of glm_moe_dsa and indexer_rope_interleave contradict each other"):
        indexer_of(source)
