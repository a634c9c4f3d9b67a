"""Model types that do not rotate: whose positions are told by a rule that no key of their config states.

From their code in transformers 5.24.
"""

from typing import Any

from ..encodings.alibi import alibi_slopes

# ALiBi with the slopes of the paper; MPT and Falcon may have it, BLOOM has it.
ALIBI = ("bloom", "mpt", "falcon")
ALWAYS_ALIBI = ("bloom",)
# Falcon divides its slopes by the root of the width of a head, and rounds the bias to bfloat16.
DIVIDED = ROUNDED = ("falcon",)
# Every layer has a bias out of a table; of some types all layers have one table.
LEARNED = ("t5", "mt5", "umt5", "mpnet")
SHARED = ("t5", "mt5", "mpnet")
DISENTANGLED = ("deberta-v2",)
# Learned positions: counted without what the mask hides; counted over padding too, though the table has a row for it.
READS_MASK = ("opt",)
COUNTS_ALL = ("prophetnet",)


def stated_slopes(config: Any, heads: int) -> tuple[float, ...]:
    """ALiBi's slopes by a config of transformers of a type that has them: the paper's, as the type changes them."""
    steepest = getattr(getattr(config, "attn_config", None), "alibi_bias_max", 8)  # MPT's exponents end there
    by = (config.hidden_size // heads) ** -0.5 if config.model_type in DIVIDED else 1.0
    return tuple(slope ** (steepest / 8) * by for slope in alibi_slopes(heads))
