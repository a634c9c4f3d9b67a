"""Indexers of sparse attention: which layers have one, and as what they are read; bits: tests/conformance."""

from typing import Any

import pytest

from phasor.models.configs import ModelRotary, read_config, read_parts

transformers = pytest.importorskip("transformers")


def indexer_of(source: Any) -> ModelRotary:
    return read_config(source, part="indexer")


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
