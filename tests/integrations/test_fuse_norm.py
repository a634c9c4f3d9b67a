"""phasor.patch(fuse_norm=True): norms of q and k run with the rotation, where that gives what the model gave."""

import copy
import pickle
import platform

import pytest
import torch
from torch.nn.modules.module import register_module_forward_hook
from torch.nn.utils import parametrize

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


def qwen3():
    return model_of("Qwen3Config", head_dim=16)


def test_it_must_be_asked_for(calls):
    model = qwen3()
    report = patch(model)
    logits(model)
    assert not rows_of(report) and not calls
    with pytest.raises(ValueError, match="fuse_norm must be True or False, got 1"):
        patch(qwen3(), fuse_norm=1)


def test_gradients_are_those_of_the_model():
    """All of them, those of the norms' weights among them, within float32's rounding of the largest one."""
    ids, model = tokens(), qwen3()

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


def test_a_model_on_the_meta_device_is_not_fused():
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(transformers.Qwen3Config(**SIZES, head_dim=16))
    rows = rows_of(patch(model, fuse_norm=True))
    assert rows and all("on the meta device" in row.reason for row in rows)


def sees_heads(module, given, result):
    """Whoever looks at a norm sees normalised heads."""
    assert not torch.equal(given[0], result)


CHANGES = {  # what is done to a norm of the first layer, and how many of two layers run at once then
    "a hook": (lambda norm: norm.register_forward_hook(sees_heads), 1),
    "parametrized": (lambda norm: parametrize.register_parametrization(norm, "weight", torch.nn.Softplus()), 1),
    "another epsilon": (lambda norm: setattr(norm, "variance_epsilon", 0.5), 1),
    "nothing": (lambda norm: None, 2),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_norm_that_is_watched_or_changed_later_runs_alone(change, calls):
    model = qwen3()
    other, (change, fused) = copy.deepcopy(model), CHANGES[change]
    patch(model, fuse_norm=True)
    calls.clear()
    for one in (model, other):
        change(one.model.layers[0].self_attn.k_norm)
    assert torch.equal(logits(model), logits(other)) or not SAME_BITS
    assert len(calls) == fused


def test_hooks_on_all_modules_and_calls_of_a_norm_alone_see_what_it_gives(calls):
    model = qwen3()
    norm, x = model.model.layers[0].self_attn.q_norm, torch.randn(2, 3, 16)
    before = norm(x)
    patch(model, fuse_norm=True)
    assert torch.equal(norm(x), before) and not PENDING.norms
    calls.clear()
    with register_module_forward_hook(lambda m, given, result: sees_heads(m, given, result) if m is norm else None):
        logits(model)
    assert not calls


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


def test_a_layer_that_forgets_to_rotate_is_an_error_and_not_a_wrong_number():
    attention = qwen3().model.layers[0].self_attn
    norms = attention.q_norm, attention.k_norm
    with pytest.raises(AssertionError, match="the model's code did not rotate"), PENDING.holding(norms):
        assert PENDING.leave(norms[0])
    assert not PENDING.norms and not PENDING.left and not PENDING.leave(norms[0])


def test_copies_are_fused_and_compiled_code_is_not(calls):
    model = qwen3()
    patch(model, fuse_norm=True)
    before = logits(model)
    calls.clear()
    assert torch.equal(logits(pickle.loads(pickle.dumps(model))), before) and len(calls) == 2
    torch.compiler.reset()
    calls.clear()
    torch.testing.assert_close(logits(torch.compile(model, backend="eager")), before)
    assert not calls
