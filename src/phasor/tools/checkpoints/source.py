"""A checkpoint as it was found: in any format, its tensors by transformers' names and its config in their keys."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .stored import Tensor

WEIGHTS = (".safetensors", ".bin", ".pth", ".pt", ".ckpt", ".gguf", ".ggml", ".h5", ".msgpack", ".onnx", ".npz",
    ".safetensors.index.json", ".bin.index.json", ".tflite", ".ot", ".onnx_data", ".mar", ".partial")  # fmt: skip
METADATA = "metadata.gguf"  # of a GGUF file that was converted
MARK, PROOF = "phasor.json", "phasor-proof.json"
OURS = (MARK, PROOF)


@dataclass(frozen=True, kw_only=True)
class Source:
    """What a format's reader found, all checked and nothing loaded.

    - ``tensors``: transformers' name -> where its bytes are, in the order of the files.
    - ``config``: what transformers' ``config.json`` says, or would say.
    - ``layout``: how the pairs lie (`phasor.checkpoints.permutation.WORDS`), and ``why`` that is believed.
    - ``files``: every file that holds weights; ``beside``: the others, which are copied; ``left_out``: weights in other
      formats, which are not.
    - ``along``: name -> bytes of a file that goes along into other formats.
    - ``keep``: what its own format wrote that transformers' names and keys have no place for.
    """

    format: str
    path: Path
    tensors: Mapping[str, Tensor]
    config: dict[str, Any]
    layout: str
    why: str
    files: tuple[Path, ...]
    beside: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    along: Mapping[str, bytes] = field(default_factory=dict)
    keep: Mapping[str, Any] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        return self.path if self.path.is_dir() else self.path.parent


def others(folder: Path, own: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The files of a folder beside ``own``, by relative names: those to copy, and those that hold weights of their own.

    Links to folders are not followed, and hidden files not taken; what is no regular file is not either.
    """
    copied: list[str] = []
    left: list[str] = []
    for at, folders, names in os.walk(folder):
        folders[:] = sorted(f for f in folders if not f.startswith("."))
        for name in sorted(names):
            path = Path(at) / name
            relative = str(path.relative_to(folder))
            if relative in own or relative in OURS or name.startswith(".") or not path.is_file():
                continue
            weights = name.endswith(WEIGHTS) and name != METADATA and not name.startswith("tok")
            (left if weights else copied).append(relative)
    return tuple(copied), tuple(left)
