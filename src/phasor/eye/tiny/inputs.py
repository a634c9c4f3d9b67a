"""Inputs that a tiny model takes: few words, small images with a height that is not their width, short sounds."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from ...support.preserve_state import hooked, undisturbed
from ...support.transformers_log import quiet
from .model import one_line

TOKENS = 6
FRAMES, WAVE = 64, 4000  # of a sound, as features and as samples
CELLS = (2, 3)  # height and width of a picture, in merged patches
Inputs = dict[str, Any]


def first_inputs(model: nn.Module) -> Inputs:
    """The first inputs of those that its ``forward`` asks for by name with which the model runs to its end.

    Where it runs to its end with none, those with which most of its modules ran, if an attention is among them: what
    comes after the last one is no hindrance. The model is left as it was; only its implementation of attention
    becomes SDPA, where its plain one does not run. Raises ``ValueError`` otherwise, with what the first try said.
    """
    errors: list[Exception] = []
    furthest, most = {}, 0
    for implementation in (None, "sdpa"):
        if implementation:
            model.config._attn_implementation = implementation  # type: ignore[union-attr]
        for inputs in candidates(model):
            ran: set[nn.Module] = set()
            try:
                with hooked([m.register_forward_hook(lambda m, *_, ran=ran: ran.add(m)) for m in model.modules()]):
                    run(model, inputs)
                return inputs
            except Exception as raised:
                errors.append(raised)
                if len(ran) > most and any("Attention" in type(m).__name__ for m in ran):
                    furthest, most = inputs, len(ran)
    if furthest:
        return furthest
    error = errors[0] if errors else ValueError("its forward has no parameter that is known here")
    raise ValueError(f"no inputs are known for {type(model).__name__}: {one_line(error)}") from error


def run(model: nn.Module, inputs: Inputs) -> Any:
    """What the model returns for copies of the inputs, without gradients."""
    copies = {name: x.clone() if isinstance(x, Tensor) else x for name, x in inputs.items()}
    with quiet(), undisturbed(model):
        return model(**copies)


def candidates(model: nn.Module, rows: int = 1, tokens: int = TOKENS) -> Iterator[Inputs]:
    """Each set of inputs that may fit what ``forward`` asks for; what else it cannot do without is filled in.

    ``rows`` of so many ``tokens``, and as many pictures in a list of patches; of anything else there is one.
    """
    takes = inspect.signature(model.forward).parameters
    needed = [n for n, p in takes.items() if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
    made = Made(model.config, rows, tokens)
    for way in (words, gridded, cells, film, picture, features, wave, words_and_more, series, embedded):
        for inputs in way(made, set(takes)):
            missing = {name: FILLED[name](made, inputs) for name in needed if name not in inputs and name in FILLED}
            yield {**inputs, **missing}


class Made:
    """Random words and numbers, in the sizes that a config states."""

    def __init__(self, config: Any, rows: int, tokens: int) -> None:
        self.config, self.rows, self.tokens = config, rows, tokens
        self.generator = torch.Generator().manual_seed(0)

    def noise(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.generator)

    def words(self, *more: int) -> Tensor:
        most = self.number("vocab_size", default=90)
        return torch.randint(3, max(4, min(90, most)), (self.rows, self.tokens, *more), generator=self.generator)

    def number(self, *names: str, default: int) -> int:
        """The first of these that the config states, or one inside it."""
        parts = [v for v in vars(self.config).values() if hasattr(v, "to_dict")]
        for config in (self.config, *parts):
            for name in names:
                value = getattr(config, name, None)
                if isinstance(value, list | tuple) and value:
                    value = value[0]
                if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                    return value
        return default


def words(made: Made, takes: set[str]) -> Iterator[Inputs]:
    if "input_ids" in takes:
        yield {
            "input_ids": made.words(),
            **({"decoder_input_ids": made.words()} if "decoder_input_ids" in takes else {}),
        }
        yield {"input_ids": made.words(), "use_cache": False}
        encoded = {
            "encoder_hidden_states": FILLED["encoder_hidden_states"](made, {})
        }  # for a decoder without its encoder
        encoded = encoded if encoded.keys() <= takes else {}
        if channels := made.number("num_channels", "num_codebooks", "audio_num_codebooks", "num_vq", default=0):
            ids = made.words(channels)
            yield {"input_ids": ids}
            yield {"input_ids": ids, **encoded}
            yield {"input_ids": ids.transpose(1, 2)}
            yield {"input_ids": ids[..., 0], "decoder_input_ids": ids}
        yield {"input_ids": made.words(), **encoded}


def gridded(made: Made, takes: set[str]) -> Iterator[Inputs]:
    """Patches in one list, and how many of them lie in time, height and width."""
    grid = next((n for n in ("grid_thw", "image_grid_thw") if n in takes), None)
    image = next((n for n in ("hidden_states", "pixel_values") if n in takes), None)
    if grid is None or image is None or "input_ids" in takes:
        return
    patch = made.number("patch_size", "spatial_patch_size", default=14)
    time = made.number("temporal_patch_size", default=2)
    merge = made.number("spatial_merge_size", "merge_size", default=2)
    height, width = CELLS[0] * merge, CELLS[1] * merge
    grids = torch.tensor([[1, height, width * (1 + row)] for row in range(made.rows)])
    more = {"merge_sizes": torch.tensor([merge] * made.rows)} if "merge_sizes" in takes else {}
    count = int(grids.prod(1).sum())
    shapes: list[tuple[int, ...]] = [(count, 3 * patch**2 * depth) for depth in dict.fromkeys((1, time, 2))] + [
        (count, 3, patch, patch)
    ]
    shapes += [(count, 3, time, patch, patch), (1, count, 3, patch, patch), (count, patch * merge, patch * merge, 3)]
    for shape in shapes:
        yield {image: made.noise(*shape), grid: grids, **more}


def cells(made: Made, takes: set[str]) -> Iterator[Inputs]:
    """Patches in one list, and the place of each."""
    if "pixel_position_ids" in takes and "input_ids" not in takes:
        size = made.number("patch_size", default=16)
        merge = made.number("pooling_kernel_size", "spatial_merge_size", default=3)
        rows, columns = torch.arange(CELLS[0] * merge), torch.arange(CELLS[1] * merge)
        places = torch.stack(torch.meshgrid(columns, rows, indexing="xy"), -1).reshape(1, -1, 2)
        pixels = made.noise(1, places.shape[1], 3 * size**2)
        yield {"pixel_values": pixels, "pixel_position_ids": places}


def film(made: Made, takes: set[str]) -> Iterator[Inputs]:
    if "pixel_values_videos" in takes and "input_ids" not in takes:
        side = made.number("crop_size", "image_size", default=64)
        frames = made.number("frames_per_clip", default=4)
        yield {"pixel_values_videos": made.noise(1, min(4, frames), 3, side, side)}


def picture(made: Made, takes: set[str]) -> Iterator[Inputs]:
    if "pixel_values" in takes and not {"grid_thw", "image_grid_thw", "pixel_position_ids", "input_ids"} & takes:
        colours = made.number("num_channels", default=3)
        for height, width in _sides(made):
            sizes = {"image_sizes": torch.tensor([[height, width]])} if "image_sizes" in takes else {}
            for shape in ((1, colours, height, width), (1, 2, colours, height, width)):
                yield {"pixel_values": made.noise(*shape), **sizes}


def _sides(made: Made) -> Iterator[tuple[int, int]]:
    """Sizes of a picture: wider than high, where the model takes that, and as its config says."""
    patch = made.number("patch_size", default=16) * made.number("spatial_merge_size", default=1)
    side = made.number("image_size", default=4 * patch)
    yield side * 3 // 4 // patch * patch or patch, side
    yield side, side
    yield 64, 96
    yield 64, 64


def features(made: Made, takes: set[str]) -> Iterator[Inputs]:
    if "input_features" in takes:
        bins = made.number("num_mel_bins", "feature_size", "input_feat_per_channel", default=80)
        for width in (bins, made.number("feature_projection_input_dim", default=bins)):
            for more in ({}, {"decoder_input_ids": made.words()} if "decoder_input_ids" in takes else {}):
                yield {"input_features": made.noise(1, FRAMES, width), **more}
        for length in (FRAMES, 2 * made.number("max_source_positions", default=FRAMES)):
            for more in ({}, {"decoder_input_ids": made.words()} if "decoder_input_ids" in takes else {}):
                yield {"input_features": made.noise(1, bins, length), **more}


def wave(made: Made, takes: set[str]) -> Iterator[Inputs]:
    if "input_values" in takes:
        more = {"decoder_input_ids": made.words()} if "decoder_input_ids" in takes else {}
        yield from ({"input_values": made.noise(*shape), **more} for shape in ((1, 1, WAVE), (1, WAVE)))


def words_and_more(made: Made, takes: set[str]) -> Iterator[Inputs]:
    """Words with an image, with sound; sound in two forms."""
    if {"input_values", "input_features"} <= takes:
        for sound in features(made, takes):
            yield {"input_values": made.noise(1, 1, WAVE), **sound}
    if "input_ids" not in takes:
        return
    without = takes - {"input_ids"}
    for way in (gridded, cells, picture, film, features, wave):
        for other in way(made, without):
            yield {"input_ids": made.words(), **other}


def series(made: Made, takes: set[str]) -> Iterator[Inputs]:
    if "past_values" in takes:
        yield {"past_values": [made.noise(FRAMES)]}
        yield {"past_values": made.noise(1, 4 * FRAMES)}


def embedded(made: Made, takes: set[str]) -> Iterator[Inputs]:
    for name in ("inputs_embeds", "hidden_states", "latents", "x"):
        if name in takes:
            widths = dict.fromkeys(
                made.number(n, default=64) for n in ("hidden_size", "d_model", "embed_dim", "embedding_size")
            )
            for width in widths:
                yield {name: made.noise(made.rows, made.tokens, width)}
                yield {name: made.noise(made.rows, width, made.tokens)}


def _width(made: Made) -> int:
    return made.number("cross_hidden_size", "encoder_hidden_size", "hidden_size", "d_model", default=64)


# What some cannot do without, by the name of the parameter.
FILLED: dict[str, Callable[[Made, Inputs], Any]] = {
    "input_ids": lambda made, inputs: made.words(),
    "decoder_input_ids": lambda made, inputs: made.words(),
    "attention_mask": lambda made, inputs: torch.ones(made.rows, made.tokens, dtype=torch.long),
    "position_ids": lambda made, inputs: torch.arange(made.tokens)[None],
    "encoder_hidden_states": lambda made, inputs: made.noise(made.rows, made.tokens, _width(made)),
    "pixel_values": lambda made, inputs: next(picture(made, {"pixel_values"}))["pixel_values"],
    "num_patches": lambda made, inputs: made.tokens // 2,
    "chunk_sample_lengths": lambda made, inputs: torch.tensor([FRAMES * 160]),
}
