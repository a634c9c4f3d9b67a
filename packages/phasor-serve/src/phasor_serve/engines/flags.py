"""Flags of engines as they are typed: read from text, and refused where they cannot be."""

import difflib
import json
import shlex
from collections.abc import Callable, Mapping
from typing import Any

from phasor.support.checks import keys_once, number, whole


def json_object(text: str) -> dict[str, Any]:
    """A JSON object, in which no key stands twice."""
    try:
        value = json.loads(text, object_pairs_hook=keys_once)
    except ValueError as error:
        way_out = "; inside quoted flags, put single quotes around it" if '"' not in text else ""
        raise ValueError(f"must be a JSON object: {error}{way_out}") from None
    if not isinstance(value, dict):
        raise ValueError(f"must be a JSON object, got {text!r:.80}")
    return value


def length(text: str) -> int:
    """A number of positions; ``k`` means 1000 or, in capitals, 1024, as vLLM and its users write them."""
    unit = {"k": 1000, "K": 1024, "m": 10**6, "M": 2**20}.get(text[-1:], 1)
    try:
        value = int(text if unit == 1 else text[:-1]) * unit
    except ValueError:
        raise ValueError(f"must be a number of positions, got {text!r}") from None
    whole("it", value)
    return value


def real(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"must be a number, got {text!r}") from None
    number("it", value)
    return value


def parse(line: str, known: Mapping[str, Callable[[str], Any]], gone: Mapping[str, str], engine: str) -> dict[str, Any]:
    """The flags in a command line that bear on positions; others are left alone, unless they are nearly one of these.

    >>> parse("vllm serve M -tp 2 --max-model-len 131072", {"--max-model-len": length}, {}, "vllm")
    {'--max-model-len': 131072}
    """
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise ValueError(f"flags must be a command line: {error}; got {line!r:.80}") from None
    flags: dict[str, Any] = {}
    i = 0
    while i < len(words):
        name, equals, value = words[i].partition("=")
        i += 1
        if name in gone:
            raise ValueError(f"{name} is not a flag of {engine} any more: {gone[name]}")
        if name not in known:
            if name.startswith("--") and (meant := difflib.get_close_matches(name, known, 1, 0.85)):
                raise ValueError(f"{name} is no flag that bears on positions; {meant[0]} is meant, if it is misspelled")
            continue
        if not equals:
            if i == len(words):
                raise ValueError(f"{name} must have a value, got none")
            value, i = words[i], i + 1
        try:
            read = known[name](value)
        except ValueError as error:
            raise ValueError(f"{name} {str(error).removeprefix('it ')}") from None
        if name in flags and flags[name] != read:
            raise ValueError(f"{name} stands twice, with {flags[name]!r} and {read!r}; keep one")
        flags[name] = read
    return flags


def typed(flags: Mapping[str, Any]) -> str:
    """The flags as a command line."""
    variables = [f"{name}={value}" for name, value in flags.items() if not name.startswith("-")]
    words = []
    for name, value in flags.items():
        if name.startswith("-"):
            words += [name, json.dumps(value) if isinstance(value, dict) else f"{value}"]
    return shlex.join(words) if not variables else f"{' '.join(variables)} {shlex.join(words)}".strip()
