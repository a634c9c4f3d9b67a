"""Frequencies of every scheme in 60-digit mpmath, written from the papers: nothing of the library's arithmetic is used.

Only the fields of a spec are read, and which axis turns which pair is written down here again.
"""

from fractions import Fraction
from functools import cache
from typing import Any

from mpmath import mp, mpf

from phasor import RotarySpec
from phasor.rotary.axes import Axial, InterleavedSections, Mixed, Sections

mp.dps = 60


def ladder(base: float, n: int) -> list[mpf]:
    """RoFormer, arXiv:2104.09864, eq. 15: theta_i = 10000^(-2(i-1)/d) for i = 1 … d/2."""
    return [mpf(base) ** (-mpf(2 * i) / (2 * n)) for i in range(n)]


def turns_in(length: int, theta: mpf) -> mpf:
    """YaRN, arXiv:2309.00071, eq. 17: r = L / wavelength."""
    return length / (2 * mp.pi / theta)


def scaled(scaling: Any, base: float, n: int, seq_len: int) -> list[mpf]:
    """The n frequencies of one ladder, by the scheme's own formula."""
    theta, d = ladder(base, n), 2 * n
    name = None if scaling is None else scaling.name
    if name is None:
        return theta
    if name == "at_length":  # the scaling inside it, at its length and no other
        return scaled(scaling.scaling, base, n, scaling.seq_len)
    if name == "linear":  # arXiv:2306.15595, eq. 4: f(x, m L / L')
        return [t / mpf(scaling.factor) for t in theta]
    if name == "ntk":  # arXiv:2309.00071, eq. 16
        return ladder_of(mpf(base) * mpf(scaling.factor) ** (mpf(d) / (d - 2)), n)
    if name == "ntk_fixed":  # kexue.fm 9706: the i-th digit (from 1) divided by k^(2i/d)
        return [t / mpf(scaling.factor) ** (mpf(2 * (i + 1)) / d) for i, t in enumerate(theta)]
    if name == "dynamic":  # arXiv:2309.00071, section 3.3, with the factor of its public code
        trained = scaling.original_max_position
        s = mpf(1) if seq_len <= trained else mpf(scaling.factor) * seq_len / trained - (mpf(scaling.factor) - 1)
        return ladder_of(mpf(base) * s ** (mpf(d) / (d - 2)), n)
    if name == "stepped_ntk":  # Qwen-7B: 1 inside, then 2^ceil(log2(L / L0) + 1) - 1
        alpha, reach = 1, scaling.original_max_position
        while reach < seq_len:
            alpha, reach = 2 * alpha + 1, 2 * reach
        return ladder_of(mpf(base) * mpf(alpha) ** (mpf(d) / (d - 2)), n)
    if name == "yarn_paper":  # arXiv:2309.00071, eq. 18-20
        out = []
        for t in theta:
            r = turns_in(scaling.original_max_position, t)
            gamma = min(max((r - scaling.alpha) / (mpf(scaling.beta) - mpf(scaling.alpha)), mpf(0)), mpf(1))
            out.append((1 - gamma) * t / mpf(scaling.factor) + gamma * t)
        return out
    if name == "yarn":  # the authors' code: a ramp over the index between the pairs with beta_fast and beta_slow turns

        def index(turns: float) -> mpf:
            return d * mp.log(scaling.original_max_position / (2 * mp.pi * mpf(turns))) / (2 * mp.log(mpf(base)))

        low, high = index(scaling.beta_fast), index(scaling.beta_slow)
        if scaling.truncate:
            low, high = mp.floor(low), mp.ceil(high)
        low, high = max(low, mpf(0)), min(high, mpf(d - 1))
        if low == high:
            high += mpf("0.001")
        ramp = [min(max((i - low) / (high - low), mpf(0)), mpf(1)) for i in range(n)]
        return [t * (1 - r) + t / mpf(scaling.factor) * r for t, r in zip(theta, ramp, strict=True)]
    if name == "longrope":  # arXiv:2402.13753, eq. 2 with the searched factors
        long = seq_len > scaling.original_max_position
        factors = scaling.long_factor if long else scaling.short_factor
        return [t / mpf(f) for t, f in zip(theta, factors, strict=True)]
    if name == "llama3":  # llama-models, apply_scaling: by wavelength
        out = []
        for t in theta:
            wavelength, length = 2 * mp.pi / t, scaling.original_max_position
            low, high = mpf(scaling.low_freq_factor), mpf(scaling.high_freq_factor)
            if wavelength < length / high:
                out.append(t)
            elif wavelength > length / low:
                out.append(t / mpf(scaling.factor))
            else:
                smooth = (length / wavelength - low) / (high - low)
                out.append((1 - smooth) * t / mpf(scaling.factor) + smooth * t)
        return out
    if name == "proportional":  # arXiv:2410.06205, section 6: only the first fraction of the pairs turns
        turning = Fraction(scaling.fraction) * d // 2
        return [t / mpf(scaling.factor) if i < turning else mpf(0) for i, t in enumerate(theta)]
    raise AssertionError(f"no formula written for {name}")


def ladder_of(base: mpf, n: int) -> list[mpf]:
    return [base ** (-mpf(i) / n) for i in range(n)]


@cache
def frequencies(spec: RotarySpec, seq_len: int) -> list[mpf]:
    """One frequency per pair of the spec, before its axes."""
    if spec.frequencies is not None:
        return [mpf(f) for f in spec.frequencies]
    if isinstance(spec.axes, Axial):  # RoPE-ViT, arXiv:2403.13298, eq. 8: every axis has its own full ladder
        return [f for n in spec.axes.sizes for f in scaled(spec.scaling, spec.base, n, seq_len)]
    return scaled(spec.scaling, spec.base, spec.rotary_dim // 2, seq_len)


def shares(spec: RotarySpec) -> list[list[mpf]]:
    """``[axes][pairs]``: how much of each coordinate is in the angle of each pair."""
    axes, pairs = spec.axes, spec.rotary_dim // 2
    if isinstance(axes, Mixed):  # arXiv:2403.13298, eq. 10
        return [[mpf(w) for w in row] for row in axes.directions]
    if isinstance(axes, InterleavedSections):  # Qwen3-VL: h takes 1, 4, 7 …, w takes 2, 5, 8 …, time the rest
        owner = [0] * pairs
        for axis in range(1, len(axes.sections)):
            for pair in range(axis, 3 * axes.sections[axis], 3):
                owner[pair] = axis
    elif isinstance(axes, Axial | Sections):  # contiguous blocks
        sizes = axes.sizes if isinstance(axes, Axial) else axes.sections
        owner = [axis for axis, size in enumerate(sizes) for _ in range(size)]
    else:
        owner = [0] * pairs
    return [[mpf(int(o == axis)) for o in owner] for axis in range(max(axes.count, 1))]


def angles(spec: RotarySpec, position: list[int], seq_len: int) -> list[mpf]:
    """The angle of every pair at one position (one number per axis), in radians."""
    theta, share = frequencies(spec, seq_len), shares(spec)
    return [sum((position[a] * share[a][p] for a in range(len(share))), mpf(0)) * theta[p] for p in range(len(theta))]


def attention_factor(scaling: Any) -> mpf:
    """The factor on cos and sin: YaRN eq. 22 and LongRoPE's sqrt(1 + ln s / ln L)."""
    name = None if scaling is None else scaling.name
    if name in ("yarn", "yarn_paper"):
        return mpf("0.1") * mp.log(mpf(scaling.factor)) + 1
    if name == "longrope":
        return mp.sqrt(1 + mp.log(mpf(scaling.factor)) / mp.log(scaling.original_max_position))
    return mpf(1)
