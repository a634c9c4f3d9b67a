"""`detect`: in which layout the weights of a checkpoint are: by what its format says, and by the weights."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .formats import read
from .head_weights import Floats, gains_of, heads_of
from .permutation import PAIRS, SURE, rotated_channels, with_pairs
from .qk_tensors import AttentionTensors, QKTensors
from .stored import Tensor


@dataclass(frozen=True)
class Detection:
    """The layout of a checkpoint, by its format and by its weights, and whether both agree.

    - ``said``: the layout that the format or the config says, and ``why``.
    - ``weights``: the layout that the weights have, ``""`` where they do not tell; ``z``: how smooth each one is, of q
      and k together and apart (`smooth`).
    - ``odd``: tensors that have another layout than the others: a conversion that was half done.
    - ``lost``: what the file speaks of and does not hold, and rotates otherwise without (the factors of Llama 3).
    """

    path: str
    format: str
    model_type: str
    said: str
    why: str
    weights: str
    z: dict[str, dict[str, float]]
    odd: tuple[str, ...]
    lost: tuple[str, ...] = ()

    @property
    def contradicts(self) -> bool:
        """Whether the weights tell another layout than the format, or several."""
        return bool(self.odd) or self.weights not in ("", self.said)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {**asdict(self), "contradicts": self.contradicts}

    def describe(self) -> str:
        """For people."""
        both = ", ".join(f"{word} {z:.1f}" for word, z in self.z.get("q and k", {}).items())
        lines = [
            f"format   {self.format}, {self.model_type}: {self.said} ({self.why})",
            f"weights  {self.weights or 'cannot tell'}" + (f" (smoothness z: {both})" if both else ""),
        ]
        if self.odd:
            lines.append(f"mixed    {', '.join(self.odd)}: another layout than the rest; a conversion was half done")
        if self.contradicts:
            lines.append(
                "caution  the weights are not in the layout that the format says; nothing warns where they run"
            )
        return "\n".join([*lines, *(f"lost     {each}" for each in self.lost)])


def detect(path: str | Path, *, part: str | None = None, allow_pickle: bool = False) -> Detection:
    """Find the layout of a checkpoint. It says that it cannot tell, rather than guess.

    It reads no more than q and k; untrained weights tell nothing. Where they tell nothing, `phasor.by_text` runs the
    model on a text. Raises ``ValueError`` for a checkpoint that is refused.
    """
    source = read(Path(path), allow_pickle=allow_pickle)
    qk = source.qk_tensors(part)
    said, found = qk.pair_word(source.layout), layout_of_weights(source.tensors, qk)
    about = str(path), source.kind, qk.rotary.model_type, said, source.why
    return Detection(*about, found.word, found.z, found.odd, source.lost)


class WeightLayout(NamedTuple):
    """The layout that weights have (``""``: they do not tell), how smooth each one is, and what has another."""

    word: str
    z: dict[str, dict[str, float]]
    odd: tuple[str, ...]


def layout_of_weights(tensors: Mapping[str, Tensor], qk: QKTensors) -> WeightLayout:
    """What the weights of q and k alone tell, over all layers: together and apart, and what differs from the rest."""
    layers: dict[str, list[dict[str, float]]] = {"q and k": [], "q": [], "k": []}
    single: dict[str, str] = {}
    for attention in qk.attentions:
        both = []
        for kind in ("q", "k"):
            channels = energies(attention, tensors, kind)
            both.append({} if channels is None else z_of(attention, channels))
            layers[kind].append(both[-1])
            if told := verdict(both[-1]):
                single[f"{kind} of {attention.name}"] = told
        layers["q and k"].append(together(both))
    z = {kind: summed for kind, zs in layers.items() if (summed := together(zs))}
    apart = {kind: told for kind in ("q", "k") if (told := verdict(z.get(kind, {})))}
    if len(set(apart.values())) > 1:
        return WeightLayout("", z, tuple(f"{kind}: {told}" for kind, told in apart.items()))
    usual = next(iter(apart.values()), "")
    odd = tuple(name for name, told in single.items() if usual and told != usual)
    return WeightLayout("" if odd else together_and_apart(z), z, odd)


def together_and_apart(z: Mapping[str, Mapping[str, float]]) -> str:
    """The verdict of q and k together, unless one of them alone leans to the other layout: half a conversion does that.

    >>> together_and_apart({"q and k": {"halves": 7, "interleaved": 1}, "k": {"halves": 0, "interleaved": 2}})
    ''
    """
    told = verdict(z.get("q and k", {}))
    against = any(z[kind][word] > z[kind][told] for kind in ("q", "k") if told and kind in z for word in PAIRS)
    return "" if against else told


AHEAD = 2.0  # standard errors between the two layouts, beside `SURE` for the better one
PAIRINGS = 200
FEWEST = 4  # pairs; fewer have no course


def energies(attention: AttentionTensors, tensors: Mapping[str, Tensor], kind: str) -> Floats | None:
    """The weight of every channel that rotates, ``[heads, channels]``; None where there are no whole rows of it."""
    per_head = [np.square(weight).sum(1) for weight in heads_of(attention, tensors, kind)]
    if not per_head:
        return None
    x = np.stack(per_head)
    if (gains := gains_of(attention, tensors, kind, len(x))) is not None:
        x = x * np.square(gains)
    return x if np.isfinite(x).all() and (x > 0).all() else None


def roughness(pairs: Floats) -> Floats:
    """``T`` of energies of pairs ``[..., heads, P]``."""
    mean: Floats = np.abs(np.diff(np.log(pairs), axis=-1)).mean((-1, -2))
    return mean


def z_of(attention: AttentionTensors, channels: Floats) -> dict[str, float]:
    """How much smoother than random pairings each layout is; nothing where there are too few pairs."""
    count = channels.shape[1]
    if count < 2 * FEWEST:
        return {}
    generator = np.random.default_rng(0)
    shuffled = np.stack([channels[:, generator.permutation(count)] for _ in range(PAIRINGS)])
    null = roughness(shuffled[..., 0::2] + shuffled[..., 1::2])
    if null.std() == 0:
        return {}
    scores = {}
    for word in PAIRS:
        order = rotated_channels(with_pairs(attention.spec.layout, word)).channels()
        a, b = channels[:, order[: count // 2]], channels[:, order[count // 2 :]]
        scores[word] = float((null.mean() - roughness(a + b)) / null.std())
    return scores


def together(zs: list[dict[str, float]]) -> dict[str, float]:
    """Stouffer's sum over layers.

    >>> together([{"halves": 3.0, "interleaved": 0.0}] * 4)
    {'halves': 6.0, 'interleaved': 0.0}
    """
    held = [z for z in zs if z]
    return {word: sum(z[word] for z in held) / len(held) ** 0.5 for word in PAIRS} if held else {}


def verdict(z: Mapping[str, float]) -> str:
    """The layout that is smooth and clearly smoother than the other; ``""``: cannot tell.

    >>> verdict({"halves": 7.0, "interleaved": 4.5}), verdict({"halves": 7.0, "interleaved": 6.5})
    ('halves', '')
    """
    if not z:
        return ""
    best, other = sorted(PAIRS, key=lambda word: -z[word])
    return best if z[best] > SURE and z[best] - z[other] > AHEAD else ""
