"""Everything that is true of one model: its defaults, the keys that its code reads, what it turns, and how.

One row per model type, in the file of its family; a fact about Gemma stands in ``gemma.py``. A model type with a known
layout is one more row. The engine that reads configs by these rows, `phasor.models.reading`, knows no model.
"""

from types import ModuleType

from ..reading.composite import Rows
from ..reading.model_row import Chosen, Row
from . import (
    audio,
    audio_language,
    bytes,
    cohere,
    deepseek,
    encoders,
    ernie,
    exaone,
    gemma,
    glm,
    gpt,
    granite,
    hunyuan,
    hybrids,
    lfm,
    llama,
    minimax,
    mistral,
    muse,
    non_rotary,
    olmo,
    others,
    phi,
    qwen,
    speech,
    vision,
    vision_custom,
)

FILES = (
    llama, qwen, gemma, glm, deepseek, mistral, cohere, granite, olmo, gpt, phi, minimax, hunyuan, ernie, exaone, lfm,
    muse, hybrids, encoders, bytes, audio_language, others, vision, vision_custom, audio, speech, non_rotary,
)  # fmt: skip


def _once(files: tuple[ModuleType, ...]) -> dict[str, Row | Chosen]:
    """The rows of all files; a model type stands in one of them only."""
    rows: dict[str, Row | Chosen] = {}
    for file in files:
        if twice := rows.keys() & file.ROWS.keys():
            raise ImportError(f"{file.__name__} has rows of another file: {sorted(twice)}")
        rows |= file.ROWS
    return rows


ROWS: Rows = _once(FILES)
