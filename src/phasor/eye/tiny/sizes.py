"""The sizes of a tiny model: each width over one factor, so that what fitted together still does."""

import math
from collections.abc import Iterator
from typing import Any

from .layers import is_count
from .names import HEADS, KEY_HEADS, MAIN_WIDTH, OF_BOTH, PIXELS, SMALL, VOCABULARY, WIDTH, choices, says

WORDS = 128
PLAIN_WORDS = 100  # the numbers from here on are for special tokens
PATCHES = 8  # along a side of an image: fewer do not tell fast pairs of positions from -1 to 1 apart (DINOv3)
STEP = 8  # widths that no factor divides end on a multiple of this


def factor_of(heads: list[int]) -> int:
    """By how much numbers of heads shrink: each at least to two, where they can be divided so.

    >>> factor_of([32]), factor_of([28, 16]), factor_of([71]), factor_of([3, 6, 12]), factor_of([1])
    (16, 4, 71, 1, 1)
    """
    common, fewest = math.gcd(*heads), min(heads)
    return next((common // left for left in (1, 2, 3) if common % left == 0 and fewest * left // common >= 2), common)


def levels(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A config's dictionary and all inside it, without what is not named (labels by their numbers)."""
    yield {key: value for key, value in data.items() if isinstance(key, str)}
    for value in data.values():
        if isinstance(value, dict):
            yield from levels(value)


def models(level: dict[str, Any]) -> Iterator[tuple[int, list[int]]]:
    """The width of each model that one level describes, and its numbers of heads."""
    for key, width in level.items():
        if (found := MAIN_WIDTH.search(key)) and is_count(width) and width > 1:
            whose = {found["whose"]} if found["whose"] else {None, *OF_BOTH}
            heads = [v for k, v in level.items() if (h := HEADS.search(k)) and h["whose"] in whose]
            flat = [n for v in heads for n in (v if isinstance(v, list) else [v]) if is_count(n) and n > 0]
            if flat:
                yield width, flat


def special_tokens(data: dict[str, Any]) -> dict[int, int]:
    """Number of each special token of a tree -> one inside the small vocabulary, different ones apart."""
    found: set[int] = set()
    for level in levels(data):
        for key, value in level.items():
            if _is_token(key):
                found |= {
                    v for v in (value if isinstance(value, list) else [value]) if is_count(v) and v >= PLAIN_WORDS
                }
    return {token: PLAIN_WORDS + i for i, token in enumerate(sorted(found))}


class Sizes:
    """The sizes of one config tree. Models of one width shrink alike, because they may be joined."""

    def __init__(self, data: dict[str, Any]) -> None:
        heads: dict[int, list[int]] = {}
        for level in levels(data):
            for width, its_heads in models(level):
                heads.setdefault(width, []).extend(its_heads)
        self.factors = {width: factor_of(its_heads) for width, its_heads in heads.items()}
        self.widths = {width: _narrowed(width, its_heads) for width, its_heads in heads.items()}
        self.windowed = {level["image_size"]: parts for level in levels(data) if (parts := _windows(level)) > 1}
        self.tokens = special_tokens(data)
        self.words = max(WORDS, PLAIN_WORDS + len(self.tokens))

    def keep(self, width: int) -> bool:
        """Leave the models of this width as wide as they are; False if they are anyway."""
        shrinks = self.factors.get(width, 1) > 1
        self.factors |= {width: 1} if shrinks else {}
        self.widths |= {width: width} if shrinks else {}
        return shrinks

    def factor(self, level: dict[str, Any], around: int) -> int:
        """The factor of a level; a level without heads shrinks as the one ``around`` it does."""
        return next((self.factors[width] for width, _ in models(level)), around)

    def small(self, key: str, value: Any, level: dict[str, Any], factor: int) -> Any:
        """The value of a key in the tiny model, whose widths are divided by ``factor``; 0: they stay."""
        if _is_token(key):
            return [self.tokens.get(v, v) for v in value] if isinstance(value, list) else self.tokens.get(value, value)
        kind = says(key)
        if kind == PIXELS:
            return self._pixels(value, level)
        if key == "window_size" and is_count(value):
            return value // _windows(level)
        if not is_count(value) or value <= 1:
            return value
        if kind == VOCABULARY:
            return min(value, self.words)
        if kind == SMALL:
            return choices(key, value)
        return self._width(key, value, level, factor) if kind == WIDTH and factor else value

    def _pixels(self, value: Any, level: dict[str, Any]) -> Any:
        """An image of a few patches; where windows lie in it, it has as many of them as before (`_windows`)."""
        if isinstance(value, list | tuple):
            return type(value)(self._pixels(v, level) for v in value)
        if not is_count(value):
            return value
        parts = self.windowed.get(value, _windows(level))
        if parts > 1 and value % parts == 0:
            return value // parts
        patch, merged = level.get("patch_size"), level.get("spatial_merge_size")
        return min(value, PATCHES * (patch if is_count(patch) else 16) * (merged if is_count(merged) else 1))

    def _width(self, key: str, value: int, level: dict[str, Any], factor: int) -> int:
        if heads := HEADS.search(key):
            mine = [v for k, v in level.items() if (w := MAIN_WIDTH.search(k)) and w["whose"] == heads["whose"]]
            factor = next((self.factors[v] for v in mine if v in self.factors), factor)
            return value // math.gcd(value, factor)
        if KEY_HEADS.search(key):
            return max(1, value // factor)
        if "head" in key or "group" in key:
            return value // math.gcd(value, factor)
        if value in self.widths:  # the width of a model, perhaps of another one in this tree
            return self.widths[value]
        return value // factor if value % factor == 0 else min(value, max(STEP, round(value / factor / STEP) * STEP))


def _narrowed(width: int, heads: list[int]) -> int:
    """The width of a model with fewer heads, each as wide as before.

    >>> _narrowed(4096, [32]), _narrowed(4096, [96])
    (256, 84)
    """
    factor = factor_of(heads)
    return width // factor if width % factor == 0 else heads[0] // factor * (width // heads[0])


def _windows(level: dict[str, Any]) -> int:
    """By how much both the window and the image of a level shrink: positions may be counted in windows (SAM 3)."""
    sizes = [level.get(key) for key in ("window_size", "image_size", "patch_size")]
    window, image, patch = (size if is_count(size) else 0 for size in sizes)
    return factor_of([window, image // patch]) if patch and window > 1 and image and image % patch == 0 else 1


def _is_token(key: str) -> bool:
    return key.endswith(("token_id", "token_ids", "token_index", "token_indices"))
