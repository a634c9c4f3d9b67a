"""Which pairs a model uses, by two ways to stop them; heads of planted kinds."""

import json
import math
import shutil

import pytest
import torch

pytest.importorskip("transformers")

from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaForCausalLM,
    SmolLM3Config,
    SmolLM3ForCausalLM,
)

import phasor
from doctor.declared import HERE, folder
from integrations.models import SIZES, causal
from phasor_lab.running.model import AT_ONCE, RunningModel
from phasor_lab.running.windows import windows_of
from phasor_lab.studying import study
from phasor_lab.studying.attention import taken_back
from phasor_lab.studying.heads import by_distance, head_use
from phasor_lab.studying.pairs import pair_uses
from phasor_lab.studying.rotated_back import check_route

TEXT = HERE / "held_out.txt"  # 16,000 bytes that the models were not trained on
TOKENS = torch.tensor(list(TEXT.read_bytes()))
LENGTH = 64
SMALL = {"vocab_size": 96, "n_embd": 8, "n_layer": 1, "n_head": 1}
SPEC = phasor.RotarySpec(head_dim=16)
OWN = SPEC.inv_freq()
PLACES = torch.arange(LENGTH)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return folder("plain", {}, tmp_path_factory.mktemp("study") / "m")


@pytest.fixture
def model(place):
    return AutoModelForCausalLM.from_pretrained(place).eval()


def unused(model, pairs):
    """Rows of q for these pairs become zero in every head and layer, so that no angle of theirs reaches a score."""
    for layer in model.model.layers:
        layer.self_attn.q_proj.weight.data.view(2, 2, 16, -1)[:, :, pairs] = 0.0  # heads, halves, pairs
    return model


def pairs_of(model, rows):
    running = RunningModel(model)
    with running.with_frequencies(running.own(128), running.factors(128)):
        loss = running.loss(rows)
    return pair_uses(running, rows, loss, lambda: None)


def test_a_pair_that_the_weights_do_not_use_is_named(model):
    rows = windows_of("tokens", TOKENS, 128, 6)
    assert set(range(4)) <= set(pairs_of(model, rows)[0].used)
    (found,) = pairs_of(unused(model, [2, 5]), rows)
    assert found.stopped[2] == found.stopped[5] == found.slowed[2] == 0.0 and {2, 5} <= set(found.unused)
    assert {0, 1, 3} <= set(found.used) and sorted((*found.used, *found.unused)) == list(range(16))
    assert found.wavelengths[0] == pytest.approx(2 * math.pi)


@pytest.mark.parametrize("family", ["llama", "qwen2", "glm", "cohere", "olmo2", "gpt_neox", "phi3", "gemma3"])
def test_rotated_back_is_not_rotated(family):
    """Rotated q and k taken back have the loss of tables that do not rotate; keys may be shared, layers differ."""
    layers = 2 if family == "gemma3" else 1
    model = causal(family, num_hidden_layers=layers)
    for parameter in model.parameters():
        parameter.data.mul_(3.0)  # random weights of 0.02 would attend evenly
    running = RunningModel(model)
    rows = torch.randint(3, 96, (4, LENGTH + 1), generator=torch.Generator().manual_seed(0))
    own = running.own(LENGTH)
    assert len(own) == layers and [rotation.layers for rotation in running.rotations] == [(i,) for i in range(layers)]
    check_route(running, rows, own)
    assert model.config._attn_implementation != "phasor_study"


@pytest.mark.parametrize("changes", [{}, {"reverse": True}, {"interleaved": True}, {"rotary_dim": 8, "trailing": True}])
def test_heads_are_taken_back_to_what_they_were(changes):
    spec, x = SPEC.replace(**changes), torch.randn(2, 1, LENGTH, 16)
    turned, _ = phasor.rotate(x, x, PLACES, spec)
    torch.testing.assert_close(taken_back(turned, spec, spec.inv_freq()), x, rtol=0, atol=1e-5)


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "rope_theta": 1e4}
DYNAMIC = {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 1e4}


@pytest.mark.parametrize(
    "family, changes",
    [("llama", {"rope_parameters": YARN}), ("llama", {"rope_parameters": DYNAMIC, "max_position_embeddings": 16}),
     ("gemma3", {"num_hidden_layers": 2})],
)  # fmt: skip
def test_a_model_that_is_given_its_own_frequencies_stays_what_it_is(family, changes):
    """With the factor on cos and sin, in windows beyond the trained length too, which it never saw before."""
    model = causal(family, **changes)
    for parameter in model.parameters():
        parameter.data.mul_(3.0)
    rows = torch.randint(3, 96, (3, LENGTH + 1), generator=torch.Generator().manual_seed(0))
    running = RunningModel(model)
    kept = {name: getattr(running.module, name) for name in ("rope_type", "inv_freq") if hasattr(running.module, name)}
    own, factors = running.own(LENGTH), running.factors(LENGTH)
    with running.with_frequencies([0 * values for values in own], factors):
        stopped = running.loss(rows)
    with running.with_frequencies(own, factors):
        given = running.loss(rows)
    assert all(getattr(running.module, name) is value for name, value in kept.items())
    with torch.no_grad():
        logits = model(rows[:, :-1], use_cache=False).logits
    plain = float(torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten()))
    assert given == pytest.approx(plain, abs=2e-5) and abs(stopped - plain) > 1e-3


def test_losses_of_many_windows_are_those_of_each(model):
    """More windows than one forward pass holds, the last pass with fewer; whole windows, and their ends alone."""
    rows = windows_of("tokens", TOKENS, 30, 300)
    assert len(rows) == 300 > AT_ONCE // 31
    running = RunningModel(model)
    whole, ends = running.token_losses(rows), running.token_losses(rows, last=4)
    assert whole.shape == (300, 30) and torch.allclose(ends, whole[:, -4:], atol=1e-5)
    running._takes_last = False  # as of a model that gives the logits of all tokens, whatever is asked
    assert torch.allclose(running.token_losses(rows[:3], last=4), ends[:3], atol=1e-5)
    for row in (0, AT_ONCE // 31 - 1, AT_ONCE // 31, 299):
        with torch.no_grad():
            logits = model(rows[row : row + 1, :-1], use_cache=False).logits[0]
        theirs = torch.nn.functional.cross_entropy(logits, rows[row, 1:], reduction="none")
        assert torch.allclose(whole[row], theirs.double(), atol=1e-5)


def test_heads_that_share_keys_are_described_by_their_own():
    """Four heads of q on two of k: those of the first look one token back, those of the second at nothing."""
    model = causal("llama", num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
                   attention_bias=True)  # fmt: skip
    attention, ones = model.model.layers[0].self_attn, torch.ones(1, 1, 1, 16)
    back = phasor.rotate(ones, ones, torch.tensor([-1]), phasor.read_config(model.config).layers[0])[0].flatten()
    for projection, biases in ((attention.q_proj, [back] * 4), (attention.k_proj, [ones.flatten(), 0 * back])):
        projection.weight.data.zero_()
        projection.bias.data.copy_(torch.cat(biases) * 12)
    found = study(model, TOKENS[:1000] % 96, length=LENGTH)
    assert [use.kind for use in found.heads] == ["previous token"] * 2 + ["everything"] * 2
    highest = 12 * 12 * 16 / 4  # of two vectors of 16 twelves, over the root of 16
    for use in found.heads:
        expected = highest if use.head < 2 else 0.0
        assert (max(use.score), use.score[1]) == (pytest.approx(expected, rel=1e-5),) * 2
        assert sum(use.k_energy) == pytest.approx(12 * 12 * 16 if use.head < 2 else 0.0, rel=1e-5)


def test_a_layer_without_rotation_has_no_cost():
    """SmolLM3: `no_rope_layers` says 0 for the layer that does not rotate."""
    torch.manual_seed(1)
    model = SmolLM3ForCausalLM(SmolLM3Config(**SIZES, no_rope_layers=[1, 0])).eval()
    for parameter in model.parameters():
        parameter.data.mul_(3.0)
    found = study(model, torch.randint(3, 96, (2000,), generator=torch.Generator().manual_seed(0)), length=32)
    assert found.rotations[0].layers == (0,) and {use.layer for use in found.heads} == {0, 1}
    assert "no rotation" in str(found)


def rotated(x):
    return phasor.rotate(x[:, None], x[:, None], PLACES, SPEC)[0][:, 0]


def looking(back):
    """q and k whose scores are largest at one distance: all tokens hold the same content, q's ``back`` places ago."""
    u = torch.ones(2, LENGTH, 16)
    q = phasor.rotate(u[:, None], u[:, None], PLACES - back, SPEC)[0][:, 0]
    return 6 * q, rotated(u)


def used(q, k, scale=1.0):
    causal_mask = torch.full((LENGTH, LENGTH), -math.inf).triu(1)
    weights = ((q @ k.mT) * scale + causal_mask).softmax(-1)
    return head_use(0, 0, q, k, weights, scale, SPEC, OWN)


@pytest.mark.parametrize(
    "back, kind", [(0, "itself"), (1, "previous token"), (2, "2 tokens back"), (5, "5 tokens back")]
)
def test_a_head_that_looks_a_fixed_way_back_is_named_and_position_decides_it(back, kind):
    found = used(*looking(back))
    assert found.kind == kind and max(range(20), key=found.score.__getitem__) == back
    assert found.position > 0.999 and found.mass[back] > 0.5


def test_heads_that_look_at_the_start_at_everything_and_at_content():
    generator = torch.Generator().manual_seed(0)
    q, k = (torch.randn(2, LENGTH, 16, generator=generator) for _ in range(2))
    assert used(q, k, 1e-4).kind == "everything"
    assert used(rotated(q), rotated(k), 1.0).kind == "mixed"
    first = torch.zeros(2, LENGTH, 16)
    first[:, 0, 7] = 40.0  # of the slowest pair, which hardly rotates
    start = used(rotated(torch.ones(2, LENGTH, 16)), rotated(first))
    assert start.kind == "start" and start.start > 0.99 and start.content > 0.9
    slow = torch.cat([torch.zeros(2, LENGTH, 7), torch.ones(2, LENGTH, 1)], -1).repeat(1, 1, 2)
    found = used(rotated(q * slow), rotated(k * slow))  # 64 tokens are 0.02 of a radian
    assert (  # the rest is chance: far distances are means of a few products
        found.content > 0.95 and found.q_energy[:7] == (0.0,) * 7 and found.q_energy[7] == pytest.approx(2.0, rel=0.3)
    )
    fast = slow.flip(-1).roll(0)
    assert used(rotated(q * fast), rotated(k * fast)).both > 0.8  # content that is turned at every step
    assert found.position + found.content + found.both == pytest.approx(1.0)


def test_shares_are_those_of_the_variances_of_what_is_added():
    """Without a rotation all scores are content, and what their means at each distance explain is counted once more."""
    q, k = torch.randn(2, 2, LENGTH, 16, generator=torch.Generator().manual_seed(0)).unbind()
    scores = q.double() @ k.double().mT
    mean = by_distance(scores)
    sizes = [0.0, 0.0]
    for row in range(LENGTH):
        for i, x in enumerate((mean[: row + 1].flip(0).expand(2, -1), scores[:, row, : row + 1])):
            sizes[i] += float((x - x.mean(-1, keepdim=True)).square().sum())
    found = head_use(0, 0, q, k, torch.full((2, LENGTH, LENGTH), 1 / LENGTH), 1.0, None, None)
    share = pytest.approx(sizes[0] / (2 * sizes[0] + sizes[1]), rel=1e-9)
    assert (found.position, found.both) == (share, share)


def test_the_mean_at_each_distance():
    x = torch.arange(9.0).view(1, 3, 3)
    assert by_distance(x).tolist() == [4.0, 5.0, 6.0]


def test_a_study_names_what_the_weights_do_not_use_in_every_head(model, place):
    before = {name: tensor.clone() for name, tensor in (*model.state_dict().items(), *model.named_buffers())}
    told = []
    found = study(model, TOKENS[:8000], length=LENGTH, tell=lambda done, most: told.append((done, most)))
    after = dict((*model.state_dict().items(), *model.named_buffers()))
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert told == [(i, 16) for i in range(1, 17)]
    assert len(found.heads) == 4 and "position, content, both" in str(found)
    assert 256 <= found.trained.tokens < 512  # the length that it was trained for
    data = json.loads(json.dumps(found.to_dict()))
    assert len(data["heads"]) == 4 and len(data["heads"][0]["mass"]) == LENGTH
    none = study(unused(model, list(range(16))), TOKENS[:1000], length=LENGTH)
    assert not none.rotations[0].used
    assert "used:   none" in str(none) and "unused: 16 of 16 pairs: 0-15 (" in str(none)


def test_models_that_cannot_be_followed(model):
    model.config.rope_parameters["rope_theta"] = 100.0  # not what the running module has
    with pytest.raises(ValueError, match=r"model must rotate q and k as its config says: .*phasor doctor"):
        study(model, TOKENS, length=LENGTH)
    for other, message in (
        (torch.nn.Linear(2, 2), "model must be a transformers model with a config, got Linear"),
        (GPT2LMHeadModel(GPT2Config(**SMALL)).eval(), "gpt2 uses learned absolute positions; it has no"),
        (causal("gptj", rotary_dim=8), "model must form its cos and sin in one module with inv_freq, got 0 of them"),
        (causal("llama").model, "model must give the logits of the next token, and LlamaModel has no head for them"),
        (causal("llama").train(), r"model must be in evaluation mode.*model.eval\(\)"),
        (causal("llama", num_hidden_layers=1).eval(), None),
        (
            BidirectionalLlama(causal("llama").config).eval(),
            "BidirectionalLlama a token sees later ones; give a causal",
        ),
    ):
        if message is None:
            other.lm_head.weight.data.fill_(torch.nan)
            message = r"the loss of the model must be a number, got nan at 64 tokens; look for weights"
        with pytest.raises(ValueError, match=message) as error:
            study(other, TOKENS % 96, length=LENGTH)
        assert str(error.value).count("\n") == 0


def test_texts_that_do_not_do():
    model = causal("llama")
    for tokens, options, message in (
        (
            TOKENS[:100] % 96,
            {"length": 10_000},
            "tokens must be at least 20001 for two windows of 10000, got 100; give",
        ),
        (TOKENS[:100] % 96, {}, "tokens must be at least 1025 for two windows of 512, got 100; .* a shorter length"),
        (TOKENS, {"length": 32}, "tokens must be below the vocabulary of the model, 96, got 1"),
        (TOKENS[:90] % 96, {"length": 16}, "tokens must have at least 97 tokens, got 90"),
        (TOKENS[None], {"length": 16}, r"tokens must be whole numbers \[n\], got torch.int64 \[1, 16000\]"),
        ([1, 2], {"length": 16}, r"tokens must be whole numbers \[n\], got list"),
        (TOKENS % 96, {"length": 0}, "length must be an integer of at least 1, got 0"),
    ):
        with pytest.raises(ValueError, match=message):
            study(model, tokens, **options)


def test_a_model_that_memory_does_not_hold_is_refused_before_it_is_loaded(place, phasor, monkeypatch):
    monkeypatch.setattr("phasor.tools.doctor.memory.free_memory", lambda: 10**6)
    monkeypatch.setattr("phasor.tools.doctor.loading._loaded", None)
    code, _, err = phasor("study", place, "--text", TEXT)
    assert code == 2 and err.count("\n") == 1 and "977 KiB of memory are free; check" in err


def test_a_missing_tokenizer_is_said_in_one_line(place, tmp_path, phasor):
    copy = shutil.copytree(place, tmp_path / "m")
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "vocab_size": 32000}))
    code, _, err = phasor("study", copy, "--text", TEXT)
    assert code == 2 and err.count("\n") == 1 and "has no tokenizer that works" in err and "tokenizer.json" in err


@pytest.mark.parametrize(
    "count, rule", [(20, "tokens must be at least 33"), (60, "tokens must have at least 97 tokens")]
)
def test_a_text_that_is_too_short_is_named(place, tmp_path, phasor, count, rule):
    text = tmp_path / "short.txt"
    text.write_text("x" * count)
    code, _, err = phasor("study", place, "--text", text, "--length", "16")
    assert code == 2 and err.startswith(f"phasor: {text}: {rule}") and err.count("\n") == 1


class BidirectionalLlama(LlamaForCausalLM):
    """As some embedding models are: every token sees all."""

    def forward(self, input_ids, **options):
        return super().forward(input_ids, attention_mask=torch.zeros(1, 1, 1, input_ids.shape[1]), **options)


def test_the_command(place, tmp_path, phasor):
    text = tmp_path / "text.txt"
    text.write_bytes(TEXT.read_bytes()[:3000])
    code, out, err = phasor("study", place, "--text", text, "--length", "64")
    assert (
        code == 0
        and not err
        and "trained length, by the weights: about " in out
        and "|q|^2" in out
        and "looks at" in out
    )
    code, out, _ = phasor("study", place, "--text", text, "--length", "64", "--json")
    assert code == 0 and len(json.loads(out)["rotations"][0]["stopped"]) == 16
    code, _, err = phasor("study", tmp_path, "--text", TEXT)
    assert code == 2 and err.count("\n") == 1 and "config.json" in err
