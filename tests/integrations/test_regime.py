"""A model whose frequencies depend on a length, frozen at one: cached and whole, alone and among longer rows alike."""

import copy

import pytest
import torch

transformers = pytest.importorskip("transformers")

import phasor  # noqa: E402
from stories import SCALINGS, converted, loss, stories, token_by_token, told  # noqa: E402


@pytest.fixture(scope="module")
def folder(shared_data, tmp_path_factory):
    return converted(shared_data, tmp_path_factory.mktemp("stories") / "hf")


@pytest.fixture(scope="module")
def ids(folder):
    return told(folder, tokens=180)


def frozen(folder, scaling, seq_len, **how):
    model = stories(folder, scaling)
    report = phasor.patch(model, seq_len=seq_len, **how)
    assert report.replaced == len(report.rows), str(report)
    return model


ONE = [pytest.param(s, marks=[pytest.mark.slow] * (i > 0)) for i, s in enumerate(SCALINGS)]


@pytest.mark.parametrize("scaling", ONE)
@torch.no_grad()
def test_a_trained_model_token_by_token_across_its_threshold(scaling, folder, ids):
    """Its own code loses much to its cache; frozen, the cached loss is the full one, of the same bits."""
    full = stories(folder, scaling)(ids).logits
    own = token_by_token(stories(folder, scaling), ids)
    assert loss(own, ids) - loss(full, ids) > 0.2
    model = frozen(folder, scaling, 180)
    assert torch.equal(model(ids).logits, full)
    assert abs(loss(token_by_token(model, ids), ids) - loss(full, ids)) <= 1e-4


@pytest.mark.parametrize("scaling", SCALINGS)
@torch.no_grad()
def test_a_row_beside_a_longer_one_has_the_bits_it_has_alone(scaling, folder, ids):
    """Alone means in a tensor of the same shape: of another, products of matrices add in another order."""
    short = torch.cat((ids[:1, :60], torch.zeros_like(ids[:1, 60:])), dim=1)
    both, twice = torch.cat((short, ids[1:])), torch.cat((short, short))
    alone = frozen(folder, scaling, [60, 60])(twice).logits[0, :60]
    assert torch.equal(frozen(folder, scaling, [60, 180])(both).logits[0, :60], alone)
    torch.testing.assert_close(alone, stories(folder, scaling)(ids[:1, :60]).logits[0], rtol=0, atol=1e-4)
    own = stories(folder, scaling)(both).logits[0, :60]
    assert (own - alone).abs().max() > 1


@pytest.mark.parametrize("scaling", ONE)
def test_generate_freezes_each_call_at_its_own_length(scaling, folder, ids):
    model = stories(folder, scaling)
    report = phasor.patch(model, seq_len="generate")
    assert report.summary().endswith("frequencies frozen for every generate call at its prompt and new tokens")
    how = {"do_sample": False, "pad_token_id": 0}
    for prompt, new in ((40, 20), (100, 60)):
        cached, whole = (
            model.generate(ids[:, :prompt], max_length=prompt + new, use_cache=u, **how) for u in (True, False)
        )
        theirs = frozen(folder, scaling, prompt + new).generate(ids[:, :prompt], max_new_tokens=new, **how)
        assert torch.equal(cached, whole) and torch.equal(cached, theirs)
    assert not [m for m in model.modules() if hasattr(m, "phasor_lengths")]
    own = stories(folder, scaling)
    cached, whole = (own.generate(ids[:, :100], max_new_tokens=60, use_cache=u, **how) for u in (True, False))
    assert not torch.equal(cached, whole)


@pytest.mark.parametrize("beams", [1, 3])
def test_each_row_of_a_padded_batch_is_generated_as_alone(beams, folder, ids):
    model = stories(folder, "dynamic")
    phasor.patch(model, seq_len="generate")
    how = {"do_sample": False, "pad_token_id": 0, "max_new_tokens": 20, "num_beams": beams}
    padded, mask = ids[:, :140].clone(), torch.ones_like(ids[:, :140])
    padded[0, :80], mask[0, :80] = 0, 0
    padded[0, 80:] = ids[0, :60]
    both = model.generate(padded, attention_mask=mask, **how)
    assert torch.equal(both[0, 140:], model.generate(ids[:1, :60], **how)[0, 60:])
    assert torch.equal(both[1, 140:], model.generate(ids[1:, :140], **how)[0, 140:])


def test_patched_models_are_copied_and_unpatched(folder, ids):
    model = frozen(folder, "dynamic", "generate")
    how = {"do_sample": False, "pad_token_id": 0, "max_new_tokens": 30}
    told = model.generate(ids[:, :100], **how)
    assert torch.equal(copy.deepcopy(model).generate(ids[:, :100], **how), told)
    phasor.unpatch(model)
    assert type(model) is transformers.LlamaForCausalLM and "generate" not in vars(type(model))


@torch.no_grad()
def test_exact_angles_too(folder, ids):
    model = frozen(folder, "longrope", 180, angles="exact")
    assert abs(loss(token_by_token(model, ids), ids) - loss(model(ids).logits, ids)) <= 1e-4


@pytest.mark.parametrize(
    "seq_len, message",
    [
        (0, "seq_len must be an integer of at least 1, got 0"),
        ([60, 0], r"seq_len\[1\] must be an integer of at least 1, got 0"),
        ("long", "seq_len must be a length, a list with one for each row, or 'generate', got 'long'"),
        ([], "seq_len must be a length, a list with one for each row"),
    ],
)
def test_no_regime(seq_len, message, folder):
    model = stories(folder, "dynamic")
    with pytest.raises(ValueError, match=message):
        phasor.patch(model, seq_len=seq_len)
    assert type(model) is transformers.LlamaForCausalLM


def test_rows_that_the_regime_does_not_have(folder, ids):
    model = frozen(folder, "dynamic", [60, 180, 70])
    with pytest.raises(ValueError, match="position_ids must have a row for each of the 3 lengths"):
        model(ids, position_ids=torch.arange(180).expand(2, -1))


def test_generate_without_a_prompt(folder):
    model = frozen(folder, "dynamic", "generate")
    with pytest.raises(ValueError, match="generate must be given input_ids or inputs_embeds"):
        model.generate(max_new_tokens=3)
