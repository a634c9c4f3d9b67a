"""`phasor inspect` on configs whose models rotate nothing."""

import json

import pytest

pytest.importorskip("transformers")


@pytest.fixture
def inspected(tmp_path, phasor):
    def run(config, *options):
        path = tmp_path / "config.json"
        path.write_text(json.dumps(config))
        code, out, err = phasor("inspect", path, *options)
        assert (code, err) == (0, "")
        return out

    return run


BLOOM = {"model_type": "bloom", "n_head": 8, "hidden_size": 64}


def test_slopes_are_those_of_all_heads_of_the_real_model(inspected):
    """The paper's for 8 heads: 1/2, 1/4, ... 1/256 (arXiv 2108.12409, section 3). The small model has two heads."""
    assert json.loads(inspected(BLOOM, "--json"))["slopes"] == [2.0**-i for i in range(1, 9)]


def test_the_page_says_how_far_heads_look(inspected):
    page = " ".join(inspected(BLOOM).split())
    assert "0.5 to 0.003906, of 8 heads" in page
    assert "every 2 positions; in the farthest head 256" in page


def test_falcon_divides_its_slopes_by_the_root_of_a_head(inspected):
    """``(scores + alibi) * inv_norm_factor``, FalconAttention.forward: 64 channels make an eighth."""
    config = {"model_type": "falcon", "alibi": True, "hidden_size": 512, "num_attention_heads": 8}
    assert json.loads(inspected(config, "--json"))["slopes"] == [2.0**-i / 8 for i in range(1, 9)]


@pytest.mark.parametrize(
    ("config", "says"),
    [
        # the first row is padding_idx + 1 (RoBERTa), or two rows are left out (OPTLearnedPositionalEmbedding.offset)
        ({"model_type": "roberta"}, "from row 2 of 512"),
        ({"model_type": "opt"}, "from row 2 of 2050"),
        ({"model_type": "bert"}, "from row 0 of 512"),
        ({"model_type": "t5"}, "a learned bias on the logits by distance"),
    ],
)
def test_what_stands_in_place_of_a_rotation_is_shown(inspected, config, says):
    assert says in " ".join(inspected(config).split())
