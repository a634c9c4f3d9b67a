"""One tiny model of a type as its library makes it, under the doctor: what was checked, and what was found."""

import contextlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from conformance.given import build, inputs_for
from conformance.walk import quiet
from phasor import diagnose
from phasor.tools.doctor.report import Check

WORST_FIRST = ("wrong", "by design", "right", "not shown")
TIMM = "its vision tower is one of timm, which is not installed"
NOT_COVERED = {
    "fast_vlm": TIMM,
    "gemma3n": TIMM,
    "lightglue": "its frequencies are trained",
    "pe_audio_video": TIMM,
    "pe_audio_video_encoder": TIMM,
    "pe_video": TIMM,
    "pe_video_encoder": TIMM,
    "perception_lm": TIMM,
    "vjepa2": "the two members of a pair turn by different angles, by no module that could be asked",
}
# Types in which the doctor is right: what it finds, and where transformers does so.
FAULTS = {
    # BambaModel.forward counts from 0 in each call that is given no position_ids, also after a cache
    "bamba": {"positions restart with the cache"},
    # PaliGemmaModel.forward without token_type_ids: its causal mask is left out for SDPA, whose modules are not causal
    "paligemma": {"not eager = the chosen attention"},
}


@dataclass
class Told:
    """``verdicts``: the worst of each kind; ``faults``: causes; ``why``: the faults, or what is not checked."""

    verdicts: dict[str, str]
    faults: list[str]
    why: str

    @property
    def covered(self) -> bool:
        return any(verdict != "not shown" for verdict in self.verdicts.values())

    def wrong(self, model_type: str) -> str:
        """What is not as it must be; empty for a type without an alarm, and for one that is named."""
        if set(self.faults) != FAULTS.get(model_type, set()):
            return self.why or "the fault that is named is not found"
        if self.covered == (model_type in NOT_COVERED):
            return "covered, and named as not covered" if self.covered else f"not covered, and not named so: {self.why}"
        return ""


def told(model_type: str) -> dict[str, Any]:
    """The diagnosis of a type with its own inputs, where they are no words alone; with SDPA, where it has that."""
    try:
        with quiet():
            model = build(model_type)
            inputs = inputs_for(model_type, model)
    except Exception as error:
        return asdict(Told({}, [], f"not built: {error!s:.120}"))
    words = not isinstance(inputs, dict) or set(inputs) <= {"input_ids", "attention_mask"}
    with quiet():
        with contextlib.suppress(ValueError):  # so that the plain implementation is compared with another
            model.set_attn_implementation("sdpa")  # type: ignore[operator]
        found = diagnose(model, None if words else inputs)
    why = str(found) if found.wrong else "; ".join({row.reason for row in found.findings if row.verdict == "not shown"})
    return asdict(Told(verdicts_of(found.findings), sorted(row.cause for row in found.wrong), why))


def verdicts_of(rows: Iterable[Check]) -> dict[str, str]:
    found: dict[str, set[str]] = {}
    for row in rows:
        name = row.what.split(", around")[0].split(" of layer type")[0]
        name = "tables" if name.startswith(("table", "frequencies")) else name
        found.setdefault(name, set()).add("by design" if row.by_design else row.verdict)
    return {name: next(v for v in WORST_FIRST if v in verdicts) for name, verdicts in found.items()}
