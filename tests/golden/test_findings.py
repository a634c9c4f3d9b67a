"""What a finding says: the first difference and its place, the tensors it explains; values that have no known cause."""

import json
import random
import re

import pytest
import torch

from phasor.tools.golden import check
from phasor.tools.golden.vectors import read_vectors

from .conftest import CONFIGS, load
from .plain import ladder, llama3, tables, turn_halves, turn_interleaved, yarn

LLAMA, SMALL, FACTOR = (500_000.0, 64), (10_000.0, 64), 0.1 * 1.3862943611198906 + 1  # 0.1 ln 4 + 1, YaRN's


@pytest.fixture
def found(folder_of):
    """What `check` finds for tensors given by short names, with ``__`` for dots."""

    def of(config, **tensors):
        report = check(folder_of(config), {f"attention.{n.replace('__', '.')}": t for n, t in tensors.items()})
        findings = [f for f in report.findings if f.verdict != "not shown"]  # no gradients are given here
        assert len(findings) <= 1
        return findings[0] if findings else None

    return of


@pytest.fixture
def given(folder_of):
    """Positions, and float64 inputs, of a config."""

    def of(config):
        v = load(folder_of(config))
        return v["positions"], v["q_in"].double(), v["k_in"].double()

    return of


FREQUENCIES = {"llama": ladder(*LLAMA), "yarn": yarn(*SMALL), "llama3": llama3(*LLAMA)}


@pytest.mark.parametrize("config", sorted(FREQUENCIES))
def test_the_right_implementation_is_right(config, found, given):
    p, q, k = given(config)
    f = FREQUENCIES[config]
    c, s = tables(p, f, FACTOR if config == "yarn" else 1.0)
    outs = {"exact__float32__q_out": turn_halves(q, c, s), "exact__float32__k_out": turn_halves(k, c, s)}
    half = {"exact__bfloat16__q_out": turn_halves(q, c, s).bfloat16()}
    assert found(config, exact__inv_freq=f, exact__cos=c, exact__sin=s, **outs, **half) is None
    doubled = {"exact__cos": torch.cat((c, c), -1), "exact__sin": s.repeat_interleave(2, -1).unsqueeze(0)}
    assert found(config, **doubled, exact__float32__q_out=outs["exact__float32__q_out"][0]) is None


def test_the_first_difference_and_its_place(found, given):
    p, q, _k = given("llama")
    c, s = tables(p, ladder(*LLAMA))
    result = found("llama", exact__cos=c, exact__float32__q_out=turn_interleaved(q, c, s))
    assert result.cause == "layout" and "must be halves (i, i + 32)" in result.reason
    at = result.difference
    assert (result.what, at.position, at.head, at.channel) == ("exact.float32.q_out", (1,), 0, 0)
    first = q[0, 0, 1]  # channel 0 is paired with 1 there, and must be with 32
    angle = torch.tensor(1.0, dtype=torch.float64)
    assert at.expected == pytest.approx(float(first[0] * angle.cos() - first[32] * angle.sin()), rel=1e-6)
    assert at.got == pytest.approx(float(first[0] * angle.cos() - first[1] * angle.sin()), rel=1e-6)
    assert result.right == ("exact.cos",)


@pytest.mark.parametrize(
    "rest, how",
    [
        (lambda p: p - p[0], "start again from 0"),
        (lambda p: torch.arange(len(p)), "are counted from 0 again"),
    ],
)
def test_the_token_at_which_positions_go_wrong_is_told(rest, how, found, given):
    p, q, _k = given("llama")
    c, s = tables(torch.cat((p[:9], rest(p[9:]))), ladder(*LLAMA))
    result = found("llama", exact__float32__q_out=turn_halves(q, c, s))
    assert result.reason == f"positions {how} at token 9, whose position is {p[9]}"


def test_what_lies_between_two_tensors(found, given):
    """The factor is missing in k alone."""
    p, q, k = given("yarn")
    (c, s), (plain_c, plain_s) = tables(p, yarn(*SMALL), FACTOR), tables(p, yarn(*SMALL))
    y = {"exact__float32__q_out": turn_halves(q, c, s), "exact__float32__k_out": turn_halves(k, plain_c, plain_s)}
    result = found("yarn", **y)
    assert result.cause == "attention_factor" and result.right == ("exact.float32.q_out",)
    assert "missing" in result.reason and "only in exact.float32.k_out" in result.reason


def test_heads_and_tokens_swapped(found, given):
    p, q, _ = given("llama")
    result = found("llama", exact__float32__q_out=turn_halves(q, *tables(p, ladder(*LLAMA))).transpose(1, 2))
    assert result.cause == "tensor_format" and result.difference is None and result.verdict == "wrong"


def test_right_values_of_another_shape(found, given):
    """Without the batch of one, or with more such axes; tables with a column for each channel."""
    p, q, _ = given("llama")
    c, s = tables(p, ladder(*LLAMA))
    y = turn_halves(q, c, s)
    for shaped in (y[0], y, y[None], y[None, None]):
        assert found("llama", exact__float32__q_out=shaped) is None, shaped.shape
    for shaped in (c[None], torch.cat((c, c), -1), c.repeat_interleave(2, -1), torch.cat((c, c), -1)[None]):
        assert found("llama", exact__cos=shaped) is None, shaped.shape
    for name, shaped in (("q_out", torch.cat((y, y))), ("q_out", y[..., :-1]), ("cos", c[1:])):
        name = f"exact__float32__{name}" if name == "q_out" else f"exact__{name}"
        with pytest.raises(ValueError, match=re.escape(f"got {list(shaped.shape)}")):
            found("llama", **{name: shaped})


def test_output_permuted(found, given):
    """DeepSeek-V3 reads interleaved pairs and writes halves; written back interleaved, the scores are the same."""
    p, q, _ = given("deepseek")
    rotated = turn_interleaved(q[..., 32:], *tables(p, ladder(10_000.0, 32)))
    right = torch.cat((q[..., :32], rotated[..., 0::2], rotated[..., 1::2]), dim=-1)
    assert found("deepseek", exact__float32__q_out=right) is None
    result = found("deepseek", exact__float32__q_out=torch.cat((q[..., :32], rotated), dim=-1))
    assert result.cause == "permuted" or (result.cause == "layout" and "interleaved" in result.reason)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_results_rounded(dtype, found, given):
    """A kernel for half precision under the names of float32; under those of bfloat16 it is right."""
    p, q, _ = given("llama")
    y = turn_halves(q, *tables(p, ladder(*LLAMA))).to(dtype)
    result = found("llama", exact__float32__q_out=y)
    assert result.cause == "low_precision" and f"only the results were rounded to {str(dtype)[6:]}" in result.reason
    assert found("llama", exact__bfloat16__q_out=y) is None


@pytest.mark.parametrize(
    "base", [123_456.0, *(pytest.param(b, marks=pytest.mark.slow) for b in (10_000.0, 1_000_000.0))]
)
def test_the_number_in_a_mistake_is_read_off(base, found, given):
    p, q, _ = given("llama")
    c, s = tables(p, ladder(base, 64))
    for tensors in ({"exact__inv_freq": ladder(base, 64)}, {"exact__cos": c}, {"exact__sin": s},
                    {"exact__float32__q_out": turn_halves(q, c, s)}):  # fmt: skip
        result = found("llama", **tensors)
        assert result.cause == "base" and f"the base is {base:.10g}, and must be 500000" in result.reason


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_transformers_gives_is_right(dtype, folder_of):
    """By exact angles, too: of their float32 ones it is said. Of gradients that are not given too."""
    transformers = pytest.importorskip("transformers")
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

    v, data = load(folder_of("llama3")), {k: x for k, x in CONFIGS["llama3"].items() if k != "model_type"}
    q, k = (v[f"{x}_in"].to(getattr(torch, dtype)) for x in "qk")
    outs = apply_rotary_pos_emb(q, k, *LlamaRotaryEmbedding(transformers.LlamaConfig(**data))(q, v["positions"][None]))
    for mode, causes in (("exact", ["angles", "gradient"]), ("model", ["gradient"])):
        names = (f"attention.{mode}.{dtype}.{x}_out" for x in "qk")
        report = check(folder_of("llama3"), dict(zip(names, outs, strict=True)))
        assert report.verdict == "right" and [f.cause for f in report.findings] == causes, str(report)


@pytest.mark.parametrize("config", CONFIGS)
def test_one_value_beyond_its_tolerance_is_found_and_placed(config, folder_of):
    """Values drawn by chance, in every tensor, given alone; a far one of exact angles is none of float32 angles."""
    dice, vectors = random.Random(config), read_vectors(folder_of(config))
    for name, tensor in vectors.tensors.items():
        wrong, at = tensor.flatten().clone(), dice.randrange(tensor.numel())
        t = vectors.tolerance(name)
        size = float(wrong[at].double().abs())
        far = 2e9 if name.split(".")[1] == "model" else 0.0
        off = 4 * (t.absolute + t.relative * size + t.per_radian * far) + 1e-5 * size
        wrong[at] += off if tensor.is_floating_point() else 1
        report = check(folder_of(config), {name: wrong.reshape(tensor.shape)})
        (finding,) = (f for f in report.findings if f.verdict == "wrong")
        assert f"attention.{finding.what}" == name and finding.cause == "value", (name, at, str(report))
        assert finding.difference.got == wrong[at].double()


@pytest.mark.parametrize("name", ["exact.inv_freq", "exact.cos", "exact.float32.q_out", "attention_factor"])
@pytest.mark.parametrize(
    "value", [torch.nan, 1e38, *(pytest.param(x, marks=pytest.mark.slow) for x in (torch.inf, 0.0, 2**62))]
)
def test_values_that_no_mistake_gives(value, name, folder_of):
    shape = load(folder_of("llama"))[name].shape
    report = check(folder_of("llama"), {f"attention.{name}": torch.full(shape, value)})
    assert report.verdict == "wrong" and report.findings[0].cause in ("unknown", "factor", "low_precision", "value")
    json.dumps(report.to_dict(), allow_nan=False)


def test_a_cause_of_its_own_for_the_first(found, given):
    """The base explains the frequencies; what else is wrong with the queries is left open, and named."""
    result = found("llama", exact__inv_freq=ladder(1e6, 64), exact__float32__q_out=torch.randn(given("llama")[1].shape))
    assert result.cause == "base" and result.explained == ("exact.inv_freq",)
    assert result.unexplained == ("exact.float32.q_out",)
    assert str(result).endswith("other cause: exact.float32.q_out")
