"""`fit`: searched divisors for a longer context, beside the known schemes, judged on text that was not searched on."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from phasor.support.checks import number, whole
from phasor.support.number_text import size_text
from phasor.support.whole_files import check_file_target, write_whole
from phasor.tools.doctor.loading import load
from phasor.tools.doctor.memory import free_memory
from phasor.tools.doctor.text.tokens import tokens_of

from ..running.model import RunningModel
from ..running.windows import ShortText, read_folder, windows_of
from .descent import descend
from .holdout import check_apart
from .loss import DivisorLoss
from .objective import Objective
from .result import FITTED, Fit, written
from .schemes import SCHEMES, divided

EVALUATIONS = 120
JUDGED = 24  # windows of the other text, at most
LARGEST_FACTOR = 100.0  # on cos and sin: of much larger ones no softmax makes a number
LARGER = "fit it on a machine with more"
FEWEST = len(SCHEMES) + 1  # evaluations: the formulas, and the end of the search


def fit(
    model: nn.Module,
    tokens: Tensor,
    *,
    length: int,
    holdout: Tensor | None = None,
    trained: int | None = None,
    evaluations: int = EVALUATIONS,
    attention: float | None = None,
    seed: int = 0,
    tell: Callable[[int, int], None] = lambda done, most: None,
) -> Fit:
    """Search the divisors of a model's frequencies with the lowest loss at ``length`` tokens, on ``tokens`` ``[n]``.

    Every scheme for a longer context is a divisor per pair (and a factor on cos and sin); all but LongRoPE's are one
    formula for every model. Here they are searched for this model: from the best formula downhill, by the gradient of
    the loss, and judged on ``holdout`` (by default the second half of ``tokens``). What is searched for is the lowest
    loss at ``length`` plus `INSIDE` times the loss at the trained length.

    - ``trained``: the length that it was trained for, by default the declared one.
    - ``attention``: the factor on cos and sin, at every length; None: that of LongRoPE's formula, the only one that
      every engine takes (`phasor.plan`). With 1.0, texts of up to the trained length are left as they are.
    - ``evaluations``: how often the loss is evaluated. A ``seed`` gives the same result again.
    - ``tell``: called with the evaluations done and the most there can be.

    The model stays as it is.
    Raises ``ValueError`` for a length that is not above the trained one, texts that are too short or overlap
    (`check_apart`), a model in training mode, and one whose frequencies cannot be replaced (`RunningModel`,
    `DivisorLoss`).
    Source: divisors per pair: LongRoPE, arXiv:2402.13753, section 3 (which searches them by evolution).

    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    >>> model = LlamaForCausalLM(LlamaConfig(**sizes, vocab_size=50, max_position_embeddings=16)).eval()
    >>> fitted = fit(model, torch.randint(50, (400,)), length=32, evaluations=12)
    >>> fitted.trained, fitted.length, fitted.tried, len(fitted.losses)
    (16, 32, 12, 10)
    """
    whole("length", length)
    whole("evaluations", evaluations, at_least=FEWEST)
    loss = DivisorLoss(RunningModel(model))
    trained = _trained(loss.model, trained, length)
    _check_room(model, length)
    if holdout is None:
        half = len(tokens) // 2
        tokens, holdout = tokens[:half], tokens[half:]
    factor = _attention(attention, length, trained)
    aim = Objective(loss, tokens, length, trained, factor, seed, lambda done: tell(done, evaluations))
    judged, near = (windows_of("holdout", holdout, n, JUDGED) for n in (length, trained))
    check_apart(tokens, judged)
    known = {name: divided(loss.spec, name, trained, length) for name in SCHEMES}
    best = _search(aim, [divisors for divisors, _ in known.values()], evaluations - FEWEST)
    losses, at_trained = {}, {}
    for name, (divisors, by) in {**known, FITTED: (best, factor)}.items():
        losses[name], at_trained[name] = loss.at(judged, divisors, by), loss.at(near, divisors, by)
    short = loss.at(near, torch.ones_like(best), factor)
    plain = {name: (tuple(divisors.tolist()), by) for name, (divisors, by) in known.items()}
    return Fit(
        trained, length, tuple(best.tolist()), factor, losses, at_trained, short, plain, aim.tried, len(judged), seed
    )


def _search(aim: Objective, formulas: list[Tensor], steps: int) -> Tensor:
    """The divisors with the lowest score: of the best formula, or where the way downhill from it ends."""
    scores = [aim.score(divisors) for divisors in formulas]
    lowest = min(scores)
    start = formulas[scores.index(lowest)]
    waves = 2 * math.pi / aim.loss.plain
    end = descend(aim.gradient, start, waves, aim.trained, aim.length / aim.trained, steps=steps)
    return end if aim.score(end) < lowest else start


def _check_room(model: nn.Module, length: int) -> None:
    """Raise ``ValueError`` where the logits of one window alone, their float32 copy and its gradient do not fit."""
    head: Any = getattr(model, "get_output_embeddings", lambda: None)()
    free = free_memory() if head is not None and head.weight.device.type == "cpu" else None
    needed = 0 if head is None else 3 * 4 * length * head.weight.shape[0]
    if free is not None and needed > free:
        raise ValueError(
            f"length {length} takes at least {size_text(needed)} for the logits of one window, and {size_text(free)} "
            f"of memory are free; take a shorter one, or {LARGER}"
        )


def _attention(attention: float | None, length: int, trained: int) -> float:
    """The factor on cos and sin; None: the one of LongRoPE's formula."""
    if attention is None:
        return math.sqrt(1 + math.log(length / trained) / math.log(trained))
    number("attention", attention, above=0)
    if attention > LARGEST_FACTOR:
        raise ValueError(f"attention must be at most {LARGEST_FACTOR:g}, got {attention:g}; the formulas give 1 to 3")
    return attention


def _trained(model: RunningModel, trained: int | None, length: int) -> int:
    """The length that the model was trained for, which must be below the one to reach."""
    trained = trained or model.rotary.max_position
    if not trained:
        raise ValueError("trained is missing: the config declares no length")
    whole("trained", trained, at_least=2)
    if length <= trained:
        raise ValueError(f"length must be above the trained one, {trained}, got {length}; a shorter one needs no fit")
    return trained


def fit_folder(
    folder: str | Path,
    text: str | Path,
    out: str | Path | None = None,
    *,
    holdout: str | Path | None = None,
    **options: Any,
) -> Fit:
    """`fit` of a folder with a transformers model and its tokenizer, on files of text.

    ``out``: where the model's config is written with the scaling that was found.
    """
    folder = Path(folder)
    if out is not None:
        check_file_target("out", Path(out))
    config = read_folder(folder)
    tokens = tokens_of(Path(text), folder, config)
    other = None if holdout is None else tokens_of(Path(holdout), folder, config)
    try:
        fitted = fit(load(folder, way_out=LARGER), tokens, holdout=other, **options)
    except ShortText as error:
        files = text if holdout is None else f"{text}, {holdout}"
        raise ValueError(f"{files}: {error}") from None
    if out is not None:
        write_whole(Path(out), (json.dumps(written(fitted, config), indent=2) + "\n").encode())
    return fitted
