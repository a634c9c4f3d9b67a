"""What is added to each token by its position: which position that is, and which one it must be."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ...encodings.sinusoidal import sinusoids
from ...eye.added import Added
from ...models.without_rotation import COUNTS_ALL, READS_MASK
from .deviation import Deviation, places
from .told_of_calls import RESTART
from .ways import Piece

CLOSE = 2e-2  # of the length of a row: what half precision leaves
LAYOUTS = (("interleaved", False), ("sin_cos", False), ("sin_cos", True), ("cos_sin", False))
LENGTHS = ("max_position_embeddings", "n_positions", "max_target_positions")
FIRST = 8  # positions that a first one is sought among


@dataclass(frozen=True, eq=False)
class Table:
    """The vector of each position as a plain call adds it: ``rows [positions, channels]``.

    ``first``: the row of a learned table that the first token gets; ``counts_text``: padding has no position;
    ``reach``: how many positions there are in a table.
    """

    rows: Tensor
    first: int | None
    counts_text: bool
    reach: int | None = None

    def positions(self, added: Added) -> Tensor:
        """``[rows, tokens]``: at which position each token stands by what is added to it; -1 where at none."""
        if self.first is not None and added.indices is not None:
            return added.indices - self.first
        values = added.values.double()
        apart = torch.cdist(values.flatten(0, 1), self.rows)
        found = torch.where(apart.amin(-1) <= CLOSE * values.flatten(0, 1).norm(dim=-1), apart.argmin(-1), -1)
        return torch.unflatten(found, 0, values.shape[:2])


def table_of(added: Added, model: nn.Module, config: Any) -> Table:
    module = _module(added, model)
    padding = getattr(module, "padding_idx", None) is not None and added.first is not None
    kind = getattr(config, "model_type", "")
    counts_text = (padding and kind not in COUNTS_ALL) or kind in READS_MASK
    rows = added.values[0].double()
    if (formula := _formula(added)) is not None:
        rows = formula(torch.arange(4 * len(rows)))
    reach = None if added.table is None else len(added.table) - (added.first or 0)
    return Table(rows, added.first, counts_text, reach)


def first_row(added: Added, model: nn.Module, config: Any) -> int | None:
    """Which row of its table the first token must get: tables are longer than the text by what comes before it.

    None where nothing says it.
    """
    if added.table is None or added.sinusoidal:
        return None
    if (declared := _declared(config)) is None:
        return None
    if len(added.table) > declared:
        return len(added.table) - declared
    padding = getattr(_module(added, model), "padding_idx", None)
    return 0 if padding is None else int(padding) + 1


def _declared(config: Any) -> int | None:
    return next((n for name in LENGTHS if isinstance(n := getattr(config, name, None), int)), None)


def lost(added: Added, config: Any) -> str:
    """Why what is added out of a table of positions says nothing of them; empty where it does, or is out of another."""
    declared = _declared(config)
    if added.varies or added.table is None or declared is None or len(added.table) < declared:
        return ""
    return "all tokens get the same vector" if bool(added.values.any()) else "what is added out of its table is zero"


def reordered(added: Added) -> bool:
    """Whether what is added are rows of its table, with their channels in another order."""
    if added.table is None or added.indices is not None:
        return False
    return replace(added, table=added.table.sort(-1).values, values=added.values.sort(-1).values).indices is not None


def in_layout(added: Added) -> str:
    """How sines and cosines lie in what is added, and the first position; empty where they are no known ones."""
    found = _sought(added)
    if found is None:
        return ""
    layout, endpoint, first = found
    return f"sinusoidal, {layout}{', both ends' if endpoint else ''}, from position {first}"


def _formula(added: Added) -> Any:
    found = None if added.first is not None else _sought(added)
    if found is None:
        return None
    layout, endpoint, first = found
    return lambda positions: _sines(positions + first, added.values.shape[-1], layout, endpoint)


def _sines(positions: Tensor, width: int, layout: Any, endpoint: bool) -> Tensor:
    return sinusoids(positions, width, layout=layout, endpoint=endpoint, dtype=torch.float64)


def _sought(added: Added) -> tuple[str, bool, int] | None:
    values = added.values[0].double()
    tokens, width = values.shape
    if not added.sinusoidal or width % 2 or width < 4:
        return None
    for layout, endpoint in LAYOUTS:
        table = _sines(torch.arange(tokens + FIRST), width, layout, endpoint)
        for first in range(FIRST):
            if float((table[first : first + tokens] - values).abs().max()) < 1e-3:
                return layout, endpoint, first
    return None


def _module(added: Added, model: nn.Module) -> nn.Module | None:
    """The embedding whose weight the table is."""
    if added.table is None:
        return None
    weights = ((m, w) for m in model.modules() if isinstance(w := getattr(m, "weight", None), Tensor))
    like = ((m, w) for m, w in weights if w.shape == added.table.shape)
    return next((m for m, w in like if torch.equal(w.detach().cpu(), added.table.cpu())), None)


def deviation_of_positions(table: Table, added: Added, piece: Piece) -> Deviation | str:
    """How the positions of the tokens differ from those that are meant, or why that is not known; empty if not."""
    tokens, live = piece.tokens.shape[1], piece.live.cpu()
    if added.values.shape[1] != tokens:
        return "what is added is not a row for each token"
    if abs(added.factor - 1) > CLOSE:
        rows, which = (tuple(range(n)) for n in piece.tokens.shape)
        return Deviation("factor of the positions", f"they are added {added.factor:.4g} times", 0, None, which, rows)
    at = table.positions(added).expand(len(piece.tokens), -1)
    beyond = (at < 0) & live & (piece.positions.cpu() >= len(table.rows)) & (added.indices is None)
    if bool((beyond | ~live).all()):
        return "nothing says what must be added there"
    live = live & ~beyond
    by = (at - piece.positions.cpu()).masked_fill(~live, 0)
    if piece.mask is not None and not piece.given:
        return _padded(table, at, by, live)
    if not bool(by.any()):
        return ""
    wrong = by != 0
    rows, which = places(wrong, 0), places(wrong, 1)
    row, token = rows[0], int(wrong[rows[0]].nonzero()[0])
    if table.first is not None and piece.given and bool((by == -table.first)[live].all()):
        return f"positions that are given are rows of the table, of which the model's own count begins at {table.first}"
    if bool((by == -piece.positions.cpu()[:, :1])[live].all()):
        return Deviation(RESTART, "its calls count from 0 again", token, None, which, rows)
    says = "what is added is the vector of no position"
    if at[row, token] >= 0:
        says = f"a token at position {int(piece.positions[row, token])} gets the vector of {int(at[row, token])}"
    return Deviation("positions", says, token, None, which, rows)


def _padded(table: Table, at: Tensor, by: Tensor, live: Tensor) -> Deviation | str:
    """Where no positions are given, padding may have positions of its own, but not in every model."""
    wrong = (at != live.cumsum(1) - 1) & live
    if not bool(wrong.any()):
        return ""
    if not bool(by.any()) and not table.counts_text:
        return "padding has positions as text has: give position_ids that count the text"
    rows, which = places(wrong, 0), places(wrong, 1)
    if not bool(by.any()):
        return Deviation("padding counted", "padding takes positions of the text", which[0], None, which, rows)
    says = "tokens are not at the positions of the text, nor at those of the row"
    return Deviation("positions", says, which[0], None, which, rows)
