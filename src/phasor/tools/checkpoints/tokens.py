"""The tokens on which the logits of both sides are compared."""

from collections.abc import Mapping, Sequence
from typing import Any


def check_tokens(config: Mapping[str, Any], token_ids: Sequence[int] | None, proof: bool) -> None:
    """Raises ``ValueError`` for tokens that the model does not have, and where there will be no proof to use them."""
    if token_ids is None:
        return
    if not proof:
        raise ValueError("token_ids are compared in the proof, and there is none; leave one of them out")
    vocab = config.get("vocab_size")
    if not token_ids or (isinstance(vocab, int) and not 0 <= min(token_ids) <= max(token_ids) < vocab):
        below = f", below the vocab_size of {vocab}" if vocab else ""
        raise ValueError(f"token_ids must be numbers of tokens from 0{below}, got {list(token_ids)!r:.200}")
