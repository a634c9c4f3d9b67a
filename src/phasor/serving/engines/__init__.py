"""What engines make of a config: one file each, matched with the engine's own code (tests/engines)."""

from typing import Any

from .base import CannotSayError, Engine, Reading, Rule, Settings
from .engine_config import Seen, look
from .exllamav3 import ExLlamaV3
from .flags import parse, typed
from .llama_cpp import LlamaCpp
from .mlx_lm import MlxLm
from .sglang import SGLang
from .tensorrt_llm import TensorRTLLM
from .transformers import Transformers
from .vllm import Vllm

ENGINES: dict[str, Engine] = {
    engine.name: engine
    for engine in (Transformers(), Vllm(), SGLang(), LlamaCpp(), ExLlamaV3(), MlxLm(), TensorRTLLM())
}

__all__ = [
    "CannotSayError", "ENGINES", "Engine", "Reading", "Rule", "Seen", "Settings", "engine_of", "look", "parse",
    "read_as", "typed",
]  # fmt: skip


def engine_of(name: str) -> Engine:
    """The engine of a name; ``ValueError`` for one that is not known."""
    if name not in ENGINES:
        raise ValueError(f"engine must be one of {', '.join(ENGINES)}, got {name!r}")
    return ENGINES[name]


def read_as(source: Any, engine: str, flags: str | dict[str, Any] = "") -> Reading:
    """What ``engine`` rotates, given a config and its flags (a command line, or a dictionary of parsed ones).

    ``source`` as in `phasor.read_config`. Raises ``ValueError`` for flags with which the engine would not start.

    >>> config = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 1}
    >>> read_as(config, "vllm", "--max-model-len 1024").length
    1024
    """
    found = engine_of(engine)
    given = parse(flags, found.flags, found.gone, found.name) if isinstance(flags, str) else flags
    return found.read(look(source), given)
