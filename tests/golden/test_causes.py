"""Every known mistake, made by hand in the plain implementation of `plain.py`, is named."""

import json

import pytest
import torch
from safetensors.torch import load_file

from phasor.tools.golden import check, write

from .conftest import load
from .plain import ladder, llama3, llama3_of, tables, turn_halves, turn_interleaved, yarn

LLAMA, SMALL, FACTOR = (500_000.0, 64), (10_000.0, 64), 0.1 * 1.3862943611198906 + 1  # 0.1 ln 4 + 1, YaRN's


@pytest.fixture
def found(folder_of):
    """What `check` finds for tensors given by short names, with ``__`` for dots."""

    def of(config, **tensors):
        report = check(folder_of(config), {f"attention.{n.replace('__', '.')}": t for n, t in tensors.items()})
        assert len(report.findings) <= 1
        return report.findings[0] if report.findings else None

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
def test_the_right_implementation_is_equal(config, found, given):
    p, q, k = given(config)
    f = FREQUENCIES[config]
    c, s = tables(p, f, FACTOR if config == "yarn" else 1.0)
    outs = {"exact__float32__q_out": turn_halves(q, c, s), "exact__float32__k_out": turn_halves(k, c, s)}
    half = {"exact__bfloat16__q_out": turn_halves(q, c, s).bfloat16()}
    assert found(config, exact__inv_freq=f, exact__cos=c, exact__sin=s, **outs, **half) is None
    doubled = {"exact__cos": torch.cat((c, c), -1), "exact__sin": s.repeat_interleave(2, -1).unsqueeze(0)}
    assert found(config, **doubled, exact__float32__q_out=outs["exact__float32__q_out"][0]) is None


def test_layout_swapped(found, given):
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


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_layout_swapped_in_the_arithmetic_of_the_model(dtype, found, given):
    p, q, _ = given("llama")
    c, s = tables(p, ladder(*LLAMA))
    y = turn_interleaved(q.to(dtype), c.to(dtype), s.to(dtype)).to(dtype)
    assert found("llama", **{f"model__{str(dtype)[6:]}__q_out": y}).cause == "layout"


def test_output_permuted(found, given):
    """DeepSeek-V3 reads interleaved pairs and writes halves; written back interleaved, the scores are the same."""
    p, q, _ = given("deepseek")
    c, s = tables(p, ladder(10_000.0, 32))
    rotated = turn_interleaved(q[..., 32:], c, s)
    right = torch.cat((q[..., :32], rotated[..., 0::2], rotated[..., 1::2]), dim=-1)
    assert found("deepseek", exact__float32__q_out=right) is None
    result = found("deepseek", exact__float32__q_out=torch.cat((q[..., :32], rotated), dim=-1))
    assert result.cause == "permuted" or (result.cause == "layout" and "interleaved" in result.reason)


@pytest.mark.parametrize("base", [10_000.0, 1_000_000.0, 123_456.0])
@pytest.mark.parametrize("what", ["inv_freq", "cos", "sin", "q_out", "bfloat16"])
def test_base_wrong(base, what, found, given):
    p, q, _ = given("llama")
    f = ladder(base, 64)
    c, s = tables(p, f)
    y = turn_halves(q, c, s)
    tensors = {"inv_freq": {"exact__inv_freq": f}, "cos": {"exact__cos": c}, "sin": {"exact__sin": s}}
    tensors |= {"q_out": {"exact__float32__q_out": y}, "bfloat16": {"exact__bfloat16__q_out": y.bfloat16()}}
    result = found("llama", **tensors[what])
    if what == "bfloat16" and base == 123_456.0:
        return  # 8 bits do not show more than two digits of an odd base
    assert result.cause == "base" and f"the base is {base:.10g}, and must be 500000" in result.reason


def test_base_wrong_below_a_scaling(found, given):
    p, _q, _ = given("llama3")
    result = found("llama3", exact__cos=tables(p, llama3(250_000.0, 64))[0])
    assert result.cause == "base" and "250000" in result.reason


@pytest.mark.parametrize(
    "cos_factor, sin_factor, says",
    [
        (1.0, 1.0, "missing from cos and sin"),
        (FACTOR**2, FACTOR**2, "squared in"),
        (FACTOR, 1.0, "in cos only"),
        (1.0, FACTOR, "in sin only"),
    ],
)
def test_attention_factor(cos_factor, sin_factor, says, found, given):
    p, q, _k = given("yarn")
    c, s = tables(p, yarn(*SMALL))
    c, s = c * cos_factor, s * sin_factor
    for tensors in ({"exact__float32__q_out": turn_halves(q, c, s)}, {"exact__cos": c, "exact__sin": s}):
        result = found("yarn", **tensors)
        assert result.cause == "attention_factor" and says.split()[0] in result.reason
    assert says in found("yarn", exact__float32__q_out=turn_halves(q, c, s)).reason


def test_attention_factor_on_the_queries_only(found, given):
    p, q, k = given("yarn")
    (c, s), (plain_c, plain_s) = tables(p, yarn(*SMALL), FACTOR), tables(p, yarn(*SMALL))
    y = {"exact__float32__q_out": turn_halves(q, c, s), "exact__float32__k_out": turn_halves(k, plain_c, plain_s)}
    result = found("yarn", **y)
    assert result.cause == "attention_factor" and result.right == ("exact.float32.q_out",)
    assert "missing" in result.reason and "only in exact.float32.k_out" in result.reason


@pytest.mark.parametrize("by", [1, -1])
def test_positions_off_by_one(by, found, given):
    p, q, _ = given("llama")
    c, s = tables(p + by, ladder(*LLAMA))
    result = found("llama", exact__sin=s, exact__float32__q_out=turn_halves(q, c, s))
    assert result.cause == "positions" and f"too {'high' if by > 0 else 'low'} by 1" in result.reason
    assert result.explained == ("exact.sin", "exact.float32.q_out")


def test_direction_reversed(found, given):
    p, q, _ = given("llama")
    c, s = tables(p, ladder(*LLAMA))
    result = found("llama", exact__float32__q_out=turn_halves(q, c, -s), exact__sin=-s)
    assert result.cause == "direction" and "backwards" in result.reason


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_tables_rounded(dtype, found, given):
    p, q, _ = given("llama")
    c, s = (t.to(dtype).float() for t in tables(p, ladder(*LLAMA)))
    for tensors in ({"exact__cos": c}, {"exact__float32__q_out": turn_halves(q.float(), c, s)}):
        result = found("llama", **tensors)
        assert result.cause == "low_precision" and f"cos and sin were rounded to {str(dtype)[6:]}" in result.reason


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("mode", ["exact", "model"])
def test_results_rounded(dtype, mode, found, given):
    """A kernel for half precision under the names of float32; under those of bfloat16 it is right."""
    p, q, _ = given("llama")
    c, s = tables(p, ladder(*LLAMA))
    if mode == "model":
        angles = p.float()[:, None] * ladder(*LLAMA).float()
        c, s = angles.cos(), angles.sin()
    y = turn_halves(q.to(c.dtype), c, s).to(dtype)
    result = found("llama", **{f"{mode}__float32__q_out": y})
    assert result.cause == "low_precision" and f"only the results were rounded to {str(dtype)[6:]}" in result.reason
    assert found("llama", **{f"{mode}__bfloat16__q_out": y}) is None


def test_frequencies_rounded(found, given):
    """A buffer that ``model.to(bfloat16)`` converted; the product in float32."""
    p, q, _ = given("llama")
    angles = p.float()[:, None] * ladder(*LLAMA).bfloat16().float()
    result = found("llama", exact__cos=angles.cos(), exact__float32__q_out=turn_halves(q, angles.cos(), angles.sin()))
    assert result.cause == "low_precision" and "inv_freq was rounded to bfloat16" in result.reason
    result = found("llama", exact__inv_freq=ladder(*LLAMA).bfloat16())
    assert result.cause == "low_precision" and "inv_freq" in result.reason


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_positions_rounded(dtype, found, given):
    p, _, _ = given("llama")
    result = found("llama", exact__cos=tables(p.to(dtype), ladder(*LLAMA))[0])
    assert result.cause == "low_precision" and f"positions were rounded to {str(dtype)[6:]}" in result.reason


def test_angles_formed_in_half_precision(found, given):
    p, _, _ = given("llama")
    angles = p.bfloat16()[:, None] * ladder(*LLAMA).bfloat16()
    result = found("llama", exact__cos=angles.double().cos(), exact__sin=angles.double().sin())
    assert result.cause == "low_precision" and "formed in bfloat16" in result.reason


@pytest.mark.parametrize("config", ["yarn", "llama3"])
@pytest.mark.parametrize("instead, says", [("none", "is ignored"), ("linear", "is linear with factor")])
def test_scaling_ignored_or_linear(config, instead, says, found, given):
    p, q, _ = given(config)
    base, factor = (10_000.0, 4.0) if config == "yarn" else (500_000.0, 8.0)
    f = ladder(base, 64) / (1.0 if instead == "none" else factor)
    c, s = tables(p, f)
    result = found(config, exact__inv_freq=f, exact__cos=c, exact__float32__q_out=turn_halves(q, c, s))
    assert result.cause == "scaling" and says in result.reason and not result.unexplained


@pytest.mark.parametrize(
    "config, factor, what",
    [
        ("llama3", 1.0, "q_out"),
        ("yarn", FACTOR, "inv_freq"),
        *(pytest.param(*of, marks=pytest.mark.slow) for of in
          [("llama3", 1.0, "inv_freq"), ("yarn", 1.0, "inv_freq"), ("yarn", 1.0, "q_out")]),
        ("yarn", FACTOR, "q_out"),
    ],
)  # fmt: skip
def test_neither_base_nor_scaling_was_read(config, factor, what, found, given):
    """Keys that moved to another place in the config: the base is the default of the code, and nothing is scaled."""
    p, q, _ = given(config)
    f = ladder(40_000.0, 64)
    c, s = tables(p, f, factor)
    tensors = {"inv_freq": {"exact__inv_freq": f}, "q_out": {"exact__float32__q_out": turn_halves(q, c, s)}}
    result = found(config, **tensors[what])
    assert result.cause == "scaling+base" and "the base is 40000, and must be" in result.reason
    assert ("is ignored" if factor == 1.0 or what == "inv_freq" else "attention factor is applied") in result.reason


@pytest.mark.parametrize("config", ["llama", "llama3"])
@pytest.mark.parametrize("what", ["inv_freq", "q_out"])
def test_pairs_that_are_counted_from_one(config, what, found, given):
    """``base ** (-2 i / d)`` for i from 1 to d / 2: the fastest pair is lost, and one more is slow."""
    p, q, _ = given(config)
    shifted = ladder(*LLAMA) * 500_000.0 ** (-2 / 64)
    f = llama3_of(shifted) if config == "llama3" else shifted
    rotated = turn_halves(q, *tables(p, f))
    result = found(config, **({"exact__inv_freq": f} if what == "inv_freq" else {"exact__float32__q_out": rotated}))
    assert result.cause == "pair_index" and "counted from 1" in result.reason


def test_yarn_truncate(found, given):
    p, q, _ = given("yarn")
    f = yarn(*SMALL, truncate=False)
    c, s = tables(p, f, FACTOR)
    result = found("yarn", exact__inv_freq=f, exact__float32__q_out=turn_halves(q, c, s))
    assert result.cause == "yarn_truncate" and "must be True" in result.reason


def test_all_channels_turned(found, given):
    """GPT-NeoX turns the first 16 of 64 channels."""
    p, q, _ = given("neox")
    c, s = tables(p, ladder(10_000.0, 64))
    result = found("neox", exact__float32__q_out=turn_halves(q, c, s))
    assert result.cause == "rotary_dim" and "all 64 channels" in result.reason and "only 16" in result.reason


def test_exponents_over_the_whole_head(found, given):
    p, _q, _ = given("neox")
    f = ladder(10_000.0, 64)[:8]
    result = found("neox", exact__inv_freq=f, exact__cos=tables(p, f)[0])
    assert result.cause == "rotary_dim" and "divided by head_dim = 64" in result.reason


def test_leading_instead_of_trailing_channels(found, given):
    p, q, _ = given("deepseek")
    rotated = turn_interleaved(q[..., :32], *tables(p, ladder(10_000.0, 32)))
    y = torch.cat((rotated[..., 0::2], rotated[..., 1::2], q[..., 32:]), dim=-1)
    result = found("deepseek", exact__float32__q_out=y)
    assert result.cause == "trailing" and "must be the last" in result.reason


@pytest.mark.parametrize("mistake, says", [("time", "follow axis 0"), ("reverse", "reverse order"), ("turns", "turns")])
def test_axes(mistake, says, found, given):
    p, q, _ = given("mrope")
    owner = torch.tensor([0] * 8 + [1] * 12 + [2] * 12)
    f = ladder(1_000_000.0, 64)

    def rotated(owner):
        angles = p.double()[owner].T * f
        return turn_halves(q, angles.cos(), angles.sin())

    assert found("mrope", exact__float32__q_out=rotated(owner)) is None
    wrong = {"time": 0 * owner, "reverse": 2 - owner, "turns": torch.arange(32) % 3}[mistake]
    result = found("mrope", exact__float32__q_out=rotated(wrong))
    assert result.cause == "axes" and says in result.reason


def test_tensor_format_swapped(found, given):
    p, q, _ = given("llama")
    y = turn_halves(q, *tables(p, ladder(*LLAMA)))
    result = found("llama", exact__float32__q_out=y.transpose(1, 2))
    assert result.cause == "tensor_format" and result.difference is None and result.verdict == "wrong"


def test_nothing_rotated(found, given):
    assert found("llama", exact__float32__q_out=given("llama")[1]).cause == "not_rotated"


def test_a_constant_factor(found, given):
    p, q, _ = given("llama")
    c, s = tables(p, ladder(*LLAMA))
    result = found("llama", exact__float32__q_out=turn_halves(q, c, s) / 8)  # 1 / sqrt(64), the softmax scale
    assert result.cause == "factor" and "multiplied by 0.125" in result.reason


def test_two_mistakes_at_once(found, given):
    p, q, _ = given("llama")
    c, s = tables(p, ladder(10_000.0, 64))
    result = found("llama", exact__float32__q_out=turn_interleaved(q, c, s))
    assert result.cause == "layout+base"


def test_angles_of_the_other_kind_are_no_error(found, given):
    """float32 angles where exact ones were asked for, and the reverse: said, and exit code 0."""
    p, q, _ = given("llama")
    angles = p.float()[:, None] * ladder(*LLAMA).float()
    y = turn_halves(q.float(), angles.cos(), angles.sin())
    result = found("llama", exact__cos=angles.cos(), exact__float32__q_out=y)
    assert result.cause == "angles" and result.verdict == "right" and "float32 angles" in result.reason
    assert result.explained == ("exact.cos", "exact.float32.q_out")
    c, s = tables(p, ladder(*LLAMA))
    result = found("llama", model__float32__q_out=turn_halves(q, c, s))
    assert result.cause == "angles" and result.verdict == "right" and "exact angles" in result.reason


def test_what_nobody_knows(found, given):
    _p, q, _ = given("llama")
    result = found("llama", exact__float32__q_out=torch.randn(q.shape))
    assert result.cause == "unknown" and result.verdict == "wrong" and result.difference.position == (0,)


VALUES = [torch.nan, torch.inf, -torch.inf, 0.0, 1e38]
NAMES = ["exact.inv_freq", "exact.cos", "exact.float32.q_out", "exact.bfloat16.q_out", "attention_factor"]
FIRST = [*zip(VALUES, NAMES, strict=True)]
OTHERS = [(value, name) for value in VALUES for name in NAMES if (value, name) not in FIRST]


@pytest.mark.parametrize("value, name", [*FIRST, *(pytest.param(*of, marks=pytest.mark.slow) for of in OTHERS)])
def test_values_that_no_mistake_gives(value, name, folder_of):
    shape = load(folder_of("llama"))[name].shape
    report = check(folder_of("llama"), {f"attention.{name}": torch.full(shape, value)})
    assert not report.equal and report.findings[0].cause in ("unknown", "factor", "low_precision", "value")
    json.dumps(report.to_dict(), allow_nan=False)


def test_one_wrong_number_is_found(found, given):
    p, q, _ = given("llama")
    y = turn_halves(q, *tables(p, ladder(*LLAMA)))
    y[0, 1, 5, 40] += 0.01
    result = found("llama", exact__float32__q_out=y)
    at = result.difference
    assert (at.position, at.head, at.channel) == ((5,), 1, 40) and result.cause == "value"
    assert at.got - at.expected == pytest.approx(0.01, rel=1e-4)


def test_a_cause_of_its_own_for_the_first(found, given):
    """The base explains the frequencies; what else is wrong with the queries is left open, and named."""
    result = found("llama", exact__inv_freq=ladder(1e6, 64), exact__float32__q_out=torch.randn(given("llama")[1].shape))
    assert result.cause == "base" and result.explained == ("exact.inv_freq",)
    assert result.unexplained == ("exact.float32.q_out",)
    assert str(result).endswith("other cause: exact.float32.q_out")


def test_pairs_of_stretched_frequencies_counted_from_one(found):
    """Each pair has the frequency of the next one; the last has none, and goes on as the ladder does."""
    f = llama3(*LLAMA)
    result = found("llama3", exact__inv_freq=torch.cat((f[1:], f[-1:] * LLAMA[0] ** (-2 / LLAMA[1]))))
    assert result.cause == "pair_index" and "counted from 1" in result.reason, str(result)


@pytest.mark.parametrize("asked, instead", [("long", "short"), ("short", "long")])
def test_frequencies_of_sequences_of_another_length(asked, instead, tmp_path):
    """LongRoPE has one list for sequences of the trained length and one for longer ones."""
    stretch = {"rope_type": "longrope", "short_factor": [1.0 + i / 4 for i in range(32)], "long_factor": [2.0] * 32}
    config = {
        "model_type": "phi3", "hidden_size": 256, "num_attention_heads": 4, "num_hidden_layers": 1, "pad_token_id": 0,
        "original_max_position_embeddings": 4096, "max_position_embeddings": 16_384, "rope_scaling": stretch,
    }  # fmt: skip
    folder = write(config, tmp_path / "golden")
    vectors = load_file(folder / "vectors.safetensors")
    given = {f"attention_{asked}.exact.{x}": vectors[f"attention_{instead}.exact.{x}"] for x in ("inv_freq", "cos")}
    (finding,) = check(folder, given).findings
    lengths = {"long": "16,384", "short": "4,096"}
    assert finding.where == f"attention_{asked}" and finding.cause == "seq_len", str(finding)
    assert f"those of sequences of {lengths[instead]} tokens, and must be those of {lengths[asked]}" in finding.reason
