"""How far a trained model reaches, as it is and with its rotation rescaled: losses by length."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from phasor import RotarySpec
from phasor.support.checks import whole

from ..fitting.schemes import SCHEMES
from ..running.windows import next_token_loss
from .byte_pairs import byte_pairs_loss
from .data import Text
from .model import Decoder
from .run import RunConfig, check_text

FACTORS = (2, 4, 8)
TIMES = (1.0, 1.5, 2.0, 4.0, 8.0, 16.0)  # context lengths, in training lengths
AT_ONCE = 8192  # tokens of one forward pass
LONGEST = 2**20  # bytes of a context


def lengths_of(trained: int, times: Sequence[float] = TIMES) -> list[int]:
    """Context lengths as multiples of the training length.

    >>> lengths_of(64, (1, 1.5, 2))
    [64, 96, 128]
    """
    if not times or not all(math.isfinite(t) and t > 0 for t in times):
        raise ValueError(f"times must be positive multiples of the training length, got {list(times)}")
    if max(times) * trained > LONGEST:
        raise ValueError(f"times must give contexts of at most {LONGEST:,} bytes, got {max(times):g} times {trained}")
    return sorted({max(1, round(trained * t)) for t in times})


@torch.no_grad()
def token_losses(model: Decoder, text: Tensor, length: int, tokens: int, *, rotary: RotarySpec | None = None) -> Tensor:
    """Loss in nats of the first ``tokens`` bytes of a text that have one before them, float64 ``[tokens]``.

    Windows of ``length`` tile them, and each byte is scored with what its window has before it. The last window may
    reach beyond them, and has the last byte again where the text ends before it does.
    """
    losses = []
    for starts in torch.arange(0, tokens, length).split(max(1, AT_ONCE // length)):
        rows = text[(starts[:, None] + torch.arange(length + 1)).clamp(max=len(text) - 1)].long()
        losses.append(next_token_loss(model(rows[:, :-1], rotary=rotary), rows).double())
    return torch.cat(losses).flatten()[:tokens]


def evaluate(
    model: Decoder, config: RunConfig, text: Text, *, times: Sequence[float] = TIMES, tokens: int = 65_536
) -> dict[str, Any]:
    """Loss at ``times`` the training length, as plain JSON data with its protocol.

    About ``tokens`` held-out bytes are scored, the same ones at every length. A length that an encoding cannot reach
    (learned vectors end with the training length) has no number but a reason.
    """
    check_text(config, text)
    lengths = lengths_of(config.model.length, times)
    tokens = check_budget(text, lengths[-1], tokens)
    scored = text.held_out_sample(tokens + 1)
    by_length: list[dict[str, Any]] = []
    for length in lengths:
        try:
            by_length.append({"length": length, "loss": float(token_losses(model, scored, length, tokens).mean())})
        except ValueError as error:
            by_length.append({"length": length, "loss": None, "reason": str(error)})
    return {**_about(model, config, text, scored), "protocol": protocol(tokens), "by_length": by_length}


def extend(
    model: Decoder,
    config: RunConfig,
    text: Text,
    *,
    schemes: Sequence[str] = tuple(SCHEMES),
    factors: Sequence[int] = FACTORS,
    tokens: int = 65_536,
) -> dict[str, Any]:
    """Loss at ``factor`` times the training length, each scheme set up for that factor, without any fine-tuning.

    The length-dependent schemes (dynamic, stepped_ntk) follow the length of the window, so stepped_ntk ignores the
    factor; dynamic takes it as config files state it: at ``factor`` times the length, NTK by
    ``factor**2 - factor + 1``. Raises ``ValueError`` for a model that is not rotary.
    """
    own = config.model.rotary_spec
    if own is None:
        raise ValueError(f"run must be of a rotary model to be extended, got {config.model.encoding}")
    for name in schemes:
        if name not in SCHEMES:
            raise ValueError(f"scheme must be one of {', '.join(SCHEMES)}, got {name!r}")
    if not factors or not all(isinstance(f, int) and f >= 1 for f in factors):
        raise ValueError(f"factors must be integers of at least 1, got {list(factors)}")
    check_text(config, text)
    trained = config.model.length
    tokens = check_budget(text, lengths_of(trained, factors)[-1], tokens)
    scored = text.held_out_sample(tokens + 1)
    table = []
    for scheme in schemes:
        for factor in factors:
            spec = own.replace(scaling=SCHEMES[scheme](factor, trained))
            loss = float(token_losses(model, scored, factor * trained, tokens, rotary=spec).mean())
            table.append({"scheme": scheme, "factor": factor, "length": factor * trained, "loss": loss})
    words = f"{protocol(tokens)} No fine-tuning: only the rotation changes."
    return {**_about(model, config, text, scored), "protocol": words, "table": table}


def _about(model: Decoder, config: RunConfig, text: Text, scored: Tensor) -> dict[str, Any]:
    """The loss at the trained length, and that of counted pairs of bytes on the same text: was it trained enough?"""
    loss = token_losses(model, scored, config.model.length, len(scored) - 1).mean()
    return {
        "unit": "nats per byte", "trained_length": config.model.length, "tokens": len(scored) - 1,
        "trained_loss": float(loss), "byte_pairs_loss": byte_pairs_loss(text.train, scored),
    }  # fmt: skip


def check_budget(text: Text, longest: int, tokens: int) -> int:
    """``tokens`` rounded so that windows of the longest length fit evenly and inside the held-out text."""
    whole("tokens", tokens)
    room = (len(text.held_out) - 1) // longest
    if room < 1:
        raise ValueError(
            f"the held-out text (the last tenth of each file, {len(text.held_out)} bytes) must hold one window of "
            f"{longest} bytes; give more text or smaller lengths"
        )
    return longest * min(room, max(1, tokens // longest))


def protocol(tokens: int) -> str:
    """In words, what the numbers mean."""
    return (
        f"The same {tokens:,} held-out bytes (from the last tenth of each file, in proportion) at every context "
        "length; windows of the context length do not overlap, and every byte is scored with what its window has "
        "before it."
    )
