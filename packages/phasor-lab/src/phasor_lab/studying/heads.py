"""What one head does: how far back it looks, at what, and whether position or content decides it."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from phasor import RotarySpec

from ..running.model import RunningModel
from .attention import Forward, taken_back, watched

MOST = 0.5  # of the attention: a head is named after what gets more
EVEN = 0.9  # of the entropy of even attention
FIRST = 8  # queries before this one have too little to choose from


@dataclass(frozen=True)
class HeadUse:
    """One head of one layer, over all queries of all windows.

    - ``kind``: ``"itself"``, ``"previous token"``, ``"n tokens back"``, ``"start"`` (the window's first token),
      ``"everything"`` (nearly even attention), or ``"mixed"``.
    - ``mass``, ``score``: mean attention weight and mean score (before softmax, with its scale) by distance
      ``0 ... L - 1``. ``start``: mean weight on the first token.
    - ``position``, ``content``, ``both``: shares of the variance of the scores within a query's row; they add up to 1.
      Position is the mean score of each distance, content the score with the rotation averaged over all distances, and
      both is the rest.
    - ``q_energy``, ``k_energy``: mean squared length of q and k in each pair; empty in a layer without rotation.
    """

    layer: int
    head: int
    kind: str
    start: float
    position: float
    content: float
    both: float
    mass: tuple[float, ...]
    score: tuple[float, ...]
    q_energy: tuple[float, ...]
    k_energy: tuple[float, ...]


def head_uses(running: RunningModel, rows: Tensor, own: list[Tensor]) -> tuple[HeadUse, ...]:
    """Of all heads, in windows ``rows`` ``[n, L + 1]``; ``own``: the frequencies of each rotation.

    Layer by layer, since attention weights are large.
    """
    uses: list[HeadUse] = []
    for layer, rotation in enumerate(running.layers):
        seen: list[tuple[Tensor, Tensor, Tensor, float]] = []

        def see(
            at: int, q: Tensor, k: Tensor, scale: float, forward: Forward, layer: int = layer, seen: Any = seen
        ) -> tuple[Tensor, Tensor]:
            out, weights = forward(q, k)
            if at == layer:
                seen.append((q.cpu(), k.cpu(), weights.cpu(), scale))
            return out, weights

        with watched(running.model, see), torch.no_grad():
            for row in rows.to(running.device):
                running.model(row[None, :-1], use_cache=False)
        if not seen:
            continue
        q, k, weights = (torch.cat(parts) for parts in list(zip(*seen, strict=True))[:3])
        spec = None if rotation is None else rotation.spec
        frequencies = None if rotation is None else own[running.rotations.index(rotation)]
        for head in range(q.shape[1]):
            key = k[:, head * k.shape[1] // q.shape[1]]
            uses.append(head_use(layer, head, q[:, head], key, weights[:, head], seen[0][3], spec, frequencies))
    if not uses:
        raise ValueError("model must call its attention through transformers' list of functions, and this one did not")
    return tuple(uses)


def head_use(
    layer: int,
    head: int,
    q: Tensor,
    k: Tensor,
    weights: Tensor,
    scale: float,
    spec: RotarySpec | None,
    own: Tensor | None,
) -> HeadUse:
    """From rotated ``q``, ``k`` ``[B, L, D]`` and ``weights`` ``[B, L, L]`` of a causal head.

    ``spec``: its rotation, with the frequencies ``own``; both None where the layer has none.
    """
    length = q.shape[1]
    causal = torch.ones(length, length).tril().bool()
    scores = (q.double() @ k.double().mT) * scale
    content = scores if spec is None or own is None else _content(q, k, spec, own) * scale
    mean = by_distance(scores)
    back = (torch.arange(length)[:, None] - torch.arange(length)).clamp(min=0)
    parts = [_centred(x, causal) for x in (mean[back].expand_as(scores), content, scores)]
    rest = parts[2] - parts[0] - parts[1]
    sizes = [float((x[:, causal] ** 2).mean()) for x in (parts[0], parts[1], rest)]
    position, of_content, both = (size / (sum(sizes) or 1.0) for size in sizes)
    mass, start = by_distance(weights.double()), float(weights[:, FIRST:, 0].mean())
    kind, curves = _kind(mass, start, weights.double()), (tuple(mass.tolist()), tuple(mean.tolist()))
    energies = ((), ()) if spec is None else (_energy(q, spec), _energy(k, spec))
    return HeadUse(layer, head, kind, start, position, of_content, both, *curves, *energies)


def by_distance(x: Tensor) -> Tensor:
    """The mean of ``[B, L, L]`` at each distance: of query ``m`` and key ``m - d``, ``[L]``.

    >>> by_distance(torch.tensor([[[1.0, 0.0], [5.0, 3.0]]])).tolist()
    [2.0, 5.0]
    """
    return torch.stack([x.diagonal(-d, -2, -1).mean() for d in range(x.shape[-1])])


def _content(q: Tensor, k: Tensor, spec: RotarySpec, own: Tensor) -> Tensor:
    """Scores with each pair's rotation replaced by its mean over all distances: what position does not decide."""
    layout = spec.layout.written()
    q, k = (taken_back(x.double(), spec, own) for x in (q, k))
    distances = torch.arange(q.shape[1], dtype=torch.float64)[:, None]
    cos, sin = ((f(distances * own.double())).mean(0) for f in (torch.cos, torch.sin))
    a, b = layout.split(q)
    if spec.reverse:
        sin = -sin
    return layout.within(q, layout.join(a * cos - b * sin, a * sin + b * cos)) @ k.mT


def _centred(x: Tensor, causal: Tensor) -> Tensor:
    """Less the mean of each query's row, which softmax does not see."""
    x = torch.where(causal, x, 0.0)
    return torch.where(causal, x - x.sum(-1, keepdim=True) / causal.sum(-1)[:, None], 0.0)


def _energy(x: Tensor, spec: RotarySpec) -> tuple[float, ...]:
    a, b = spec.layout.written().split(x.double())
    return tuple((a**2 + b**2).mean((0, 1)).tolist())


def _kind(mass: Tensor, start: float, weights: Tensor) -> str:
    half = mass[: max(2, len(mass) // 2)]  # a distance that many queries have
    back = int(half.argmax())
    if half[back] >= MOST:
        return {0: "itself", 1: "previous token"}.get(back, f"{back} tokens back")
    if start >= MOST:
        return "start"
    rows = weights[:, FIRST:]
    entropy = -(rows * rows.clamp(min=1e-30).log()).sum(-1)
    even = torch.tensor([math.log(m + 1) for m in range(FIRST, weights.shape[1])])
    return "everything" if float((entropy / even).mean()) >= EVEN else "mixed"
