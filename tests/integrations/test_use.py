"""A patched model in use: generation, padding, attention kernels, compilation, copies, moves, training, saving."""

import copy
import pickle

import pytest
import torch

from phasor.tools.patch import patch, unpatch

from .models import causal, logits, tokens

pytest.importorskip("transformers")

STARTS = ["llama", "gemma3", "deepseek_v3"]


@pytest.mark.parametrize("family", STARTS)
@pytest.mark.parametrize("options", [{}, {"num_beams": 3}], ids=["greedy", "beams"])
def test_generation_with_a_cache_and_left_padding(family, options):
    model, ids = causal(family), tokens(2, 9)
    mask = torch.ones_like(ids)
    ids[0, :4], mask[0, :4] = 0, 0
    given = {"attention_mask": mask, "max_new_tokens": 6, "do_sample": False, "return_dict_in_generate": True}
    given |= {"output_logits": True, **options}
    before = model.generate(ids, **given)
    patch(model)
    after = model.generate(ids, **given)
    assert torch.equal(after.sequences, before.sequences)
    assert all(torch.equal(a, b) for a, b in zip(after.logits, before.logits, strict=True))


@pytest.mark.filterwarnings("ignore:_compile flag on create_block_mask:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile:UserWarning")
@pytest.mark.parametrize("kernel", ["eager", "flex_attention"])
def test_any_attention_implementation(kernel):
    """Also one that is chosen after the patch."""
    model = causal("llama", attn_implementation=kernel)
    with torch.compiler.set_stance("force_eager"):  # or transformers compiles flex_attention for 20 seconds
        before = logits(model)
        patch(model)
        assert torch.equal(logits(model), before)
        model.set_attn_implementation("sdpa")
        ours = logits(model)
        unpatch(model)
        assert torch.equal(ours, logits(model))


@pytest.mark.parametrize(
    "family, angles",
    [("gemma3", "float32"), *(pytest.param("llama", a, marks=pytest.mark.slow) for a in ("exact", "float32"))],
)
def test_compiles_in_one_graph_and_once(family, angles):
    from torch._dynamo.testing import CompileCounter

    torch._dynamo.reset()
    model = causal(family)
    plain = logits(model)
    patch(model, angles=angles)
    eager = logits(model)
    counted = CompileCounter()
    compiled = torch.compile(model, fullgraph=True, backend=counted, dynamic=False)
    for _ in range(3):
        assert torch.equal(logits(compiled), eager)
    assert counted.frame_count == 1
    unpatch(model)
    assert torch.equal(logits(compiled), plain)  # what was compiled notices that the classes changed
    torch._dynamo.reset()


@pytest.mark.parametrize(
    "family", ["gemma3", *(pytest.param(f, marks=pytest.mark.slow) for f in ("llama", "deepseek_v3"))]
)
@pytest.mark.parametrize("angles", ["float32", "exact"])
@pytest.mark.parametrize("again", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["deepcopy", "pickle"])
def test_copies_are_patched_and_independent(family, angles, again):
    model = causal(family)
    plain = logits(model)
    patch(model, angles=angles)
    ours = logits(model)
    other = again(model)
    assert torch.equal(logits(other), ours)
    assert type(other.get_submodule("model.rotary_emb")) is type(model.get_submodule("model.rotary_emb"))
    unpatch(other)
    assert torch.equal(logits(other), plain)
    assert torch.equal(logits(model), ours)  # still patched
    for parameter, copied in zip(model.parameters(), other.parameters(), strict=True):
        assert parameter is not copied


def test_moves_to_another_dtype_keep_the_frequencies():
    """`.to(bfloat16)` rounds the model's own buffers and with them every angle; phasor's are not in a buffer."""
    model, loaded = causal("llama"), causal("llama", dtype=torch.bfloat16)
    patch(model)
    model.to(torch.bfloat16)
    assert model.model.rotary_emb.inv_freq.dtype == torch.bfloat16
    loaded.load_state_dict(model.state_dict())
    assert torch.equal(logits(model), logits(loaded))


@pytest.mark.parametrize("family", ["deepseek_v3", *(pytest.param(f, marks=pytest.mark.slow) for f in STARTS[:2])])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_training_steps_have_equal_gradients(family, checkpointing):
    losses, gradients = [], []
    for patched in (False, True):
        model = causal(family).train()
        if checkpointing:
            model.activation_checkpointing_enable()
        if patched:
            patch(model)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        for _ in range(3):
            torch.manual_seed(0)
            loss = model(tokens(), labels=tokens(), use_cache=False).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
        gradients.append([None if p.grad is None else p.grad for p in model.parameters()])
    assert losses[0] == losses[1]
    for plain, ours in zip(*gradients, strict=True):
        assert (plain is None and ours is None) or torch.equal(plain, ours)


@pytest.mark.parametrize("family", STARTS)
def test_saved_and_loaded_again(family, tmp_path):
    transformers = pytest.importorskip("transformers")
    model = causal(family)
    names, plain = list(model.state_dict()), logits(model)
    patch(model)
    assert list(model.state_dict()) == names
    model.save_pretrained(tmp_path)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert all(not hasattr(type(m), "_phasor_original") for m in loaded.modules())
    assert torch.equal(logits(loaded), plain)
    patch(loaded)
    loaded.load_state_dict(model.state_dict())
    assert torch.equal(logits(loaded), plain)


def test_a_persistent_buffer_stays_in_the_state_dict():
    """ESM keeps its frequencies in its checkpoints."""
    transformers = pytest.importorskip("transformers")
    config = transformers.EsmConfig(
        vocab_size=33, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        position_embedding_type="rotary", pad_token_id=1, mask_token_id=32, token_dropout=False,
    )  # fmt: skip
    model = transformers.EsmModel(config, add_pooling_layer=False).eval()
    ids = torch.randint(4, 30, (2, 9))
    with torch.no_grad():
        before = model(ids).last_hidden_state
    state = {name: value.clone() for name, value in model.state_dict().items()}
    assert any(name.endswith("inv_freq") for name in state)
    report = patch(model)
    assert report.replaced == len(report.rows) == 2
    assert all(torch.equal(state[name], value) for name, value in model.state_dict().items())
    model.load_state_dict(state)
    with torch.no_grad():
        assert torch.equal(model(ids).last_hidden_state, before)


def test_hooks_and_training_mode_stay():
    model, seen = causal("llama"), []
    model.model.rotary_emb.register_forward_hook(lambda *_: seen.append("rotary"))
    patch(model)
    model.model.layers[1].self_attn.register_forward_hook(lambda *_: seen.append("attention"))
    logits(model)
    assert seen == ["rotary", "attention"]
    model.train()
    unpatch(model)
    assert model.model.rotary_emb.training
    logits(model)
    assert seen == ["rotary", "attention"] * 2
