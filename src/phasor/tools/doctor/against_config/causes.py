"""The doctor's words for what golden's judging finds, and where a module got it from."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # it brings all of golden, which a check before every training can do without
    from ...golden.report import TensorFinding

WORDS = {
    "base": "base",
    "scaling": "scaling",
    "yarn_truncate": "YaRN's truncate",
    "attention_factor": "attention factor",
    "factor": "attention factor",
    "softmax_factor": "attention factor",
    "layout": "layout",
    "permuted": "layout",
    "direction": "sign",
    "in_place": "overwritten in place",
    "lost_minus": "a minus lost",
    "cos_sin": "cos and sin exchanged",
    "ladder_reversed": "frequencies in reverse order",
    "rotary_dim": "rotary width",
    "pair_index": "pairs counted from 1",
    "trailing": "side of the head",
    "axes": "sections",
    "heads": "heads",
    "layers": "layer types swapped",
    "positions": "positions",
    "seq_len": "length of the frequencies",
    "low_precision": "half precision",
    "not_rotated": "not rotated",
    "unknown": "unknown",
    "value": "single values",
}
OF_CONFIGS = ("base", "scaling", "YaRN's truncate", "rotary width", "sections")  # what another config would give
WAYS = {
    "base": "set rope_theta in the config and build the model again, or phasor.repair(model)",
    "scaling": "build the model from the config it is meant to have, or phasor.repair(model)",
    "layout": "rotate the pairs that the weights were trained with: phasor.patch(model), or permute q and k",
    "positions": "give position_ids that count the tokens from 0, and no table shorter than the text",
    "half precision": "form angles and tables in float32 and round the result once: phasor.patch(model)",
}


def worded(finding: "TensorFinding") -> tuple[str, str]:
    """Cause and sentence; two mistakes at once are two words, and so are two readings that fit equally."""
    each = (" or ".join(WORDS.get(one, one) for one in word.split("|")) for word in finding.cause.split("+"))
    return " + ".join(each), finding.reason


def way_out(cause: str) -> str:
    return WAYS.get(cause.split(" + ")[0], "compare the code with phasor.read_config(config) and phasor golden")
