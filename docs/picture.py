"""The README's picture: how far from the truth a rotation is, by position. ``python docs/picture.py`` writes it.

The largest error of cos and sin over the 64 pairs of a head of 128, base 500,000, against 50 digits of mpmath, at 33
positions from 1 to 2,000 million: as phasor rotates; as models' own code does, in float32; and with frequencies
that were rounded to bfloat16 with the rest of the model, as ``model.to(torch.bfloat16)`` does to buffers.
"""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import mpmath
import torch

import phasor

PICTURE = Path(__file__).with_name("exactness.png")
SPEC = phasor.RotarySpec(head_dim=128, base=500_000.0)
POSITIONS = sorted({round(2e9 ** (i / 32)) for i in range(33)})


def truth() -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin in 50 digits, ``[positions, pairs]``."""
    with mpmath.workdps(50):
        base = mpmath.mpf(500_000)
        angles = [[p * base ** (-mpmath.mpf(i) / 64) for i in range(64)] for p in POSITIONS]
        cos, sin = ([[float(f(a)) for a in row] for row in angles] for f in (mpmath.cos, mpmath.sin))
    return torch.tensor(cos, dtype=torch.float64), torch.tensor(sin, dtype=torch.float64)


def errors() -> dict[str, list[float]]:
    """Of each way of rotating, the largest error at each position."""
    at, (cos, sin) = torch.tensor(POSITIONS), truth()
    half = torch.outer(at.float(), SPEC.inv_freq().bfloat16().float())
    usual = phasor.Rotation.at(SPEC.replace(angles="float32"), at)
    exact = phasor.Rotation.at(SPEC, at)
    ways = {
        "frequencies in bfloat16": (half.cos(), half.sin()),
        "usual code, float32": (usual.cos, usual.sin),
        "phasor": (exact.cos, exact.sin),
    }
    return {name: torch.maximum((c - cos).abs(), (s - sin).abs()).amax(-1).tolist() for name, (c, s) in ways.items()}


def draw(path: Path) -> None:
    found = errors()
    figure, axes = plt.subplots(figsize=(7.2, 2.9), dpi=120)
    for (name, values), colour in zip(found.items(), ("#b3423a", "#c98a1b", "#1f6f8b"), strict=True):
        axes.loglog(POSITIONS, [max(v, 1e-9) for v in values], color=colour, lw=2.2, label=name)
    axes.axvline(131_072, color="#888888", lw=0.8, ls=":")
    axes.text(150_000, 3e-9, "131,072", color="#666666", fontsize=8)
    axes.set(xlabel="position of the token", ylabel="largest error of cos, sin", ylim=(1e-9, 5), xlim=(1, 2e9))
    axes.legend(frameon=False, fontsize=9, loc="center right")
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Software": None})


if __name__ == "__main__":
    draw(PICTURE)
    print(f"wrote {PICTURE.name}")
