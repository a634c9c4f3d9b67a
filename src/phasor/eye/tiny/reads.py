"""Which keys of a config the code of a model reads, while it is built and while it runs."""

import contextlib
import re
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

# The files whose reading counts: those of the models, and of what the models' rotations and masks share. All other code
# of transformers reads every key: it copies, prints and validates.
_COUNTS = re.compile(r"transformers[/\\](models[/\\](?!auto[/\\]).*|modeling_rope_utils|masking_utils)\.py$")
_CHECKS = re.compile(r"^_*(validate|check|convert|standardize|nested_rope)|validation$")


class Reads:
    """The keys that were read, for each config object."""

    def __init__(self) -> None:
        self.seen: dict[int, tuple[Any, set[str]]] = {}  # the object is kept, so that its id stays its own

    def add(self, config: Any, key: str) -> None:
        self.seen.setdefault(id(config), (config, set()))[1].add(key)

    def of(self, config: Any, path: str = "") -> set[str]:
        """The keys that were read of this very config and of those inside it, with the path of each.

        What is inside ``rope_parameters`` and other dictionaries has a path as well.
        """
        found = {path + key for key in self.seen.get(id(config), (None, set()))[1]}
        for key, value in vars(config).items():
            if hasattr(value, "to_dict") and not key.startswith("_"):
                found |= self.of(value, f"{path}{key}.")
        return found


@contextlib.contextmanager
def recorded_reads() -> Iterator[Reads]:
    """Inside, each read of a config by the code of a model is written down; what is read is the same."""
    from transformers import PreTrainedConfig

    reads, original, watched = Reads(), PreTrainedConfig.__getattribute__, []

    def read(config: Any, key: str) -> Any:
        value = original(config, key)
        if not key.startswith("_") and not callable(value) and _counts(sys._getframe(1)):
            known_as = original(config, "attribute_map").get(key, key)
            reads.add(config, known_as)
            own = original(config, "__dict__")
            if type(value) is dict and own.get(known_as) is value:
                value = own[known_as] = _Watched(value, reads, config, known_as)
                watched.append((own, known_as))
        return value

    PreTrainedConfig.__getattribute__ = read  # type: ignore[method-assign]
    try:
        yield reads
    finally:
        PreTrainedConfig.__getattribute__ = original  # type: ignore[method-assign]
        for own, key in watched:
            own[key] = _plain(own[key])


def _counts(frame: FrameType | None) -> bool:
    if frame is None or not _COUNTS.search(frame.f_code.co_filename):
        return False
    return not _CHECKS.search(frame.f_code.co_name)


class _Watched(dict[str, Any]):
    """A dictionary of a config that tells which of its keys are read."""

    def __init__(self, data: dict[str, Any], reads: Reads, config: Any, path: str) -> None:
        inside = {k: _Watched(v, reads, config, f"{path}.{k}") if type(v) is dict else v for k, v in data.items()}
        super().__init__(inside)
        self._told = (reads, config, path)

    def _tell(self, key: Any) -> None:
        reads, config, path = self._told
        if _counts(sys._getframe(2)):
            reads.add(config, f"{path}.{key}")

    def __getitem__(self, key: str) -> Any:
        self._tell(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self._tell(key)
        return super().get(key, default)

    def __contains__(self, key: object) -> bool:
        self._tell(key)
        return super().__contains__(key)

    def __reduce__(self) -> Any:
        return dict, (_plain(self),)  # a copy is for others


def _plain(value: Any) -> Any:
    return {k: _plain(v) for k, v in value.items()} if isinstance(value, dict) else value
