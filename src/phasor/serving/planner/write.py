"""The files of a plan: config.json, a GGUF file with other keys, and the command line, whole or not at all."""

import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ..engines import typed
from .result import Plan


def write(plans: Sequence[Plan], folder: Path, gguf: Path | None = None) -> list[Path]:
    """Write the settings of each plan into ``folder``, which must not exist yet; the paths of what was written.

    ``config.json`` for engines that read it, ``flags.txt`` for the others; with ``gguf`` a copy of that file with
    changed keys, for llama.cpp. Of several engines each has a folder of its own. Everything is made beside ``folder``
    and then given its name, so there is either all of it or nothing. Raises ``ValueError`` where it exists, and where
    an engine cannot say the plan.
    """
    if folder.exists():
        raise ValueError(f"--write must be a new folder, and {str(folder)!r} is there already; name another")
    if refused := [plan for plan in plans if plan.settings is None]:
        raise ValueError(f"--write has nothing to write for {refused[0].engine}: {refused[0].refused}")
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        made = [name for plan in plans for name in _files(plan, scratch, plan.engine if len(plans) > 1 else "", gguf)]
        os.chmod(scratch, 0o755)
        os.replace(scratch, folder)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    return [folder / name for name in made]


def _files(plan: Plan, scratch: Path, inner: str, gguf: Path | None) -> list[str]:
    settings, place = plan.settings, scratch / inner
    assert settings is not None
    place.mkdir(exist_ok=True)
    made = []
    if settings.config is not None:
        (place / "config.json").write_text(json.dumps(settings.config, indent=2) + "\n", encoding="utf-8")
        made.append("config.json")
    if settings.flags:
        (place / "flags.txt").write_text(typed(settings.flags) + "\n", encoding="utf-8")
        made.append("flags.txt")
    if settings.gguf:
        if gguf is None:
            raise ValueError(
                f"--write needs the GGUF file for {plan.engine}, whose keys are changed; name it with --gguf"
            )
        from ..engines.gguf_file import rekey

        rekey(gguf, place / gguf.name, settings.gguf)
        made.append(gguf.name)
    return [f"{inner}/{name}".lstrip("/") for name in made]
