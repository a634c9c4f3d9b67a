"""phasor.testing: sound models pass, every law has a fault that its assertion catches, and a quick check is quick."""

import inspect

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from blocks import ROOT, blocks, run_python
from phasor import testing
from steps import counted_steps

pytest.importorskip("transformers")

from .families import FAMILIES, config_of, model_of
from .faults import damaged

LAWS = (
    testing.assert_relative,
    testing.assert_cache_consistent,
    testing.assert_chunk_consistent,
    testing.assert_padding_invariant,
    testing.assert_packing_invariant,
    testing.assert_batch_invariant,
    testing.assert_attention_agrees,
)


@pytest.mark.parametrize("family", FAMILIES)
def test_sound_models_pass(family):
    model = model_of(family)
    assert testing.quick_check(model).sound
    for law in LAWS:
        if (family, law) != ("deepseek_v3", testing.assert_attention_agrees):  # chosen is the plain one there
            law(model)


FAULTS = [
    (testing.assert_relative, "k only", "shift of all positions: logits differ by"),
    (testing.assert_relative, "sign of k", "must depend on distances only"),
    (testing.assert_relative, "product in bfloat16", "products in half precision"),
    (testing.assert_cache_consistent, "positions restart with the cache", "first at position 12"),
    (testing.assert_chunk_consistent, "positions restart with the cache", "first at position 8"),
]


@pytest.mark.parametrize("law, kind, words", FAULTS)
def test_an_assertion_says_size_first_position_and_what_it_points_to(law, kind, words):
    with damaged("llama", kind) as model, pytest.raises(AssertionError, match=words) as error:
        law(model)
    assert "differ by" in str(error.value) and "first at position" in str(error.value) and "; " in str(error.value)


class Blind(nn.Module):
    """Attention of one head that forgets the mask of padding, or which document a token is of, or its own row."""

    def __init__(self, forgets: str) -> None:
        super().__init__()
        self.model, self.forgets = model_of("llama"), forgets
        self.config = self.model.config
        self.get_input_embeddings = self.model.get_input_embeddings

    def forward(self, input_ids, position_ids=None, attention_mask=None, use_cache=False):
        if self.forgets == "padding" and attention_mask is not None:
            ahead = (1 - attention_mask).cumsum(-1)  # positions count the padding, in an encoding that is absolute
            position_ids = position_ids + 3 * ahead * torch.arange(input_ids.shape[1]) % 7
        found = self.model(
            input_ids=input_ids, position_ids=position_ids, attention_mask=attention_mask, use_cache=False
        )
        if self.forgets == "rows":
            found.logits = found.logits * input_ids.shape[1]
        return found


@pytest.mark.parametrize(
    "law, forgets", [(testing.assert_padding_invariant, "padding"), (testing.assert_batch_invariant, "rows")]
)
def test_padding_and_batches(law, forgets):
    law(Blind("nothing"))
    with pytest.raises(AssertionError, match=r"padded (left|right) = alone|alone = in a batch"):
        law(Blind(forgets))


def test_packed_documents():
    model = model_of("llama")
    testing.assert_packing_invariant(model)
    inner = model.model.rotary_emb.forward

    def longer(x, position_ids):  # every document but the first is stretched
        opened = (position_ids == 0).cumsum(-1)
        return inner(x, position_ids * opened)

    model.model.rotary_emb.forward = longer
    with pytest.raises(AssertionError, match=r"packed = separate: .*let positions restart with every document"):
        testing.assert_packing_invariant(model)


def test_no_law_is_lenient_unless_asked():
    names = {name for name in testing.__all__ if name.startswith("assert_")} - {"assert_positions"}
    laws = [getattr(testing, name) for name in names]
    assert len(laws) == 7
    assert {inspect.signature(law).parameters["by_design"].default for law in laws} == {False}


BY_DESIGN = ["assert_relative", "assert_cache_consistent", "assert_chunk_consistent", "assert_batch_invariant"]


@pytest.mark.parametrize("law", BY_DESIGN)
def test_what_is_inconsistent_by_design_passes_only_when_asked(law):
    dynamic = {"rope_type": "dynamic", "factor": 4.0, "original_max_position_embeddings": None}
    config = config_of("llama", **dynamic)
    config.max_position_embeddings = 16
    model = model_of("llama", config)
    holds = getattr(testing, law)
    with pytest.raises(AssertionError, match="dynamic: its frequencies depend on the length"):
        holds(model)
    holds(model, by_design=True)
    assert testing.quick_check(model).exit_code == 0


def test_what_cannot_be_checked_does_not_pass():
    def logits(tokens, positions):
        return torch.nn.functional.one_hot(tokens, 32).float().cumsum(1)

    with pytest.raises(AssertionError, match="cached = full: cannot be checked: logits keeps no cache"):
        testing.assert_cache_consistent(logits)
    with pytest.raises(ValueError, match="model must be a transformers model, or a function"):
        testing.assert_relative(3)


def test_models_stay_as_they_were():
    model = model_of("llama").train()
    before = {name: value.clone() for name, value in (*model.named_parameters(), *model.named_buffers())}
    seed = torch.get_rng_state()
    testing.quick_check(model)
    testing.assert_relative(model, torch.arange(32).view(2, 16))
    assert model.training and torch.equal(seed, torch.get_rng_state())
    after = dict((*model.named_parameters(), *model.named_buffers()))
    assert all(torch.equal(before[name], after[name]) and after[name].grad is None for name in before)


@pytest.mark.parametrize(
    "kind, cause",
    [
        ("frequencies in bfloat16", "frequencies rounded to bfloat16"),
        ("garbage frequencies", "garbage frequencies"),
        ("config changed after loading", "base, config changed after loading"),
        ("sign of k", "sign of k"),
    ],
)
def test_a_quick_check_stops_what_should_not_be_trained(kind, cause):
    with damaged("llama", kind) as model, pytest.raises(AssertionError, match=cause):
        testing.quick_check(model)


def test_a_quick_check_wants_a_model():
    with pytest.raises(ValueError, match="must be a transformers model, got Linear"):
        testing.quick_check(nn.Linear(2, 2))


class Written(TorchDispatchMode):
    """Counts the values that all operations of torch return."""

    values = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        self.values += sum(x.numel() for x in tree_leaves(result) if isinstance(x, torch.Tensor))
        return result


def test_a_quick_check_costs_no_more_than_a_small_batch():
    """48 tokens in all, whatever the model: a tenth of what one forward pass of 4096 tokens computes, in few steps."""
    model = model_of("llama")
    ran = []
    hook = model.register_forward_pre_hook(
        lambda m, args, kwargs: ran.append(kwargs["input_ids"].numel()), with_kwargs=True
    )
    testing.quick_check(model)
    hook.remove()
    assert sum(ran) == 48

    with Written() as check:
        testing.quick_check(model)
    with torch.no_grad(), Written() as batch:
        model(torch.zeros(8, 512, dtype=torch.int64))
    assert 0 < check.values <= batch.values / 10
    with counted_steps() as steps:
        testing.quick_check(model)
    assert steps.count < 150_000  # three times what it is


def test_positions_of_a_batch():
    tokens = torch.ones(2, 4, dtype=torch.int64)
    testing.assert_positions(tokens, torch.arange(4).expand(2, -1))
    with pytest.raises(AssertionError, match="row 0, token 2: not restarted: "):
        testing.assert_positions(tokens[:1], torch.arange(4), cu_seqlens=torch.tensor([0, 2, 4]))


def test_the_page_runs(tmp_path, monkeypatch):
    """docs/testing.md: its Python runs in order, and its file of tests passes under pytest."""
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs/testing.md").read_text(encoding="utf-8")
    names: dict = {"__name__": "page"}
    found = [block for block in blocks(page) if block.language == "python"]
    tests = [block for block in found if "def test_" in block.body]
    assert tests and len(found) > len(tests)
    wrong = [report for block in found if (report := run_python(block, names, "docs/testing.md"))]
    assert not wrong, "\n".join(wrong)
    for block in tests:
        space: dict = {"__name__": "page"}
        exec(compile(block.body, "docs/testing.md", "exec"), space)
        model = space["model"].__wrapped__()  # of a fixture
        for name, test in space.items():
            if name.startswith("test_"):
                test(model) if test.__code__.co_argcount else test()
