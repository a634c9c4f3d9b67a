"""The rotary model that the demo trains: which positions it uses, and the rotation that it wants for longer texts."""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ...support.whole_files import write_whole
from ...tools.doctor.loading import load
from ...tools.fit import fit
from ...tools.study import study
from ...tools.study.html import html_page
from ..lab import load_model, read_text
from ..lab.export import export
from ..lab.quick import threads

BYTES = 60_000  # of the held-out text: one half to fit on, the other to judge
PLACES, EVALUATIONS = 24, 60
STRETCH = 4


def studying(run: Path, out: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """Write ``study.html`` into ``out``, say both tables, and return the numbers. ``run``: a rotary run of the lab."""
    out.mkdir(parents=True, exist_ok=True)
    tokens = read_text().held_out_sample(BYTES).long()
    with TemporaryDirectory() as scratch:
        model = load(export(load_model(run)[0], Path(scratch) / "model"))
    with threads(1):
        used = study(model, tokens, budget=PLACES)
        fitted = fit(model, tokens, length=STRETCH * used.pairs.length, evaluations=EVALUATIONS)
    say(f"{used}\n\n{fitted}")
    write_whole(out / "study.html", html_page(used, "the small rotary model").encode())
    return {"used": list(used.pairs.used), "fit": fitted.to_dict()}
