"""How far back the layers of a model look: windows and chunks, inside which all distances lie."""

from .keys import Keys
from .layers import Layers

KEYS = {
    "sliding": ("sliding_window", "sliding_window_size", "attention_window_size"),
    "chunked": ("attention_chunk_size",),
}


def read_windows(layers: Layers, keys: Keys, words: tuple[str, ...]) -> tuple[int | None, ...]:
    """Per layer the number of positions it sees, its own among them, or None; nothing where all see all."""
    found = {word: _window(layers, keys, word) for word in set(words)}
    return tuple(found[word] for word in words) if any(found.values()) else ()


def _window(layers: Layers, keys: Keys, word: str) -> int | None:
    names = next((names for part, names in KEYS.items() if part in word), ())
    if layers.windowed and word in ("attention", "full_attention"):
        names = KEYS["sliding"]
    for name in (layers.two_sided, *names) if names else ():
        size = keys.places[0][1].get(name)
        if isinstance(size, int) and not isinstance(size, bool) and size > 0:
            return size // 2 + 1 if name == layers.two_sided else size
    return None
