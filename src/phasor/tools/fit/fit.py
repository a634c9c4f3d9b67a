"""`fit`: searched divisors for a longer context, beside the known schemes, judged on text that was not searched on."""

import json
import math
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...support.checks import number, whole
from ...support.processes import process_group
from ...support.whole_files import check_file_target, write_whole
from ..doctor.loading import load
from ..doctor.text.tokens import tokens_of
from .apart import check_apart
from .descent import descend
from .journal import Journal
from .known import SCHEMES, divided
from .result import FITTED, Fit, written
from .tables import GivenTables, read_folder, windows_of

EVALUATIONS = 150
INSIDE = 0.1  # the weight of the loss at the trained length, beside that at the longer one
WINDOWS = 12  # of the text to fit on, for the formulas and the end of the search
JUDGED = 24  # of the other, at most
FAR, NEAR = 2048, 1024  # tokens of one step of the search, in windows of either length


def fit(
    model: nn.Module,
    tokens: Tensor,
    *,
    length: int,
    holdout: Tensor | None = None,
    trained: int | None = None,
    evaluations: int = EVALUATIONS,
    minutes: float = math.inf,
    inside: float = INSIDE,
    attention: float | None = 1.0,
    seed: int = 0,
    journal: Path | None = None,
    tell: Callable[[int, int], None] = lambda done, most: None,
) -> Fit:
    """The divisors that a model wants at ``length`` tokens, found by its loss on ``tokens`` ``[n]``.

    Every scheme for a longer context is a divisor per pair (and a factor on cos and sin); all but LongRoPE's are one
    formula for every model. Here they are searched for this model: from the best formula downhill, by the gradient of
    the loss, and judged on ``holdout`` (by default the second half of ``tokens``). What is searched for is the lowest
    loss at ``length`` plus ``inside`` times the loss at the trained length.

    - ``trained``: the length that it was trained for, by default the declared one.
    - ``attention``: the factor on cos and sin; None: that of LongRoPE's formula, which some engines take whatever a
      config states.
    - ``evaluations``, ``minutes``: the search ends at whichever is first. Unless the minutes end it, a seed gives the
      same result again.
    - ``journal``: a file that gets the value of every evaluation. A call that finds one goes on from its end, with the
      same result; at the end it is deleted.
    - ``tell``: called with the evaluations done and the most there can be.

    The model stays as it is. Under torchrun the processes share the windows, and all return the same.
    Raises ``ValueError`` for a length that is not above the trained one, texts that are too short or overlap
    (`check_apart`), a journal of another search, and models whose rotation cannot be given (`GivenTables`).
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
    number("inside", inside, at_least=0)
    with process_group() as group, Journal.at(journal, group) as kept:
        tables = GivenTables(model, group)
        trained = _trained(tables, trained, length)
        if holdout is None:
            half = len(tokens) // 2
            tokens, holdout = tokens[:half], tokens[half:]
        on, on_near = (windows_of("the text to fit on", tokens, n, WINDOWS) for n in (length, trained))
        judged, near = (windows_of("holdout", holdout, n, JUDGED) for n in (length, trained))
        check_apart(tokens, judged)
        factor = _attention(attention, length, trained)
        known = {name: divided(tables.spec, name, trained, length) for name in SCHEMES}
        tried, end = 0, time.monotonic() + 60 * minutes

        def value(divisors: Tensor, compute: Callable[[], Tensor]) -> Tensor:
            nonlocal tried
            tried += 1
            tell(tried, evaluations)
            if kept is None:
                return compute()
            data = kept.value(divisors.tolist(), lambda: compute().tolist())
            return torch.tensor(data, dtype=torch.float64)

        def score(divisors: Tensor) -> float:
            def both() -> Tensor:
                with tables.given(tables.plain / divisors, factor):
                    loss = tables.loss(on) + (inside * tables.loss(on_near) if inside else 0.0)
                return torch.tensor([loss], dtype=torch.float64)

            return float(value(divisors, both))

        def gradient(step: int, logarithms: Tensor) -> Tensor:
            dice = random.Random(f"{seed} {step}")

            def both() -> Tensor:
                slope = tables.gradient(some_windows(tokens, length, FAR, dice), logarithms, factor)
                if inside:
                    slope = slope + inside * tables.gradient(some_windows(tokens, trained, NEAR, dice), logarithms, factor)
                return slope

            return value(logarithms, both)

        def more(_: int) -> bool:
            return not group.total(torch.tensor(int(time.monotonic() >= end)))  # of any: all end together

        scores = {name: score(divisors) for name, (divisors, _) in known.items()}
        start = known[min(scores, key=scores.__getitem__)][0]
        waves = 2 * math.pi / tables.plain
        steps = evaluations - FEWEST
        best = descend(gradient, start, waves, trained, length / trained, steps=steps, more=more)
        if not score(best) < min(scores.values()):
            best = start
        losses, at_trained = {}, {}
        for name, (divisors, by) in {**known, FITTED: (best, factor)}.items():
            with tables.given(tables.plain / divisors, by):
                losses[name], at_trained[name] = tables.loss(judged), tables.loss(near)
        with tables.given(tables.plain, factor):
            short = tables.loss(near)
    plain = {name: (tuple(divisors.tolist()), by) for name, (divisors, by) in known.items()}
    return Fit(
        trained, length, tuple(best.tolist()), factor, losses, at_trained, short, plain, tried, len(judged), seed
    )


FEWEST = len(SCHEMES) + 1  # evaluations: the formulas, and the end of the search


def some_windows(tokens: Tensor, length: int, count: int, dice: random.Random) -> Tensor:
    """Windows ``[n, length + 1]`` from random places, with about ``count`` tokens, two at least."""
    starts = [dice.randrange(len(tokens) - length) for _ in range(max(2, count // length))]
    return torch.stack([tokens[start : start + length + 1] for start in starts])


def _attention(attention: float | None, length: int, trained: int) -> float:
    """The factor on cos and sin; None: the one of LongRoPE's formula."""
    if attention is None:
        return math.sqrt(1 + math.log(length / trained) / math.log(trained))
    number("attention", attention, above=0)
    return attention


def _trained(tables: GivenTables, trained: int | None, length: int) -> int:
    """The length that the model was trained for, which must be below the one to reach."""
    trained = trained or tables.rotary.max_position
    if not trained:
        raise ValueError("trained is missing: the config declares no length")
    whole("trained", trained, at_least=2)
    if length <= trained:
        raise ValueError(
            f"length must be above the trained one, {trained}, got {length}; the model reads that as it is"
        )
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

    ``out``: where the model's config is written with the scaling that was found. Beside it stands a journal while the
    search runs (`journal_of`): a call that was killed, made again, goes on where it was.
    """
    folder = Path(folder)
    if out is not None:
        check_file_target("out", Path(out))
    config = read_folder(folder)
    tokens = tokens_of(Path(text), folder, config)
    other = None if holdout is None else tokens_of(Path(holdout), folder, config)
    with process_group() as group:
        fitted = fit(load(folder), tokens, holdout=other, journal=journal_of(out), **options)
        if out is not None and group.first:
            write_whole(Path(out), (json.dumps(written(fitted, config), indent=2) + "\n").encode())
    return fitted


def journal_of(out: str | Path | None) -> Path | None:
    """The journal beside a config that is to be written; None where it goes to a terminal or a pipe."""
    if out is None or (Path(out).exists() and not Path(out).is_file()):
        return None
    return Path(f"{out}.journal")
