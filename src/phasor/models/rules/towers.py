"""Towers whose configs have keys of their own: readers of whole configs, and what follows a reading."""

from dataclasses import replace

from ...rotary.axes import Alternating, Axial, Listed
from ...rotary.frequencies import inverse_frequencies_float32
from ...rotary.model_rotary import ModelRotary
from ...rotary.spec import RotarySpec, Tables
from ..reading.keys import agreed, is_size
from ..reading.refusal import contradiction
from ..reading.row import NoRotary
from ..reading.tower import PLAIN, GridNames, TowerConfig, of_one_spec


def clvp(part: TowerConfig) -> ModelRotary:
    """CLVP's encoders: the width comes from ``projection_dim``, the base from the code, and v rotates too."""
    keys = part.keys
    if keys.flag("use_rotary_embedding") is False:
        raise NoRotary(f"{part.path}use_rotary_embedding is false; it has no rotary embedding to read")
    keys.explain("on", "use_rotary_embedding")
    hidden, heads, layers = part.sizes(PLAIN, (768, 12, 20))
    width = max(keys.size_or(768, "projection_dim") // (2 * heads), 32)
    keys.explain(f"rotary_dim {width}", "projection_dim")
    keys.absent("rope_theta", "its code has base 10000")
    spec = RotarySpec(head_dim=part.head_dim("hidden_size", hidden, heads), rotary_dim=width)
    notes = ("its frequencies are a saved buffer, which takes the dtype of the model",)
    return of_one_spec(part, spec, ("attention",) * layers, heads, targets=("q", "k", "v"), notes=notes)


def switched(
    part: TowerConfig, switch: str, base: str, names: GridNames, sizes: tuple[int, int, int], note: str,
    by_default: bool = False, tables: Tables = "activation",
) -> ModelRotary:  # fmt: skip
    """The conformers of wav2vec2 and its heirs, and Evolla's ESM: one axis, if a key says "rotary" (or nothing, where
    that is the default); another key holds the base, for the code has no rope parameters."""
    kind = part.keys.word(switch)
    if kind != "rotary" and not (kind is None and by_default):
        stated = "is not stated, and not rotary by default" if kind is None else f"is {kind!r}"
        raise NoRotary(f"{part.path}{switch} {stated}; it has no rotary embedding to read")
    part.keys.explain("rotary", switch)
    hidden, heads, layers = part.sizes(names, sizes)
    head_dim = part.head_dim("hidden_size", hidden, heads)
    spec = RotarySpec(head_dim=head_dim, base=replace(part, dicts=()).base(10_000.0, (base,)), tables=tables)
    return of_one_spec(part, spec, ("attention",) * layers, heads, notes=(note,))


def esmfold2_atom(part: TowerConfig) -> ModelRotary:
    """ESMFold2's atoms: x, y and z on a short ladder each, the number of the residue on another, the rest at rest."""
    hidden, heads, layers = part.sizes(PLAIN, (128, 4, 3))
    head_dim = part.keys.size("head_dim") or part.head_dim("hidden_size", hidden, heads)
    part.keys.explain(f"head_dim {head_dim}", "head_dim")
    near = part.keys.size_or(2, "num_spatial_rope_pairs_per_axis")
    uid = part.keys.size_or(10, "num_uid_rope_pairs")
    rest = head_dim // 2 - 3 * near - uid
    if rest < 0:
        raise ValueError(f"{part.path}head_dim must hold 3 x {near} + {uid} pairs, got {head_dim}")
    part.keys.explain(f"{near} pairs for each of x, y and z", "num_spatial_rope_pairs_per_axis")
    part.keys.explain(f"{uid} pairs for the number of the residue", "num_uid_rope_pairs")
    space = inverse_frequencies_float32(part.base(20.0, ("spatial_rope_base_frequency",)), 2 * near).tolist()
    residue = inverse_frequencies_float32(part.base(10_000.0, ("uid_rope_base_frequency",)), 2 * uid).tolist()
    spec = RotarySpec(
        head_dim=head_dim, frequencies=(*space * 3, *residue, *(0.0,) * rest), coordinates="real",
        axes=Listed(tuple(a for a in range(3) for _ in range(near)) + (3,) * (uid + rest)),
    )  # fmt: skip
    notes = ("positions are x, y, z of the atom in its reference conformer, and the number of its residue",)
    return of_one_spec(part, spec, ("attention",) * layers, heads, notes=notes)


def musicflamingo(part: TowerConfig) -> ModelRotary:
    """Music Flamingo rotates audio features by their time, once, between the encoder and the projector."""
    audio = part.keys.inside("audio_config", "AudioFlamingo3EncoderConfig")
    hidden = audio.size_or(1280, "hidden_size", "d_model")
    agreed([(f"{audio.path}hidden_size", hidden), *part.keys.entries("head_dim")])
    part.keys.explain(f"head_dim {hidden}", "head_dim")
    pairs, base = int(hidden * part.share(0.2)) // 2, part.base(1200.0)
    spec = RotarySpec(
        head_dim=hidden, rotary_dim=4 * pairs, base=base, interleaved=True, axes=Axial((pairs, pairs)),
        coordinates="real", tables="float64",
    )  # fmt: skip
    notes = (
        "neither q nor k but the audio features are rotated, once, before the projector",
        "the coordinates of frame i of window m at t seconds are -2 pi t m / base and -2 pi t 2 pi i / base",
    )
    return of_one_spec(part, spec, ("audio_features",), 1, targets=(), notes=notes)


def efficientloftr(part: TowerConfig) -> ModelRotary:
    """EfficientLoFTR rotates the whole hidden size before it is split into heads; rows and columns alternate."""
    names = (("hidden_size",), ("num_attention_heads",), ("num_attention_layers",))
    hidden, heads, layers = part.sizes(names, (256, 8, 4))
    share, base = part.share(4.0, most=1e3), part.base(10_000.0)
    if int(hidden // heads * share) * 2 != hidden:
        first, second = f"{part.path}partial_rotary_factor", f"{part.path}num_attention_heads"
        out = f"the first must be {heads / 2:g}, half the number of heads: rows and columns share"
        raise contradiction(first, second, (share, heads), out)
    spec = RotarySpec(
        head_dim=hidden, base=base, interleaved=True, axes=Alternating((0, 1), own_ladders=True), tables="rounded"
    )
    notes = (
        "the whole hidden size is rotated like one head, before it is split",
        "positions are (row + 1, column + 1) of the aggregated features",
        "cross-attention does not rotate",
    )
    return of_one_spec(part, spec, ("attention",) * layers, 1, notes=notes)


def sam3(part: TowerConfig, model: ModelRotary) -> ModelRotary:
    """SAM 3: windows have whole positions; layers across the image shrink theirs to the size of a window."""
    columns = _side(part, "image_size", 1008) // _side(part, "patch_size", 14)
    window = _side(part, "window_size", 24)
    across = part.keys.wholes("global_attn_indexes")
    if across is None:
        across = [7, 15, 23, 31]
        part.keys.default("global_attn_indexes", str(across))
    part.keys.explain("layers across the whole image", "global_attn_indexes")
    shrunk = f"positions across the whole image are times {window} / {columns}"
    part.keys.explain(shrunk, "window_size", "image_size", "patch_size")
    inside = model.layers[0]
    assert inside is not None
    spread = inside.replace(coordinates="real", position_scale=window / columns)
    kinds = [i in across for i in range(len(model.layers))]
    return replace(
        model,
        layers=tuple(spread if wide else inside for wide in kinds),
        layer_types=tuple("full_attention" if wide else "window_attention" for wide in kinds),
    )


def sapiens2(part: TowerConfig, model: ModelRotary) -> ModelRotary:
    """Sapiens 2: a DINOv3 whose middle layers have fewer key heads."""
    count, listed = len(model.layers), "num_key_value_heads_per_layer"
    ends = ("num_first_full_attention_layers", "num_last_full_attention_layers")
    few, first, last = (part.keys.size_or(8, name) for name in ("num_key_value_attention_heads", *ends))
    heads = part.keys.wholes(listed, at_least=1)
    if heads is None:
        heads = [model.num_heads if i < first or i >= count - last else few for i in range(count)]
    part.keys.explain("key heads of each layer", listed, "num_key_value_attention_heads", *ends)
    if len(heads) != count:
        raise ValueError(f"{part.path}{listed} must have one number per layer, {count} here, got {len(heads)}")
    notes = () if len(set(heads)) == 1 else (f"key heads differ by layer: {heads}",)
    return replace(model, num_kv_heads=max(heads), notes=(*model.notes, *notes))


def _side(part: TowerConfig, name: str, default: int) -> int:
    """A length in patches or pixels; pairs must be square."""
    value = part.keys.get(name)
    if value is None:
        part.keys.default(name, str(default))
        return default
    if isinstance(value, list | tuple):
        value = agreed([(f"{part.path}{name}[{i}]", v) for i, v in enumerate(value)])
    is_size(part.path + name, value)
    return int(value)
