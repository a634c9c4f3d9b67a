"""ModelRotary: what a config says about the rotary encoding of every layer."""

import dataclasses
from dataclasses import dataclass, field
from typing import Any, get_args

from ..support.checks import number, one_of, whole
from ..support.number_text import counted, ranges
from ..support.schemes import from_data, to_data
from .spec import Angles, RotarySpec
from .temperature import TEMPERATURES, Temperature

MOST_LINES = 10  # of a model in print
_LISTS = dict.fromkeys(("layer_types", "parts", "targets", "notes"), str)


@dataclass(frozen=True, kw_only=True)
class ModelRotary:
    """The rotary encoding of a whole model, layer by layer, as `phasor.read_config` understood it.

    - ``layers``: one spec per layer; ``None`` where nothing is rotated (NoPE attention, or no attention at all).
      Layers with equal specs hold one and the same object.
    - ``layer_types``: one word per layer (``"full_attention"``, ``"sliding_attention"``, ``"conv"``, …);
      ``"attention"`` where the config makes no distinction.
    - ``part``: the part of a composite config that was read (``""``: the config itself); ``parts``: all there are.
    - ``sources``: config key -> what became of it, for people; also what was *not* in the config and who decided it.
      It has no part in ``==`` and ``hash``: two configs that spell one encoding differently are equal.
    - ``max_position``: the length the config declares; ``num_heads``, ``num_kv_heads``: query and key heads.
    - ``softmax_factor``: a factor the model puts on the softmax scale (DeepSeek's squared ``mscale``), else 1.
    - ``temperatures``: per layer, the factor on its queries that grows with the position (`phasor.temperature`), or
      ``None``; empty where no layer has one.
    - ``targets``: what is rotated: ``"q"``, ``"k"``, ``"v"``, or ``"output"``, which is rotated back after attention.
    - ``prefix_tokens``, ``suffix_tokens``: tokens before and after the others that pass unrotated (class and register
      tokens; `Rotation.padded`).
    - ``heads``: only the first so many heads rotate; ``None``: all.
    - ``own_angles``: how the model's own code forms its angles (`RotarySpec`): in float32, RoFormer in float64.
    - ``notes``: what the model does beyond the rotation, in words.
    - ``windows``: per layer, the number of positions that attention sees (a sliding window, a chunk), ``None`` for all;
      empty where nothing is known. It has no part in ``==``: the rotation is the same.
    - ``grid``: of a model of pictures, what each coordinate counts (``"frame"``, ``"row"``, ``"column"``, …) -> how far
      it reaches in the size that is declared, None where none is. It has no part in ``==`` either.

    Raises ``ValueError`` for fields of another form, and for ``layer_types`` of another length than ``layers``.

    >>> spec = RotarySpec(head_dim=8)
    >>> model = ModelRotary(model_type="toy", layers=(spec, None, spec), layer_types=("attention",) * 3, num_heads=2)
    >>> model.distinct == {spec: (0, 2)}
    True
    """

    model_type: str
    layers: tuple[RotarySpec | None, ...]
    layer_types: tuple[str, ...]
    num_heads: int
    num_kv_heads: int = None  # type: ignore[assignment]  # replaced by num_heads
    max_position: int | None = None
    part: str = ""
    parts: tuple[str, ...] = ()
    sources: dict[str, str] = field(default_factory=dict, hash=False, compare=False)
    softmax_factor: float = 1.0
    temperatures: tuple[Temperature | None, ...] = ()
    targets: tuple[str, ...] = ("q", "k")
    prefix_tokens: int = 0
    suffix_tokens: int = 0
    heads: int | None = None
    own_angles: Angles = "float32"
    notes: tuple[str, ...] = ()
    windows: tuple[int | None, ...] = field(default=(), hash=False, compare=False)
    grid: dict[str, float | None] = field(default_factory=dict, hash=False, compare=False)

    def __post_init__(self) -> None:
        if self.num_kv_heads is None:
            object.__setattr__(self, "num_kv_heads", self.num_heads)
        for name, kind in (*_LISTS.items(), ("layers", RotarySpec), ("temperatures", Temperature), ("windows", int)):
            object.__setattr__(self, name, _tuple(name, getattr(self, name), kind))
        for name in ("model_type", "part"):
            if not isinstance(getattr(self, name), str):
                raise ValueError(f"{name} must be a word, got {getattr(self, name)!r}")
        for name in ("num_heads", "num_kv_heads", "max_position", "heads"):
            if name not in ("max_position", "heads") or getattr(self, name) is not None:
                whole(name, getattr(self, name))
        for name in ("prefix_tokens", "suffix_tokens"):
            whole(name, getattr(self, name), at_least=0)
        for i, window in enumerate(self.windows):
            if window is not None:
                whole(f"windows[{i}]", window)
        one_of("own_angles", self.own_angles, get_args(Angles)[1:])
        number("softmax_factor", self.softmax_factor, above=0)
        entries = self.sources.items() if isinstance(self.sources, dict) else [(None, None)]
        if not all(isinstance(word, str) for pair in entries for word in pair):
            raise ValueError(f"sources must be a dictionary of words, got {self.sources!r:.80}")
        if not isinstance(self.grid, dict) or not all(isinstance(word, str) for word in self.grid):
            raise ValueError(f"grid must be a dictionary from words to numbers, got {self.grid!r:.80}")
        for word, reach in self.grid.items():
            if reach is not None:
                number(f"grid[{word!r}]", reach, above=0)
        for name, what in (("layer_types", "word"), ("temperatures", "scheme or None"), ("windows", "number or None")):
            count = len(getattr(self, name))
            if count != len(self.layers) and (count or name == "layer_types"):
                raise ValueError(f"{name} must have one {what} per layer, {len(self.layers)} here, got {count}")
        equal: dict[RotarySpec, RotarySpec] = {}
        objects = {id(spec): spec for spec in self.layers if spec is not None}  # few, and a spec takes long to hash
        one = {at: equal.setdefault(spec, spec) for at, spec in objects.items()}
        object.__setattr__(self, "layers", tuple(one.get(id(spec)) for spec in self.layers))

    def __str__(self) -> str:
        """The model in at most ten lines: what rotates where, and how; ``repr`` says every field.

        >>> spec = RotarySpec(head_dim=8)
        >>> print(ModelRotary(model_type="toy", layers=(spec, spec, None), layer_types=("a", "a", "b"), num_heads=2))
        toy: 2 of 3 layers rotate q, k; 2 query heads, 2 key heads
        layers 0-1 (a): all 8 channels, halves, base 10000, no scaling, one axis, exact angles
        layer 2 (b): no rotation
        own code: float32 angles, tables: activation
        """
        rotating = sum(spec is not None for spec in self.layers)
        targets = ", ".join(self.targets) or "features"
        lines = [f"{self.model_type}: {rotating} of {len(self.layers)} layers rotate {targets}; {self._sizes()}"]
        lines += [self._group(spec, layers) for spec, layers in self.distinct.items()]
        if unrotated := tuple(i for i, spec in enumerate(self.layers) if spec is None):
            lines.append(self._group(None, unrotated))
        tables = ", ".join(dict.fromkeys(spec.tables for spec in self.distinct))
        code = [f"own code: {self.own_angles} angles, tables: {tables}"]
        if self.softmax_factor != 1:
            code.append(f"softmax scale times {self.softmax_factor:.6g}")
        if scaled := [scheme for scheme in self.temperatures if scheme is not None]:
            code.append(f"queries of {len(scaled)} layers scaled by {scaled[0]}")
        if self.prefix_tokens or self.suffix_tokens:
            code.append(f"{self.prefix_tokens} tokens before and {self.suffix_tokens} after pass unrotated")
        lines += ["; ".join(code), *(f"note: {note}" for note in self.notes)]
        more = len(lines) - MOST_LINES
        return "\n".join(lines if more <= 0 else [*lines[: MOST_LINES - 1], f"… ({more + 1} more lines)"])

    def _sizes(self) -> str:
        """For `__str__`: heads, length and part."""
        sizes = [f"{self.num_heads} query heads", f"{self.num_kv_heads} key heads"]
        sizes += [f"the first {self.heads} rotate"] if self.heads is not None else []
        sizes += [f"{self.max_position:,} positions"] if self.max_position is not None else []
        return ", ".join(sizes + ([f"part {self.part} of {counted(self.parts, 'part')}"] if self.part else []))

    def _group(self, spec: RotarySpec | None, layers: tuple[int, ...]) -> str:
        """One line: the layers that share a spec, and what it does."""
        types = ", ".join(dict.fromkeys(self.layer_types[i] for i in layers))
        rotation = "no rotation" if spec is None else spec.describe()
        return f"layer{'s' * (len(layers) > 1)} {ranges(layers)} ({types}): {rotation}"

    @property
    def distinct(self) -> dict[RotarySpec, tuple[int, ...]]:
        """Each different spec -> the layers that use it, in order of first use."""
        places: dict[int, list[int]] = {}  # by object: equal specs are one
        for i, spec in enumerate(self.layers):
            places.setdefault(id(spec), []).append(i)
        return {spec: tuple(at) for at in places.values() if (spec := self.layers[at[0]]) is not None}

    def with_angles(self, angles: Angles) -> "ModelRotary":
        """A copy in which every spec forms its angles this way: ``"exact"``, or ``"float32"`` as the model's own code.

        Where the model's code forms them otherwise (``own_angles``), ``"float32"`` means that.

        >>> toy = ModelRotary(model_type="toy", layers=(RotarySpec(head_dim=8),), layer_types=("a",), num_heads=1)
        >>> toy.with_angles("float32").layers[0].angles
        'float32'
        """
        angles = self.own_angles if angles == "float32" else angles
        changed = {spec: spec.replace(angles=angles) for spec in self.distinct}
        return dataclasses.replace(self, layers=tuple(None if spec is None else changed[spec] for spec in self.layers))

    def diff(self, other: "ModelRotary") -> dict[int | str, tuple[Any, Any]]:
        """What differs, as ``{layer index or field: (mine, theirs)}``; empty if the two models are equal.

        A layer stands under its number, from 0, with the two specs (``None``: it does not rotate). If the numbers of
        layers differ, ``"layers"`` holds both numbers, and the layers that both have are compared.

        >>> a = ModelRotary(model_type="a", layers=(RotarySpec(head_dim=8), None), layer_types=("x", "x"), num_heads=1)
        >>> b = ModelRotary(model_type="b", layers=(RotarySpec(head_dim=8),), layer_types=("x",), num_heads=1)
        >>> a.diff(b)
        {'model_type': ('a', 'b'), 'layers': (2, 1), 'layer_types': (('x', 'x'), ('x',))}
        """
        if not isinstance(other, ModelRotary):
            raise ValueError(f"other must be a ModelRotary, got {type(other).__name__}")
        differences: dict[int | str, tuple[Any, Any]] = {}
        for f in dataclasses.fields(self):
            mine, theirs = getattr(self, f.name), getattr(other, f.name)
            if f.name == "layers":
                if len(mine) != len(theirs):
                    differences["layers"] = (len(mine), len(theirs))
                pairs = enumerate(zip(mine, theirs, strict=False))
                differences.update({i: pair for i, pair in pairs if pair[0] != pair[1]})
            elif f.compare and mine != theirs:
                differences[f.name] = (mine, theirs)
        return differences

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data from which `from_dict` makes an equal model, sources included; shares nothing with it.

        ``specs`` holds each distinct spec once, ``layers`` the index of each layer's spec, or ``None``.

        >>> model = ModelRotary(model_type="toy", layers=(RotarySpec(head_dim=8), None), layer_types=("x", "y"),
        ...                     num_heads=2)
        >>> model.to_dict()["layers"], ModelRotary.from_dict(model.to_dict()) == model
        ([0, None], True)
        """
        index = {spec: i for i, spec in enumerate(self.distinct)}
        data = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        data = {name: list(value) if isinstance(value, tuple) else value for name, value in data.items()}
        data["layers"] = [None if spec is None else index[spec] for spec in self.layers]
        data["temperatures"] = [to_data(scheme) for scheme in self.temperatures]
        return {
            **data,
            "sources": dict(self.sources),
            "grid": dict(self.grid),
            "specs": [spec.to_dict() for spec in index],
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "ModelRotary":
        """Inverse of `to_dict`; raises ``ValueError`` for a missing or unknown key and for values of another form."""
        if not isinstance(data, dict):
            raise ValueError(f"data must be a dictionary as made by to_dict, got {type(data).__name__}")
        known = {f.name for f in dataclasses.fields(cls)} | {"specs"}
        if unknown := [key for key in data if key not in known]:
            raise ValueError(f"data has unknown keys {unknown}; known: {sorted(known)}")
        for name in ("model_type", "layers", "layer_types", "num_heads", "specs"):
            if name not in data:
                raise ValueError(f"data must have the key {name!r}")
        specs = [RotarySpec.from_dict(spec) for spec in _tuple("specs", data["specs"], dict)]
        layers = _tuple("layers", data["layers"], int)
        for i in layers:
            if i is not None and (isinstance(i, bool) or not 0 <= i < len(specs)):
                raise ValueError(f"layers must hold numbers of specs, below {len(specs)} here, or None, got {i!r}")
        fields = {name: value for name, value in data.items() if name != "specs"}
        fields["layers"] = tuple(None if i is None else specs[i] for i in layers)
        schemes = _tuple("temperatures", data.get("temperatures", ()), dict)
        fields["temperatures"] = tuple(from_data("temperatures", scheme, TEMPERATURES) for scheme in schemes)
        for name in ("sources", "grid"):
            if isinstance(data.get(name), dict):
                fields[name] = dict(data[name])
        return cls(**fields)


def _tuple(name: str, values: Any, kind: type) -> tuple[Any, ...]:
    """``values`` as a tuple; raises unless each is a ``kind``, or None in a list of one per layer."""
    if not isinstance(values, list | tuple):
        raise ValueError(f"{name} must be a list or tuple, got {values!r:.80}")
    for i, value in enumerate(values):
        if not isinstance(value, kind) and not (name in ("layers", "temperatures", "windows") and value is None):
            raise ValueError(f"{name}[{i}] must be a {kind.__name__}, got {value!r:.80}")
    return tuple(values)
