"""Tiny models of every type: the patched model makes of all inputs that it takes what the unpatched one makes of them.

Every stand-in is compared with the model's own code on the arguments of the real call, and with all angles five percent
off the results change, so the patch is what turns them.
"""

from collections import Counter
from dataclasses import asdict

import pytest
import torch

pytest.importorskip("transformers")

from conformance import tiny, walk
from conformance.kept import kept, sliced
from conformance.not_covered import LEFT, NOT_COVERED, OWN_TURNING
from phasor.tools.patch import patch, unpatch
from phasor.tools.patch.compare import difference_of
from phasor.tools.patch.report import UNLIKE

from .sweep import EQUAL, NOT_BUILT, OWN_TABLES, Fate, fate_of, outcome
from .traced import Call, Trace

# one of each kind: layouts, widths, axes, tables, calls, and where the rotary modules stand
FEW = (
    "cohere2", "deepseek_v2", "deepseek_v4", "dinov3_vit", "falcon", "gemma4_text", "gpt_neox", "gptj",
    "hunyuan_vl_text", "llama", "llama4_text", "minimax_m3_vl_vision", "modernbert", "muse_glimmer_assistant",
    "nanochat", "olmo2", "qwen2_vl", "roformer", "sam3_vit_model", "wav2vec2-bert", "zaya",
)  # fmt: skip
SOON = ("cohere2", "deepseek_v4", "gemma4_text", "gptj", "llama4_text", "qwen2_vl", "sam3_vit_model", "zaya")
SLICES = 24  # one test for all types would take longer than a single test may


def told(model_type: str) -> Fate:
    return Fate(
        **{k: v for k, v in kept("patch", model_type, lambda: asdict(fate_of(model_type))).items() if k != "of"}
    )


@pytest.mark.parametrize("model_type", [pytest.param(n, marks=[pytest.mark.slow] * (n not in SOON)) for n in FEW])
def test_a_few_types(model_type: str) -> None:
    fate = fate_of(model_type)
    assert fate.outcome in (EQUAL, OWN_TABLES), fate
    assert fate.unreached == [] and fate.inputs["usual"] == EQUAL
    assert [said for said in fate.inputs.values() if said != EQUAL and not said.startswith("not taken")] == []
    assert [why for why in fate.kept if why.endswith(UNLIKE)] == []


def test_a_last_bit_of_one_call_is_a_difference() -> None:
    """Whatever rounding makes of it later, in this model and on this machine."""
    model, trace, x = tiny.tiny_model("llama"), Trace(), torch.ones(3)
    report = patch(model)
    for name, other in (("tables", x), ("turns", x.nextafter(2 * x))):
        trace.calls[(name,)] = Call("LlamaAttention", name, ((3,),), difference_of(x, other))
    assert outcome(model, report, trace, {"usual": EQUAL}, {}, {}).startswith("DIFFERS in a call: LlamaAttention.turns")


def test_positions_in_a_buffer_that_took_the_dtype_of_the_model() -> None:
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
    assert all(torch.equal(a, b) for a, b in zip(tiny.outputs(model, rounded), after, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("start", range(SLICES))
def test_every_type_on_all_inputs(start: int) -> None:
    found = {name: told(name) for name in sliced(walk.model_types(), start, SLICES)}
    for name, fate in found.items():
        print(f"{name:40} {fate.outcome}; {', '.join(fate.inputs)}", flush=True)
    fine = (EQUAL, OWN_TABLES, NOT_BUILT)
    wrong = {n: f.outcome for n, f in found.items() if not f.outcome.startswith(fine) and n not in LEFT}
    assert wrong == {}
    assert all(LEFT[name] in fate.outcome for name, fate in found.items() if name in LEFT)


@pytest.mark.slow
def test_fewer_than_20_types_are_not_covered() -> None:
    """A type that cannot be built small counts as not covered, never as passed; and so does what no input reaches."""
    fates = {name: told(name) for name in walk.model_types()}
    counts = Counter(fate.outcome.partition(":")[0] for fate in fates.values())
    inputs = Counter((name, said.partition(":")[0]) for fate in fates.values() for name, said in fate.inputs.items())
    not_built = {name: fate.outcome for name, fate in fates.items() if fate.outcome.startswith(NOT_BUILT)}
    not_reached = {name: fate.unreached for name, fate in fates.items() if fate.unreached}
    print(f"\n{len(fates)} types: {dict(counts)}; {sum(fate.calls for fate in fates.values())} calls compared")
    print("\n".join(f"{name}: {said}: {n}" for (name, said), n in sorted(inputs.items())))
    print("\n".join(f"not covered: {n}: {NOT_COVERED.get(n, '')} ({said})" for n, said in not_built.items()))
    print("\n".join(f"not covered, not reached: {n}: {', '.join(said)}" for n, said in not_reached.items()))
    print("\n".join(f"the model's own: {n}: {why}" for n, f in fates.items() for why in dict.fromkeys(f.kept)))
    unlike = {name for name, fate in fates.items() if any(why.endswith(UNLIKE) for why in fate.kept)}
    assert unlike == OWN_TURNING.keys()
    assert not_built.keys() <= NOT_COVERED.keys() and not_reached == {}
    assert len(not_built) < 20
