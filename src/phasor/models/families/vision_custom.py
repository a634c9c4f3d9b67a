"""Vision towers with layers that differ, and image matching."""

from dataclasses import replace

from ...rotary.axes import Alternating
from ...rotary.spec import RotarySpec
from ..reading.custom_parser import Odd, of_one_spec
from ..reading.grid import Grid
from ..reading.keys import agreed, is_list, is_size
from ..reading.model import ModelRotary
from ..reading.model_row import Row
from ..reading.part import Part
from ..reading.planes import CENTRES, centres, plane_interleaved, space_tiled
from ..weights import Rows, Weights


def sam3(part: Part) -> ModelRotary:
    """SAM 3: windows have whole positions; layers across the image shrink theirs to the size of a window."""
    grid = Grid(
        config=part.config,
        code="",
        sizes=(1024, 16, 32),
        layout=plane_interleaved,
        notes=("positions are (column, row)",),
    )
    model = grid.of(part)
    columns = _side(part, "image_size", 1008) // _side(part, "patch_size", 14)
    window = _side(part, "window_size", 24)
    across = part.keys.wholes("global_attn_indexes")
    if across is None:
        across = [7, 15, 23, 31]
        part.default("global_attn_indexes", str(across))
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


def sapiens2(part: Part) -> ModelRotary:
    """Sapiens 2: a DINOv3 whose middle layers have fewer key heads."""
    grid = Grid(
        config=part.config, code="", sizes=(1024, 16, 24), layout=centres, base=100.0, tables="activation", prefix=1,
        registers=8, notes=(CENTRES,),
    )  # fmt: skip
    model = grid.of(replace(part, dicts=()))  # its base stands at the top alone
    count, listed = len(model.layers), "num_key_value_heads_per_layer"
    ends = ("num_first_full_attention_layers", "num_last_full_attention_layers")
    few, first, last = (part.size((name,), 8) for name in ("num_key_value_attention_heads", *ends))
    heads = part.keys.wholes(listed, at_least=1)
    if heads is None:
        heads = [model.num_heads if i < first or i >= count - last else few for i in range(count)]
    part.keys.explain("key heads of each layer", listed, "num_key_value_attention_heads", *ends)
    if len(heads) != count:
        raise ValueError(f"{part.path}{listed} must have one number per layer, {count} here, got {len(heads)}")
    notes = () if len(set(heads)) == 1 else (f"key heads differ by layer: {heads}",)
    return replace(model, num_kv_heads=max(heads), notes=(*model.notes, *notes))


def vjepa2_predictor(part: Part) -> ModelRotary:
    """V-JEPA 2's predictor, whose sizes stand in the config of the encoder."""
    names = (("pred_hidden_size",), ("pred_num_attention_heads",), ("pred_num_hidden_layers",))
    grid = Grid(
        config=part.config, code="", sizes=(384, 12, 12), names=names, layout=space_tiled, tables="activation",
        base_names=()
    )  # fmt: skip
    return grid.of(part)


def efficientloftr(part: Part) -> ModelRotary:
    """EfficientLoFTR turns the whole hidden size before it is split into heads; rows and columns take turns."""
    names = (("hidden_size",), ("num_attention_heads",), ("num_attention_layers",))
    hidden, heads, layers = part.sizes(names, (256, 8, 4))
    share, base = part.share(4.0, most=1e3), part.base(10_000.0)
    if int(hidden // heads * share) * 2 != hidden:
        raise ValueError(
            f"{part.path}partial_rotary_factor must be {heads / 2:g}, half the number of heads, because rows and "
            f"columns turn half of the hidden size each, got {share:g}"
        )
    spec = RotarySpec(
        head_dim=hidden, base=base, interleaved=True, axes=Alternating((0, 1), own_ladders=True), tables="rounded"
    )
    notes = (
        "the whole hidden size is rotated like one head, before it is split",
        "positions are (row + 1, column + 1) of the aggregated features",
        "cross-attention does not rotate",
    )
    return of_one_spec(part, spec, ("attention",) * layers, 1, notes=notes)


def _side(part: Part, name: str, default: int) -> int:
    """A length in patches or pixels; pairs must be square."""
    value = part.keys.get(name)
    if value is None:
        part.default(name, str(default))
        return default
    if isinstance(value, list | tuple):
        is_list(part.path + name, value)
        value = agreed([(f"{part.path}{name}[{i}]", v) for i, v in enumerate(value)])
    is_size(part.path + name, value)
    return int(value)


PREDICTOR = Odd(
    "VJEPA2Config",
    "VJEPA2RopeAttention",
    vjepa2_predictor,
    weights=Weights(attention=("predictor.layer.{}.attention",), rows=(Rows("query", "q"), Rows("key", "k"))),
)
WHOLE = "it turns the whole hidden state before heads are cut off it, so that pairs may not be moved"
ROWS: dict[str, Row] = {
    "efficientloftr": Odd(
        "EfficientLoFTRConfig",
        "EfficientLoFTRRotaryEmbedding",
        efficientloftr,
        weights=WHOLE,
    ),
    "sam3_vit_model": Odd(
        "Sam3ViTConfig", "Sam3ViTRotaryEmbedding", sam3, weights=Weights(attention=("layers.{}.attention",))
    ),
    "sapiens2": Odd(
        "Sapiens2Config",
        "Sapiens2RopePositionEmbedding",
        sapiens2,
        weights=Weights(attention=("layer.{}.attention",)),
        published=Weights(attention=("blocks.{}.attn",), rows=(Rows("wq", "q"), Rows("wk", "k")), source="read"),
    ),
    "vjepa2_predictor": PREDICTOR,
}
