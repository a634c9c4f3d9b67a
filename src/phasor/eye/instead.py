"""What tells a model where tokens stand when nothing turns: values read off the tape, and one sentence."""

import re
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from .added import Added, added_before
from .attention import attentions
from .bias import LogitBias, biases_of
from .tape import Tape


@dataclass(frozen=True, eq=False)
class Instead:
    """Positions without a rotation: ``biases`` on the logits, by module; what is ``added`` to the tokens.

    ``otherwise``: what is said where neither was seen; empty where nothing can be said.
    """

    biases: tuple[tuple[str, LogitBias], ...] = ()
    added: tuple[Added, ...] = ()
    otherwise: str = ""

    def describe(self) -> str:
        said = [bias.describe() for _, bias in self.biases] + [added.describe() for added in self.added]
        return "; ".join(dict.fromkeys(said)) or self.otherwise

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data: slopes of each head, shapes of learned tables, the row that the first token gets."""
        biases = [(where, list(b.slopes), b.causal, _shape(b.table)) for where, b in self.biases]
        added = [(a.module, a.first, _shape(a.table)) for a in self.added]
        return {
            "says": self.describe(),
            "biases": [dict(zip(("where", "slopes", "causal", "table"), bias, strict=True)) for bias in biases],
            "added": [dict(zip(("where", "first_row", "table"), one, strict=True)) for one in added],
        }


def _shape(table: Tensor | None) -> list[int] | None:
    return None if table is None else list(table.shape)


def instead(tape: Tape, standing: bool) -> Instead:
    """``standing``: whether all q and k were seen to stand still."""
    found = attentions(tape)
    if not found:
        return Instead()
    biases = tuple((one.module, bias) for one in found for bias in biases_of(tape, one))
    first = {re.sub(r"\.\d+\..*", "", one.module): one for one in reversed(found)}  # of each list of layers
    added = tuple(one for a in reversed(first.values()) for one in added_before(tape, a) if one.varies)
    if biases or added or not standing:
        return Instead(biases, added)
    if all(a.how == "a product" for a in found):
        return Instead(otherwise="products of q and k without a softmax (linear attention), and no position in them")
    says = "no position is seen in q, k, the logits or the embeddings: at most a mask orders the tokens"
    return Instead(otherwise=says)
