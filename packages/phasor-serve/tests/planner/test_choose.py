"""How a rotation is stretched, by each method and over each scaling of a model, against the published formulas."""

import pytest
import torch

from engines.cases import configs
from phasor.rotary.scaling import NTK, DynamicNTK, Proportional, SteppedNTK
from phasor.rotary.spec import RotarySpec
from phasor_serve import plan
from phasor_serve.engines import ENGINES
from phasor_serve.planner.choose import stretch
from refused import refused

LLAMA = {
    "model_type": "llama", "hidden_size": 256, "num_attention_heads": 4, "num_hidden_layers": 1,
    "max_position_embeddings": 2048, "rope_theta": 1e4,
}  # fmt: skip
LENGTH = 8192


def frequencies(base: float, dim: int = 64) -> torch.Tensor:
    return base ** -(torch.arange(0, dim, 2, dtype=torch.float64) / dim)


def dynamic_base(length: int, factor: float, trained: int, dim: int = 64) -> float:
    """The base of dynamic NTK at a length, by the formula in ``_compute_dynamic_ntk_parameters`` of transformers."""
    return 1e4 * (factor * max(length, trained) / trained - (factor - 1)) ** (dim / (dim - 2))


def test_dynamic_ntk_leaves_short_prompts_as_they_are() -> None:
    made = plan(LLAMA, length=LENGTH, method="dynamic", engine="vllm")
    assert (made.factor, made.trained) == (4.0, 2048)
    assert "short prompts are left as they are" in made.why[0]
    for length, base in ((100, 1e4), (2048, 1e4), (LENGTH, dynamic_base(LENGTH, 4.0, 2048))):
        torch.testing.assert_close(made.spec.inv_freq(length), frequencies(base), rtol=1e-9, atol=0.0)


@pytest.mark.parametrize("engine, flag", [("vllm", "--hf-overrides"), ("sglang", "--json-model-override-args")])
def test_engines_with_a_static_dynamic_ntk_get_the_factor_of_the_length(engine: str, flag: str) -> None:
    """Both stretch once, when they build their tables: at the planned length that is the dynamic base.

    vLLM by ``factor * max_position_embeddings / max_trained_positions - (factor - 1)``, SGLang by
    ``factor * factor - (factor - 1)``, whatever the length.
    """
    made = plan(LLAMA, length=LENGTH, method="dynamic", engine=engine)
    assert made.verdict == "right" and made.settings is not None and made.reading is not None
    rope = made.settings.flags[flag]["rope_parameters"]
    if engine == "vllm":
        assert (rope["factor"], rope["max_trained_positions"]) == (4.0, 2048)
        assert made.settings.flags[flag]["max_position_embeddings"] == LENGTH
    else:
        assert rope["factor"] == pytest.approx(4.0, rel=1e-12)  # 4 * 4 - 3, as the length is four times the trained one
    (spec,) = made.reading.model.distinct
    torch.testing.assert_close(spec.inv_freq(1), frequencies(dynamic_base(LENGTH, 4.0, 2048)), rtol=1e-9, atol=0.0)
    assert any("static" in rule.text for rule in made.reading.rules)


def test_a_dynamic_ntk_of_the_model_follows_the_length_by_itself() -> None:
    config = {**LLAMA, "rope_scaling": {"rope_type": "dynamic", "factor": 4.0}}
    for method in ("auto", "dynamic"):
        made = plan(config, length=LENGTH, method=method)
        assert made.spec.scaling == DynamicNTK(4.0, 2048)
        assert made.factor == 4.0


SPEC = RotarySpec(head_dim=64, base=1e4)


def test_a_static_ntk_and_a_share_are_stretched_by_the_ratio_of_the_lengths() -> None:
    """A factor of 2 over a length, asked for three times that length, is a factor of 6."""
    for scaling, expected in ((NTK(2.0), NTK(6.0)), (Proportional(0.5, 2.0), Proportional(0.5, 6.0))):
        spec, factor, why = stretch(SPEC.replace(scaling=scaling), 6144, "auto", 2048)
        assert (spec.scaling, factor) == (expected, 3.0)
        assert "from 2 to 6" in why


def test_the_base_of_ntk() -> None:
    """``base * factor ** (d / (d - 2))``, by which the slowest pair is slowed by the factor (bloc97's post)."""
    spec, factor, _ = stretch(SPEC, LENGTH, "ntk", 2048)
    assert spec.base == pytest.approx(1e4 * 4 ** (64 / 62), rel=1e-9)
    assert float(SPEC.inv_freq()[-1] / spec.inv_freq()[-1]) == pytest.approx(factor, rel=1e-6)


def test_without_a_method_nothing_is_stretched() -> None:
    assert stretch(SPEC, LENGTH, "none", 2048)[:2] == (SPEC, 1.0)


EXAONE, PHI = configs()["LGAI-EXAONE/EXAONE-4.0-32B"], configs()["LongRoPE of Phi-3, shortened"]
LIST = SPEC.replace(frequencies=tuple(1.0 / (i + 1) for i in range(32)))
test_refused = refused(
    """
# what nobody published
stretch(LIST, LENGTH, 'auto', 2048) => a list of its own
stretch(SPEC.replace(scaling=SteppedNTK(2048)), LENGTH, 'auto', 2048) => how stepped_ntk scaling is stretched further is
    not known
stretch(SPEC.replace(scaling=NTK(2.0)), LENGTH, 'linear', 2048) => method 'linear' would replace the ntk scaling
# lengths without a rotation
plan(PHI, length=131_073) => LongRoPE's divisors were searched for 131,072 positions
plan(EXAONE, length=400_000, method='yarn') => only windowed layers rotate
plan(LLAMA, length=0) => length must be an integer of at least 1, got 0
""",
    globals() | {"SteppedNTK": SteppedNTK},
)


@pytest.mark.parametrize("engine", ENGINES)
def test_where_nothing_is_stretched_no_other_config_is_written(engine: str) -> None:
    made = plan(LLAMA, engine=engine)
    assert made.verdict == "right" and made.settings is not None
    assert made.settings.config in (None, LLAMA)  # some engines have nothing else to be told by


@pytest.mark.parametrize("length", [2048, None])
def test_the_trained_length_itself_is_read_as_is(length: int | None) -> None:
    made = plan(LLAMA, length=length)
    assert (made.factor, made.spec.scaling, made.length) == (1.0, None, 2048)
    assert "the config declares 2,048 positions: nothing is stretched" in made.why


@pytest.mark.parametrize(
    "engine, flag", [("vllm", "--max-model-len"), ("sglang", "--context-length"), ("llama.cpp", "-c")]
)
def test_a_shorter_length_keeps_the_rotation_and_bounds_the_cache(engine: str, flag: str) -> None:
    """Static YaRN of the config stays on, as the engines keep it: only the length falls."""
    scaled = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048, "rope_theta": 1e4}
    made = plan({**LLAMA, "max_position_embeddings": LENGTH, "rope_parameters": scaled}, length=512, engine=engine)
    assert made.settings is not None and made.verdict == "right"
    assert made.settings.flags == {flag: 512}
    assert (made.wanted.layers, made.factor) == (made.config.model.layers, 1.0)
    assert [cost.describe()[0] for cost in made.costs] == ["short prompts: nothing changes"]
    assert made.kv_bytes().total == 512 * 2 * 256 * 2  # 4 heads of 64 channels, keys and values, in 16 bits


def test_a_short_context_of_longrope_has_the_short_divisors() -> None:
    """Phi-3 within its original length: vLLM chooses by --max-model-len, llama.cpp by -c."""
    for engine in ("vllm", "sglang", "llama.cpp"):
        made = plan(PHI, length=2048, engine=engine)
        assert made.verdict == "right" and made.reading is not None
        (spec,) = made.reading.model.distinct
        assert spec.inv_freq(2048)[1] == pytest.approx(1e4 ** (-1 / 8) / 1.02, rel=1e-6)


def test_only_the_length_grows_where_windowed_layers_alone_rotate() -> None:
    made = plan(EXAONE, length=400_000, engine="vllm")
    assert (made.factor, made.wanted.layers, made.wanted.max_position) == (1.0, made.config.model.layers, 400_000)
    assert made.settings is not None
    assert made.settings.flags["--hf-overrides"] == {"max_position_embeddings": 400_000}


def test_a_published_length_beside_a_longer_declared_one_is_said() -> None:
    """Mistral 7B 0.1 was trained with 8,192 positions (arXiv:2310.06825, table 1) and declares 32,768."""
    data = {"model_type": "mistral", "max_position_embeddings": 32_768, "rope_theta": 1e4, "num_hidden_layers": 2}
    assert not [text for text in plan(data, length=8_192).why if "trained with" in text]
    (said,) = [text for text in plan(data, length=8_193).why if "trained with" in text]
    assert said.startswith("trained with 8,192 positions [")


@pytest.mark.parametrize("length, original, declared", [(LENGTH, None, LENGTH), (1024, 512, 2048)])
def test_a_plan_declares_the_longer_of_both_lengths(length: int, original: int | None, declared: int) -> None:
    assert plan(LLAMA, length=length, original=original).wanted.max_position == declared


@pytest.mark.parametrize("engine", ["transformers", "exllamav3", "mlx-lm", "tensorrt-llm"])
def test_dynamic_ntk_beyond_the_declared_length_says_what_a_config_would_have_to_say(engine: str) -> None:
    """``_compute_dynamic_ntk_parameters`` of transformers starts from max_position_embeddings."""
    why = plan(LLAMA, length=LENGTH, method="dynamic", engine=engine).refused
    for words in ("must stay 2,048 and cannot become 8,192", "--method yarn", "{'rope_type': 'dynamic', 'factor': 4}"):
        assert words in why
    assert " like" not in why


def test_a_family_without_scaling_is_refused_in_one_clause() -> None:
    roformer = {"model_type": "roformer", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 1,
                "max_position_embeddings": 512}  # fmt: skip
    made = plan(roformer, length=1024)
    assert made.refused == "no config.json says this rotation: the code of roformer has no scaling"
