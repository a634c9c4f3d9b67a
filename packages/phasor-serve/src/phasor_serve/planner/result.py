"""A plan: the settings of one engine, proven or refused, what they cost, and the files that hold them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from phasor import ModelRotary, RotarySpec
from phasor.support.findings import Verdict
from phasor.support.whole_files import whole_folder, write_whole

from ..engines import EngineConfig, EngineReading, Settings, typed
from ..engines.gguf import BASE, TYPE, converted
from .cost import Cost
from .fit import Fit
from .kv import Memory, memory
from .programs import Program, command
from .proof import Proof
from .traps import Trap, check_vocabulary, draft_traps

LINES = 12


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How one engine runs a model at a longer context.

    - ``config``: what was planned for. ``wanted``: the rotation of every layer; ``spec``: that of the layers that reach
      farthest.
    - ``proof``: whether the engine has the model and rotates as wanted. ``verdict``, ``reason``, ``settings`` and
      ``reading`` are its own: ``settings`` is what to give the engine (`phasor_serve.engines.Settings`), None where
      it cannot say the rotation, and ``refused`` says why; ``reading`` is what it makes of them, equal to ``wanted`` to
      1e-6.
    - ``program``: the one on top of the engine, where it was asked for.
    - ``why``: how the rotation was chosen; ``costs``: short prompts; ``warnings``: the traps that apply.
    """

    engine: str
    version: str
    length: int
    trained: int
    factor: float
    config: EngineConfig
    wanted: ModelRotary
    proof: Proof
    why: tuple[str, ...]
    costs: tuple[Cost, ...]
    warnings: tuple[Trap, ...]
    program: Program | None = None

    @property
    def name(self) -> str:
        """The engine and its version, below the program on top."""
        own = f"{self.engine} {self.version}"
        return f"{self.program.name} {self.program.version} on {own}" if self.program else own

    @property
    def verdict(self) -> Verdict:
        """``"right"``, ``"wrong"``, or ``"not shown"`` where the engine's own code was not read so far."""
        return self.proof.verdict

    @property
    def settings(self) -> Settings | None:
        """What to give the engine; None where it cannot say the rotation."""
        return self.proof.settings

    @property
    def refused(self) -> str:
        """Why there are no settings; empty where there are."""
        if self.settings is not None:
            return ""
        return f"not shown: {self.proof.reason}" if self.verdict == "not shown" else self.proof.reason

    @property
    def reading(self) -> EngineReading | None:
        """What the engine makes of the settings."""
        return self.proof.reading

    @property
    def spec(self) -> RotarySpec:
        """The rotation of the layers that were stretched, else of the first that rotate."""
        pairs = zip(self.config.model.layers, self.wanted.layers, strict=True)
        return next((new for old, new in pairs if new is not None and new != old), next(iter(self.wanted.distinct)))

    def kv_bytes(self, dtype: str = "bfloat16", tensor_parallel: int = 1, batch: int = 1) -> Memory:
        """The memory of keys and values at this length on each of ``tensor_parallel`` devices, by kind of layer."""
        return memory(self.config, self.engine, self.length, dtype=dtype, tensor_parallel=tensor_parallel, batch=batch)

    def paste(self, dtype: str = "bfloat16", tensor_parallel: int = 1, batch: int = 1, draft: bool = False) -> str:
        """The line to paste; empty without settings, and for engines that have no server here."""
        if self.settings is None:
            return ""
        base = None
        if self.engine == "llama.cpp" and TYPE not in (keys := converted(self.config).keys):
            base = keys.get(BASE)
        return command(
            self.engine, self.settings, dtype=dtype, tensor_parallel=tensor_parallel, batch=batch, draft=draft,
            program=self.program, base=base,
        )  # fmt: skip

    def beside(self, draft: EngineConfig) -> list[str]:
        """What is said of a draft model; raises ``ValueError`` for one of another vocabulary."""
        check_vocabulary(self.engine, self.config, draft)
        found = [] if self.reading is None else [trap.reason for trap in draft_traps(self.reading, draft.data)]
        return found or ["the draft model's vocabulary, positions and scaling go with these settings"]

    def brief(
        self, dtype: str = "bfloat16", tensor_parallel: int = 1, batch: int = 1, found: Fit | None = None,
        draft: Sequence[str] | None = None,
    ) -> str:  # fmt: skip
        """What to paste, what it costs and what fits, in at most twelve lines; `explain` has the rest.

        ``draft``: what is said of a draft model, None without one.
        """
        lines = [f"{self.name}, {self.length:,} tokens"]
        if self.settings is None:
            lines += _labelled("refused", [self.refused])
        else:
            line = self.paste(dtype, tensor_parallel, batch, draft is not None)
            files = "; ".join(text for text in self.setting_lines() if text.startswith(("GGUF", "config")))
            again = ", then convert the model again" if self.engine == "llama.cpp" else ""
            write = " (--write DIR --gguf FILE)" if self.settings.gguf else f" (--write DIR{again})"
            said = [line, files and files + write]
            lines += _labelled("paste", list(filter(None, said)) or ["nothing: the config says it"])
            shown = self.proof.reason if self.verdict == "not shown" else "every layer rotates as planned"
            lines += _labelled("not shown" if self.verdict == "not shown" else "read back", [shown])
        lines += _labelled("rotation", ["; ".join(self.why)])
        short = dict.fromkeys(cost.describe()[0] for cost in self.costs)
        changes = [text for text in short if "nothing changes" not in text] or list(short)
        lines += _labelled("cost", changes[:1])
        memory = self.kv_bytes(dtype, tensor_parallel, batch).describe()[0]
        lines += _labelled("memory", found.describe() if found else [f"keys and values {memory}"])
        told = [*([self.program.note] if self.program else []), *(draft or ()), *(t.reason for t in self.warnings)]
        kept = told if len(lines) + len(told) <= LINES else told[: LINES - 1 - len(lines)]
        more = [f"and {len(told) - len(kept)} more: --why"] if len(kept) < len(told) else []
        return "\n".join([*lines, *_labelled("beware", [*kept, *more])])

    def explain(self, dtype: str = "bfloat16", tensor_parallel: int = 1, found: Fit | None = None) -> str:
        """Everything as text, with what fits where it was asked for."""
        lines = [f"{self.name}, {self.length:,} positions"]
        lines += _labelled("rotation", self.why)
        lines += _labelled("settings", self.setting_lines() or [f"not expressible: {self.refused}"])
        if self.reading is not None:
            lines += _labelled("read back", ["every layer rotates as planned, to 1e-6 in frequency and factor"])
            if self.verdict == "not shown":
                lines += _labelled("not shown", [self.proof.reason])
            lines += _labelled("rules", [rule.describe() for rule in self.reading.rules])
        lines += _labelled("cost", [text for cost in self.costs for text in cost.describe()])
        fits = found.describe() if found else []
        lines += _labelled("memory", [*fits, *self.kv_bytes(dtype, tensor_parallel).describe()])
        return "\n".join([*lines, *_labelled("beware", list(map(str, self.warnings)))])

    def to_dict(self, dtype: str = "bfloat16", tensor_parallel: int = 1) -> dict[str, Any]:
        """Everything as plain JSON data."""
        settings = self.settings
        return {
            "engine": self.engine, "version": self.version, "length": self.length, "trained": self.trained,
            "factor": self.factor, "why": list(self.why), "spec": self.spec.to_dict(), "refused": self.refused,
            "verdict": self.verdict, "reason": self.proof.reason,
            "settings": settings and {"flags": settings.flags, "config": settings.config, "gguf": settings.gguf},
            "rules": [rule.describe() for rule in self.reading.rules] if self.reading else [],
            "costs": [text for cost in self.costs for text in cost.describe()],
            "memory": self.kv_bytes(dtype, tensor_parallel).to_dict(),
            "warnings": [str(trap) for trap in self.warnings],
        }  # fmt: skip

    def setting_lines(self) -> list[str]:
        """The settings as they are typed or written, one a line; empty where there are none."""
        settings = self.settings
        if settings is None:
            return []
        lines = [typed(settings.flags)] if settings.flags else []
        if settings.gguf:
            lines += [f"GGUF key {{arch}}.{key} = {value}" for key, value in settings.gguf.items()]
        if settings.config is not None:
            changed = {k: v for k, v in settings.config.items() if self.config.data.get(k) != v}
            gone = [key for key in self.config.data if key not in settings.config]
            lines += [f"config.json: {key} = {json.dumps(value)}" for key, value in changed.items()]
            lines += [f"config.json: without {key}" for key in gone]
        return lines or ["none: the config says it"]


def _labelled(label: str, texts: Sequence[str]) -> list[str]:
    return [f"  {label if i == 0 else '':<10}{text}" for i, text in enumerate(texts)]


def write(plans: Sequence[Plan], folder: Path, gguf: Path | None = None) -> list[Path]:
    """Write the settings of each plan into ``folder``, which must not exist yet; the paths of what was written.

    ``config.json`` for engines that read it, ``flags.txt`` for the others; with ``gguf`` a copy of that file with
    changed keys, for llama.cpp. Of several engines each has a folder of its own. Everything is made beside ``folder``
    and then given its name, so there is either all of it or nothing. Raises ``ValueError`` where it exists, where an
    engine cannot say the plan, and for a ``gguf`` that is no GGUF file, whether its keys are changed or not.
    """
    if folder.exists():
        raise ValueError(f"--write must be a new folder, and {str(folder)!r} is there already; name another")
    if refused := [plan for plan in plans if plan.settings is None]:
        raise ValueError(f"--write has nothing to write for {refused[0].engine}: {refused[0].refused}")
    if gguf is not None:
        from phasor.tools.checkpoints.formats.gguf_file import read_header

        read_header(gguf)
    with whole_folder(folder) as scratch:
        names = [name for plan in plans for name in _files(plan, scratch, plan.engine if len(plans) > 1 else "", gguf)]
    return [folder / name for name in names]


def _files(plan: Plan, scratch: Path, inner: str, gguf: Path | None) -> list[str]:
    settings, place = plan.settings, scratch / inner
    assert settings is not None
    place.mkdir(exist_ok=True)
    written = []
    if settings.config is not None:
        write_whole(place / "config.json", (json.dumps(settings.config, indent=2) + "\n").encode())
        written.append("config.json")
    if settings.flags:
        write_whole(place / "flags.txt", f"{typed(settings.flags)}\n".encode())
        written.append("flags.txt")
    if settings.gguf:
        if gguf is None:
            raise ValueError(
                f"--write needs the GGUF file for {plan.engine}, whose keys are changed; name it with --gguf"
            )
        from phasor.tools.checkpoints.formats.gguf_file import rekey

        rekey(gguf, place / gguf.name, settings.gguf)
        written.append(gguf.name)
    return [f"{inner}/{name}".lstrip("/") for name in written]
