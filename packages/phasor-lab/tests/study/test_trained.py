"""The length that a model was trained for: from losses that are known, and from trained weights whose config lies."""

import pytest
import torch

pytest.importorskip("transformers")

from transformers import AutoModelForCausalLM

from doctor.declared import HERE, TRUE, folder
from phasor_lab.running.model import RunningModel
from phasor_lab.studying.trained import LONGEST, RISE, STEPS, trained_length

TOKENS = torch.tensor(list((HERE / "held_out.txt").read_bytes()))


class Known:
    """Losses that fall with more context, and rise by ``by`` nats beyond a trained length. Tokens differ by a nat."""

    vocabulary = 256

    def __init__(self, trained: float, by: float = 0.3) -> None:
        self.trained, self.by, self.passes = trained, by, []

    def token_losses(self, windows: torch.Tensor, last: int) -> torch.Tensor:
        length = windows.shape[1] - 1
        self.passes.append(length)
        context = torch.arange(length - last, length, dtype=torch.float64)
        return windows[:, 1:][:, -last:] / 256 + 1 / (1 + context) + self.by * (context >= self.trained)


@pytest.mark.parametrize("length", [64, 96, 128, 192, 256, 384, 512, 768, 1024])
def test_a_known_length_is_read_within_a_step(length):
    model = Known(length)
    found = trained_length(model, TOKENS)
    assert length / 2 ** (1 / STEPS) <= found.tokens <= length * 2 ** (1 / STEPS)
    assert f"about {found.tokens:,} tokens" in str(found) and found.longest == model.passes[-1] <= 4 * length
    assert found.to_dict()["tokens"] == found.tokens and len(found.contexts) == len(found.rises) == len(found.errors)


def test_where_the_loss_does_not_rise_no_length_is_named():
    for model in (Known(10**9), Known(128, by=RISE / 2)):
        found = trained_length(model, TOKENS)
        assert found.tokens is None and found.longest == 8192 and "no end up to 8,192 tokens" in str(found)
    few = Known(10**9)
    few.vocabulary = 2**18  # half a window has 2**11 tokens, whose logits fill what one pass may
    assert trained_length(few, TOKENS).longest == 4096
    assert trained_length(Known(10**9), torch.arange(40_000) % 256).longest == LONGEST


def test_a_rise_that_chance_makes_is_none():
    class Noisy(Known):
        def token_losses(self, windows, last):
            dice = torch.Generator().manual_seed(windows.shape[1])
            return super().token_losses(windows, last) + 5 * torch.randn(len(windows), last, generator=dice)

    assert trained_length(Noisy(10**9), TOKENS[:2000]).tokens is None


@pytest.mark.parametrize("name", ["high_base", "partial"])
def test_trained_weights_tell_their_length_whatever_the_config_declares(name, tmp_path):
    """They were trained on 256 bytes; the config says 2,048."""
    place = folder(name, {**TRUE[name], "max_position_embeddings": 2048}, tmp_path / "m")
    model = RunningModel(AutoModelForCausalLM.from_pretrained(place).eval())
    with model.with_frequencies(model.own(2048), model.factors(2048)):
        found = trained_length(model, TOKENS[:6000])
    assert 181 <= found.tokens <= 362 and found.longest == 512


def test_a_short_text_is_refused():
    with pytest.raises(ValueError, match="tokens must have at least 97 tokens, got 96; give a longer text"):
        trained_length(Known(64), TOKENS[:96])
