"""Published encodings and how each is built from its file of float64 numbers (shared data, ``encodings/``)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from phasor.encodings import Encoding, FoX

HEADS, LENGTH, HEAD_DIM = 2, 12, 8
File = Mapping[str, Tensor]


@dataclass(frozen=True)
class Published:
    """One row of the table: a file, and what of ours must give its numbers.

    ``learned`` names the parameter whose gradient the file has as ``grad_NAME``; ``gates`` the entries ``[H, N, ...]``
    that stand in the file for what the hidden states decide: they are the hidden states of the test, heads outside.
    ``out`` and ``logits`` are the entries to give, where the file has several.
    """

    build: Callable[[File], Encoding]
    file: str
    learned: Mapping[str, str] = field(default_factory=dict)
    gates: tuple[str, ...] = ()
    causal: bool = True
    out: str = "out"
    logits: str = "logits"

    def encoding(self, file: File) -> Encoding:
        encoding = self.build(file).double()
        with torch.no_grad():
            for name, parameter in self.learned.items():
                weight = encoding.get_parameter(parameter)
                weight.copy_(file["p_" + name].reshape(weight.shape))
        return encoding

    def hidden(self, file: File) -> Tensor | None:
        if not self.gates:
            return None
        columns = [torch.atleast_3d(file[name]) for name in self.gates]
        return torch.cat(columns, -1).transpose(0, 1).flatten(1).unsqueeze(0)


def read(folder: Path, name: str) -> File:
    with np.load(folder / "encodings" / f"{name}.npz") as data:
        file = {key: torch.from_numpy(np.asarray(data[key])) for key in data.files}
    return {"pos": torch.arange(LENGTH), **file}


def fox(file: File) -> FoX:
    encoding = FoX(HEADS, HEADS)
    with torch.no_grad():
        encoding.gate.weight.copy_(torch.eye(HEADS))
    return encoding


PUBLISHED = {
    "fox": Published(fox, "fox", gates=("gate_logits",)),
}
