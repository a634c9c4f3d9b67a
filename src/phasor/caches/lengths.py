"""The length that a sequence is admitted for: what decides its regime, once and for its life."""

from collections.abc import Sequence

from ..support.checks import whole


def admitted_length(prompt: int, new_tokens: int, lengths: Sequence[int] = ()) -> int:
    """``prompt + new_tokens``, or the smallest of ``lengths`` that holds them: what `RotarySpec.at_length` takes.

    ``lengths`` are those that a server offers. Fewer regimes mean more prefixes that two requests share, and the
    smallest sufficient one has the smallest factor. Raises ``ValueError`` if none is long enough.
    Source: the static and dynamic factors of YaRN, arXiv:2309.00071, section 3.3.

    >>> admitted_length(3000, 500), admitted_length(3000, 500, lengths=(4096, 32768))
    (3500, 4096)
    """
    whole("prompt", prompt, at_least=0)
    whole("new_tokens", new_tokens, at_least=0)
    for i, length in enumerate(lengths):
        whole(f"lengths[{i}]", length)
    needed = max(prompt + new_tokens, 1)
    if not lengths:
        return needed
    if needed > max(lengths):
        raise ValueError(
            f"lengths must have one of at least {needed} (prompt and new tokens), got {max(lengths)} at most"
        )
    return min(length for length in lengths if length >= needed)
