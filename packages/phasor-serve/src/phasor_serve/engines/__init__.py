"""What engines make of a config: one file each, matched with the engine's own code (tests/engines)."""

from typing import Any

from phasor.support.registry import import_all

from .base import ENGINES, CannotSayError, Engine, EngineReading, EngineRule, NotReadError, Settings, register_engine
from .engine_config import EngineConfig, load_config
from .flags import parse, typed
from .serving import Reserve, Serving
from .support import Support, support_of

__all__ = [
    "CannotSayError", "ENGINES", "Engine", "EngineConfig", "EngineReading", "NotReadError", "EngineRule", "Reserve",
    "Serving", "Settings", "Support", "engine_of", "load_config", "parse", "read_as", "register_engine", "support_of",
    "typed",
]  # fmt: skip

import_all(__name__, __path__, first=("transformers", "vllm", "sglang", "llama_cpp"))  # as they are listed


def engine_of(name: str) -> Engine:
    """The engine of a name; ``ValueError`` for one that is not known."""
    if name not in ENGINES:
        raise ValueError(f"engine must be one of {', '.join(ENGINES)}, got {name!r}")
    return ENGINES[name]


def read_as(source: Any, engine: str, flags: str | dict[str, Any] = "") -> EngineReading:
    """What ``engine`` rotates, given a config and its flags (a command line, or a dictionary of parsed ones).

    ``source`` as in `phasor.read_config`. Raises ``ValueError`` for flags with which the engine would not start, and
    for a model that it does not have (`CannotSayError`) or whose reading is not shown here (`NotReadError`).

    >>> config = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 1}
    >>> read_as(config, "vllm", "--max-model-len 1024").length
    1024
    """
    reader = engine_of(engine)
    values = parse(flags, reader.flags, reader.gone, reader.name) if isinstance(flags, str) else flags
    config = load_config(source)
    if (support := support_of(reader, config)).verdict == "wrong":
        raise CannotSayError(support.reason)
    return reader.read(config, values)
