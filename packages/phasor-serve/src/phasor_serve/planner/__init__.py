"""A longer context on a given engine: the rotation, the settings that give it, the proof, and what it costs."""

from typing import Any

from ..engines import ENGINES, engine_of, load_config
from .choose import METHODS, choose
from .cost import Cost, costs
from .fit import Fit, fit
from .kv import Memory, Store, memory
from .programs import PROGRAMS
from .proof import prove
from .result import Plan
from .traps import Trap, TrapInputs, draft_traps, file_traps, find_traps, runtime_traps, traps
from .weights import Weights, count_weights, read_weights

__all__ = [
    "METHODS", "PROGRAMS", "Cost", "Fit", "Memory", "Plan", "Store", "Trap", "Weights", "count_weights", "draft_traps",
    "file_traps", "fit", "memory", "plan", "plan_in", "read_weights", "runtime_traps", "traps",
]  # fmt: skip


def plan(
    config: Any, *, length: int | None = None, engine: str = "transformers", method: str = "auto",
    original: int | None = None,
) -> Plan:  # fmt: skip
    """The settings with which ``engine`` runs a model at ``length`` positions, read back and compared.

    ``engine``: also a program on top of one, `programs.PROGRAMS`: ollama, lm-studio, koboldcpp.
    ``config`` as ``source`` in `phasor.read_config`. ``length``: by default the trained one; a shorter one keeps the
    rotation. ``method``: ``"yarn"``, ``"linear"``, ``"ntk"``, ``"dynamic"``, ``"none"``; by default the scaling that
    the model has is stretched further, and YaRN taken where it has none. ``original``: the length it was trained with;
    by default the published one where it is known (Qwen3: 32768 of the 40960 declared), else the declared one.

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
    if engine not in (*ENGINES, *PROGRAMS):
        raise ValueError(f"engine must be one of {', '.join((*ENGINES, *PROGRAMS))}, got {engine!r}")
    program = PROGRAMS.get(engine)
    engine = program.engine if program else engine
    chosen, loaded = engine_of(engine), load_config(config)
    choice = choose(loaded, length, method, original, engine)
    length = choice.length
    proof = prove(chosen, loaded, choice.wanted, length, program.takes if program else None)
    flags = dict(proof.settings.flags) if proof.settings else {}
    return Plan(
        engine=engine, version=chosen.version, length=length, trained=choice.trained, factor=choice.factor,
        program=program, config=loaded, wanted=choice.wanted, proof=proof, why=choice.why,
        costs=tuple(costs(loaded.model, choice.wanted, choice.trained, length)),
        warnings=tuple(find_traps(TrapInputs(loaded.data, loaded, engine, flags, proof.reading))),
    )  # fmt: skip


def plan_in(
    config: Any, memory: int, weights: Weights, *, length: int | None = None, engine: str = "transformers",
    method: str = "auto", original: int | None = None, dtype: str = "bfloat16", tensor_parallel: int = 1,
    batch: int = 1, draft: Any = None,
) -> tuple[Plan, Fit]:  # fmt: skip
    """A plan and what fits ``memory`` bytes, for `plan` and `fit`.

    ``length``: by default the longest that fits of those that need no stretch. ``weights``: of ``draft`` as well, a
    config whose keys and values stand beside, where it is given.
    """
    beside = None if draft is None else load_config(draft)

    def made_for(tokens: int | None) -> tuple[Plan, Fit]:
        made = plan(config, length=tokens, engine=engine, method=method, original=original)
        return made, fit(
            made.config, made.engine, memory, weights, made.length, dtype=dtype, tensor_parallel=tensor_parallel,
            batch=batch, draft=beside,
        )  # fmt: skip

    made, found = made_for(length)
    native = min(found.longest, max(made.length, made.config.model.max_position or 0))
    return (made, found) if length is not None or native in (0, made.length) else made_for(native)
