import pytest
import torch
from torch import nn

from phasor_lab.lab import ENCODINGS, Decoder, ModelConfig

SMALL = {"layers": 2, "dim": 16, "heads": 2, "length": 16}


ORDERLESS = ("none", "tempered")  # whose first layer sees a bag of bytes


def model(encoding: str, **changes: object) -> Decoder:
    torch.manual_seed(0)
    made = Decoder(ModelConfig(encoding=encoding, **{**SMALL, **changes})).double().eval()
    for parameter in made.encodings.parameters():
        if not parameter.any():  # as before training
            nn.init.normal_(parameter)
    return made


@pytest.mark.parametrize("encoding", ENCODINGS)
@torch.no_grad()
def test_a_byte_changes_no_logits_before_it_and_some_after(encoding):
    tokens = torch.randint(0, 256, (1, 16))
    changed = tokens.clone()
    changed[0, 7] += 1 - 2 * (changed[0, 7] == 255)
    before, after = model(encoding)(tokens)[0], model(encoding)(changed)[0]
    torch.testing.assert_close(before[:7], after[:7])
    assert (before[7:] - after[7:]).abs().amax(-1).min() > 1e-9


@pytest.mark.parametrize("encoding", ENCODINGS)
@torch.no_grad()
def test_only_an_encoding_lets_the_first_layer_tell_orders_apart(encoding):
    # With one layer and no encoding, the last byte attends to a bag of bytes: the order of the others cannot matter.
    one = model(encoding, layers=1)
    tokens = torch.randint(0, 256, (1, 12))
    shuffled = torch.cat((tokens[:, :11].flip(1), tokens[:, 11:]), dim=1)
    difference = (one(tokens)[0, -1] - one(shuffled)[0, -1]).abs().max()
    assert (difference < 1e-14) if encoding in ORDERLESS else (difference > 1e-10)


@pytest.mark.parametrize("encoding", ["sinusoidal", "cape"])
@torch.no_grad()
def test_sines_do_not_drown_the_bytes(encoding):
    """Bytes of deviation 0.02 times the root of the width (Vaswani et al. 2017, section 3.4; CAPE's is the same)."""
    seen, made = [], model(encoding, dim=256)
    made.layers[0].register_forward_pre_hook(lambda layer, given: seen.append(given[0]))
    made(torch.tensor([[5], [9]]))
    bytes_apart = made.embed_tokens.weight[[5, 9]].diff(dim=0) * 16
    torch.testing.assert_close(seen[0][:, 0].diff(dim=0), bytes_apart)


def test_every_encoding_starts_from_the_same_weights():
    common = model("none").state_dict()
    for encoding in ENCODINGS:
        weights = model(encoding).state_dict()
        assert all(torch.equal(weights[name], tensor) for name, tensor in common.items())


def test_the_number_of_weights_is_that_of_llama():
    # embedding + layers (q, k, v, o, SwiGLU, two norms) + norm, with grouped keys and a tied output
    d, hidden, kv = 96, 256, 48
    layer = 2 * d * d + 2 * d * kv + 3 * d * hidden + 2 * d
    config = ModelConfig(layers=3, dim=d, heads=4, kv_heads=2)
    assert config.hidden == hidden
    assert sum(p.numel() for p in Decoder(config).parameters()) == 256 * d + 3 * layer + d


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"encoding": "rope"}, "encoding must be 'rotary', 'alibi', 't5', .*, got 'rope'"),
        ({"dim": 20, "heads": 4}, "dim must be a multiple of 2 heads = 8 .*, got 20"),
        ({"heads": 2, "kv_heads": 3}, "kv_heads must divide heads = 2, got 3"),
        ({"layers": 0}, "layers must be an integer of at least 1, got 0"),
        ({"base": 1.0}, "base must be a finite number above 1, got 1.0"),
    ],
)
def test_a_bad_architecture_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        ModelConfig(**{**SMALL, **changes})
