"""Tiny models of every type of the conformance suite, as their library makes them: the doctor raises no alarm."""

from typing import Any

import pytest

pytest.importorskip("transformers")

from conformance import walk
from conformance.given import build, inputs_for
from conformance.kept import kept, sliced
from conformance.walk import quiet
from phasor import diagnose

SLICES = 24
NOT_BUILT = "not built"
# Types whose own code has a fault, in transformers 5.23 -> the cause that the doctor names.
FAULTY = {"bamba": "positions restart with the cache"}  # it counts from 0 in each call that is not given position_ids


def told(model_type: str) -> dict[str, Any]:
    """The faults found in a type, with its own inputs where they are no words alone; or why it is not built."""
    try:
        with quiet():
            model = build(model_type)
            inputs = inputs_for(model_type, model)
    except Exception as error:
        return {"faults": [], "checked": 0, "why": f"{NOT_BUILT}: {error!s:.120}"}
    words = not isinstance(inputs, dict) or set(inputs) == {"input_ids"}
    try:
        with quiet():
            found = diagnose(model, None if words else inputs)
    except ValueError as error:  # no rotary module, no inputs that reach the end of the model
        return {"faults": [], "checked": 0, "why": str(error)}
    causes = [row.cause for row in found.faults]
    return {"faults": causes, "checked": sum(row.checked for row in found.rows), "why": str(found) if causes else ""}


@pytest.mark.slow
@pytest.mark.parametrize("start", range(SLICES))
def test_no_alarm_in_any_type(start: int) -> None:
    found = {name: kept("doctor", name, lambda n=name: told(n)) for name in sliced(walk.model_types(), start, SLICES)}  # type: ignore[misc]
    for name, one in found.items():
        print(
            f"{name:40} {one['checked']} checks; {', '.join(one['faults']) or one['why'][:120] or 'sound'}", flush=True
        )
    alarms = {name: one["why"] for name, one in found.items() if one["faults"] and name not in FAULTY}
    assert alarms == {}
    assert all(FAULTY[name] in one["faults"] for name, one in found.items() if name in FAULTY)
