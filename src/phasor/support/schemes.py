"""A scheme is a frozen dataclass with a name: how each one is printed, turned into JSON data, and read back."""

import dataclasses
from typing import Any


def brief(scheme: Any) -> str:
    """``name(field=value, …)`` with long lists cut and defaults left out."""
    shown = []
    for f in dataclasses.fields(scheme):
        value = getattr(scheme, f.name)
        if value != f.default:
            shown.append(f"{f.name}={_shortened(value)}")
    return f"{scheme.name}({', '.join(shown)})"


def _shortened(value: Any) -> str:
    if dataclasses.is_dataclass(value):
        return brief(value)
    if isinstance(value, tuple) and value and isinstance(value[0], tuple):
        return f"[{len(value)} x {len(value[0])} values]"
    return f"[{len(value)} values]" if isinstance(value, tuple) and len(value) > 4 else f"{value}"


def to_data(scheme: Any) -> dict[str, Any] | None:
    """Plain JSON data: the scheme's name and its fields, which may be schemes; None for None."""
    if scheme is None:
        return None
    values = {f.name: getattr(scheme, f.name) for f in dataclasses.fields(scheme)}
    inner = {name: to_data(value) for name, value in values.items() if dataclasses.is_dataclass(value)}
    return {"name": scheme.name, **lists(values | inner)}


def from_data(field: str, data: Any, known: dict[str, Any]) -> Any:
    """Inverse of `to_data` for the schemes ``known`` by name; ``ValueError`` naming ``field`` for anything else."""
    if data is None:
        return None
    if not isinstance(data, dict) or data.get("name") not in known:
        raise ValueError(f"{field} must be a dictionary with a 'name' out of {sorted(known)}, got {data!r}")
    try:
        values = {k: _value(field, v, known) for k, v in data.items() if k != "name"}
        return known[data["name"]](**values)
    except TypeError as error:
        raise ValueError(f"{field} {data['name']!r} does not fit its fields: {error}") from None


def lists(value: Any) -> Any:
    """Tuples at any depth as lists, as JSON has them."""
    if isinstance(value, dict):
        return {k: lists(v) for k, v in value.items()}
    return [lists(v) for v in value] if isinstance(value, tuple | list) else value


def _value(field: str, value: Any, known: dict[str, Any]) -> Any:
    return from_data(field, value, known) if isinstance(value, dict) else _tuples(value)


def _tuples(value: Any) -> Any:
    return tuple(_tuples(v) for v in value) if isinstance(value, list | tuple) else value
