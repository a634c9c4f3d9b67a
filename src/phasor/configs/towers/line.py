"""Towers whose tokens stand in a line: they have the keys of a text model, and the text reader reads them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..family import Family
from ..hf import read_text_config
from ..keys import Keys, agreed, is_dict
from ..model import ModelRotary
from .part import HARMLESS


@dataclass(frozen=True)
class Line:
    """One audio, protein or text-to-speech tower.

    - ``family``: the config class and its defaults (`Family`); ``code``: the class that rotates, in transformers 5.23.
    - ``renamed``: keys of this config -> the name they have in text models; ``nested``: an object inside it that may
      hold them.
    - ``permuted``, ``heads``: its code writes halves; only the first ``heads`` heads turn.
    """

    family: Family
    code: str
    renamed: Mapping[str, str] = field(default_factory=dict)
    nested: str = ""
    permuted: bool = False
    heads: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def config(self) -> str:
        return self.family.config

    def read(self, name: str, data: dict[str, Any], path: str) -> tuple[ModelRotary, Keys]:
        """The encoding of every layer, and the keys that were used."""
        model, keys = read_text_config(name, self.family, self._canonical(data, path), path)
        for key, meaning in HARMLESS.items():
            keys.became(meaning, key)
        layers = model.layers
        if self.permuted:
            layers = tuple(None if spec is None else spec.replace(permuted=True) for spec in layers)
        return replace(model, layers=layers, heads=self.heads, notes=(*model.notes, *self.notes)), keys

    def _canonical(self, data: dict[str, Any], path: str) -> dict[str, Any]:
        """The config under the names of text models; two spellings of one size must agree."""
        inner = data.get(self.nested) or {}
        is_dict(path + self.nested, inner)
        found = {key: [(path + key, value)] for key, value in data.items() if key not in (self.nested, *self.renamed)}
        for level, where in ((data, path), (inner, f"{path}{self.nested}.")):
            for key, name in self.renamed.items():
                if level.get(key) is not None:
                    found.setdefault(name, []).append((where + key, level[key]))
        return {name: agreed([pair for pair in pairs if pair[1] is not None]) for name, pairs in found.items()}
