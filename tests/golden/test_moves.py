"""Keys that move in a cache: vectors that a mover written by its formula meets, and what is wrong with others."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from phasor.golden import check, write


def load(folder):
    return json.loads((folder / "vectors.json").read_text()), load_file(folder / "vectors.safetensors")


LLAMA = {
    "model_type": "llama", "hidden_size": 128, "num_attention_heads": 2, "num_hidden_layers": 2, "rope_theta": 5e5,
    "max_position_embeddings": 8192,
}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048}
CONFIGS = {
    "llama": LLAMA,
    "yarn": LLAMA | {"rope_scaling": YARN},
    "dynamic": LLAMA | {"rope_scaling": {"rope_type": "dynamic", "factor": 4.0}},
    "partial": {"model_type": "gpt_neox", "hidden_size": 128, "num_attention_heads": 2, "num_hidden_layers": 1,
                "rotary_pct": 0.25},
    "m-rope": {"model_type": "qwen2_vl_text", "hidden_size": 256, "num_attention_heads": 2, "num_hidden_layers": 1,
               "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}},
    "latent": {"model_type": "deepseek_v3", "hidden_size": 128, "num_attention_heads": 2, "num_hidden_layers": 1,
               "qk_rope_head_dim": 64, "rope_scaling": YARN | {"mscale": 1.0, "mscale_all_dim": 0.5}},
}  # fmt: skip


@pytest.fixture(scope="module")
def vectors(tmp_path_factory):
    made = {}

    def of(name):
        if name not in made:
            made[name] = write(CONFIGS[name], tmp_path_factory.mktemp(name) / "golden", moved=True)
        return made[name]

    return of


class Mover:
    """As a cache of another engine moves keys, by the formula of its page; one kind, with numpy alone."""

    def __init__(self, folder, kind):
        data, tensors = load(folder)
        self.kind = next(k for k in data["kinds"] if k["name"] == kind)
        self.at = {name: tensors[f"{kind}.{name}"].numpy() for name in ("old", "new", "exact.inv_freq", "k_in")}

    def angle(self, distance):
        distance = distance.astype(np.float64)
        axes = self.kind["spec"]["axes"]
        if distance.ndim == 1:
            return distance[:, None] * self.at["exact.inv_freq"]
        owner = np.repeat(np.arange(len(distance)), axes["sections"])  # M-RoPE: sections one after the other
        return distance[owner].T * self.at["exact.inv_freq"]

    def keys(self, distance=None, factor=1.0, interleaved=None):
        angle = self.angle(self.at["new"] - self.at["old"] if distance is None else distance)
        cos, sin, k = factor * np.cos(angle), factor * np.sin(angle), self.at["k_in"].astype(np.float64)
        first, second = (self.kind["channels"][side] for side in ("first", "second"))
        if interleaved is not None:
            channels = range(min(first), min(first) + 2 * len(first))
            half = len(first)
            first, second = (channels[::2], channels[1::2]) if interleaved else (channels[:half], channels[half:])
        out, a, b = k.copy(), k[..., list(first)], k[..., list(second)]
        out[..., list(first)], out[..., list(second)] = a * cos - b * sin, a * sin + b * cos
        return {f"{self.kind['name']}.exact.float32.k_out": torch.from_numpy(out).float()}


def kinds(folder):
    return [k["name"] for k in load(folder)[0]["kinds"] if k["moved"]]


@pytest.mark.parametrize("name", CONFIGS)
def test_a_mover_by_the_formula_is_right(name, vectors):
    """And what it moves is what the other kind has at the new positions: R(new) x from R(old) x."""
    folder = vectors(name)
    data, tensors = load(folder)
    assert kinds(folder) == [f"{k['name']}_moved" for k in data["kinds"] if not k["moved"]]
    for kind in kinds(folder):
        report = check(folder, Mover(folder, kind).keys())
        assert report.verdict == "right", str(report)
        plain = kind.removesuffix("_moved")
        assert torch.equal(tensors[f"{kind}.old"], tensors[f"{plain}.positions"])
        assert torch.equal(tensors[f"{kind}.new"].unique(), tensors[f"{kind}.old"].unique())
        assert float(tensors[f"{kind}.attention_factor"]) == 1
        assert f"{kind}.model.float32.k_out" not in tensors and f"{kind}.q_in" not in tensors


def cause_of(vectors, name, kind=None, **how):
    folder = vectors(name)
    mover = Mover(folder, kind or kinds(folder)[0])
    report = check(folder, mover.keys(**{k: v(mover) if callable(v) else v for k, v in how.items()}))
    assert report.verdict == "wrong"
    return report.findings[0]


FACTOR = 0.1 * np.log(4.0) + 1  # YaRN, arXiv:2309.00071, section 3.4


@pytest.mark.parametrize(
    ("gain", "words"),
    [(FACTOR, "is in the cos and sin that move them"), (FACTOR**2, "twice more"), (1 / FACTOR, "was lost")],
)
def test_the_factor_that_keys_have_already(gain, words, vectors):
    found = cause_of(vectors, "yarn", factor=gain)
    assert found.cause == "moved_factor" and words in found.reason and "1.13862944" in found.reason


@pytest.mark.parametrize(
    "name", ["yarn", "m-rope", *(pytest.param(n, marks=pytest.mark.slow) for n in ("llama", "partial"))]
)
@pytest.mark.parametrize(
    ("how", "cause", "words"),
    [
        ({"interleaved": True}, "layout", ""),
        ({"distance": lambda m: m.at["new"]}, "moved", "on top of the old one"),
        ({"distance": lambda m: -m.at["old"]}, "moved", "not on to the new one"),
        ({"distance": lambda m: m.at["old"] - m.at["new"]}, "direction", "sign of sin"),
    ],
)
def test_wrong_pairs_and_wrong_distances(name, how, cause, words, vectors):
    found = cause_of(vectors, name, **how)
    assert cause in found.cause and words in found.reason, found


def test_the_layout_of_weights_in_a_cache(vectors):
    """DeepSeek rotates interleaved weights into halves, and a cache has halves."""
    assert cause_of(vectors, "latent", interleaved=True).cause == "layout"


@pytest.mark.parametrize("axis", range(3))
def test_pictures_that_move_on_one_axis_only(axis, vectors):
    def alone(mover):
        by = mover.at["new"] - mover.at["old"]
        return by * (np.arange(3) == axis)[:, None]

    found = cause_of(vectors, "m-rope", distance=alone)
    assert found.cause == "moved" and f"on axis {axis} alone, of 3" in found.reason


@pytest.mark.parametrize("asked, instead", [("8,192", "32,768"), ("32,768", "8,192")])
def test_frequencies_of_another_length(asked, instead, vectors):
    """A cache whose regime changed under its keys: dynamic NTK, inside the 8,192 of training and at four times them."""
    folder = vectors("dynamic")
    by_length = dict(zip(("8,192", "32,768"), kinds(folder), strict=True))
    other = Mover(folder, by_length[instead])
    other.kind = {**other.kind, "name": by_length[asked]}
    other.at |= {name: Mover(folder, by_length[asked]).at[name] for name in ("old", "new", "k_in")}
    found = check(folder, other.keys()).findings[0]
    assert found.cause.split("|")[-1] == "seq_len"  # the trained length without its scaling is the same
    assert f"those of sequences of {instead} tokens, and must be those of {asked}" in found.reason


def test_what_cannot_move(tmp_path):
    with pytest.raises(ValueError, match="at least 2"):
        write(LLAMA, tmp_path / "a", positions=[7], moved=True)
    with pytest.raises(ValueError, match=r"positions of keys that move must be at most 2\*\*31 apart"):
        write(LLAMA, tmp_path / "c", positions=[-(2**31), 2**31 - 1], moved=True)
    absolute = {"model_type": "dinov3_vit", "hidden_size": 64, "num_attention_heads": 2, "num_hidden_layers": 1}
    with pytest.raises(ValueError, match="moved needs a kind of layer whose keys can move"):
        write(absolute, tmp_path / "b", moved=True)
    assert not list(tmp_path.iterdir())


def test_keys_of_one_kind_of_layer_that_move_as_those_of_another(tmp_path):
    """Gemma 3's sliding layers by the base *and* the factor of the global ones (LMCache 4666)."""
    from .test_write import THEIRS

    folder = write(THEIRS["gemma3"], tmp_path / "v", moved=True)
    mover = Mover(folder, "sliding_attention_moved")
    assert not check(folder, mover.keys()).findings
    ladder = 1e6 ** (-np.arange(32) / 32) / 8
    mover.at["exact.inv_freq"] = ladder
    for given in (mover.keys(), {"sliding_attention.exact.inv_freq": torch.from_numpy(ladder)}):
        (finding,) = check(folder, given).findings
        assert finding.cause == "layers" and "those of the layers full_attention" in finding.reason
