"""What ``kernelize`` puts in the place of a model's ``apply_rotary_pos_emb``."""

from phasor.patching import HookedRotary as apply_rotary_transformers

__all__ = ["apply_rotary_transformers"]
