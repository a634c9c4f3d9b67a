"""One file per format: how it is recognised, read, and laid out to be written."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ....models.families.mistral import MISTRAL
from ..source import Source
from ..undo import JOURNAL
from . import gguf, llama2c, meta, mistral, transformers

FORMATS: Mapping[str, Any] = {
    "transformers": transformers, "meta": meta, MISTRAL: mistral, "llama2c": llama2c, "gguf": gguf,
}  # fmt: skip


def read(path: Path, *, allow_pickle: bool = False) -> Source:
    """The checkpoint at ``path``, a folder or a file, in the first format that recognises it.

    Raises ``ValueError`` if none does, or if it is damaged.
    """
    if not path.exists():
        raise ValueError(f"{path}: there is no such file or folder")
    if (path / JOURNAL).exists():
        raise ValueError(f"{path}: a conversion in place was interrupted here; call it again to finish it: --in-place")
    for form in FORMATS.values():
        if form.recognised(path):
            found: Source = form.read(path, allow_pickle=allow_pickle)
            return found
    raise ValueError(
        f"{path}: must hold a checkpoint of {', '.join(FORMATS)}: model.safetensors or its index beside config.json, "
        "consolidated.00.pth or consolidated.safetensors beside params.json, a .bin of llama2.c, or a .gguf"
    )
