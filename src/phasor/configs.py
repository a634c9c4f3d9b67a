"""What `phasor.read_config` raises, and what the row of a model type is made of.

A config that is not understood is `Refused`, with its `Reason`; a model without rotation is `NoRotary`. `TextModel`,
`Names` and `RotaryFlag` are for who writes a row (docs/first_row.md) for `phasor.register_model`.
"""

from .models.configs import Names, NoRotary, Reason, Refused, RotaryFlag, TextModel, read_rule

__all__ = ["Names", "NoRotary", "Reason", "Refused", "RotaryFlag", "TextModel", "read_rule"]
