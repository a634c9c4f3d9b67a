"""Ways to call, and widths: given outputs, flat heads, packed projections, batches, ragged and partial heads."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from phasor import Rotation, apply_rotary_qk, apply_rotary_qkv
from phasor.axes import Sections
from phasor.positions import grid

from .cases import TOKEN, WIDTH, clones, copies, token
from .libraries import by_channel, no_transformers, transformers_function
from .measure import COPY, Calls, Case, Variant, at_least, at_most

WIDTHS = {"80": (80, 80), "96": (96, 96), "112": (112, 112), "64-16": (64, 16), "80-32": (80, 32), "128-32": (128, 32)}
SEQ = 512


def _token(variant: Variant, way: str) -> Calls:
    q, k, position = token(variant)
    rotation, unit = variant.rotation(WIDTH, position), clones(q, k)
    options: dict[str, Any] = {"kernel": variant.kernel}
    a, b = (x.transpose(1, 2).flatten(-2).contiguous() for x in (q, k))
    calls: dict[str, Callable[[], Any]] = {
        "in-place": partial(apply_rotary_qk, q, k, rotation, out=(q, k), **options),
        "out": partial(apply_rotary_qk, q, k, rotation, out=clones(q, k), **options),
        "flat": partial(apply_rotary_qk, a, b, rotation, tensor_format="bshd", num_heads=q.shape[1], **options),
        "packed": partial(_packed, torch.cat((q, k, k), dim=1).transpose(1, 2).contiguous(), rotation, q, k, options),
    }
    return {"phasor": calls[way], "two clones": partial(clones, *unit)}


def _packed(qkv: Tensor, rotation: Rotation, q: Tensor, k: Tensor, options: dict[str, Any]) -> Tensor:
    return apply_rotary_qkv(qkv, rotation, num_heads=q.shape[1], out=qkv, **options)


def _tables(variant: Variant, rotation: Rotation) -> Iterator[Tensor]:
    """cos and sin ``[1, S, channels]`` as transformers' functions take them."""
    return (by_channel(t, variant.interleaved)[None].to(variant.dtype) for t in (rotation.cos, rotation.sin))


def _transformers_token(variant: Variant) -> Calls:
    q, k, position = token(variant)
    rotation = variant.rotation(WIDTH, position)
    cos, sin = _tables(variant, rotation)
    here = clones(q, k)
    return {
        "transformers": partial(transformers_function(variant.interleaved), q, k, cos, sin),
        "phasor": partial(apply_rotary_qk, *here, rotation, out=here, kernel=variant.kernel),
    }


def _batch(variant: Variant, batch: int) -> Calls:
    q, k = variant.pair(batch, 32, 8, 1, WIDTH)
    rotation = variant.rotation(WIDTH, (torch.arange(batch) * 61).unsqueeze(-1))
    here = clones(q, k)
    return {
        "phasor": partial(apply_rotary_qk, *here, rotation, out=here, kernel=variant.kernel),
        COPY: copies(q, k),
    }


def _heads(variant: Variant, width: int, turned: int) -> tuple[Tensor, Tensor, Rotation]:
    seq = 16 if variant.quick else SEQ
    spec = variant.spec(width).replace(rotary_dim=turned)
    return *variant.pair(1, 32, 8, seq, width), Rotation.at(spec, torch.arange(seq), dtype=variant.dtype)


def _width(variant: Variant, width: int, turned: int) -> Calls:
    q, k, rotation = _heads(variant, width, turned)
    call = partial(apply_rotary_qk, q, k, rotation, out=clones(q, k), kernel=variant.kernel)
    return {"phasor": call, COPY: copies(q, k)}


def _transformers_width(variant: Variant, width: int, turned: int) -> Calls:
    q, k, rotation = _heads(variant, width, turned)
    cos, sin = _tables(variant, rotation)
    rotate = transformers_function(variant.interleaved)

    def as_models_do() -> tuple[Tensor, Tensor]:
        if turned == width:
            return rotate(q, k, cos, sin)
        y, z = rotate(q[..., :turned], k[..., :turned], cos, sin)
        return torch.cat((y, q[..., turned:]), -1), torch.cat((z, k[..., turned:]), -1)

    return {
        "transformers": as_models_do,
        "phasor": partial(apply_rotary_qk, q, k, rotation, kernel=variant.kernel),
    }


def _prompts(variant: Variant) -> tuple[Tensor, Tensor, Rotation]:
    batch, seq = (2, 4) if variant.quick else (8, 64)
    return *variant.pair(batch, 32, 8, seq, WIDTH), variant.rotation(WIDTH, torch.arange(seq))


def _images(variant: Variant) -> tuple[Tensor, Tensor, Rotation]:
    images, side = (2, 2) if variant.quick else (4, 32)
    spec = variant.spec(80).replace(axes=Sections((20, 20)), base=10_000.0)
    return *variant.pair(images, 16, 16, side * side, 80), Rotation.at(spec, grid(side, side), dtype=variant.dtype)


def _transformers(variant: Variant, heads: Callable[[Variant], tuple[Tensor, Tensor, Rotation]]) -> Calls:
    q, k, rotation = heads(variant)
    cos, sin = _tables(variant, rotation)
    return {
        "transformers": partial(transformers_function(variant.interleaved), q, k, cos, sin),
        "phasor": partial(apply_rotary_qk, q, k, rotation, kernel=variant.kernel),
    }


def _permuted(variant: Variant) -> Calls:
    """DeepSeek's: pairs are read interleaved and written as halves."""
    seq = 16 if variant.quick else SEQ
    q, k = variant.pair(1, 16, 1, seq, 64)
    spec = variant.spec(64).replace(interleaved=True, permuted=True)
    rotation = Rotation.at(spec, torch.arange(seq), dtype=variant.dtype)
    return {"phasor": partial(apply_rotary_qk, q, k, rotation, kernel=variant.kernel), "clone": partial(clones, q, k)}


WAYS = {
    "in-place": "in place (`out=(q, k)`)",
    "out": "into outputs that exist (`out=`)",
    "flat": "of flat heads (`num_heads=`) to new outputs",
    "packed": "in place in one packed projection, `apply_rotary_qkv`",
}
SHAPES = (
    *(
        Case(
            f"token-{way}", f"`apply_rotary_qk` {about}, {TOKEN}, in units of a clone of both",
            partial(_token, way=way), unit="two clones", goals=at_most(1.8), repeat=500,
        )
        for way, about in WAYS.items()
    ),
    Case(
        "transformers-given", f"transformers' function in units of `apply_rotary_qk` in place, {TOKEN}",
        _transformers_token, measured="transformers", unit="phasor", goals=at_least(5), repeat=200,
        obstacle=no_transformers,
    ),
    *(
        Case(
            f"batch-{n}", f"`apply_rotary_qk` in place for {n} decoded tokens, each at a position of its own, "
            f"q [{n}, 32, 1, {WIDTH}] and k [{n}, 8, 1, {WIDTH}], in units of `copy_` of both into other tensors",
            partial(_batch, batch=n), unit=COPY, goals=at_most(1.5), repeat=max(10, 1000 // n),
        )
        for n in (4, 16, 64, 256)
    ),
    *(
        Case(
            f"width-{name}", f"`apply_rotary_qk` into outputs that exist, heads of {width} channels of which {turned} "
            f"rotate, q [1, 32, {SEQ}, {width}] and k [1, 8, {SEQ}, {width}], in units of `copy_` of both",
            partial(_width, width=width, turned=turned), unit=COPY, goals=at_most(1.8, 2.5), repeat=5,
        )
        for name, (width, turned) in WIDTHS.items()
    ),
    *(
        Case(
            f"transformers-{name}", f"transformers' function on the heads of `width-{name}`, slices and `cat` for "
            "channels that pass, in units of `apply_rotary_qk` to new outputs",
            partial(_transformers_width, width=width, turned=turned), measured="transformers", unit="phasor",
            goals=at_least(1), repeat=3, obstacle=no_transformers,
        )
        for name, (width, turned) in WIDTHS.items()
    ),
    Case(
        "transformers-short", "transformers' function on 8 prompts of 64 tokens, q [8, 32, 64, 128] and "
        "k [8, 8, 64, 128], in units of `apply_rotary_qk` to new outputs",
        partial(_transformers, heads=_prompts), measured="transformers", unit="phasor", goals=at_least(1), repeat=3,
        obstacle=no_transformers,
    ),
    Case(
        "transformers-images", "the same on 4 images of 32 x 32 patches, by two axes, q and k [4, 16, 1024, 80]",
        partial(_transformers, heads=_images), measured="transformers", unit="phasor", goals=at_least(1), repeat=2,
        obstacle=no_transformers,
    ),
    Case(
        "permuted", f"pairs read interleaved and written as halves (DeepSeek's), q [1, 16, {SEQ}, 64] and "
        f"k [1, 1, {SEQ}, 64], to new outputs, in units of a clone of both",
        _permuted, unit="clone", goals=at_most(2.2), layouts=("interleaved",), repeat=10,
    ),
)  # fmt: skip
