"""Rotary code as people write it, with one mistake in each, and the name that `check` gives to the mistake.

Every implementation here stands by itself, in numpy and plain Python: none uses phasor.
"""

import numpy as np
import pytest
import torch

from phasor.tools.golden import check, write

from .conftest import CONFIGS, SIZES, load

LINEAR = {"rope_type": "linear", "factor": 4.0}
MORE = {
    "linear": {"model_type": "llama", **SIZES, "rope_theta": 10000.0, "rope_scaling": LINEAR,
               "max_position_embeddings": 16384},
    "blocks": {"model_type": "gemma4_vision", "hidden_size": 128, "num_attention_heads": 2, "num_key_value_heads": 2,
               "num_hidden_layers": 2, "head_dim": 64},
}  # fmt: skip


def ladder(base, dim, first=0):
    return np.array([base ** (-2.0 * (i + first) / dim) for i in range(dim // 2)])


def yarn(base, dim, factor, original=4096):
    """As every library ships it: fast 32 turns, slow 1, bounds rounded outwards."""
    low, high = (dim * np.log(original / (turns * 2 * np.pi)) / (2 * np.log(base)) for turns in (32.0, 1.0))
    low, high = max(np.floor(low), 0), min(np.ceil(high), dim - 1)
    ramp = np.clip((np.arange(dim // 2) - low) / (high - low), 0, 1)
    f = ladder(base, dim)
    return f * (1 - ramp) + f / factor * ramp


def halves(x, cos, sin):
    a, b = np.split(x, 2, axis=-1)
    return np.concatenate((a * cos - b * sin, b * cos + a * sin), axis=-1)


def interleaved(x, cos, sin):
    out = np.empty_like(x)
    out[..., 0::2] = x[..., 0::2] * cos - x[..., 1::2] * sin
    out[..., 1::2] = x[..., 1::2] * cos + x[..., 0::2] * sin
    return out


def rotated_half(x):
    a, b = np.split(x, 2, axis=-1)
    return np.concatenate((-b, a), axis=-1)


def tables(positions, f, factor=1.0):
    angles = np.asarray(positions, dtype=np.float64)[:, None] * f
    with np.errstate(invalid="ignore"):  # float16 knows nothing beyond 65504
        return np.cos(angles) * factor, np.sin(angles) * factor


def through(dtype, x):
    return torch.as_tensor(x).to(dtype).double().numpy()


@pytest.fixture
def judged(folder_of, tmp_path_factory):
    """What is found in the outputs that an implementation gives for the golden inputs."""
    made = {}

    def folder(config):
        if config in CONFIGS:
            return folder_of(config)
        if config not in made:
            made[config] = write(MORE[config], tmp_path_factory.mktemp(config) / "v")
        return made[config]

    def of(config, rotate, mode="exact.float32", dtype=None):
        v = load(folder(config))
        q, k, p = v["q_in"].double().numpy(), v["k_in"].double().numpy(), v["positions"].numpy()
        found = rotate(p, q, k)
        given = {f"attention.{mode}.{n}": torch.as_tensor(np.array(x)).to(dtype) for n, x in found.items()}
        return check(folder(config), given)

    return of


def both(rotate):
    return lambda p, q, k: {"q_out": rotate(p, q), "k_out": rotate(p, k)}


def plain(f, factor=1.0, turn=halves):
    return both(lambda p, x: turn(x, *tables(p, f, factor)))


def partial(p, x, turn, f, first=0, width=16):
    y = x.copy()
    y[..., first : first + width] = turn(x[..., first : first + width], *tables(p, f))
    return y


def crossed(p, x):
    """cos and sin repeated [c0, c0, c1, c1, …], as for neighbours, with rotate_half."""
    cos, sin = (np.repeat(t, 2, axis=-1) for t in tables(p, ladder(5e5, 64)))
    return x * cos + rotated_half(x) * sin


def over_all_heads(p, x):
    """One ladder of the whole model width, cut into the heads."""
    heads = x.shape[1]
    f = ladder(5e5, heads * 64)
    return np.stack([halves(x[:, h], *tables(p, f[32 * h : 32 * (h + 1)])) for h in range(heads)], axis=1)


def as_one_wide_head(p, x):
    heads = x.shape[1]
    flat = np.moveaxis(x, 1, 2).reshape(1, len(p), -1)
    y = halves(flat, *tables(p, ladder(5e5, heads * 64)))
    return np.moveaxis(y.reshape(1, len(p), heads, 64), 2, 1)


def sections(owner, f=None):
    f = ladder(1e6, 64) if f is None else f

    def rotate(p, x):
        angles = p.astype(np.float64)[np.array(owner)].T * f
        return halves(x, np.cos(angles), np.sin(angles))

    return both(rotate)


def gemma4(turn):
    """Two blocks of 32 channels, one per coordinate, each with 16 pairs and a ladder of its own."""

    def rotate(p, x):
        f = ladder(100.0, 32)
        cos, sin = (np.concatenate(pair, axis=-1) for pair in zip(*(tables(c, f) for c in p), strict=True))
        return turn(x, cos, sin)

    return both(rotate)


def in_blocks(x, cos, sin):
    pieces = zip(np.split(x, 2, axis=-1), np.split(cos, 2, axis=-1), np.split(sin, 2, axis=-1), strict=True)
    return np.concatenate([halves(*piece) for piece in pieces], axis=-1)


FACTOR = 0.1 * np.log(4.0) + 1
F = ladder(5e5, 64)
T, H, W = [0], [1], [2]
BF16, F16 = torch.bfloat16, torch.float16


def at(change, f=F):
    return both(lambda p, x: halves(x, *tables(change(p), f)))


def off_by_a_percent(p, q, k):
    y = halves(q, *tables(p, F)).astype(np.float32)
    y[0, 1, 5, 40] *= 1.01
    return {"q_out": y, "k_out": halves(k, *tables(p, F))}


# mistake -> (config, implementation, cause, words of the sentence)
WRONG = {
    "base": ("llama", plain(ladder(1e4, 64)), "base", "the base is 10000, and must be 500000"),
    "scaling dropped": ("linear", plain(ladder(1e4, 64)), "scaling", "linear scaling is ignored"),
    "yarn dropped": ("yarn", plain(ladder(1e4, 64)), "scaling", "yarn scaling is ignored"),
    "linear for YaRN": ("yarn", plain(ladder(1e4, 64) / 4), "scaling", "linear with factor 4, and must be yarn"),
    "factor of YaRN": ("yarn", plain(yarn(1e4, 64, 8.0), 0.1 * np.log(8.0) + 1), "scaling", "is 8, and must be 4"),
    "factor of linear": ("linear", plain(ladder(1e4, 64) / 2.5), "scaling", "is 2.5, and must be 4"),
    "half the factor of linear": ("linear", plain(ladder(1e4, 64) / 2), "positions|scaling", "is 2, and must be 4"),
    "attention factor missing": ("yarn", plain(yarn(1e4, 64, 4.0)), "attention_factor", "missing from"),
    "attention factor squared": ("yarn", plain(yarn(1e4, 64, 4.0), FACTOR**2), "attention_factor", "squared in"),
    "layout, full": ("llama", plain(F, turn=interleaved), "layout", "must be halves"),
    "layout, partial": ("neox", both(lambda p, x: partial(p, x, interleaved, ladder(1e4, 16))), "layout",
                        "must be halves"),
    "layout, inside blocks": ("blocks", gemma4(halves), "layout", "halves inside each of"),
    "partial width": ("neox", both(lambda p, x: partial(p, x, halves, ladder(1e4, 32), width=32)), "rotary_dim",
                      "32 channels are rotated, and 16 must be"),
    "all channels": ("neox", plain(ladder(1e4, 64)), "rotary_dim", "all 64 channels"),
    "trailing for leading": ("neox", both(lambda p, x: partial(p, x, halves, ladder(1e4, 16), 48)), "trailing",
                             "the last 16 channels are rotated, and must be the first"),
    "positions + 1": ("llama", at(lambda p: p + 1), "positions", "too high by 1"),
    "positions + 3": ("llama", at(lambda p: p + 3), "positions", "too high by 3"),
    "positions + 257": ("llama", at(lambda p: p + 257), "positions", "too high by 257"),
    "positions clamped": ("llama", at(lambda p: np.minimum(p, 4095)), "positions", "beyond 4095 are clamped"),
    "positions clamped at 8191": ("llama", at(lambda p: np.minimum(p, 8191)), "positions", "beyond 8191 are clamped"),
    "positions restarting": ("llama", at(lambda p: p % 8192), "positions", "start again from 0 every 8,192"),
    "positions of a second document": ("llama", at(lambda p: np.where(np.arange(len(p)) < 4, p, p - 4)), "positions",
                                       "start again from 0 at token 4"),
    "positions counted": ("llama", at(lambda p: np.arange(len(p))), "positions", "implicit arange"),
    "positions in bfloat16": ("llama", at(lambda p: through(BF16, p)), "low_precision",
                              "positions were rounded to bfloat16"),
    "positions in float16": ("llama", at(lambda p: through(F16, p)), "low_precision",
                             "positions were rounded to float16"),
    "pair index from 1": ("llama", plain(ladder(5e5, 64, 1)), "pair_index", "counted from 1"),
    "tables of the other layout": ("llama", both(crossed), "layout", "cos and sin lie as for interleaved"),
    "one ladder across heads": ("llama", both(over_all_heads), "heads",
                                "one ladder of frequencies runs over all heads"),
    "one wide head": ("llama", both(as_one_wide_head), "heads", "one wide head"),
    "heads rolled": ("llama", both(lambda p, x: np.roll(halves(x, *tables(p, F)), 1, axis=1)), "heads",
                     "have moved by 1"),
    "q only": ("llama", lambda p, q, k: {"q_out": halves(q, *tables(p, F)), "k_out": k}, "not_rotated",
               "only in exact.float32.k_out"),
    "sign": ("llama", both(lambda p, x: halves(x, *tables(-p, F))), "direction", "backwards"),
    "sections swapped": ("mrope", sections(T * 8 + W * 12 + H * 12), "axes", "swapped"),
    "sections of other sizes": ("mrope", sections(T * 12 + H * 8 + W * 12), "axes",
                                "[12, 8, 12], and must be [8, 12, 12]"),
    "unwanted scaling": ("llama", plain(F / 8), "scaling", "linear scaling with factor 8, and there must be none"),
    "unwanted YaRN": ("llama", plain(yarn(5e5, 64, 4.0, 8192), FACTOR), "scaling", "yarn scaling with factor 4"),
    "rounded tables": ("llama", both(lambda p, x: halves(x, *(through(BF16, t) for t in tables(p, F)))),
                       "low_precision", "cos and sin were rounded to bfloat16"),
    "one value": ("llama", off_by_a_percent, "value", "this one value is off"),
}  # fmt: skip

RIGHT = {
    "llama": plain(F),
    "yarn": plain(yarn(1e4, 64, 4.0), FACTOR),
    "linear": plain(ladder(1e4, 64) / 4),
    "neox": both(lambda p, x: partial(p, x, halves, ladder(1e4, 16))),
    "mrope": sections(T * 8 + H * 12 + W * 12),
    "blocks": gemma4(in_blocks),
}


@pytest.mark.parametrize("config", RIGHT)
def test_without_a_mistake_there_is_none(config, judged):
    report = judged(config, RIGHT[config])
    assert report.equal and not report.findings, report.describe()


@pytest.mark.parametrize("mistake", WRONG)
def test_the_mistake_is_named(mistake, judged):
    config, rotate, cause, words = WRONG[mistake]
    report = judged(config, rotate)
    (finding,) = report.findings
    assert finding.verdict == "wrong" and finding.cause == cause and words in finding.reason, report.describe()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_mistake_in_one_tensor_is_named_before_the_rounding_of_all(judged, dtype):
    _, rotate, _, _ = WRONG["q only"]
    (finding,) = judged("llama", rotate, "exact.float32", dtype).findings
    assert (finding.cause, finding.what) == ("not_rotated", "exact.float32.k_out")
    assert finding.unexplained == ("exact.float32.q_out",)
    assert finding.reason.endswith("(only in exact.float32.k_out)")
    (sound,) = judged("llama", RIGHT["llama"], "exact.float32", dtype).findings
    assert sound.cause == "low_precision" and "only the results were rounded" in sound.reason


@pytest.mark.slow
@pytest.mark.parametrize(
    "mode, dtype",
    [("model.float32", torch.float32), ("exact.bfloat16", torch.bfloat16), ("model.bfloat16", torch.bfloat16)],
)
@pytest.mark.parametrize("mistake", WRONG)
def test_the_mistake_is_named_in_other_dtypes_and_under_other_names(mistake, mode, dtype, judged):
    config, rotate, cause, _ = WRONG[mistake]
    found = [finding for finding in judged(config, rotate, mode, dtype).findings if finding.verdict == "wrong"]
    sound = "bfloat16" in mode and mistake == "rounded tables"  # models' own code in bfloat16 rounds them
    assert [finding.cause for finding in found] == ([] if sound else [cause])
