"""A longer context on a given engine: the rotation, the settings that give it, the proof, and what it costs."""

from typing import Any

from phasor.support.calls import called_as

from ..engines import engine_of, load_config
from .choose import METHODS, choose
from .cost import Cost, costs
from .kv import Memory, Store, memory
from .proof import prove
from .result import Plan
from .traps import Trap, TrapInputs, draft_traps, file_traps, find_traps, loaded_traps, runtime_traps, traps

__all__ = [
    "METHODS", "Cost", "Memory", "Plan", "Store", "Trap", "draft_traps", "file_traps", "loaded_traps", "memory", "plan",
    "runtime_traps", "traps",
]  # fmt: skip


@called_as('plan(config, length=131072, engine="vllm")')
def plan(
    config: Any,
    *,
    length: int | None = None,
    engine: str = "transformers",
    method: str = "auto",
    original: int | None = None,
) -> Plan:
    """The settings with which ``engine`` runs a model at ``length`` positions, read back and compared.

    ``config`` as ``source`` in `phasor.read_config`. ``length``: by default the trained one; a shorter one keeps the
    rotation. ``method``: ``"yarn"``, ``"linear"``, ``"ntk"``, ``"dynamic"``, ``"none"``; by default the scaling that the
    model has is stretched further, and YaRN taken where it has none. ``original``: the length it was trained with; by
    default the published one where it is known (Qwen3: 32768 of the 40960 declared), else the declared one.

    The settings are read back by the engine's reader (`phasor_serve.engines`), and given only if every layer rotates as
    planned to 1e-6; else ``settings`` is None and ``refused`` says why. ``verdict`` is ``"not shown"`` where it was not
    seen that the engine has the model, or what it reads of its config. Raises ``ValueError`` for an unknown engine
    or method, a config that is not understood, and rope parameters without a base.

    >>> config = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 1,
    ...           "max_position_embeddings": 4096}
    >>> made = plan(config, length=16384, engine="llama.cpp")
    >>> made.settings.flags
    {'-c': 16384, '--rope-scaling': 'yarn', '--rope-scale': 4.0, '--yarn-orig-ctx': 4096}
    >>> round(made.spec.attention_factor(), 4)
    1.1386
    """
    chosen, loaded = engine_of(engine), load_config(config)
    choice = choose(loaded, length, method, original, engine)
    length = choice.length
    proof = prove(chosen, loaded, choice.wanted, length)
    flags = dict(proof.settings.flags) if proof.settings else {}
    return Plan(
        engine=engine, version=chosen.version, length=length, trained=choice.trained, factor=choice.factor,
        config=loaded, wanted=choice.wanted, proof=proof, why=choice.why,
        costs=tuple(costs(loaded.model, choice.wanted, choice.trained, length)),
        warnings=tuple(find_traps(TrapInputs(loaded.data, loaded, engine, flags, proof.reading))),
    )  # fmt: skip
