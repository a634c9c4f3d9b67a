"""One part of a config while it is being read: its keys, its sizes and its base."""

from dataclasses import dataclass

from .heads import LARGEST
from .keys import Keys, agreed, is_dict, is_size

PLAIN_TYPES = ("default", "axial", "mrope")


@dataclass(frozen=True)
class Part:
    """The config of one tower; ``config`` is the class whose defaults hold where it says nothing."""

    model_type: str
    config: str
    keys: Keys
    path: str
    dicts: tuple[str, ...] = ("rope_parameters", "rope_scaling")

    def default(self, key: str, meaning: str) -> None:
        """Record that the config leaves this to its class."""
        self.keys.sources[f"{self.path}{key}"] = f"not in config: {self.config}'s default, {meaning}"

    def size(self, names: tuple[str, ...], default: int, at_least: int = 1) -> int:
        """A number of heads, layers, channels or tokens under its names, else the class's default."""
        value = self.keys.size(*names) if at_least else self.keys.whole(*names, at_least=0)
        if value is None:
            self.default(names[0], str(default))
        return default if value is None else value

    def sizes(self, names: tuple[tuple[str, ...], ...], defaults: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(self.size(n, d) for n, d in zip(names, defaults, strict=True))

    def head_dim(self, name: str, hidden: int, heads: int) -> int:
        """Channels per head where the code divides ``hidden`` by ``heads``; a stated ``head_dim`` must agree."""
        if hidden % heads:
            raise ValueError(f"{self.path}{name} must be a multiple of the number of heads, {heads}, got {hidden}")
        stated = self.keys.found("head_dim")
        width: int = agreed([(f"{self.path}{name} / number of heads", hidden // heads), *stated])
        is_size(f"{self.path}{name} / number of heads", width, LARGEST)
        self.keys.explain(f"head_dim {width}", "head_dim")
        return width

    def base(self, default: float, names: tuple[str, ...] = ("rope_theta",)) -> float:
        """The base, in the rope parameters or under one of ``names`` at the top; no names: the code has it."""
        found = self.keys.found(*names)
        for rope in self._ropes():
            found += rope.found("rope_theta")
            for path, word in rope.found("rope_type", "type"):
                if word not in PLAIN_TYPES:
                    raise ValueError(
                        f"{path} is {word!r}, but the code of {self.model_type} has no scaling; known: "
                        f"{', '.join(PLAIN_TYPES)}. Remove it, or describe the encoding with RotarySpec yourself"
                    )
                self.keys.sources[path] = "no scaling"
            rope.found("partial_rotary_factor")  # refused or read by `share`
            rope.refuse_unused(self.model_type)
        for path, value in found:
            if isinstance(value, bool) or not isinstance(value, int | float) or not 1 < value < float("inf"):
                raise ValueError(f"{path} must be a finite number above 1 (the base of the frequencies), got {value!r}")
            self.keys.sources[path] = f"base {value:.10g}"
        if not found:
            self.default((names or ("rope_theta",))[0], f"base {default:.10g}")
        return float(agreed(found) if found else default)

    def share(self, default: float, most: float = 1.0) -> float:
        """``partial_rotary_factor``, in the rope parameters or at the top."""
        name = "partial_rotary_factor"
        found = [*self.keys.found(name), *(pair for rope in self._ropes() for pair in rope.found(name))]
        for path, value in found:
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= most:
                raise ValueError(f"{path} must be a share of the head above 0 and at most {most:g}, got {value!r}")
            self.keys.sources[path] = f"{value:g} of the channels of a head turn"
        if not found:
            self.default(name, f"{default:g}")
        return float(agreed(found) if found else default)

    def whole_head(self) -> None:
        """Refuse a share of the head where the code turns all of it."""
        if (share := self.share(1.0)) != 1.0:
            raise ValueError(
                f"{self.path}partial_rotary_factor must be 1 or left out, because the code of {self.model_type} does "
                f"not read it, got {share}"
            )
        self.keys.sources.pop(f"{self.path}partial_rotary_factor", None)

    def _ropes(self) -> list[Keys]:
        places = self.keys.found(*self.dicts)
        for path, data in places:
            is_dict(path, data)
        return [Keys([(f"{path}.", data)], self.keys.sources) for path, data in places]
