"""What other implementations gave and was judged wrongly: sound ones accused, mistakes not named, errors of our own."""

import numpy as np
import pytest
import torch

from phasor.tools.golden import check, write

from .conftest import SIZES, load
from .test_mistakes_outside import ladder

MROPE = np.repeat([0, 1, 2], (8, 12, 12))
CHANGES = {
    "too high by 3": lambda p: p + 3,
    "beyond 4095 are clamped": lambda p: np.minimum(p, 4095),
    "start again from 0 every 2,048": lambda p: p % 2048,
    "start again from 0 at token 5": lambda p: np.concatenate((p[:, :5], p[:, 5:] - p[:, 5:6]), 1),
    "too high by 9, on axis 2 alone": lambda p: p + np.array([[0], [0], [9]]),
}


@pytest.mark.parametrize("says", CHANGES)
def test_positions_of_several_axes(says, folder_of):
    v = load(folder_of("mrope"))
    angles = CHANGES[says](v["positions"].numpy()).astype(np.float64)[MROPE].T * ladder(1e6, 64)
    a, b = v["q_in"].double().chunk(2, -1)
    cos, sin = torch.from_numpy(np.cos(angles)), torch.from_numpy(np.sin(angles))
    y = torch.cat((a * cos - b * sin, b * cos + a * sin), -1).float()
    (found,) = check(folder_of("mrope"), {"attention.exact.float32.q_out": y}).findings
    assert found.cause == "positions" and says in found.reason


LONGROPE = {"rope_type": "longrope", "short_factor": [1.0] * 32, "long_factor": [2.0] * 32,
            "original_max_position_embeddings": 4096}  # fmt: skip
ONE_TURN = {"rope_type": "yarn", "factor": 32.0, "beta_fast": 1.0, "beta_slow": 1.0,
            "original_max_position_embeddings": 4096}  # fmt: skip


@pytest.mark.parametrize("scaling", [LONGROPE, ONE_TURN], ids=["a number for each pair", "Kimi K2's ramp"])
def test_a_scaling_that_some_mistake_cannot_have(scaling, tmp_path):
    config = {"model_type": "phi3", **SIZES, "max_position_embeddings": 131072, "rope_scaling": scaling,
              "original_max_position_embeddings": 4096}  # fmt: skip
    if scaling is ONE_TURN:
        config["model_type"] = "llama"
    folder = write(config, tmp_path / "v")
    given = {n: torch.randn(t.shape) for n, t in load_all(folder).items() if n.endswith("exact.float32.q_out")}
    assert {found.cause for found in check(folder, given).findings} == {"unknown"}


def load_all(folder):
    from safetensors.torch import load_file

    return load_file(folder / "vectors.safetensors")


def float32_tables(v, f, width):
    angles = v["positions"].float()[:, None] * torch.from_numpy(f).float()
    x = v["q_in"][..., :width]
    return angles.cos(), angles.sin(), x, v["q_in"][..., width:]


@pytest.mark.parametrize("mode", ["model.bfloat16", "exact.bfloat16"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("config, base, width", [("neox", 1e4, 16), ("llama", 5e5, 64)])
def test_float32_angles_rounded_once_are_sound(config, base, width, dtype, mode, folder_of):
    """Of few channels that turn, few are off: no reason to take them for single wrong values, or for another base."""
    cos, sin, x, rest = float32_tables(load(folder_of(config)), ladder(base, width), width)
    a, b = x.chunk(2, -1)
    y = torch.cat((a * cos - b * sin, b * cos + a * sin, rest), -1).to(dtype)
    report = check(folder_of(config), {f"attention.{mode}.q_out": y})
    assert report.equal, report.describe()


def test_a_mistake_shows_through_rounded_results(folder_of):
    cos, sin, x, _ = float32_tables(load(folder_of("llama")), ladder(1e4, 64), 64)
    a, b = x.chunk(2, -1)
    y = torch.cat((a * cos - b * sin, b * cos + a * sin), -1).half()
    (found,) = check(folder_of("llama"), {"attention.exact.float32.q_out": y}).findings
    assert found.cause == "base" and "10000" in found.reason
