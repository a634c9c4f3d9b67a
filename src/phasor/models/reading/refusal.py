"""Why a config is refused: one of a few reasons, which a test can prove true."""

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
