"""One seam for what a tool is given: what was read or observed is taken as it is, a model is read, or observed."""

import pytest
import torch

import phasor
import phasor_lab
from eye.zoo import ZOO
from integrations.models import SIZES, causal
from phasor.models.rotary_of import rotary_of

transformers = pytest.importorskip("transformers")


class OwnConfig(transformers.LlamaConfig):
    model_type = "own_llama"


def own():
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(OwnConfig(**SIZES)).eval()


def test_a_row_reads_what_it_knows():
    model = causal("llama")
    assert rotary_of(model) == rotary_of(model.config) == phasor.read_config(model.config)
    assert "observed" not in rotary_of(model).sources.values()


def test_a_type_without_a_row_is_observed_and_the_result_says_so():
    rotary = rotary_of(own())
    assert rotary.sources == {"layers": "observed"} and len(rotary.layers) == 2
    read = phasor.read_config(transformers.LlamaConfig(**SIZES)).with_angles("float32")
    assert torch.equal(rotary.with_angles("exact").layers[0].inv_freq(), read.with_angles("exact").layers[0].inv_freq())


def test_a_module_without_a_config_is_observed_and_an_observation_is_not_made_again():
    case = ZOO["llama"]
    seen = phasor.observe(case.model(), case.inputs)
    assert rotary_of(seen) is seen.rotary is rotary_of(seen.rotary)
    assert rotary_of(case.model(), inputs=case.inputs).layers == seen.rotary.layers
    assert rotary_of(seen, "layers") is seen.rotary


def test_what_rotates_nothing_is_refused_with_what_there_is_instead():
    case = ZOO["alibi"]
    with pytest.raises(ValueError, match="must rotate q and k in a way that was shown: instead of a rotation: ALiBi"):
        rotary_of(phasor.observe(case.model(), case.inputs))
    with pytest.raises(ValueError, match=r"part must be one of the lists of layers that rotate, \['layers'\], got 'x'"):
        rotary_of(phasor.observe(ZOO["llama"].model(), ZOO["llama"].inputs), "x")


@pytest.mark.parametrize("given", [lambda m: m, phasor.observe], ids=["model", "observation"])
def test_tools_take_a_model_that_no_row_reads(given, tmp_path):
    model = own()
    source = given(model)
    folder = phasor.golden.write(source, tmp_path / "golden", positions=[0, 1, 100])
    assert phasor.golden.check(folder, folder).verdict == "right"
    from phasor.caches import LedgerCache

    ids = torch.arange(8)[None]
    with torch.no_grad():
        cached = model(ids, cache=LedgerCache(source)).logits
        assert torch.allclose(cached, model(ids).logits, atol=1e-5)
    uses = phasor_lab.study(source, torch.randint(64, (140,)), length=32)
    assert len(uses.rotations) == 1 and len(uses.rotations[0].wavelengths) == 8
