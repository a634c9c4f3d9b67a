"""Lengths and memory as people write them: `128k` tokens, `24GB`."""

import re
from typing import NoReturn

POWERS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
SHOWN = 0.98  # of what a card is sold with, CUDA shows: 23.58 GiB of 24 GB, 39.39 of 40 (vLLM's total_gpu_memory)
LONGEST = 2**31


def tokens_in(name: str, text: str) -> int:
    """A number of tokens; ``k`` is 1024 of them, and ``M`` 1024 k, as model cards count contexts.

    >>> tokens_in("--length", "128k"), tokens_in("--length", "1M")
    (131072, 1048576)
    """
    found = re.fullmatch(r"(\d+)([kKmM]?)", text.strip())
    tokens = int(found[1]) << POWERS[found[2].lower()] if found else 0
    if not 1 <= tokens <= LONGEST:
        _refused(name, f"a number of tokens from 1 to {LONGEST}, such as 131072, 128k or 1M", text)
    return tokens


def bytes_in(name: str, text: str) -> int:
    """The bytes of a memory: ``GiB`` exactly, ``GB`` as cards are sold, of which CUDA shows 98 %.

    >>> bytes_in("--memory", "1GiB"), bytes_in("--memory", "24GB") / 2**30
    (1073741824, 23.519999999552965)
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([mMgGtT])(i?)[bB]?", text.strip())
    count = float(found[1]) * 2 ** POWERS[found[2].lower()] * (1 if found[3] else SHOWN) if found else 0
    if not 1 <= count <= 2**50:
        _refused(name, "an amount of memory with a unit, such as 24GB (as sold) or 23.5GiB (as CUDA shows it)", text)
    return int(count)


def _refused(name: str, rule: str, text: str) -> NoReturn:
    raise ValueError(f"{name} must be {rule}, got {text!r:.40}")
