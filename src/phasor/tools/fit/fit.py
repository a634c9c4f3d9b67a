"""`fit`: searched divisors for a longer context, beside the known schemes, judged on text that was not searched on."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...models.configs import read_config, write_config
from ...rotary.scaling import NTK, Linear, Llama3, LongRoPE, Scaling, YaRN
from ...rotary.spec import RotarySpec
from ...support.checks import whole
from ...support.whole_files import check_file_target, write_whole
from ..checkpoints.opening import read_json
from ..doctor.loading import load
from ..doctor.text.tokens import tokens_of
from .search import Candidate, search
from .tables import Tables, windows_of

BUDGET, PATIENCE = 220, 80
WINDOWS = 12  # of the text to fit on
JUDGED = 24  # of the other, at most
COMMON = 64  # tokens that two texts may not have in a row


@dataclass(frozen=True)
class Fit:
    """What was found for ``length`` tokens, of a model trained for ``trained``.

    - ``divisors`` of the frequencies: as a `LongRoPE` scaling that switches above the trained length (``scaling``).
    - ``losses``: name -> nats per token at ``length``, on the text that was not searched on: ``"none"``, the known
      schemes, and ``"fitted"``; ``inside``: the same at the trained length, with the frequencies for the longer one.
    - ``tried``: candidates; ``windows``: of the judged text.
    """

    trained: int
    length: int
    divisors: tuple[float, ...]
    losses: dict[str, float]
    inside: dict[str, float]
    tried: int
    windows: int
    seed: int

    @property
    def scaling(self) -> LongRoPE:
        """Short sequences keep the model's own frequencies, longer ones have the divisors."""
        ones = (1.0,) * len(self.divisors)
        return LongRoPE(ones, self.divisors, self.trained, self.length / self.trained, attention=1.0)

    @property
    def best_known(self) -> str:
        """The best of the schemes that are not searched."""
        return min((name for name in self.losses if name != "fitted"), key=self.losses.__getitem__)

    @property
    def gain(self) -> float:
        """Nats by which it is better than the best known scheme; negative where it is worse."""
        return self.losses[self.best_known] - self.losses["fitted"]

    def __str__(self) -> str:
        lines = [f"{'scheme':<12}{f'at {self.length:,}':>14}{f'at {self.trained:,}':>14}   nats per token"]
        for name, loss in sorted(self.losses.items(), key=lambda item: item[1]):
            lines.append(f"{name:<12}{loss:>14.4f}{self.inside[name]:>14.4f}")
        lines.append(
            f"{self.tried} tried (seed {self.seed}); judged on {self.windows} windows of other text: "
            f"{self.gain:+.4f} nats better than {self.best_known}"
        )
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {**vars(self), "divisors": list(self.divisors), "best_known": self.best_known, "gain": self.gain}


def fit(
    model: nn.Module,
    tokens: Tensor,
    *,
    length: int,
    test: Tensor | None = None,
    trained: int | None = None,
    budget: int = BUDGET,
    seed: int = 0,
    tell: Callable[[int, int, float], None] = lambda done, budget, best: None,
) -> Fit:
    """The divisors that a model wants at ``length`` tokens, found by its loss on ``tokens`` ``[n]``.

    Every scheme for a longer context is a divisor per pair (and a factor on cos and sin); all but LongRoPE's are one
    formula for every model. Here they are searched for this model, beginning with the formulas, and judged on ``test``
    (by default the second half of ``tokens``). ``trained``: the length that it was trained for, by default the declared
    one. ``tell``: called with the tries done, the budget, and the best loss so far. A seed gives the same result again.

    The model stays as it is. Raises ``ValueError`` for a length that is not above the trained one, texts that are too
    short or share `COMMON` tokens in a row, and models whose rotation cannot be given (`Tables`).
    Source: LongRoPE, arXiv:2402.13753.
    """
    tables = Tables(model)
    trained = trained or tables.rotary.max_position
    if not trained:
        raise ValueError("trained is missing: the config declares no length")
    for name, value in (("length", length), ("trained", trained), ("budget", budget)):
        whole(name, value)
    if length <= trained:
        raise ValueError(
            f"length must be above the trained one, {trained}, got {length}; the model reads that as it is"
        )
    if test is None:
        half = len(tokens) // 2
        tokens, test = tokens[:half], tokens[half:]
    on, judged = (
        windows_of("the text to fit on", tokens, length, WINDOWS),
        windows_of("the test text", test, length, JUDGED),
    )
    _check_apart(on, judged)
    starts = {name: _divided(tables, scaling) for name, scaling in known_schemes(length / trained, trained).items()}

    tried = 0

    def score(divisors: tuple[float, ...]) -> float:
        nonlocal tried
        tried += 1
        with tables.given(tables.plain / torch.tensor(divisors, dtype=torch.float64)):
            return tables.loss(on)

    def said(done: int, best: Candidate) -> None:
        tell(done, budget, best.score)

    first = [divisors for divisors, _ in starts.values()]
    best = search(score, first, length / trained, budget=budget, patience=PATIENCE, seed=seed, tell=said)
    near = windows_of("the test text", test, trained, JUDGED)
    found = {**starts, "fitted": (best.divisors, 1.0)}
    losses, inside = {}, {}
    for name, (divisors, attention) in found.items():
        with tables.given(tables.plain / torch.tensor(divisors, dtype=torch.float64), attention):
            losses[name], inside[name] = tables.loss(judged), tables.loss(near)
    return Fit(trained, length, best.divisors, losses, inside, tried, len(judged), seed)


def fit_folder(
    folder: str | Path,
    text: str | Path,
    out: str | Path | None = None,
    *,
    test: str | Path | None = None,
    **options: Any,
) -> Fit:
    """`fit` of a folder with a transformers model and its tokenizer, on files of text.

    ``out``: where the model's config is written with the scaling that was found.
    """
    folder = Path(folder)
    if out is not None:
        check_file_target("out", Path(out))
    config = read_json(folder / "config.json")
    tokens = tokens_of(Path(text), folder, config)
    other = None if test is None else tokens_of(Path(test), folder, config)
    found = fit(load(folder), tokens, test=other, **options)
    if out is not None:
        write_whole(Path(out), (json.dumps(written(found, config), indent=2) + "\n").encode())
    return found


def written(found: Fit, config: dict[str, Any]) -> dict[str, Any]:
    """A config with the scaling that was found, for the length that it was found for."""
    model = read_config(config)
    layers = tuple(None if s is None else s.replace(scaling=found.scaling) for s in model.layers)
    made = write_config(replace(model, layers=layers), like=config)
    return {**made, "max_position_embeddings": found.length}


def known_schemes(factor: float, trained: int) -> dict[str, Scaling | None]:
    """The static schemes that are one formula for every model, at one stretch."""
    return {
        "none": None, "linear": Linear(factor), "ntk": NTK(factor), "yarn": YaRN(factor, trained),
        "llama3": Llama3(factor, 1.0, 4.0, trained),
    }  # fmt: skip


def _divided(tables: Tables, scaling: Scaling | None) -> tuple[tuple[float, ...], float]:
    spec: RotarySpec = tables.spec.replace(scaling=scaling)
    divisors = tables.plain / spec.inv_freq()
    return tuple(divisors.tolist()), spec.attention_factor()


def _check_apart(one: Tensor, other: Tensor) -> None:
    """No piece of `COMMON` tokens stands in both: a loss on what was searched on shows nothing."""
    step = min(COMMON, one.shape[1] // 2)
    pieces = {tuple(row) for window in one.tolist() for row in zip(*(window[i:] for i in range(step)), strict=False)}
    for window in other.tolist():
        for start in range(0, len(window) - step, step):
            if tuple(window[start : start + step]) in pieces:
                raise ValueError(
                    f"test must be other text than the one to fit on, and both hold the same {step} tokens"
                )
