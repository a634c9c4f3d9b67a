"""What transformers forms from a config is named as the config states it."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from phasor import RotarySpec, read_config
from phasor.axes import Alternating, Axial, InterleavedSections, Sections
from phasor.eye.names import Named, named
from phasor.eye.names.sight import Sight
from phasor.scaling import (
    NTK,
    DynamicNTK,
    Linear,
    Llama3,
    LongRoPE,
    NTKFixed,
    Proportional,
    SteppedNTK,
    YaRN,
    YaRNPaper,
)  # fmt: skip

Seen = tuple[list[float], float]


class Published:
    """A config and what transformers' own functions form from it, at any length."""

    def __init__(self, head_dim: int, length: int, parameters: dict[str, Any], expected: Any) -> None:
        self.head_dim, self.expected, self.kind = head_dim, expected, parameters["rope_type"]
        self.base = parameters["rope_theta"]
        sizes = {"hidden_size": 8 * head_dim, "num_attention_heads": 8, "head_dim": head_dim}
        self.config = LlamaConfig(**sizes, max_position_embeddings=length, rope_parameters=parameters)

    @property
    def stated(self) -> dict[str, Any]:
        """The fields that the config states."""
        return {"base": self.base} | ({} if self.expected is None else {"scaling": self.expected})

    def at(self, length: int | None) -> Seen:
        if self.kind == "default":
            steps = torch.arange(0, self.head_dim, 2, dtype=torch.int64).float()
            return (1.0 / (self.base ** (steps / self.head_dim))).tolist(), 1.0
        grown = self.kind == "dynamic" and length is not None and length > self.config.max_position_embeddings
        # transformers' modules find a grown length among the positions, as a tensor
        values, factor = ROPE_INIT_FUNCTIONS[self.kind](
            self.config, "cpu", seq_len=torch.tensor(length) if grown else length
        )
        return values.tolist(), factor

    def named(self, lengths: tuple[int, ...], numbers: dict[str, Any]) -> Named:
        frequencies, factor = self.at(None)
        return named(frequencies, factor=factor, numbers=numbers, by_length={n: self.at(n) for n in lengths})


bases = st.sampled_from([10_000.0, 150_000.0, 160_000.0, 500_000.0, 1e6, 5e6, 11_158_840.0])
factors = st.sampled_from([1.5, 2.0, 4.0, 8.0, 16.0, 32.0, 40.0])
originals = st.sampled_from([2048, 4096, 8192])
OF_YARN = [
    {}, {"beta_fast": 64.0, "beta_slow": 2.0}, {"truncate": False}, {"mscale": 0.707, "mscale_all_dim": 0.707},
    {"mscale": 1.0, "mscale_all_dim": 0.8}, {"attention_factor": 1.2}, {"attention_factor": 1.0, "truncate": False},
]  # fmt: skip


@st.composite
def published(draw: Callable[..., Any], heads: tuple[int, ...]) -> Published:
    """Realistic parameters of every scheme that transformers has; the scaling that they state."""
    kind = draw(st.sampled_from(["default", *ROPE_INIT_FUNCTIONS]))
    head_dim, base, factor, original = draw(st.sampled_from(heads)), draw(bases), draw(factors), draw(originals)
    rope: dict[str, Any] = {"rope_type": kind, "rope_theta": base}
    length, expected = int(original * factor), None
    if kind in ("linear", "dynamic", "yarn", "llama3", "longrope"):
        rope["factor"] = factor
    if kind in ("yarn", "llama3", "longrope"):
        rope["original_max_position_embeddings"] = original
    if kind == "linear":
        expected = Linear(factor)
    elif kind == "dynamic":
        length, expected = original, DynamicNTK(factor, original)
    elif kind == "proportional":
        rope["partial_rotary_factor"] = draw(st.sampled_from([0.25, 0.5, 0.75]))
        expected = Proportional(rope["partial_rotary_factor"])
    elif kind == "llama3":
        low, high = draw(st.sampled_from([(1.0, 4.0), (1.0, 8.0), (2.0, 8.0)]))
        rope |= {"low_freq_factor": low, "high_freq_factor": high}
        expected = Llama3(factor, low, high, original)
    elif kind == "longrope":
        step = draw(st.sampled_from([0.013, 0.05, 0.37]))
        short = [1.0 + round(step * i, 4) for i in range(head_dim // 2)]
        long = [1.0 + round(factor * step * i, 4) for i in range(head_dim // 2)]
        rope |= {"short_factor": short, "long_factor": long}
        expected = LongRoPE(tuple(short), tuple(long), original, factor)
    elif kind == "yarn":
        names = {"beta_fast": "beta_fast", "beta_slow": "beta_slow", "mscale": "mscale", "truncate": "truncate"}
        names |= {"mscale_all_dim": "mscale_all_dim", "attention_factor": "attention"}
        rope |= (more := draw(st.sampled_from(OF_YARN)))
        expected = YaRN(factor, original, **{names[key]: value for key, value in more.items()})
    return Published(head_dim, length, rope, expected)


def looks_plain(model: Published, lengths: tuple[int, ...]) -> bool:
    """Whether nothing in what is seen tells the scaling from none."""
    plain = RotarySpec(head_dim=model.head_dim, base=model.base, angles="float32").inv_freq().tolist(), 1.0
    return all(model.at(n) == plain for n in (None, *lengths))


def lengths_around(model: Published) -> tuple[int, ...]:
    """One inside the trained length, both beside its end, and one far beyond."""
    start = getattr(model.expected, "original_max_position", 4096)
    return 16, start, start + 1, 3 * start + 7


@settings(max_examples=80)
@given(published((32, 64, 80, 128, 256)))
def test_what_a_config_states_is_what_its_frequencies_are_named(model: Published) -> None:
    lengths = lengths_around(model)
    assume(model.expected is None or not looks_plain(model, lengths))
    answer = model.named(lengths, model.config.to_dict())
    assert answer.fields == model.stated and answer.factor == 1 and answer.exact
    spec = answer.spec()
    for unseen in (77, 2 * lengths[1], 100_003):
        frequencies, factor = model.at(unseen)
        assert (spec.inv_freq(unseen).tolist(), spec.attention_factor(unseen)) == (frequencies, factor)


def test_parameters_under_keys_of_their_own_are_not_guessed() -> None:
    """The base may have any key; a scaling of which the config says nothing under its usual keys has no name."""
    llama3 = Llama3(8.0, 1.0, 4.0, 8192)
    spec = RotarySpec(head_dim=128, base=500_000.0, scaling=llama3, angles="float32")
    frequencies = spec.inv_freq().tolist()
    usual = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
    assert named(frequencies, numbers={"a": 500_000.0, "b": usual}).fields == {"base": 500_000.0, "scaling": llama3}
    renamed = {f"n{i}": value for i, value in enumerate(usual.values())}
    assert named(frequencies, numbers={"a": 500_000.0, "b": renamed}).fields == {"frequencies": tuple(frequencies)}


@settings(max_examples=25)
@given(published((64, 128)), st.floats(-1e-9, 1e-9))
def test_measured_frequencies_have_the_same_names(model: Published, error: float) -> None:
    lengths = lengths_around(model)
    assume(model.expected is None or not looks_plain(model, lengths))

    def measured(length: int | None) -> Seen:
        frequencies, factor = model.at(length)
        return [f * (1 + error * (-1) ** i) for i, f in enumerate(frequencies)], factor * (1 + error)

    (frequencies, factor), by_length = measured(None), {n: measured(n) for n in lengths}
    numbers = model.config.to_dict()
    answer = named(frequencies, factor=factor, numbers=numbers, exact=False, by_length=by_length)
    assert answer.fields == model.stated and answer.factor == 1 and not answer.exact


# --------------------------------------------------------------------------------------------------------- real configs


def stated(spec: RotarySpec) -> dict[str, Any]:
    """The fields of a spec that a name speaks of."""
    fields = {"base": spec.base, "exponent_dim": spec.exponent_dim, "scaling": spec.scaling}
    fields |= {"axes": spec.axes if spec.axes.count > 1 else None}
    return {name: value for name, value in fields.items() if value is not None}


def specs_of(folder: Path) -> list[tuple[str, dict[str, Any], RotarySpec]]:
    """Every distinct rotation of every config that can be read, with the config as plain data."""
    found = []
    for path in sorted(folder.glob("*/*.json")):
        try:
            model = read_config(path).with_angles("float32")
        except ValueError:
            continue  # tests/configs has these by name
        found += [(path.stem, json.loads(path.read_text()), spec) for spec in model.distinct]
    return found


@pytest.fixture(scope="module")
def real(shared_data: Path) -> list[tuple[str, dict[str, Any], RotarySpec]]:
    return specs_of(shared_data / "configs")


def test_every_real_config_is_named_as_it_is_read(real: list[tuple[str, dict[str, Any], RotarySpec]]) -> None:
    for name, config, spec in real:
        start = (spec.scaling and spec.scaling.trained_length) or 4096
        by_length = {
            n: (spec.inv_freq(n).tolist(), spec.attention_factor(n)) for n in (16, start, start + 1, 4 * start + 3)
        }
        answer = named(
            spec.inv_freq().tolist(),
            factor=spec.attention_factor(),
            numbers=config,
            exact=spec.angles == "float32",  # RoFormer's are float64
            by_length=by_length,
            axes=spec.axes,
        )
        assert (answer.fields, answer.factor, answer.pairs) == (stated(spec), 1.0, spec.pairs), name
    assert len(real) >= 130


def test_what_transformers_modules_held_is_named_as_the_config_is_read(
    real: list[tuple[str, dict[str, Any], RotarySpec]], shared_data: Path
) -> None:
    """Values with nine digits, formed on another machine: near, as measured ones are."""
    oracle = json.loads((shared_data / "configs_oracle.json").read_text())["configs"]
    compared = 0
    for name, config, spec in real:
        entries = [entry for file, entry in oracle.items() if Path(file).stem == name]
        buffers = [
            buffer
            for entry in entries
            for part in entry.values()
            if isinstance(part, dict)
            for module in (part.get("rotary") or {}).values()
            for buffer in (module or {}).values()
            if isinstance(buffer, dict) and buffer.get("n") == spec.pairs
        ]
        for buffer in buffers:
            values = torch.tensor(buffer["values"], dtype=torch.float64)
            if not torch.allclose(values, spec.inv_freq(), rtol=1e-6, atol=0):
                continue  # of another kind of layer, or of another part
            factor = buffer["attention_scaling"]
            answer = named(buffer["values"], factor=factor, numbers=config, exact=False, axes=spec.axes)
            plain = {key: value for key, value in stated(spec).items() if key != "scaling"}
            grows = isinstance(spec.scaling, (DynamicNTK, SteppedNTK))
            assert answer.fields == (plain if grows else stated(spec)), name
            compared += 1
    assert compared >= 80


def test_a_name_costs_few_specs(
    real: list[tuple[str, dict[str, Any], RotarySpec]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forming a spec is what takes the time, half a millisecond or more: no product of all numbers is tried."""
    tried: list[Any] = []
    judge = Sight.judge
    monkeypatch.setattr(Sight, "judge", lambda sight, fields: (tried.append(fields), judge(sight, fields))[1])
    generator = torch.Generator().manual_seed(0)
    for name, config, spec in real:
        for frequencies in (
            spec.inv_freq().tolist(),
            torch.rand(spec.pairs, generator=generator).sort(descending=True).values.tolist(),
        ):
            tried.clear()
            named(frequencies, factor=spec.attention_factor(), numbers=config, exact=False, axes=spec.axes)
            assert len(tried) <= 30, name


# ----------------------------------------------------------------------------------------------- one rotation at a time


def ladder(base: float, divisor: int, count: int) -> list[float]:
    """``base ** (-2 i / divisor)`` in float32, as models write it."""
    return (1.0 / base ** (torch.arange(0, 2 * count, 2, dtype=torch.int64).float() / divisor)).tolist()


@pytest.mark.parametrize("base", [100.0, 256.0, 10_000.0, 150_000.0, 500_000.0, 1e6])
def test_a_short_decimal_needs_no_config(base: float) -> None:
    assert named(ladder(base, 64, 32)).fields == {"base": base}


def test_another_base_is_named_only_if_the_config_has_it() -> None:
    frequencies = ladder(123_456.7, 64, 32)
    answer = named(frequencies)
    assert answer.fields == {"frequencies": tuple(frequencies)} and answer.near is None
    assert answer.open[0] == "no base and no scaling known here give these frequencies"
    assert named(frequencies, numbers={"a": {"b": 123_456.7}}).fields == {"base": 123_456.7}


def test_explicit_frequencies_have_the_bits_that_were_seen() -> None:
    frequencies = torch.rand(16).tolist()
    assert named(frequencies).spec().inv_freq().tolist() == frequencies


def test_other_bits_are_near_and_no_name() -> None:
    """A ladder formed in float64 and rounded once is not the one that float32 powers give."""
    frequencies = torch.tensor([10_000.0 ** (-i / 32) for i in range(32)], dtype=torch.float64).float().tolist()
    assert frequencies != ladder(10_000.0, 64, 32)
    answer = named(frequencies)
    assert answer.fields == {"frequencies": tuple(frequencies)} and answer.near == {"base": 10_000.0}
    assert answer.open[0] == "the frequencies are near those of base 10000, but have other bits"
    assert named(frequencies, exact=False).fields == {"base": 10_000.0}


def test_a_ladder_by_exp_is_named_and_said_to_be_one() -> None:
    """Kandinsky's has other bits than powers of the base."""
    frequencies = torch.exp(-math.log(10_000.0) * torch.arange(32, dtype=torch.float32) / 32).tolist()
    answer = named(frequencies)
    assert answer.exact and answer.fields == {"base": 10_000.0, "angles": "float32_exp"}
    assert answer.spec().inv_freq().tolist() == frequencies


def test_the_divisor_of_the_exponent_is_found() -> None:
    """GLM-4-MoE's is odd; Gemma 4's pairs that turn stand on the ladder of the whole head."""
    assert named(ladder(1e6, 63, 32), numbers={"rope_theta": 1e6}).fields == {"base": 1e6, "exponent_dim": 63}
    assert named(ladder(1e4, 256, 32), numbers={"rope_theta": 10_000}).fields == {"base": 1e4, "exponent_dim": 256}


AXES = [Axial((16, 16)), Axial((8, 24)), Alternating((1, 0), own_ladders=True)]
SHARED = [Sections((8, 12, 12)), InterleavedSections((12, 10, 10))]


@pytest.mark.parametrize("axes", AXES)
def test_axes_that_have_ladders_of_their_own(axes: Any) -> None:
    frequencies = [ladder(10_000.0, 2 * n, n)[i] for i, n in axes.rung_of_pair(32)]
    assert named(frequencies, axes=axes).fields == {"base": 10_000.0, "axes": axes}
    assert "frequencies" in named(frequencies).fields  # which one axis does not give


@pytest.mark.parametrize("axes", SHARED)
def test_axes_that_share_a_ladder(axes: Any) -> None:
    frequencies = [f / 4 for f in ladder(10_000.0, 64, 32)]
    expected = {"base": 10_000.0, "scaling": Linear(4.0), "axes": axes}
    assert named(frequencies, numbers={"factor": 4}, axes=axes).fields == expected


def test_pairs_that_stand_still_pass_or_are_stopped() -> None:
    turning, still = ladder(10_000.0, 64, 32), [0.0] * 8
    behind = named(turning + still)
    assert (behind.fields, behind.pairs) == ({"base": 10_000.0}, 32)
    stopped = named(ladder(1e6, 80, 32) + still, numbers={"rope_theta": 1e6})
    assert (stopped.fields, stopped.pairs) == ({"base": 1e6, "scaling": Proportional(0.8)}, 40)
    between = turning[:5] + still + turning[5:]
    assert named(between).fields == {"frequencies": tuple(between)}


def test_a_factor_that_no_scaling_explains_is_left() -> None:
    answer = named(ladder(10_000.0, 64, 32), factor=1.25)
    assert (answer.fields, answer.factor) == ({"base": 10_000.0}, 1.25)
    assert answer.open[-1] == "a factor of 1.25 on cos and sin, which no scaling explains"


def test_yarn_with_another_factor_on_cos_and_sin() -> None:
    """No formula gives 1.25: it is what was seen, and stated as that."""
    expected = YaRN(8.0, 4096, attention=1.25)
    spec = RotarySpec(head_dim=128, base=10_000.0, scaling=expected, angles="float32")
    numbers = {"rope_theta": 1e4, "rope_scaling": {"factor": 8.0, "original_max_position_embeddings": 4096}}
    assert named(spec.inv_freq().tolist(), factor=1.25, numbers=numbers).fields["scaling"] == expected


ORIGINAL = {"original_max_position_embeddings": 4096}


@pytest.mark.parametrize(
    ("scaling", "rope"),
    [
        (NTK(8.0), {"alpha": 8.0, "type": "dynamic"}),
        (NTKFixed(8.0), {"factor": 8.0, "type": "ntk"}),
        (YaRNPaper(8.0, 4096, 2.0, 16.0), {"factor": 8.0, "beta_slow": 2, "beta_fast": 16} | ORIGINAL),
    ],
)
def test_schemes_that_transformers_does_not_have(scaling: Any, rope: dict[str, Any]) -> None:
    spec = RotarySpec(head_dim=128, base=10_000.0, scaling=scaling, angles="float32")
    numbers = {"rope_theta": 10_000.0, "rope_scaling": rope}
    answer = named(spec.inv_freq().tolist(), factor=spec.attention_factor(), numbers=numbers)
    assert answer.fields == {"base": 10_000.0, "scaling": scaling}


def test_positions_times_a_number_are_seen_in_measured_frequencies() -> None:
    plain = [100.0 ** (-i / 16) for i in range(16)]
    turns = named([2 * math.pi * f for f in plain], exact=False)
    assert turns.fields == {"base": 100.0, "position_scale": 2 * math.pi}
    halves = named([f / 2 for f in plain], exact=False)
    assert halves.fields == {"base": 100.0, "scaling": Linear(2.0)}
    assert "positions times 0.5 would be the same but for the last bits" in halves.open


# ------------------------------------------------------------------------------------------------------ what stays open

DYNAMIC = {
    "rope_theta": 10_000.0,
    "max_position_embeddings": 2048,
    "rope_scaling": {"rope_type": "dynamic", "factor": 2.0},
}


def test_dynamic_scaling_is_plain_until_a_longer_sequence_is_seen() -> None:
    spec = RotarySpec(head_dim=64, base=10_000.0, scaling=DynamicNTK(2.0, 2048), angles="float32")
    inside = named(spec.inv_freq().tolist(), numbers=DYNAMIC)
    assert inside.fields == {"base": 10_000.0} and inside.look_at == (4096,)
    assert inside.open == (
        "only sequences inside the trained length were seen",
        "dynamic(factor=2.0, original_max_position=2048) would look the same up to 2048 tokens",
    )
    beyond = {n: (spec.inv_freq(n).tolist(), 1.0) for n in inside.look_at}
    answer = named(spec.inv_freq().tolist(), numbers=DYNAMIC, by_length=beyond)
    assert answer.fields["scaling"] == DynamicNTK(2.0, 2048) and answer.look_at == ()
    plain = named(spec.inv_freq().tolist(), numbers=DYNAMIC, by_length={4096: (spec.inv_freq().tolist(), 1.0)})
    assert plain.fields == {"base": 10_000.0} and plain.look_at == ()
    assert plain.open == ("no sequence of more than 4096 tokens was seen",)


def test_steps_are_told_from_dynamic_scaling() -> None:
    numbers = {"rotary_emb_base": 10_000, "seq_length": 2048, "use_dynamic_ntk": True}
    spec = RotarySpec(head_dim=128, base=10_000.0, scaling=SteppedNTK(2048), angles="float32")
    inside = named(spec.inv_freq().tolist(), numbers=numbers)
    assert inside.fields == {"base": 10_000.0} and inside.look_at == (4096,)
    seen = {n: (spec.inv_freq(n).tolist(), 1.0) for n in (4096, 5000, 8000)}
    assert named(spec.inv_freq().tolist(), numbers=numbers, by_length=seen).fields["scaling"] == SteppedNTK(2048)


def test_the_other_list_of_longrope_is_the_configs_word_until_it_is_seen() -> None:
    short, long = tuple(1 + i / 64 for i in range(32)), tuple(1 + i / 2 for i in range(32))
    expected = LongRoPE(short, long, 4096, 32.0)
    rope = {"rope_type": "longrope", "short_factor": list(short), "long_factor": list(long)}
    numbers = {
        "rope_theta": 10_000.0,
        "max_position_embeddings": 131_072,
        "original_max_position_embeddings": 4096,
        "rope_scaling": rope,
    }
    spec = RotarySpec(head_dim=64, base=10_000.0, scaling=expected, angles="float32")
    frequencies, factor = spec.inv_freq().tolist(), spec.attention_factor()
    unseen = named(frequencies, factor=factor, numbers=numbers)
    assert unseen.fields["scaling"] == expected and unseen.look_at == (4096, 4097)
    assert unseen.open[1] == "that long_factor begins after 4096 tokens is what the config says; it was not seen there"
    seen = {n: (spec.inv_freq(n).tolist(), factor) for n in (4096, 4097)}
    answer = named(frequencies, factor=factor, numbers=numbers, by_length=seen)
    assert answer.fields["scaling"] == expected and answer.look_at == ()
    # A model that keeps its short list beyond the length does not do what the config says.
    kept = named(frequencies, factor=factor, numbers=numbers, by_length={4097: (frequencies, factor)})
    assert (kept.fields, kept.factor) == ({"frequencies": tuple(frequencies)}, factor)


def test_a_change_that_nothing_explains_is_told() -> None:
    frequencies = ladder(10_000.0, 64, 32)
    other = torch.rand(32).tolist()
    answer = named(frequencies, by_length={5000: (other, 1.0)})
    assert answer.fields == {"frequencies": tuple(frequencies)} and not answer.exact
    assert answer.open[-1] == "at 5000 tokens it is another rotation, which nothing known here explains"


# --------------------------------------------------------------------------------------------------------------- errors


def test_frequencies_that_are_none_are_refused() -> None:
    with pytest.raises(ValueError, match=r"frequencies\[1\] must be a float32 value where they are exact, got 0.1; "):
        named([1.0, 0.1])
    with pytest.raises(ValueError, match="frequencies must have one value per pair, 1 here, got 0"):
        named([])
    with pytest.raises(ValueError, match=r"by_length\[9\]: frequencies must have one value per pair, 2 here, got 1"):
        named([1.0, 0.5], by_length={9: ([1.0], 1.0)})
    with pytest.raises(ValueError, match="factor must be"):
        named([1.0], factor=0.0)


@given(
    st.lists(st.floats(-1e30, 1e30), min_size=1, max_size=12),
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.sampled_from(["yarn", "dynamic", "su"]),
        lambda inner: (
            st.lists(inner, max_size=6)
            | st.dictionaries(
                st.sampled_from(["rope_theta", "factor", "short_factor", "long_factor", "max_position_embeddings"])
                | st.sampled_from(["rope_scaling", "truncate", "beta_fast", "mscale", "alpha", "low_freq_factor"]),
                inner,
                max_size=6,
            )
        ),
        max_leaves=12,
    ),
)
def test_any_frequencies_and_any_config_get_an_answer(frequencies: list[float], config: Any) -> None:
    answer = named(frequencies, numbers=config if isinstance(config, dict) else {"a": config}, exact=False)
    seen = torch.tensor(frequencies, dtype=torch.float64)[: answer.pairs]
    spec = answer.spec(angles="exact")
    torch.testing.assert_close(spec.inv_freq() * spec.position_scale, seen, rtol=1e-5, atol=0)
