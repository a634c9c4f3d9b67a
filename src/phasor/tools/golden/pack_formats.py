"""The two formats of a pack: each holds all of it, and is made of bytes that depend on nothing but the content."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np

NAME = "phasor_golden"

About = dict[str, Any]
Array = np.ndarray[Any, Any]


def as_safetensors(about: About, arrays: dict[str, Array], sha256: str) -> bytes:
    """The arrays; all else as JSON in the metadata, under ``pack``."""
    try:
        from safetensors.numpy import save
    except ModuleNotFoundError as error:
        raise ValueError(f"a pack needs {error.name}; install it with: pip install safetensors") from None
    data: bytes = save(arrays, {"pack": _line({**about, "sha256": sha256})})
    return data


def as_json(about: About, arrays: dict[str, Array], sha256: str) -> bytes:
    """``arrays``: name -> numbers, nested as the array is; a float32 has the digits that give it back."""
    rows = ",\n".join(f"{json.dumps(name)}:{_nested(array)}" for name, array in arrays.items())
    head = _line({**about, "sha256": sha256})
    return f'{head[:-1]},"arrays":{{\n{rows}\n}}}}\n'.encode()


FORMATS: dict[str, Callable[[About, dict[str, Array], str], bytes]] = {
    "safetensors": as_safetensors,
    "json": as_json,
}


def _line(data: About) -> str:
    return json.dumps(data, separators=(",", ":"), allow_nan=False)


def _numbers(array: Array) -> list[str]:
    """The shortest digits of each value that give it back, 0.5 and 1 and 1e-07."""
    return [str(value).removesuffix(".0") for value in array.ravel()]


def _nested(array: Array) -> str:
    if array.ndim > 1:
        return f"[{','.join(map(_nested, array))}]"
    return f"[{','.join(_numbers(array))}]"
