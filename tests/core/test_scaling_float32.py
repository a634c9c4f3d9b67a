"""Frequencies in float32: transformers' own functions to the bit, and near the exact ones."""

import math

import pytest
import torch

from phasor import RotarySpec
from phasor.rotary.scaling import DynamicNTK, Linear, Llama3, LongRoPE, Proportional, YaRN

HEADS = [(64, 1.0), (128, 1.0), (96, 1.0), (128, 0.5), (80, 0.4)]
BASES = [10_000.0, 500_000.0, 1_000_000.0, 150_000.0]
CASES = {
    "linear": [({"factor": f}, Linear(f)) for f in (2.0, 3.0, 8.0)],
    "proportional": [
        ({"factor": f, "partial_rotary_factor": p}, Proportional(p, f)) for f in (1.0, 8.0) for p in (0.25, 0.3, 1.0)
    ],
    "llama3": [
        (
            {"factor": f, "low_freq_factor": lo, "high_freq_factor": hi, "original_max_position_embeddings": n},
            Llama3(f, lo, hi, n),
        )
        for f, lo, hi, n in ((8.0, 1.0, 4.0, 8192), (32.0, 1.0, 4.0, 8192), (4.0, 2.0, 3.0, 2048))
    ],
    "dynamic": [({"factor": f}, DynamicNTK(f, 4096)) for f in (1.5, 2.0, 4.0)],
    "yarn": [
        ({"factor": f, "original_max_position_embeddings": n, **theirs}, YaRN(f, n, **ours))
        for f, n in ((4.0, 4096), (16.0, 2048), (40.0, 4096))
        for theirs, ours in (
            ({}, {}),
            ({"truncate": False}, {"truncate": False}),
            ({"beta_fast": 24, "beta_slow": 2}, {"beta_fast": 24.0, "beta_slow": 2.0}),
            ({"mscale": 1.0, "mscale_all_dim": 0.707}, {"mscale": 1.0, "mscale_all_dim": 0.707}),
            ({"mscale": 1.0}, {"mscale": 1.0}),
            ({"attention_factor": 0.9}, {"attention": 0.9}),
        )
    ],
}


def hf_config(rope_type, head_dim, partial, base, parameters):
    configuration = pytest.importorskip("transformers.models.llama.configuration_llama")
    return configuration.LlamaConfig(
        hidden_size=4 * head_dim,
        num_attention_heads=4,
        head_dim=head_dim,
        max_position_embeddings=4096,
        rope_parameters={
            "rope_type": rope_type,
            "rope_theta": base,
            **({} if partial == 1.0 else {"partial_rotary_factor": partial}),
            **parameters,
        },
    )


def hf_parameters(rope_type, config, seq_len=None):
    functions = pytest.importorskip("transformers.modeling_rope_utils").ROPE_INIT_FUNCTIONS
    return functions[rope_type](config, "cpu", seq_len=seq_len)


@pytest.mark.parametrize("rope_type", CASES)
@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("head_dim, partial", HEADS)
def test_float32_frequencies_are_those_of_transformers(rope_type, base, head_dim, partial):
    partial = 1.0 if rope_type == "proportional" else partial
    rotary_dim = int(head_dim * partial)
    for parameters, scaling in CASES[rope_type]:
        spec = RotarySpec(head_dim=head_dim, rotary_dim=rotary_dim, base=base, scaling=scaling, angles="float32")
        for seq_len in (None, 1, 4096, 5000, 40_000) if rope_type == "dynamic" else (None,):
            config = hf_config(rope_type, head_dim, partial, base, parameters)
            # beyond the trained length its modules give a tensor
            given = torch.tensor(seq_len) if seq_len is not None and seq_len > 4096 else seq_len
            theirs, factor = hf_parameters(rope_type, config, given)
            assert torch.equal(spec.inv_freq(seq_len), theirs.double()), (parameters, seq_len)
            assert spec.attention_factor(seq_len) == factor


@pytest.mark.parametrize("pair", [2, 4, 5, 6])
def test_a_pair_on_the_bound_of_llama_3(pair):
    """A wavelength that is the longest unscaled one, in float32: transformers blends it, which is the last bit."""
    spec = RotarySpec(head_dim=128, base=500_000.0, angles="float32")
    wavelength = 2 * math.pi / spec.inv_freq().float()
    low = 8192 / float(wavelength[pair]) * (1 + 1e-8)
    assert wavelength[pair] == 8192 / low
    scaling = Llama3(factor=8.0, low_freq_factor=low, high_freq_factor=4 * low, original_max_position=8192)
    parameters = {"factor": 8.0, "low_freq_factor": low, "high_freq_factor": 4 * low}
    parameters["original_max_position_embeddings"] = 8192
    theirs, _ = hf_parameters("llama3", hf_config("llama3", 128, 1.0, 500_000.0, parameters))
    assert torch.equal(spec.replace(scaling=scaling).inv_freq(), theirs.double())


@pytest.mark.parametrize("factor", [1.1, 2.0, 8])
@pytest.mark.parametrize("seq_len", [100, 4096, 4097, 12_345, 131_072, 1_000_003])
def test_dynamic_ntk_is_that_of_a_module_after_a_sequence(seq_len, factor):
    """What a module of transformers holds after it has seen positions up to ``seq_len - 1``."""
    modeling = pytest.importorskip("transformers.models.llama.modeling_llama")
    for base in BASES:
        module = modeling.LlamaRotaryEmbedding(hf_config("dynamic", 128, 1.0, base, {"factor": factor}))
        module(torch.zeros(1), torch.tensor([[0, seq_len - 1]]))
        spec = RotarySpec(head_dim=128, base=base, scaling=DynamicNTK(factor, 4096), angles="float32")
        assert torch.equal(spec.inv_freq(seq_len), module.inv_freq.double())


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("head_dim", [64, 96])
def test_float32_longrope_is_that_of_transformers(head_dim, base):
    n = head_dim // 2
    short, long = [1.0 + 0.03 * i for i in range(n)], [1.0 + 1.7 * i for i in range(n)]
    for factor, stated in ((32.0, None), (1.0, None), (4.0, 1.25)):
        scaling = LongRoPE(short, long, 2048, factor, attention=stated)
        spec = RotarySpec(head_dim=head_dim, base=base, scaling=scaling, angles="float32")
        for seq_len in (None, 2048, 2049, 50_000):
            parameters = {"short_factor": short, "long_factor": long, "original_max_position_embeddings": 2048}
            parameters |= {"factor": factor} | ({} if stated is None else {"attention_factor": stated})
            theirs, theirs_factor = hf_parameters(
                "longrope", hf_config("longrope", head_dim, 1.0, base, parameters), seq_len
            )
            assert torch.equal(spec.inv_freq(seq_len), theirs.double())
            assert spec.attention_factor(seq_len) == theirs_factor


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("head_dim", [2, 32, 64, 80, 128, 256])
def test_float32_plain_is_that_of_transformers(head_dim, base):
    modeling = pytest.importorskip("transformers.models.llama.modeling_llama")
    theirs, _ = modeling.LlamaRotaryEmbedding.compute_default_rope_parameters(
        hf_config("default", head_dim, 1.0, base, {})
    )
    spec = RotarySpec(head_dim=head_dim, base=base, angles="float32")
    assert torch.equal(spec.inv_freq(), theirs.double())
