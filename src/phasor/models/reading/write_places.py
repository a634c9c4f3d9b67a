"""Where a config says what turns its layers: at the top, in dictionaries of rope parameters, or nowhere yet."""

from dataclasses import dataclass
from typing import Any

from .keys import Keys
from .spec_fields import EXCHANGED, Reader
from .text_row import Facts, Rope

OLD, NEW = "rope_scaling", "rope_parameters"


@dataclass(frozen=True)
class Places:
    """The config ``data`` while it is being changed.

    - ``reader``: knows its row and its keys, as they were found; ``levels``: the rope parameters of each kind of layer.
    - ``kinds``: those that the model has; ``lengthened``: the declared length changes.
    """

    reader: Reader
    data: dict[str, Any]
    levels: dict[str, Keys | None]
    kinds: tuple[str, ...]
    lengthened: bool

    @property
    def facts(self) -> Facts:
        return self.reader.facts

    @property
    def seen(self) -> dict[str, Any]:
        """The config as it was read, with what the config around it sets."""
        return self.reader.keys.places[0][1]

    @property
    def style(self) -> str:
        """The name of the dictionary, where there is none: the old one if the config has keys that went with it."""
        facts, seen = self.facts, self.seen
        if NEW in facts.dicts and self.data.get(NEW):
            return NEW
        tops = [key for kind in facts.kinds or ("",) if (rope := facts.defaults(kind)) for key in rope.top]
        shares = facts.shares if facts.partial is not None else ()
        old = OLD in facts.dicts and any(key in seen for key in (OLD, *tops, *shares, *facts.widths, facts.base_factor))
        return OLD if old else NEW

    def parameters(self, kind: str) -> Rope:
        return self.facts.defaults(kind) or Rope(None)

    def set_top(self, names: tuple[str, ...], value: Any) -> bool:
        """Change those of the keys at the top that are stated; whether there were any."""
        stated = [name for name in names if self.seen.get(name) is not None]
        self.data.update({name: alike(self.seen[name], value) for name in stated})
        return bool(stated)

    def set_inside(self, kind: str, names: tuple[str, ...], value: Any) -> bool:
        """The same in the dictionaries that hold for layers of this kind."""
        spots = [(rope, name) for rope in self.ropes(kind) for name in names if rope.get(name) is not None]
        for rope, name in spots:
            rope[name] = alike(rope[name], value)
        return bool(spots)

    def add(self, kind: str, name: str, value: Any) -> None:
        """State a key in the dictionaries that hold for layers of this kind, or in a new one."""
        for rope in self.ropes_or_new(kind):
            rope[name] = value

    def ropes(self, kind: str) -> list[dict[str, Any]]:
        level = self.levels[kind]
        return [] if level is None else [rope for _, rope in level.places]

    def ropes_or_new(self, kind: str) -> list[dict[str, Any]]:
        """The dictionaries; where there is none, one that says what its absence means is put into the config."""
        if not self.ropes(kind):
            self._create(kind)
        return self.ropes(kind)

    def _create(self, kind: str) -> None:
        style, kinds = self.style, self.facts.kinds
        if not self.facts.dicts:
            raise ValueError(f"the code of {self.reader.model_type} has no key for it")
        if not kinds:
            self.data[style] = self._default(kind, style)
            self._hold(kind, self.data[style])
        elif style == OLD:
            held = [each for each, rope in kinds.items() if rope is not None and OLD in rope.flat]
            if kind not in held:
                raise ValueError(
                    f"rope_scaling holds for {' and '.join(held) or 'no'} layers there, not for {kind} layers; "
                    "rope_parameters per layer type would"
                )
            self.data[OLD] = self._default(kind, style)
            for each in held:
                self._hold(each, self.data[OLD])
        else:
            levels = self.data.get(NEW) or {}
            for each in (kind,) if levels else kinds:
                if each in self.kinds or kinds[each] is not None:
                    levels[each] = self._default(each, style)
                    self._hold(each, levels[each])
            self.data[NEW] = levels

    def _hold(self, kind: str, rope: dict[str, Any]) -> None:
        self.levels[kind] = Keys([("", rope)], {})

    def _default(self, kind: str, style: str) -> dict[str, Any]:
        """What the class takes where the config has no dictionary."""
        parameters, shared = self.parameters(kind), (*self.facts.shares, *self.facts.widths)
        rope = {"rope_type": "default", **parameters.more}
        if any(self.seen.get(key) is not None for key in shared):
            rope.pop("partial_rotary_factor", None)
        stated = any(self.seen.get(key) is not None for key in parameters.top)
        if style == NEW and parameters.base is not None and not stated:
            rope[EXCHANGED] = parameters.base
        return rope


def alike(stated: Any, value: Any) -> Any:
    """``value``, without a fraction where a whole number was ``stated``: some config classes take nothing else.

    >>> alike(10_000, 500_000.0), alike(1.0, 4.0)
    (500000, 4.0)
    """
    whole = isinstance(stated, int) and isinstance(value, float) and value.is_integer()
    return int(value) if whole and not isinstance(stated, bool) else value
