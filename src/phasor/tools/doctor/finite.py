"""Logits that are no numbers: nothing can be said about positions then, and that is said first."""

from ...support.findings import Difference
from .measurement import Trial
from .report import Check
from .subject import Misuse

CAUSE = "logits are not finite"
WAY_OUT = "look for weights that were never loaded, and for values that overflow; then positions can be checked"


def not_finite(trial: Trial) -> Check | None:
    """The fault; None for logits that are numbers, and for a model that cannot be run, of which each law says why."""
    try:
        wrong = ~trial.finite
    except Misuse:
        raise
    except Exception:
        return None
    if not wrong.any():
        return None
    token = int(wrong.any(0).nonzero()[0])
    row = int(wrong[:, token].nonzero()[0])
    says = f"{int(wrong.sum())} of {wrong.numel()} tokens have logits that are no numbers, the first in row {row}"
    where = trial.subject.first_not_finite(trial.tokens, trial.positions)
    return Check(
        what="logits",
        against="itself",
        verdict="wrong",
        cause=CAUSE,
        reason=f"{says}; {where}" if where else says,
        way_out=WAY_OUT,
        difference=Difference(position=float(trial.start + token)),
    )
