"""ERNIE and PaddleOCR."""

from ...positions import Rule
from ..reading.axes import paired, sections
from ..reading.model_row import Row
from ..reading.non_rotary import Frame
from ..reading.text import Text

# fmt: off
ROWS: dict[str, Row] = {
    "ernie4_5": Text("Ernie4_5Config", 500_000.0, (1024, 16, 2, 18, 128, 131_072), interleaved=True,
        tables="float32"),
    "ernie4_5_moe": Text("Ernie4_5_MoeConfig", 500_000.0, (2560, 20, 4, 28, None, 131_072), interleaved=True,
        tables="float32"),
    "ernie4_5_vl_moe": Frame(positions=Rule(frame_merge=2)),
    "ernie4_5_vl_moe_text": Text("Ernie4_5_VLMoeTextConfig", 500_000.0, (2560, 20, 4, 28, None, 131_072),
        scaled=False, interleaved=True, tables="float32", axes=paired(22, 22, 20)),
    "paddleocr_vl": Frame(positions=Rule()),
    "paddleocr_vl_text": Text("PaddleOCRTextConfig", 500_000.0, (1024, 16, 2, 18, 128, 131_072),
        spelled={"mrope": "default"}, reads={"use_3d_rope": "M-RoPE, as the code does always"},
        axes=sections(16, 24, 24)),
}
# fmt: on
