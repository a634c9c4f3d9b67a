"""Diagnosis: what the doctor checked in a model, what it found, why, what that does to answers, and the way out."""

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, Literal

from ...support.findings import Difference, Finding, Report, Verdict, merged

ROTATION = "rotation of q and k"  # what is looked at in each attention
IN_CALLS = "q and k"  # and in each way of calling the model
BIAS, ADDED = "bias on the logits", "positions added to the tokens"  # and where nothing rotates

_TABLES = (
    "the model takes tokens to be nearer or farther apart than they are; short prompts may look fine, long ones fail"
)
_SHARPNESS = "attention is sharper or flatter than in training, so answers are off at every length"
_BATCH = "the answer to one text depends on what else is in the batch"
_CACHE = "the answer depends on how the text was fed: at once, in pieces, or token by token while generating"

EFFECTS = {  # by the beginning of what was looked at
    "frequencies": _TABLES,
    "tables": _TABLES,
    "table ": _TABLES,
    "positions have an effect": "the model cannot tell the order of words",
    BIAS: "attention weighs distances otherwise than in training",
    "positions": "tokens are taken to stand at other places in the text",
    "operator": "attention sees distances that it was not trained on, or weighs them otherwise",
    IN_CALLS: "the answer depends on how the model is called",
    "gradient": "training moves the weights in a wrong direction",
    "with gradients": "training sees another model than inference",
    "same operator": "a long call changes the answers to all later ones",
    "layers of one kind": "one layer sees other distances than its kind",
    ROTATION: "attention sees distances that it was not trained on: text gets worse at every length",
    "shift of all positions": "the answer depends on where the text begins, and not only on what it says",
    "own positions of each row": _BATCH,
    "padded": _BATCH,
    "alone": _BATCH,
    "packed": "documents that share a row see each other's positions, in training too",
    "cached": _CACHE,
    "chunked": _CACHE,
    "compiled": "the compiled model gives other answers than its own code",
    "eager": "another implementation of attention gives other answers",
    "logits": "some of the model's outputs are no numbers",
    "loss on the text": "the model predicts real text worse than its weights can",
    "consistency": "programs that read this folder will disagree about what the model is",
}


def effect_of(what: str, cause: str = "") -> str:
    """The sentence for what was looked at and why it is wrong, or nothing where none is known.

    >>> effect_of("padded left = alone")
    'the answer to one text depends on what else is in the batch'
    """
    if cause == "attention factor":
        return _SHARPNESS
    return next((effect for start, effect in EFFECTS.items() if what.startswith(start)), "")


Against = Literal["spec", "itself", "text"]
BY_DESIGN = "inconsistent by design"


@dataclass(frozen=True, kw_only=True)
class Check(Finding):
    """One thing that was looked at in a model.

    ``against``: the ``"spec"`` that the config gives, the model ``"itself"``, which must agree with itself, or a
    ``"text"`` on which the weights must be at their best as the config states them. An encoding that is meant to be
    inconsistent with itself (dynamic NTK) is right, and its ``cause`` says so.

    >>> check = Check(what="shift of all positions", against="itself", verdict="right",
    ...               difference=Difference(size=2e-7, of="logits"))
    >>> print(check)
    right: (the model): shift of all positions (logits differ by 2e-07)
    """

    against: Against
    needed: bool = False  # without it nothing is right: what runs was not observed

    def place(self) -> str:
        return f"{self.where or '(the model)'}: {self.what}"

    def apart(self, **fields: Any) -> Difference:
        """Its difference, with some fields changed."""
        return replace(self.difference or Difference(), **fields)

    @property
    def size(self) -> float | None:
        return None if self.difference is None else self.difference.size

    @property
    def position(self) -> float | None:
        position = None if self.difference is None else self.difference.position
        return position[0] if isinstance(position, tuple) else position

    @property
    def pair(self) -> int | None:
        return None if self.difference is None else self.difference.pair

    @property
    def effect(self) -> str:
        """What this does to the model's answers, if it is wrong; else nothing."""
        return effect_of(self.what, self.cause) if self.verdict == "wrong" else ""

    @property
    def by_design(self) -> bool:
        return self.cause == BY_DESIGN


@dataclass(frozen=True)
class Diagnosis(Report[Check]):
    """Every check of a model; prints the verdict first, then what is wrong or was needed, then all other checks.

    >>> rows = (Check(where="rotary", what="tables", against="spec", verdict="wrong", cause="base", reason="1e4"),)
    >>> diagnosis = Diagnosis("LlamaForCausalLM", rows)
    >>> diagnosis.sound, diagnosis.exit_code, [row.cause for row in diagnosis.wrong]
    (False, 1, ['base'])
    >>> diagnosis.summary()
    'LlamaForCausalLM: wrong: 1 fault in 1 check: base'
    """

    @property
    def verdict(self) -> Verdict:
        """Wrong if anything is; not shown if something without which nothing is right was not observed; else right."""
        verdict = super().verdict
        return "not shown" if verdict == "right" and self.missing else verdict

    @property
    def missing(self) -> tuple[Check, ...]:
        """What was not observed, and without which nothing is right."""
        return tuple(row for row in self.findings if row.needed and row.verdict == "not shown")

    @property
    def sound(self) -> bool:
        """Whether the verdict is "right": what runs was observed, and nothing of it is wrong."""
        return self.verdict == "right"

    def summary(self) -> str:
        """One line."""
        count = Counter(row.verdict for row in self.findings)
        checked = len(self.findings) - count["not shown"]
        meant = sum(row.by_design for row in self.findings)
        checks = f"{checked} check{'s' * (checked != 1)}"
        rest = [f"{count['not shown']} not shown"] * (count["not shown"] > 0)
        rest += [f"{meant} inconsistent by design"] * (meant > 0)
        if not self.wrong:
            lacks = ", ".join(dict.fromkeys(row.what for row in self.missing))
            said = ", ".join((f"no fault in {checks}", *rest))
            return f"{self.subject}: {self.verdict}: {said}{f': {lacks}' if lacks else ''}"
        faults = f"{len(self.wrong)} fault{'s' * (len(self.wrong) != 1)}"
        said = f"{faults} in {checks}: {', '.join(self.causes) or 'unknown cause'}"
        return f"{self.subject}: wrong: {'; '.join((said, *rest))}"

    def __str__(self) -> str:
        lines = [self.summary()]
        for row in merged((*self.wrong, *self.missing)):
            more = (row.way_out, f"effect: {row.effect}" if row.effect else "")
            lines += [str(row), *(f"  {line}" for line in more if line)]  # in one line, for commands are to be copied
        return "\n".join([*lines, *self._other_lines()])

    def _other_lines(self) -> list[str]:
        """What is not wrong, a line each; what is not shown for one reason is one line."""
        shown = [row for row in merged(self.findings) if row.verdict == "right"]
        reasons: dict[str, list[Check]] = {}
        for row in merged(self.findings):
            if row.verdict == "not shown" and not row.needed:
                reasons.setdefault(row.reason, []).append(row)
        lines = [_together(rows) for rows in reasons.values()]
        return [*lines, *(str(row) for row in shown)]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        checks = [row.to_dict() for row in self.findings]
        about = {"model": self.subject, "sound": self.sound, "verdict": self.verdict, "summary": self.summary()}
        return {**about, "checks": checks}


def _together(rows: list[Check]) -> str:
    if len(rows) == 1:
        return str(rows[0])
    places = dict.fromkeys(row.where or "(the model)" for row in rows)
    whats = dict.fromkeys(row.what for row in rows)
    return f"not shown: {', '.join(places)}: {', '.join(whats)}: {rows[0].reason}"


__all__ = ["BY_DESIGN", "Against", "Check", "Diagnosis", "Verdict", "merged"]
