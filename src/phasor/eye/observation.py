"""What was seen on a model: every attention, the encoding of its layers, and what was not looked at."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from ..rotary.model_rotary import ModelRotary
from ..support.findings import span
from .call import Call
from .instead import Instead
from .sites import Site


@dataclass(frozen=True)
class Fact:
    """One thing that was looked at: its value in words, and how it is known (``"observed"``), or what was missing."""

    name: str
    value: str
    how: str = "observed"

    def __str__(self) -> str:
        return f"{self.name}: {self.value}" + ("" if self.how == "observed" else f" ({self.how})")


@dataclass(frozen=True, eq=False)
class Observation:
    """What `observe` saw.

    - ``subject``: the class of the model; ``model``: the model itself.
    - ``sites``: its attentions in the order in which they run (`Site`), with the operator on q, k, v and the output.
    - ``parts``: the encoding of each list of layers that rotates, by its path in the model; ``rotary``: the longest,
      and none that stands inside another attention (an indexer) where there is another.
    - ``facts``: what was looked at; ``missing``: sentences about what was not shown; ``call``: the first call.
    - ``nothing_turns``: whether attentions were seen, and none of them rotates; ``instead``: what was
      seen in place of a rotation, with its values.

    `rotary` is None where nothing rotates, or where what rotates could not be described: ``missing`` says which.

    >>> print(Observation("Toy", nn.Identity(), (), {}, missing=("no attention was found",)))
    Toy: 0 of 0 attentions rotate: observed
    not shown: no attention was found
    """

    subject: str
    model: nn.Module = field(repr=False)
    sites: tuple[Site, ...] = field(repr=False)
    parts: Mapping[str, ModelRotary]
    facts: tuple[Fact, ...] = ()
    missing: tuple[str, ...] = ()
    nothing_turns: bool = False
    call: Call | None = field(default=None, repr=False)
    instead: Instead = field(default_factory=Instead, repr=False)

    @property
    def rotary(self) -> ModelRotary | None:
        """The encoding of the list of layers in which most rotate."""

        def rank(path: str) -> tuple[bool, int]:
            return "*" not in path, sum(spec is not None for spec in self.parts[path].layers)

        return self.parts[max(self.parts, key=rank)] if self.parts else None

    @property
    def turning(self) -> tuple[Site, ...]:
        """The attentions in which anything rotates."""
        return tuple(site for site in self.sites if site.turning)

    def __str__(self) -> str:
        lines = [f"{self.subject}: {len(self.turning)} of {len(self.sites)} attentions rotate: observed"]
        for path, part in self.parts.items():
            lines += [f"{path or 'model'}: {line}" if i == 0 else f"  {line}" for i, line in enumerate(_lines(part))]
        lines += [str(fact) for fact in self.facts]
        return "\n".join([*lines, *(f"not shown: {sentence}" for sentence in self.missing)])

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data; operators are left out."""
        return {
            "subject": self.subject,
            "parts": {path: part.to_dict() for path, part in self.parts.items()},
            "sites": [{"where": s.where, "rotates": list(s.turning), "how": s.attention.how} for s in self.sites],
            "instead": self.instead.to_dict(),
            "facts": [{"name": f.name, "value": f.value, "how": f.how} for f in self.facts],
            "missing": list(self.missing),
        }


def _lines(part: ModelRotary) -> list[str]:
    return str(part).splitlines()


def places(sites: list[Site]) -> str:
    """Their modules in one word: ``layers.0-3.self_attn``."""
    return span(list(dict.fromkeys(site.where for site in sites)))
