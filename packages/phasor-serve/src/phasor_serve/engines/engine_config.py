"""A config as engines get it: its text part, what the model's own code does, and its rope parameters, standardised."""

from dataclasses import dataclass
from typing import Any

from phasor import ModelRotary, RotarySpec, read_config
from phasor.axes import InterleavedSections, Sections
from phasor.models.configs import tree_of
from phasor.models.reading.load import in_file
from phasor.models.reading.row import CompositeModel
from phasor.models.reading.schemes import ORIGINAL, TYPES, scheme_for
from phasor.models.reading.text import TextModel
from phasor.models.reading.write_text import share_of
from phasor.models.rows import ROWS

ROPES = ("rope_parameters", "rope_scaling")
__all__ = ["ORIGINAL", "ROPES", "EngineConfig", "load_config", "parameters_of", "renamed", "walk"]


@dataclass(frozen=True)
class EngineConfig:
    """A config and its text model.

    - ``data``: the whole config; ``path``: where its text model stands (``""``: at the top).
    - ``model``: what the model's own code does with it.
    - ``kinds``: per layer, the name under which its rope parameters stand; ``""`` where all share one dictionary.
    """

    data: dict[str, Any]
    path: str
    model: ModelRotary
    kinds: tuple[str, ...]

    @property
    def text(self) -> dict[str, Any]:
        """The config of the text model."""
        part = self.data
        for key in self.path.split(".") if self.path else ():
            part = part[key]
        return part

    @property
    def name(self) -> str:
        """The model type of the text model, by which engines choose their code."""
        return str(self.text.get("model_type") or self.model.model_type)

    @property
    def own_share(self) -> bool:
        """Whether the config class has a share of the head that rotates, by default if not by a key."""
        row = ROWS.get(self.name)
        return isinstance(row, TextModel) and row.partial is not None

    @property
    def inside(self) -> str:
        """Where the text model stands in the config object of transformers, which nests what some files hold flat."""
        row = ROWS.get(str(self.data.get("model_type")))
        return self.path or ("text_config" if isinstance(row, CompositeModel) else "")

    @property
    def rope(self) -> dict[str, Any]:
        """The dictionary of rope parameters that stands in the config, under either name; empty without one."""
        return rope_in(self.text)

    def nested(self, text: dict[str, Any]) -> dict[str, Any]:
        """An override of the text model as it stands in one of the whole config."""
        for key in reversed(self.inside.split(".") if self.inside else []):
            text = {key: text}
        return text

    def spec_of(self, kind: str, model: ModelRotary | None = None) -> RotarySpec | None:
        """The rotation of the layers of one kind."""
        layers = zip(self.kinds, (model or self.model).layers, strict=True)
        return next((spec for own, spec in layers if own == kind and spec is not None), None)

    def parameters(self, model: ModelRotary | None = None) -> dict[str, dict[str, Any]]:
        """The rope parameters of each kind of layer in the form of transformers 5: rope_type, rope_theta and the rest.

        Of ``model`` if it is given, else of the config's own, with all that it states.
        """
        by_kind = {}
        for kind in dict.fromkeys(self.kinds):
            spec = self.spec_of(kind, model)
            if spec is not None:
                stated = self.rope.get(kind, {}) if kind else self.rope
                by_kind[kind] = {**({} if model else renamed(stated)), **parameters_of(spec)}
        return by_kind


def parameters_of(spec: RotarySpec) -> dict[str, Any]:
    """What a dictionary of rope parameters must say for this rotation.

    >>> parameters_of(RotarySpec(head_dim=8, rotary_dim=4, base=500.0))
    {'rope_type': 'default', 'rope_theta': 500.0, 'partial_rotary_factor': 0.5}
    """
    name, scheme = scheme_for(spec.scaling)
    rope = {"rope_type": name, "rope_theta": spec.base, **scheme.write(spec.scaling)}
    if spec.rotary_dim != spec.head_dim and not spec.trailing:
        rope["partial_rotary_factor"] = share_of(spec.exponent_dim or spec.rotary_dim, spec.head_dim)
    if isinstance(spec.axes, Sections):
        rope["mrope_section"] = list(spec.axes.sections)
        if isinstance(spec.axes, InterleavedSections):
            rope["mrope_interleaved"] = True
    return rope


def rope_in(text: dict[str, Any]) -> dict[str, Any]:
    """The first dictionary of rope parameters in a config, or an override of one, that says something; else {}."""
    return next((rope for name in ROPES if isinstance(rope := text.get(name), dict) and rope), {})


def load_config(source: Any) -> EngineConfig:
    """The text model of a config; ``source`` and errors as in `phasor.read_config`. One that is loaded stays."""
    if isinstance(source, EngineConfig):
        return source
    if isinstance(source, ModelRotary | RotarySpec):
        raise ValueError(
            f"config must be a config.json (a path, a dictionary or a transformers config), got a "
            f"{type(source).__name__}, which no longer holds the keys that engines read; pass what was given to "
            "read_config"
        )
    with in_file(source):
        tree = tree_of(source)
        model = read_config(tree)
    row = tree.row(model.part)
    words = model.layer_types
    kinds = tuple(row.kind_of(word) for word in words) if isinstance(row, TextModel) else ("",) * len(words)
    return EngineConfig(tree.data, model.part, model, kinds)


def renamed(rope: dict[str, Any]) -> dict[str, Any]:
    """A dictionary of rope parameters with its type under one name, ``rope_type``."""
    word = next((rope[name] for name in TYPES if rope.get(name) is not None), "default")
    return {"rope_type": word, **{key: value for key, value in rope.items() if key not in TYPES}}


def walk(override: dict[str, Any], path: str) -> tuple[dict[str, Any], list[str]]:
    """What an override says about the part at ``path``, and the keys that it states outside of it.

    >>> walk({"text_config": {"rope_theta": 5.0}, "rope_theta": 6.0}, "text_config")
    ({'rope_theta': 5.0}, ['rope_theta'])
    """
    outside: list[str] = []
    for key in path.split(".") if path else ():
        outside += [name for name in override if name != key]
        inner = override.get(key)
        override = inner if isinstance(inner, dict) else {}
    return override, outside
