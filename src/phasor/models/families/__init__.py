"""Everything that is true of one model: its defaults, the keys that its code reads, what it rotates, and how.

One row per model type, in the file of its family; a fact about Gemma stands in ``gemma.py``. A model type with a known
layout is one more row (docs/first_row.md). The engine that reads configs by these rows, `phasor.models.reading`, knows
no model.
"""

from ..reading.composite import RowTable
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
    minicpm,
    minimax,
    mistral,
    muse,
    non_rotary,
    olmo,
    others,
    qwen,
    speech,
    vision,
)

FILES = (
    llama, qwen, gemma, glm, deepseek, mistral, cohere, olmo, gpt, minicpm, minimax, hunyuan, lfm, muse, hybrids,
    encoders, others, vision, audio, speech, non_rotary,
)  # fmt: skip
ROWS: RowTable = {}
for _file in FILES:
    if _twice := ROWS.keys() & _file.ROWS.keys():
        raise ImportError(f"{_file.__name__} has rows of another file: {sorted(_twice)}")
    ROWS |= _file.ROWS
