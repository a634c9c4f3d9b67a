"""Everything that is true of one model: its defaults, the keys that its code reads, what it turns, and how.

One row per model type, in the file of its family; a fact about Gemma stands in ``gemma.py``. A model type with a known
layout is one more row. The engine that reads configs by these rows, `phasor.models.reading`, knows no model.
"""

from types import ModuleType

from ..reading.composite import RowTable
from ..reading.row import Alias, Row
from . import (
    audio,
    cohere,
    deepseek,
    encoders,
    gemma,
    glm,
    gpt,
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
    qwen,
    speech,
    vision,
)  # fmt: skip

FILES = (
    llama, qwen, gemma, glm, deepseek, mistral, cohere, olmo, gpt, minimax, hunyuan, lfm, muse, hybrids, encoders,
    others, vision, audio, speech, non_rotary,
)  # fmt: skip


def _once(files: tuple[ModuleType, ...]) -> dict[str, Row | Alias]:
    """The rows of all files; a model type stands in one of them only."""
    rows: dict[str, Row | Alias] = {}
    for file in files:
        if twice := rows.keys() & file.ROWS.keys():
            raise ImportError(f"{file.__name__} has rows of another file: {sorted(twice)}")
        rows |= file.ROWS
    return rows


ROWS: RowTable = _once(FILES)
