"""patch on a model whose frequencies were lost on the way: taken over where that is all that is wrong, and said so."""

import copy

import pytest
import torch

from phasor import repair
from phasor.tools.patch import patch, unpatch
from phasor.tools.patch.damage import damage

from .models import causal, logits, tokens
from .sick import KINDS, buffers, emptied, healthy, in_dtype

pytest.importorskip("transformers")

GARBAGE = [float("nan"), 0.0, 1.7e17]


def tables(report) -> list:
    return [row for row in report.rows if row.what.startswith("tables")]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_rounded_frequencies_are_taken_over(kind, dtype):
    """The patched model, and the one after unpatch, have the logits of one whose frequencies were never rounded."""
    model = healthy(kind).to(dtype)
    sound = in_dtype(kind, dtype)
    ids = tokens(1, 120)
    report = patch(model)
    word = f"bit-equal; its own was rounded to {str(dtype)[6:]}"
    assert {(row.agreement, row.replaced) for row in tables(report)} == {(word, True)}, str(report)
    assert torch.equal(logits(model, ids), logits(sound, ids))
    unpatch(model)
    assert torch.equal(logits(model, ids), logits(sound, ids))
    kept = {name: b for name, b in buffers(sound).items() if name.endswith(("inv_freq", "embed_positions"))}
    assert kept
    for name, buffer in kept.items():
        assert buffers(model)[name].dtype == buffer.dtype and torch.equal(buffers(model)[name], buffer), name


@pytest.mark.parametrize("fill", GARBAGE)
@pytest.mark.parametrize("kind", ["llama", "gptj"])
def test_frequencies_that_were_never_filled_are_taken_over(kind, fill):
    sound = healthy(kind)
    expected = logits(sound)
    model = emptied(healthy(kind), fill)
    report = patch(model)
    words = {row.agreement.removeprefix("bit-equal; its own was ") for row in tables(report)}
    assert words == {{"nan": "values that are not numbers", "0.0": "zeros"}.get(str(fill), "garbage, up to 1.7e+17")}
    assert torch.equal(logits(model), expected)
    unpatch(model)
    assert torch.equal(logits(model), expected)


def test_what_happens_to_a_patched_model_is_mended_by_unpatch():
    model = healthy("llama")
    patch(model)
    model.to(torch.bfloat16)
    sound = in_dtype("llama", torch.bfloat16)
    other = copy.deepcopy(model)
    for one in (model, other):
        unpatch(one)
        assert torch.equal(logits(one), logits(sound))


DYNAMIC = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}


@pytest.mark.parametrize("fill", [0.5, 1.05])
def test_values_that_somebody_may_have_chosen_are_left_alone(fill):
    """Also where they were rounded on top: the damage is then not all that is wrong."""
    model = healthy("llama")
    model.model.rotary_emb.inv_freq.mul_(fill)
    before = logits(model)
    report = patch(model)
    assert report.replaced == 0 and torch.equal(logits(model), before)
    assert {row.reason for row in tables(report)} == {"phasor forms other values from its config"}
    model.to(torch.bfloat16)
    assert patch(model).replaced == 0


def test_a_rounding_that_is_not_needed_or_not_mended_is_not_hidden():
    assert tables(patch(healthy("llama").to(torch.bfloat16)))[0].agreement == (
        "bit-equal; its own was rounded to bfloat16"
    )
    (row,) = tables(patch(causal("llama", rope_parameters=DYNAMIC).to(torch.bfloat16)))
    assert row.reason.endswith("(dynamic NTK); its own was rounded to bfloat16: call phasor.repair(model)")


@pytest.mark.parametrize("fails", ["__init__", "_init_weights"])
def test_a_class_that_cannot_be_built_again_is_left_to_the_model(monkeypatch, fails):
    """Whatever its own code raises: what is damaged is refused in its row, and nothing else is."""
    model = healthy("llama").to(torch.bfloat16)

    def cannot(self, *args, **kwargs):
        raise RuntimeError("needs the network")

    monkeypatch.setattr(type(model.model), fails, cannot)
    report = patch(model)
    (row,) = tables(report)
    assert row.reason.startswith("its frequencies were rounded to torch.bfloat16 by .to()") and report.replaced == 0
    with pytest.raises(ValueError, match="model cannot be built again from its config: needs the network"):
        repair(model)


@pytest.mark.parametrize("kind", ["gemma3", "phi3, longrope"])
def test_the_default_device_of_the_caller_plays_no_part(kind):
    sound = in_dtype(kind, torch.bfloat16)
    for mend in (lambda m: (patch(m), unpatch(m)), repair):
        model = healthy(kind).to(torch.bfloat16)
        with torch.device("meta"):
            mend(model)
        assert torch.equal(logits(model), logits(sound))


SOUND = torch.tensor([1.0, 0.3162, 0.1, 0.03162])


@pytest.mark.parametrize(
    "own, words, understood",
    [
        (SOUND.bfloat16(), "rounded to bfloat16", True),
        (SOUND.half().float(), "rounded to float16", True),
        (SOUND.double(), "in float64 instead of float32", True),
        (torch.zeros(4), "zeros", True),
        (torch.tensor([0.3, 4.6e-41, 0.0, 0.0]), "garbage", True),
        (torch.tensor([0.1, 0.3, 0.1, 0.03]), "garbage", True),
        (torch.tensor([1.0, -0.3, 0.1, 0.03]), "garbage", True),
        (SOUND.to("meta"), "without values, on the meta device", True),
        (torch.tensor([100.0, 30.0, 10.0, 3.0]), "garbage, up to 1.0e+02", True),
        (SOUND / 2, "other values than the config gives", False),
        (SOUND[:2], "of shape [2], where the config gives [4]", False),
    ],
)
def test_damages_by_name(own, words, understood):
    found = damage(own, SOUND)
    assert found is not None and (found.words, found.understood) == (words, understood)


def test_one_rounding_after_the_other():
    sound = torch.tensor([0.8964447379112244])  # which bfloat16 alone rounds elsewhere
    twice = sound.half().bfloat16()
    assert not torch.equal(twice, sound.bfloat16())
    assert damage(twice.float(), sound).words == "rounded to float16 and bfloat16"


def test_no_damage():
    assert damage(SOUND.clone(), SOUND) is None
