"""Tiny models of every type that can be built small: logits of the patched model equal those of the unpatched one.

With all angles five percent off the results change, so the patch is what turns them.
"""

import dataclasses

import pytest
import torch

from phasor.integrations import patch, unpatch
from phasor.integrations.plan import Plan

pytest.importorskip("transformers")

from conformance import tiny, walk

# one of each kind: layouts, widths, axes, tables, calls, and where the rotary modules stand
FEW = (
    "cohere2", "deepseek_v32", "deepseek_v4", "falcon", "gemma4_text", "gpt_neox", "gpt_oss", "gptj",
    "glm4v_text", "hunyuan_vl_text", "llama4_text", "minimax_m3_vl_vision", "mistral4", "modernbert",
    "nanochat", "olmo", "qwen3_5_text", "roformer", "sam3_vit_model", "stablelm", "zaya",
)  # fmt: skip

# Their own tables are complex numbers, which PyTorch forms by another function: the last bit of cos and sin differs.
ROUNDED = {"llama4_text": 1e-5, "llama4": 1e-5, "deepseek_v2": 1e-5}
# phasor turns, but what forms the angles is a fixed table and no rotary module: no angle to change.
OWN_TABLES = {"gptj", "codegen", "roformer"}


def wrong(plan: Plan, tables):
    return dataclasses.replace(tables, spec=tables.spec.replace(position_scale=1.05))


def compared(model_type: str, monkeypatch) -> str:
    """What became of one type: "equal", "no effect", or the largest difference."""
    model = tiny.tiny_model(model_type)
    inputs = tiny.tiny_inputs(model)
    before = seeded(model, inputs)
    report = patch(model)
    after = seeded(model, inputs)
    unpatch(model) if report.replaced else None
    if difference := largest(before, after, ROUNDED.get(model_type, 0.0)):
        return f"differs by {difference}"
    if not report.replaced:
        return f"not replaced: {report.rows[0].reason}"
    if not any(row.replaced and row.what.startswith("tables") for row in report.rows):
        return "equal" if model_type in OWN_TABLES else f"tables not replaced: {report.rows[0].reason}"
    with monkeypatch.context() as changed:
        changed.setattr(Plan, "_chosen", wrong)
        patch(model)
    return "equal" if largest(before, seeded(model, inputs)) else "no effect"


def seeded(model, inputs):
    torch.manual_seed(0)
    return tiny.outputs(model, inputs)


def largest(before, after, allowed=0.0):
    assert len(before) == len(after) > 0
    found = [(a.double() - b.double()).abs().nan_to_num().max().item() for a, b in zip(before, after, strict=True)]
    return max(found) if max(found) > allowed else 0.0


@pytest.mark.parametrize("model_type", FEW)
def test_a_few_types(model_type, monkeypatch):
    assert compared(model_type, monkeypatch) == "equal"


def test_positions_in_a_buffer_that_took_the_dtype_of_the_model():
    """SAM 3 keeps the scaled positions of its global layers as real numbers, which ``.to`` rounds for both."""
    model = tiny.tiny_model("sam3_vit_model")
    inputs = tiny.tiny_inputs(model)
    patch(model)
    model.to(torch.bfloat16)
    rounded = {name: value.bfloat16() for name, value in inputs.items()}
    after = tiny.outputs(model, rounded)
    unpatch(model)
    for module in model.modules():  # the model's own frequencies were rounded as well
        if hasattr(module, "original_inv_freq"):
            module.inv_freq = module.compute_axial_rope_parameters(module.config)[0]
    assert largest(tiny.outputs(model, rounded), after) == 0.0


FATES: dict[str, str] = {}
SLICES = 24  # one test for all types would take longer than a single test may


@pytest.mark.slow
@pytest.mark.parametrize("start", range(SLICES))
def test_all_types_that_can_be_built_small(start, monkeypatch):
    found = {}
    for model_type in sorted(walk.model_types())[start::SLICES]:
        try:
            model = tiny.tiny_model(model_type)
            tiny.outputs(model, tiny.tiny_inputs(model))
        except Exception as error:
            found[model_type] = f"not built: {type(error).__name__}: {str(error).splitlines()[0]:.100}"
        else:
            found[model_type] = compared(model_type, monkeypatch)
        print(f"{model_type:40} {found[model_type]}", flush=True)
    FATES.update(found)
    assert not {name: fate for name, fate in found.items() if fate.startswith(("differs", "no effect"))}


@pytest.mark.slow
def test_at_least_130_types_are_patched_with_equal_results():
    """Of the tests above, which must have run."""
    if len(FATES) < len(walk.model_types()):
        pytest.skip("needs all tests of test_all_types_that_can_be_built_small before it")
    equal = [name for name, fate in FATES.items() if fate == "equal"]
    print(f"{len(equal)} of {len(FATES)} types patched with equal results")
    assert len(equal) >= 130
    assert sum(fate.startswith("not built") for fate in FATES.values()) <= 95
