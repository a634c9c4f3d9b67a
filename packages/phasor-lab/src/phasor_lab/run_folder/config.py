"""What the configs of trainings share: plain data and back, and bounds checked before anything is allocated."""

from dataclasses import asdict, fields
from typing import Any, Self

from phasor.support.checks import number, whole

from .files import shown

MOST_WEIGHTS = 2**31  # 8 GiB in float32; training takes four times that


class Config:
    """Base of frozen dataclasses that a checkpoint holds as JSON."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)  # type: ignore[call-overload,no-any-return]

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """Inverse of `to_dict`. Raises ``ValueError`` if the keys are not those of this version."""
        known = {field.name for field in fields(cls)}  # type: ignore[arg-type]
        if not isinstance(data, dict) or set(data) != known:
            raise ValueError(f"settings must have the keys {sorted(known)}, got {shown(data)}: another version's?")
        return cls(**{key: tuple(value) if isinstance(value, list) else value for key, value in data.items()})


def at_most(name: str, value: Any, most: int, way_out: str = "make it smaller") -> None:
    """Raise ``ValueError`` unless ``value`` is an integer from 1 to ``most``.

    >>> at_most("layers", 10**9, 1024)
    Traceback (most recent call last):
    ValueError: layers must be at most 1,024, got 1,000,000,000; make it smaller
    """
    whole(name, value)
    if value > most:
        raise ValueError(f"{name} must be at most {most:,}, got {value:,}; {way_out}")


def check_share(name: str, value: Any) -> None:
    """Raise ``ValueError`` unless ``value`` is a number from 0 to 1."""
    number(name, value, at_least=0)
    if value > 1:
        raise ValueError(f"{name} must be at most 1 (it is a share), got {value}")


def check_seed(seed: Any) -> None:
    """Raise ``ValueError`` unless ``seed`` is an integer from 0 to 2**31 - 1."""
    whole("seed", seed, at_least=0)
    if seed >= 2**31:
        raise ValueError(f"seed must be below 2**31, got {seed}")
