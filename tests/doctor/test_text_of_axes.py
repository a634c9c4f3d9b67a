"""Tables judged as in text, where all axes of a position agree: mistakes have names there, on several axes, too."""

import pytest
import torch

from phasor import read_config
from phasor.tools.doctor.against_config.rotary_module import Module
from phasor.tools.doctor.against_config.wrong_tables import _of_text
from phasor.tools.patch.reading import forward_specs

from .families import model_of, rotary_of


@pytest.mark.parametrize("family", ["llama", "qwen2_vl"])
def test_two_mistakes_at_once_are_wrong_without_a_name(family: str) -> None:
    """The config says YaRN over base 50,000; the module has the plain frequencies of base 500,000."""
    model = model_of(family)
    models = [read_config(model.config).with_angles("float32")]
    rotary = rotary_of(model)
    (spec,) = forward_specs(models)
    one = Module("rotary_emb", rotary, rotary, None, [spec], models)
    assert _of_text(one, spec) is None
    rotary.inv_freq = 500_000.0 ** (-torch.arange(0, spec.rotary_dim, 2) / spec.rotary_dim)
    finding = _of_text(one, spec)
    assert finding is not None and finding.verdict == "wrong" and finding.cause == "unknown"
