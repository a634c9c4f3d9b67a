"""A call that a model of pictures, video or sound takes: arguments by what they are called.

They are those of a clip of unequal frames, rows and columns: that is how axes differ. Where the field has several forms
of an argument, each is tried; how wide it is, the layers say that take it (`fitted`).
"""

import inspect
import math
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor, nn

from .fitted import UnfitError, fitted, noise
from .inputs import Inputs
from .model import one_line
from .picture_tables import TABLES, makers
from .pictures import LAYERS

GRID, TEXT, SOUND = (2, 3, 5), 4, 7  # frames, rows and columns; words; hops
WIDTH, STATES = 11, 6  # of what no layer has asked for yet; of a text encoder whose layers are all given
CHANNELS = (
    "audio_acoustic_hidden_dim",
    "in_channels",
    "in_visual_dim",
    "io_channels",
    "latent_channel",
    "latent_dim",
    "in_dim",
)
POOLED = ("pooled_projection_dim", "text_emb_dim", "in_text_dim2")
BESIDE = re.compile("_image$|^controlnet|^attention_mask")  # what is beside the picture that is made
OWN = re.compile("Rotary|Rope|RoPE")  # modules that make tables, by their class
TRUE = torch.ones(1, TEXT, dtype=torch.bool)
FORMS: list[dict[str, Any]] = [
    *({"x": x} for x in ("clip", "picture", "frames", "last", "sound", "wave", "tokens", "patches")),
    *({"times": times} for times in (("one", "places"), ("one", "frames"), ("one", "one", "frames"), ("places",))),
    *({"text": text} for text in ((1, STATES, TEXT), (1, TEXT, STATES), "places")),
    {"x": "frames", "times": ("one", "frames")},
    {"x": "wave", "text": (1, 2 * SOUND)},
    {"grid": (1, 4, 6)},  # some take tokens by blocks only
    {"grid": (2, 8, 16), "x": "last"},
    *({"ids": ids} for ids in (1, 2, 3, 4)),
    {"more": "but pictures"},
    {"more": "all"},
    {"tables": 1},
    {"x": "parts", "times": ("one",)},  # lists of what is put together, without a batch
]


def inputs_of(model: nn.Module, config: Mapping[str, Any], grid: tuple[int, int, int] = GRID) -> Inputs:
    """Arguments with which the model runs, of ``grid`` tokens; ``ValueError`` with what it said of those that went
    farthest.

    One form after the other is tried, and of each argument the form is kept with which the model went farthest.
    """
    takes = inspect.signature(model.forward).parameters
    dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
    as_tokens = takes.keys() & {"img_ids", "img_shapes", "num_frames", "position_ids"}
    best = _Call(
        model, config, dtype, x="tokens" if as_tokens and "hidden_states_masks" not in takes else "picture", grid=grid
    )
    farthest = UnfitError(ValueError(f"none are known for {', '.join(takes)}"), -1)
    for form in 2 * [{}, *FORMS]:
        call = replace(best, **form)
        try:
            return fitted(model, call.arguments(takes))
        except UnfitError as error:
            if error.far > farthest.far:
                farthest, best = error, call
    raise ValueError(f"no inputs fit: {one_line(farthest.error)}") from farthest.error


@dataclass(frozen=True)
class _Call:
    """One form of each argument. ``x``: of the picture; ``ids``: of positions; ``more``: what may be left out, too.

    ``tables``: of which function that pipelines call.
    """

    model: nn.Module
    config: Mapping[str, Any]
    dtype: torch.dtype
    x: str
    times: tuple[str, ...] = ("one",)
    text: tuple[int, ...] | Literal["places"] = (1, TEXT)  # or as long as the picture
    grid: tuple[int, int, int] = GRID
    ids: int = 0
    more: str = ""
    tables: int = 0

    def noise(self, name: str, *shape: int) -> Tensor:
        return noise(name, *shape, dtype=self.dtype)

    @property
    def patch(self) -> tuple[int, int, int]:
        """Frames, rows and columns of one patch."""
        keys = ("patch_size", "latent_patch_size", "all_patch_size")
        size = next((self.config[key] for key in keys if self.config.get(key)), 1)
        sizes = [size] if isinstance(size, int) else list(size)
        frames = self.config.get("patch_size_t") or (sizes[0] if len(sizes) == 3 else 1)
        return int(frames), int(sizes[-1]), int(sizes[-1])

    @property
    def places(self) -> int:
        return math.prod(self.grid[1:] if self.x == "picture" else self.grid)

    @property
    def words(self) -> tuple[int, ...]:
        """The axes of a text but for its width."""
        return (1, self.places) if isinstance(self.text, str) else self.text

    @property
    def whole(self) -> int:
        """Tokens of one sequence of words and picture; parts that are put together have no words in it."""
        return self.places + (TEXT if self.x != "parts" else 0)

    @property
    def time(self) -> Tensor:
        sizes = {"one": 1, "frames": self.grid[0], "places": self.places}
        return torch.ones([sizes[name] for name in self.times])

    def content(self, name: str, form: str) -> Tensor:
        """The picture, clip or sound itself."""
        channels = next((int(size) for name in CHANNELS if (size := self.config.get(name))), WIDTH)
        frames, rows, columns = (n * size for n, size in zip(self.grid, self.patch, strict=True))
        own = int(self.config.get("out_channels") or self.config.get("out_dim") or channels)
        part = own if name == "hidden_states" else channels - own
        shape = {
            "parts": (part, frames, rows, columns),
            "tokens": (self.places, channels), "patches": (self.places, channels, *self.patch),
            "clip": (channels, frames, rows, columns), "picture": (channels, rows, columns),
            "last": (frames, rows, columns, channels), "frames": (frames, channels, rows, columns),
            "sound": (2 * SOUND, channels), "wave": (channels, 2 * SOUND),
        }[form]  # fmt: skip
        return self.noise(name, 1, *shape)

    def arguments(self, takes: Mapping[str, inspect.Parameter]) -> Inputs:
        """By name, without those that are left out."""
        return {name: value for name, p in takes.items() if (value := self.argument(p)) is not None}

    def argument(self, parameter: inspect.Parameter) -> Any:
        """The value for a parameter; None where it is left out."""
        name, kind = parameter.name, str(parameter.annotation).lower()
        if name in TABLES:
            own = any(OWN.search(type(part).__name__) for part in self.model.modules())
            return None if own and parameter.default is None else self.from_pipeline()
        may = re.search("tensor|list", kind) or ("empty" in kind and parameter.default is None)
        more = self.more and may and not (self.more != "all" and BESIDE.search(name))
        left_out = not (more or name in self.named or parameter.default is parameter.empty)
        if left_out or parameter.kind is not parameter.POSITIONAL_OR_KEYWORD:
            return None
        found = (made for words, made in MEANT.items() if re.search(words, name))
        value = self.named[name] if name in self.named else next(found)(self, name)
        if "int" in kind and "tensor" not in kind and isinstance(value, Tensor):
            return int(value) if value.numel() == 1 else None
        as_list = re.match(r"(typing\.)?(optional\[)?list\[torch", kind) or kind == "<class 'list'>"
        count = sum(self.config[key] for key in self.config if LAYERS.search(key)) if "layers" in name else 1
        if as_list and isinstance(value, Tensor):
            return [value[0] if self.x == "parts" else value] * count
        return value

    def from_pipeline(self) -> Any:
        """The tables that a pipeline would make; None where it makes none. Raises `UnfitError` for another call."""
        axes, tokens = {"sound": (1, SOUND), "wave": (1, 2 * SOUND), "picture": (2, 0)}.get(self.x, (3, 0))
        before = 1 if self.config.get("global_states_input_dim") else 0
        made = makers(self.model, self.config, self.grid, before + tokens)
        if not made:
            return None
        for make in made.get(axes, [])[self.tables :]:
            with suppress(Exception):  # a function refuses what it is not made for as it likes
                return make()
        raise UnfitError(ValueError(f"no function makes tables of {axes} axes"), -1)

    @property
    def cells(self) -> Tensor:
        """Frame, row and column of each place."""
        return torch.cartesian_prod(*(torch.arange(n) for n in self.grid))

    @cached_property
    def named(self) -> dict[str, Any]:
        """What whole names mean in the field."""
        config, x, one, grid = self.config, self.content("hidden_states", self.x), torch.ones(1), self.grid
        count = len(config.get("axes_dims_rope") or (0, 0, 0))
        words = torch.zeros(TEXT, count)
        words[:, 3:] = torch.arange(TEXT)[:, None]  # an axis of text alone
        text, other = (self.noise(name, *self.words, WIDTH) for name in ("text", "t5"))
        size = torch.tensor([grid[1:]]).float()
        states, pooled = len(config.get("llama_layers") or [0]), self.noise("pooled", 1, WIDTH)
        return {
            "hidden_states": x, "x": [x[0]], "encoder_hidden_states": text,
            "encoder_hidden_states_t5": other if config.get("text_embed_dim_t5", True) else None,
            "encoder_hidden_states_llama3": self.noise("states", states, 1, TEXT, WIDTH), "cap_feats": [text[0]],
            "encoder_attention_mask": TRUE, "encoder_hidden_states_mask": TRUE,
            "timestep": self.time, "timesteps": one, "t": one / 2,
            "timestep_r": None if config.get("use_meanflow") is False else one,
            "guidance": one if config.get("guidance_embeds") else None,
            "pooled_projections": pooled if any(config.get(name) for name in POOLED) else None, "pooled_embeds": pooled,
            "img_ids": nn.functional.pad(self.cells.float(), (0, max(count - 3, 0)))[:, -count:], "txt_ids": words,
            "img_shapes": [[grid]], "shape_list": [[grid]],
            "num_frames": grid[0], "height": grid[1], "width": grid[2], "fps": 24 if "max_size" in config else 24.0,
            "rope_interpolation_scale": (8 / 24, 32, 32) if "audio_in_channels" not in config else None,
            "audio_num_frames": SOUND, "audio_timestep": torch.ones(1, SOUND),
            "visual_rope_pos": [torch.arange(n) for n in grid], "text_rope_pos": torch.arange(TEXT),
            "original_size": size, "target_size": size, "crop_coords": torch.zeros(1, 2),
            "cross_attention_kwargs": {},
            "padding_mask": torch.zeros(1, 1, *x.shape[-2:]), "chunk_partition": [1] * grid[0],
            "additional_t_cond": torch.ones(1, dtype=torch.long) if config.get("use_additional_t_cond") else None,
            "indicator": torch.full((1, self.places), 2),  # Ideogram's mark of a token of the picture
        }  # fmt: skip

    def cache(self) -> Any:
        """An empty one of the module of the model, with a place for each layer."""
        own = vars(sys.modules[type(self.model).__module__])
        return next(make for name, make in own.items() if name.endswith("KVCache"))(1)

    def counted(self, name: str) -> Tensor:
        """The places of a part in one sequence of words, picture and sound."""
        parts = {"text": (0, TEXT), "audio|sound": (TEXT + self.places, SOUND), "frame|latents": (0, self.grid[0])}
        start, length = next((part for words, part in parts.items() if re.search(words, name)), (TEXT, self.places))
        return torch.arange(start, start + length)

    def positions(self) -> Tensor:
        """Of a whole sequence; words stand on the diagonal."""
        text, sound = (torch.arange(n)[:, None].expand(-1, 3) for n in (TEXT, SOUND))
        at = self.cells if self.text == "places" else torch.cat((text, TEXT + self.cells))
        at = torch.cat((at, TEXT + self.grid[0] + sound)) if "audio_in_channels" in self.config else at
        return (at, at[None], at.T, torch.arange(len(at))[None], torch.arange(TEXT + 1 + self.places)[None])[self.ids]


# What parts of names mean, for arguments that a model cannot do without; the first that fits.
MEANT: dict[str, Callable[[_Call, str], Any]] = {
    r"kv_cache_mode": lambda call, name: "extract",
    r"kv_cache": lambda call, name: call.cache(),
    r"grid_sizes": lambda call, name: torch.tensor([call.grid]),
    r"input_im": lambda call, name: {} if "sizes" in name else [],  # pictures beside the one that is made
    r"position_ids": lambda call, name: call.positions(),
    r"time.*ind|tags|segment": lambda call, name: torch.zeros_like(call.positions()[..., 0]),
    r"shapes": lambda call, name: [call.grid],
    r"len": lambda call, name: torch.tensor([call.whole if "seq" in name else TEXT]),
    r"indices|indexes": lambda call, name: call.counted(name),
    r"drop": lambda call, name: torch.zeros(1, call.places, dtype=torch.bool),
    r"img_mask": lambda call, name: torch.tensor([[False] * TEXT + [True] * (call.places // 4)]),
    r"mask": lambda call, name: torch.ones_like(call.positions()).bool() if call.ids == 4 else TRUE,
    r"time": lambda call, name: call.time,
    r"input_ids": lambda call, name: torch.arange(TEXT)[None] if call.ids == 4 else torch.arange(TEXT),
    r"ids?$": lambda call, name: torch.zeros(1, call.places, dtype=torch.long),
    r"audio|sound": lambda call, name: call.noise(name, 1, SOUND, WIDTH),
    r"global|pooled": lambda call, name: call.noise(name, 1, WIDTH),
    r"pose": lambda call, name: call.content(name, "clip")[:, :, 1:],
    r"pixel": lambda call, name: call.noise(name, 1, 3, 1, *2 * [call.config["motion_encoder_size"]]),
    r"style": lambda call, name: torch.zeros(1, dtype=torch.long),
    r"meta_size": lambda call, name: torch.ones(1, 6, dtype=call.dtype),
    r"control.*_scale": lambda call, name: torch.ones(1),  # one for each layer that takes it
    r"vision_tokens|control": lambda call, name: call.content(name, "clip"),
    r"latents": lambda call, name: call.content(name, call.x),
    r"": lambda call, name: call.noise(name, *call.words, WIDTH),
}
