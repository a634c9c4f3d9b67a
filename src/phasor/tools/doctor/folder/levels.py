"""The levels of a config: itself, and each config that it holds."""

from collections.abc import Iterator
from typing import Any

Level = dict[str, Any]


def levels(config: Level, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Level]]:
    """Every level with the keys that lead to it.

    >>> [path for path, _ in levels({"text_config": {"vision_config": {}}, "rope_parameters": {}})]
    [(), ('text_config',), ('text_config', 'vision_config')]
    """
    yield path, config
    for key, value in config.items():
        if isinstance(value, dict) and key.endswith("_config"):
            yield from levels(value, (*path, key))
