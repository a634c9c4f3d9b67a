"""`rank_readings` and `by_text`: the readings of weights, tried on a text."""

from pathlib import Path
from typing import Any

from torch import Tensor

from ....positions.tensor_checks import integers
from ....support.checks import whole
from ...checkpoints.formats import read
from ...patch.sites import has_config
from .losses import at_least
from .ranking import Ranking, ranked
from .readings import around, in_words
from .tokens import token_windows, tokens_of
from .weights import LoadedWeights

ROUNDS = 3
FIRST = 6  # windows that every reading is tried on
FAR = 0.1  # nats behind the best one, after which the other windows are not tried
FEWEST = 8


def rank_readings(model: Any, windows: Tensor, *, rounds: int = ROUNDS) -> Ranking:
    """Which encoding the weights of a model were trained with: its loss on a text under plausible readings.

    ``model``: a transformers model for text, whose config and weights are taken (what was changed in it after it was
    loaded plays no part). ``windows`` ``[n, L + 1]``: at least 8 pieces of text, tokens of the kind that it was trained
    on, not longer than it was trained for. Tried are the stated reading and others: the base 4 times away and farther,
    as most models have it; no scaling, or another scheme or factor (twice, half and more); the other pair layout; part
    of the channels. A round tries these around the best one so far, at most ``rounds`` times, so two mistakes at once
    are found too. Each reading is a model of its own, which transformers builds from a config that says it; what the
    config cannot say is left out, with the reason.

    Nothing closer is tried: a base off by less than 4 times, or a factor below 2, cannot be told from the stated one.
    The model stays as it is; the other models share its weights, so memory grows by q and k and one batch of logits.
    Raises ``ValueError`` for windows that are too few or that the model cannot read, and for a config that is not read.

    Example::

        print(rank_readings(model, windows))
    """
    if not has_config(model):
        raise ValueError(
            f"model must be a transformers model (a torch module with a config), got {type(model).__name__}"
        )
    whole("rounds", rounds)
    return _ranking(LoadedWeights.of_model(model), windows, rounds)


def by_text(model: Any, text: str | Path, *, tokenizer: Any = None, length: int | None = None) -> Ranking:
    """`rank_readings` on a file of text: ``model`` is a transformers model, or a checkpoint on disk in any format.

    The tokenizer is that of the folder (of a live model: the one that it was loaded from); a model of 256 tokens that
    has none reads bytes. ``length`` of the windows: 512, or less where the model or the text is shorter; longer ones
    tell slower pairs apart. Raises ``ValueError`` for a file that is no text or too short, and a missing tokenizer.

    Example::

        print(by_text("model-folder", "book.txt"))
    """
    if isinstance(model, str | Path):
        source = read(Path(model))
        weights, folder = LoadedWeights.of_source(source), source.path
    elif has_config(model):
        weights, folder = LoadedWeights.of_model(model), Path(getattr(model.config, "_name_or_path", "") or "no folder")
    else:
        raise ValueError(f"model must be a transformers model or the path of a checkpoint, got {type(model).__name__}")
    tokens = tokens_of(Path(text), folder, weights.config, tokenizer)
    longest = min(length or 512, weights.stated.rotary.max_position or 512)
    return _ranking(weights, token_windows(tokens, longest, FEWEST), ROUNDS)


def _ranking(weights: LoadedWeights, windows: Tensor, rounds: int) -> Ranking:
    windows = _checked(windows, weights)
    stated = in_words(weights.stated, weights.stated)
    losses = {stated: weights.losses(weights.stated, windows)}
    best, tried = weights.stated, {stated: weights.stated}
    left_out = {"the other pair layout": weights.why} if weights.why else {}
    for _ in range(rounds):
        for reading in around(best):
            name = in_words(reading, weights.stated)
            if name in tried:
                continue
            tried[name] = reading
            try:
                losses[name] = weights.losses(reading, windows[:FIRST])
            except ValueError as error:
                left_out[name] = str(error).partition("; ")[0]
        for name in _near(losses):
            if len(losses[name]) < len(windows):
                losses[name] = weights.losses(tried[name], windows)
        ranking = ranked(losses, stated, left_out, weights.words)
        if tried[ranking.best] == best or not ranking.knows:  # losses of a model that knows nothing lead nowhere
            break
        best = tried[ranking.best]
    return ranking


def _near(losses: dict[str, Tensor]) -> list[str]:
    """Those that the first windows do not tell from the best by far."""
    first = {name: own[:FIRST].mean(1).numpy() for name, own in losses.items()}
    best = min(first, key=lambda name: float(first[name].mean()))
    return [name for name, own in first.items() if not at_least(own - first[best]) > FAR]


def _checked(windows: Tensor, weights: LoadedWeights) -> Tensor:
    tokens = integers("windows", windows, 2, "[windows, tokens]")
    if len(tokens) < FEWEST or tokens.shape[1] < 3:
        raise ValueError(f"windows must be at least {FEWEST} of at least 3 tokens, got {list(tokens.shape)}")
    vocabulary = next((t.shape[0] for name, t in weights.state.items() if name.endswith("embed_tokens.weight")), None)
    if tokens.min() < 0 or (vocabulary is not None and tokens.max() >= vocabulary):
        raise ValueError(f"windows must hold tokens below {vocabulary}, got {int(tokens.min())} to {int(tokens.max())}")
    return tokens.cpu()
