"""`fit`: searched divisors for a longer context, beside the known schemes, judged on text that was not searched on."""

import json
import math
import time
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
from ...support.processes import process_group
from ...support.whole_files import check_file_target, write_whole
from ..doctor.loading import load
from ..doctor.text.tokens import tokens_of
from .search import Candidate, search
from .tables import GivenTables, read_folder, windows_of

EVALUATIONS, PATIENCE = 220, 80
INSIDE = 0.5  # the weight of the loss at the trained length, beside that at the longer one
WINDOWS = 12  # of the text to fit on
JUDGED = 24  # of the other, at most
COMMON = 64  # tokens in a row, of which two texts may share
SHARED = 0.02  # of one of them: a heading or a formula


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
    def scaling(self) -> Scaling | None:
        """The divisors as a LongRoPE, which keeps the model's own frequencies up to the trained length.

        Where they do not better the best known scheme, that scheme; None where that is no scaling.
        """
        factor = self.length / self.trained
        if self.gain <= 0:
            return known_schemes(factor, self.trained)[self.best_known]
        return LongRoPE((1.0,) * len(self.divisors), self.divisors, self.trained, factor, attention=1.0)

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
            f"{abs(self.gain):.4f} nats {'better' if self.gain > 0 else 'worse'} than {self.best_known}"
            + ("" if self.gain > 0 else ": no gain")
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
    holdout: Tensor | None = None,
    trained: int | None = None,
    evaluations: int = EVALUATIONS,
    minutes: float = math.inf,
    inside: float = INSIDE,
    seed: int = 0,
    tell: Callable[[int, int, float], None] = lambda done, most, best: None,
) -> Fit:
    """The divisors that a model wants at ``length`` tokens, found by its loss on ``tokens`` ``[n]``.

    Every scheme for a longer context is a divisor per pair (and a factor on cos and sin); all but LongRoPE's are one
    formula for every model. Here they are searched for this model, beginning with the formulas, and judged on
    ``holdout`` (by default the second half of ``tokens``). What is searched for is the lowest loss at ``length`` plus
    ``inside`` times the loss at the trained length.

    - ``trained``: the length that it was trained for, by default the declared one.
    - ``evaluations``, ``minutes``: the search ends at whichever is first. Unless the minutes end it, a seed gives the
      same result again.
    - ``tell``: called with the evaluations done, the most there can be, and the best score so far.

    The model stays as it is. Under torchrun the processes share the windows, and all return the same.
    Raises ``ValueError`` for a length that is not above the trained one, texts that are too
    short or overlap (`SHARED`), and models whose rotation cannot be given (`GivenTables`).
    Source: LongRoPE, arXiv:2402.13753, section 3.2.

    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    >>> model = LlamaForCausalLM(LlamaConfig(**sizes, vocab_size=50, max_position_embeddings=16)).eval()
    >>> found = fit(model, torch.randint(50, (400,)), length=32, evaluations=5)  # the formulas alone
    >>> found.trained, found.length, found.tried, list(found.losses)
    (16, 32, 5, ['none', 'linear', 'ntk', 'yarn', 'llama3', 'fitted'])
    """
    for name, value in (("length", length), ("evaluations", evaluations)):
        whole(name, value)
    with process_group() as group:
        tables = GivenTables(model, group)
        trained = _trained(tables, trained, length)
        if holdout is None:
            half = len(tokens) // 2
            tokens, holdout = tokens[:half], tokens[half:]
        on, on_near = (windows_of("the text to fit on", tokens, n, WINDOWS) for n in (length, trained))
        judged, near = (windows_of("holdout", holdout, n, JUDGED) for n in (length, trained))
        _check_apart(on, judged)
        starts = {name: _divided(tables, scaling) for name, scaling in known_schemes(length / trained, trained).items()}
        tried, end = 0, time.monotonic() + 60 * minutes

        def score(divisors: tuple[float, ...]) -> float:
            nonlocal tried
            tried += 1
            with tables.given(tables.plain / torch.tensor(divisors, dtype=torch.float64)):
                return tables.loss(on) + (inside * tables.loss(on_near) if inside else 0.0)

        def more(done: int, best: Candidate) -> bool:
            tell(done, evaluations, best.score)
            return not group.total(torch.tensor(int(time.monotonic() >= end)))  # of any: all end together

        first = [divisors for divisors, _ in starts.values()]
        best = search(score, first, length / trained, budget=evaluations, patience=PATIENCE, seed=seed, more=more)
        losses, at_trained = {}, {}
        for name, (divisors, attention) in {**starts, "fitted": (best.divisors, 1.0)}.items():
            with tables.given(tables.plain / torch.tensor(divisors, dtype=torch.float64), attention):
                losses[name], at_trained[name] = tables.loss(judged), tables.loss(near)
    return Fit(trained, length, best.divisors, losses, at_trained, tried, len(judged), seed)


def _trained(tables: GivenTables, trained: int | None, length: int) -> int:
    """The length that the model was trained for, which must be below the one to reach."""
    trained = trained or tables.rotary.max_position
    if not trained:
        raise ValueError("trained is missing: the config declares no length")
    whole("trained", trained)
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

    ``out``: where the model's config is written with the scaling that was found.
    """
    folder = Path(folder)
    if out is not None:
        check_file_target("out", Path(out))
    config = read_folder(folder)
    tokens = tokens_of(Path(text), folder, config)
    other = None if holdout is None else tokens_of(Path(holdout), folder, config)
    with process_group() as group:
        found = fit(load(folder), tokens, holdout=other, **options)
        if out is None or not group.first:
            return found
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


def _divided(tables: GivenTables, scaling: Scaling | None) -> tuple[tuple[float, ...], float]:
    spec: RotarySpec = tables.spec.replace(scaling=scaling)
    divisors = tables.plain / spec.inv_freq()
    return tuple(divisors.tolist()), spec.attention_factor()


def _check_apart(one: Tensor, other: Tensor) -> None:
    """A loss on what was searched on shows nothing: at most `SHARED` of one text's pieces may stand in the other."""
    step = min(COMMON, one.shape[1] // 2)
    known = {tuple(row) for window in one.tolist() for row in zip(*(window[i:] for i in range(step)), strict=False)}
    pieces = [tuple(window[i : i + step]) for window in other.tolist() for i in range(0, len(window) - step, step)]
    both = sum(piece in known for piece in pieces)
    if both > SHARED * len(pieces):
        raise ValueError(
            f"holdout must be other text than the one to fit on, and {both} of {len(pieces)} pieces of {step} tokens "
            "stand in both"
        )
