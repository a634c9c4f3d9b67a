"""A call that fits a model of pictures is found by trying, and each width by asking the layer that takes it."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import phasor
from eye.test_pictures import packages
from phasor.eye.tiny.fitted import UnfitError, fitted
from phasor.eye.tiny.picture_call import GRID, TEXT, inputs_of


class Rowan(nn.Module):
    """A clip, words that a layer takes only after their mean, and a map that is put beside the clip's channels."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv3d(4 + 3, 8, 1)
        self.words, self.mean, self.shift = nn.Linear(24, 8), nn.Linear(24, 8), nn.Parameter(torch.ones(1, 1, 24))

    def forward(self, hidden_states: Tensor, encoder_hidden_states: Tensor, control_latents: Tensor) -> Tensor:
        clip = self.patch(torch.cat((hidden_states, control_latents), 1)).flatten(2).transpose(1, 2)
        words = encoder_hidden_states + self.shift
        return torch.cat((self.words(words), clip), 1) + self.mean(words.mean(1))[:, None]


def test_each_argument_becomes_as_wide_as_the_layer_that_takes_it() -> None:
    given = inputs_of(Rowan(), {"in_channels": 4})
    assert given["hidden_states"].shape == (1, 4, *GRID)
    assert given["control_latents"].shape == (1, 3, *GRID)
    assert given["encoder_hidden_states"].shape == (1, TEXT, 24)


class Packed(nn.Module):
    """Words and a picture in one list of tokens, whose places the caller gives."""

    def __init__(self, places: int) -> None:
        super().__init__()
        self.places, self.tokens, self.words = places, nn.Linear(6, 8), nn.Linear(10, 8)

    def forward(
        self, hidden_states: Tensor, encoder_hidden_states: Tensor, position_ids: Tensor, text_indices: Tensor,
        video_indices: Tensor, seq_len: int,
    ) -> Tensor:  # fmt: skip
        if position_ids.shape != (3, seq_len):
            raise ValueError(f"position_ids are [3, {seq_len}], got {tuple(position_ids.shape)}")
        x = torch.zeros(1, seq_len, 8)
        x = x.index_copy(1, text_indices, self.words(encoder_hidden_states))
        return x.index_copy(1, video_indices, self.tokens(hidden_states))


def test_words_and_picture_in_one_list_get_places_of_their_own() -> None:
    given = inputs_of(Packed(3), {})
    places = torch.cat((given["text_indices"], given["video_indices"]))
    assert torch.equal(places, torch.arange(given["seq_len"]))
    frames, rows, columns = given["position_ids"][:, TEXT:]
    assert [int(axis.max() - axis.min()) + 1 for axis in (frames, rows, columns)] == list(GRID)


def test_what_no_call_fits_says_what_the_one_that_went_farthest_met() -> None:
    class Alder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(6, 8)

        def forward(self, hidden_states: Tensor) -> Tensor:
            _, tokens, _ = hidden_states.shape
            raise ValueError(f"{tokens} tokens, and {self.first(hidden_states).ndim} axes")

    with pytest.raises(ValueError, match=r"no inputs fit: ValueError: \d+ tokens, and 3 axes"):
        inputs_of(Alder(), {})


def test_a_width_that_two_layers_contradict_is_given_up() -> None:
    model = nn.ModuleDict({"a": nn.Linear(6, 8), "b": nn.Linear(7, 8)})
    model.forward = lambda x: model["a"](x) + model["b"](x)  # type: ignore[method-assign]
    with pytest.raises(UnfitError, match="no width suits all"):
        fitted(model, {"x": torch.randn(1, 3, 5)})


HEAD = {"attention_head_dim": 32, "num_attention_heads": 2, "num_layers": 2}
# A class whose caller gives the places of one packed list, and what its config says that turns.
CALLED: dict[str, tuple[dict[str, Any], float, tuple[int, ...]]] = {
    "Krea2Transformer2DModel": (
        {**HEAD, "num_key_value_heads": 1, "in_channels": 8, "intermediate_size": 32, "text_hidden_dim": 32,
         "num_text_layers": 3, "text_num_attention_heads": 2, "text_num_key_value_heads": 2,
         "text_intermediate_size": 32, "timestep_embed_dim": 16, "axes_dims_rope": (8, 12, 12)}, 1e3, (4, 6, 6)),
    "MiniMaxH3Transformer3DModel": (
        {**HEAD, "hidden_size": 64, "ffn_dim": 64, "in_channels": 8, "audio_in_channels": 6, "text_dim": 10,
         "num_refiner_layers": 1, "freq_dim": 16, "time_embed_hidden_dim": 16, "time_embed_dim": 16,
         "rope_freq_dim": 4}, 1e4, (4, 4, 4)),
    "HunyuanImageTransformer2DModel": (
        {**HEAD, "in_channels": 8, "out_channels": 8, "num_single_layers": 1, "num_refiner_layers": 1,
         "text_embed_dim": 12, "rope_axes_dim": (16, 16)}, 256.0, (8, 8)),
    "AnyFlowTransformer3DModel": (
        {**HEAD, "in_channels": 4, "out_channels": 4, "text_dim": 12, "freq_dim": 16, "ffn_dim": 32}, 1e4, (6, 5, 5)),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLED)
def test_a_class_that_takes_arguments_of_its_own_is_read(name: str) -> None:
    packages()
    config, base, sizes = CALLED[name]
    (spec,) = phasor.read_config({"_class_name": name, **config}).distinct
    assert (spec.base, spec.axes) == (base, phasor.axes.Axial(sizes))
