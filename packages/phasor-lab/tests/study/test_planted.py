"""Models made by hand, whose heads look where their biases say; pairs that training never saw rotate."""

import math

import pytest
import torch

pytest.importorskip("transformers")

import phasor
from integrations.models import causal
from phasor_lab.studying import study

LENGTH, HEAD = 64, 16
TOKENS = torch.randint(3, 96, (1000,), generator=torch.Generator().manual_seed(0))
STRONG = 12.0  # of q and of k: their product is divided by the root of the channels


def planted(family: str, kinds: list[str | int]) -> torch.nn.Module:
    """One layer whose heads look as many tokens back as ``kinds`` say, at the start, at everything, or at content.

    q and k are biases alone, but for content. Those of a distance are equal in every pair, with q rotated back by it;
    those of the start are opposite in a pair that makes less than half a turn in the window, so the score grows.
    """
    model = causal(
        family, num_hidden_layers=1, num_attention_heads=len(kinds), num_key_value_heads=len(kinds), head_dim=HEAD,
        hidden_size=HEAD * len(kinds), attention_bias=True, rope_theta=10_000.0,
    )  # fmt: skip
    attention, spec = model.model.layers[0].self_attn, phasor.read_config(model.config).layers[0]
    for head, kind in enumerate(kinds):
        rows = slice(head * HEAD, (head + 1) * HEAD)
        if kind == "content":
            for projection in (attention.q_proj, attention.k_proj):
                projection.weight.data[rows] *= 60.0
            continue
        q, k = _biases(kind, spec)
        for projection, bias in ((attention.q_proj, q), (attention.k_proj, k)):
            projection.weight.data[rows], projection.bias.data[rows] = 0.0, bias
    return model


def _biases(kind: str | int, spec: phasor.RotarySpec) -> tuple[torch.Tensor, torch.Tensor]:
    ones, zeros = torch.ones(1, 1, 1, HEAD), torch.zeros(1, 1, 1, HEAD)
    if kind == "everything":
        return zeros[0, 0, 0], zeros[0, 0, 0]
    if kind == "start":
        waves = 2 * math.pi / spec.inv_freq()
        pair = int((waves > 2 * LENGTH).nonzero()[0])
        slow = zeros.clone()
        slow[..., 2 * pair if spec.interleaved else pair] = 5 * STRONG
        return -slow[0, 0, 0], slow[0, 0, 0]
    back = phasor.rotate(ones, ones, torch.tensor([-int(kind)]), spec)[0]
    return STRONG * back[0, 0, 0], STRONG * ones[0, 0, 0]


@pytest.mark.parametrize("family", ["llama", "glm"])  # halves of whole heads; interleaved, half of the channels
def test_every_planted_head_is_named(family):
    kinds = [0, 1, 2, 3, 5, 9, 17, 25, "start", "everything", "content"]
    found = study(planted(family, kinds), TOKENS, length=LENGTH)
    words = {0: "itself", 1: "previous token", "content": "mixed", "start": "start", "everything": "everything"}
    assert [use.kind for use in found.heads] == [words.get(kind, f"{kind} tokens back") for kind in kinds]
    assert all(use.position > 0.999 for use in found.heads[:9]) and found.heads[10].content > 0.1


def test_pairs_that_never_rotate_are_named_unused():
    """p-RoPE stops the slower half of the pairs; the first half of GLM's channels are in pairs, the rest in none."""
    model = causal(
        "llama", rope_parameters={"rope_type": "proportional", "rope_theta": 100.0, "partial_rotary_factor": 0.5}
    )
    for parameter in model.parameters():
        parameter.data.mul_(6.0)
    found = study(model, TOKENS, length=LENGTH)
    (rotation,) = found.rotations
    assert rotation.unused == (4, 5, 6, 7) and rotation.stopped[4:] == (0.0,) * 4
    assert rotation.to_dict()["wavelengths"][4:] == [None] * 4 and "4-7 (wavelength ∞)" in str(found)
    found = study(causal("glm"), TOKENS, length=LENGTH)
    assert len(found.rotations[0].stopped) == 4 and "in no pair: 8 of 16 channels" in str(found)
