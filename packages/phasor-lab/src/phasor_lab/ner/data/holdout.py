"""Development data out of the training data, where none is given."""

import random
from collections.abc import Sequence
from pathlib import Path

from .example import Example

SHARE = 10
LEAST = 20


def hold_out(examples: Sequence[Example], path: Path) -> tuple[list[Example], list[Example]]:
    """All but a tenth of the texts of ``path``, and that tenth, chosen at random and always the same.

    Raises ``ValueError`` for fewer than 20 texts, and where no entity is left on either side.
    """
    if len(examples) < LEAST:
        raise ValueError(
            f"{path}: file must hold at least {LEAST} texts, a tenth of them for development, got {len(examples)}; "
            "give --dev a file of its own, or label more"
        )
    chosen = set(random.Random(0).sample(range(len(examples)), len(examples) // SHARE))
    train = [example for i, example in enumerate(examples) if i not in chosen]
    dev = [example for i, example in enumerate(examples) if i in chosen]
    if not any(example.entities for example in dev) or not any(example.entities for example in train):
        raise ValueError(
            f"{path}: file must hold more entities, got none in the tenth of the texts that is held out for "
            "development, or none beside it; give --dev a file of its own"
        )
    return train, dev
