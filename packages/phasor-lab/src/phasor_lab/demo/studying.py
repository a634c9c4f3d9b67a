"""The rotary model that the demo trains: which pairs it uses, and the best frequencies for a longer context."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor

from phasor.support.whole_files import write_whole
from phasor.tools.doctor.loading import load

from ..fitting import fit
from ..run_folder.training import threads
from ..studying import study

BYTES = 60_000  # of the held-out text: one half to fit on, the other to judge
EVALUATIONS = 60
STRETCH = 4


def studying(folder: Path, tokens: Tensor, out: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """Write ``study.txt`` into ``out``, say both tables, and return the numbers.

    ``folder``: the model, as transformers loads it. ``tokens`` ``[tokens]``: text that it has not seen.
    """
    out.mkdir(parents=True, exist_ok=True)
    model = load(folder)
    with threads(1):
        used = study(model, tokens)
        fitted = fit(model, tokens, length=STRETCH * used.length, evaluations=EVALUATIONS)
    say(f"{used}\n\n{fitted}")
    write_whole(out / "study.txt", f"{used}\n\n{fitted}\n".encode())
    return {"used": list(used.rotations[0].used), "trained": used.trained.tokens, "fit": fitted.to_dict()}
