"""Cohere: interleaved, and no rotation in the layers with full attention."""

from ...positions import Rule
from ..reading.axes import striped
from ..reading.keys import Keys, is_list
from ..reading.layers import ATTENTION, BY_NAME, Layers, alike, every, full_does_not
from ..reading.row import CompositeModel, Row, with_text
from ..reading.text import TextModel
from ..reading.text_row import Rope

FRAMES = Rule(per_frame=True)
COHERE_COMPASS = {"full_attention": Rope(10_000.0, top=()), "sliding_attention": Rope(10_000.0, top=())}


def after_dense(keys: Keys, count: int) -> list[str]:
    """Cohere 2 MoE: windows by one pattern in the first, dense layers, and by another, counted anew, in the rest."""
    first = min(keys.whole("first_k_dense_replace", at_least=0) or 0, count)
    dense = every(1, "prefix_dense_sliding_window_pattern")(keys, first)
    return [*dense, *every(4, "sliding_window_pattern")(keys, count - first)]


def dense_do(keys: Keys, words: tuple[str, ...]) -> list[bool]:
    """Cohere 2 MoE rotates its dense layers even with full attention if their window pattern is 1."""
    rotates = full_does_not(keys, words)
    if keys.whole("prefix_dense_sliding_window_pattern") not in (None, 1):
        return rotates
    kinds = keys.get("mlp_layer_types", check=is_list)
    first = range(keys.whole("first_k_dense_replace", at_least=0) or 0)
    dense = set(first) if kinds is None else {i for i, kind in enumerate(kinds) if kind == "dense"}
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
        length=8192, dicts=("rope_parameters",), layer_types=Layers(after_dense, BY_NAME), rotates=dense_do,
        interleaved=True, tables="rounded"),
    "cohere_compass": CompositeModel(positions=FRAMES),
    "cohere_compass_text": TextModel("CohereCompassTextConfig", rope=COHERE_COMPASS, hidden=8192, heads=64, layers=40,
        length=8192, dicts=("rope_parameters",),
        reads={"rope_parameters.rope_theta": "no effect: next to the parameters of the layer types"},
        layer_types=Layers(alike("full_attention"), BY_NAME), axes=striped(24, 20, 20)),
}
# fmt: on
