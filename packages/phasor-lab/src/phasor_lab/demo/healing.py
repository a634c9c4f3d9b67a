"""The model that the demo trains, damaged by `.to(torch.bfloat16)` and then repaired: the doctor's page of each."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from phasor import diagnose, repair
from phasor.support.whole_files import write_whole
from phasor.tools.doctor.loading import load

from ..running.model import RunningModel

MADE_SICK = "model.to(torch.bfloat16)"
ROWS = 64  # of the held-out text, for the loss


def healing(folder: Path, tokens: Tensor, out: Path, say: Callable[[str], None] = print) -> dict[str, Any]:
    """Write ``sick.txt`` and ``healed.txt`` into ``out``, say the pages, and return the causes and what was mended.

    ``folder``: the model, as transformers loads it. ``tokens`` ``[tokens]``: text that it has not seen, for the loss at
    four times the trained length. Whether the healed model is bit for bit what loading it in bfloat16 gives is found
    with the same weights beside frequencies that never were in bfloat16.
    """
    out.mkdir(parents=True, exist_ok=True)
    model: Any = load(folder).to(torch.bfloat16)
    never_sick = load(folder)
    for parameter in never_sick.parameters():
        parameter.data = parameter.data.to(torch.bfloat16)
    length = 4 * model.config.max_position_embeddings
    text = torch.unflatten(tokens[: ROWS * length], 0, (-1, length))
    sick = diagnose(model)
    losses = [RunningModel(model).loss(text)]
    report, healed = repair(model), diagnose(model)
    losses += [RunningModel(model).loss(text), RunningModel(never_sick).loss(text)]
    loss = (
        f"nats per byte at {length} positions: {losses[0]:.4f} sick, {losses[1]:.4f} healed, {losses[2]:.4f} for a "
        "model that was loaded in bfloat16"
    )
    for name, diagnosis, more in (("sick", sick, [loss]), ("healed", healed, [str(report), loss])):
        told = "\n\n".join((str(diagnosis), *more)) + "\n"
        write_whole(out / f"{name}.txt", told.encode())
        say(told)
    with torch.no_grad():
        equal = torch.equal(model(text[:1]).logits, never_sick(text[:1]).logits)
    say(f"logits {'bit-equal to' if equal else 'OTHER than'} those of a model that was loaded in bfloat16")
    return {
        "causes": list(sick.causes), "mended": len(report.mended), "sound": healed.sound, "bit_equal": equal,
        "losses": losses,
    }  # fmt: skip
