"""EXAONE and others whose layers with full attention do not rotate beside windows."""

from ..reading.layers import BY_NAME, Layers, every, full_does_not, full_does_not_beside_windows, must_say
from ..reading.model_row import Row
from ..reading.text import Text

# fmt: off
ROWS: dict[str, Row] = {
    "exaone4": Text("Exaone4Config", 10_000.0, (4096, 32, 32, 32, None, 2048),
        layers=Layers(every(4, "sliding_window_pattern"), BY_NAME), turns=full_does_not_beside_windows),
    "exaone_moe": Text("ExaoneMoeConfig", 10_000.0, (4096, 32, 32, 32, None, 2048),
        layers=Layers(every(4, "sliding_window_pattern"), BY_NAME), turns=full_does_not_beside_windows),
    "flint": Text("FlintConfig", 10_000.0, (2048, 32, 4, 49, 128, 262_144), layers=Layers(must_say, BY_NAME),
        turns=full_does_not),
    "kolibri1": Text("Kolibri1Config", 10_000.0, (2560, 48, 4, 50, 128, 262_144), layers=Layers(every(5), BY_NAME),
        turns=full_does_not_beside_windows),
}
# fmt: on
