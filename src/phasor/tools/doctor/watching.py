"""A model as the eye sees it in one call: every attention, with the operators on its q and k."""

from dataclasses import dataclass
from typing import Any

from torch import nn

from ...eye import Observation, observe
from ...eye.call import Call, call_of
from ...eye.inputs import made_up
from ...eye.sites import Site, sites_of
from ...support.errors import first_line


@dataclass(frozen=True)
class Watched:
    """``sites``: the attentions of the ``call``; ``seen``: the whole observation, where one was made."""

    call: Call
    sites: tuple[Site, ...]
    seen: Observation | None = None

    @property
    def turning(self) -> tuple[Site, ...]:
        return tuple(site for site in self.sites if site.turning)

    @property
    def attends(self) -> bool:
        """Whether there is any attention, with a softmax or without."""
        return bool(self.sites) or (self.seen is not None and bool(self.seen.facts))

    @property
    def instead(self) -> str:
        """What the model has where nothing turns, in one line."""
        facts = {fact.name: fact.value for fact in self.seen.facts} if self.seen is not None else {}
        missing = self.seen.missing if self.seen is not None else ()
        return facts.get("instead of a rotation") or "; ".join(missing) or "no attention was found"


def watch(model: nn.Module, inputs: Any = None, *, whole: bool) -> Watched | str:
    """What is seen, or why nothing is. ``whole``: with all calls of `phasor.observe`, which name what turns.

    ``inputs`` as in `phasor.observe`.
    """
    try:
        if whole:
            return watched(observe(model, inputs))
        call = made_up(model) if inputs is None else call_of(model, inputs)
        return Watched(call, tuple(sites_of(call.tape())))
    except Exception as error:  # a model's own code raises what it likes, and so do tensors that are not plain ones
        return f"{type(error).__name__}: {first_line(error)}" if not isinstance(error, ValueError) else str(error)


def watched(seen: Observation) -> Watched:
    assert seen.call is not None
    return Watched(seen.call, seen.sites, seen)
