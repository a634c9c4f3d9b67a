"""Why a config is refused: one of a few reasons, which a test can prove true."""

from collections.abc import Sequence
from enum import StrEnum


class Reason(StrEnum):
    """The reasons for which a config is not read.

    - ``CONTRADICTION``: two keys say different things, and the model would differ by which of them holds.
    - ``UNREAD``: the class of the model does not read the key; without it the model is the same.
    - ``FOREIGN``: the same, of a key that another family reads.
    - ``AMBIGUOUS``: published code differs in what it makes of the key, or of its absence.
    - ``BEYOND``: larger than any model, or a rotation that `RotarySpec` does not describe.
    - ``VALUE``: not a value that the key can have, or a necessary key is missing.

    >>> Reason("contradiction") is Reason.CONTRADICTION
    True
    """

    CONTRADICTION = "contradiction"
    UNREAD = "not what the class reads"
    FOREIGN = "key of another family"
    AMBIGUOUS = "ambiguous by published code"
    BEYOND = "beyond sizes"
    VALUE = "no value of this key"


class Refused(ValueError):
    """A config that is not read; ``reason``: why; ``keys``: the paths of the keys that it is about.

    >>> Refused("rope_thata is not understood", Reason.UNREAD, "rope_thata").reason
    <Reason.UNREAD: 'not what the class reads'>
    """

    def __init__(self, message: str, reason: Reason, *keys: str) -> None:
        super().__init__(message)
        self.reason, self.keys = reason, keys


REMOVE = "remove the key if it has no effect, or describe the encoding with RotarySpec yourself"


def unread(path: str, value: object, why: str, out: str = REMOVE) -> Refused:
    """The refusal of a key that the code does not read, or not there.

    >>> str(unread("rope_scaling.factor", 2.0, "there is no scaling", "name it in rope_type"))
    'rope_scaling.factor is 2.0, but there is no scaling; name it in rope_type'
    """
    return Refused(f"{path} is {value!r:.80}, but {why}; {out}", Reason.UNREAD, path)


def not_understood(path: str, why: str) -> Refused:
    """The refusal of a key that no code looks for where it stands."""
    return Refused(f"{path} is not understood: {why}; {REMOVE}", Reason.UNREAD, path)


def ambiguous(path: str, why: str, out: str = "add the value of the checkpoint", key: str = "") -> Refused:
    """The refusal of a config without a key (in ``key``) whose absence published code takes in different ways."""
    return Refused(f"{path} is missing: {why}; {out}", Reason.AMBIGUOUS, key or path)


def contradiction(first: str, second: str, values: Sequence[object], out: str, *keys: str) -> Refused:
    """The refusal of two keys (in ``keys``) of which only one can hold."""
    said = f"{values[0]!r:.80} and {values[1]!r:.80}"
    text = f"{first} and {second} contradict each other: {said}; {out}"
    return Refused(text, Reason.CONTRADICTION, *(keys or (first, second)))
