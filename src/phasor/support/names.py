"""What configs and other libraries call the fields of a `RotarySpec`."""

import difflib
from collections.abc import Iterable

ELSEWHERE = {
    "rope_theta": "base", "theta": "base", "rotary_emb_base": "base", "dim": "head_dim", "head_size": "head_dim",
    "rope_scaling": "scaling", "rope_parameters": "scaling", "scaling_factor": "scaling",
    "partial_rotary_factor": "rotary_dim", "rotary_percentage": "rotary_dim", "rotary_pct": "rotary_dim",
    "is_neox_style": "interleaved", "traditional": "interleaved", "mrope_section": "axes", "inv_freq": "frequencies",
}  # fmt: skip


def no_field(name: str, fields: Iterable[str]) -> str:
    """That a name is no field of a spec, and which one may be meant."""
    near = difflib.get_close_matches(name, fields, 1)
    meant = ELSEWHERE.get(name, near[0] if near else "")
    hint = f"did you mean {meant}?" if meant else f"known: {', '.join(fields)}"
    return f"{name} is no field of RotarySpec; {hint} (a whole config is read by phasor.read_config)"
