"""One value that is off by a hundredth, in any tensor, is found and placed; sound files of others raise no alarm."""

import random

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from phasor.tools.golden import check
from phasor.tools.golden.vectors import read_vectors

from .conftest import CONFIGS, load
from .test_mistakes_outside import ladder, yarn


def found_everywhere(folder, draw, whole):
    """Values drawn by chance, in every tensor, given alone or among all others; each must be placed."""
    vectors = read_vectors(folder).tensors
    for name, tensor in vectors.items():
        flat = tensor.flatten()
        moved = (flat.double() * 1.01).to(tensor.dtype)
        # smaller values are roundings of zero to float32 code; of whole numbers a hundredth changes the large ones
        least = 1e-3 if name.endswith("_out") else 1e-5
        open_to_it = ((moved != flat) & (flat.double().abs() > least)).nonzero().flatten().tolist()
        for at in draw.sample(open_to_it, min(3 if whole else 1, len(open_to_it))):
            wrong = flat.clone()
            wrong[at] = moved[at]
            report = check(folder, (vectors if whole else {}) | {name: wrong.reshape(tensor.shape)})
            assert not report.equal, (name, at, float(flat[at]))
            (finding,) = (f for f in report.findings if f.verdict == "wrong")
            assert f"attention.{finding.what}" == name and finding.cause == "value", (name, at, report.describe())
            first = finding.difference
            assert first.expected == flat[at].double() and first.got == moved[at].double()


@pytest.mark.parametrize("config", ["llama", "mrope"])
def test_one_value_in_every_tensor(config, folder_of):
    found_everywhere(folder_of(config), random.Random(f"one value {config}"), whole=False)


@pytest.mark.slow
@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("whole", [False, True])
def test_one_value_in_every_tensor_of_more(config, whole, folder_of):
    for seed in range(5):
        found_everywhere(folder_of(config), random.Random(f"{seed} {config} {whole}"), whole)


def sound(config):
    """Tables and results of float32 angles as numpy forms them: frequencies to the last bit or the one before."""
    return {"llama": ladder(5e5, 64), "yarn": yarn(1e4, 64, 4.0)}[config]


@pytest.mark.parametrize("config", ["llama", "yarn"])
@pytest.mark.parametrize("seed", range(6))
def test_float32_angles_of_others_are_named_as_such(config, seed, folder_of):
    """Each frequency rounded up or down by chance, as another library's pow would; under both names."""
    v = load(folder_of(config))
    up = np.random.default_rng(seed).integers(0, 2, 32).astype(bool)
    f = sound(config).astype(np.float32)
    f = torch.from_numpy(np.where(up, f, np.nextafter(f, np.float32(0))))
    factor = float(v["attention_factor"])
    angles = v["positions"].float()[:, None] * f
    cos, sin = angles.cos() * factor, angles.sin() * factor
    a, b = v["q_in"].chunk(2, -1)
    y = torch.cat((a * cos - b * sin, b * cos + a * sin), -1)
    for names in (("exact.cos", "exact.sin", "exact.float32.q_out"), ("exact.cos",), ("exact.sin",)):
        given = dict(zip(("exact.cos", "exact.sin", "exact.float32.q_out"), (cos, sin, y), strict=True))
        report = check(folder_of(config), {f"attention.{n}": given[n] for n in names})
        (note,) = report.findings
        assert report.equal and note.cause == "angles" and "float32 angles" in note.reason, report.describe()
    given = {"model.float32.cos": cos, "model.float32.sin": sin, "model.float32.q_out": y}
    c, s, p, q = (t.bfloat16() for t in (cos, sin, a, b))
    every = torch.cat((p * c - q * s, q * c + p * s), -1)  # each product rounded, as most models do
    c, s, p, q = (t.float() for t in (c, s, p, q))
    fused = torch.cat((p * c - q * s, q * c + p * s), -1).bfloat16()
    tables = {"model.bfloat16.cos": cos.bfloat16(), "model.bfloat16.sin": sin.bfloat16()}
    for tensors in (given, tables, {"model.bfloat16.q_out": every}, {"model.bfloat16.q_out": fused}):
        report = check(folder_of(config), {f"attention.{n}": t for n, t in tensors.items()})
        assert report.equal and not report.findings, report.describe()


@pytest.mark.parametrize("config", ["llama", "llama3"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_tables_of_transformers_are_named_as_what_they_are(config, dtype, folder_of):
    transformers = pytest.importorskip("transformers")
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

    v = load(folder_of(config))
    data = {key: value for key, value in CONFIGS[config].items() if key != "model_type"}
    q, k = (v[f"{x}_in"].to(getattr(torch, dtype)) for x in "qk")
    cos, sin = LlamaRotaryEmbedding(transformers.LlamaConfig(**data))(q, v["positions"][None])
    y, z = apply_rotary_pos_emb(q, k, cos, sin)
    outs = {f"{dtype}.q_out": y, f"{dtype}.k_out": z}
    own = {f"model.{dtype}.cos": cos, f"model.{dtype}.sin": sin} | {f"model.{n}": t for n, t in outs.items()}
    report = check(folder_of(config), {f"attention.{n}": t for n, t in own.items()})
    assert report.equal and not report.findings
    report = check(folder_of(config), {f"attention.exact.{n}": t for n, t in outs.items()})
    (note,) = report.findings
    assert report.equal and "as the model's own code forms them" in note.reason, report.describe()
    report = check(folder_of(config), {"attention.exact.cos": cos, "attention.exact.sin": sin})
    if dtype == "float32":
        assert report.equal and report.findings[0].cause == "angles"
    else:
        assert not report.equal and report.findings[0].cause == "low_precision", report.describe()


@pytest.mark.parametrize("times", [1.01, 0.99])
def test_one_value_among_float32_angles(times, folder_of):
    """What transformers gives, under the exact names, and one value of it is wrong: both are said."""
    v = load(folder_of("llama"))
    given = v["model.float32.q_out"].clone()
    given[0, 1, -1, 3] *= times  # at position two thousand million
    report = check(folder_of("llama"), {"attention.exact.float32.q_out": given})
    wrong, note = report.findings
    at = wrong.difference
    assert wrong.verdict == "wrong" and (at.position, at.head, at.channel) == ((2_000_000_000,), 1, 3)
    assert note.verdict == "right" and note.cause == "angles"


def test_half_precision_that_was_rounded_once_is_sound(folder_of):
    """Computed in float32, rounded once: a bit apart from float64 now and then, and right."""
    v = load(folder_of("llama"))
    cos, sin = v["exact.cos"].float(), v["exact.sin"].float()
    a, b = v["q_in"].chunk(2, -1)
    y = torch.cat((a * cos - b * sin, b * cos + a * sin), -1).bfloat16()
    report = check(folder_of("llama"), {"attention.exact.bfloat16.q_out": y})
    assert report.equal and not report.findings


def test_numpy_reads_the_vectors(folder_of):
    """numpy has no bfloat16, and a file with one such tensor cannot be loaded by it at all."""
    from safetensors.numpy import load_file as load_numpy

    names = load_numpy(folder_of("llama") / "vectors.safetensors")
    assert set(names) == set(load_file(folder_of("llama") / "vectors.safetensors"))
    assert read_vectors(folder_of("llama")).tensors["attention.exact.bfloat16.q_out"].dtype == torch.bfloat16
