"""`study`: which pairs a model uses, in which layers and heads, and what its heads look at."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...support.checks import whole
from ...support.processes import process_group
from ..doctor.loading import load
from ..doctor.text.tokens import tokens_of
from ..fit.tables import GivenTables, read_folder, windows_of
from .attention import Forward, taken_back, watched
from .cells import Place, PlaceCost, costs
from .heads import HeadUse, head_use
from .pairs import PairUse, pair_use

BUDGET = 120
WINDOWS = 24  # for losses
OBSERVED = 8  # windows for what the heads do
APART = 1e-3  # nats: two ways to stop everything
SHOWN = 32  # heads on a terminal


@dataclass(frozen=True)
class Study:
    """``pairs``: over the whole model; ``heads``: one by one; ``cells``: the costs in layers, heads and pairs."""

    pairs: PairUse
    heads: tuple[HeadUse, ...]
    cells: tuple[PlaceCost, ...]

    def cost_of(self, layer: int, head: int, pair: int) -> PlaceCost:
        """The smallest cell that was measured and holds this pair of this head."""

        def holds(cell: PlaceCost) -> bool:
            place = cell.place
            return place.layer == layer and place.head in (None, head) and place.first <= pair < place.last

        return min(filter(holds, self.cells), key=lambda c: (c.place.head is None, c.place.last - c.place.first))

    def __str__(self) -> str:
        heading = f"{'layer':>5}{'head':>5}  {'looks at':<16}{'stopped':>9}   scores by position, content, both"
        dearest = sorted(self.heads, key=self._worth, reverse=True)[:SHOWN]
        lines = [str(self.pairs), "", heading]
        for use in sorted(dearest, key=lambda use: (use.layer, use.head)):
            cell = self._of_head(use)
            cost = f"{cell.stopped:.4f}" if cell else "not tried"
            shares = "".join(f"{share:>7.0%}" for share in (use.position, use.content, use.both))
            lines.append(f"{use.layer:>5}{use.head:>5}  {use.kind:<16}{cost:>9}{shares}")
        if len(dearest) < len(self.heads):
            lines.append(f"... the {SHOWN} of {len(self.heads)} heads that cost most; all are in --html and --json")
        lines.append(f"{len(self.cells)} places measured, each stopped and slowed")
        return "\n".join(lines)

    def _of_head(self, use: HeadUse) -> PlaceCost | None:
        """The cell of the whole head, where it was measured."""
        place = Place(use.layer, use.head, 0, len(self.pairs.stopped))
        return next((cell for cell in self.cells if cell.place == place), None)

    def _worth(self, use: HeadUse) -> float:
        cell = self._of_head(use)
        return cell.worth if cell else -1.0

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        cells = [{**c.place._asdict(), "stopped": c.stopped, "slowed": c.slowed} for c in self.cells]
        return {"pairs": self.pairs.to_dict(), "heads": [asdict(use) for use in self.heads], "cells": cells}


def study(
    model: nn.Module,
    tokens: Tensor,
    *,
    length: int | None = None,
    budget: int = BUDGET,
    tell: Callable[[int, int], None] = lambda done, budget: None,
) -> Study:
    """Which pairs of its rotation a causal transformers model uses, on a text of its kind, ``tokens`` ``[n]``.

    Three measurements on windows of ``length`` tokens (by default the declared length):

    1. every pair is stopped, then slowed, in the whole model (`PairUse`);
    2. every head is described by its attention weights and scores (`HeadUse`);
    3. rotated q and k are rotated back in one layer, then one head, then fewer and fewer of its pairs, the dearest
       first, ``budget`` places in all (`PlaceCost`). ``tell`` is called with the places done and the budget.

    The model stays as it is. Under torchrun the processes share the windows, and all return the same.
    Raises ``ValueError`` for a text that is too short, a model whose rotation cannot be given (it must have one for all
    layers, formed in one module with ``inv_freq``), and one whose q and k, rotated back, do not give the loss of the
    model without rotation.

    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    >>> model = LlamaForCausalLM(LlamaConfig(**sizes, vocab_size=50, max_position_embeddings=16)).eval()
    >>> found = study(model, torch.randint(50, (100,)), budget=1)
    >>> [round(wave) for wave in found.pairs.wavelengths], len(found.heads), found.cells[0].place.last
    ([6, 63, 628, 6283], 1, 4)
    """
    whole("budget", budget)
    with process_group() as group:
        tables = GivenTables(model, group)
        length = length or tables.rotary.max_position or 512
        rows = windows_of("tokens", tokens, length, WINDOWS)
        own = tables.spec.inv_freq(length)
        heads = _heads(tables, rows[:OBSERVED], own)
        _check_route(tables, rows[:OBSERVED], own)
        pairs = pair_use(tables, rows)

        def cost(place: Place, speed: float) -> float:
            return _without(tables, rows, own * (1 - speed), place) - pairs.loss

        layers, count = 1 + max(use.layer for use in heads), 1 + max(use.head for use in heads)
        cells = costs(cost, layers, count, len(own), budget, tell)
    return Study(pairs, tuple(heads), tuple(cells))


def study_folder(folder: str | Path, text: str | Path, **options: Any) -> Study:
    """`study` of a folder with a transformers model and its tokenizer, on a file of text."""
    folder = Path(folder)
    tokens = tokens_of(Path(text), folder, read_folder(folder))
    return study(load(folder), tokens, **options)


def _heads(tables: GivenTables, rows: Tensor, own: Tensor) -> list[HeadUse]:
    seen: dict[int, tuple[list[Tensor], list[Tensor], list[Tensor], float]] = {}

    def see(layer: int, q: Tensor, k: Tensor, scale: float, forward: Forward) -> tuple[Tensor, Tensor]:
        out, weights = forward(q, k)
        qs, ks, all_weights, _ = seen.setdefault(layer, ([], [], [], scale))
        for kept, new in ((qs, q), (ks, k), (all_weights, weights)):
            kept.append(new)
        return out, weights

    with watched(tables.model, see), torch.no_grad():  # every process sees all: these rows are few
        for row in rows:
            tables.model(row[None, :-1], use_cache=False)
    if not seen:
        raise ValueError("model must call its attention through transformers' list of functions, and this one did not")
    uses = []
    for layer, (qs, ks, all_weights, scale) in sorted(seen.items()):
        q, k, weights = torch.cat(qs), torch.cat(ks), torch.cat(all_weights)
        here = own if _rotates(tables, layer) else torch.zeros_like(own)
        for head in range(q.shape[1]):
            key = k[:, head * k.shape[1] // q.shape[1]]
            uses.append(head_use(layer, head, q[:, head], key, weights[:, head], tables.spec, here, scale))
    return uses


def _without(tables: GivenTables, rows: Tensor, frequencies: Tensor, place: Place | None) -> float:
    """The loss with q and k rotated back by ``frequencies`` at a place, or everywhere."""

    def see(layer: int, q: Tensor, k: Tensor, scale: float, forward: Forward) -> tuple[Tensor, Tensor]:
        if not _rotates(tables, layer) or (place is not None and layer != place.layer):
            return forward(q, k)
        some = torch.zeros_like(frequencies)
        chosen = slice(None) if place is None else slice(place.first, place.last)
        some[chosen] = frequencies[chosen]
        changed, weights = forward(taken_back(q, tables.spec, some), taken_back(k, tables.spec, some))
        if place is None or place.head is None:
            return changed, weights
        out, weights = forward(q, k)  # other heads may share the keys
        out = out.clone()
        out[:, :, place.head] = changed[:, :, place.head]
        return out, weights

    with watched(tables.model, see):
        return tables.loss(rows)


def _rotates(tables: GivenTables, layer: int) -> bool:
    """Some models leave a layer without positions (NoPE)."""
    return tables.rotary.layers[layer] is not None


def _check_route(tables: GivenTables, rows: Tensor, own: Tensor) -> None:
    """Stopping everything after the rotation, and before it, must be the same."""
    with tables.given(torch.zeros_like(own), tables.spec.attention_factor(rows.shape[1] - 1)):
        before = tables.loss(rows)
    after = _without(tables, rows, own, None)
    if not abs(before - after) <= APART:
        raise ValueError(
            f"model must rotate q and k as its config says: rotated back they give a loss of {after:.4f}, and a model "
            f"that does not rotate {before:.4f}; phasor doctor says where it differs"
        )
