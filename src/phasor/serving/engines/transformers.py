"""transformers 5.23: what `phasor.read_config` reads is what its modules turn; length is what the config declares."""

import copy
from dataclasses import replace

from ...models.configs import ModelRotary, write_config
from .base import CannotSayError, Engine, Flags, Reading, Rule, Settings
from .engine_config import Seen
from .facts import facts

# Classes that keep head_dim None, by which the functions of modeling_rope_utils.py multiply.
HEADLESS: dict[str, dict[str, str]] = facts("transformers", dict)
WHOLE = Rule(
    "frequencies and factors are those of the model's own modules, bit for bit with float32 angles",
    "transformers/modeling_rope_utils.py and models/*/modeling_*.py",
    run=True,
)


class Transformers(Engine):
    """`transformers`, run by itself: no flags, only config.json; checked live by the tests."""

    name = "transformers"
    version = "5.23.0"

    def read(self, seen: Seen, flags: Flags) -> Reading:
        model = seen.model
        return Reading(engine=self.name, version=self.version, model=model, length=model.max_position, rules=(WHOLE,))

    def write(self, seen: Seen, wanted: ModelRotary, length: int) -> list[Settings]:
        return [Settings(config=rewritten(seen, wanted, length))]


def rewritten(seen: Seen, wanted: ModelRotary, length: int) -> dict[str, object]:
    """The config with the rotation ``wanted`` and the declared ``length``; raises `CannotSayError`."""
    declared = replace(wanted, max_position=max(length, wanted.max_position or length))
    try:
        made = write_config(declared, copy.deepcopy(seen.data))
    except ValueError as error:
        raise CannotSayError(f"config.json cannot say it: {error}") from None
    if seen.name in HEADLESS and not seen.path and made.get("head_dim") is None:
        made["head_dim"] = next(iter(wanted.distinct)).head_dim  # without it transformers stops with a TypeError
    return made
