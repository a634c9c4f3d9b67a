"""What engines make of a config: one file each, matched with the engine's own code (tests/engines)."""

from typing import Any

from phasor.support.registry import register

from .base import CannotSayError, Engine, EngineReading, EngineRule, NotReadError, Settings
from .engine_config import EngineConfig, load_config
from .exllamav3 import ExLlamaV3
from .flags import parse, typed
from .llama_cpp import LlamaCpp
from .mlx_lm import MlxLm
from .sglang import SGLang
from .support import Support, support_of
from .tensorrt_llm import TensorRTLLM
from .transformers import Transformers
from .vllm import Vllm

ENGINES: dict[str, Engine] = {}

__all__ = [
    "CannotSayError", "ENGINES", "Engine", "EngineConfig", "EngineReading", "NotReadError", "EngineRule", "Settings",
    "Support", "engine_of", "load_config", "parse", "read_as", "register_engine", "support_of", "typed",
]  # fmt: skip


def register_engine(engine: Engine) -> None:
    """Register an engine by its name for `read_as`, to `phasor_serve.plan` and to the command line.

    Raises ``ValueError`` for what is no `Engine`, and for a name that is taken.
    """
    if not isinstance(engine, Engine):
        raise ValueError(f"engine must be an instance of phasor_serve.engines.Engine, got {engine!r:.80}")
    register(ENGINES, "engine", engine.name, engine)


for _engine in (Transformers(), Vllm(), SGLang(), LlamaCpp(), ExLlamaV3(), MlxLm(), TensorRTLLM()):
    register_engine(_engine)


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
