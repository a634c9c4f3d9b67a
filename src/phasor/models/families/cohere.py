"""Cohere: interleaved, and no rotation in the layers with full attention."""

from ...positions import Rule
from ..reading.axes import striped
from ..reading.keys import Keys, is_list
from ..reading.layers import ATTENTION, BY_NAME, Layers, alike, every, full_does_not, must_say
from ..reading.model_row import PartOf, Row
from ..reading.non_rotary import Frame
from ..reading.text import Text
from ..reading.text_row import Rope

FRAMES = Rule(per_frame=True)
COHERE_COMPASS = {
    "full_attention": Rope(10_000.0, top=()),
    "sliding_attention": Rope(10_000.0, top=()),
}


def dense_do(keys: Keys, words: tuple[str, ...]) -> list[bool]:
    """Cohere 2 MoE rotates its dense layers even with full attention if their window pattern is 1."""
    turns = full_does_not(keys, words)
    if keys.whole("prefix_dense_sliding_window_pattern") != 1:
        return turns
    kinds = keys.get("mlp_layer_types", check=is_list) or []
    dense = {i for i, kind in enumerate(kinds) if kind == "dense"}
    return [turn or (i in dense and word in ATTENTION) for i, (turn, word) in enumerate(zip(turns, words, strict=True))]


# fmt: off
ROWS: dict[str, Row] = {
    "aya_vision": Frame(parts={"text_config": PartOf("cohere2")}),
    "cohere": Text("CohereConfig", 500_000.0, (8192, 64, None, 40, None, 8192), interleaved=True, tables="rounded"),
    "cohere2": Text("Cohere2Config", 10_000.0, (8192, 64, None, 40, None, 8192),
        layers=Layers(every(4, "sliding_window_pattern"), BY_NAME), turns=full_does_not, interleaved=True,
        tables="rounded"),
    "cohere2_moe": Text("Cohere2MoeConfig", 10_000.0, (8192, 64, None, 40, 128, 8192),
        layers=Layers(must_say, BY_NAME), turns=dense_do, interleaved=True, tables="rounded"),
    "cohere2_vision": Frame(parts={"text_config": PartOf("cohere2")}),
    "cohere_compass": Frame(positions=FRAMES),
    "cohere_compass_text": Text("CohereCompassTextConfig", COHERE_COMPASS, (8192, 64, None, 40, None, 8192),
        dicts=("rope_parameters",), beside=("rope_theta",), layers=Layers(alike("full_attention"), BY_NAME),
            axes=striped(24, 20, 20)),
}
# fmt: on
