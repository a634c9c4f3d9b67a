"""How far a trained model reaches, as it is and with its rotation rescaled: losses and accuracies by length."""

import math
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from phasor import RotarySpec
from phasor.scaling import Scaling
from phasor.support.checks import whole

from ..fitting.result import FITTED
from ..fitting.schemes import SCHEMES
from ..running.windows import next_token_loss
from .byte_pairs import byte_pairs_loss
from .data import Text, randomness
from .fitted import fitted
from .model import Decoder
from .run import RunConfig, check_text
from .tasks import DEPTHS, TASKS, accuracy, passkey_rows

FACTORS = (2, 4, 8)
TIMES = (1.0, 1.5, 2.0, 4.0, 8.0, 16.0)  # context lengths, in training lengths
AT_ONCE = 8192  # tokens of one forward pass
BINS = 64  # points of the curve over positions
BLOCKS = 64  # at most, of the held-out text
LONGEST = 2**20  # bytes of a context
TASK_SEED = 2**31  # far from the seeds of training
ROWS = 64  # questions of a task per length


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


def windows(text: Tensor, length: int, tokens: int, stride: int | None = None, longest: int = 0) -> Iterator[Tensor]:
    """Batches of windows ``[n, length + 1]`` (inputs and targets, shifted by one) over the same scored tokens.

    Without ``stride`` windows tile the first ``tokens`` bytes, and every token is scored; the last window may reach
    beyond them, and has the last byte again where the text ends before it does. With ``stride``, a window starts every
    ``stride`` bytes and only its last ``stride`` tokens are scored; all lengths score the ``tokens`` bytes that follow
    the first ``longest - stride``.
    """
    step = stride or length
    first = max(longest, length) - length if stride else 0
    starts = torch.arange(first, first + tokens, step)
    for some in starts.split(max(1, AT_ONCE // length)):
        yield text[(some[:, None] + torch.arange(length + 1)).clamp(max=len(text) - 1)].long()


@torch.no_grad()
def token_losses(
    model: Decoder,
    text: Tensor,
    length: int,
    tokens: int,
    *,
    stride: int | None = None,
    longest: int = 0,
    rotary: RotarySpec | None = None,
) -> Tensor:
    """Loss in nats of every token, float64 ``[windows, length]``, or ``[windows, stride]``, in the order of the text.

    The first ``tokens`` of them are scored; the last window may have some more.
    """
    losses = []
    for rows in windows(text, length, tokens, stride, longest):
        loss = next_token_loss(model(rows[:, :-1], rotary=rotary), rows)
        losses.append(loss[:, -(stride or length) :].double())
    return torch.cat(losses)


def evaluate(
    model: Decoder,
    config: RunConfig,
    text: Text | None = None,
    *,
    times: Sequence[float] = TIMES,
    tokens: int = 65_536,
    stride: int | None = None,
) -> dict[str, Any]:
    """Loss (or, for a task, accuracy) at ``times`` the training length, as plain JSON data with its protocol.

    About ``tokens`` held-out bytes are scored, the same ones at every length. A length that an encoding cannot reach
    (learned vectors end with the training length) has no number but a reason.
    """
    lengths = lengths_of(config.model.length, times)
    if config.task != "text":
        return _evaluate_task(model, config, lengths)
    check_text(config, text)
    assert text is not None
    tokens = check_budget(text, lengths[-1], tokens, stride)
    scored = text.held_out_sample(tokens + 1 + (lengths[-1] - stride if stride else 0))
    by_length: list[dict[str, Any]] = []
    by_position = None
    for length in lengths:
        try:
            losses = token_losses(model, scored, length, tokens, stride=stride, longest=lengths[-1])
        except ValueError as error:
            by_length.append({"length": length, "loss": None, "reason": str(error)})
            continue
        by_length.append({"length": length, **summary(losses.flatten()[:tokens], lengths[-1])})
        full = losses[: tokens // length]  # the last window may reach beyond the text
        by_position = None if stride else {"length": length, **_binned(full.mean(0), max(1, lengths[-1] // BINS))}
    return {
        "task": "text",
        "protocol": protocol(tokens, stride),
        "unit": "nats per byte",
        "trained_length": config.model.length,
        **_training(model, config, text, scored[: tokens + 1]),
        "tokens": tokens,
        "by_length": by_length,
        "by_position": by_position,
    }


def _training(model: Decoder, config: RunConfig, text: Text, scored: Tensor) -> dict[str, float]:
    """The loss at the trained length, and that of counted pairs of bytes on the same text: was it trained enough?"""
    tokens = len(scored) - 1
    loss = token_losses(model, scored, config.model.length, tokens).flatten()[:tokens].mean()
    return {"trained_loss": float(loss), "byte_pairs_loss": byte_pairs_loss(text.train, scored)}


def check_budget(text: Text, longest: int, tokens: int, stride: int | None = None) -> int:
    """``tokens`` rounded so that windows of the longest length fit evenly and inside the held-out text."""
    whole("tokens", tokens)
    if stride is not None:
        whole("stride", stride)
    unit, lead = (stride, longest - stride) if stride else (longest, 0)
    room = (len(text.held_out) - 1 - lead) // unit
    if room < 1 or lead < 0:
        raise ValueError(
            f"the held-out text (the last tenth of each file, {len(text.held_out)} bytes) must hold one window of "
            f"{longest} bytes"
            + (f" with a stride of at most that, got {stride}" if stride else "")
            + "; give more text or smaller lengths"
        )
    return unit * min(room, max(1, tokens // unit))


def protocol(tokens: int, stride: int | None) -> str:
    """In words, what the numbers mean."""
    how = (
        f"windows of the context length start every {stride} bytes and their last {stride} bytes are scored"
        if stride
        else "windows of the context length do not overlap, and every byte is scored with what its window has before it"
    )
    of = f"The same {tokens:,} held-out bytes (from the last tenth of each file, in proportion)"
    return f"{of} at every context length; {how}."


def summary(losses: Tensor, longest: int) -> dict[str, Any]:
    """The mean ``loss`` of scored tokens, and that of ``blocks`` of the text, the same bytes at every length.

    A block is ``longest`` bytes (or more, so that there are at most `BLOCKS`): neighbouring bytes are not independent,
    blocks nearly are. What is left at the end is no block.
    """
    flat = losses.flatten()
    size = longest * max(1, -(-len(flat) // (longest * BLOCKS)))
    whole_blocks = flat[: len(flat) // size * size].view(-1, size)
    return {"loss": float(flat.mean()), "blocks": whole_blocks.mean(1).tolist()}


def _binned(by_position: Tensor, size: int) -> dict[str, list[float]]:
    bins = by_position.split(size)
    return {
        "position": [i * size + (len(b) - 1) / 2 for i, b in enumerate(bins)],
        "loss": [float(b.mean()) for b in bins],
    }


@torch.no_grad()
def _evaluate_task(model: Decoder, config: RunConfig, lengths: list[int]) -> dict[str, Any]:
    results: list[dict[str, Any]] = []
    for length in lengths:
        try:
            if config.task == "passkey":
                results += [{"length": length, "depth": d, **_score(model, config.task, length, d)} for d in DEPTHS]
            else:
                results.append({"length": length, **_score(model, config.task, length)})
        except ValueError as error:
            results.append({"length": length, "accuracy": None, "exact": None, "reason": str(error)})
    return {
        "task": config.task,
        "protocol": f"{ROWS} fresh questions per length"
        + (" and depth" if config.task == "passkey" else "")
        + "; accuracy is per answer byte, each given the true bytes before it; exact is whole answers.",
        "unit": "share right",
        "trained_length": config.model.length,
        "by_length": results,
    }


def _score(model: Decoder, task: str, length: int, depth: float | None = None) -> dict[str, float]:
    rng = randomness(TASK_SEED, length)
    rows = TASKS[task](rng, ROWS, length) if depth is None else passkey_rows(rng, ROWS, length, depth)
    each = max(1, AT_ONCE // length)
    logits = torch.cat([model(tokens) for tokens in rows[0].split(each)])
    per_byte, exact = accuracy(logits, rows[1])
    return {"accuracy": per_byte, "exact": exact}


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

    ``table`` has one row per scheme and factor; ``curves`` the loss over all lengths with the largest factor. The
    length-dependent schemes (dynamic, stepped_ntk) follow the length of the window, so stepped_ntk ignores the factor;
    dynamic takes it as config files state it: at ``factor`` times the length, NTK by ``factor**2 - factor + 1``.
    ``"fitted"`` is searched for each model and factor above 1 on the text that it was trained on (`phasor_lab.fit`).

    Raises ``ValueError`` for a model that is not rotary or not trained on text.
    """
    if config.model.rotary_spec is None:
        raise ValueError(f"run must be of a rotary model to be extended, got {config.model.encoding}")
    if config.task != "text":
        raise ValueError(f"run must be of the task text to be extended, got {config.task}")
    for name in schemes:
        if name not in (*SCHEMES, FITTED):
            raise ValueError(f"scheme must be one of {', '.join((*SCHEMES, FITTED))}, got {name!r}")
    if not factors or not all(isinstance(f, int) and f >= 1 for f in factors):
        raise ValueError(f"factors must be integers of at least 1, got {list(factors)}")
    check_text(config, text)
    trained = config.model.length
    lengths = lengths_of(trained, (1, *factors))
    tokens = check_budget(text, lengths[-1], tokens)
    scored = text.held_out_sample(tokens + 1)

    own: RotarySpec = config.model.rotary_spec

    @cache
    def scaling(scheme: str, factor: int) -> Scaling | None:
        if scheme != FITTED:
            return SCHEMES[scheme](factor, trained)
        return fitted(model, text.train, factor) if factor > 1 else None

    @cache
    def measured(scheme: str, factor: int, length: int) -> dict[str, Any]:
        spec = own.replace(scaling=scaling(scheme, factor))
        losses = token_losses(model, scored, length, tokens, rotary=spec)
        return summary(losses.flatten()[:tokens], lengths[-1])

    def row(scheme: str, factor: int, length: int) -> dict[str, Any]:
        return {"scheme": scheme, "factor": factor, "length": length, **measured(scheme, factor, length)}

    table = [row(s, f, f * trained) for s in schemes for f in factors]
    curves = [row(s, max(factors), length) for s in schemes for length in lengths]
    return {
        "protocol": protocol(tokens, None) + " No fine-tuning: only the rotation changes.",
        "unit": "nats per byte",
        "trained_length": trained,
        **_training(model, config, text, scored),
        "tokens": tokens,
        "table": table,
        "curves": curves,
    }
