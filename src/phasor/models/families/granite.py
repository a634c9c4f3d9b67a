"""Granite."""

from ..reading.layers import BY_NAME, Layers, every_from_first, must_say
from ..reading.model_row import PartOf, Row
from ..reading.non_rotary import NOPE, Frame, Switch
from ..reading.text import Text

# fmt: off
ROWS: dict[str, Row] = {
    "granite": Text("GraniteConfig", 10_000.0, (4096, 32, None, 32, None, 2048)),
    "granite4_vision_text": Text("Granite4VisionTextConfig", 10_000.0, (4096, 32, None, 32, None, 2048)),
    "granite_docling_text": Text("GraniteDoclingTextConfig", 10_000.0, (1024, 16, 4, 28, None, 32_768)),
    "granite_speech": Frame(parts={"text_config": PartOf("granite")}),
    "granite_speech_plus": Frame(parts={"text_config": PartOf("granite")}),
    "granite_swa": Text("GraniteSWAConfig", 10_000.0, (2560, 20, 4, 24, None, 8192), bases="layer_rope_theta",
        layers=Layers(every_from_first(4), BY_NAME)),
    "granitemoe": Text("GraniteMoeConfig", 10_000.0, (4096, 32, None, 32, None, 2048)),
    "granitemoe_swa": Text("GraniteMoeSWAConfig", 10_000.0, (4096, 32, None, 32, None, 2048),
        bases="layer_rope_theta", layers=Layers(every_from_first(4), BY_NAME)),
    "granitemoehybrid": Text("GraniteMoeHybridConfig", 10_000.0, (4096, 32, None, 32, None, 2048),
        layers=Layers(must_say, {"layer_types": None, "layers_block_type": None}, kinds=("mamba", "mamba2",
            "linear_attention")),
        switches=(Switch("position_embedding_type", ("rope",), None, NOPE),)),
    "granitemoeshared": Text("GraniteMoeSharedConfig", 10_000.0, (4096, 32, None, 32, None, 2048)),
}
# fmt: on
