"""phasor.patch(fuse_norm=True): norms of q and k run with the rotation, where that gives what the model gave."""

import copy
import pickle
import platform

import pytest
import torch

from phasor.rotary import kernels
from phasor.tools.patch import patch, unpatch
from phasor.tools.patch.norms import PENDING

from .models import SIZES, logits, tokens

transformers = pytest.importorskip("transformers")

# Elsewhere torch adds squares in another order than the C kernel, and results agree within rounding.
SAME_BITS = platform.machine().lower() in ("x86_64", "amd64") or kernels.native.MISSING
MODELS = {
    "Qwen3Config": ({"head_dim": 16}, "before_weight"),  # per head
    "Gemma3TextConfig": ({"head_dim": 16}, "1 + weight, rounding='between'"),
    "Olmo2Config": ({}, "rounding='between'"),  # all heads of a token together
    "Lfm2Config": ({}, "before_weight"),  # other names
}


def model_of(name, dtype=torch.float32, **more):
    torch.manual_seed(1)
    config = getattr(transformers, name)(**{**SIZES, **more})
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype).eval()
    with torch.no_grad():
        for path, parameter in model.named_parameters():
            if "norm" in path:
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model


@pytest.fixture
def calls(monkeypatch):
    """How often q and k were normalised and turned at once."""
    seen = []
    from phasor.tools.patch import norms

    own = norms.apply_qk_norm_rotary
    monkeypatch.setattr(norms, "apply_qk_norm_rotary", lambda *a, **k: (seen.append(1), own(*a, **k))[1])
    return seen


def rows_of(report):
    return [row for row in report.rows if "norm" in row.what]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", MODELS)
def test_the_logits_stay_what_they_were(name, dtype, calls):
    more, told = MODELS[name]
    model = model_of(name, dtype, **more)
    before = logits(model)
    report = patch(model, fuse_norm=True)
    compared = len(calls)
    after = logits(model)
    rows = rows_of(report)
    assert rows and all(row.replaced and told in row.spec for row in rows), str(report)
    assert len(calls) == compared + len(rows)
    if SAME_BITS:
        assert torch.equal(after, before) and {row.agreement for row in rows} == {"bit-equal, forwards"}
    else:
        assert (after - before).abs().max() <= 16 * torch.finfo(dtype).eps * before.abs().max()
    unpatch(model)
    assert torch.equal(logits(model), before) and len(calls) == compared + len(rows)


def test_it_must_be_asked_for(calls):
    model = model_of("Qwen3Config", head_dim=16)
    report = patch(model)
    logits(model)
    assert not rows_of(report) and not calls
    with pytest.raises(ValueError, match="fuse_norm must be True or False, got 1"):
        patch(model_of("Qwen3Config", head_dim=16), fuse_norm=1)


def test_gradients_are_those_of_the_model():
    """All of them, those of the norms' weights among them, within float32's rounding of the largest one."""
    ids, model = tokens(), model_of("Qwen3Config", head_dim=16)

    def gradients():
        model.zero_grad()
        model(ids, use_cache=False).logits.float().square().mean().backward()
        return {path: p.grad.clone() for path, p in model.named_parameters() if p.grad is not None}

    before = gradients()
    patch(model, fuse_norm=True)
    for path, grad in gradients().items():
        assert (grad - before[path]).abs().max() <= 1e-5 * before[path].abs().max(), path


@pytest.mark.parametrize(
    "name, more, reason",
    [
        ("HunYuanDenseV1Config", {"head_dim": 16}, "they do not stand right before the rotation"),
        ("CohereConfig", {"use_qk_norm": True}, "they are no RMSNorms of a kind that is known"),
    ],
)
def test_other_norms_stay_and_the_report_says_why(name, more, reason, calls):
    model = model_of(name, **more)
    before = logits(model)
    rows = rows_of(patch(model, fuse_norm=True))
    assert rows and all(row.reason.startswith(reason) for row in rows)
    calls.clear()
    assert torch.equal(logits(model), before) and not calls


def test_a_norm_with_a_hook_gives_what_it_gave(calls):
    """Whoever looks at a norm sees normalised heads; that layer runs in steps, the other one at once."""
    model, seen = model_of("Qwen3Config", head_dim=16), []
    before = logits(model)
    patch(model, fuse_norm=True)
    calls.clear()
    norm = model.model.layers[0].self_attn.q_norm
    norm.register_forward_hook(lambda module, given, result: seen.append((given[0], result)))
    assert torch.equal(logits(model), before) or not SAME_BITS
    assert len(calls) == 1 and not torch.equal(*seen[0])


def test_a_hook_on_all_modules_sees_what_the_norms_give(calls):
    model, seen = model_of("Qwen3Config", head_dim=16), []
    norm = model.model.layers[0].self_attn.q_norm
    patch(model, fuse_norm=True)
    calls.clear()
    look = torch.nn.modules.module.register_module_forward_hook
    hook = look(lambda module, given, result: seen.append((given[0], result)) if module is norm else None)
    with hook:
        logits(model)
    assert not calls and not torch.equal(*seen[0])


def test_a_norm_that_is_parametrized_later_runs_alone(calls):
    model = model_of("Qwen3Config", head_dim=16)
    other = copy.deepcopy(model)
    patch(model, fuse_norm=True)
    calls.clear()
    for one in (model, other):
        norm = one.model.layers[0].self_attn.q_norm
        torch.nn.utils.parametrize.register_parametrization(norm, "weight", torch.nn.Softplus())
    assert torch.equal(logits(model), logits(other)) or not SAME_BITS
    assert len(calls) == 1


@pytest.mark.parametrize("name, fuses", [("Qwen3Config", 0), ("Gemma3TextConfig", 1), ("Olmo2Config", 1)])
def test_under_autocast_it_is_what_the_model_does(name, fuses, calls):
    """Heads are bfloat16 and weights float32: a norm that multiplies by them last gives float32, and runs alone."""
    model = model_of(name, **MODELS[name][0])
    other = copy.deepcopy(model)
    patch(model, fuse_norm=True)
    calls.clear()
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(logits(model), logits(other)) or not SAME_BITS
    assert len(calls) == fuses * len(model.model.layers)


def test_an_epsilon_that_is_changed_later_counts():
    model = model_of("Qwen3Config", head_dim=16)
    changed = copy.deepcopy(model)
    patch(model, fuse_norm=True)
    for one in (model, changed):
        one.model.layers[0].self_attn.k_norm.variance_epsilon = 0.5
    assert torch.equal(logits(model), logits(changed))


def test_a_norm_that_is_called_alone_normalises():
    model = model_of("Qwen3Config", head_dim=16)
    norm, x = model.model.layers[0].self_attn.q_norm, torch.randn(2, 3, 16)
    before = norm(x)
    patch(model, fuse_norm=True)
    assert torch.equal(norm(x), before) and not PENDING.norms


def test_a_layer_that_forgets_to_rotate_is_an_error_and_not_a_wrong_number():
    model = model_of("Qwen3Config", head_dim=16)
    norms = (model.model.layers[0].self_attn.q_norm, model.model.layers[0].self_attn.k_norm)
    with pytest.raises(AssertionError, match="the model's code did not rotate"), PENDING.holding(norms):
        assert PENDING.leave(norms[0])
    assert not PENDING.norms and not PENDING.left and not PENDING.leave(norms[0])


@pytest.mark.parametrize("again", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_and_pickles_are_fused_too(again, calls):
    model = model_of("Qwen3Config", head_dim=16)
    patch(model, fuse_norm=True)
    before = logits(model)
    calls.clear()
    assert torch.equal(logits(again(model)), before) and len(calls) == 2


def test_a_model_on_the_meta_device_is_not_fused():
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(transformers.Qwen3Config(**SIZES, head_dim=16))
    rows = rows_of(patch(model, fuse_norm=True))
    assert rows and all("on the meta device" in row.reason for row in rows)


def test_compiled_code_keeps_the_steps_and_the_results(calls):
    model = model_of("Qwen3Config", head_dim=16)
    before = logits(model)
    patch(model, fuse_norm=True)
    calls.clear()
    torch.compiler.reset()
    compiled = torch.compile(model, backend="aot_eager")
    with torch.no_grad():
        after = compiled(tokens(), use_cache=False).logits
    assert not calls
    torch.testing.assert_close(after, before)
