"""phasor.patch: the same logits, the same objects back, one instance only, and a report that says what happened."""

import copy
import inspect
import sys

import pytest
import torch
from torch import nn

from phasor.rotary.kernels import Reference
from phasor.support.findings import merged
from phasor.tools.patch import patch, unpatch
from phasor.tools.patch.rotate_function import RotateFunction

from .models import FAMILIES, causal, logits, tokens

pytest.importorskip("transformers")


def everything(model: nn.Module) -> dict[str, tuple]:
    """Each module: the object, its class, and the objects in it."""
    return {path: (m, type(m), tuple(vars(m)), *vars(m).values()) for path, m in model.named_modules()}


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_stay_bit_for_bit(family):
    model = causal(family)
    before = logits(model)
    report = patch(model)
    assert {row.agreement for row in report.rows if row.replaced} == {"bit-equal"}
    assert sum(row.what.startswith("tables") for row in report.rows if row.replaced) >= 1
    assert sum(row.what.startswith("apply") for row in report.rows if row.replaced) == 2, str(report)
    assert torch.equal(logits(model), before)


def test_the_kernel_that_is_named_turns(monkeypatch):
    """In the comparison and in the model; an unknown name is refused before anything is compared."""
    model, names = causal("llama"), []
    rotate = Reference.rotate
    monkeypatch.setattr(Reference, "rotate", lambda self, *given: (names.append(self.name), rotate(self, *given))[1])
    before = logits(model)
    with pytest.raises(ValueError, match="kernel must be 'auto' or one of"):
        patch(model, kernel="fastest")
    report = patch(model, kernel="reference")
    compared = len(names)
    assert compared > 0
    assert torch.equal(logits(model), before)
    assert len(names) == compared + sum(row.what.startswith("apply") for row in report.rows if row.replaced)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_rotation_is_formed_once_for_all_layers(mode, dtype, monkeypatch):
    model, formed = causal("llama", dtype=dtype), []
    with mode():
        before = model(tokens()).logits
        patch(model)
        of = RotateFunction._formed
        monkeypatch.setattr(RotateFunction, "_formed", lambda *a, **b: (formed.append(1), of(*a, **b))[1])
        assert torch.equal(model(tokens()).logits, before)
    assert len(formed) == 1 < model.config.num_hidden_layers


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_tables_that_a_layer_writes_to_are_seen_by_the_next(mode):
    model = causal("llama")
    patch(model)

    def negated(module, args, kwargs):
        kwargs["position_embeddings"][1].neg_()

    with mode():
        plain = model(tokens()).logits
        model.model.layers[1].register_forward_pre_hook(negated, with_kwargs=True)
        moved = model(tokens()).logits
        unpatch(model)
        assert torch.equal(moved, model(tokens()).logits) and not torch.equal(moved, plain)


def test_tables_that_learn_pass_their_gradient_though_a_rotation_of_them_was_kept():
    model, (q, k) = causal("llama"), torch.randn(2, 1, 2, 3, 16)
    patch(model)
    rotate = inspect.unwrap(type(model.model.layers[0].self_attn).forward).__globals__["apply_rotary_pos_emb"]
    cos, sin = torch.randn(2, 1, 3, 16)
    with torch.no_grad():
        rotate(q, k, cos, sin)
    cos.requires_grad_()
    assert torch.autograd.grad(rotate(q, k, cos, sin)[0].sum(), cos)[0].any()


def test_what_a_named_kernel_cannot_rotate_is_left_by_that_reason():
    report = patch(causal("deepseek_v3"), kernel="onnx")
    row = next(row for row in report.rows if row.what == "apply_rotary_pos_emb_interleave")
    assert row.reason.startswith("kernel='onnx' cannot rotate these: ") and "written as halves" in row.reason
    assert not row.replaced and row.verdict == "not shown"
    other = next(row for row in report.rows if row.what == "apply_rotary_pos_emb")  # not called by this config
    assert other.reason == "it does not rotate q and k as the config says; apply_rotary_pos_emb_interleave does"


def test_a_wrong_config_is_found_before_anything_is_replaced():
    model = causal("llama")
    before = logits(model)
    model.config.rope_parameters["rope_theta"] = 12_345.0
    report = patch(model)
    (tables,) = (row for row in report.rows if row.what == "tables")
    assert (tables.replaced, tables.reason) == (False, "phasor forms other values from its config")
    assert tables.agreement.startswith("max difference ")
    assert report.replaced == 0 and torch.equal(logits(model), before)


def test_an_application_that_the_config_does_not_describe_is_left_alone(monkeypatch):
    module = sys.modules[type(causal("llama")).__module__]
    own = module.apply_rotary_pos_emb
    monkeypatch.setattr(module, "apply_rotary_pos_emb", lambda q, k, cos, sin, unsqueeze_dim=1: own(q, k, cos, -sin))
    model = causal("llama")
    before = logits(model)
    report = patch(model)
    reasons = {row.reason for row in report.rows if row.what == "apply_rotary_pos_emb"}
    assert reasons == {"it does not rotate q and k as the config says"}
    assert torch.equal(logits(model), before)


def test_only_the_given_instance_changes():
    one, other = causal("llama"), causal("llama")
    before = everything(other)
    module = sys.modules[type(one).__module__]
    function, forward = module.apply_rotary_pos_emb, module.LlamaAttention.forward
    patch(one)
    assert everything(other) == before
    assert module.apply_rotary_pos_emb is function and module.LlamaAttention.forward is forward
    assert type(one.model.rotary_emb) is not type(other.model.rotary_emb)
    assert isinstance(one.model.layers[0].self_attn, module.LlamaAttention)


@pytest.mark.parametrize("family", ["llama", "gemma3", "deepseek_v3"])
def test_unpatch_gives_the_same_objects_back(family):
    model = causal(family)
    before = everything(model)
    patch(model)
    logits(model)
    unpatch(model)
    assert everything(model) == before


def test_exact_angles_and_how_far_the_logits_move():
    model = causal("llama")
    positions = torch.arange(100_000, 100_017).expand(2, -1)
    inputs = {"input_ids": tokens(), "position_ids": positions}
    before = logits(model, **{"position_ids": positions})
    report = patch(model, angles="exact", compare=inputs)
    moved = (logits(model, position_ids=positions) - before).abs().max().item()
    assert report.shift is not None and report.shift.largest == pytest.approx(moved)
    assert 1e-6 < moved < 0.1  # float32 angles are wrong by 1e-2 at 100000, and relative to each other by less
    assert "exact angles; logits move by at most" in str(report)
    assert "exact angles move it by" in report.rows[0].agreement
    assert report.logit_shift(inputs) == report.shift
    near = report.logit_shift(tokens())
    assert 0 < near.largest < moved
    unpatch(model)
    with pytest.raises(ValueError, match="the model is no longer as this report describes it; patch it again"):
        report.logit_shift(inputs)


def test_the_share_of_tokens_with_another_prediction():
    """Far away float32 angles are off by whole quarter turns, and another token comes out at some positions."""
    model = causal("llama")
    for layer in model.model.layers:  # so that attention decides
        for projection in (layer.self_attn.q_proj, layer.self_attn.k_proj, layer.self_attn.o_proj):
            projection.weight.data *= 20
    inputs = {"input_ids": tokens(), "position_ids": torch.arange(2**28, 2**28 + 17).expand(2, -1)}
    before = logits(model, position_ids=inputs["position_ids"])
    report = patch(model, angles="exact", compare=inputs)
    after = logits(model, position_ids=inputs["position_ids"])
    pairs = zip(before.flatten(0, -2), after.flatten(0, -2), strict=True)
    share = sum(int(a.argmax()) != int(b.argmax()) for a, b in pairs) / 34
    assert 0 < share < 1 and report.shift.changed == pytest.approx(share)
    assert report.shift.mean == pytest.approx((after - before).abs().mean().item(), rel=1e-4)


def test_with_the_models_own_angles_nothing_moves_and_what_is_frozen_stays_so():
    model = causal("llama").train()
    model.model.layers[0].eval()
    before = {path: module.training for path, module in model.named_modules()}
    shift = patch(model, compare=tokens()).shift
    assert (shift.largest, shift.mean, shift.changed) == (0.0, 0.0, 0.0)
    assert {path: module.training for path, module in model.named_modules()} == before


@pytest.mark.parametrize(
    "inputs, error, says",
    [
        ("hello", ValueError, "inputs must be token ids .* or a dictionary of keyword arguments, got str"),
        ({"input_ids": torch.tensor([[10_000]])}, IndexError, "index out of range"),
    ],
)
def test_inputs_that_do_not_fit_leave_the_model_as_it_was(inputs, error, says):
    model = causal("llama")
    before = everything(model)
    with pytest.raises(error, match=says):
        patch(model, compare=inputs)
    assert everything(model) == before


def test_the_report_prints_one_line_for_equal_layers(monkeypatch):
    monkeypatch.setenv("COLUMNS", "0")
    monkeypatch.setattr("os.get_terminal_size", no_terminal)
    report = patch(causal("gemma3"))
    lines = str(report).splitlines()
    assert [line.split()[0] for line in lines[2:-1]] == [
        "model.rotary_emb", "model.rotary_emb", "model.layers.0.self_attn", "model.layers.1.self_attn",
    ]  # fmt: skip
    assert "base 1000000" in lines[2] and "base 10000," in lines[3]
    assert "base 10000," in lines[4] and "base 1000000" in lines[5]  # each layer with its own spec
    assert lines[-1] == "4 of 4 replaced, float32 angles"
    same = str(patch(causal("llama"))).splitlines()
    assert same[3].split()[:2] == ["model.layers.0-1.self_attn", "apply_rotary_pos_emb"]
    assert same[3].endswith("bit-equal  apply_rotary  yes")


def no_terminal(*_):
    raise OSError


@pytest.mark.parametrize("columns", [70, 80, 120])
def test_the_report_is_folded_to_the_width_of_the_terminal(columns, monkeypatch):
    report = patch(causal("llama"))
    monkeypatch.setenv("COLUMNS", str(columns))
    head, dashes, *lines, last = str(report).splitlines()
    assert max(map(len, [head, dashes, *lines])) <= columns and last == "3 of 3 replaced, float32 angles"
    starts = [0, *(i + 2 for i in range(columns) if dashes[i : i + 2] == "  ")]
    ends = [*(start - 2 for start in starts[1:]), columns]
    text = ["".join(line[a:b] for line in lines).replace(" ", "") for a, b in zip(starts, ends, strict=True)]
    cells = [row.cells() for row in merged(report.rows)]  # nothing is lost
    assert text == ["".join(column).replace(" ", "") for column in zip(*cells, strict=True)]


def test_a_patched_model_prints_its_specs():
    model = causal("llama")
    patch(model)
    assert "all 16 channels, halves, base 500000" in repr(model.model.rotary_emb)


def test_a_model_on_the_meta_device():
    real, inputs = causal("llama"), tokens()
    before = logits(real, inputs)
    with torch.device("meta"):
        model = causal("llama")
    report = patch(model)
    assert report.replaced == 3 and {row.agreement for row in report.rows} == {"bit-equal"}
    model.to_empty(device="cpu")
    for name, parameter in real.state_dict().items():
        model.get_parameter(name).data.copy_(parameter)
    assert torch.equal(logits(model, inputs), before)  # its own frequencies were lost, and are not needed


def test_whatever_device_the_caller_makes_tensors_on():
    real = causal("llama")
    before = logits(real)
    with torch.device("meta"):
        reports = patch(real), patch(causal("llama"))
    assert [(report.replaced, report.rows[0].agreement) for report in reports] == [(3, "bit-equal")] * 2
    assert torch.equal(logits(real), before)


def test_longrope_chooses_by_the_largest_position_of_a_call():
    rope = {
        "rope_type": "longrope", "rope_theta": 10_000.0, "short_factor": [1.0 + i / 8 for i in range(8)],
        "long_factor": [2.0 + i for i in range(8)], "original_max_position_embeddings": 32,
    }  # fmt: skip
    model = causal("llama", rope_parameters=rope)
    calls = [torch.arange(length).expand(2, -1) + first for length, first in ((8, 0), (40, 0), (8, 24), (8, 25))]
    before = [logits(model, tokens(*at.shape), position_ids=at) for at in calls]
    assert patch(model).replaced == 3
    for at, own in zip(calls, before, strict=True):
        assert torch.equal(logits(model, tokens(*at.shape), position_ids=at), own)


def test_what_is_no_rotation_is_left_and_the_report_says_so():
    """V-JEPA 2, whose own code does not keep norms."""
    import transformers

    config = transformers.VJEPA2Config(
        hidden_size=64, num_attention_heads=2, num_hidden_layers=1, crop_size=32, pred_hidden_size=64,
        pred_num_attention_heads=2, pred_num_hidden_layers=1, pred_num_mask_tokens=1, frames_per_clip=4,
    )  # fmt: skip
    report = patch(transformers.VJEPA2Model(config))
    assert [row.path for row in report.rows] == ["encoder.layer.0.attention", "predictor.layer.0.attention"]
    for row in report.rows:
        assert (
            not row.replaced and "no rotation: cos and sin in the order of halves meet interleaved pairs" in row.reason
        )
        assert "norms are not kept" in row.reason


def test_dynamic_ntk_is_refused_with_the_reason():
    model = causal("llama", rope_parameters={"rope_type": "dynamic", "rope_theta": 10_000.0, "factor": 2.0})
    before = logits(model)
    report = patch(model)
    assert report.rows[0].reason.startswith("its frequencies depend on the lengths of earlier calls")
    assert report.replaced == 2  # q and k are turned by phasor, by the model's own tables
    assert report.summary() == "2 of 3 replaced, angles from the model's own tables"
    assert torch.equal(logits(model), before)
    grown = logits(model, position_ids=torch.arange(1000, 1017).expand(2, -1))
    unpatch(model)
    assert torch.equal(grown, logits(model, position_ids=torch.arange(1000, 1017).expand(2, -1)))


def test_a_module_that_something_else_has_taken_is_left_alone():
    model = causal("llama")
    model.model.rotary_emb.forward = model.model.rotary_emb.forward  # as accelerate's device hooks do
    report = patch(model)
    assert report.rows[0].reason == "its forward was replaced by something else (device hooks do that)"


def test_a_class_put_on_top_must_go_first():
    model = causal("llama")
    patch(model)
    attention = model.model.layers[0].self_attn
    ours = type(attention)
    attention.__class__ = type("Sharded", (ours,), {"__module__": "elsewhere"})
    with pytest.raises(ValueError, match="patched LlamaAttention under a class made by elsewhere; undo that one first"):
        unpatch(model)
    attention.__class__ = ours
    unpatch(model)


class Toy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2)


def test_errors():
    transformers = pytest.importorskip("transformers")
    with pytest.raises(ValueError, match=r"the model could not be run: NotImplementedError.*; give inputs="):
        patch(Toy())
    with pytest.raises(ValueError, match=r"got DataParallel; of a wrapper \(DataParallel\) give the model inside"):
        patch(nn.DataParallel(causal("llama")))
    with pytest.raises(ValueError, match=r"model must be a torch module, got str"):
        patch("meta-llama/Llama-3.2-1B")
    gpt2 = transformers.GPT2Model(transformers.GPT2Config(vocab_size=8, n_embd=8, n_layer=1, n_head=1))
    with pytest.raises(ValueError, match="model must have a rotary embedding, and no module of this GPT2Model has one"):
        patch(gpt2)
    model = causal("llama")
    with pytest.raises(ValueError, match=r"angles must be 'float32' .* or 'exact', got 'float16'"):
        patch(model, angles="float16")
    with pytest.raises(ValueError, match="model must be patched to be unpatched, and no module of this Llama"):
        unpatch(model)
    with pytest.raises(ValueError, match="model must be a torch module that was patched, got NoneType"):
        unpatch(None)
    patch(model)
    with pytest.raises(ValueError, match=r"model is patched already; call phasor.unpatch\(model\) first"):
        patch(model)
    with pytest.raises(ValueError, match="model is patched already"):
        patch(copy.deepcopy(model))


def test_tables_of_another_kind_of_layer_are_not_taken_over():
    """A Gemma 3 whose local and global layers have each other's frequencies: wrong, though some layer has them so."""
    transformers = pytest.importorskip("transformers")
    config = transformers.Gemma3TextConfig(
        hidden_size=32, num_attention_heads=2, num_key_value_heads=1, head_dim=16, num_hidden_layers=2,
        intermediate_size=32, vocab_size=64, sliding_window=8, layer_types=["sliding_attention", "full_attention"],
        max_position_embeddings=64,
    )  # fmt: skip
    model = transformers.Gemma3ForCausalLM(config).eval()
    rotary = model.model.rotary_emb
    assert {row.what for row in patch(model).rows if row.replaced} >= {"tables: full_attention"}
    unpatch(model)
    local, full = (f"{kind}_attention_inv_freq" for kind in ("sliding", "full"))
    exchanged = {local: getattr(rotary, full).clone(), full: getattr(rotary, local).clone()}
    for name, value in exchanged.items():
        setattr(rotary, name, value)
    rows = [row for row in patch(model).rows if row.what.startswith("tables")]
    assert len(rows) == 2 and not any(row.replaced for row in rows) and all(row.reason for row in rows)
