"""The four formats of a pack: each holds all of it, and is made of bytes that depend on nothing but the content."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np

NAME = "phasor_golden"
TITLE = "Golden vectors of rotary position encodings"
ALIGNMENT = 32  # of tensors in GGUF

About = dict[str, Any]
Array = np.ndarray[Any, Any]
C_TYPES = {"float64": "double", "float32": "float", "int32": "int"}
C_ARRAYS = {  # the fields of a rotation, by their type; one that it has not is a null pointer
    "double": ("positions", "rates", "rates_second"),
    "float": ("cos", "sin", "cos_second", "sin_second", "out"),
    "int": ("first", "second", "first_written", "second_written"),
}


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


def as_gguf(about: About, arrays: dict[str, Array], sha256: str) -> bytes:
    """The arrays as tensors; all else as JSON in the metadata, under ``phasor.pack``."""
    from ..checkpoints.formats.gguf_file import check_package, pair, write_header

    check_package()
    texts = {
        "general.architecture": "phasor-golden",
        "general.name": TITLE,
        "general.license": str(about["licence"]).lower(),
        "phasor.pack": _line({**about, "sha256": sha256}),
    }
    kinds = {"float64": "F64", "float32": "F32", "int32": "I32"}
    tensors = [(name, kinds[str(a.dtype)], a.shape, a.nbytes) for name, a in arrays.items()]
    head = write_header({key: pair(key, text) for key, text in texts.items()}, tensors, ALIGNMENT)
    return head + b"".join(a.tobytes() + b"\0" * (-a.nbytes % ALIGNMENT) for a in arrays.values())


def as_header(about: About, arrays: dict[str, Array], sha256: str) -> bytes:
    """A header for C99 or C++, which needs no other."""
    names = {name: f"phasor_{name.replace('.', '_')}" for name in arrays}
    lines = [
        f"/* {TITLE}, {about['licence']}. */",
        "#ifndef PHASOR_GOLDEN_H",
        "#define PHASOR_GOLDEN_H",
        f"#define PHASOR_GOLDEN_VERSION {about['version']}",
        f'#define PHASOR_GOLDEN_SHA256 "{sha256}"',
        f"#define PHASOR_GOLDEN_TOKENS {about['tokens']}",
        f"#define PHASOR_GOLDEN_TURNED {about['turned']}",
        *(f"#define PHASOR_GOLDEN_TOLERANCE_{k.upper()} {v!r}" for k, v in about["tolerance"].items()),
        *(f"static const {C_TYPES[str(a.dtype)]} {names[n]}[] = {{{_lines(a)}}};" for n, a in arrays.items()),
        "typedef struct {",
        "  const char *describe;",
        "  int head_dim, pairs, axes;",
        "  double factor;",
        *(f"  const {kind} {', '.join('*' + field for field in fields)};" for kind, fields in C_ARRAYS.items()),
        "} phasor_rotation;",
        "static const phasor_rotation phasor_rotations[] = {",
        *(f"  {{{_struct(rotation, names)}}}," for rotation in about["rotations"]),
        "};",
        f"#define PHASOR_GOLDEN_ROTATIONS {len(about['rotations'])}",
        "typedef struct {",
        "  const char *model, *part, *layers;",
        "  int rotation;",
        "} phasor_model;",
        "static const phasor_model phasor_models[] = {",
        *(f"  {{{', '.join(map(_c_text, row[:3]))}, {row[3]}}}," for row in about["models"]),
        "};",
        f"#define PHASOR_GOLDEN_MODELS {len(about['models'])}",
        "#endif",
        "",
    ]
    return "\n".join(lines).encode()


FORMATS: dict[str, Callable[[About, dict[str, Array], str], bytes]] = {
    "safetensors": as_safetensors,
    "json": as_json,
    "h": as_header,
    "gguf": as_gguf,
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


def _lines(array: Array) -> str:
    """The numbers as C has them, ten in a line, without the zero before a point."""
    short = [text.replace("0.", ".", 1) if text.lstrip("-").startswith("0.") else text for text in _numbers(array)]
    return ",\n".join(",".join(short[at : at + 10]) for at in range(0, len(short), 10))


def _struct(rotation: dict[str, Any], names: dict[str, str]) -> str:
    used = {field: names[name] for field, name in rotation["arrays"].items()}
    sizes = [str(rotation[size]) for size in ("head_dim", "pairs", "axes")]
    pointers = [used.get(field, "0") for fields in C_ARRAYS.values() for field in fields]
    return ", ".join([_c_text(rotation["describe"]), *sizes, repr(rotation["factor"]), *pointers])


def _c_text(text: str) -> str:
    """A literal of C: what is no plain letter as octal, and no ``?``, which begins a trigraph."""
    coded = text.encode(errors="backslashreplace")  # half a letter, as JSON can hold it, is written out
    plain = "".join(chr(b) if 32 <= b < 127 and chr(b) not in '"\\?' else f"\\{b:03o}" for b in coded)
    return f'"{plain}"'
