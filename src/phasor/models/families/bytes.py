"""BLT: models of bytes."""

from ..reading.model_row import Row
from ..reading.text import Text

# fmt: off
ROWS: dict[str, Row] = {
    "blt_global_transformer": Text("BltGlobalTransformerConfig", 500_000.0, (2048, 16, None, 25, None, 4096),
        interleaved=True),
    "blt_local_decoder": Text("BltLocalDecoderConfig", 500_000.0, (1024, 16, None, 9, None, 24_576),
        interleaved=True),
    "blt_local_encoder": Text("BltLocalEncoderConfig", 500_000.0, (1024, 16, None, 1, None, 24_576),
        interleaved=True),
    "blt_patcher": Text("BltPatcherConfig", 10_000.0, (768, 12, None, 14, None, 8192), interleaved=True),
}
# fmt: on
