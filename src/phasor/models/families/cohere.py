"""Cohere: interleaved, and no rotation in the layers with full attention."""

from ...positions import Rule
from ..reading.axes import striped
from ..reading.keys import Keys, is_list
from ..reading.layers import ATTENTION, BY_NAME, Layers, alike, every, full_does_not, must_say
from ..reading.row import CompositeModel, Row, with_text
from ..reading.text import TextModel
from ..reading.text_row import Rope

FRAMES = Rule(per_frame=True)
COHERE_COMPASS = {"full_attention": Rope(10_000.0, top=()), "sliding_attention": Rope(10_000.0, top=())}


def dense_do(keys: Keys, words: tuple[str, ...]) -> list[bool]:
    """Cohere 2 MoE rotates its dense layers even with full attention if their window pattern is 1."""
    rotates = full_does_not(keys, words)
    if keys.whole("prefix_dense_sliding_window_pattern") != 1:
        return rotates
    kinds = keys.get("mlp_layer_types", check=is_list) or []
    dense = {i for i, kind in enumerate(kinds) if kind == "dense"}
    in_dense = [i in dense and word in ATTENTION for i, word in enumerate(words)]
    return [one or other for one, other in zip(rotates, in_dense, strict=True)]


# fmt: off
ROWS: dict[str, Row] = {
    **with_text("cohere2", "aya_vision", "cohere2_vision"),
    "cohere": TextModel("CohereConfig", base=500_000.0, hidden=8192, heads=64, layers=40, length=8192,
        interleaved=True, tables="rounded"),
    "cohere2": TextModel("Cohere2Config", base=10_000.0, hidden=8192, heads=64, layers=40, length=8192,
        layer_types=Layers(every(4, "sliding_window_pattern"), BY_NAME), rotates=full_does_not, interleaved=True,
        tables="rounded"),
    "cohere2_moe": TextModel("Cohere2MoeConfig", base=10_000.0, hidden=8192, heads=64, layers=40, head_dim=128,
        length=8192, layer_types=Layers(must_say, BY_NAME), rotates=dense_do, interleaved=True, tables="rounded"),
    "cohere_compass": CompositeModel(positions=FRAMES),
    "cohere_compass_text": TextModel("CohereCompassTextConfig", rope=COHERE_COMPASS, hidden=8192, heads=64, layers=40,
        length=8192, dicts=("rope_parameters",),
        reads={"rope_parameters.rope_theta": "no effect: next to the parameters of the layer types"},
        layer_types=Layers(alike("full_attention"), BY_NAME), axes=striped(24, 20, 20)),
}
# fmt: on
