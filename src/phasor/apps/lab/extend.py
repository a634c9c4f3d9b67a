"""Zero-shot extension: a trained rotary model with its rotation rescaled, and nothing else changed."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from ...rotary.scaling import NTK, DynamicNTK, Linear, Llama3, NTKFixed, Scaling, SteppedNTK, YaRN, YaRNPaper
from .data import Text
from .evaluate import check_budget, lengths_of, protocol, summary, token_losses
from .model import Decoder
from .run import RunConfig, check_text

FACTORS = (2, 4, 8)

# scheme -> its scaling for (factor, trained length). LongRoPE is absent: its divisors come out of a search for each
# model, and dividing by made-up ones would measure nothing.
SCHEMES: dict[str, Callable[[int, int], Scaling | None]] = {
    "none": lambda factor, trained: None,
    "linear": lambda factor, trained: Linear(float(factor)),
    "ntk": lambda factor, trained: NTK(float(factor)),
    "ntk_fixed": lambda factor, trained: NTKFixed(float(factor)),
    "dynamic": lambda factor, trained: DynamicNTK(float(factor), trained),
    "stepped_ntk": lambda factor, trained: SteppedNTK(trained),
    "yarn": lambda factor, trained: YaRN(float(factor), trained),
    "yarn_paper": lambda factor, trained: YaRNPaper(float(factor), trained),
    "llama3": lambda factor, trained: Llama3(float(factor), 1.0, 4.0, trained),
}


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

    Raises ``ValueError`` for a model that is not rotary or not trained on text.
    """
    if config.model.rotary_spec is None:
        raise ValueError(f"run must be of a rotary model to be extended, got {config.model.encoding}")
    if config.task != "text":
        raise ValueError(f"run must be of the task text to be extended, got {config.task}")
    for name in schemes:
        if name not in SCHEMES:
            raise ValueError(f"scheme must be one of {', '.join(SCHEMES)}, got {name!r}")
    if not factors or not all(isinstance(f, int) and f >= 1 for f in factors):
        raise ValueError(f"factors must be integers of at least 1, got {list(factors)}")
    check_text(config, text)
    trained = config.model.length
    lengths = lengths_of(trained, (1, *factors))
    tokens = check_budget(text, lengths[-1], tokens)
    scored = text.held_out_sample(tokens + 1)

    @cache
    def measured(scheme: str, factor: int, length: int) -> dict[str, Any]:
        assert config.model.rotary_spec is not None
        spec = config.model.rotary_spec.replace(scaling=SCHEMES[scheme](factor, trained))
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
        "tokens": tokens,
        "table": table,
        "curves": curves,
    }
