"""What to paste: the command of each engine, and of the programs on top of llama.cpp, in their own words."""

from dataclasses import dataclass
from typing import Any

from ..engines import Settings, engine_of, typed
from ..engines.serving import FILE, MODEL
from .kv import PLAIN


@dataclass(frozen=True)
class Program:
    """A program that runs models with an engine.

    ``takes``: the engine's flags for which it has words; settings with others are not for it. ``source``: the
    documentation that was read; none of these programs was run.
    """

    name: str
    version: str
    engine: str
    takes: frozenset[str]
    source: str
    caches: tuple[str, ...] = ()

    @property
    def note(self) -> str:
        return f"{self.name} was not run, only read ({self.source}); it is taken to read the file as {self.engine} does"


PROGRAMS = {
    one.name: one
    for one in (
        Program("ollama", "of 2026-09", "llama.cpp", frozenset({"-c"}),
                "ollama/docs: modelfile.mdx, context-length.mdx, faq.mdx", ("q8_0", "q4_0")),
        Program("lm-studio", "lms 0.0.47", "llama.cpp", frozenset({"-c"}), "lmstudio.ai/docs/cli/load"),
        Program("koboldcpp", "1.113", "llama.cpp",
                frozenset({"-c", "--rope-scaling", "--rope-scale", "--rope-freq-base", "--override-kv"}),
                "koboldcpp.py and gpttype_adapter.cpp", ("q8_0", "q4_0")),
    )
}  # fmt: skip
KOBOLD = {"q8_0": "1", "q4_0": "2"}  # its words for cache types


def command(engine: str, settings: Settings, *, dtype: str = "bfloat16", tensor_parallel: int = 1, batch: int = 1,
            draft: bool = False, program: Program | None = None, base: float | None = None) -> str:  # fmt: skip
    """The line to paste; empty where an engine is told everything by its ``config.json``, and has no server here.

    ``base``: of a file without a scaling, which koboldcpp would raise by itself where no --ropeconfig stands.
    """
    if program is not None:
        return _on_top(program, settings, dtype, base)
    serving = engine_of(engine).serving
    flags: dict[str, Any] = {**settings.flags, **({} if dtype in PLAIN else serving.cache_flags(dtype))}
    if engine == "llama.cpp" and batch > 1:
        flags = {**flags, "-c": batch * int(flags["-c"]), "-np": batch}
    if tensor_parallel > 1 and serving.devices:
        flags[serving.devices] = tensor_parallel
    flags |= serving.draft if draft else {}
    variables = {name: value for name, value in flags.items() if not name.startswith("-")}
    name = serving.command
    if engine == "mlx-lm" and "--kv-bits" in flags:  # which its server does not take
        name = name.replace("server", "generate")
    words = [typed(variables), name, typed({k: v for k, v in flags.items() if k not in variables})]
    return " ".join(filter(None, words))


def _on_top(program: Program, settings: Settings, dtype: str, base: float | None) -> str:
    if dtype not in ("bfloat16", "float16", *program.caches):
        known = ", ".join(("float16", *program.caches))
        raise ValueError(f"dtype must be a cache type that {program.name} has, one of {known}, got {dtype!r}")
    length, plain = settings.flags["-c"], dtype not in program.caches
    if program.name == "ollama":
        server = "" if plain else f"OLLAMA_FLASH_ATTENTION=1 OLLAMA_KV_CACHE_TYPE={dtype} ollama serve & "
        lines = f"FROM ./{FILE}\\nPARAMETER num_ctx {length}\\n"
        return f"{server}printf '{lines}' > Modelfile && ollama create {MODEL} -f Modelfile && ollama run {MODEL}"
    if program.name == "lm-studio":
        return f"lms load {MODEL} --context-length {length} --gpu max"
    words = ["koboldcpp", "--model", FILE, "--contextsize", str(length)]
    if (base := settings.flags.get("--rope-freq-base", base)) is not None and not settings.gguf:
        words += ["--ropeconfig", f"{1 / float(settings.flags.get('--rope-scale', 1.0)):.10g}", f"{base:.10g}"]
    return " ".join(words if plain else [*words, "--flashattention", "--quantkv", KOBOLD[dtype]])
