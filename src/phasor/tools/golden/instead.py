"""Golden vectors where nothing rotates: what an observation shows is added to logits by distance, and to tokens."""

from typing import Any

import torch
from torch import Tensor, nn

from ...eye import Observation, observe
from ...eye.added import Added
from ...eye.bias import LogitBias
from ...models.configs import ModelRotary, NoRotary
from ..inspect.without_rotation import read_without_rotation
from .comparison import Comparison
from .layer_kinds import Kind
from .tensors import Golden
from .vectors import Tolerance

CLOSE = Tolerance(absolute=1e-6, relative=1e-5)
DISTANCES = 64  # of ALiBi by a config
SMALL = "layers are those of a small model of the config, with one of every kind"
LOGITS = "less that at distance 0, [heads, D], where a key stands"
# What is often done instead: a cause, a sentence, and the values that it gives.
MISTAKES = (
    ("direction", "it has the other sign", lambda x: -x),
    ("slopes", "the heads are in reverse order", lambda x: x.flip(0)),
    ("positions", "each value is that of the next position", lambda x: x.roll(-1, -1)),
    ("positions", "each value is that of the position before", lambda x: x.roll(1, -1)),
    ("positions", "each vector is that of the next position", lambda x: x.roll(-1, 0)),
    ("positions", "each vector is that of the position before", lambda x: x.roll(1, 0)),
)


def goldens_instead(source: Any, refused: ValueError) -> tuple[ModelRotary, list[Kind], dict[str, Golden]]:
    """The kinds of layers of a model or an `Observation` in which nothing turns, and their tensors; else ``refused``.

    Of a config a small model is observed, with ALiBi's slopes of the real one; what it has learned is random, and its
    tables are among the tensors.
    """
    slopes: tuple[float, ...] = ()
    given = isinstance(source, Observation | nn.Module)
    if given:
        seen = source if isinstance(source, Observation) else observe(source)
    elif isinstance(refused, NoRotary):
        without = read_without_rotation(source, refused)
        seen, slopes = without.seen, without.slopes
    else:
        raise refused
    biases: list[tuple[LogitBias, list[int]]] = []
    layers = {site.where: site.layers[1] for site in seen.sites}
    for where, bias in seen.instead.biases:
        bias = _sloped(slopes) if slopes and bias.slopes else bias
        same = next((at for known, at in biases if torch.equal(known.values, bias.values)), None)
        same.append(layers[where]) if same is not None else biases.append((bias, [layers[where]]))
    kinds, goldens = list[Kind](), dict[str, Golden]()
    found = [("bias", at, _of_bias(bias), bias.table) for bias, at in biases]
    found += [("tokens", [0], _of_added(added), added.table) for added in seen.instead.added]
    for word, at, tensors, table in found:
        name = f"{word}_{len(kinds) + 1}" if any(kind.layer_type == word for kind in kinds) else word
        kinds.append(Kind(name=name, layers=tuple(dict.fromkeys(at)), layer_type=word, spec=None))
        goldens |= {f"{name}.{short}": golden for short, golden in tensors.items()}
        if table is not None and not given:
            goldens[f"{name}.table"] = Golden(table.detach().float(), "the random table of a small model: put it in")
    if not kinds:
        raise refused
    count = max(layers.values(), default=0) + 1
    model_type = getattr(getattr(seen.model, "config", None), "model_type", "") or seen.subject
    heads = max((len(bias.values) for bias, _ in biases), default=1)
    says = dict.fromkeys(
        [*(bias.describe() for bias, _ in biases), *(added.describe() for added in seen.instead.added)]
    )
    model = ModelRotary(
        model_type=model_type, layers=(None,) * count, layer_types=("attention",) * count, num_heads=heads,
        notes=(*says, *([] if given else [SMALL])),
    )  # fmt: skip
    return model, kinds, goldens


def _sloped(slopes: tuple[float, ...]) -> LogitBias:
    """ALiBi's bias by the slopes of all heads, causal."""
    at, steep = torch.arange(DISTANCES), torch.tensor(slopes, dtype=torch.float64)[:, None, None]
    distance = (at[:, None] - at).expand(len(slopes), -1, -1)
    return LogitBias(-steep * distance, distance >= 0)


def _of_bias(bias: LogitBias) -> dict[str, Golden]:
    keys = bias.values.shape[-1]
    found = {"positions": _positions(keys)}
    if bias.by_distance is None:
        words = "what is added to the logits, less that of the query's own key, [heads, queries, keys]"
        assert bias.relative is not None
        return found | {"logits": Golden(bias.relative.float(), words, CLOSE)}
    table = bias.by_distance.nan_to_num().float()
    found["before"] = Golden(table[:, keys - 1 :], f"added to the logits, {LOGITS} 0, 1, … before its query", CLOSE)
    if not bias.causal:
        found["behind"] = Golden(table[:, :keys].flip(1), f"added to the logits, {LOGITS} 0, 1, … behind it", CLOSE)
    return found


def _of_added(added: Added) -> dict[str, Golden]:
    found = {"positions": _positions(added.values.shape[1])}
    found["vectors"] = Golden(added.values[0].float(), "added to each token, [S, channels]", CLOSE)
    if added.indices is not None:
        found["rows"] = Golden(added.indices[0], "the row of the learned table that each token gets, [S]")
    return found


def _positions(count: int) -> Golden:
    return Golden(torch.arange(count), "the position of each token, [S]")


def cause_instead(off: list[Comparison]) -> tuple[str, str, list[Comparison]] | None:
    """A cause, a sentence, and the tensors that it explains; None where no known mistake gives them."""
    for cause, text, change in MISTAKES:
        for tensors in (off, off[:1])[: len(off)]:
            if all(_gives(change, c) for c in tensors):
                return cause, text, tensors
    return None


def _gives(change: Any, c: Comparison) -> bool:
    """Whether it gives what was got, but for what is moved in from the other end."""
    other: Tensor = change(c.expected)
    fits = (c.got - other).abs() <= CLOSE.absolute + 10 * CLOSE.relative * other.abs()
    moved = max(c.expected.shape[0], c.expected.shape[-1]) if c.expected.ndim else 0
    return int((~fits).sum()) <= moved and 2 * int(fits.sum()) > fits.numel() and not torch.equal(other, c.expected)
