"""A checkpoint as it was found: in any format, its tensors by transformers' names and its config in their keys."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...models.reading.pictures import CLASS, of_pictures
from .output import Output
from .qk_tensors import QKTensors, find_qk_tensors
from .stored import Tensor, place_of

WEIGHTS = (".safetensors", ".bin", ".pth", ".pt", ".ckpt", ".gguf", ".ggml", ".h5", ".msgpack", ".onnx", ".npz",
    ".safetensors.index.json", ".bin.index.json", ".tflite", ".ot", ".onnx_data", ".mar", ".partial")  # fmt: skip
METADATA = "metadata.gguf"  # of a GGUF file that was converted
MARK, PROOF = "phasor.json", "phasor-proof.json"
OURS = (MARK, PROOF)


@dataclass(frozen=True, kw_only=True)
class Source:
    """What a format's reader found, all checked and nothing loaded.

    - ``tensors``: transformers' name -> where its bytes are, in the order of the files.
    - ``config``: what transformers' ``config.json`` says, or would say; ``stated``: the file that says it, where
      it is another one, and ``keys``: transformers' key -> the one that stands there, where they differ.
    - ``layout``: how the pairs lie (`phasor.checkpoints.permutation.WORDS`), and ``why`` that is believed.
    - ``files``: every file that holds weights. ``other_files`` are copied; ``left_out``, weights in other formats, are
      not.
    - ``new_files``: name -> bytes of a file that goes along into other formats.
    - ``lost``: sentences on what a file speaks of and does not hold, without which it rotates otherwise.
    - ``keep``: what its own format wrote that transformers' names and keys have no place for.
    """

    format: str
    path: Path
    tensors: Mapping[str, Tensor]
    config: dict[str, Any]
    layout: str
    why: str
    files: tuple[Path, ...]
    other_files: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    new_files: Mapping[str, bytes] = field(default_factory=dict)
    lost: tuple[str, ...] = ()
    keep: Mapping[str, Any] = field(default_factory=dict)
    stated: Path | None = None
    keys: Mapping[str, str] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """The format in words: folders of diffusers and timm are as those of transformers."""
        return CLASS.get(of_pictures(self.config), self.format)

    @property
    def folder(self) -> Path:
        return self.path if self.path.is_dir() else self.path.parent

    @property
    def config_file(self) -> Path:
        return self.stated or self.folder / "config.json"

    def said(self, key: str) -> str:
        """For errors: where a key of the config stands, and its name there."""
        return f"{self.config_file}: {self.keys.get(key, key)}"

    def place(self, name: str) -> str:
        """For errors: a tensor, and the file that holds it."""
        return place_of(self.folder, name, self.tensors)

    def qk_tensors(self, part: str | None = None) -> QKTensors:
        """All that follows the pair layout, with errors about the config in the words of its file."""
        if self.kind != self.format:
            from .seen_tensors import find_seen_tensors  # it builds the class, and runs it

            return find_seen_tensors(self.folder, self.config, self.tensors)
        return find_qk_tensors(self.folder, self.config, self.tensors, part, file=self.stated, keys=self.keys)


@dataclass(frozen=True)
class Format:
    """One format of checkpoints.

    - ``recognised(path)``: whether a folder or file is of this format, by its files alone.
    - ``read(path, allow_pickle=False)``: its `Source`; ``ValueError`` names the file and the rule that it breaks.
    - ``outputs(source, moves, config, mark)``: the files to write; ``moves``: tensor -> the new order of its rows,
      ``mark``: the layout, where it is not the one that the model's own code reads. ``ValueError`` for a model that
      the format has no place for.
    - ``layout(qk)``: the layout in which the format is read: ``"halves"``, ``"interleaved"`` or ``"native"``.
    - ``absorbed``: files that what is written holds, so that they are not copied beside it.
    """

    name: str
    recognised: Callable[[Path], bool]
    read: Callable[..., Source]
    outputs: Callable[..., list[Output]]
    layout: Callable[[QKTensors], str]
    absorbed: tuple[str, ...] = ()


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
