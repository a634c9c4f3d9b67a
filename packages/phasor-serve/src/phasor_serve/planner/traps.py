"""Traps: known mistakes in settings for a longer context, found in a config, an engine's flags, or its reading."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from phasor import read_config
from phasor.models.reading.load import in_file, load
from phasor.models.reading.text import TextModel
from phasor.models.rows import ROWS
from phasor.support.findings import Difference, Finding
from phasor.tools.checkpoints.formats.gguf_file import keys_of

from ..engines import CannotSayError, EngineConfig, EngineReading, engine_of, load_config, parse
from ..engines import gguf as gguf_keys
from ..engines.engine_config import ORIGINAL, ROPES, renamed, rope_in, walk
from .proof import differences, in_one_line

OVERRIDES = ("--hf-overrides", "--json-model-override-args")


def windowed(word: str) -> bool:
    """Whether the layers of a kind attend to a window, or a chunk, and never see the whole context."""
    return "sliding" in word or "chunked" in word


# number in docs/planner.md -> the cause, and what to do about it; 11 is the doctor's
CAUSES = {
    1: ("rope parameters without a base", "state rope_theta in the same dictionary"),
    2: ("an override at the top of a composite config", "put the key inside the text model's dictionary"),
    3: ("a factor that is not the ratio of the two lengths", "make factor the ratio of the two lengths"),
    4: ("a factor on top of a lengthened config", "override the factor or the length, not both"),
    5: ("an attention factor that is overwritten", "leave the flag out"),
    6: ("mscale without mscale_all_dim", "state attention_factor, or both mscale and mscale_all_dim"),
    7: ("a stretch where only windowed layers rotate", "leave the scaling out and raise the length alone"),
    8: ("a length that is cut", "raise the declared length as well"),
    9: ("a scaling on the wrong layers", "state rope parameters by kind of layer"),
    10: ("declared and not read", "use an engine that reads it, or a key that this one reads"),
    12: ("LongRoPE chosen by the served length", "serve short and long prompts apart"),
    13: ("the declared length taken for the original one", "state original_max_position_embeddings"),
    14: ("keys lost with a replaced dictionary", "repeat the lost keys in the override"),
    15: ("a draft model left behind", "give the draft model the same length and scaling"),
    16: ("a GGUF file without its config's scaling", "convert the model again, or write the keys: phasor plan --write"),
    17: ("two runtimes that rotate differently", "serve with the rotation of training"),
    18: ("flags on top of a file's factors", "leave the scaling flags out"),
    19: ("M-RoPE's correction range at another length", "state a quarter of the original length for this engine"),
    20: ("keys that this class does not look for", "state rope parameters under each kind of layer"),
}


@dataclass(frozen=True, kw_only=True)
class Trap(Finding):
    """A mistake that runs without an error: ``number`` in ``docs/planner.md``, ``reason`` is what it does here.

    ``source``: where it was reported, or the code that it was found in.
    """

    number: int

    @property
    def text(self) -> str:
        return self.reason

    def __str__(self) -> str:
        return f"{self.reason} [trap {self.number}; {self.source}]"


def _trap(number: int, text: str, source: str, difference: Difference | None = None) -> Trap:
    cause, way_out = CAUSES[number]
    return Trap(
        number=number, what="rotation", verdict="wrong", cause=cause, reason=text, way_out=way_out, source=source,
        difference=difference,
    )  # fmt: skip


@dataclass(frozen=True)
class TrapInputs:
    """What is looked at: a config, how it is understood (None: not at all), an engine's flags and its reading."""

    data: dict[str, Any]
    config: EngineConfig | None
    engine: str
    flags: dict[str, Any]
    reading: EngineReading | None

    @property
    def text(self) -> dict[str, Any]:
        """The config of the text model, also where it is not understood."""
        if self.config is not None:
            return self.config.text
        inner = self.data.get("text_config")
        return inner if isinstance(inner, dict) else self.data

    @property
    def rope(self) -> dict[str, Any]:
        return rope_in(self.text)

    @property
    def override(self) -> tuple[dict[str, Any], list[str]]:
        """What the flags override in the text model, and which keys they state outside of it."""
        stated: dict[str, Any] = next((self.flags[name] for name in OVERRIDES if name in self.flags), {})
        return walk(stated, self.config.inside if self.config else "")

    @property
    def override_rope(self) -> dict[str, Any]:
        """The rope parameters of the override."""
        text, _ = self.override
        return rope_in(text)

    def rule_with(self, *words: str) -> str:
        """The first rule of the reading in which all the words stand."""
        rules = [rule.text for rule in self.reading.rules] if self.reading else []
        return next((text for text in rules if all(word in text for word in words)), "")


def traps(source: Any, engine: str = "", flags: str | dict[str, Any] = "") -> list[Trap]:
    """The traps that a config, and the flags of an engine, show; empty for a clean one.

    ``source`` as in `phasor.read_config`. A config that it refuses is looked at as far as its keys go, and the refusal
    is raised where none of them shows why; so are flags with which the engine would not start.

    >>> qwen = {"model_type": "qwen3_moe", "num_hidden_layers": 1, "max_position_embeddings": 40960, "rope_theta": 1e6}
    >>> override = {"--hf-overrides": {"rope_parameters": {"rope_type": "linear", "factor": 4.0}}}
    >>> [trap.number for trap in traps(qwen, "vllm", override)]
    [1]
    """
    with in_file(source):
        data = load(source)
    values: dict[str, Any] = {}
    if engine:
        known = engine_of(engine)
        values = parse(flags, known.flags, known.gone, known.name) if isinstance(flags, str) else dict(flags)
    try:
        config = load_config(data)
    except ValueError as refusal:
        if not (shown := find_traps(TrapInputs(data, None, engine, values, None))):
            raise refusal
        return shown
    return find_traps(TrapInputs(data, config, engine, values, _reading(config, engine, values)))


def _reading(config: EngineConfig, engine: str, values: dict[str, Any]) -> EngineReading | None:
    """None where there is no engine, or one that does not know the model, so that only the config speaks."""
    try:
        return engine_of(engine).read(config, values) if engine else None
    except CannotSayError:
        return None


def find_traps(inputs: TrapInputs) -> list[Trap]:
    """The traps that a inputs shows."""
    return [trap for check in CHECKS for trap in check(inputs)]


def no_base(inputs: TrapInputs) -> Iterator[Trap]:
    rope = inputs.text.get("rope_parameters")
    flat = rope if isinstance(rope, dict) and not any(isinstance(v, dict) for v in rope.values()) else {}
    if flat and "rope_theta" not in flat and inputs.text.get("rope_theta") is None:
        yield _trap(1, "rope_parameters has no rope_theta: the base is the class's default", "vllm-project/recipes#856")


def outside(inputs: TrapInputs) -> Iterator[Trap]:
    _, outside = inputs.override
    for name in outside:
        if name in (*ROPES, "rope_theta", "max_position_embeddings") and inputs.config:
            yield _trap(2, f"{name} stands above {inputs.config.inside}, and does nothing", "vllm-project/vllm#54289")


def factor_ignored(inputs: TrapInputs) -> Iterator[Trap]:
    rope, length = renamed(inputs.rope), inputs.text.get("max_position_embeddings")
    if rope["rope_type"] != "yarn" or not rope.get("factor") or not rope.get(ORIGINAL) or not length:
        return
    implied, stated = length / rope[ORIGINAL], float(rope["factor"])
    if abs(implied / stated - 1) > 0.01:
        text = f"factor {stated:g}, but max_position_embeddings / {ORIGINAL} is {implied:g}, which ExLlamaV3 takes"
        yield _trap(3, text, "huggingface/transformers#38224; exllamav3/util/rope.py")


def twice(inputs: TrapInputs) -> Iterator[Trap]:
    text, _ = inputs.override
    if (rule := inputs.rule_with("lengthen", "factor")) and "max_position_embeddings" in text:
        yield _trap(4, f"{rule}: the override names the longer length already", "vllm-project/vllm#56446")


def one_mscale(inputs: TrapInputs) -> Iterator[Trap]:
    for rope in (inputs.rope, inputs.override_rope):
        stated = [rope.get(name) for name in ("mscale", "mscale_all_dim")]
        if renamed(rope)["rope_type"] == "yarn" and stated[0] and not stated[1] and stated[0] != 1:
            text = f"mscale {stated[0]} without mscale_all_dim: engines take 0.1 ln(factor) + 1 with it or without"
            yield _trap(6, text, "turboderp-org/exllamav3#259, ggml-org/llama.cpp#17945")


def moot(inputs: TrapInputs) -> Iterator[Trap]:
    if inputs.config is None:
        return
    pairs = list(zip(inputs.config.model.layer_types, inputs.config.model.layers, strict=True))
    far = [spec for word, spec in pairs if not windowed(word)]
    if any(spec is not None for spec in far) or not far:
        return
    yarn = renamed(inputs.rope)["rope_type"] == "yarn" or renamed(inputs.override_rope)["rope_type"] == "yarn"
    if yarn or inputs.flags.get("--rope-scaling") == "yarn":
        yield _trap(7, "only windowed layers rotate: YaRN moves the length and nothing else", "meta-oss-cookbook#37")


def wrong_layers(inputs: TrapInputs) -> Iterator[Trap]:
    for kind, rope in {**inputs.rope, **inputs.override_rope}.items():
        near = isinstance(rope, dict) and windowed(kind)
        if near and renamed(rope)["rope_type"] != "default":
            yield _trap(9, f"{kind}: layers with a window are scaled", "Blaizzy/mlx-vlm#1709")
    if inputs.config is None or inputs.reading is None or any(inputs.config.kinds):
        return
    engine_specs: dict[Any, set[Any]] = {}
    for model_spec, engine_spec in zip(inputs.config.model.layers, inputs.reading.model.layers, strict=True):
        engine_specs.setdefault(model_spec, set()).add(engine_spec)
    flags = [name for name in inputs.flags if name.startswith(("--rope", "--yarn"))]
    if flags and any(len(several) > 1 for several in engine_specs.values()):
        yield _trap(
            9, f"{flags[0]} does not reach the windowed layers, which the model scales alike", "src/models/*.cpp"
        )


RULED = (  # number, what stands in a rule of the reading that is a trap by itself, source
    (1, "no rope_theta in the override", "vllm-project/recipes#856"),
    (5, "is overwritten: the factor follows", "ikawrakow/ik_llama.cpp#1298; src/llama-context.cpp"),
    (8, "caps -c", "ggml-org/llama.cpp#17459"),
    (8, "is cut to", "ggml-org/llama.cpp#17459"),
    (10, "not read", "Blaizzy/mlx-vlm#1710, sgl-project/sglang#26187"),
    (19, "M-RoPE takes YaRN's correction range", "vllm: rotary_embedding/mrope.py"),
)


def ruled(inputs: TrapInputs) -> Iterator[Trap]:
    for number, words, source in RULED:
        if text := inputs.rule_with(words):
            yield _trap(number, text, source)


def by_length(inputs: TrapInputs) -> Iterator[Trap]:
    if inputs.flags and renamed(inputs.rope)["rope_type"] in ("longrope", "su"):
        text = inputs.rule_with("LongRoPE") or "LongRoPE: -c chooses the long or the short factors for every prompt"
        yield _trap(12, text, "vllm: phi3_long_rope_scaled_rope.py")


def two_meanings(inputs: TrapInputs) -> Iterator[Trap]:
    for rope in (inputs.rope, inputs.override_rope):
        stretched = renamed(rope)["rope_type"] in ("yarn", "llama3") and set(rope) > {"factor", "rope_type"}
        if stretched and ORIGINAL not in rope and ORIGINAL not in inputs.text:
            yield _trap(13, f"no {ORIGINAL}: max_position_embeddings would be taken for it", "NVIDIA/Megatron-LM#1418")


def lost_keys(inputs: TrapInputs) -> Iterator[Trap]:
    if inputs.config is None or not inputs.override_rope or any(inputs.config.kinds):
        return
    replaces = bool(inputs.config.inside) == (inputs.engine == "sglang")
    own = next(iter(inputs.config.parameters().values()), {})
    lost = [key for key in ("mrope_section", "mrope_interleaved", "partial_rotary_factor") if key in own]
    for key in (key for key in lost if key not in inputs.override_rope) if replaces else ():
        yield _trap(14, f"the override replaces the dictionary and lacks {key}", "vllm-project/vllm-ascend#14297")


def composed(inputs: TrapInputs) -> Iterator[Trap]:
    scaled = [name for name in ("--rope-scale", "--rope-freq-scale") if name in inputs.flags]
    if scaled and renamed(inputs.rope)["rope_type"] == "llama3" and inputs.engine == "llama.cpp":
        yield _trap(18, f"{scaled[0]} comes on top of the file's Llama 3 factors", "ggml-cpu/ops.cpp; tests/engines")


def by_kind(inputs: TrapInputs) -> Iterator[Trap]:
    nested = {kind: rope for kind, rope in inputs.rope.items() if isinstance(rope, dict)}
    for kind, rope in nested.items():
        if rope.get("truncate") is False:
            yield _trap(20, f"{kind}: transformers does not look for truncate there", "modeling_rope_utils.py 5.23")
    flat, row = inputs.text.get("rope_parameters"), ROWS.get(str(inputs.text.get("model_type")))
    kinds = row.kinds if isinstance(row, TextModel) else {}
    if kinds and isinstance(flat, dict) and flat and not nested:
        yield _trap(20, "rope_parameters without kinds of layers: this class ignores it", "transformers 5.23")
    for kind in kinds if nested else ():
        if kind not in nested and kinds[kind] is not None:
            yield _trap(20, f"rope_parameters lacks {kind}: the class's default base is taken", "transformers 5.23")


CHECKS = (
    no_base, outside, factor_ignored, twice, one_mscale, moot, wrong_layers, ruled, by_length, two_meanings, lost_keys,
    composed, by_kind,
)  # fmt: skip


def draft_traps(target: EngineReading, draft: Any) -> list[Trap]:
    """Trap 15: a draft model, by its config, that the settings of its target do not reach."""
    model = read_config(draft)
    length = target.length or 0
    shown = []
    if model.max_position is not None and model.max_position < length:
        text = f"the draft model declares {model.max_position:,} positions, the target now takes {length:,}"
        shown.append(_trap(15, text, "vllm-project/vllm#58080"))
    mine, theirs = next(iter(target.model.distinct)), next(iter(model.distinct))
    if mine.scaling is not None and theirs.scaling is None:
        shown.append(
            _trap(15, f"the target has {mine.scaling.name} scaling, its draft none", "vllm-project/vllm#58080")
        )
    return shown


def check_vocabulary(engine: str, target: EngineConfig, draft: EngineConfig) -> None:
    """Raise ``ValueError`` for a draft model whose vocabulary the engine does not take for its target's.

    llama.cpp lets 128 tokens differ (common/speculative.cpp: SPEC_VOCAB_MAX_SIZE_DIFFERENCE), the others none.
    """
    sizes = [int(one.text.get("vocab_size") or one.data.get("vocab_size") or 0) for one in (target, draft)]
    apart = abs(sizes[0] - sizes[1])
    if all(sizes) and apart > (128 if engine == "llama.cpp" else 0):
        raise ValueError(
            f"draft must have the vocabulary of its target, {sizes[0]:,} tokens in {engine}, got {sizes[1]:,}; take a "
            "draft of the same family"
        )


def file_traps(config: Any, gguf: Path) -> list[Trap]:
    """Trap 16: a GGUF file without the scaling that its config states."""
    meta = gguf_keys.converted(load_config(config))
    arch, keys = keys_of(Path(gguf))
    if arch != meta.arch.name:
        raise ValueError(f"{str(gguf)!r} holds the architecture {arch!r}, and the config is of {meta.arch.name!r}")
    return list(_unwritten(meta.keys, keys))


def _unwritten(wanted: dict[str, Any], written: dict[str, Any]) -> Iterator[Trap]:
    for key in (gguf_keys.TYPE, gguf_keys.FACTOR, gguf_keys.ORIGINAL, gguf_keys.BASE, gguf_keys.ATTENTION):
        if key not in wanted or (key in written and _alike(written[key], wanted[key])):
            continue
        file_says = f"says {written[key]!r}" if key in written else "does not say it"
        yield _trap(16, f"the config says {key} {wanted[key]!r}, the file {file_says}", "ggml-org/llama.cpp#13322")


def _alike(written: Any, wanted: Any) -> bool:
    if isinstance(wanted, str):
        return bool(written == wanted)
    return math.isclose(float(written), float(wanted), rel_tol=1e-6)  # a file keeps float32


def runtime_traps(training: EngineReading, serving: EngineReading) -> list[Trap]:
    """Trap 17: two runtimes that rotate one model differently, such as that of training and that of serving."""
    length = min(filter(None, (training.length, serving.length)), default=1)
    where = f"{training.engine} and {serving.engine} part: "
    found = differences(training.model, serving, length)
    return [_trap(17, where + in_one_line(one), "NVIDIA/Model-Optimizer#917", one.difference) for one in found]
