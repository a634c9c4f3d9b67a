"""Traps on the way to a longer context: what runs without an error and is not what was meant."""

from collections.abc import Iterator
from typing import Any

from ...models.families import ROWS
from ...models.reading.load import load
from ...models.reading.text import TextModel
from ..engines import CannotSayError, Reading, Seen, engine_of, look, parse
from ..engines.engine_config import ORIGINAL, ROPES, renamed
from .case import Case, Trap, windowed


def traps(source: Any, engine: str = "", flags: str | dict[str, Any] = "") -> list[Trap]:
    """Those that a config, and the flags of an engine, show; empty for a clean one.

    ``source`` as in `phasor.read_config`. A config that it refuses is looked at as far as its keys go, and the refusal
    is raised where none of them shows why; so are flags with which the engine would not start.

    >>> qwen = {"model_type": "qwen3_moe", "num_hidden_layers": 1, "max_position_embeddings": 40960, "rope_theta": 1e6}
    >>> override = {"--hf-overrides": {"rope_parameters": {"rope_type": "linear", "factor": 4.0}}}
    >>> [trap.number for trap in traps(qwen, "vllm", override)]
    [1]
    """
    data = load(source)
    given: dict[str, Any] = {}
    if engine:
        known = engine_of(engine)
        given = parse(flags, known.flags, known.gone, known.name) if isinstance(flags, str) else dict(flags)
    try:
        seen = look(data)
    except ValueError as refusal:
        if not (found := shown(Case(data, None, engine, given, None))):
            raise refusal
        return found
    return shown(Case(data, seen, engine, given, _reading(seen, engine, given)))


def _reading(seen: Seen, engine: str, given: dict[str, Any]) -> Reading | None:
    """None where there is no engine, or one that does not know the model, so that only the config speaks."""
    try:
        return engine_of(engine).read(seen, given) if engine else None
    except CannotSayError:
        return None


def shown(case: Case) -> list[Trap]:
    """The traps that a case shows."""
    return [trap for find in FOUND for trap in find(case)]


def no_base(case: Case) -> Iterator[Trap]:
    rope = case.text.get("rope_parameters")
    flat = rope if isinstance(rope, dict) and not any(isinstance(v, dict) for v in rope.values()) else {}
    if flat and "rope_theta" not in flat and case.text.get("rope_theta") is None:
        yield Trap(1, "rope_parameters has no rope_theta: the base is the class's default", "vllm-project/recipes#856")
    if text := case.says("no rope_theta in the override"):
        yield Trap(1, text, "vllm-project/recipes#856")


def outside(case: Case) -> Iterator[Trap]:
    _, outside = case.override
    for name in outside:
        if name in (*ROPES, "rope_theta", "max_position_embeddings") and case.seen:
            yield Trap(2, f"{name} stands above {case.seen.inside}, and does nothing", "vllm-project/vllm#54289")


def factor_ignored(case: Case) -> Iterator[Trap]:
    rope, length = renamed(case.rope), case.text.get("max_position_embeddings")
    if rope["rope_type"] != "yarn" or not rope.get("factor") or not rope.get(ORIGINAL) or not length:
        return
    implied, stated = length / rope[ORIGINAL], float(rope["factor"])
    if abs(implied / stated - 1) > 0.01:
        text = f"factor {stated:g}, but max_position_embeddings / {ORIGINAL} is {implied:g}, which ExLlamaV3 takes"
        yield Trap(3, text, "huggingface/transformers#38224; exllamav3/util/rope.py")


def twice(case: Case) -> Iterator[Trap]:
    text, _ = case.override
    if (rule := case.says("lengthen", "factor")) and "max_position_embeddings" in text:
        yield Trap(4, f"{rule}: the override names the longer length already", "vllm-project/vllm#56446")


def overwritten(case: Case) -> Iterator[Trap]:
    if text := case.says("--yarn-attn-factor", "overwritten"):
        yield Trap(5, text, "ikawrakow/ik_llama.cpp#1298; src/llama-context.cpp")


def one_mscale(case: Case) -> Iterator[Trap]:
    for rope in (case.rope, case.given):
        stated = [rope.get(name) for name in ("mscale", "mscale_all_dim")]
        if renamed(rope)["rope_type"] == "yarn" and stated[0] and not stated[1] and stated[0] != 1:
            text = f"mscale {stated[0]} without mscale_all_dim: engines take 0.1 ln(factor) + 1 with it or without"
            yield Trap(6, text, "turboderp-org/exllamav3#259, ggml-org/llama.cpp#17945")


def moot(case: Case) -> Iterator[Trap]:
    if case.seen is None:
        return
    pairs = list(zip(case.seen.model.layer_types, case.seen.model.layers, strict=True))
    far = [spec for word, spec in pairs if not windowed(word)]
    if any(spec is not None for spec in far) or not far:
        return
    yarn = renamed(case.rope)["rope_type"] == "yarn" or renamed(case.given)["rope_type"] == "yarn"
    if yarn or case.flags.get("--rope-scaling") == "yarn":
        yield Trap(7, "only windowed layers rotate: YaRN moves the length and nothing else", "meta-oss-cookbook#37")


def capped(case: Case) -> Iterator[Trap]:
    if text := case.says("caps -c") or case.says("is cut to"):
        yield Trap(8, text, "ggml-org/llama.cpp#17459")


def wrong_layers(case: Case) -> Iterator[Trap]:
    for kind, rope in {**case.rope, **case.given}.items():
        near = isinstance(rope, dict) and windowed(kind)
        if near and renamed(rope)["rope_type"] != "default":
            yield Trap(9, f"{kind}: layers with a window are scaled", "Blaizzy/mlx-vlm#1709")
    if case.seen is None or case.reading is None or any(case.seen.kinds):
        return
    made: dict[Any, set[Any]] = {}
    for own, theirs in zip(case.seen.model.layers, case.reading.model.layers, strict=True):
        made.setdefault(own, set()).add(theirs)
    flags = [name for name in case.flags if name.startswith(("--rope", "--yarn"))]
    if flags and any(len(several) > 1 for several in made.values()):
        yield Trap(
            9, f"{flags[0]} does not reach the windowed layers, which the model scales alike", "src/models/*.cpp"
        )


def not_built(case: Case) -> Iterator[Trap]:
    if text := case.says("not read"):
        yield Trap(10, text, "Blaizzy/mlx-vlm#1710, sgl-project/sglang#26187")


def by_length(case: Case) -> Iterator[Trap]:
    if case.flags and renamed(case.rope)["rope_type"] in ("longrope", "su"):
        text = case.says("LongRoPE") or "LongRoPE: -c chooses the long or the short factors for every prompt"
        yield Trap(12, text, "vllm: phi3_long_rope_scaled_rope.py")


def two_meanings(case: Case) -> Iterator[Trap]:
    for rope in (case.rope, case.given):
        stretched = renamed(rope)["rope_type"] in ("yarn", "llama3") and set(rope) > {"factor", "rope_type"}
        if stretched and ORIGINAL not in rope and ORIGINAL not in case.text:
            yield Trap(13, f"no {ORIGINAL}: max_position_embeddings would be taken for it", "NVIDIA/Megatron-LM#1418")


def lost_keys(case: Case) -> Iterator[Trap]:
    if case.seen is None or not case.given or any(case.seen.kinds):
        return
    replaces = bool(case.seen.inside) == (case.engine == "sglang")
    own = next(iter(case.seen.parameters().values()), {})
    lost = [key for key in ("mrope_section", "mrope_interleaved", "partial_rotary_factor") if key in own]
    for key in (key for key in lost if key not in case.given) if replaces else ():
        yield Trap(14, f"the override replaces the dictionary and lacks {key}", "vllm-project/vllm-ascend#14297")


def composed(case: Case) -> Iterator[Trap]:
    scaled = [name for name in ("--rope-scale", "--rope-freq-scale") if name in case.flags]
    if scaled and renamed(case.rope)["rope_type"] == "llama3" and case.engine == "llama.cpp":
        yield Trap(18, f"{scaled[0]} comes on top of the file's Llama 3 factors", "ggml-cpu/ops.cpp; tests/engines")


def four_times(case: Case) -> Iterator[Trap]:
    if text := case.says("M-RoPE takes YaRN's correction range"):
        yield Trap(19, text, "vllm: rotary_embedding/mrope.py")


def by_kind(case: Case) -> Iterator[Trap]:
    nested = {kind: rope for kind, rope in case.rope.items() if isinstance(rope, dict)}
    for kind, rope in nested.items():
        if rope.get("truncate") is False:
            yield Trap(20, f"{kind}: transformers does not look for truncate there", "modeling_rope_utils.py 5.23")
    flat, row = case.text.get("rope_parameters"), ROWS.get(str(case.text.get("model_type")))
    kinds = row.kinds if isinstance(row, TextModel) else {}
    if kinds and isinstance(flat, dict) and flat and not nested:
        yield Trap(20, "rope_parameters without kinds of layers: this class ignores it", "transformers 5.23")
    for kind in kinds if nested else ():
        if kind not in nested and kinds[kind] is not None:
            yield Trap(20, f"rope_parameters lacks {kind}: the class's default base is taken", "transformers 5.23")


FOUND = (
    no_base, outside, factor_ignored, twice, overwritten, one_mscale, moot, capped, wrong_layers, not_built, by_length,
    two_meanings, lost_keys, composed, four_times, by_kind,
)  # fmt: skip
